"""The progress of chunks, in the transaction of their rows: of the load, and of the reload of columns (in executors).

In a reload, the source is held, the rows are updated, and the progress is recorded in one transaction.

`hold_source` locks the row of the source, as the beginning and the end of a window do. So no window of the source
begins until the transaction ends, and no other chunk of the source is written.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pymysql.connections import Connection

from unshard.adapters import mysql
from unshard.adapters.target.deletes import any_of
from unshard.adapters.target.sending import STATEMENT_BYTES, run_statement
from unshard.core.ddl.issuedcommands import IssuedCommand
from unshard.core.full.chunks import Key, pack_key, unpack_key
from unshard.core.model import Column, Shard, TableId
from unshard.core.rows.columnreload import ReloadState, names_digest
from unshard.core.sql.literals import stored
from unshard.core.sql.quoting import identifier
from unshard.core.task.state import ChunkState
from unshard.errors.meta import UnknownSource
from unshard.errors.rows import StatementWarned

# --- chunks of the load ---

OF_CHUNK = "WHERE task = %s AND id = %s"


@dataclass(frozen=True, slots=True)
class ChunkRow:
    """Names a row of `load_chunk`."""

    meta_schema: str
    task: str
    chunk: int

    @property
    def table(self) -> str:
        return mysql.table_name(TableId(self.meta_schema, "load_chunk"))


def lock_chunk(connection: Connection, row: ChunkRow) -> ChunkState | None:
    """Lock the row until the end of the transaction; return the chunk's state, None if the row does not exist."""
    sql = f"SELECT state FROM {row.table} {OF_CHUNK} FOR UPDATE"  # noqa: S608
    rows = mysql.query(connection, sql, (row.task, row.chunk))
    return ChunkState(rows[0][0]) if rows else None


def mark_loaded(connection: Connection, row: ChunkRow, rows: int, millis: int) -> None:
    """Record that the rows of the chunk are in the target, and how long the load has taken."""
    sql = (
        f"UPDATE {row.table} SET state = %s, loaded_rows = %s, load_millis = %s,"  # noqa: S608
        f" loaded_at = UTC_TIMESTAMP(6), updated_at = UTC_TIMESTAMP(6) {OF_CHUNK}"
    )
    mysql.query(connection, sql, (ChunkState.LOADED.value, rows, millis, row.task, row.chunk))
    under_way = mysql.table_name(TableId(row.meta_schema, "load_progress"))
    sql = f"DELETE FROM {under_way} WHERE task = %s AND chunk = %s"  # noqa: S608
    mysql.query(connection, sql, (row.task, row.chunk))


def mark_dumped(connection: Connection, row: ChunkRow) -> None:
    """Record that the rows of the chunk were removed from the target."""
    sql = f"UPDATE {row.table} SET state = %s, loaded_rows = 0, updated_at = UTC_TIMESTAMP(6) {OF_CHUNK}"  # noqa: S608
    mysql.query(connection, sql, (ChunkState.DUMPED.value, row.task, row.chunk))


# --- chunks of a reload ---

STATEMENT_ROWS = 200
Values = tuple[bytes | None, ...]


@dataclass(frozen=True, slots=True)
class ReloadRow:
    """Names a row of `column_reload`."""

    meta_schema: str
    task: str
    shard: Shard
    columns: tuple[str, ...]

    @property
    def key(self) -> tuple[str, ...]:
        table = self.shard.table
        return self.task, self.shard.source, table.schema, table.name, names_digest(self.columns)


OF_RELOAD = "WHERE task = %s AND source = %s AND shard_schema = %s AND shard_table = %s AND digest = %s"


@dataclass(frozen=True, slots=True)
class ReloadProgress:
    """How far a reload is."""

    state: ReloadState
    basis: str
    reached: Key | None


def hold_source(connection: Connection, meta_schema: str, task: str, source: str) -> None:
    """Let no window of the source begin or end until the transaction ends."""
    table = mysql.table_name(TableId(meta_schema, "source"))
    sql = f"SELECT epoch FROM {table} WHERE task = %s AND source = %s FOR UPDATE"  # noqa: S608
    if not mysql.query(connection, sql, (task, source)):
        raise UnknownSource(task, source)


def hold_structure(connection: Connection, table: TableId, *, for_writing: bool = False) -> None:
    """Keep DDL of a table from running until the end of the transaction."""
    lock_reload = " FOR UPDATE" if for_writing else ""
    mysql.query(connection, f"SELECT 1 FROM {mysql.table_name(table)} LIMIT 0{lock_reload}")  # noqa: S608


