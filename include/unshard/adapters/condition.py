"""The condition of a dump (`where`) as servers evaluate it: alike in the check, the dump and where tables are compared.

So its session is the same everywhere. Its time zone is the one in which a dump reads TIMESTAMP, because a session has
one only; its literals are text, which a session of `mysql.connect_raw` would take for bytes, blind to collations.
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
    """Set what a condition depends on; how values are printed stays as it is."""
    mysql.query(connection, SESSION)


def refusal(connection: Connection, table: TableId, condition: str) -> str:
    """Return the server's words if it cannot evaluate the condition over the columns of a table, else nothing."""
    # By another name: a condition that names one table does not fit the others.
    sql = f"SELECT 1 FROM {mysql.table_name(table)} AS shard WHERE ({condition}) LIMIT 0"  # noqa: S608
    try:
        mysql.query(connection, sql)
    except StatementRefused as error:
        return error.words
    return ""
