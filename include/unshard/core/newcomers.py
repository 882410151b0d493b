"""What a new shard is like: which shard of its group has, had or will have the structure that it was created with.

One that is like none waits for an operator, or until its group has got there.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from unshard.core.model import Shard
from unshard.core.shardgroup import chain, is_alone, place
from unshard.core.window import ShardState, Verdict


def likeness(group: Sequence[ShardState], structure: str, source: str) -> tuple[ShardState | None, int]:
    """Find a shard of the group that has, had or will have that structure, and behind how many pending DDLs.

    A shard of the same source decides before others, then the one with most pending DDLs, and a dropped one whose
    DDLs still wait only if no other does. Where several places fit (a DDL may leave the structure as it is), the
    newest is meant: who rolls a DDL out over the tables that exist does not run it on one made meanwhile.
    """
    fit = (state for state in group if not any(entry.is_alone for entry in state.queue))
    ranked = sorted(fit, key=lambda s: (s.has_left, s.shard.source != source, -len(s.queue), s.shard))
    for state in ranked:
        if (position := place(chain(state), structure)) is not None:
            return state, position
    return None, 0


@dataclass(frozen=True, slots=True)
class Admission:
    """A shard that was created unlike its group and is like `peer` now: it goes on as one of the group."""

    shard: Shard
    seq: int
    peer: Shard
    born: str = ""
    peer_born: str = ""
    """Tell shard and peer from others that have come to their names meanwhile."""


def admissions(members: Sequence[ShardState]) -> tuple[Admission, ...]:
    """Return the shards whose group has got to the structure that they were created with."""
    found = []
    for state in members:
        if _is_undecided_alone(state):
            peers = [p for p in _peers(members, state) if place(chain(p), state.queue[0].after) == 0]
            found += [
                Admission(state.shard, state.queue[0].seq, peer.shard, state.born, peer.born) for peer in peers[:1]
            ]
    return tuple(found)


def is_expected(members: Sequence[ShardState], state: ShardState) -> bool:
    """Whether another shard will have the structure that this one was created with, once its DDL are resolved."""
    return _is_undecided_alone(state) and any(
        place(chain(peer), state.queue[0].after) for peer in _peers(members, state)
    )


def _is_undecided_alone(state: ShardState) -> bool:
    return is_alone(state) and bool(state.queue[0].after) and state.queue[0].verdict is Verdict.NONE


def _peers(members: Sequence[ShardState], state: ShardState) -> list[ShardState]:
    """Return the shards that may tell what another one is like: those of its source first, dropped ones last."""
    others = (p for p in members if not p.is_dropped and not any(entry.is_alone for entry in p.queue))
    return sorted(others, key=lambda p: (p.has_left, p.shard.source != state.shard.source, p.shard))
