"""The state of a task: the phase of a source, its checkpoint, the chunks of its full load.

These values are stored in the meta tables; units, the command line and Airflow show them. A phase only moves forward,
so progress never falls back.

Commands, pending DDL, held rows and suspended targets are rare. Before a window is planned, and again when it begins,
one statement reads which kinds of `PendingWork` exist, and only these are read then.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import IntFlag, StrEnum, auto
from typing import Any

from unshard.core.model import Location, Shard, TableId
from unshard.core.stages import Stage
from unshard.core.window.plan import Pace, Plan


class PendingWork(IntFlag):
    """The kinds of work that a window may have besides new binlog."""

    PAUSE = auto()
    """The task is paused or stopped."""
    STATEMENT_COMMANDS = auto()
    """Commands about statements that no window has reached."""
    SEQUENCES = auto()
    ONLINE_TABLES = auto()
    """Tables of online DDL tools."""
    SUSPENDED = auto()
    """Suspended targets, including those that may go on since."""
    UNKNOWNS = auto()
    """Unknown structures after undecided DDL."""
    QUEUES = auto()
    """Unresolved DDL of any source of the task."""
    HELD = auto()
    """Held rows."""
    DROPPED = auto()
    """Shards that an operator has dropped."""
    DEFERRED = auto()
    """Deferred rows."""
    UNNAMED = auto()
    """Structures without the target's names of columns."""
    JOINED = auto()
    """Targets that follow the join of their shards."""


NOTHING = PendingWork(0)
EVERYTHING = ~NOTHING
"""The flags to use when they were not read."""


# --- the state of a task


class Phase(StrEnum):
    """The last part of the full load that a source has finished, in the order in which sources reach them."""

    NEW = "new"
    SNAPSHOT = "snapshot"
    """The location P0 and the structures at P0 are recorded."""
    DUMPED = "dumped"
    LOADED = "loaded"
    SYNC = "sync"
    """The checkpoint exists: windows are the only writers."""

    @property
    def order(self) -> int:
        return list(Phase).index(self)


def condition(phases: Sequence[Phase]) -> str:
    """Return the part of its work that a task is in: its slowest source decides, but one may be new."""
    if all(phase is Phase.NEW for phase in phases):
        return "new"
    slowest = min(phases, key=lambda phase: phase.order)
    return "full load" if slowest.order < Phase.LOADED.order else str(slowest)


class ChunkState(StrEnum):
    """The state of a chunk; `loaded` is set in the transaction that writes its rows."""

    PLANNED = "planned"
    DUMPED = "dumped"
    LOADED = "loaded"


@dataclass(frozen=True, slots=True)
class SourceState:
    """A source as it is stored in the meta tables."""

    source: str
    identity: str
    """Server UUID, or the server id if the server has no UUID; a different value means another server."""
    flavor: str
    phase: Phase
    snapshot: Location | None
    """P0: the windows begin here."""
    dump_end: Location | None
    """P1: the dump has seen no change after it, so safe mode ends here."""
    epoch: int
    """Raised when a window begins; a writer with a smaller epoch is refused."""
    added_at: datetime
    snapshot_gtid: str = ""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Everything of the source before `location` is applied, held or queued."""

    location: Location
    gtid: str
    window: int
    last_time: int
    """Time stamp of the last event before `location`; 0 if no event was read."""
    committed_at: datetime
    windows: int = 0
    rows_applied: int = 0


@dataclass(frozen=True, slots=True)
class DumpedFile:
    """A file of dumped rows."""

    path: str
    """Relative to the storage path."""
    rows: int
    bytes: int
    """Of its values."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A key range of one shard that is dumped to one file and loaded in one transaction."""

    id: int
    """0 until `plan` assigns a number."""
    shard: Shard
    target: TableId
    number: int
    """Its position in the shard, from 1."""
    lower: Any
    """Exclusive bound of the key as JSON value, None for the first chunk; the dump decides its form."""
    upper: Any
    """Inclusive bound of the key as JSON value, None for the last chunk."""
    state: ChunkState = ChunkState.PLANNED
    path: str = ""
    """Relative to the storage path."""
    rows: int = 0
    bytes: int = 0
    """Bytes of the values of its rows, as the source sent them."""
    loaded_rows: int = 0
    weight: int = 1
    """Its share of the table's bytes when it was planned; it never changes."""


@dataclass(frozen=True, slots=True)
class BegunWindow:
    """An open window and the epoch that its writers must present."""

    plan: Plan
    epoch: int
    beside: PendingWork = EVERYTHING


