"""The fence of a target table (the last window that it has, the epoch that may write), and the last writes of a task.

The last writes are recorded with the rows, in the meta schema and in the target schema, and compared.

| process dies                                     | result                                                      |
|--------------------------------------------------|-------------------------------------------------------------|
| between the creation of the two copies           | a missing copy counts as one without a write                |
| in a transaction with rows                       | both copies and the rows roll back                          |
| in COMMIT                                        | both copies have the write, or neither                      |
| between a DDL and its record                     | neither has it; the next attempt finds the DDL and records  |
| between the forgetting of a schema and its DROP  | neither has a write there                                   |
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from pymysql.connections import Connection

from unshard.adapters import mysql
from unshard.core.model import Server, TableId
from unshard.core.sql import lastwrites
from unshard.core.sql.quoting import identifier
from unshard.errors.locks import JoinChanged
from unshard.errors.meta import BackupOlder, FencedOut, FenceMissing
from unshard.errors.source import TableMissing, UnknownDatabase

# --- last writes ---

NO_SOURCE = ""
"""In place of a source: a DDL, which is not of one source."""
MISSING = (TableMissing, UnknownDatabase)
TABLES = "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s"
SCHEMAS = "SELECT TABLE_SCHEMA FROM information_schema.TABLES WHERE TABLE_NAME = %s ORDER BY 1"


@dataclass(frozen=True, slots=True)
class Pair:
    """A source and a target table of a task."""

    meta_schema: str
    task: str
    source: str
    target: TableId

    @property
    def key(self) -> tuple[str, str, str, str]:
        return self.task, self.source, self.target.schema, self.target.name

    @property
    def places(self) -> tuple[str, str]:
        return self.meta_schema, self.target.schema


@dataclass(frozen=True, slots=True)
class WriteDifference:
    """The last write of a pair as both schemas have it, in microseconds since 1970; 0: none."""

    pair: Pair
    in_meta: int
    in_target: int

    @property
    def error(self) -> BackupOlder:
        meta, target = self.pair.places
        older = f"the meta schema {meta}" if self.in_meta < self.in_target else f"the target schema {target}"
        source = f"source {self.pair.source}" if self.pair.source else "a DDL"
        return BackupOlder(
            self.pair.task,
            older,
            f"the last write of {source} to {self.pair.target} is {_moment(self.in_target)} in the target schema and"
            f" {_moment(self.in_meta)} in the meta schema",
        )


def fence_state(connection: Connection, pair: Pair) -> tuple[int, int] | None:
    """Return window and epoch of the fence, None without one; raises BackupOlder. Call it outside a transaction."""
    try:
        rows = _read(connection, pair)
    except TableMissing:
        mysql.query(connection, lastwrites.create(pair.target.schema))
        rows = _read(connection, pair)
    if not rows:
        return None
    ((window, epoch, in_meta, in_target),) = rows
    if in_target is None and not in_meta:
        mysql.query(connection, lastwrites.insert(pair.target.schema), (pair.meta_schema, *pair.key))
    elif in_meta != in_target:
        raise WriteDifference(pair, in_meta, in_target or 0).error
    return window, epoch


def prepare_fence(connection: Connection, pair: Pair) -> None:
    """Create what `record` changes; raises BackupOlder. Call it outside a transaction."""
    if fence_state(connection, pair) is None:
        mysql.query(connection, lastwrites.insert_fence(pair.meta_schema), (*pair.key, *pair.key[:2]))
        fence_state(connection, pair)


def change_fence(
    connection: Connection, pair: Pair, sets: str = "", values: tuple[int, ...] = (), where: str = "", *given: int
) -> bool:
    """Record a write in the transaction of its rows; False if `where` is false for the fence, or the copies differ."""
    text = lastwrites.change(*pair.places, sets, where)
    return bool(mysql.change(connection, text, (pair.meta_schema, *values, *pair.key, *given)))


def record_write(connection: Connection, pair: Pair) -> None:
    """Record a write in the transaction of its rows; raises BackupOlder if the copies differ."""
    if not change_fence(connection, pair):
        in_meta, in_target = next(((row[2], row[3]) for row in _read(connection, pair)), (0, 0))
        raise WriteDifference(pair, in_meta, in_target or 0).error


def record_ddl(server: Server, pair: Pair) -> None:
    """Record a DDL that the target has; nothing if it has dropped the schema."""
    with contextlib.closing(mysql.connect(server, "target")) as connection, contextlib.suppress(UnknownDatabase):
        prepare_fence(connection, pair)
        record_write(connection, pair)


def schemas_with_writes(connection: Connection) -> list[str]:
    """Return the target schemas that have last writes, of any task."""
    return [schema for (schema,) in mysql.query(connection, SCHEMAS, (lastwrites.NAME,))]


def differing_writes(connection: Connection, meta_schema: str, task: str) -> list[WriteDifference]:
    """Return the pairs whose copies differ; right also while rows are written."""
    while True:
        before = schemas_with_writes(connection)
        try:
            found = list(_differing_writes(connection, meta_schema, task, before))
        except MISSING:
            continue  # a schema was dropped meanwhile
        if not found or schemas_with_writes(connection) == before:
            return found


def drop_empty_schema(connection: Connection, meta_schema: str, task: str, schema: str) -> bool:
    """Drop a schema if it exists and has no table or view but the last writes of the task; return whether it did."""
    tables = {name for (name,) in mysql.query(connection, TABLES, (schema,))}
    if tables - {lastwrites.NAME} or (tables and not _forgotten(connection, meta_schema, task, schema)):
        return False
    mysql.query(connection, f"DROP DATABASE IF EXISTS {identifier(schema)}")
    return True


def _moment(written: int) -> str:
    return f"{datetime.fromtimestamp(written / 1e6, UTC):%Y-%m-%d %H:%M:%S.%f} UTC" if written else "never"


def _read(connection: Connection, pair: Pair) -> list[tuple[int, int, int, int | None]]:
    return mysql.query(connection, lastwrites.read(*pair.places), (pair.meta_schema, *pair.key))


def _differing_writes(
    connection: Connection, meta_schema: str, task: str, there: list[str]
) -> Iterator[WriteDifference]:
    fences = _fences(connection, meta_schema, task)
    for schema in there:
        if fences is None:
            rows = mysql.query(connection, lastwrites.alone(schema), (meta_schema, task, schema))
        else:
            values = meta_schema, task, schema
            rows = mysql.query(connection, lastwrites.differing(meta_schema, schema), (*values, *values))
        for source, table, in_meta, in_target in rows:
            yield WriteDifference(Pair(meta_schema, task, source, TableId(schema, table)), in_meta, in_target)
    for source, schema, table, in_meta in fences or ():
        if schema not in there:
            yield WriteDifference(Pair(meta_schema, task, source, TableId(schema, table)), in_meta, 0)


def _fences(connection: Connection, meta_schema: str, task: str) -> list[tuple[str, str, str, int]] | None:
    try:
        return mysql.query(connection, lastwrites.fences(meta_schema), (task,))
    except MISSING:
        return None


def _forgotten(connection: Connection, meta_schema: str, task: str, schema: str) -> bool:
    """Forget the last writes of the task in a schema; return False if another task has some there."""
    if mysql.query(connection, lastwrites.of_others(schema), (meta_schema, task, schema)):
        return False
    mysql.begin(connection)
    mysql.query(connection, lastwrites.forget_fences(meta_schema), (task, schema))
    mysql.query(connection, lastwrites.forget(schema), (meta_schema, task, schema))
    mysql.commit(connection)
    return True


# --- fences ---

OURS = "task = %s AND source = %s AND target_schema = %s AND target_table = %s"
"""SQL condition for rows of a meta table that belong to the fence's source and target; `named` returns the values."""
OWNED = "f.epoch = %s"


