"""A window slice by slice: while the server writes one slice, the next one is read and netted.

All slices are one transaction with one fence at its end: deletes and writes of the first, deletes and writes of the
second, … So a slice is to its window what a window is to the binlog, but nobody sees the target in between. This is the
short way of what goes well. Whatever does not leaves the window to `apply_changes`, which takes it as a whole:

| what                                            | what happens                                                 |
|-------------------------------------------------|--------------------------------------------------------------|
| by what is read so far, one transaction does    | nothing more is read; rollback                               |
| not hold the window; lines lack values          |                                                              |
| a key is taken, a row does not fit              | an error, rollback                                           |
| a deadlock, a lost connection                   | an error, rollback by the server                             |
| the answer to COMMIT is lost                    | an error; the fence says whether the window is applied       |
| another run begins, or has begun to cut it      | the fence, or the steps, say so: rollback                    |
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
from unshard.adapters.target.fence import Fence, is_applied, raise_fence
from unshard.adapters.target.patches import has_gaps
from unshard.adapters.target.session import Writer, open_session
from unshard.adapters.target.steps import Bounds, bounds_of


@dataclass(frozen=True, slots=True)
class Slice:
    """What one slice does to the target table, which has a key."""

    changes: Changes
    read: float
    """How much of the window is read with it, from 0 to 1."""


def apply_slices(writer: Writer, fence: Fence, slices: Iterator[Slice]) -> Applied | None:
    """Apply the window while its slices are made; None, or an error, if it has to be applied as a whole."""
    with contextlib.closing(open_session(writer)) as connection, ThreadPoolExecutor(1) as thread:
        if is_applied(connection, fence) or stepping.are_begun(connection, fence):
            return None
        mysql.query(connection, "BEGIN")
        applied = _written(connection, fence, slices, bounds_of(writer), thread)
        if applied is None or not raise_fence(connection, fence):
            return None
        mysql.query(connection, "COMMIT")
        return applied


def _written(connection: Connection, fence: Fence, slices: Iterator[Slice], bounds: Bounds,
             thread: ThreadPoolExecutor) -> Applied | None:  # fmt: skip
    """Write each slice on a thread of its own; this one makes the next, so never more than two are there."""
    total, rows, size = Applied(), 0, 0
    under_way: Future[Applied] | None = None
    for each in slices:
        more = stepping.size_of(each.changes)
        rows, size = rows + more[0], size + more[1]
        if has_gaps(each.changes) or not _is_held(bounds, rows / each.read, size / each.read):
            return None
        if under_way is not None:
            total += under_way.result()
        # Whether a row that does not fit is put aside is for the window as a whole: a later slice may correct it.
        under_way = thread.submit(write, connection, fence, each.changes, most_diverted=0)
    return total if under_way is None else total + under_way.result()


def _is_held(bounds: Bounds, rows: float, size: float) -> bool:
    return rows <= bounds.rows and size <= bounds.bytes