@dataclass(frozen=True, slots=True)
class SyncState:
    """The sync state of a source; without a checkpoint the source is not in sync."""

    source: str
    identity: str = ""
    """Identity of the server (see `SourceState`)."""
    phase: Phase = Phase.NEW
    epoch: int = 0
    dump_end: Location | None = None
    """P1: the dump has seen no change after it."""
    checkpoint: Location | None = None
    gtid: str = ""
    window: int = 0
    """Number of the last committed window."""
    open: Plan | None = None
    paces: tuple[Pace, ...] = ()
    """Sizes and durations of the last windows, the oldest first."""
    rules: str | None = None
    """Digest of the rules in force; None if no rules are stored."""
    beside: PendingWork = NOTHING


@dataclass(frozen=True, slots=True)
class HeldTotals:
    """The present number of held rows of a source."""

    shards: int
    """All shards in their groups."""
    waiting: int
    """Shards with an unresolved DDL or held rows."""
    rows: int
    bytes: int
    since: datetime | None
    oldest: float | None
    """A time, in seconds since 1970, that is not after the change of the oldest held row."""


# --- the pause state of a task


class PauseKind(StrEnum):
    """How a task is paused; both kinds last until `resume`, and differ in the intention."""

    PAUSED = "paused"
    """The task is expected to go on soon."""
    STOPPED = "stopped"
    """The task is not expected to go on; its state may be removed."""


@dataclass(frozen=True, slots=True)
class PauseState:
    """A record of the person who paused or stopped a task, with time and reason."""

    kind: PauseKind
    who: str
    via: str
    reason: str
    at: datetime

    def __str__(self) -> str:
        why = f": {' '.join(self.reason.split())}" if self.reason else ""
        return f"{self.kind} by {self.who} ({self.via}) since {self.at:%Y-%m-%d %H:%M:%S} UTC{why}"


# --- the stages of the full load, from the phases of the sources and the task's mode


@dataclass(frozen=True, slots=True)
class FullMode:
    """The parts of the full load that a task-mode has."""

    begins: bool = True
    """The task takes the snapshot and dumps."""
    dumps: bool = True
    """Existing rows are dumped."""
    loads: bool = True
    """Dumped rows are loaded."""
    ends: bool = True
    """The task goes on after the dump."""
    syncs: bool = True
    """The task follows the binlog after the load."""


class FullStep(StrEnum):
    """The steps of the full load; all but the last one are steps of one source."""

    SNAPSHOT = "snapshot"
    DUMP = "dump"
    LOAD = "load"
    HANDOVER = "handover"


FullStage = Stage[FullStep, Phase]
"""Its value is the phase of the source after it."""

SNAPSHOT: FullStage = Stage(
    FullStep.SNAPSHOT,
    "record the binlog location P0 and the structures of the shards there, and create missing target tables",
    Phase.SNAPSHOT,
)
ROWS_DUMPED = "dump the rows of all shards into files, chunk by chunk, and record the binlog location P1 at the end"
NO_ROWS_DUMPED = "dump no rows, because the task-mode begins at a location of the binlog"
ROWS_LOADED = "load the dumped chunks into the target tables, one transaction for each chunk, then make late indexes"
NO_ROWS_LOADED = "load no rows, because none are dumped"
SYNC_BEGINS = "set the checkpoint of every source to its P0 once all sources are loaded, so that windows begin there"
TASK_ENDS = "remove the dump's files; the task ends with the load"


def source_stages(phase: Phase, mode: FullMode) -> tuple[FullStage, ...]:
    """Return the stages that a source in this phase still has to pass."""
    stages: list[FullStage] = []
    if mode.begins:
        stages = [SNAPSHOT, Stage(FullStep.DUMP, ROWS_DUMPED if mode.dumps else NO_ROWS_DUMPED, Phase.DUMPED)]
    if mode.ends:
        stages.append(Stage(FullStep.LOAD, ROWS_LOADED if mode.loads else NO_ROWS_LOADED, Phase.LOADED))
    return tuple(stage for stage in stages if phase.order < stage.values.order)


def last_stage(phases: Mapping[str, Phase], mode: FullMode) -> FullStage | None:
    """Return the handover, which lets the windows of all sources begin at P0, if it has not been done for all."""
    is_over = all(phase is Phase.SYNC for phase in phases.values())
    if not mode.ends or is_over or (not mode.syncs and all(p.order >= Phase.LOADED.order for p in phases.values())):
        return None
    return Stage(FullStep.HANDOVER, SYNC_BEGINS if mode.syncs else TASK_ENDS, Phase.SYNC)
