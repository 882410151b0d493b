"""Apply a window slice by slice: while the server writes one slice, the next one is read and compacted (in executors).

All slices are one transaction, with one fence at its end: deletes and writes of the first slice, then deletes and
writes of the second, and so on. Other sessions see only the final state. This is the fast path for the normal case. In
all other cases `apply_changes` applies the window as a whole:

| case                                            | result                                                       |
|-------------------------------------------------|--------------------------------------------------------------|
| the slices so far show that one transaction     | rollback; no more slices are read                            |
| cannot hold the window; lines lack values       |                                                              |
| a key is taken, or a row does not fit           | error, rollback                                              |
| a deadlock, a lost connection                   | error, rollback by the server                                |
| the answer to COMMIT is lost                    | error; the fence shows whether the window is applied         |
| another run begins, or has cut it into steps    | the fence or the steps show it: rollback                     |
"""

import contextlib
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from pymysql.connections import Connection

from unshard.adapters import mysql
from unshard.adapters.target import steps as stepping
from unshard.adapters.target.apply import write
from unshard.adapters.target.changes import Applied, Changes
from unshard.adapters.target.fence import Fence, hold_join, is_applied, raise_fence
from unshard.adapters.target.partialrows import has_gaps
from unshard.adapters.target.session import Writer, open_session
from unshard.adapters.target.steps import Bounds, bounds_of


@dataclass(frozen=True, slots=True)
class Slice:
    """The changes of one slice to the target table, which has a key."""

    changes: Changes
    read: float
    """Fraction of the window that has been read, including this slice, from 0 to 1."""


def apply_slices(writer: Writer, fence: Fence, slices: Iterator[Slice]) -> Applied | None:
    """Apply the window while its slices are read; None or an error means that it must be applied as a whole."""
    with contextlib.closing(open_session(writer)) as connection, ThreadPoolExecutor(1) as thread:
        if is_applied(connection, fence) or stepping.are_begun(connection, fence):
            return None
        mysql.query(connection, "BEGIN")
        hold_join(connection, fence)
        applied = _written(connection, fence, slices, bounds_of(writer), thread)
        if applied is None or not raise_fence(connection, fence):
            return None
        mysql.query(connection, "COMMIT")
        return applied


def _written(
    connection: Connection, fence: Fence, slices: Iterator[Slice], bounds: Bounds, thread: ThreadPoolExecutor
) -> Applied | None:
    """Write slices in a second thread while this one reads the next, so at most two slices are in memory."""
    total, rows, size = Applied(), 0, 0
    under_way: Future[Applied] | None = None
    for each in slices:
        more = stepping.size_of(each.changes)
        rows, size = rows + more[0], size + more[1]
        if has_gaps(each.changes) or not _fits(bounds, rows / each.read, size / each.read):
            return None
        if under_way is not None:
            total += under_way.result()
        # Rows are diverted only when the window is applied as a whole, because a later slice may correct them.
        under_way = thread.submit(write, connection, fence, each.changes, max_diverted=0)
    return total if under_way is None else total + under_way.result()


def _fits(bounds: Bounds, rows: float, size: float) -> bool:
    return rows <= bounds.rows and size <= bounds.bytes
