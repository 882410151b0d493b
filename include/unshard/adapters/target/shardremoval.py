"""Delete all rows of one shard from a merged target, in transactions of bounded size. Runs in the driver.

The rows are found by the values that name their shard (core.rules.shardrows). The target's key is walked once, so no
transaction reads the rows of another one again. Each transaction holds the fence and checks the epoch:

| process dies                    | result                                                                 |
|---------------------------------|------------------------------------------------------------------------|
| before or between transactions  | the same window runs again and deletes the rest                        |
| in a transaction                | the server rolls it back                                               |
| in COMMIT of a transaction      | a new connection repeats the range: its rows are gone, or go now       |
| another attempt begins          | the epoch was raised: this one stops, so it deletes no later row       |

Rows that the shard writes later are in later windows, which do not begin before this one is committed.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from pymysql.connections import Connection

from unshard.adapters import mysql
from unshard.adapters.target.deletes import is_exactly
from unshard.adapters.target.fence import Fence, own, prepare_fence
from unshard.adapters.target.fencesteps import bounds_of
from unshard.adapters.target.sending import run_statement
from unshard.adapters.target.session import Writer, in_sessions
from unshard.core.full.chunks import Key, walked_columns
from unshard.core.model import Shard, TableSchema
from unshard.core.rules.reshaping import stored_value
from unshard.core.rules.shardrows import ShardRows
from unshard.core.sql.keyrange import KeyRange
from unshard.core.sql.keyrange import condition as within
from unshard.core.sql.literals import DECIMALS, INTEGERS
from unshard.core.sql.quoting import identifier
from unshard.errors.rows import ShardRowsUnmarked


@dataclass(slots=True)
class _Walk:
    """The rows to delete, and how far the key is walked: a new session continues there."""

    fence: Fence
    schema: TableSchema
    condition: str
    most: int
    lower: Key | None = None
    rows: int = 0
    is_done: bool = False

    @property
    def table(self) -> str:
        return mysql.table_name(self.fence.target)

    def where(self, upper: Key | None = None) -> str:
        """Return the condition for the rows after the last transaction, up to a key."""
        return f"{self.condition} AND {within(walked_columns(self.schema), KeyRange(self.lower, upper))}"


def delete_rows_of(
    writer: Writer, fence: Fence, shard: Shard, rows: ShardRows, schema: TableSchema, most: int | None = None
) -> int:
    """Delete the rows of a shard, at most `most` in one transaction; return their number."""
    walk = _Walk(fence, schema, condition_of(fence, shard, rows, schema), most or bounds_of(writer).rows)
    delete_next = _delete_range if walked_columns(schema) else _delete_some

    def once(connection: Connection) -> None:
        prepare_fence(connection, fence)
        with _reading(writer) as reader:
            while not walk.is_done:
                delete_next(connection, reader, walk)

    in_sessions(writer, once)
    return walk.rows


def condition_of(fence: Fence, shard: Shard, rows: ShardRows, schema: TableSchema) -> str:
    """Return the condition that a row belongs to the shard; raises ShardRowsUnmarked if the target cannot tell."""
    columns = {column.name.lower(): column for column in schema.columns}
    parts = []
    for each in rows.values:
        column = columns.get(each.column.lower())
        value = stored_value(column, each.value) if column else None
        if column is None or value is None:
            raise ShardRowsUnmarked(str(shard), str(fence.target), each.column, column.column_type if column else "")
        parts.append(is_exactly(column, value))
    for span in rows.ids:
        column = columns.get(span.column.lower())
        if column is None or column.data_type not in INTEGERS | DECIMALS:
            raise ShardRowsUnmarked(str(shard), str(fence.target), span.column, column.column_type if column else "")
        parts.append(f"{identifier(column.name)} >= {span.first} AND {identifier(column.name)} < {span.end}")
    assert parts, "core.rules.shardrows has found values that name the shard"
    return " AND ".join(parts)


@contextlib.contextmanager
def _reading(writer: Writer) -> Iterator[Connection]:
    with contextlib.closing(mysql.connect_raw(writer.server, "target")) as connection:
        yield connection


def _delete_range(connection: Connection, reader: Connection, walk: _Walk) -> None:
    names = ", ".join(identifier(column.name) for column in walked_columns(walk.schema))
    bound = f"SELECT {names} FROM {walk.table} WHERE {walk.where()} ORDER BY {names} LIMIT 1 OFFSET {walk.most - 1}"  # noqa: S608
    found = mysql.query(reader, bound)
    upper = tuple(found[0]) if found else None
    walk.rows += _delete(connection, walk, walk.where(upper))
    walk.lower, walk.is_done = upper, upper is None


def _delete_some(connection: Connection, _: Connection, walk: _Walk) -> None:
    """Delete some rows of a table whose key cannot be walked; each transaction searches from the start of the table."""
    deleted = _delete(connection, walk, f"{walk.condition} LIMIT {walk.most}")
    walk.rows += deleted
    walk.is_done = deleted < walk.most


def _delete(connection: Connection, walk: _Walk, where: str) -> int:
    mysql.begin(connection)
    own(connection, walk.fence)
    deleted = int(run_statement(connection, f"DELETE FROM {walk.table} WHERE {where}").affected_rows)  # noqa: S608
    mysql.commit(connection)
    return deleted
