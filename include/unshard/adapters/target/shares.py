"""Divide the changes of a window between several sessions: each key belongs to one session (in executors).

A key belongs to a block of consecutive values of its first column, and blocks go to the sessions in turn. So the order
of the changes of a key is kept, and each session writes neighbouring rows. The blocks are as large as the keys of the
first slice allow: two sessions that write the same pages wait for each other.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from unshard.adapters.target.changes import Changes, Lines, Selected
from unshard.adapters.target.rendering.lines import rows_of
from unshard.core.sql.literals import INTEGERS, TEXTS

Numbers = npt.NDArray[np.uint64]

INTEGER_BYTES = 9
"""Size of an integer in an encoded key (units/rows/sortkeys): its sign, then eight bytes."""


@dataclass(frozen=True, slots=True)
class Shares:
    """The session of each key: block number modulo the number of sessions."""

    sessions: int
    origin: int
    """The value where a block begins."""
    block: int
    """Number of consecutive values in a block."""

    def encoded(self) -> bytes:
        """Return the value as text, for `fence_step`."""
        return f"{self.sessions} {self.origin} {self.block}".encode()

    @staticmethod
    def decoded(text: bytes) -> "Shares":
        """Return the value of such a text."""
        return Shares(*map(int, text.split()))

    def of(self, keys: pa.Array) -> npt.NDArray[np.int64]:
        """Return the number of the session of each encoded key."""
        blocks = (_leading(keys) - np.uint64(self.origin)) // np.uint64(self.block)
        return (blocks % np.uint64(self.sessions)).astype(np.int64)

    def split(self, changes: Changes) -> Iterator[Changes]:
        """Yield the changes of each session."""
        assert changes.order is not None
        deletes = self.of(changes.order)
        writes = [self.of(_order(each)) for each in changes.writes.lines]
        for number in range(self.sessions):
            yield _chosen(changes, deletes == number, [places == number for places in writes])

    def part(self, changes: Changes, number: int) -> Changes:
        """Return the changes of one session."""
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
    lines = [_lines(each, mask) for each, mask in zip(changes.writes.lines, writes, strict=True) if mask.any()]
    chosen = Selected(changes.deletes, np.flatnonzero(deletes))
    rows = replace(changes.writes, lines=lines, known_clashes=())
    return replace(changes, deletes=chosen, order=None, writes=rows, newly_deferred=())


def _lines(each: Lines, mask: npt.NDArray[np.bool_]) -> Lines:
    rows = np.flatnonzero(mask)
    origins = None if each.origins is None else each.origins.of(rows.tolist())
    return replace(
        each,
        lines=rows_of(each.lines, rows),
        blank=rows_of(each.blank, rows),
        shards=Selected(each.shards, rows),
        order=None,
        origins=origins,
    )
