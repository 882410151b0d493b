"""The changes of one window to one target table: exactly once, guarded by a fence.

The fence row of (task, source, target) says which window was applied last and which epoch may write. What one
transaction can hold is one transaction; more is cut into steps (see `steps`), the last of which raises the fence.

| dies                              | what happens                                                       |
|-----------------------------------|--------------------------------------------------------------------|
| before COMMIT                     | the server rolls back; a retry does it all again                   |
| in COMMIT, the answer is lost     | a new connection reads the fence: this window there means done     |
| … and the COMMIT is still going on | rows that are met or missing then are its own: the fence is read again |
| after COMMIT                      | a retry reads the fence and does nothing                           |
| hangs, while another run begins   | the epoch has risen: the UPDATE of the fence matches no row, rollback |

Order inside: deletes, removals (multisets), writes, fence. Deadlocks, lock waits and lost connections
are tried again a few times.
"""

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import groupby

from pymysql.connections import Connection

from unshard.adapters import mysql
from unshard.adapters.target import awaiting
from unshard.adapters.target import steps as stepping
from unshard.adapters.target.changes import Applied, Changes
from unshard.adapters.target.collisions import Ledger
from unshard.adapters.target.deletes import delete_keys, remove_rows
from unshard.adapters.target.diverting import MOST_DIVERTED, record, write_or_divert
from unshard.adapters.target.fence import Fence, hold, is_applied, raise_fence
from unshard.adapters.target.patches import filled, has_gaps
from unshard.adapters.target.retrying import in_sessions, repeated
from unshard.adapters.target.session import Writer
from unshard.adapters.target.steps import Bounds, Kind, Step, bounds_of
from unshard.core.collision import Found
from unshard.core.model import TableId
from unshard.errors.source import MissingPrivilege, StatementRefused, TableMissing
from unshard.errors.target import Collision, FenceMissing, RowsMissing
from unshard.errors.writing import WriteRefused

BEYOND_A_TABLE = frozenset({3, 5, 1020, 1021, 1026, 1037, 1038, 1114, 1290, 1297, 1317, 1792, 1836, 1969, 3024, 9001})
"""A full disk, no memory, a server that is read-only, a statement that was killed: no fault of the table."""


def apply_changes(writer: Writer, fence: Fence, changes: Changes, bounds: Bounds | None = None) -> Applied:
    """Apply the window to its target table exactly once, however often it is called."""
    if has_gaps(changes):
        given = changes
        with _refusals_of(given.table):
            changes = repeated(lambda: filled(writer, fence, given))
    tried, most = _Tried(), bounds or bounds_of(writer)
    done = in_sessions(writer, lambda connection: _apply_or_cut(connection, fence, changes, tried, most))
    if isinstance(done, Applied):
        return done
    if isinstance(done, Changes):
        rest, total = done, Applied()
    else:
        rest, total = _nothing(changes), _carry_out(writer, fence, changes, done)
    tried = _Tried()
    return total + in_sessions(writer, lambda connection: _apply_once(connection, fence, rest, tried, True))


@dataclass(frozen=True, slots=True)
class _Cut:
    """What one transaction does not hold."""

    steps: tuple[Step, ...]
    appliers: int


@dataclass(slots=True)
class _Tried:
    """What the last attempt had done when it came to its COMMIT, whose answer may be lost."""

    committing: Applied | None = None

    @property
    def found(self) -> Applied:
        """What became of changes that are found in the target: that attempt's, or an earlier run's."""
        return self.committing or Applied(before=True)


def _apply_or_cut(connection: Connection, fence: Fence, changes: Changes, tried: _Tried,
                  bounds: Bounds) -> Applied | _Cut | Changes:  # fmt: skip
    """Apply what one transaction holds; else return the steps, or what replaces those of an earlier key."""
    if changes.order is not None and not is_applied(connection, fence):
        steps = stepping.steps_of(connection, fence, changes, bounds)
        if steps and stepping.is_of_another_key(connection, fence, changes):
            return stepping.replacing(changes)
        if steps:
            return _Cut(steps, bounds.appliers)
    return _apply_once(connection, fence, changes, tried)


