"""Creates and drops schemas and tables on the target."""

from pymysql.connections import Connection

from unshard.adapters.mysql import identifier, query, table_name
from unshard.core.model import TableId
from unshard.core.relay.segment import SchemaDefault


def create_schema(
    connection: Connection, schema: str, *, if_not_exists: bool = False, default: SchemaDefault | None = None
) -> None:
    """Create a schema, with this default character set if one is given."""
    options = f" {default.options}" if default else ""
    query(connection, f"CREATE DATABASE {'IF NOT EXISTS ' if if_not_exists else ''}{identifier(schema)}{options}")


def set_default(connection: Connection, schema: str, default: SchemaDefault) -> None:
    """Change the default character set of a schema."""
    query(connection, f"ALTER DATABASE {identifier(schema)} {default.options}")


def drop_schema(connection: Connection, schema: str) -> None:
    """Drop a schema."""
    query(connection, f"DROP DATABASE {identifier(schema)}")


def drop_table(connection: Connection, table: TableId, *, if_exists: bool = False) -> None:
    """Drop a table."""
    query(connection, f"DROP TABLE {'IF EXISTS ' if if_exists else ''}{table_name(table)}")


def simplest_table(name: str) -> str:
    """Return a CREATE TABLE that every server accepts which accepts one at all."""
    return f"CREATE TABLE {identifier(name)} (`id` int NOT NULL PRIMARY KEY)"
