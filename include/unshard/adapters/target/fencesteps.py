"""Split large changes into several transactions: ranges of keys, each with a row that records whether it is done.

One transaction of a million rows exceeds the limits of some servers (TiDB), and its undo log burdens all of them. So
changes above a bound are cut into steps by key. The steps are persisted before the first one runs, so a retry has the
same steps even if their rows are partly written. The last transaction raises the fence and deletes the steps.

| the table                                        | its steps                                               |
|--------------------------------------------------|---------------------------------------------------------|
| one unique key, equal bytes are equal keys       | ranges: deletes and writes of a range together          |
| several unique keys, or a key with a collation   | ranges of deletes, then ranges of writes: one range may |
|                                                  | take a value that another range frees                   |
| no key                                           | none: a multiset is one transaction                     |
| foreign keys connect it with others              | numbers of row images in the order of the binlog        |
|                                                  | (inorder)                                               |
| one unique key that begins with an integer, and  | the shares of several sessions (shares); they are       |
| the window is written while it is read (slices)  | stored with the first of them                           |

| process dies                    | result                                                                 |
|---------------------------------|------------------------------------------------------------------------|
| before the steps are committed  | nothing has happened                                                   |
| in a step                       | the server rolls it back; a retry runs the steps that are not done     |
| in COMMIT of a step             | a new connection reads whether the step is done                        |
| another run begins              | the epoch was raised: the step's check of the fence fails, rollback    |
| the target's key changes        | the steps no longer match: all changes run again, with REPLACE         |

**Shares** divide the changes of a window between several sessions: each key belongs to one session (in executors).
A key belongs to a block of consecutive values of its first column, and blocks go to the sessions in turn. So the order
of the changes of a key is kept, and each session writes neighbouring rows. The blocks are as large as the keys of the
first slice allow: two sessions that write the same pages wait for each other.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pymysql.connections import Connection

from unshard.adapters import mysql
from unshard.adapters.target.fence import OURS, Fence, fence_key, hold, is_applied, meta_table
from unshard.adapters.target.rendering import take_rows
from unshard.adapters.target.session import Writer
from unshard.adapters.target.targetrows import Changes, Lines, Mode, Selected
from unshard.core.rows.writepath import LoadData
from unshard.core.sql.literals import INTEGERS, TEXTS

# --- shares of sessions ---

Numbers = npt.NDArray[np.uint64]

INTEGER_BYTES = 9
"""Size of an integer in an encoded key (units/rows/sortkeys): its sign, then eight bytes."""


@dataclass(frozen=True, slots=True)
class Shares:
    """The session of each key: block number modulo the number of sessions."""

    sessions: int
    origin: int
    block: int

    def encoded(self) -> bytes:
        return f"{self.sessions} {self.origin} {self.block}".encode()

    @staticmethod
    def decoded(text: bytes) -> "Shares":
        return Shares(*map(int, text.split()))

    def of(self, keys: pa.Array) -> npt.NDArray[np.int64]:
        """Return the number of the session of each encoded key."""
        blocks = (_leading(keys) - np.uint64(self.origin)) // np.uint64(self.block)
        return (blocks % np.uint64(self.sessions)).astype(np.int64)

    def split(self, changes: Changes) -> Iterator[Changes]:
        assert changes.order is not None
        deletes = self.of(changes.order)
        writes = [self.of(_order(each)) for each in changes.writes.lines]
        for number in range(self.sessions):
            yield _chosen(changes, deletes == number, [places == number for places in writes])

    def part(self, changes: Changes, number: int) -> Changes:
        return list(self.split(changes))[number]


def shares_for(changes: Changes, sessions: int, least_keys: int, spread: float) -> Shares | None:
    """Return how to divide a window that begins with these changes; None: one session writes it.

    The table must have one unique key whose equal values have equal bytes, and which begins with an integer.
    """
    if sessions < 2 or not can_be_shared(changes):
        return None
    assert changes.order is not None
    keys = np.concatenate([_leading(each) for each in (changes.order, *map(_order, changes.writes.lines))])
    if len(keys) < max(least_keys, sessions):
        return None
    origin = int(keys.min())
    keys = keys - np.uint64(origin)
    block = int(keys.max()) // sessions + 1
    while block:
        places = (keys // np.uint64(block) % np.uint64(sessions)).astype(np.int64)
        if np.bincount(places, minlength=sessions).max() * sessions <= spread * len(keys):
            return Shares(sessions, origin, block)
        block //= 2
    return None


def can_be_shared(changes: Changes) -> bool:
    """Whether each of these changes belongs to one session whatever the others do."""
    if changes.order is None or not changes.key or changes.key[0].data_type not in INTEGERS:
        return False
    is_moving = any(each.origins is not None and each.origins.moves for each in changes.writes.lines)
    return is_exact(changes) and not is_moving


def is_exact(changes: Changes) -> bool:
    """Whether equal keys have equal bytes, and the table has no other unique key."""
    texts = [column for column in changes.key if column.data_type in TEXTS - {"enum", "set"}]
    return len(changes.writes.unique) == 1 and not texts


def _order(each: Lines) -> pa.Array:
    assert each.order is not None
    return each.order


def _leading(keys: pa.Array) -> Numbers:
    """Return the first column of encoded keys as unsigned numbers; negative ones follow all others."""
    if not len(keys):
        return np.empty(0, np.uint64)
    _, offsets, content = keys.buffers()
    starts = np.frombuffer(offsets, np.int32)[keys.offset : keys.offset + len(keys)]
    places = np.ndarray(content.size - INTEGER_BYTES + 1, f"V{INTEGER_BYTES}", content, strides=(1,))
    parts = places[starts].view(np.uint8).reshape(-1, INTEGER_BYTES)[:, 1:]
    numbers: Numbers = np.ascontiguousarray(parts).view(">u8").ravel().astype(np.uint64)
    return numbers


def _chosen(changes: Changes, deletes: npt.NDArray[np.bool_], writes: Sequence[npt.NDArray[np.bool_]]) -> Changes:
    lines = [_lines_of_share(each, mask) for each, mask in zip(changes.writes.lines, writes, strict=True) if mask.any()]
    chosen = Selected(changes.deletes, np.flatnonzero(deletes))
    rows = replace(changes.writes, lines=lines, known_collisions=())
    return replace(changes, deletes=chosen, order=None, writes=rows, newly_deferred=())


def _lines_of_share(each: Lines, mask: npt.NDArray[np.bool_]) -> Lines:
    rows = np.flatnonzero(mask)
    origins = None if each.origins is None else each.origins.of(rows.tolist())
    return replace(
        each,
        lines=take_rows(each.lines, rows),
        blank=take_rows(each.blank, rows),
        shards=Selected(each.shards, rows),
        order=None,
        origins=origins,
    )


# --- steps ---

OF_WINDOW = f"{OURS} AND `window` = %s"


class StepKind(StrEnum):
    """Which changes of its range a step applies."""

    ALL = "all"
    DELETES = "deletes"
    WRITES = "writes"
    SHARE = "share"
    """Not a range of keys: the changes of one of several sessions (shares)."""
    IN_ORDER = "in order"
    """Not a range of keys: the changes up to a number of row images, of all tables that foreign keys connect."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Size limits of one transaction, and the number of transactions at the same time."""

    rows: int
    bytes: int
    appliers: int
    """Sessions that run the steps of changes that were read as a whole."""
    sessions: int = 1
    """Sessions that write slices while the next ones are read (shares)."""
    least_keys: int = 5_000
    """A first slice with fewer keys is written by one session: the table may be small. There the server may read, and
    so lock, rows of other keys.
    """
    spread: float = 1.3
    """How much more than its fair share of the first slice a session may get."""


