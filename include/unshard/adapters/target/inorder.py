"""Apply the changes of tables that foreign keys connect: in the order of the binlog (executors).

The server checks foreign keys and carries out their actions as it did on the source (stepsession). All tables of a
group and their fences are one transaction, so a process that dies leaves all or nothing of a window. A large window is
cut into several transactions in the order of the binlog, at places where no row lacks the row that it references. Each
transaction records in the fence steps of all tables how many row images are written. The last one raises the fences and
deletes the steps.

| process dies                        | result                                                                     |
|-------------------------------------|----------------------------------------------------------------------------|
| before the steps are recorded       | nothing has happened                                                       |
| in a transaction                    | the server rolls it back; a retry goes on after the images that are done   |
| in COMMIT                           | a new connection reads how many images are done, and the fences            |
| between two transactions            | a retry goes on after the images that are done                             |
| another run begins                  | the epoch was raised: the check of the fences fails, rollback              |
| the window has other images then:   | the images no longer match: all are written again, as in a window that     |
| a shard was dropped, a target has   | begins before P1                                                           |
| another structure or foreign key    |                                                                            |
| the foreign keys are gone           | the tables stay one group until the window is done (units/window/sync)     |
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from pymysql.connections import Connection

from unshard.adapters import mysql
from unshard.adapters.target import steps as stepping
from unshard.adapters.target.changes import Applied
from unshard.adapters.target.fence import Fence, hold, hold_join, is_applied, raise_fence
from unshard.adapters.target.retrying import in_sessions
from unshard.adapters.target.rowsteps import Group, RowStep, StepRefused
from unshard.adapters.target.session import Writer
from unshard.adapters.target.steps import Bounds, Progress, bounds_of
from unshard.adapters.target.stepsession import StepSession
from unshard.core.model import TableId
from unshard.errors.meta import FenceMissing


class OrderedChanges(Protocol):
    """All changes of a group in a window, in the order of the binlog."""

    @property
    def rows(self) -> int:
        """Return the number of row images."""

    @property
    def bytes(self) -> int:
        """Return their size."""

    @property
    def content(self) -> str:
        """Return a digest of all images."""

    def after(self, images: int) -> Iterator[RowStep]:
        """Yield the steps after this number of images."""


Counts = dict[TableId, Applied]
ALL = -1
"""In place of a number of images: the last transaction, which raises the fences."""


@dataclass(slots=True)
class _Attempt:
    """The transactions of this process, and the last one that reached its COMMIT: the answer to it may be lost."""

    counts: Counts = field(default_factory=dict)
    done: int = 0
    """Number of images that are in the target, as far as this process knows."""
    reached: int = 0
    """The same after the transaction in COMMIT."""
    committing: Counts = field(default_factory=dict)

    def commit(self, connection: Connection, written: Counts, reached: int) -> None:
        """Commit a transaction and count its rows."""
        self.committing, self.reached = written, reached
        mysql.query(connection, "COMMIT")
        self.found(reached)

    def found(self, done: int) -> None:
        """Count the rows of the transaction in COMMIT if the target has them."""
        if done == self.reached:
            self.counts = {table: found + self.committing.get(table, Applied()) for table, found in self.counts.items()}
        elif done != self.done:  # by an earlier process
            self.counts = {table: found + Applied(before=True) for table, found in self.counts.items()}
        self.committing, self.done, self.reached = {}, done, done


def apply_in_order(writer: Writer, group: Group, changes: OrderedChanges) -> Counts:
    """Apply the window to all tables of a group exactly once; raises StepRefused."""
    limits, attempt = bounds_of(writer), _Attempt({fence.target: Applied() for fence in group.fences})
    while not in_sessions(writer, lambda connection: _apply_next(connection, group, changes, limits, attempt)):
        pass
    return attempt.counts


def _apply_next(
    connection: Connection, group: Group, changes: OrderedChanges, limits: Bounds, attempt: _Attempt
) -> bool:
    """Run the next transaction; return whether the target has the whole window."""
    pending = [fence for fence in group.fences if not is_applied(connection, fence)]
    if not pending:
        attempt.found(ALL)
        return True
    progress = _progress(connection, group, pending, changes, limits)
    attempt.found(progress.images if progress else 0)
    connection.uses_load_data = False  # LOAD DATA leaves out a row whose parent is missing
    mysql.begin(connection)
    for fence in pending:
        hold_join(connection, fence)
    session = StepSession(connection, group)
    try:
        written, reached = _written(connection, session, pending, changes, limits, progress)
    except StepRefused:
        mysql.query(connection, "ROLLBACK")
        # The COMMIT of an attempt that was taken for lost may have been in progress.
        if _has_moved(connection, pending, progress):
            return False
        raise
    for fence in pending:
        session.close(fence)
    if reached == ALL or progress is None:
        return _finished(connection, pending, attempt, written)
    for fence in pending:
        hold(connection, fence)
    after = replace(progress, images=reached)
    if all(stepping.advance(connection, fence, progress, after) for fence in pending):
        attempt.commit(connection, written, reached)
    else:
        mysql.query(connection, "ROLLBACK")
    return False


def _progress(
    connection: Connection, group: Group, pending: Sequence[Fence], changes: OrderedChanges, limits: Bounds
) -> Progress | None:
    """Return how much of the window is done; None if it is one transaction."""
    found = [stepping.progress_of(connection, fence) for fence in pending]
    known = [each for each in found if each is not None]
    if not known and not (group.has_keys and (changes.rows > limits.rows or changes.bytes > limits.bytes)):
        return None
    if len(known) == len(found) and all(each == known[0] for each in known) and known[0].content == changes.content:
        return known[0]
    progress = Progress(changes.content, 0, any(each.images or each.is_again for each in known))
    mysql.begin(connection)
    for fence in pending:
        hold(connection, fence)
        stepping.begin(connection, fence, progress)
    mysql.query(connection, "COMMIT")
    return progress


def _written(
    connection: Connection,
    session: StepSession,
    pending: Sequence[Fence],
    changes: OrderedChanges,
    limits: Bounds,
    progress: Progress | None,
) -> tuple[Counts, int]:
    """Write the next steps; return the counts, and the number of images that are done then."""
    fences = {fence.target: fence for fence in pending}
    # Tables with some of these rows, which an attempt has written that had other rows, or no foreign keys.
    again = {t for t, f in fences.items() if (progress and progress.is_again) or stepping.is_cut_by_key(connection, f)}
    written, start = {fence.target: Applied() for fence in pending}, progress.images if progress else 0
    images, size = 0, 0
    for step in changes.after(start):
        images, size = images + step.images, size + step.bytes
        is_first = images == step.images
        is_full = progress is not None and not is_first and (images > limits.rows or size > limits.bytes)
        if is_full and session.is_complete():
            return written, start + images - step.images
        if fence := fences.get(step.table):
            ours = replace(step, is_safe=True, is_unsure=True) if step.table in again else step
            written[step.table] += session.write(ours, fence)
    session.refuse_incomplete()
    return written, ALL


def _has_moved(connection: Connection, pending: Sequence[Fence], progress: Progress | None) -> bool:
    """Whether another transaction has written more of the window."""
    return any(
        is_applied(connection, fence) or stepping.progress_of(connection, fence) != progress for fence in pending
    )


def _finished(connection: Connection, pending: Sequence[Fence], attempt: _Attempt, written: Counts) -> bool:
    """Raise the fences and commit; return False if another transaction has done so."""
    for fence in pending:
        stepping.forget(connection, fence)
        if not raise_fence(connection, fence):
            mysql.query(connection, "ROLLBACK")
            if is_applied(connection, fence):
                return False
            raise FenceMissing(str(fence.target), fence.source)
    attempt.commit(connection, written, ALL)
    return True
