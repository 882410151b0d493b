"""The status of a task: phase, positions, lag, rows, and progress of dump and load of each source.

It only reads from the meta tables and the sources, so it works without Spark and beside a process that runs the task. A
source that does not answer is shown with its error, the others with their figures.
"""

import contextlib
import logging
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from unshard.adapters import mysql, serverstate, upstream
from unshard.adapters.meta import MetaReader
from unshard.adapters.meta.problemrecords import DeletedShard
from unshard.adapters.meta.sourcerecords import IgnoredStatement
from unshard.config import Connections, Instance, Task, environment_connections, resolve
from unshard.core.ddl.lock import DdlLock
from unshard.core.ddl.online import OnlineRole, OnlineTable
from unshard.core.full.fullprogress import NOTHING_YET, Progress
from unshard.core.model import Location, TableId
from unshard.core.rows.columnreload import Reload
from unshard.core.rows.rowerrors import CollisionState
from unshard.core.rows.writepath import Writing
from unshard.core.task.lag import NOTHING_WAITS, Lag, OldestMissing, Unread, Waiting, lag_of, longest, may_lack
from unshard.core.task.state import PauseKind, PauseState, Phase, task_phase
from unshard.core.validate.ledger import Proof
from unshard.core.window.suspension import SuspendedTarget
from unshard.errors import UnshardError
from unshard.errors.base import ServerError
from unshard.units.begun import NOT_KNOWN, Begun, begun_in, completed_meta, existing_meta
from unshard.units.ddl.coordinate import facts
from unshard.units.ddl.scene import LockFacts
from unshard.units.task.metrics import Measurement, of_task, of_unreadable

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """The status of one source; None for unknown values."""

    source: str
    phase: Phase = Phase.NEW
    position: Location | None = None
    upstream: Location | None = None
    lag_seconds: int | None = None
    """Age of the oldest change that its targets do not have."""
    lag_bytes: int | None = None
    windows: int = 0
    rows_applied: int = 0
    rows_held: int = 0
    shards: int = 0
    shards_held: int = 0
    dump: Progress = NOTHING_YET
    load: Progress = NOTHING_YET
    error: UnshardError | None = None
    bytes_held: int = 0
    held_since: datetime | None = None
    """When the oldest held rows were stored."""
    collisions: Mapping[CollisionState, int] = field(default_factory=dict)
    """Number of keys that its shards share with other shards, by state of the collision."""
    last_event: datetime | None = None
    """Time of the last event before the checkpoint."""
    held_lag: int | None = None
    """Age of the oldest held row, in seconds."""
    lag_is_least: bool = False
    """As in Lag."""
    rows_per_second: float = 0
    """Rows that the windows of the last seconds have applied."""

    @property
    def lag(self) -> Lag:
        return Lag(self.lag_seconds, self.lag_is_least)


@dataclass(frozen=True, slots=True)
class Remarks:
    """Facts about a task that an operator should know although the task goes on."""

    passed: tuple[IgnoredStatement, ...] = ()
    """Ignored statements that could not be read and concern no shard, the newest first."""
    locks: tuple[LockFacts, ...] = ()
    """Open and newest resolved locks, the oldest first."""
    pause: PauseState | None = None
    """The pause state; None if the task is not paused."""
    stops: tuple[SuspendedTarget, ...] = ()
    online: tuple[tuple[str, OnlineTable], ...] = ()
    """Online-DDL shadow tables of tools at work, with their sources."""
    diverted: Mapping[str, int] = field(default_factory=dict)
    """Number of diverted rows of each target that lacks them."""
    deferred: Mapping[str, int] = field(default_factory=dict)
    writing: Writing | None = None
    """The result of the last trial on the target; None: no process has written rows yet."""
    deleted: tuple[DeletedShard, ...] = ()
    """Dropped and truncated shards whose rows were deleted from a merged target, the newest first."""
    reloads: tuple[Reload, ...] = ()
    """Reloads of columns: those that are not done, then the newest others."""
    proofs: tuple[Proof, ...] = ()
    """What `unshard validate` has found out about the targets."""

    @property
    def removed(self) -> tuple[LockFacts, ...]:
        """Resolved locks that have truncated, dropped or renamed a whole target table."""
        return tuple(lock for lock in self.locks if lock.removed_rows)

    @property
    def warned(self) -> tuple[LockFacts, ...]:
        """Locks whose DDL makes the target differ from the union of the shards."""
        return tuple(lock for lock in self.locks if lock.warning)


