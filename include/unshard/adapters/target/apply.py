"""Apply the changes of one window to one target table exactly once, guarded by a fence (in executors).

The fence row of (task, source, target) holds the last window that was applied and the epoch that may write. If the
changes fit into one transaction, they are one. Otherwise they are cut into steps (see `steps`), and the last one raises
the fence.

| process dies                              | result                                                             |
|-------------------------------------------|--------------------------------------------------------------------|
| before COMMIT                             | the server rolls back; a retry starts again                        |
| in COMMIT, the answer is lost             | a new connection reads the fence: if it has this window, it is done |
| in COMMIT, and the server still commits   | unexpected or missing rows are this window's own: read the fence again |
| after COMMIT                              | a retry reads the fence and does nothing                           |
| it hangs, and another run begins          | the epoch was raised: the UPDATE of the fence matches no row, rollback |

Order within a transaction: removals (tables without a key), reading of own columns, deletes, writes, fence. After a
deadlock, a lock wait or a lost connection the transaction is retried a few times.
"""

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import groupby

from pymysql.connections import Connection

from unshard.adapters import mysql
from unshard.adapters.target import deferredrows
from unshard.adapters.target import steps as stepping
from unshard.adapters.target.changes import Applied, Changes
from unshard.adapters.target.collisions import Ledger
from unshard.adapters.target.deletes import delete_keys, remove_rows
from unshard.adapters.target.diverting import MAX_DIVERTED, record, write_or_divert
from unshard.adapters.target.fence import Fence, hold, hold_join, is_applied, raise_fence
from unshard.adapters.target.ownvalues import with_own_values
from unshard.adapters.target.partialrows import filled, has_gaps
from unshard.adapters.target.retrying import in_sessions, repeated
from unshard.adapters.target.session import Writer
from unshard.adapters.target.steps import Bounds, Step, StepKind, bounds_of
from unshard.core.model import TableId
from unshard.core.rows.rowerrors import Found
from unshard.errors.meta import FenceMissing
from unshard.errors.rows import Collision, RowsMissing, WriteRefused
from unshard.errors.source import MissingPrivilege, StatementRefused, TableMissing

SERVER_ERRORS = frozenset({3, 5, 1020, 1021, 1026, 1037, 1038, 1114, 1290, 1297, 1317, 1792, 1836, 1969, 3024, 9001})
"""Errors of the whole server, not of one table: disk full, out of memory, read-only, statement killed."""


def apply_changes(writer: Writer, fence: Fence, changes: Changes, bounds: Bounds | None = None) -> Applied:
    """Apply the window to its target table exactly once, however often it is called."""
    if has_gaps(changes):
        partial = changes
        with naming_table(partial.table):
            changes = repeated(lambda: filled(writer, fence, partial))
    attempt, limits = _Attempt(), bounds or bounds_of(writer)
    done = in_sessions(writer, lambda connection: _apply_or_cut(connection, fence, changes, attempt, limits))
    if isinstance(done, Applied):
        return done
    if isinstance(done, Changes):
        rest, total = done, Applied()
    else:
        rest, total = _nothing(changes), _carry_out(writer, fence, changes, done)
    attempt = _Attempt()
    return total + in_sessions(writer, lambda connection: _apply_once(connection, fence, rest, attempt, True))


@dataclass(frozen=True, slots=True)
class _Cut:
    """Steps of changes that are too large for one transaction."""

    steps: tuple[Step, ...]
    appliers: int


@dataclass(slots=True)
class _Attempt:
    """The result of the last attempt that reached its COMMIT; the answer to that COMMIT may be lost."""

    committing: Applied | None = None

    @property
    def found(self) -> Applied:
        """The result for changes that the target already has: from the last attempt, or from an earlier run."""
        return self.committing or Applied(before=True)


def _apply_or_cut(
    connection: Connection, fence: Fence, changes: Changes, attempt: _Attempt, bounds: Bounds
) -> Applied | _Cut | Changes:
    """Apply changes that fit into one transaction. Otherwise return their steps.

    If earlier steps were made for another key of the table, return the changes in a form that may be applied again.
    """
    if changes.order is not None and not is_applied(connection, fence):
        steps = stepping.steps_of(connection, fence, changes, bounds)
        if steps and stepping.is_of_another_key(connection, fence, changes):
            return stepping.replacing(changes)
        if steps:
            return _Cut(steps, bounds.appliers)
    return _apply_once(connection, fence, changes, attempt)