@dataclass(frozen=True, slots=True)
class Fence(Pair):
    """The fence that a writer requires, and the window that it sets."""

    window: int
    epoch: int
    join: int = 0
    """Version of the joined target (adapters/meta/joinrecords) for which the rows are converted; 0: it has none."""


def named(fence: Fence) -> tuple[str, str, str, str]:
    """Return the values of `OURS`."""
    return fence.key


def table_of(fence: Fence, name: str = "fence") -> str:
    """Return the quoted name of a meta table."""
    return f"{identifier(fence.meta_schema)}.{name}"


def is_applied(connection: Connection, fence: Fence) -> bool:
    """Whether the target has the window; raises FencedOut when another run has taken over, or BackupOlder.

    Call it outside a transaction.
    """
    return _has_window(fence, fence_state(connection, fence))


def hold(connection: Connection, fence: Fence) -> None:
    """Lock the fence until the end of a transaction that writes; raises FencedOut unless this run still owns it."""
    where = f" AND {OWNED} AND f.`window` < %s"
    if not change_fence(connection, fence, "", (), where, fence.epoch, fence.window):
        is_applied(connection, fence)
        raise FencedOut(fence.source, fence.window, fence.epoch, fence.epoch)


def hold_join(connection: Connection, fence: Fence) -> None:
    """Keep the ids of the target's columns until the end of the transaction; raises if they are no longer the same."""
    if fence.join:
        hold_version(connection, fence.meta_schema, fence.task, fence.target, fence.join)


def hold_version(connection: Connection, meta_schema: str, task: str, target: TableId, version: int) -> None:
    """Keep a joined target at a version until the end of the transaction; raises JoinChanged if it has another one."""
    # TiDB has no shared row locks.
    lock = "FOR UPDATE" if "tidb" in connection.get_server_info().lower() else "LOCK IN SHARE MODE"
    where = "task = %s AND target_schema = %s AND target_table = %s"
    sql = f"SELECT version FROM {identifier(meta_schema)}.join_target WHERE {where} {lock}"  # noqa: S608
    if mysql.query(connection, sql, (task, target.schema, target.name)) != [(version,)]:
        raise JoinChanged(str(target))


def lock_unless_applied(connection: Connection, fence: Fence) -> bool:
    """Lock the fence until the end of a transaction that reads; returns False if the target has the window."""
    sql = f"SELECT `window`, epoch FROM {table_of(fence)} WHERE {OURS} FOR UPDATE"  # noqa: S608
    return not _has_window(fence, next(iter(mysql.query(connection, sql, named(fence))), None))


def raise_fence(connection: Connection, fence: Fence) -> bool:
    """Set the fence to this window; returns False if this run does not own it any more."""
    where = f" AND {OWNED} AND f.`window` < %s"
    return change_fence(connection, fence, "f.`window` = %s, ", (fence.window,), where, fence.epoch, fence.window)


def _has_window(fence: Fence, state: tuple[int, int] | None) -> bool:
    if state is None:
        raise FenceMissing(str(fence.target), fence.source)
    window, epoch = state
    if window < fence.window and epoch != fence.epoch:
        raise FencedOut(fence.source, fence.window, fence.epoch, epoch)
    return window >= fence.window


def own(connection: Connection, fence: Fence) -> None:
    """Lock the fence until the end of a transaction that writes; raises FencedOut if another attempt has begun."""
    if change_fence(connection, fence, "", (), f" AND {OWNED}", fence.epoch):
        return
    state = fence_state(connection, fence)
    if state is None:
        raise FenceMissing(str(fence.target), fence.source)
    raise FencedOut(fence.source, fence.window, fence.epoch, state[1])