INNODB = Bounds(1_000_000, 256 << 20, 1)
STATEMENTS = Bounds(20_000, 16 << 20, 1)
"""For targets that need statements, such as TiDB, whose transactions end at 100 MiB; the writer sets the sessions."""


@dataclass(frozen=True, slots=True)
class FenceStep:
    """Changes to keys above the previous step's `upper`, up to `upper`; None: no upper limit."""

    number: int
    kind: StepKind
    upper: bytes | None
    done: bool = False


@dataclass(frozen=True, slots=True)
class ImageProgress:
    """How much of a large window is in tables that foreign keys connect; equal in all of them."""

    content: str
    images: int = 0
    is_again: bool = False
    """An earlier attempt has written some rows of a window with other images."""


IN_ORDER = -1
"""The number of the step that records the progress; it has no range of keys."""


def bounds_of(writer: Writer) -> Bounds:
    """Return the bounds for a target."""
    sessions = writer.writing.sessions(writer.sessions)
    if writer.load_data is not LoadData.TRANSACTIONAL:
        return replace(STATEMENTS, appliers=sessions)
    return replace(INNODB, sessions=sessions)


def is_large(changes: Changes, bounds: Bounds) -> bool:
    """Whether changes exceed the bounds of one transaction."""
    if changes.order is None:
        return False
    rows, size = size_of(changes)
    return rows > bounds.rows or size > bounds.bytes