@dataclass(frozen=True, slots=True)
class TaskFigures:
    """What metrics tell of a task besides its sources."""

    pause: PauseState | None
    targets: frozenset[TableId]
    """Of all shards in their groups."""
    locks: tuple[DdlLock, ...]
    """The open ones."""
    stops: tuple[SuspendedTarget, ...]
    diverted: Mapping[str, int]
    proofs: tuple[Proof, ...]


def refuse_paused_task(task: Task, connections: Connections = environment_connections) -> None:
    """Raise TaskPaused if the task is paused or stopped; creates no meta tables, but completes them."""
    with completed_meta(task, connections) as meta:
        if meta is not None:
            meta.pauses.refuse()


def begun(task: Task, connections: Connections = environment_connections) -> Begun:
    """Return how far a task has begun; NOT_KNOWN if the target does not answer."""
    try:
        with existing_meta(task, connections) as meta:
            return begun_in(meta)
    except ServerError:
        return NOT_KNOWN  # the prechecks report the error of the target


def status(task: Task, connections: Connections = environment_connections) -> tuple[SourceStatus, ...]:
    """Read the meta tables once, then ask all sources in parallel."""
    with existing_meta(task, connections) as meta:
        return status_in(meta, task, connections)


def status_in(
    meta: MetaReader | None, task: Task, connections: Connections = environment_connections
) -> tuple[SourceStatus, ...]:
    """Do the same with open meta tables."""
    rates = meta.windows.rates() if meta else {}
    each = [_known(meta, instance.source.id, rates) for instance in task.instances]
    with ThreadPoolExecutor(max_workers=len(each)) as pool:
        return tuple(pool.map(_asked, each, task.instances, [connections] * len(each)))


def lacking_before(meta: MetaReader, task: Task, connections: Connections, moment: float) -> list[SourceStatus]:
    """Return the handed-over sources with changes from before a moment that their targets may lack.

    A stopped task has none: it is not expected to go on.
    """
    pause = meta.pauses.get()
    if pause is not None and pause.kind is PauseKind.STOPPED:
        return []
    found, now = status_in(meta, task, connections), time.time()
    return [each for each in found if each.phase is Phase.SYNC and may_lack(each.lag, moment, now)]


def measured(task: Task, connections: Connections = environment_connections) -> list[Measurement]:
    """Return the state of a task as measurements: a bounded number of statements for each source and for the task."""
    try:
        with existing_meta(task, connections) as meta:
            figures = task_figures(meta) if meta else None
            return [*of_task(task.name, status_in(meta, task, connections), figures, datetime.now(UTC))]
    except UnshardError as error:
        log.warning("the metrics of the task cannot be read task=%s error=%s", task.name, error)
        return [of_unreadable(task.name)]


def lag_of_task(sources: Iterable[SourceStatus]) -> Lag:
    """Return the longest lag of the sources."""
    return longest(each.lag for each in sources)


def condition_of_task(sources: Iterable[SourceStatus], pause: PauseState | None) -> str:
    """Return the state of a task in a word: paused, stopped, or the part of its work that is under way."""
    return str(pause.kind) if pause else task_phase([each.phase for each in sources])


def remarks(meta: MetaReader | None, sources: Iterable[str]) -> Remarks:
    """Return the remarks that are recorded in the meta tables."""
    if meta is None:
        return Remarks()
    online = ((source, online_table) for source in sources for online_table in meta.online.of(source))
    shadows = tuple(
        (source, online_table)
        for source, online_table in online
        if online_table.role is OnlineRole.SHADOW and online_table.seen
    )
    stops, diverted = meta.suspended_targets.all(), meta.row_errors.counts()
    return Remarks(
        meta.ignored.newest(),
        facts(meta, resolved=True),
        meta.pauses.get(),
        stops,
        shadows,
        diverted,
        meta.deferred.counts(),
        meta.write_paths.last(),
        meta.deleted_shards.newest(),
        meta.reloads.newest(),
        meta.judged_ranges.proofs(),
    )


