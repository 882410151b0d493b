"""Apply a window slice by slice: while the server writes one slice, the next one is read and compacted (in executors).

The reader asks whether a session waits for a slice, and reads more into the slice until one does.

Each slice is divided between several sessions (shares). Each session has one open transaction for the whole window:
deletes and writes of its share of the first slice, then of the second, and so on. Nothing is committed before all
slices are written. Then the sessions commit one after the other. The first one stores the shares as steps, the last one
deletes them and raises the fence. So a window with one session is one transaction. This is the fast path for the normal
case. In all other cases `apply_changes` applies the window as a whole:

| case                                            | result                                                       |
|-------------------------------------------------|--------------------------------------------------------------|
| the slices so far show that one transaction of  | rollback; no more slices are read                            |
| each session cannot hold the window; lines lack |                                                              |
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
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from pymysql.connections import Connection

from unshard.adapters import mysql
from unshard.adapters.target import steps as stepping
from unshard.adapters.target.apply import write
from unshard.adapters.target.changes import Applied, Changes
from unshard.adapters.target.fence import Fence, hold, hold_join, is_applied, raise_fence
from unshard.adapters.target.partialrows import has_gaps
from unshard.adapters.target.session import Writer, open_session
from unshard.adapters.target.shares import Shares, can_be_shared, shares_for
from unshard.adapters.target.steps import Bounds, Step, StepKind, bounds_of
from unshard.core.model import TableId

LOCK_WAIT_SECONDS = 5
WAITING_SLICES = 2
"""How many slices a session may have that are not written yet: it writes one of them."""


@dataclass(frozen=True, slots=True)
class Slice:
    """The changes of one slice to the target table, which has a key."""

    changes: Changes
    read: float
    """Fraction of the window that has been read, including this slice, from 0 to 1."""


Slices = Callable[[Callable[[], bool]], Iterator[Slice]]
"""Reads the slices of a window; its parameter returns whether a session waits for the next one."""


@dataclass(slots=True)
class _Session:
    """A session with an open transaction, and the thread that uses it while the next slice is read."""

    connection: Connection
    fence: Fence
    thread: ThreadPoolExecutor
    applied: Applied = field(default_factory=Applied)
    under_way: deque[Future[Applied]] = field(default_factory=deque)
    is_broken: bool = False
    """A slice has failed. If it was a deadlock, the server has ended the transaction, and would commit what follows."""

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
        """Whether it can take another slice now."""
        return sum(not each.done() for each in self.under_way) < WAITING_SLICES

    def wait(self, most: int = 0) -> None:
        """Wait until at most so many changes are not written yet."""
        while len(self.under_way) > most:
            self.applied += self.under_way.popleft().result()


def apply_slices(writer: Writer, fence: Fence, made: Slices) -> Applied | None:
    """Apply the window while its slices are read; None or an error means that it must be applied as a whole."""
    sessions: list[_Session] = []
    slices = made(lambda: any(session.is_waiting() for session in sessions))
    with contextlib.ExitStack() as stack:
        connection = stack.enter_context(contextlib.closing(open_session(writer)))
        if is_applied(connection, fence) or stepping.are_begun(connection, fence):
            return None
        first, bounds = next(slices), bounds_of(writer)
        shares = shares_for(first.changes, bounds.sessions, bounds.least_keys, bounds.spread)
        if shares and _has_triggers(connection, fence.target):
            shares = None  # a trigger may change a row that all sessions need
        sessions.append(_begun(stack, connection, fence))
        for _ in range(shares.sessions - 1 if shares else 0):
            connection = stack.enter_context(contextlib.closing(open_session(writer)))
            sessions.append(_begun(stack, connection, fence))
        if shares:
            for session in sessions:
                mysql.query(session.connection, "SET SESSION innodb_lock_wait_timeout = %s", (LOCK_WAIT_SECONDS,))
        if not _are_written(sessions, shares, first, slices, bounds):
            return None
        if not _are_committed(sessions, shares, fence, first.changes):
            return None
        return sum((session.applied for session in sessions), Applied())


def _has_triggers(connection: Connection, table: TableId) -> bool:
    where = "event_object_schema = %s AND event_object_table = %s"
    sql = f"SELECT 1 FROM information_schema.triggers WHERE {where} LIMIT 1"  # noqa: S608
    return bool(mysql.query(connection, sql, (table.schema, table.name)))


def _begun(stack: contextlib.ExitStack, connection: Connection, fence: Fence) -> _Session:
    thread = stack.enter_context(ThreadPoolExecutor(1))
    mysql.query(connection, "BEGIN")
    hold_join(connection, fence)
    return _Session(connection, fence, thread)


def _are_written(
    sessions: list[_Session], shares: Shares | None, first: Slice, others: Iterator[Slice], bounds: Bounds
) -> bool:
    """Write slices in the threads of the sessions while this one reads the next; False: they must not be committed."""
    each: Slice | None = first
    rows = size = 0
    while each is not None:
        more = stepping.size_of(each.changes)
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
        each = next((some for some in others if stepping.has_rows(some.changes)), None)
    for session in sessions:
        session.wait()
    return True


def _are_committed(sessions: list[_Session], shares: Shares | None, fence: Fence, changes: Changes) -> bool:
    """Commit all sessions, the fence with the last of them; False if another run has taken over."""
    for number, session in enumerate(sessions[:-1]):
        assert shares is not None
        hold(session.connection, fence)
        if not number:
            stepping.store_shares(session.connection, fence, changes, shares)
        elif not stepping.mark(session.connection, fence, Step(number, StepKind.SHARE, None)):
            return False
        mysql.query(session.connection, "COMMIT")
    last = sessions[-1].connection
    if shares is not None:
        stepping.forget(last, fence)
    if not raise_fence(last, fence):
        return False
    mysql.query(last, "COMMIT")
    return True
