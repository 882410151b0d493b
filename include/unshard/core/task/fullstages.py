"""The stages of the full load: derived from the phases of the sources and from the task's mode."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from unshard.core.stages import Stage
from unshard.core.task.state import Phase


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


@dataclass(frozen=True, slots=True)
class TakeSnapshot(Stage):
    """Record P0 and the structures of a source."""

    name: ClassVar[str] = "snapshot"
    phase: ClassVar[Phase] = Phase.SNAPSHOT
    source: str

    def describe(self) -> str:
        return "record the binlog location P0 and the structures of the shards there, and create missing target tables"


@dataclass(frozen=True, slots=True)
class DumpRows(Stage):
    """Dump the rows of a source chunk by chunk, and record P1."""

    name: ClassVar[str] = "dump"
    phase: ClassVar[Phase] = Phase.DUMPED
    source: str
    reads: bool = True

    def describe(self) -> str:
        if not self.reads:
            return "dump no rows, because the task-mode begins at a location of the binlog"
        return "dump the rows of all shards into files, chunk by chunk, and record the binlog location P1 at the end"


@dataclass(frozen=True, slots=True)
class LoadRows(Stage):
    """Load the dumped chunks of a source."""

    name: ClassVar[str] = "load"
    phase: ClassVar[Phase] = Phase.LOADED
    source: str
    writes: bool = True

    def describe(self) -> str:
        if not self.writes:
            return "load no rows, because none are dumped"
        return "load the dumped chunks into the target tables, one transaction for each chunk, then make late indexes"


@dataclass(frozen=True, slots=True)
class HandOver(Stage):
    """Let the windows of all sources begin at P0."""

    name: ClassVar[str] = "handover"
    syncs: bool = True

    def describe(self) -> str:
        if not self.syncs:
            return "remove the dump's files; the task ends with the load"
        return "set the checkpoint of every source to its P0 once all sources are loaded, so that windows begin there"


FullStage = TakeSnapshot | DumpRows | LoadRows


def source_stages(source: str, phase: Phase, mode: FullMode) -> tuple[FullStage, ...]:
    """Return the stages that a source in this phase still has to pass."""
    begin: tuple[FullStage, ...] = (TakeSnapshot(source), DumpRows(source, mode.dumps)) if mode.begins else ()
    end: tuple[FullStage, ...] = (LoadRows(source, mode.loads),) if mode.ends else ()
    return tuple(stage for stage in (*begin, *end) if phase.order < stage.phase.order)


def last_stage(phases: Mapping[str, Phase], mode: FullMode) -> HandOver | None:
    """Return the handover if it has not been done for all sources."""
    is_over = all(phase is Phase.SYNC for phase in phases.values())
    if not mode.ends or is_over or (not mode.syncs and all(p.order >= Phase.LOADED.order for p in phases.values())):
        return None
    return HandOver(mode.syncs)