def _carry_out(writer: Writer, fence: Fence, changes: Changes, cut: _Cut) -> Applied:
    """Run the steps that are not done; ranges run in parallel where the server benefits from it."""
    pending = [(step, part) for step, part in stepping.parts_of(changes, cut.steps) if not step.done]
    total = Applied()
    for kind, group in groupby(pending, key=lambda each: each[0].kind):
        appliers = cut.appliers if kind is StepKind.ALL else 1
        with ThreadPoolExecutor(appliers) as pool:
            # Sequential steps start one by one, so that no step runs after one that failed: the target may be suspended
            # there.
            in_order = pool.map if appliers > 1 else map
            for applied in in_order(lambda each: _apply_step(writer, fence, *each), group):
                total += applied
    return total


def _apply_step(writer: Writer, fence: Fence, step: Step, part: Changes) -> Applied:
    attempt = _Attempt()
    return in_sessions(writer, lambda connection: _step_once(connection, fence, step, part, attempt))


def _step_once(connection: Connection, fence: Fence, step: Step, part: Changes, attempt: _Attempt) -> Applied:
    if attempt.committing and stepping.is_done(connection, fence, step):
        return attempt.committing
    mysql.begin(connection)
    hold_join(connection, fence)
    applied = _written(connection, fence, part, lambda: stepping.is_done(connection, fence, step))
    if applied is None:
        return attempt.found
    hold(connection, fence)
    if not stepping.mark(connection, fence, step):
        mysql.query(connection, "ROLLBACK")
        return attempt.found
    attempt.committing = applied
    mysql.query(connection, "COMMIT")
    return applied


@contextlib.contextmanager
def naming_table(table: TableId) -> Iterator[None]:
    """Add the table to errors that the server raises in the block, except for errors of the whole server."""
    try:
        yield
    except (StatementRefused, MissingPrivilege, TableMissing) as error:
        if isinstance(error, StatementRefused) and error.errno in SERVER_ERRORS:
            raise
        raise WriteRefused(str(table), error.server_message) from error


def _nothing(changes: Changes) -> Changes:
    writes = replace(changes.writes, lines=(), known_clashes=())
    return replace(changes, deletes=(), removals=(), order=None, writes=writes)


def _apply_once(
    connection: Connection, fence: Fence, changes: Changes, attempt: _Attempt, was_cut: bool = False
) -> Applied:
    if is_applied(connection, fence):
        return attempt.found
    mysql.begin(connection)
    hold_join(connection, fence)
    applied = _written(connection, fence, changes, lambda: is_applied(connection, fence))
    if applied is None:
        return attempt.found
    if was_cut:
        stepping.forget(connection, fence)
    if not raise_fence(connection, fence):
        mysql.query(connection, "ROLLBACK")
        if is_applied(connection, fence):
            return attempt.found
        raise FenceMissing(str(fence.target), fence.source)
    attempt.committing = applied
    mysql.query(connection, "COMMIT")
    return applied


def _written(connection: Connection, fence: Fence, changes: Changes, is_done: Callable[[], bool]) -> Applied | None:
    """Write the changes. Return None if another attempt has committed them already.

    That attempt's COMMIT may have been in progress when the fence was read. Its rows then cause Collision or
    RowsMissing.
    """
    try:
        return write(connection, fence, changes)
    except (Collision, RowsMissing):
        mysql.query(connection, "ROLLBACK")
        if is_done():
            return None
        raise


def write(connection: Connection, fence: Fence, changes: Changes, max_diverted: int = MAX_DIVERTED) -> Applied:
    """Write the changes inside the caller's open transaction."""
    with naming_table(changes.table):
        deleted = sum(
            remove_rows(connection, removal.destination, changes.schema, removal.line, removal.count)
            for removal in changes.removals
        )
        whole, removed = with_own_values(connection, changes)
        deleted += removed + delete_keys(connection, changes.table, changes.key, whole.deletes)
        loaded, collided, diverted = write_or_divert(connection, whole.writes, _ledger(fence), max_diverted)
    record(connection, fence, changes, diverted)
    deferredrows.update(connection, fence, changes)
    return Applied(deleted, loaded.sent - loaded.skipped, loaded.skipped + changes.writes.left_out, collided)


def _ledger(fence: Fence) -> Ledger:
    return Ledger(fence.meta_schema, fence.task, Found.WINDOW, fence.window)
