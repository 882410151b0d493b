"""The state of each source in a lock, as operators and sensors see it."""

from collections.abc import Sequence
from enum import StrEnum

from unshard.core.ddl.lock import LockDecision
from unshard.core.ddl.queue import ShardState


class MemberState(StrEnum):
    """State of one source in a lock."""

    READY = "ready"
    WAITING = "waiting"
    DRAINING = "draining"
    CONFLICT = "conflict"
    ABSENT = "absent"
    """The source is not in sync yet, so its shards are not known."""


def members_of(members: Sequence[ShardState], decision: LockDecision) -> dict[str, MemberState]:
    """Return the state of each source: the worst state of its shards."""
    ranks = (
        (decision.conflicts, MemberState.CONFLICT),
        (decision.missing, MemberState.WAITING),
        (decision.draining, MemberState.DRAINING),
    )
    found = dict.fromkeys(decision.absent, MemberState.ABSENT)
    for source in sorted({state.shard.source for state in members}):
        worst = (state for shards, state in ranks if any(shard.source == source for shard in shards))
        found[source] = next(worst, MemberState.READY)
    return found
