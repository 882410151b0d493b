"""What a DDL does to the shards that it names: the words between reading a statement and planning a window."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from unshard.core.model import TableId
from unshard.core.segment import Statement


@dataclass(frozen=True, slots=True)
class Coordinated:
    """The statement changes a shard's structure: its group must agree first."""

    table: TableId
    routed: str
    agreement: str
    after: str
    """Digest of the shard's structure behind the statement."""


@dataclass(frozen=True, slots=True)
class Joins:
    """The statement creates a shard with this structure."""

    table: TableId
    structure: str
    routed: str = ""
    """The statement as an operator sees it if the structure fits no shard of the group."""
    makes_target: bool = True
    """Whether the first shard of a group brings the target table with it."""


@dataclass(frozen=True, slots=True)
class Follows:
    """The task ignores the statement: only the shard's rows look otherwise from here on."""

    table: TableId
    after: str


@dataclass(frozen=True, slots=True)
class Leaves:
    """The statement drops a shard; the target keeps its rows."""

    table: TableId


@dataclass(frozen=True, slots=True)
class Renamed:
    """The statement gives a shard another name that is routed to the same target."""

    table: TableId
    to: TableId


@dataclass(frozen=True, slots=True)
class Ignored:
    """The statement touches a shard and is passed over on purpose."""

    table: TableId


@dataclass(frozen=True, slots=True)
class Undecided:
    """Nobody but an operator can say what the statement means for the shard's group."""

    table: TableId
    reason: str
    routed: str
    agreement: str
    after: str = ""
    """Digest of the shard's structure behind the statement, if that is known at least."""
    is_new: bool = False
    """The statement makes the shard."""


@dataclass(frozen=True, slots=True)
class PassedOver:
    """The statement could not be read and concerns no shard: it is written down and passed over."""


Effect = Coordinated | Undecided | Joins | Follows | Leaves | Renamed | Ignored
Effects = Callable[[Statement, Mapping[TableId, str]], Sequence[Effect | PassedOver]]
"""What a statement does to routed tables, given the structures of the source's shards before it."""