def _carry_out(writer: Writer, fence: Fence, changes: Changes, cut: _Cut) -> Applied:
    """Carry out what is not done; ranges side by side where the server gains by it."""
    waiting = [(step, part) for step, part in stepping.parts_of(changes, cut.steps) if not step.done]
    total = Applied()
    for kind, some in groupby(waiting, key=lambda each: each[0].kind):
        appliers = cut.appliers if kind is Kind.ALL else 1
        with ThreadPoolExecutor(appliers) as pool:
            # One after another, so that nothing comes behind a step that fails: the target can stop before the first.
            in_order = pool.map if appliers > 1 else map
            for applied in in_order(lambda each: _apply_step(writer, fence, *each), some):
                total += applied
    return total


def _apply_step(writer: Writer, fence: Fence, step: Step, part: Changes) -> Applied:
    tried = _Tried()
    return in_sessions(writer, lambda connection: _step_once(connection, fence, step, part, tried))


def _step_once(connection: Connection, fence: Fence, step: Step, part: Changes, tried: _Tried) -> Applied:
    if tried.committing and stepping.is_done(connection, fence, step):
        return tried.committing
    connection.begin()
    applied = _written(connection, fence, part, lambda: stepping.is_done(connection, fence, step))
    if applied is None:
        return tried.found
    hold(connection, fence)
    if not stepping.mark(connection, fence, step):
        mysql.query(connection, "ROLLBACK")
        return tried.found
    tried.committing = applied
    mysql.query(connection, "COMMIT")
    return applied


@contextlib.contextmanager
def _refusals_of(table: TableId) -> Iterator[None]:
    """Name the table in what the server refuses inside the block, unless it is the server that cannot."""
    try:
        yield
    except (StatementRefused, MissingPrivilege, TableMissing) as error:
        if isinstance(error, StatementRefused) and error.errno in BEYOND_A_TABLE:
            raise
        raise WriteRefused(str(table), error.words) from error


def _nothing(changes: Changes) -> Changes:
    writes = replace(changes.writes, lines=(), met=())
    return replace(changes, deletes=(), removals=(), order=None, writes=writes)


def _apply_once(connection: Connection, fence: Fence, changes: Changes, tried: _Tried,
                was_cut: bool = False) -> Applied:  # fmt: skip
    if is_applied(connection, fence):
        return tried.found
    connection.begin()
    applied = _written(connection, fence, changes, lambda: is_applied(connection, fence))
    if applied is None:
        return tried.found
    if was_cut:
        stepping.forget(connection, fence)
    if not raise_fence(connection, fence):
        mysql.query(connection, "ROLLBACK")
        if is_applied(connection, fence):
            return tried.found
        raise FenceMissing(str(fence.target), fence.source)
    tried.committing = applied
    mysql.query(connection, "COMMIT")
    return applied


def _written(connection: Connection, fence: Fence, changes: Changes, is_done: Callable[[], bool]) -> Applied | None:
    """Write the changes; None if the rows that were met or missed are those of another attempt, which has come through.

    Its COMMIT may have been under way, its answer lost, when the fence was read.
    """
    try:
        return write(connection, fence, changes)
    except (Collision, RowsMissing):
        mysql.query(connection, "ROLLBACK")
        if is_done():
            return None
        raise


def write(connection: Connection, fence: Fence, changes: Changes, most_diverted: int = MOST_DIVERTED) -> Applied:
    """Write the changes in the transaction that has begun."""
    with _refusals_of(changes.table):
        deleted = delete_keys(connection, changes.table, changes.key, changes.deletes)
        for removal in changes.removals:
            deleted += remove_rows(connection, removal.destination, changes.defaults, removal.line, removal.count)
        loaded, collided, diverted = write_or_divert(connection, changes.writes, _ledger(fence), most_diverted)
    record(connection, fence, changes, diverted)
    awaiting.settle(connection, fence, changes)
    return Applied(deleted, loaded.sent - loaded.skipped, loaded.skipped + changes.writes.left_out, collided)


def _ledger(fence: Fence) -> Ledger:
    return Ledger(fence.meta_schema, fence.task, Found.WINDOW, fence.window)
