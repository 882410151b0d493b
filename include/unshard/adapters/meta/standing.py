"""The one statement that tells where the windows of a source stand (core.progress).

It is made once, because a window is too short to put it together each time. What is asked for by EXISTS ends at the
first row, and the open window is found by its number: rows of old windows are not read.
"""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, and_, bindparam, case, exists, or_, select

from unshard.adapters.meta import tables
from unshard.adapters.meta.rows import location_of, read
from unshard.adapters.meta.statementorders import OrderState
from unshard.core.beside import Beside
from unshard.core.pace import Pace
from unshard.core.progress import Phase, Standing
from unshard.core.window import EntryState, Plan

PLANNED = "planned"
S, C, W = tables.source, tables.checkpoint, tables.window
D, Q, F = tables.shard, tables.shard_ddl, tables.held_rows
TASK: Any = bindparam("task")
SOURCE: Any = bindparam("source")


def read_standing(connection: Connection, task: str, source: str) -> Standing:
    """Look at a source inside a transaction of the caller; one that is not recorded is new."""
    row = connection.execute(STANDING, {"task": task, "source": source}).one_or_none()
    if row is None:
        return Standing(source)
    plan = read(Plan, row.plan, f"the plan of window {row.window + 1} of {source}") if row.plan else None
    took = read(tuple[Pace, ...], row.windows, f"what the last windows of {source} took") if row.windows else ()
    return Standing(
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
        beside=Beside(row.beside),
    )


def _any(table: Any, *where: Any) -> Any:
    return exists().where(table.c.task == TASK, table.c.source == SOURCE, *where)


FOUND: Mapping[Beside, Any] = {
    Beside.HALT: exists().where(tables.halt.c.task == TASK),
    Beside.ORDERS: _any(tables.statement_order, tables.statement_order.c.state == OrderState.WAITING.value),
    Beside.SEQUENCES: _any(tables.sequence),
    Beside.GHOSTS: _any(tables.online_ddl),
    Beside.STOPS: _any(tables.stopped_target),
    Beside.UNKNOWNS: or_(_any(D, D.c.digest == ""), _any(Q, Q.c.after_digest == ""), _any(F, F.c.structure == "")),
    Beside.QUEUES: exists().where(Q.c.task == TASK, Q.c.state == EntryState.PENDING.value),
    Beside.HELD: _any(F),
    Beside.DROPPED: _any(D, D.c.dropped != 0),
    Beside.AWAITED: _any(tables.awaited_row),
}


def _standing() -> Any:
    def same(table: Any) -> Any:
        return and_(table.c.task == S.c.task, table.c.source == S.c.source)

    beside: Any = sum(case((there, flag.value), else_=0) for flag, there in FOUND.items())
    open_ = and_(same(W), W.c.number == C.c.window + 1, W.c.state == PLANNED)
    joined = S.outerjoin(C, same(C)).outerjoin(W, open_)
    for table in (tables.pace, tables.rules):
        joined = joined.outerjoin(table, same(table))
    return (
        select(S.c.identity, S.c.phase, S.c.epoch, S.c.dump_end_file, S.c.dump_end_position, C.c.file, C.c.position,
               C.c.gtid, C.c.window, W.c.plan, tables.pace.c.windows, tables.rules.c.digest, beside.label("beside"))
        .select_from(joined)
        .where(S.c.task == TASK, S.c.source == SOURCE)
    )  # fmt: skip


STANDING = _standing()
