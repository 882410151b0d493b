"""Questions about the rows of a table."""

from collections.abc import Collection, Sequence
from typing import Any

from pymysql.connections import Connection

from unshard.adapters.mysql import Row, Spelled, identifier, query, table_name
from unshard.core.full.chunks import key_index, walked_columns
from unshard.core.model import TableId, TableSchema
from unshard.core.sql.keyrange import KeyRange, condition
from unshard.core.sql.literals import expression


def has_row(connection: Connection, rows: str, where: str) -> bool:
    """Return whether a row meets a condition; `rows` is a table expression."""
    return bool(query(connection, f"SELECT 1 FROM {rows} WHERE {where} LIMIT 1"))  # noqa: S608


def try_select(connection: Connection, table: TableId) -> None:
    """Raise the coded error if the account may not read the table."""
    query(connection, f"SELECT * FROM {table_name(table)} LIMIT 0")  # noqa: S608


def value_range(connection: Connection, table: TableId, column: str) -> tuple[int, int] | None:
    """Return the smallest and the largest value of a column of integers, None if there is no row."""
    name = identifier(column)
    ((low, high),) = query(connection, f"SELECT MIN({name}) + 0, MAX({name}) + 0 FROM {table_name(table)}")  # noqa: S608
    return None if low is None else (int(low), int(high))


def keys_at_both_ends(
    connection: Connection, table: TableId, key: Sequence[str], where: str, count: int
) -> list[tuple[Any, ...]]:
    """Return the first and the last keys of a table, `count` of each, without those that do not meet the condition.

    The server does not search for keys that meet the condition.
    """
    names = ", ".join(map(identifier, key))
    keys: list[tuple[Any, ...]] = []
    for direction in ("ASC", "DESC"):
        order = ", ".join(f"{identifier(name)} {direction}" for name in key)
        sql = f"SELECT ({where}) IS TRUE, {names} FROM {table_name(table)} ORDER BY {order} LIMIT {count}"  # noqa: S608
        keys += [tuple(row[1:]) for row in query(connection, sql) if row[0]]
    return keys


def existing_keys(
    connection: Connection, table: TableId, key: Sequence[str], where: str, keys: Collection[tuple[Any, ...]]
) -> list[Row]:
    """Return those of the keys that the table has in rows that meet the condition."""
    names = ", ".join(map(identifier, key))
    marks = ", ".join([f"({', '.join(['%s'] * len(key))})"] * len(keys))
    # The driver inserts the values by `%`, which may also be in names and in the condition.
    asking = f"SELECT {names} FROM {table_name(table)} WHERE ({where}) AND ({names}) IN".replace("%", "%%")  # noqa: S608
    return query(connection, Spelled(f"{asking} ({marks})"), [value for each in keys for value in each])


def rows_statement(table: TableId, schema: TableSchema, span: KeyRange | None, where: str) -> str:
    """Return the SELECT of the dump: all rows in any order, or those of a range of the key in its order."""
    selected = ", ".join(map(expression, schema.written))
    if span is None:
        return f"SELECT {selected} FROM {table_name(table)}{f' WHERE ({where})' if where else ''}"  # noqa: S608
    walked = walked_columns(schema)
    names = ", ".join(identifier(name) for name in schema.key[: len(walked)])
    return (
        f"SELECT {selected} FROM {table_name(table)} FORCE INDEX ({identifier(key_index(schema))})"  # noqa: S608
        f" WHERE {condition(walked, span)}{f' AND ({where})' if where else ''} ORDER BY {names}"
    )
