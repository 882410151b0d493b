"""The stages of the full load: derived from the phases of the sources and from the task's mode."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

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
