"""Admission of a new shard to its group: which other shard has, had or will have the structure of the new one.

If no shard matches, the new shard waits for an operator, or until its group has reached its structure.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from unshard.core.ddl.queue import OperatorDecision, ShardState, WholeChange
from unshard.core.ddl.shardgroup import chain, is_alone, last_index
from unshard.core.model import Shard
from unshard.errors.locks import ShardDdlRefused

REFUSED = f"[{ShardDdlRefused.code}]"
"""Begins the reason why a table that got the name of a shard waits: an equal structure does not make it that shard."""


def matching_shard(group: Sequence[ShardState], structure: str, source: str) -> tuple[ShardState | None, int]:
    """Find a shard of the group that has, had or will have that structure, and after how many of its pending DDLs.

    Shards of the same source are preferred, then the shards with the most pending DDLs. A dropped shard with pending
    DDLs is used only if no other shard matches. A shard can match at several points, because a DDL may leave the
    structure unchanged. Then the newest point is used: an operator who rolls out a DDL to the existing tables does not
    run it on a table that was created in the meantime.
    """
    fit = (state for state in group if not any(entry.is_alone for entry in state.queue))
    ranked = sorted(fit, key=lambda s: (s.has_left, s.shard.source != source, -len(s.queue), s.shard))
    for state in ranked:
        if (position := last_index(chain(state), structure)) is not None:
            return state, position
    return None, 0


@dataclass(frozen=True, slots=True)
class Admission:
    """A mismatched new shard whose group has reached its structure: it becomes a normal member."""

    shard: Shard
    seq: int
    peer: Shard
    """A member of the group with the same structure."""
    shard_uid: str = ""
    peer_uid: str = ""
    """Identify shard and peer if other shards have their names by now."""


def admissions(members: Sequence[ShardState]) -> tuple[Admission, ...]:
    """Return the shards whose group has reached the structure that they were created with."""
    found = []
    for state in members:
        if _is_undecided_alone(state):
            peers = [p for p in _peers(members, state) if last_index(chain(p), state.queue[0].after) == 0]
            found += [
                Admission(state.shard, state.queue[0].seq, peer.shard, state.shard_uid, peer.shard_uid)
                for peer in peers[:1]
            ]
    return tuple(found)


def is_expected(members: Sequence[ShardState], state: ShardState) -> bool:
    """Whether another shard will have the structure that this one was created with, once its DDLs are resolved."""
    return _is_undecided_alone(state) and any(
        last_index(chain(peer), state.queue[0].after) for peer in _peers(members, state)
    )


def _is_undecided_alone(state: ShardState) -> bool:
    if not is_alone(state) or state.queue[0].whole is not WholeChange.NONE:
        return False
    first = state.queue[0]
    is_refused = first.reason.startswith(REFUSED)
    return bool(first.after) and first.verdict is OperatorDecision.NONE and not is_refused


def _peers(members: Sequence[ShardState], state: ShardState) -> list[ShardState]:
    """Return the shards to compare a new shard with: those of its source first, dropped ones last."""
    others = (p for p in members if not p.is_dropped and not any(entry.is_alone for entry in p.queue))
    return sorted(others, key=lambda p: (p.has_left, p.shard.source != state.shard.source, p.shard))
