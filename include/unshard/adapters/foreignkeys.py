"""Read the foreign keys of a server."""

from collections.abc import Collection

from pymysql.connections import Connection

from unshard.adapters.mysql import query
from unshard.core.model import TableId
from unshard.core.structures.foreignkeys import ForeignKey

READ = (
    "SELECT rules.CONSTRAINT_SCHEMA, rules.TABLE_NAME, rules.CONSTRAINT_NAME, rules.DELETE_RULE, rules.UPDATE_RULE,"
    " parts.COLUMN_NAME, parts.REFERENCED_TABLE_SCHEMA, parts.REFERENCED_TABLE_NAME, parts.REFERENCED_COLUMN_NAME"
    " FROM information_schema.REFERENTIAL_CONSTRAINTS rules JOIN information_schema.KEY_COLUMN_USAGE parts"
    " ON parts.CONSTRAINT_SCHEMA = rules.CONSTRAINT_SCHEMA AND parts.CONSTRAINT_NAME = rules.CONSTRAINT_NAME"
    " AND parts.TABLE_NAME = rules.TABLE_NAME AND parts.REFERENCED_TABLE_NAME IS NOT NULL"
    " WHERE rules.CONSTRAINT_SCHEMA IN ({0}) OR parts.REFERENCED_TABLE_SCHEMA IN ({0})"
    " ORDER BY 1, 2, 3, parts.ORDINAL_POSITION"
)


def read_foreign_keys(connection: Connection, tables: Collection[TableId]) -> tuple[ForeignKey, ...]:
    """Read the foreign keys from and to all tables in the schemas of these tables."""
    schemas = sorted({table.schema for table in tables})
    if not schemas:
        return ()
    parts: dict[tuple[str, str, str], list[tuple[str, ...]]] = {}
    for schema, table, name, *part in query(connection, READ.format(", ".join(["%s"] * len(schemas))), schemas * 2):
        parts.setdefault((schema, table, name), []).append(tuple(part))
    return tuple(
        ForeignKey(
            child=TableId(schema, table),
            columns=tuple(part[2] for part in found),
            parent=TableId(found[0][3], found[0][4]),
            parent_columns=tuple(part[5] for part in found),
            name=name,
            on_delete=found[0][0],
            on_update=found[0][1],
        )
        for (schema, table, name), found in parts.items()
    )
