"""Where a task stands: per source phase, positions, lag, rows, progress of dump and load.

Only reads, from the meta tables and the sources, so it works beside any process that runs the task, and
without Spark. A source that does not answer is shown with its error, the others with their figures.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime

from unshard.adapters import mysql, upstream
from unshard.adapters.meta import Meta
from unshard.adapters.meta.aside import PassedStatement
from unshard.config import Connections, Instance, Task, environment_connections, resolve
from unshard.core.collision import CollisionState
from unshard.core.fullload import NOTHING_YET, Progress
from unshard.core.halt import Halt
from unshard.core.model import Location
from unshard.core.online import Ghost, Role
from unshard.core.progress import Phase
from unshard.core.stops import Stop
from unshard.errors import UnshardError
from unshard.errors.source import ServerError
from unshard.units.coordinate import LockView, views


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """One source; None where something is not known (yet)."""

    source: str
    phase: Phase = Phase.NEW
    position: Location | None = None
    upstream: Location | None = None
    lag_seconds: int | None = None
    lag_bytes: int | None = None
    windows: int = 0
    rows_applied: int = 0
    rows_held: int = 0
    """Rows that wait behind a DDL now."""
    shards: int = 0
    shards_held: int = 0
    dump: Progress = NOTHING_YET
    load: Progress = NOTHING_YET
    error: UnshardError | None = None
    bytes_held: int = 0
    held_since: datetime | None = None
    """When the oldest rows that wait were stored."""
    collisions: Mapping[CollisionState, int] = field(default_factory=dict)
    """Keys of its shards that others have, too, by what became of it."""


@dataclass(frozen=True, slots=True)
class Remarks:
    """What went on and should be looked at all the same."""

    passed: tuple[PassedStatement, ...] = ()
    """Statements that could not be read and concern no shard, the newest first."""
    locks: tuple[LockView, ...] = ()
    """Open and newest resolved locks, the oldest first."""
    halt: Halt | None = None
    """Who has paused or stopped the task."""
    stops: tuple[Stop, ...] = ()
    """Targets that take no rows of a source, because they could not take one."""
    online: tuple[tuple[str, Ghost], ...] = ()
    """Shadow tables by which tools change shards online now, with their sources."""
    diverted: Mapping[str, int] = field(default_factory=dict)
    """How many rows were put aside that a target lacks."""
    awaited: Mapping[str, int] = field(default_factory=dict)
    """How many rows a target lacks until a later change of each has come."""

    @property
    def warned(self) -> tuple[LockView, ...]:
        """Locks behind whose DDL the target is not the union of the shards."""
        return tuple(lock for lock in self.locks if lock.warning)


@dataclass(frozen=True, slots=True)
class Begun:
    """How far the full load of a task has begun."""

    phases: Mapping[str, Phase] = field(default_factory=dict)
    """Of the sources that have begun."""
    is_new: bool = False
    """No source has a snapshot yet: what target tables hold is not the task's."""

    def phase(self, source: str) -> Phase:
        """Return how far one source is."""
        return self.phases.get(source, Phase.NEW)

    @property
    def loaded(self) -> frozenset[str]:
        """Sources whose full load is over."""
        return frozenset(source for source, phase in self.phases.items() if phase.order >= Phase.LOADED.order)


NOT_KNOWN = Begun()


@contextlib.contextmanager
def existing_meta(task: Task, connections: Connections = environment_connections, *,
                  migrates: bool = False) -> Iterator[Meta | None]:  # fmt: skip
    """Open the task's meta store; None when the task has never begun.

    What only reads leaves the tables of an older version as they are, and raises MetaTooOld.
    """
    server = resolve(task.target, connections)
    with contextlib.closing(mysql.connect(server, "target")) as connection:
        found = mysql.query(connection, "SELECT 1 FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s"
                                        " AND TABLE_NAME = 'source'", (task.meta_schema,))  # fmt: skip
    if not found:
        yield None
        return
    with contextlib.closing(Meta(server, task.meta_schema, task.name)) as meta:
        if migrates:
            meta.migrate()
        meta.refuse_other_version()
        yield meta


def refuse_halted(task: Task, connections: Connections = environment_connections) -> None:
    """Raise TaskHalted if the task is paused or stopped; makes no meta tables, but brings old ones to this version."""
    with existing_meta(task, connections, migrates=True) as meta:
        if meta is not None:
            meta.halts.refuse()


