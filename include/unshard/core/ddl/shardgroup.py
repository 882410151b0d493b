"""The shards of one target: which DDL each shard has reached, and which source is ready.

A group consists of all shards of one target, in any source. The group is not stored: it is derived from the states of
the shards, so it never contradicts them. A shard that was dropped upstream leaves its group. While DDL or rows of it
wait, it is still considered, but no lock waits for it. A shard that an operator has dropped is in no group: the next
window of its source drops its waiting DDL and rows.

A source is *ready* when each of its shards has the same DDL at the head of its queue and no held rows
that could be applied before it. The cases of one shard:

| queue        | held files before the head | the shard                                      |
|--------------|----------------------------|------------------------------------------------|
| empty        | none                       | has not reached the DDL: the lock waits for it |
| empty        | some                       | its rows after a resolved DDL are released now |
| head agrees  | none                       | ready                                          |
| head agrees  | some                       | draining: older rows must be applied first     |
| head differs | any                        | in conflict                                    |
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from unshard.core.ddl.queue import HeldFile, QueueEntry, ShardState
from unshard.core.model import Shard, TableId, shape_of


def groups(shards: Iterable[ShardState]) -> Mapping[TableId, tuple[ShardState, ...]]:
    """Group shards by target, each group sorted by the names of its shards."""
    found: dict[TableId, list[ShardState]] = defaultdict(list)
    for state in sorted(shards, key=lambda state: state.shard):
        if not state.is_dropped:
            found[state.target].append(state)
    return {target: tuple(states) for target, states in sorted(found.items())}


def head(state: ShardState) -> QueueEntry | None:
    """Return the oldest DDL of the shard that is not resolved."""
    return state.queue[0] if state.queue else None


def releasable(state: ShardState) -> tuple[HeldFile, ...]:
    """Return the held files that precede the head of the queue, oldest first."""
    first = head(state)
    held = () if state.is_dropped else state.held
    ready = (file for file in held if first is None or file.seq < first.seq)
    return tuple(sorted(ready, key=lambda file: (file.seq, file.window, file.part)))


def is_alone(state: ShardState) -> bool:
    """Whether the DDL at the head of the queue concerns only this shard, so that it is not a normal member yet."""
    first = head(state)
    return first is not None and first.is_alone


def agrees(state: ShardState, fingerprint: str) -> bool:
    """Whether the shard has a DDL with this fingerprint at the head of its queue."""
    first = head(state)
    return first is not None and first.fingerprint == fingerprint


def complete_sources(members: Iterable[ShardState], ready: Collection[Shard]) -> tuple[str, ...]:
    """Return the sources all of whose existing shards are in `ready`, by name."""
    incomplete: dict[str, bool] = {}
    for state in members:
        if not state.has_left:
            incomplete[state.shard.source] = incomplete.get(state.shard.source, False) or state.shard not in ready
    return tuple(sorted(source for source, is_incomplete in incomplete.items() if not is_incomplete))


def chain(state: ShardState) -> tuple[str, ...]:
    """Return the structures from before the oldest pending DDL to after the newest."""
    if not state.queue:
        return (state.structure,)
    return (state.queue[0].before, *(entry.after for entry in state.queue))


def last_index(structures: Sequence[str], wanted: str) -> int | None:
    """Return the last index of this structure, else of one that differs only in text (comments, CHECKs), else None."""
    exact = [index for index, found in enumerate(structures) if found == wanted]
    alike = [index for index, found in enumerate(structures) if shape_of(found) == shape_of(wanted)]
    found = exact or alike
    return found[-1] if found else None