def task_figures(meta: MetaReader) -> TaskFigures:
    """Read the figures of a task: one statement for each, whatever its size."""
    return TaskFigures(
        meta.pauses.get(),
        meta.structures.targets(),
        meta.locks.open(),
        meta.suspended_targets.all(),
        meta.row_errors.counts(),
        meta.judged_ranges.proofs(),
    )


def full_progress(meta: MetaReader, sources: Iterable[str]) -> dict[str, tuple[Progress, Progress]]:
    """Return the progress of dump and load of each source, as `run` shows it."""
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


def _known(meta: MetaReader | None, source: str, rates: Mapping[str, float]) -> "_Known":
    state = meta.sources.get(source) if meta else None
    if meta is None or state is None:
        return _Known(SourceStatus(source))
    checkpoint = meta.checkpoints.get(source)
    held = meta.structures.totals(source)
    dump, load = meta.chunks.progress(source)
    found = SourceStatus(
        source,
        state.phase,
        position=checkpoint.location if checkpoint else state.snapshot,
        windows=checkpoint.windows if checkpoint else 0,
        rows_applied=checkpoint.rows_applied if checkpoint else 0,
        rows_held=held.rows,
        bytes_held=held.bytes,
        held_since=held.since,
        shards=held.shards,
        shards_held=held.waiting,
        dump=dump,
        load=load,
        collisions=meta.collisions.counts(source),
        last_event=datetime.fromtimestamp(checkpoint.last_time, UTC) if checkpoint and checkpoint.last_time else None,
        rows_per_second=rates.get(source, 0),
    )
    is_loading = state.phase.order < Phase.LOADED.order
    waiting = replace(meta.missing.of(source), held=held.oldest)
    return _Known(found, waiting, state.added_at.timestamp() if is_loading else None)


@dataclass(frozen=True, slots=True)
class _Known:
    status: SourceStatus
    waiting: Waiting = NOTHING_WAITS
    loads_since: float | None = None
    """When the source was added, if its full load is not complete."""

    def at(self, now: float, unread: int | Unread) -> SourceStatus:
        """Return the status with the lag by the clock of the source; `unread` is the time of its next transaction."""
        if self.status.phase is Phase.NEW:
            return self.status
        here, waiting = time.time(), self.waiting
        missing = OldestMissing(
            unread if isinstance(unread, Unread) else now - unread,
            _age(self.loads_since, here),
            _age(waiting.ddl, now),
            _age(waiting.held, now),
            _age(waiting.rows, here),
        )
        lag, held = lag_of(missing), None if missing.held is None else max(0, int(missing.held))
        return replace(self.status, lag_seconds=lag.seconds, lag_is_least=lag.is_least, held_lag=held)


def _age(moment: float | None, now: float) -> float | None:
    return None if moment is None else now - moment


def _asked(known: _Known, instance: Instance, connections: Connections) -> SourceStatus:
    source, position = known.status.source, known.status.position
    try:
        server = resolve(instance.source.endpoint, connections)
        with contextlib.closing(mysql.connect(server, f"source {source}")) as connection:
            end = upstream.location(connection, source)
            logs = upstream.binlog_files(connection)
            now = serverstate.clock(connection)
        if position is None:
            return replace(known.at(now, Unread.UNKNOWN), upstream=end)
        end = end.in_generation(position.generation)
        unread: int | Unread = Unread.NOTHING
        if end > position:
            from unshard.units.relay.unread import first_unread  # the reader of binlogs, and with it numpy

            unread = first_unread(server, source, position)
        return replace(known.at(now, unread), upstream=end, lag_bytes=lag_bytes(logs, position, end))
    except UnshardError as error:
        return replace(known.at(time.time(), Unread.UNKNOWN), error=error)
