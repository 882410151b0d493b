"""How far a task has come: the phase of a source, its checkpoint, the chunks of its full load.

Plain values that the meta tables keep and that every unit, the command line and Airflow show; a
phase only ever moves forward, so progress never falls back.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from unshard.core.beside import EVERYTHING, NOTHING, Beside
from unshard.core.model import Location, Shard, TableId
from unshard.core.pace import Pace
from unshard.core.window import Plan


class Phase(StrEnum):
    """What a source has finished; declared in the order in which they are reached."""

    NEW = "new"
    SNAPSHOT = "snapshot"
    """The location P0 and the structures at P0 are recorded."""
    DUMPED = "dumped"
    LOADED = "loaded"
    SYNC = "sync"
    """The checkpoint exists: windows are the only writers."""

    @property
    def order(self) -> int:
        """Rank of the phase, from 0."""
        return list(Phase).index(self)


class ChunkState(StrEnum):
    """What has happened to a chunk; `loaded` is set in the transaction that writes its rows."""

    PLANNED = "planned"
    DUMPED = "dumped"
    LOADED = "loaded"


@dataclass(frozen=True, slots=True)
class SourceState:
    """A source as the meta tables know it."""

    source: str
    identity: str
    """Server uuid, or server id where there is none: another one means another server."""
    flavor: str
    phase: Phase
    snapshot: Location | None
    """P0: the windows begin here."""
    dump_end: Location | None
    """P1: the dump has seen nothing after it, so safe mode ends here."""
    epoch: int
    """Raised when a window begins; a writer with a smaller one is a zombie."""
    added_at: datetime
    snapshot_gtid: str = ""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Everything of the source before `location` is applied, held or queued."""

    location: Location
    gtid: str
    window: int
    last_time: int
    """Time stamp of the last event before `location`, 0 when none was seen."""
    committed_at: datetime


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of one shard that is dumped to one file and loaded in one transaction."""

    id: int
    """0 until `plan` has given it its number."""
    shard: Shard
    target: TableId
    number: int
    """Order inside the shard, from 1."""
    lower: Any
    """Exclusive bound of the key as JSON value, None for the first chunk; the dump decides its form."""
    upper: Any
    """Inclusive bound of the key as JSON value, None for the last chunk."""
    state: ChunkState = ChunkState.PLANNED
    path: str = ""
    """Relative to the storage path."""
    rows: int = 0
    bytes: int = 0
    """Of the values of its rows, as the source sent them."""
    loaded_rows: int = 0
    weight: int = 1
    """Its share of the table's bytes when it was planned; never changes."""


@dataclass(frozen=True, slots=True)
class BegunWindow:
    """An open window and the epoch that its writers must present."""

    plan: Plan
    epoch: int
    beside: Beside = EVERYTHING
    """What there was beside the source when it began."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Where the windows of a source stand; without a checkpoint it is not in sync."""

    source: str
    identity: str = ""
    """Which server the source is (see `SourceState`)."""
    phase: Phase = Phase.NEW
    epoch: int = 0
    dump_end: Location | None = None
    """P1: the dump has seen nothing after it."""
    checkpoint: Location | None = None
    gtid: str = ""
    window: int = 0
    """Number of the last window that was committed."""
    open: Plan | None = None
    """The plan of the window that was begun and not committed."""
    paces: tuple[Pace, ...] = ()
    """Of the last windows, the oldest first."""
    rules: str | None = None
    """What tells the rules in force from others; None when none were noted."""
    beside: Beside = NOTHING


@dataclass(frozen=True, slots=True)
class WindowTotals:
    """Sums over all committed windows of a source."""

    windows: int
    rows_applied: int
    rows_held: int
    """Rows that were ever held, whether released since or not."""


@dataclass(frozen=True, slots=True)
class HeldTotals:
    """What waits of a source now."""

    shards: int
    """All that are in their groups."""
    waiting: int
    """Those with a DDL that is not resolved, or with held rows."""
    rows: int
    bytes: int
    since: datetime | None
    """When the oldest of these rows were stored."""
