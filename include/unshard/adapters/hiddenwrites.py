"""What a statement may write besides the tables that it names, as a source's information_schema shows it."""

from collections.abc import Collection, Iterable

from pymysql.connections import Connection

from unshard.adapters.mysql import Row, query
from unshard.core.model import TableId

KINDS = "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE, ENGINE FROM information_schema.TABLES"
TRIGGERS = "SELECT EVENT_OBJECT_SCHEMA, EVENT_OBJECT_TABLE FROM information_schema.TRIGGERS"
CHILDREN = """SELECT CONSTRAINT_SCHEMA, TABLE_NAME, UPDATE_RULE, DELETE_RULE
FROM information_schema.REFERENTIAL_CONSTRAINTS"""
ROUTINES = "SELECT ROUTINE_NAME FROM information_schema.ROUTINES WHERE ROUTINE_NAME IN ({marks})"
HARMLESS = ("RESTRICT", "NO ACTION")
OWN_ROWS = frozenset(
    {"ARCHIVE", "ARIA", "BLACKHOLE", "CSV", "INNODB", "MEMORY", "MYISAM", "PERFORMANCE_SCHEMA", "ROCKSDB", "TOKUDB"}
)
"""Engines of tables that have their own rows; others may write into other tables."""
TABLES = ("BASE TABLE", "SEQUENCE", "SYSTEM VERSIONED")
SHOWN = "SYSTEM VIEW"
"""A table of information_schema."""


def real_tables(connection: Connection, tables: Collection[TableId]) -> frozenset[TableId] | None:
    """Return the tables that exist; None if one of them is a view, or of an engine that may write into another."""
    found = _of(connection, KINDS, ("TABLE_SCHEMA", "TABLE_NAME"), tables)
    found = [row for row in found if row[2] != SHOWN]
    if any(kind not in TABLES or str(engine).upper() not in OWN_ROWS for _, _, kind, engine in found):
        return None
    return frozenset(TableId(schema, name) for schema, name, *_ in found)


def have_triggers(connection: Connection, tables: Collection[TableId]) -> bool:
    """Whether one of the tables has a trigger."""
    return bool(_of(connection, TRIGGERS, ("EVENT_OBJECT_SCHEMA", "EVENT_OBJECT_TABLE"), tables))


def children(connection: Connection, tables: Collection[TableId]) -> frozenset[TableId]:
    """Return the tables whose foreign keys change their rows with those of the tables."""
    names = ("UNIQUE_CONSTRAINT_SCHEMA", "REFERENCED_TABLE_NAME")
    return frozenset(
        TableId(schema, name)
        for schema, name, *rules in _of(connection, CHILDREN, names, tables)
        if not set(rules) <= {*HARMLESS}
    )


def are_routines(connection: Connection, names: Collection[str]) -> bool:
    """Whether one of the names is that of a stored routine or package."""
    marks = ", ".join(["%s"] * len(names))
    return bool(names and query(connection, ROUTINES.format(marks=marks), sorted(names)))


def _of(connection: Connection, select: str, names: tuple[str, str], tables: Collection[TableId]) -> Iterable[Row]:
    """Return the rows about the tables, whose names the server may have in lower case."""
    if not tables:
        return []
    spelled = sorted({TableId(t.schema, t.name) for t in tables} | {_lower(t) for t in tables})
    marks = ", ".join(["(%s, %s)"] * len(spelled))
    values = [part for table in spelled for part in (table.schema, table.name)]
    return query(connection, f"{select} WHERE ({', '.join(names)}) IN ({marks})", values)


def _lower(table: TableId) -> TableId:
    return TableId(table.schema.lower(), table.name.lower())
