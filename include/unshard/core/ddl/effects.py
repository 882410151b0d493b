"""The effects of a DDL on the shards that it names: the values between reading a statement and planning a window."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from unshard.core.ddl.parsed import DdlKind
from unshard.core.ddl.queue import WholeChange
from unshard.core.model import TableId
from unshard.core.relay.segment import SchemaDefault, Statement


@dataclass(frozen=True, slots=True)
class Coordinated:
    """The statement changes a shard's structure: its group must agree first."""

    table: TableId
    routed: str
    fingerprint: str
    after: str
    """Digest of the shard's structure after the statement."""


@dataclass(frozen=True, slots=True)
class Joins:
    """The statement creates a shard with this structure."""

    table: TableId
    structure: str
    routed: str = ""
    """The statement for the target, shown to an operator if the structure matches no shard of the group."""
    makes_target: bool = True
    """Whether the target table is created if this is the first shard of its group."""


@dataclass(frozen=True, slots=True)
class Follows:
    """The task ignores the statement: only the structure of the shard's later rows changes."""

    table: TableId
    after: str


@dataclass(frozen=True, slots=True)
class Leaves:
    """The statement drops a shard; the target keeps its rows unless one of the next two says otherwise."""

    table: TableId
    whole: WholeChange = WholeChange.NONE
    """What a one-to-one target gets."""
    removes_rows: bool = False
    """Whether a merged target loses the rows of the shard."""


@dataclass(frozen=True, slots=True)
class Truncates:
    """The statement removes all rows of a shard; the target keeps them unless one of the next two says otherwise."""

    table: TableId
    is_whole: bool = True
    removes_rows: bool = False
    """Whether a merged target loses the rows of the shard."""


@dataclass(frozen=True, slots=True)
class Renamed:
    """The statement renames a shard; the new name is routed to the same target."""

    table: TableId
    to: TableId


@dataclass(frozen=True, slots=True)
class Undecided:
    """Only an operator can decide what the statement means for the shard's group."""

    table: TableId
    reason: str
    routed: str
    fingerprint: str
    after: str = ""
    """Digest of the shard's structure after the statement; empty if it is unknown."""
    is_new: bool = False


@dataclass(frozen=True, slots=True)
class Moves:
    """The statement renames a shard; the new name is routed to another target."""

    table: TableId
    to: TableId
    to_target: TableId
    undecided: Undecided
    """An operator's decision about the new name, unless both targets are one-to-one."""
    routed: str = ""
    """CREATE TABLE of the shard's structure for the new target; empty: the statement is not replicated."""


@dataclass(frozen=True, slots=True)
class Together:
    """The statement does several things to one-to-one targets: a swap of names, or a change with a rename."""

    table: TableId
    steps: "tuple[tuple[Moves | Coordinated, TableId], ...]"
    """Applied in this order if all of them can be, each with the target of its table; empty: not replicated."""
    otherwise: "tuple[tuple[Effect, TableId], ...]"


@dataclass(frozen=True, slots=True)
class Ignored:
    """The statement concerns a shard, and unshard ignores it deliberately."""

    table: TableId


@dataclass(frozen=True, slots=True)
class UnreadIgnored:
    """The statement could not be read and concerns no shard: it is recorded and skipped."""


@dataclass(frozen=True, slots=True)
class SchemaStatement:
    """A CREATE, ALTER or DROP DATABASE of a source, for the schema of the target."""

    kind: DdlKind
    schema: str
    default: SchemaDefault | None = None
    """The default of the source's schema after it."""


ShardlessEffect = UnreadIgnored | SchemaStatement
Effect = Coordinated | Undecided | Joins | Follows | Leaves | Truncates | Renamed | Moves | Together | Ignored
Effects = Callable[[Statement, Mapping[TableId, str]], Sequence[Effect | ShardlessEffect]]
"""Returns the effects of a statement on routed tables; the mapping has the structures of the shards before it."""