def has_changes(changes: Changes) -> bool:
    """Whether there is something to delete or to write."""
    return bool(changes.deletes or changes.writes.lines)


def size_of(changes: Changes) -> tuple[int, int]:
    """Return rows and bytes of deletes and writes by key."""
    lines = [each.lines for each in changes.writes.lines]
    deletes = 0 if changes.order is None else changes.order.nbytes
    return len(changes.deletes) + sum(map(len, lines)), deletes + sum(each.nbytes for each in lines)


def steps_of(connection: Connection, fence: Fence, changes: Changes, bounds: Bounds) -> tuple[FenceStep, ...]:
    """Return the persisted steps of a window; empty if one transaction is enough. This run must own the fence."""
    found = _read(connection, fence)
    if found or not is_large(changes, bounds):
        return found
    mysql.begin(connection)
    hold(connection, fence)
    _store(connection, fence, changes, cut(changes, bounds))
    mysql.query(connection, "COMMIT")
    return _read(connection, fence)


def store_shares(connection: Connection, fence: Fence, changes: Changes, shares: Shares) -> None:
    """Store the shares of a window in the transaction of the first one; the fence is locked."""
    numbers = range(shares.sessions)
    steps = (FenceStep(number, StepKind.SHARE, shares.encoded(), done=not number) for number in numbers)
    _store(connection, fence, changes, steps)


def _store(connection: Connection, fence: Fence, changes: Changes, steps: Iterable[FenceStep]) -> None:
    sql = (
        f"INSERT INTO {_table(fence)} (task, source, target_schema, target_table, `window`, number,"  # noqa: S608
        " kind, upper_key, key_columns, done) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
    )
    for step in steps:
        upper = None if step.upper is None else step.upper.hex()
        row = (*fence_key(fence), fence.window, step.number, step.kind.value, upper, _key_of(changes), int(step.done))
        mysql.query(connection, sql, row)


def recorded_progress(connection: Connection, fence: Fence) -> ImageProgress | None:
    """Return the recorded progress of the window in a table that foreign keys connect with others."""
    sql = f"SELECT upper_key, key_columns FROM {_table(fence)} WHERE {OF_WINDOW} AND number = %s"  # noqa: S608
    rows = mysql.query(connection, sql, (*fence_key(fence), fence.window, IN_ORDER))
    if not rows:
        return None
    ((images, about),) = rows
    content, _, again = about.partition(" ")
    return ImageProgress(content, int(images), bool(again))


