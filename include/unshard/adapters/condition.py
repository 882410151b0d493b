"""Evaluate the condition of a dump (`where`) the same way in the precheck, the dump and the validation.

All three use the same session settings. A session has only one time zone, so it is the one in which a dump reads
TIMESTAMP. Literals are text; a session of `mysql.connect_raw` would treat them as bytes and ignore collations.
"""

from pymysql.connections import Connection

from unshard.adapters import mysql
from unshard.core.model import TableId
from unshard.errors.source import StatementRefused

SESSION = (
    "SET SESSION sql_mode = '', time_zone = '+00:00', character_set_client = utf8mb4,"
    " collation_connection = utf8mb4_general_ci"
)


def prepare(connection: Connection) -> None:
    """Set the variables that a condition depends on; the format of printed values does not change."""
    mysql.query(connection, SESSION)


def refusal(connection: Connection, table: TableId, condition: str) -> str:
    """Return the server's message if it cannot evaluate the condition over a table's columns, else an empty string."""
    # Under an alias, so that a condition that names one table is refused for the others.
    sql = f"SELECT 1 FROM {mysql.table_name(table)} AS shard WHERE ({condition}) LIMIT 0"  # noqa: S608
    try:
        mysql.query(connection, sql)
    except StatementRefused as error:
        return error.server_message
    return ""
