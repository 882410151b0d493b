"""Selects the held rows that a window releases: the oldest first, up to the size of a window."""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile

from unshard.core.ddl.queue import HeldFile, ShardState
from unshard.core.ddl.shardgroup import releasable
from unshard.core.model import Shard, TableId
from unshard.core.window.pace import WindowLimits
from unshard.core.window.plan import Release


def releases(
    shards: Sequence[ShardState], size: int, retried: Sequence[TableId], together: WindowLimits
) -> tuple[Release, ...]:
    """Take the oldest files of all shards up to the size, at least one; each shard's stay in order.

    Targets that go on after a suspension have a limit of their own (`together`). Within it each is released as a whole,
    one target after the other.
    """
    taken = _oldest(_files(state for state in shards if state.target not in retried), size, math.inf)
    room, rows = together.bytes, together.rows
    for target in retried:
        files = _files(state for state in shards if state.target == target)
        size, count = sum(file.bytes for file in files), sum(file.rows for file in files)
        if room == together.bytes or (size <= room and count <= rows):
            taken |= _oldest(files, room, rows)
            room, rows = room - size, rows - count
    targets = {state.shard: state.target for state in shards}
    return tuple(Release(shard, tuple(taken[shard]), targets[shard]) for shard in sorted(taken))


def _files(shards: Iterable[ShardState]) -> list[HeldFile]:
    return sorted((f for state in shards for f in _decodable(state)), key=lambda f: (f.window, f.shard, f.seq, f.part))


def _oldest(files: Iterable[HeldFile], size: int, rows: float) -> dict[Shard, list[HeldFile]]:
    taken: dict[Shard, list[HeldFile]] = {}
    for file in files:
        size, rows = size - file.bytes, rows - file.rows
        if taken and min(size, rows) < 0:
            break
        taken.setdefault(file.shard, []).append(file)
    return taken


def _decodable(state: ShardState) -> Iterator[HeldFile]:
    """Return the releasable files before the first whose structure is decided but not found yet."""
    return takewhile(lambda file: bool(file.structure), releasable(state))
