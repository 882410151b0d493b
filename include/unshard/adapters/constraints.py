"""Read the names of the constraints of a table, and those that other tables of its schema have."""

from collections.abc import Collection, Iterable

from pymysql.connections import Connection

from unshard.adapters.mysql import query
from unshard.adapters.structures import read_schemas, server_dialect
from unshard.core.model import TableId
from unshard.core.structures.constraintnames import CHECK, FOREIGN, ConstraintsThere, checks_of

READ = (
    "SELECT TABLE_NAME, CONSTRAINT_TYPE, CONSTRAINT_NAME FROM information_schema.TABLE_CONSTRAINTS"
    " WHERE CONSTRAINT_SCHEMA = %s AND CONSTRAINT_TYPE IN ('CHECK', 'FOREIGN KEY')"
)


def read_constraints(connection: Connection, table: TableId) -> ConstraintsThere:
    """Read the names; a table that does not exist has none.

    TiDB keeps all of these names apart for each table, MariaDB those of CHECK constraints.
    """
    schema = read_schemas(connection, [table]).get(table)
    keys = (index.name for index in schema.indexes if index.unique) if schema else ()
    checks = checks_of(schema.create_sql, table.name) if schema else ()
    own, others = set[str](), set[tuple[str, str]]()
    for name, kind, constraint in query(connection, READ, (table.schema,)):
        if name.lower() != table.name.lower():
            others.add((CHECK if kind == CHECK else FOREIGN, constraint.lower()))
        elif kind != CHECK:
            own.add(constraint)
    others = {each for each in others if each[0] in _unique_kinds(connection)}
    return ConstraintsThere(_lower(checks), _lower(own), _lower(keys), frozenset(others))


def _unique_kinds(connection: Connection) -> Collection[str]:
    """Return the kinds of constraints whose names are unique in a schema."""
    if "TiDB" in connection.get_server_info():
        return ()
    return (FOREIGN,) if server_dialect(connection).mariadb else (CHECK, FOREIGN)


def _lower(names: Iterable[str]) -> frozenset[str]:
    return frozenset(name.lower() for name in names)
