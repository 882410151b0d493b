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

**Slices**: while the server writes one slice of a window, the next one is read and compacted (in executors).
The reader asks whether a session waits for a slice, and reads more into the slice until one does.

Each slice is divided between several sessions (shares). Each session has one open transaction for a section of the
window: deletes and writes of its share of the first slice, then of the second, and so on. Nothing is committed before
all slices of the section are written. Then the sessions commit one after the other. The first one stores the shares as
steps, the last one deletes them and raises the fence. So a section with one session is one transaction. The first slice
of the next section is read before the sessions commit, so they need not wait for it.

This is the fast path for the normal case. In all other cases `apply_changes` applies the section as a whole:

| case                                            | result                                                       |
|-------------------------------------------------|--------------------------------------------------------------|
| the slices so far show that one transaction of  | rollback; no more slices are read                            |
| each session cannot hold it; lines lack         |                                                              |
| values; a row takes its values from another key |                                                              |
| a key is taken, or a row does not fit           | error, rollback                                              |
| a deadlock, a lost connection                   | error, rollback by the server                                |
| a session waits for a lock of another one       | error after `LOCK_WAIT_SECONDS`, rollback                    |
| the answer to a COMMIT is lost                  | error; fence and steps show which shares are applied         |
| death between two COMMITs                       | the steps show it: a retry applies the other shares          |
| another run begins, or has cut it into steps    | the fence or the steps show it: rollback                     |
"""

import contextlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import chain, groupby

from pymysql.connections import Connection

from unshard.adapters import mysql
from unshard.adapters.target import deferring, fencesteps
from unshard.adapters.target.completing import filled, has_gaps, with_own_values
from unshard.adapters.target.deletes import delete_keys, remove_rows
from unshard.adapters.target.diverting import MAX_DIVERTED, record_diverted, write_or_divert
from unshard.adapters.target.fence import Fence, hold, hold_join, is_applied, raise_fence
from unshard.adapters.target.fencesteps import Bounds, FenceStep, Shares, StepKind, bounds_of, can_be_shared, shares_for
from unshard.adapters.target.session import Writer, in_sessions, open_session, repeated
from unshard.adapters.target.takenkeys import Ledger
from unshard.adapters.target.targetrows import Applied, Changes
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
    steps: tuple[FenceStep, ...]
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
        steps = fencesteps.steps_of(connection, fence, changes, bounds)
        if steps and fencesteps.is_of_another_key(connection, fence, changes):
            return fencesteps.with_replace(changes)
        if steps:
            return _Cut(steps, bounds.appliers)
    return _apply_once(connection, fence, changes, attempt)


def _carry_out(writer: Writer, fence: Fence, changes: Changes, cut: _Cut) -> Applied:
    """Run the steps that are not done; ranges run in parallel where the server benefits from it."""
    pending = [(step, part) for step, part in fencesteps.changes_by_step(changes, cut.steps) if not step.done]
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


def _apply_step(writer: Writer, fence: Fence, step: FenceStep, part: Changes) -> Applied:
    attempt = _Attempt()
    return in_sessions(writer, lambda connection: _step_once(connection, fence, step, part, attempt))


def _step_once(connection: Connection, fence: Fence, step: FenceStep, part: Changes, attempt: _Attempt) -> Applied:
    if attempt.committing and fencesteps.is_done(connection, fence, step):
        return attempt.committing
    mysql.begin(connection)
    hold_join(connection, fence)
    applied = _written(connection, fence, part, lambda: fencesteps.is_done(connection, fence, step))
    if applied is None:
        return attempt.found
    hold(connection, fence)
    if not fencesteps.mark(connection, fence, step):
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
    writes = replace(changes.writes, lines=(), known_collisions=())
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
        fencesteps.delete_steps(connection, fence)
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
        loaded, collided, diverted = write_or_divert(
            connection, whole.writes, Ledger(fence.meta_schema, fence.task, Found.WINDOW, fence.window), max_diverted
        )
    record_diverted(connection, fence, changes, diverted)
    deferring.update(connection, fence, changes)
    return Applied(deleted, loaded.sent - loaded.skipped, loaded.skipped + changes.writes.left_out, collided)


# --- slices ---

LOCK_WAIT_SECONDS = 5
WAITING_SLICES = 2
"""How many slices a session may have that are not written yet: it writes one of them."""


@dataclass(frozen=True, slots=True)
class Slice:
    """The changes of one slice to the target table, which has a key."""

    section: int
    changes: Changes
    read: float
    """Fraction of the section that has been read, including this slice, from 0 to 1."""


@dataclass(frozen=True, slots=True)
class Committed:
    """The sections that the target has, and what it got since the last of these values."""

    sections: int
    applied: Applied


Slices = Callable[[Callable[[], bool]], Iterator[Slice]]
"""Reads the slices of all sections; its parameter returns whether a session waits for the next one."""


@dataclass(slots=True)
class _Session:
    """A session with a transaction, and the thread that uses it while the next slice is read."""

    connection: Connection
    thread: ThreadPoolExecutor
    fence: Fence
    applied: Applied = field(default_factory=Applied)
    under_way: deque[Future[Applied]] = field(default_factory=deque)
    is_broken: bool = False
    """A slice has failed. If it was a deadlock, the server has ended the transaction, and would commit what follows."""

    def begin(self, fence: Fence) -> None:
        self.fence, self.applied = fence, Applied()
        mysql.query(self.connection, "BEGIN")
        hold_join(self.connection, fence)

    def write(self, changes: Changes) -> None:
        """Write the changes after those that wait; returns before they are written."""
        self.wait(WAITING_SLICES - 1)
        self.under_way.append(self.thread.submit(self._write, changes))

    def _write(self, changes: Changes) -> Applied:
        if self.is_broken:
            return Applied()
        self.is_broken = True
        # Rows are diverted only when the window is applied as a whole, because a later slice may correct them.
        applied = write(self.connection, self.fence, changes, max_diverted=0)
        self.is_broken = False
        return applied

    def is_waiting(self) -> bool:
        return sum(not each.done() for each in self.under_way) < WAITING_SLICES

    def wait(self, most: int = 0) -> None:
        while len(self.under_way) > most:
            self.applied += self.under_way.popleft().result()


def apply_slices(writer: Writer, fences: Sequence[Fence], made: Slices) -> Iterator[Committed]:
    """Apply the sections while their slices are read; yields after each COMMIT.

    If it ends early or raises an error, the next section must be applied as a whole. Each section has a fence.
    """
    sessions: list[_Session] = []
    reached = 0
    slices = made(lambda: any(session.is_waiting() for session in sessions))
    with contextlib.ExitStack() as stack:
        connection = stack.enter_context(contextlib.closing(open_session(writer)))
        if is_applied(connection, fences[0]) or fencesteps.are_begun(connection, fences[0]):
            return
        first, bounds = next(slices), bounds_of(writer)
        shares = _shares(connection, fences[0].target, first, bounds)
        for number in range(shares.sessions if shares else 1):
            if number:
                connection = stack.enter_context(contextlib.closing(open_session(writer)))
            if shares:
                mysql.query(connection, "SET SESSION innodb_lock_wait_timeout = %s", (LOCK_WAIT_SECONDS,))
            sessions.append(_Session(connection, stack.enter_context(ThreadPoolExecutor(1)), fences[0]))
        others = (each for each in slices if fencesteps.has_changes(each.changes))
        for number, its in groupby(chain((first,), others), key=lambda each: each.section):
            for session in sessions:
                session.begin(fences[number])
            if not _are_written(sessions, shares, its, bounds):
                return
            if not _are_committed(sessions, shares, fences[number], first.changes):
                return
            reached = number + 1
            yield Committed(reached, sum((session.applied for session in sessions), Applied()))
    if reached < len(fences):  # the last sections have no rows
        yield Committed(len(fences), Applied())


def _shares(connection: Connection, table: TableId, first: Slice, bounds: Bounds) -> Shares | None:
    """Return how sessions share the sections; None: there is one session."""
    shares = shares_for(first.changes, bounds.sessions, bounds.least_keys, bounds.spread)
    where = "event_object_schema = %s AND event_object_table = %s"
    sql = f"SELECT 1 FROM information_schema.triggers WHERE {where} LIMIT 1"  # noqa: S608
    if shares and mysql.query(connection, sql, (table.schema, table.name)):
        return None  # a trigger may change a row that all sessions need
    return shares


def _are_written(sessions: list[_Session], shares: Shares | None, slices: Iterator[Slice], bounds: Bounds) -> bool:
    """Write slices in the threads of the sessions while this one reads the next; False: they must not be committed."""
    rows = size = 0
    for each in slices:
        more = fencesteps.size_of(each.changes)
        rows, size = rows + more[0], size + more[1]
        most = each.read * len(sessions)
        if has_gaps(each.changes) or rows > bounds.rows * most or size > bounds.bytes * most:
            return False
        if shares is None:
            sessions[0].write(each.changes)
        elif not can_be_shared(each.changes):
            return False
        else:
            for session, changes in zip(sessions, shares.split(each.changes), strict=True):
                session.write(changes)
    for session in sessions:
        session.wait()
    return True


def _are_committed(sessions: list[_Session], shares: Shares | None, fence: Fence, changes: Changes) -> bool:
    """Commit all sessions, the fence with the last of them; False if another run has taken over."""
    for number, session in enumerate(sessions[:-1]):
        assert shares is not None
        hold(session.connection, fence)
        if not number:
            fencesteps.store_shares(session.connection, fence, changes, shares)
        elif not fencesteps.mark(session.connection, fence, FenceStep(number, StepKind.SHARE, None)):
            return False
        mysql.query(session.connection, "COMMIT")
    last = sessions[-1].connection
    if shares is not None:
        fencesteps.delete_steps(last, fence)
    if not raise_fence(last, fence):
        return False
    mysql.query(last, "COMMIT")
    return True
