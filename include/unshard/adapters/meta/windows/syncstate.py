"""The statement that reads the sync state of a source (core.task.state).

It is compiled once, because a window is too short to build it each time. Each EXISTS ends at the first row, and the
open window is found by its number, so rows of old windows are not read.
"""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, and_, bindparam, case, exists, or_, select

from unshard.adapters.meta import tables
from unshard.adapters.meta.locks.statementcommands import CommandState
from unshard.adapters.meta.rows import location_of, read
from unshard.core.ddl.queue import EntryState
from unshard.core.task.state import PendingWork, Phase, SyncState
from unshard.core.window.pace import Pace
from unshard.core.window.plan import Plan

PLANNED = tables.PLANNED
SOURCE, CHECKPOINT, WINDOW = tables.source, tables.checkpoint, tables.window
SHARD, SHARD_DDL, HELD_ROWS = tables.shard, tables.shard_ddl, tables.held_rows
THIS_TASK: Any = bindparam("task")
THIS_SOURCE: Any = bindparam("source")


def read_sync_state(connection: Connection, task: str, source: str) -> SyncState:
    """Read the sync state of a source in the caller's transaction; a source that is not recorded is new."""
    row = connection.execute(SYNC_STATE, {"task": task, "source": source}).one_or_none()
    if row is None:
        return SyncState(source)
    plan = read(Plan, row.plan, f"the plan of window {row.window + 1} of {source}") if row.plan else None
    took = read(tuple[Pace, ...], row.paces, f"what the last windows of {source} took") if row.paces else ()
    return SyncState(
        source=source,
        identity=row.identity,
        phase=Phase(row.phase),
        epoch=row.epoch,
        dump_end=location_of(row, "dump_end_"),
        checkpoint=location_of(row),
        gtid=row.gtid or "",
        window=row.window or 0,
        open=plan,
        paces=took,
        rules=row.digest,
        beside=PendingWork(row.beside),
    )


def _any(table: Any, *where: Any) -> Any:
    return exists().where(table.c.task == THIS_TASK, table.c.source == THIS_SOURCE, *where)


FOUND: Mapping[PendingWork, Any] = {
    PendingWork.PAUSE: exists().where(tables.pause.c.task == THIS_TASK),
    PendingWork.STATEMENT_COMMANDS: _any(
        tables.statement_command, tables.statement_command.c.state == CommandState.WAITING.value
    ),
    PendingWork.SEQUENCES: _any(tables.sequence),
    PendingWork.ONLINE_TABLES: _any(tables.online_ddl),
    PendingWork.SUSPENDED: _any(tables.suspended_target),
    PendingWork.UNKNOWNS: or_(
        _any(SHARD, SHARD.c.digest == ""),
        _any(SHARD_DDL, SHARD_DDL.c.after_digest == ""),
        _any(HELD_ROWS, HELD_ROWS.c.structure == ""),
    ),
    PendingWork.QUEUES: exists().where(SHARD_DDL.c.task == THIS_TASK, SHARD_DDL.c.state == EntryState.PENDING.value),
    PendingWork.HELD: _any(HELD_ROWS),
    PendingWork.DROPPED: _any(SHARD, SHARD.c.dropped != 0),
    PendingWork.DEFERRED: _any(tables.deferred_row),
    PendingWork.UNNAMED: _any(SHARD_DDL, SHARD_DDL.c.unnamed != 0),
    PendingWork.JOINED: exists().where(tables.join_target.c.task == THIS_TASK),
}


def _sync_state() -> Any:
    def same(table: Any) -> Any:
        return and_(table.c.task == SOURCE.c.task, table.c.source == SOURCE.c.source)

    beside: Any = sum(case((there, flag.value), else_=0) for flag, there in FOUND.items())
    open_ = and_(same(WINDOW), WINDOW.c.number == CHECKPOINT.c.window + 1, WINDOW.c.state == PLANNED)
    joined = SOURCE.outerjoin(CHECKPOINT, same(CHECKPOINT)).outerjoin(WINDOW, open_)
    joined = joined.outerjoin(tables.rules, same(tables.rules))
    return (
        select(
            SOURCE.c.identity,
            SOURCE.c.phase,
            SOURCE.c.epoch,
            SOURCE.c.dump_end_file,
            SOURCE.c.dump_end_position,
            CHECKPOINT.c.file,
            CHECKPOINT.c.position,
            CHECKPOINT.c.gtid,
            CHECKPOINT.c.window,
            WINDOW.c.plan,
            CHECKPOINT.c.paces,
            tables.rules.c.digest,
            beside.label("beside"),
        )
        .select_from(joined)
        .where(SOURCE.c.task == THIS_TASK, SOURCE.c.source == THIS_SOURCE)
    )


SYNC_STATE = _sync_state()
