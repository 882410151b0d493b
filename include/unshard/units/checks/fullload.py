"""Checks that the task file still fits what a task has already done. Reads the meta tables, in the driver."""

from collections.abc import Iterator
from contextlib import closing

from unshard.adapters import mysql, structures
from unshard.adapters.meta import MetaReader
from unshard.config import Connections, Task, resolve
from unshard.core.checks.items import Item, problem, verdict
from unshard.core.task.state import Chunk, ChunkState, Phase
from unshard.errors import UnshardError
from unshard.errors.full import ConditionChanged, DumpLeft, NotDumped
from unshard.errors.rows import EngineNotTransactional, NoTargetTable
from unshard.units.begun import Begun


def rest_of_load(task: Task, meta: MetaReader | None, begun: Begun) -> list[Item]:
    """Check for each source that is not loaded whether it can continue with the task-mode and `where` of the file."""
    items: list[Item] = []
    for source in task.sources:
        if source not in begun.loaded:
            phase = begun.phase(source)
            errors = list(_refused(task, source, phase, meta))
            passes = "the full load can begin" if phase is Phase.NEW else f"the full load can go on after phase {phase}"
            items += verdict("full_load", f"source {source}", errors, passes)
    return items


def _refused(task: Task, source: str, phase: Phase, meta: MetaReader | None) -> Iterator[UnshardError]:
    mode = task.task_mode
    chunks: tuple[Chunk, ...] = meta.chunks.of(source) if meta else ()
    if not mode.begins and phase.order < Phase.DUMPED.order:
        yield NotDumped(source)
    if mode.begins and not mode.dumps and any(chunk.state is not ChunkState.LOADED for chunk in chunks):
        yield DumpLeft(source)
    is_read = any(chunk.state is not ChunkState.PLANNED for chunk in chunks)
    if meta and mode.dumps and phase is Phase.SNAPSHOT and is_read:
        known, present = meta.conditions.get(source), task.instance(source).dump.where
        if known != present:
            yield ConditionChanged(source, known or "TRUE", present or "TRUE")


def targets_in_sync(task: Task, meta: MetaReader, connections: Connections, begun: Begun) -> list[Item]:
    """Check that windows find the target tables of the loaded sources, and that these have transactions."""
    states = [state for source in sorted(begun.loaded) for state in meta.structures.shards(source)]
    targets = sorted({state.target for state in states if not (state.is_dropped or state.has_left)})
    with closing(mysql.connect(resolve(task.target, connections), "target")) as connection:
        present = structures.read_schemas(connection, targets)
    engines = {target: schema.lacks_transactions for target, schema in present.items() if schema.lacks_transactions}
    errors: dict[str, UnshardError] = {
        str(target): NoTargetTable(str(target)) for target in targets if target not in present
    }
    errors |= {str(target): EngineNotTransactional(str(target), engine) for target, engine in engines.items()}
    return [problem("target_tables", f"target {target}", error) for target, error in errors.items()]
