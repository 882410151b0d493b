"""The stored state of a target that follows the join of its shards.

| value                | meaning                                                                                       |
|----------------------|-----------------------------------------------------------------------------------------------|
| `JoinedTarget.group` | the shards as of their last accepted DDL, and the ids of all columns                          |
| `JoinedTarget.names` | the id of each column of the target, as its table is now                                      |
| `version`            | rises with every change of the two; a writer of rows compares it inside its transaction       |
| `change`             | statements that are being executed; the target is between two structures until they are done  |

The rows of a shard after DDL number n of its queue, and before the next one, have the mapping of `history[shard, n]`.
Number 0 is the structure with which the shard has joined.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from unshard.core.join.changekind import ChangeKind
from unshard.core.join.group import Group, Member, reloaded
from unshard.core.model import Location, Shard, TableId, TableSchema, shape_of


@dataclass(frozen=True, slots=True)
class JoinStatement:
    """A statement of a change, with the target before and after it."""

    text: str
    before: str
    after: str
    """Digests of the target's structure."""
    names: tuple[tuple[str, int], ...]
    """The ids of the target's columns after it, by name."""

    def is_before(self, present: TableSchema) -> bool:
        return self._is_as(self.before, present)

    def is_after(self, present: TableSchema) -> bool:
        """Whether a table has the structure after it; no, if that is the structure before it."""
        return self.before != self.after and self._is_as(self.after, present)

    def _is_as(self, digest: str, present: TableSchema) -> bool:
        """Compare the shapes, or the texts if the statement changes nothing else."""
        if shape_of(self.before) != shape_of(self.after):
            return present.shape == shape_of(digest)
        return present.digest == digest


@dataclass(frozen=True, slots=True)
class OpenChange:
    """Statements whose execution has begun; `done` of them are recorded as executed."""

    id: int
    kind: ChangeKind
    statements: tuple[JoinStatement, ...]
    done: int
    error: str = ""
    """The message of the target if it has rejected a statement."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """How far a shard's DDL is part of the group."""

    seq: int
    """Number of its last accepted DDL in its queue; 0: none since it has joined."""
    location: Location | None = None
    shard_uid: str = ""


@dataclass(frozen=True)
class JoinedTarget:
    """A target, its group, and how far both are."""

    target: TableId
    group: Group
    names: Mapping[int, str]
    version: int = 0
    accepted: Mapping[Shard, Accepted] = field(default_factory=dict)
    settled_version: int = 0
    """The version at which shards and target were found equal."""
    change: OpenChange | None = None


@dataclass(frozen=True, slots=True)
class ShardStep:
    """A shard after one of its DDLs, to be stored."""

    shard: Shard
    accepted: Accepted
    member: Member


@dataclass(frozen=True)
class Completion:
    """The state to store when a change is done, or without one: the group and the DDLs that it has accepted."""

    group: Group
    names: Mapping[int, str]
    steps: tuple[ShardStep, ...] = ()
    """New states of shards, in order; several of one shard if its DDLs are accepted together."""
    resolved: tuple[tuple[Shard, int], ...] = ()


def steps_of(joined: JoinedTarget, completion: Completion) -> tuple[ShardStep, ...]:
    """Return the states of shards to store: also of those that have changed without a DDL of their own."""
    named, before = {step.shard for step in completion.steps}, joined.group.members
    others = (
        ShardStep(shard, joined.accepted[shard], member)
        for shard, member in completion.group.members.items()
        if shard not in named and shard in before and member != before[shard]
    )
    return (*completion.steps, *others)


def with_reloaded(joined: JoinedTarget, shard: Shard, columns: Iterable[str]) -> Completion:
    """Return the group after columns of a shard have been read again."""
    ids = {joined.group.members[shard].ids[name] for name in columns}
    group = reloaded(joined.group, shard, ids)
    step = ShardStep(shard, joined.accepted[shard], group.members[shard])
    return Completion(group, joined.names, (step,))
