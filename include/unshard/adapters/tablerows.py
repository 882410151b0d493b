"""Questions about the rows of a table: keys, ranges, the condition of a dump, and checksums.

The condition of a dump (`where`) is evaluated in the same way in the precheck, the dump and the validation. All three
use the same session settings. A session has only one time zone, so it is the one in which a dump reads TIMESTAMP.
Literals are text; a session of `mysql.connect_raw` would treat them as bytes and ignore collations.

Of the statements that compare tables by checksums, `rows` is a table expression and `hashed` the hash of a row.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from pymysql.connections import Connection

from unshard.adapters import mysql
from unshard.adapters.mysql import Row, Spelled, query, table_name
from unshard.core.full.chunks import key_index, walked_columns
from unshard.core.model import Column, Index, TableId, TableSchema
from unshard.core.sql.keyrange import KeyRange, condition
from unshard.core.sql.literals import expression
from unshard.core.sql.quoting import identifier
from unshard.core.validate.checksum import checksum
from unshard.errors.source import StatementRefused


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
    connection: Connection, table: TableId, columns: Sequence[str], index: Index, where: str, count: int
) -> list[tuple[Any, ...]]:
    """Return the values of columns in the first and the last rows of an index, `count` of each.

    Rows that do not meet the condition are left out; the server does not search for others.
    """
    names = ", ".join(map(identifier, columns))
    keys: list[tuple[Any, ...]] = []
    for direction in ("ASC", "DESC"):
        order = ", ".join(f"{identifier(name)} {direction}" for name in index.columns)
        sql = f"SELECT ({where}) IS TRUE, {names} FROM {table_name(table)} ORDER BY {order} LIMIT {count}"  # noqa: S608
        keys += [tuple(row[1:]) for row in query(connection, sql) if row[0]]
    return keys


def existing_keys(
    connection: Connection,
    table: TableId,
    columns: Sequence[str],
    first: str,
    where: str,
    keys: Collection[tuple[Any, ...]],
) -> list[Row]:
    """Return those of the keys that the table has in rows that meet the condition; `first` begins an index."""
    names = ", ".join(map(identifier, columns))
    marks = ", ".join([f"({', '.join(['%s'] * len(columns))})"] * len(keys))
    place = [name.lower() for name in columns].index(first.lower())
    firsts = [key[place] for key in keys]
    # The driver inserts the values by `%`, which may also be in names and in the condition.
    asking = f"SELECT {names} FROM {table_name(table)} WHERE ({where}) AND {identifier(first)} IN".replace("%", "%%")  # noqa: S608
    whole = f"AND ({names}) IN".replace("%", "%%")
    sql = f"{asking} ({', '.join(['%s'] * len(firsts))}) {whole} ({marks})"
    return query(connection, Spelled(sql), [*firsts, *(value for each in keys for value in each)])


def rows_statement(table: TableId, schema: TableSchema, span: KeyRange | None, where: str) -> str:
    """Return the SELECT of the dump: all rows in any order, or those of a range of the key in its order."""
    selected = ", ".join(map(expression, schema.written))
    if span is None:
        return f"SELECT {selected} FROM {table_name(table)}{f' WHERE ({where})' if where else ''}"  # noqa: S608
    walked = ", ".join(identifier(name) for name in schema.key[: len(walked_columns(schema))])
    return f"{_ranged(table, schema, selected, span, where)} ORDER BY {walked}"


def locking_rows(table: TableId, schema: TableSchema, columns: Sequence[Column], span: KeyRange) -> str:
    """Return the SELECT of some columns in a range of the key that waits for the transactions that change its rows.

    A shared lock needs no other privilege than SELECT. The rows are those that are committed last.
    """
    selected = ", ".join(map(expression, columns))
    return f"{_ranged(table, schema, selected, span, '')} LOCK IN SHARE MODE"


def _ranged(table: TableId, schema: TableSchema, selected: str, span: KeyRange, where: str) -> str:
    return (
        f"SELECT {selected} FROM {table_name(table)} FORCE INDEX ({identifier(key_index(schema))})"  # noqa: S608
        f" WHERE {condition(walked_columns(schema), span)}{f' AND ({where})' if where else ''}"
    )


# --- conditions of a dump ---

CONDITION_SESSION = (
    "SET SESSION sql_mode = '', time_zone = '+00:00', character_set_client = utf8mb4,"
    " collation_connection = utf8mb4_general_ci"
)


def prepare_condition(connection: Connection) -> None:
    """Set the variables that a condition depends on; the format of printed values does not change."""
    mysql.query(connection, CONDITION_SESSION)


def condition_refusal(connection: Connection, table: TableId, condition: str) -> str:
    """Return the server's message if it cannot evaluate the condition over a table's columns, else an empty string."""
    # Under an alias, so that a condition that names one table is refused for the others.
    sql = f"SELECT 1 FROM {mysql.table_name(table)} AS shard WHERE ({condition}) LIMIT 0"  # noqa: S608
    try:
        mysql.query(connection, sql)
    except StatementRefused as error:
        return error.server_message
    return ""


# --- comparison by checksums ---


def sums(places: Sequence[tuple[str, str]]) -> str:
    """Select number, row count and sum for each of several (hash, rows), numbered from 0."""
    each = (f"SELECT {number}, {checksum(hashed)} FROM {rows}" for number, (hashed, rows) in enumerate(places))  # noqa: S608
    return " UNION ALL ".join(each)


def nth_key(key: Iterable[str], rows: str, number: int) -> str:
    """Select the key of the row with that number, counted from 1 in the order of the key."""
    names = ", ".join(map(identifier, key))
    return f"SELECT {names} FROM {rows} ORDER BY {names} LIMIT 1 OFFSET {number - 1}"  # noqa: S608


def bucket_sums(hashed: str, digits: int, rows: str) -> str:
    """Select row count and sum for each bucket: the first digits of the hash."""
    return f"SELECT LEFT({hashed}, {digits}) AS bucket, {checksum(hashed)} FROM {rows} GROUP BY bucket"  # noqa: S608


def in_bucket(hashed: str, bucket: str) -> str:
    """Return the condition that the hash of a row begins with these digits."""
    return f"LEFT({hashed}, {len(bucket)}) = '{bucket}'"


def hash_counts(hashed: str, rows: str) -> str:
    """Select how often each hash occurs."""
    return f"SELECT {hashed} AS hash, COUNT(*) FROM {rows} GROUP BY hash"  # noqa: S608


def with_hashes(hashed: str, hashes: Iterable[str]) -> str:
    """Return the condition that the hash of a row is one of these."""
    listed = ", ".join(f"'{digest}'" for digest in sorted(hashes))
    return f"{hashed} IN ({listed})"


def hashes_and_columns(hashed: str, columns: Iterable[str], rows: str) -> str:
    """Select the hash and some columns of each row."""
    return f"SELECT {hashed}, {', '.join(columns)} FROM {rows}"  # noqa: S608
