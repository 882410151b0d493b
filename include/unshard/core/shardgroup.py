"""Level 1: the shards of one target, what each of them has reached, and which source is ready.

A group is all shards of one target, whichever source they are in; it has no row of its own but follows
from the shards' states, so it can never disagree with them. A shard that was dropped upstream
leaves its group; while DDL or rows of it wait it is still looked at, but never waited for. One that an operator has
dropped is in no group: what waits of it is dropped by the next window of its source.

A source is *ready* when each of its shards has the same DDL at the head of its queue and no held rows
that could be applied before it. The cases of one shard:

| queue        | held files before the head | the shard                                      |
|--------------|----------------------------|------------------------------------------------|
| empty        | none                       | has not reached the DDL: it is waited for      |
| empty        | some                       | rows behind resolved DDL are being released    |
| head agrees  | none                       | ready                                          |
| head agrees  | some                       | draining: older rows must be applied first     |
| head differs | any                        | in conflict                                    |
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile

from unshard.core.model import Shard, TableId, shape_of
from unshard.core.pace import WindowLimits
from unshard.core.window import HeldFile, QueueEntry, Release, ShardState


def groups(shards: Iterable[ShardState]) -> Mapping[TableId, tuple[ShardState, ...]]:
    """Sort shards into groups by target, each in the order of its shards' names."""
    found: dict[TableId, list[ShardState]] = defaultdict(list)
    for state in sorted(shards, key=lambda state: state.shard):
        if not state.is_dropped:
            found[state.target].append(state)
    return {target: tuple(states) for target, states in sorted(found.items())}


def head(state: ShardState) -> QueueEntry | None:
    """Return the oldest DDL of the shard that is not resolved."""
    return state.queue[0] if state.queue else None


def releasable(state: ShardState) -> tuple[HeldFile, ...]:
    """Return the held files that stand before the head of the queue, oldest first."""
    first = head(state)
    held = () if state.is_dropped else state.held
    ready = (file for file in held if first is None or file.seq < first.seq)
    return tuple(sorted(ready, key=lambda file: (file.seq, file.window, file.part)))


def is_alone(state: ShardState) -> bool:
    """Whether the shard stands at a DDL that concerns no other, so that it is not one of its group yet."""
    first = head(state)
    return first is not None and first.is_alone


def agrees(state: ShardState, agreement: str) -> bool:
    """Whether the shard has a DDL of that meaning at the head of its queue."""
    first = head(state)
    return first is not None and first.agreement == agreement


def complete_sources(members: Iterable[ShardState], ready: Collection[Shard]) -> tuple[str, ...]:
    """Return the sources all of whose present shards are among `ready`, by name."""
    behind: dict[str, bool] = {}
    for state in members:
        if not state.has_left:
            behind[state.shard.source] = behind.get(state.shard.source, False) or state.shard not in ready
    return tuple(sorted(source for source, is_behind in behind.items() if not is_behind))


def chain(state: ShardState) -> tuple[str, ...]:
    """Return the structures from before the oldest pending DDL to after the newest."""
    if not state.queue:
        return (state.structure,)
    return (state.queue[0].before, *(entry.after for entry in state.queue))


def place(structures: Sequence[str], wanted: str) -> int | None:
    """Return the last place of that structure, else of one that differs by its text only (comments, CHECKs)."""
    exact = [place for place, found in enumerate(structures) if found == wanted]
    alike = [place for place, found in enumerate(structures) if shape_of(found) == shape_of(wanted)]
    found = exact or alike
    return found[-1] if found else None


def releases(shards: Sequence[ShardState], size: int, retried: Sequence[TableId],
             together: WindowLimits) -> tuple[Release, ...]:  # fmt: skip
    """Take the oldest files of all shards up to the size, at least one; each shard's stay in order.

    Targets that go on after a stop have room of their own, and come as a whole where it suffices, one after another.
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
    """Return the releasable files up to the first whose structure a decision has given but nobody has found yet."""
    return takewhile(lambda file: bool(file.structure), releasable(state))