def begin_progress(connection: Connection, fence: Fence, progress: ImageProgress) -> None:
    """Record a progress in place of another one."""
    sql = f"DELETE FROM {_table(fence)} WHERE {OF_WINDOW} AND number = %s"  # noqa: S608
    mysql.query(connection, sql, (*fence_key(fence), fence.window, IN_ORDER))
    sql = (
        f"INSERT INTO {_table(fence)} (task, source, target_schema, target_table, `window`, number,"  # noqa: S608
        " kind, upper_key, key_columns, done) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
    )
    about, is_done = f"{progress.content}{' again' * progress.is_again}", int(progress.is_again)
    row = (*fence_key(fence), fence.window, IN_ORDER, StepKind.IN_ORDER.value, str(progress.images), about, is_done)
    mysql.query(connection, sql, row)


def advance(connection: Connection, fence: Fence, before: ImageProgress, after: ImageProgress) -> bool:
    """Record the progress in the transaction of its rows; returns False if another transaction has moved it."""
    where = f"{OF_WINDOW} AND number = %s AND upper_key = %s"
    sql = f"UPDATE {_table(fence)} SET upper_key = %s, done = 1 WHERE {where}"  # noqa: S608
    row = (str(after.images), *fence_key(fence), fence.window, IN_ORDER, str(before.images))
    return bool(mysql.change(connection, sql, row))


def is_cut_by_key(connection: Connection, fence: Fence) -> bool:
    """Whether an earlier attempt has cut the window into ranges of keys; some of them may be done."""
    return any(step.kind is not StepKind.IN_ORDER for step in _read(connection, fence))


def are_begun(connection: Connection, fence: Fence) -> bool:
    """Whether an earlier attempt has cut the window into steps; some of them may be done."""
    return bool(_read(connection, fence))


def is_of_another_key(connection: Connection, fence: Fence, changes: Changes) -> bool:
    """Whether the steps were made for another key than the table has now."""
    sql = f"SELECT DISTINCT key_columns FROM {_table(fence)} WHERE {OF_WINDOW}"  # noqa: S608
    return mysql.query(connection, sql, (*fence_key(fence), fence.window)) != [(_key_of(changes),)]


def mark(connection: Connection, fence: Fence, step: FenceStep) -> bool:
    """Record in the step's transaction that it is done; returns False if it already was."""
    sql = f"UPDATE {_table(fence)} SET done = 1 WHERE {OF_WINDOW} AND number = %s AND done = 0"  # noqa: S608
    return bool(mysql.change(connection, sql, (*fence_key(fence), fence.window, step.number)))


def is_done(connection: Connection, fence: Fence, step: FenceStep) -> bool:
    """Whether the target has the step or the whole window; raises FencedOut when another run has taken over."""
    return is_applied(connection, fence) or any(
        each.number == step.number and each.done for each in _read(connection, fence)
    )


def delete_steps(connection: Connection, fence: Fence) -> None:
    """Delete all steps of the target, in the transaction that raises the fence."""
    mysql.query(connection, f"DELETE FROM {_table(fence)} WHERE {OURS}", fence_key(fence))  # noqa: S608


def _read(connection: Connection, fence: Fence) -> tuple[FenceStep, ...]:
    sql = f"SELECT number, kind, upper_key, done FROM {_table(fence)} WHERE {OF_WINDOW} ORDER BY number"  # noqa: S608
    rows = mysql.query(connection, sql, (*fence_key(fence), fence.window))
    return tuple(
        FenceStep(
            number, StepKind(kind), None if upper is None or number == IN_ORDER else bytes.fromhex(upper), bool(done)
        )
        for number, kind, upper, done in rows
    )


def _table(fence: Fence) -> str:
    return meta_table(fence, "fence_step")


def _key_of(changes: Changes) -> str:
    return ", ".join(f"{column.name} {column.column_type}" for column in changes.key)


# --- cutting ------------------------------------------------------------------------------------------------