def begun(task: Task, connections: Connections = environment_connections) -> Begun:
    """Return how far a task has begun; nothing is known of it when the target cannot tell."""
    try:
        with existing_meta(task, connections) as meta:
            return begun_in(meta)
    except ServerError:
        return NOT_KNOWN  # the prechecks report the target by themselves


def begun_in(meta: Meta | None) -> Begun:
    """Return how far the task has begun that the meta tables are of."""
    phases = {state.source: state.phase for state in meta.sources.all()} if meta else {}
    return Begun(phases, is_new=not phases)


def status(task: Task, connections: Connections = environment_connections) -> tuple[SourceStatus, ...]:
    """Read the meta tables once and ask all sources side by side."""
    with existing_meta(task, connections) as meta:
        each = [known(meta, instance.source.id) for instance in task.instances]
        times = [_last_time(meta, instance.source.id) for instance in task.instances]
    with ThreadPoolExecutor(max_workers=len(each)) as pool:
        return tuple(pool.map(_asked, each, times, task.instances, [connections] * len(each)))


def remarks(meta: Meta | None, sources: Iterable[str]) -> Remarks:
    """Return what the meta store has written down to be looked at."""
    if meta is None:
        return Remarks()
    online = ((source, ghost) for source in sources for ghost in meta.online.of(source))
    shadows = tuple((source, ghost) for source, ghost in online if ghost.role is Role.SHADOW and ghost.seen)
    stops, diverted = meta.stops.all(), meta.row_errors.counts()
    return Remarks(meta.aside.newest(), views(meta, resolved=True), meta.halts.get(), stops, shadows, diverted,
                   meta.awaited.counts())  # fmt: skip


def full_progress(meta: Meta, sources: Iterable[str]) -> dict[str, tuple[Progress, Progress]]:
    """Return the progress of dump and load per source: what `run` shows while it works."""
    return {source: meta.chunks.progress(source) for source in sources}


def lag_bytes(logs: Mapping[str, int], position: Location, end: Location) -> int:
    """Return the bytes of binlog between two locations, given name and size of the upstream's files."""
    if end <= position:
        return 0
    if position.file == end.file:
        return end.position - position.position
    if position.generation != end.generation:
        return sum(logs.values())
    sizes = {Location(name, 0).in_generation(end.generation).order[:2]: size for name, size in logs.items()}
    first, last = position.order[:2], end.order[:2]
    between = sum(size for number, size in sizes.items() if first < number < last)
    return max(sizes.get(first, 0) - position.position, 0) + between + end.position


def known(meta: Meta | None, source: str) -> SourceStatus:
    """Return what the meta store knows of a source, without asking it."""
    state = meta.sources.get(source) if meta else None
    if meta is None or state is None:
        return SourceStatus(source)
    checkpoint = meta.checkpoints.get(source)
    totals = meta.windows.totals(source)
    held = meta.structures.totals(source)
    dump, load = meta.chunks.progress(source)
    return SourceStatus(
        source, state.phase,
        position=checkpoint.location if checkpoint else state.snapshot,
        windows=totals.windows, rows_applied=totals.rows_applied,
        rows_held=held.rows, bytes_held=held.bytes, held_since=held.since,
        shards=held.shards, shards_held=held.waiting,
        dump=dump, load=load, collisions=meta.collisions.counts(source),
    )  # fmt: skip


def _last_time(meta: Meta | None, source: str) -> int | None:
    """Return the time stamp of the last event that the checkpoint has passed."""
    checkpoint = meta.checkpoints.get(source) if meta else None
    return checkpoint.last_time if checkpoint else None


def _asked(known: SourceStatus, last_time: int | None, instance: Instance, connections: Connections) -> SourceStatus:
    """Add what only the source itself can tell."""
    try:
        server = resolve(instance.source.endpoint, connections)
        with contextlib.closing(mysql.connect(server, f"source {known.source}")) as connection:
            end = upstream.location(connection, known.source)
            logs = upstream.binlog_files(connection)
            ((now,),) = mysql.query(connection, "SELECT UNIX_TIMESTAMP()")
    except UnshardError as error:
        return replace(known, error=error)
    if known.position is None:
        return replace(known, upstream=end)
    end = end.in_generation(known.position.generation)
    return replace(
        known, upstream=end, lag_bytes=lag_bytes(logs, known.position, end),
        lag_seconds=0 if end <= known.position else max(0, int(now) - last_time) if last_time else None,
    )  # fmt: skip
