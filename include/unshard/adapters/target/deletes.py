"""Delete rows: by lists of keys, or by all values in a table without a key."""

import re
from collections.abc import Sequence
from hashlib import sha256

from pymysql.connections import Connection

from unshard.adapters import mysql
from unshard.adapters.target.sending import run_statement
from unshard.adapters.target.targetrows import Destination, key_of
from unshard.core.model import Column, TableId, TableSchema
from unshard.core.rows.missingcolumns import SHAPED
from unshard.core.sql.literals import TEXTS, bytes_of, expression, literal
from unshard.core.sql.quoting import identifier
from unshard.core.structures.tablekeys import own_columns
from unshard.errors.rows import RowsMissing, StatementWarned

LISTED_KEYS = 500
LONG_VALUE = 2000
PLAIN_DEFAULT = re.compile(r"-?\d+(\.\d+)?|NULL|'[^']*'")
HASHED = (TEXTS - {"enum", "set"}) | {"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"}


def delete_keys(
    connection: Connection, table: TableId, key: Sequence[Column], keys: Sequence[tuple[bytes, ...]]
) -> int:
    """Delete the rows with these keys; returns how many existed."""
    deleted = 0
    for start in range(0, len(keys), LISTED_KEYS):
        condition = any_of(key, keys[start : start + LISTED_KEYS])
        deleted += _execute(connection, table, f"DELETE FROM {mysql.table_name(table)} WHERE {condition}")  # noqa: S608
    return deleted


def any_of(key: Sequence[Column], keys: Sequence[tuple[bytes | None, ...]]) -> str:
    """Return the SQL condition that a row has one of these keys."""
    if len(key) == 1:
        listed = ", ".join(literal(key[0], values[0]) for values in keys)
        return f"{identifier(key[0].name)} IN ({listed})"
    return " OR ".join(f"({_all_of(key, values)})" for values in keys)


def _all_of(key: Sequence[Column], values: Sequence[bytes | None]) -> str:
    pairs = zip(key, values, strict=True)
    return " AND ".join(f"{identifier(column.name)} = {literal(column, value)}" for column, value in pairs)


def remove_rows(connection: Connection, destination: Destination, schema: TableSchema, line: bytes, count: int) -> int:
    """Delete exactly `count` rows that have all the values of a line; RowsMissing if there are fewer."""
    table = destination.table
    found = _execute(connection, table, removal(destination, schema, line, count))
    if found != count:
        raise RowsMissing(str(table), key_of(destination, line), count, found)
    return found


def removal(destination: Destination, schema: TableSchema, line: bytes, count: int) -> str:
    """Return the DELETE of `count` rows that have all the values of a line.

    Other columns that shards fill have their default value in these rows. Of rows that differ only in columns of the
    target's own, those with default values are deleted first.
    """
    own = [_is_default(column.name) for column in own_columns(schema) if _has_plain_default(column)]
    order = f" ORDER BY {' AND '.join(own)} DESC" if own else ""
    where = " AND ".join(conditions_of(destination, schema, line))
    return f"DELETE FROM {mysql.table_name(destination.table)} WHERE {where}{order} LIMIT {count}"  # noqa: S608


def conditions_of(destination: Destination, schema: TableSchema, line: bytes) -> list[str]:
    """Return the conditions that a row has all values of a line, and defaults in other columns that shards fill."""
    named = {column.name for column in destination.columns}
    conditions = [
        is_exactly(column, value) for column, value in zip(destination.columns, destination.values(line), strict=True)
    ]
    others = (c for c in schema.written if c.name not in named and c.name.lower() not in schema.own)
    return [*conditions, *(_is_default(column.name) for column in others)]


def remove_one(
    connection: Connection, table: TableId, where: str, own: Sequence[Column], values: Sequence[bytes | None]
) -> int:
    """Delete one of the rows of a condition that have these values in their own columns, shapes not compared."""
    compared = (pair for pair in zip(own, values, strict=True) if pair[0].data_type not in SHAPED)
    conditions = " AND ".join([where, *(is_exactly(*pair) for pair in compared)])
    sql = f"DELETE FROM {mysql.table_name(table)} WHERE {conditions} LIMIT 1"  # noqa: S608
    return _execute(connection, table, sql)


def is_exactly(column: Column, value: bytes | None) -> str:
    """Return the condition that a column has a value: by its collation, which can use an index, and by its bytes."""
    name = identifier(column.name)
    if value is not None and len(value) > LONG_VALUE and column.data_type in HASHED:
        # Megabytes of digits would exceed the server's packet size.
        return (
            f"OCTET_LENGTH({expression(column)}) = {len(value)} AND SHA2({bytes_of(column)}, 256) ="
            f" '{sha256(value).hexdigest()}'"
        )
    if value is not None and column.data_type == "json":
        return f"{name} <=> CAST({literal(column, value)} AS JSON)"
    equal = f"{name} <=> {literal(column, value)}"
    if value is None or column.data_type not in TEXTS:
        return equal
    return f"{equal} AND {bytes_of(column)} <=> x'{value.hex()}'"


def _is_default(name: str) -> str:
    return f"{identifier(name)} <=> DEFAULT({identifier(name)})"


def _has_plain_default(column: Column) -> bool:
    """Whether the server returns DEFAULT(column): not for numbered columns, missing defaults and some expressions."""
    if column.is_numbered or column.is_generated:
        return False
    return column.nullable if column.default is None else bool(PLAIN_DEFAULT.fullmatch(column.default))


def _execute(connection: Connection, table: TableId, statement: str) -> int:
    ok = run_statement(connection, statement)
    if ok.warning_count:
        message = "; ".join(str(row[2]) for row in mysql.query(connection, "SHOW WARNINGS")[:3])
        raise StatementWarned(str(table), message)
    return int(ok.affected_rows)