def cut(changes: Changes, bounds: Bounds) -> Iterator[FenceStep]:
    """Yield the steps of changes that have a key."""
    number = 0
    together = is_exact(changes)
    for kind in (StepKind.ALL,) if together else (StepKind.DELETES, StepKind.WRITES):
        for upper in (*_borders(changes, kind, bounds), None):
            yield FenceStep(number, kind, upper)
            number += 1


def _borders(changes: Changes, kind: StepKind, bounds: Bounds) -> list[bytes]:
    keys, sizes = [], []
    if kind is not StepKind.WRITES and changes.order is not None:
        keys.append(changes.order)
        sizes.append(_sizes(changes.order))
    if kind is not StepKind.DELETES:
        for each in changes.writes.lines:
            assert each.order is not None
            keys.append(each.order)
            sizes.append(_sizes(each.lines))
    if not sum(map(len, keys)):
        return []
    joined = pa.concat_arrays(keys)
    order = pc.sort_indices(joined).to_numpy()
    weights = np.maximum(np.concatenate(sizes)[order] / bounds.bytes, 1 / bounds.rows)
    parts = np.floor(np.cumsum(weights)).astype(np.int64)
    last = np.flatnonzero(parts[1:] != parts[:-1])
    return list(dict.fromkeys(joined[int(order[index])].as_py() for index in last))


def _sizes(array: pa.Array) -> np.ndarray:
    sizes: np.ndarray = pc.binary_length(array).to_numpy(zero_copy_only=False)
    return sizes


def changes_by_step(changes: Changes, steps: Sequence[FenceStep]) -> Iterator[tuple[FenceStep, Changes]]:
    """Yield each step with its changes; the known collisions are recorded with the first writes."""
    known = changes.writes.known_collisions
    for before, step in pairwise((None, *steps)):
        assert step is not None
        if step.kind is StepKind.SHARE:
            part = Shares.decoded(step.upper or b"").part(changes, step.number)
        else:
            lower = before.upper if before is not None and before.kind is step.kind else None
            part = _part(changes, step, lower)
        if step.kind is not StepKind.DELETES:
            part, known = replace(part, writes=replace(part.writes, known_collisions=known)), ()
        yield step, part


def _part(changes: Changes, step: FenceStep, lower: bytes | None) -> Changes:
    order = changes.order
    assert order is not None
    first, last = _span(order, lower, step.upper)
    deletes = () if step.kind is StepKind.WRITES else changes.deletes[first:last]
    lines = (
        () if step.kind is StepKind.DELETES else tuple(_lines(each, lower, step.upper) for each in changes.writes.lines)
    )
    writes = replace(changes.writes, lines=[each for each in lines if len(each.lines)], known_collisions=())
    return replace(changes, deletes=deletes, order=None, writes=writes, newly_deferred=())


def _lines(each: Lines, lower: bytes | None, upper: bytes | None) -> Lines:
    assert each.order is not None
    first, last = _span(each.order, lower, upper)
    size = last - first
    return replace(
        each,
        lines=each.lines.slice(first, size),
        blank=each.blank.slice(first, size),
        shards=each.shards[first:last],
        order=None,
        origins=None if each.origins is None else each.origins.part(first, last),
    )


def _span(order: pa.Array, lower: bytes | None, upper: bytes | None) -> tuple[int, int]:
    indexes = range(len(order))
    first = 0 if lower is None else bisect_right(indexes, lower, key=lambda index: order[index].as_py())
    last = len(order) if upper is None else bisect_right(indexes, upper, key=lambda index: order[index].as_py())
    return first, last


def with_replace(changes: Changes) -> Changes:
    """Return the changes in a form that may be applied over a partly applied window: with REPLACE."""
    lines = [replace(each, mode=Mode.REPLACE) for each in changes.writes.lines]
    return replace(changes, order=None, writes=replace(changes.writes, lines=lines))