def record_action(connection: Connection, meta_schema: str, task: str, command: IssuedCommand, details: Any) -> None:
    """Record a command and what it has done in the transaction that does it."""
    sql = (
        f"INSERT INTO {mysql.table_name(TableId(meta_schema, 'operator_action'))}"  # noqa: S608
        " (task, lock_id, action, who, via, reason, details, done_at)"
        " VALUES (%s, '', %s, %s, %s, %s, %s, UTC_TIMESTAMP(6))"
    )
    given = command.action, str(command.by), command.via, command.reason, json.dumps(details, ensure_ascii=False)
    mysql.change(connection, sql, (task, *given))


def lock_reload(connection: Connection, row: ReloadRow) -> ReloadProgress | None:
    """Lock the progress until the end of the transaction and return it."""
    table = mysql.table_name(TableId(row.meta_schema, "column_reload"))
    sql = f"SELECT state, basis, reached_key FROM {table} {OF_RELOAD} FOR UPDATE"  # noqa: S608
    found = mysql.query(connection, sql, row.key)
    if not found:
        return None
    ((state, basis, reached),) = found
    return ReloadProgress(ReloadState(state), basis, unpack_key(json.loads(reached)) if reached else None)


def advance_reload(connection: Connection, row: ReloadRow, reached: Key | None, read: int, changed: int) -> None:
    """Record a chunk; `reached` is its last key, None after the last chunk."""
    state = ReloadState.DONE if reached is None else ReloadState.READING
    values: list[Any] = [state.value, None if reached is None else json.dumps(pack_key(reached)), read, changed]
    table = mysql.table_name(TableId(row.meta_schema, "column_reload"))
    sql = (
        f"UPDATE {table} SET state = %s, reached_key = %s, chunks = chunks + 1,"  # noqa: S608
        f" rows_read = rows_read + %s, rows_changed = rows_changed + %s, changed_at = UTC_TIMESTAMP(6) {OF_RELOAD}"
    )
    mysql.query(connection, sql, (*values, *row.key))


@dataclass(frozen=True, slots=True)
class ColumnUpdate:
    """UPDATEs of some columns of rows that are found by their key; missing rows are left out."""

    table: TableId
    key: tuple[Column, ...]
    columns: tuple[Column, ...]
    kept: tuple[str, ...]
    """Columns that the server would change by itself (ON UPDATE CURRENT_TIMESTAMP)."""

    def statement(self, rows: Sequence[Values]) -> str:
        sets = [f"{identifier(name)} = {identifier(name)}" for name in self.kept]
        for number, column in enumerate(self.columns, len(self.key)):
            by_value: dict[bytes | None, list[Values]] = {}
            for row in rows:
                by_value.setdefault(row[number], []).append(row[: len(self.key)])
            sets.append(f"{identifier(column.name)} = {self._chosen(column, by_value)}")
        where = any_of(self.key, [row[: len(self.key)] for row in rows])
        return f"UPDATE {mysql.table_name(self.table)} SET {', '.join(sets)} WHERE {where}"  # noqa: S608

    def _chosen(self, column: Column, by_value: dict[bytes | None, list[Values]]) -> str:
        if len(by_value) == 1:
            return stored(column, next(iter(by_value)))
        whens = (f"WHEN {any_of(self.key, keys)} THEN {stored(column, value)}" for value, keys in by_value.items())
        return f"CASE {' '.join(whens)} END"

    def run(self, connection: Connection, rows: Sequence[Values]) -> int:
        """Update the rows inside the caller's transaction; return how many have changed."""
        changed = 0
        for some in _portions(rows, min(STATEMENT_BYTES, connection.packet_bytes // 2)):
            ok = run_statement(connection, self.statement(some).encode())
            if ok.warning_count:
                message = "; ".join(str(row[2]) for row in mysql.query(connection, "SHOW WARNINGS")[:3])
                raise StatementWarned(str(self.table), message)
            changed += int(ok.affected_rows)
        return changed


def _portions(rows: Sequence[Values], size: int) -> list[list[Values]]:
    """Divide rows among statements; a value takes two digits for each byte."""
    found: list[list[Values]] = []
    room = 0
    for row in rows:
        needed = sum(4 * len(value or b"") + 100 for value in row)
        if not found or room < needed or len(found[-1]) == STATEMENT_ROWS:
            found.append([])
            room = size
        found[-1].append(row)
        room -= needed
    return found
