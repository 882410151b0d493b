"""Take the snapshot: record the binlog location of a source (P0) and the structure of each of its shards at P0.

Runs in the driver. The structures must be those at P0, otherwise rows would be read with the wrong columns. A server
only returns the present structure. So it is read before P0 and again after it: if both are equal, no DDL ended between
them. A running DDL holds the table's metadata lock until its event is in the binlog, and reading the structure waits
for that lock. So a DDL cannot end unseen between the two reads.

| process dies                          | what happens                                                     |
|---------------------------------------|------------------------------------------------------------------|
| before anything is recorded           | a target table may exist, empty and correct; the snapshot is taken |
| between the structures and the phase  | the snapshot is taken again, at a later P0, and overwrites the record |
| after the phase                       | a repeated call finds the phase and reports the record           |

Find the binlog location of a source at a time: by the creation of its files first, then by transaction.

Runs in the driver. Windows begin at the first transaction that was written at or after the time. The transactions after
it up to the present end may already be in the target, because the exact location of the target's data is unknown: safe
mode lasts until that end.
"""

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache
from itertools import chain

from pymysql.connections import Connection

from unshard.adapters import binlogstream, mysql, serverstate, structures, targetddl, upstream
from unshard.adapters.target.session import repeated
from unshard.adapters.upstream import SnapshotMoment, begin_snapshot
from unshard.binlog.events import EventType, read_frame
from unshard.config import Instance, OnDuplicate, ShardMode
from unshard.core.ddl.lineage import ExecutedDdl
from unshard.core.ddl.online import OnlineRole, OnlineTable, OnlineTables
from unshard.core.ddl.queue import ShardState
from unshard.core.join.places import JoinedRows
from unshard.core.model import Location, Server, Shard, TableId, TableSchema, shape_of
from unshard.core.relay.gtidset import History
from unshard.core.relay.segment import FIRST_POSITION, SchemaDefault
from unshard.core.rules.reshaping import AS_IT_IS, Reshaping
from unshard.core.structures.comparison import foreign_reasons, structure_differences, unfit_reasons
from unshard.core.task.state import ChunkState, Phase
from unshard.core.window.plan import StructureChange
from unshard.core.window.rulechanges import rules_digest, rules_of
from unshard.errors.checks import ShardsDiffer, TargetTableUnfit
from unshard.errors.config import StartUnset
from unshard.errors.full import StructuresUnsteady, TargetNotEmpty, TransactionsPrepared
from unshard.errors.locks import ShardsWithoutJoin
from unshard.errors.meta import StartNotNew, StartTimeAhead, StartTimePurged
from unshard.errors.relay import UnsupportedEvent
from unshard.units.ddl.createtrial import TrialTables
from unshard.units.enforcedkeys import keys_of_shards
from unshard.units.full.discover import FoundShards, find_shards
from unshard.units.full.targets import (
    by_filled_keys,
    copy_schemas,
    join_targets,
    make_target,
    may_lack_columns,
    refuse_alike_names,
    refuse_engines,
    refuse_types,
    reshaped_by,
    without_refused_indexes,
)
from unshard.units.relay.pull import LONGEST, begins, locate
from unshard.units.rows.conversion import conversion_by_ids
from unshard.units.rows.joinedrows import joined_rows
from unshard.units.work import Work

FIRST_FILE = 1


def refuse_begun(work: Work) -> None:
    """Raise StartNotNew if the task has begun: moving its binlog location would repeat or lose rows."""
    if known := work.meta.sources.all():
        raise StartNotNew(work.task.name, f"it has begun already, with {', '.join(each.source for each in known)}")


def location_at(server: Server, source: str, wanted: datetime, replica_id: int) -> Location:
    """Return the beginning of the first transaction at or after a time; the binlog's end if it does not exist yet."""
    moment = wanted.timestamp()
    with contextlib.closing(mysql.connect(server, f"source {source}")) as connection:
        if moment > serverstate.clock(connection):
            raise StartTimeAhead(source, wanted.isoformat())
        files, end = list(upstream.binlog_files(connection)), upstream.location(connection, source)
    first = last_before(files, lambda file: _created(server, source, file, replica_id), moment)
    if first is None:
        if Location(files[0], 0).order[1] != FIRST_FILE:
            raise StartTimePurged(source, wanted.isoformat(), files[0])
        first = files[0]
    return _first_at(server, (source, replica_id), Location(first, FIRST_POSITION), moment) or end


def last_before(files: Sequence[str], created: Callable[[str], int], moment: float) -> str | None:
    """Return the last file (they are sorted by age) that was created before a time; None if all are younger."""
    low, high = 0, len(files)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if created(files[middle]) < moment else (low, middle)
    return files[low - 1] if low else None


def _created(server: Server, source: str, file: str, replica_id: int) -> int:
    with _events(server, source, Location(file, FIRST_POSITION), replica_id) as events:
        frames = map(read_frame, events)
        for frame in frames:
            if frame.type == EventType.FORMAT_DESCRIPTION:
                return frame.time
    raise UnsupportedEvent(file, "a file without its first event")


def _first_at(server: Server, replica: tuple[str, int], first: Location, moment: float) -> Location | None:
    with _events(server, replica[0], first, replica[1]) as events:
        for location, time in begins(events):
            if time >= moment:
                if location.position >= LONGEST:
                    raise UnsupportedEvent(str(location), "a start time in a file beyond 4 GiB")
                return location
    return None


@contextlib.contextmanager
def _events(server: Server, source: str, first: Location, replica_id: int) -> Iterator[Iterator[bytes]]:
    with contextlib.closing(mysql.connect(server, f"source {source}")) as connection:
        yield chain.from_iterable(
            run.events() for run in binlogstream.stream_runs(connection, source, first, replica_id)
        )


# --- the snapshot


ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class SnapshotReport:
    """The recorded snapshot of a source."""

    source: str
    location: Location
    shards: int
    targets: tuple[TableId, ...]


@dataclass(frozen=True, slots=True)
class View:
    """The shards of a source at one moment."""

    moment: SnapshotMoment
    targets: Mapping[TableId, TableId]
    schemas: Mapping[TableId, TableSchema]
    defaults: Mapping[str, SchemaDefault]
    sequences: frozenset[TableId]
    online_tables: OnlineTables = ()
    shadows: Mapping[TableId, TableSchema] = field(default_factory=dict)
    """Structures of the shadow tables of tools at work."""


def take_snapshot(work: Work, source: str) -> SnapshotReport:
    """Record P0 and the structures of a source, and prepare its target tables; idempotent."""
    work.meta.pauses.refuse()
    state = work.meta.sources.get(source)
    if state is None or state.phase.order < Phase.SNAPSHOT.order:
        return retake_snapshot(work, source)
    assert state.snapshot is not None
    shards = work.meta.structures.shards(source)
    return _report(source, state.snapshot, {shard.shard.table: shard.target for shard in shards})


def note_rules(work: Work, instance: Instance, begins: Location) -> None:
    """Record the rules that a source follows from a location on."""
    routing, online = instance.routing, instance.online
    work.meta.rules.put(instance.source.id, rules_digest(routing, online), rules_of(routing, online), begins)


def retake_snapshot(work: Work, source: str) -> SnapshotReport:
    """Take the snapshot again, whether or not one exists; no row of the source may be loaded yet."""
    instance = work.task.instance(source)
    if instance.start_unset and not instance.start_time:
        raise StartUnset(instance.start_unset, source)
    with work.source_connection(source) as connection:
        about = upstream.inspect(connection, source)
        view = _steady_view(connection, instance)
    view = replace(
        view, schemas=without_refused_indexes(work, view.schemas), shadows=without_refused_indexes(work, view.shadows)
    )
    if not joins(work):
        _check_alike(work, source, [(table, view.targets[table], schema) for table, schema in view.schemas.items()])
        _drop_outdated(work, source, view)
        _prepare_targets(work, instance, view)
    work.meta.sources.add(source, about.identity, about.flavor)
    location, gtid = _start(work, instance, view)
    _record(work, source, location, view)
    if joins(work):
        # After the record: a process that finds the columns of a new target finds the shard that they come from.
        _prepare_targets(work, instance, view)
        _join(work, source)
    note_rules(work, instance, location)
    # Changes between a start time and now may already be in the target.
    known_until = view.moment.location if instance.start_time else None
    work.meta.sources.set_phase(source, Phase.SNAPSHOT, snapshot=location, snapshot_gtid=gtid, dump_end=known_until)
    return _report(source, location, view.targets)


def joins(work: Work) -> bool:
    """Whether the targets of the task follow the join of their shards, so that these may differ."""
    return work.task.shard_mode is ShardMode.OPTIMISTIC


def _join(work: Work, source: str) -> None:
    """Make the targets the join of all known shards; raises if they have none, or a target cannot take their rows."""
    shards = work.meta.structures.shards(source)
    targets = {state.target for state in shards}
    joined = repeated(lambda: _joined(work, targets, {state.shard for state in shards}))
    present = work.present(targets)
    schemas = work.structures({state.structure for state in shards})
    reshapings = reshaped_by(work, source, (state.shard for state in shards))
    filled = by_filled_keys(present, shards, schemas, {}, reshapings, joined)
    for state in shards:
        into = state.target, filled[state.target]
        if state.shard not in joined[state.target].history:
            raise ShardsWithoutJoin(str(state.target), f"{state.shard} differs from the shards that it has")
        reshaping = reshapings.get(state.shard.table, AS_IT_IS)
        _refuse_foreign(state, schemas[state.structure], present[state.target], joined[state.target], reshaping)
        conversion_by_ids(state.shard, None, schemas[state.structure], into, joined[state.target], reshaping)


def _refuse_foreign(
    state: ShardState, structure: TableSchema, present: TableSchema, joined: JoinedRows, reshaping: Reshaping
) -> None:
    """Raise if what the target alone has rejects the rows of a shard."""
    rows = joined.history[state.shard][-1]
    key = [joined.names[rows.ids[name.lower()]] for name in structure.key if name.lower() in rows.ids]
    filled = joined.filled | {each.column.lower() for each in reshaping.extracted}
    if reasons := foreign_reasons(present, key, filled):
        raise TargetTableUnfit(str(state.target), "; ".join(reasons))


def _joined(work: Work, targets: set[TableId], shards: set[Shard]) -> dict[TableId, JoinedRows]:
    """Return the joined targets; raises a transient error while the snapshot of another source changes them."""
    join_targets(work)
    return joined_rows(work, targets, shards)


def _start(work: Work, instance: Instance, view: View) -> tuple[Location, str]:
    """Return P0 and the history before it: from the task file, or the moment of the view."""
    if instance.start_time:
        source = instance.source
        return location_at(work.sources[source.id], source.id, instance.start_time, source.server_id), ""
    if instance.start:
        return instance.start, ""
    if instance.start_gtid:
        source = instance.source
        location = locate(work.sources[source.id], source.id, instance.start_gtid, source.server_id)
        return location, History(instance.start_gtid).text
    return view.moment.location, view.moment.gtid


def present_schemas(connection: Connection, instance: Instance) -> tuple[FoundShards, dict[TableId, TableSchema]]:
    """Read the shards of a source and their present structures; raises if routes are wrong."""
    found = find_shards(connection, instance)
    if found.problems:
        raise found.problems[0]
    schemas = structures.read_schemas(connection, sorted(found.targets))
    return found, schemas


def _steady_view(connection: Connection, instance: Instance) -> View:
    source = instance.source.id
    for _ in range(ATTEMPTS):
        found, before = present_schemas(connection, instance)
        around = structures.read_defaults(connection), structures.read_sequences(connection)
        shadows = _shadows(connection, found.online_tables)
        if transactions := upstream.prepared(connection):
            raise TransactionsPrepared(source, len(transactions))
        moment = begin_snapshot(connection, source)
        mysql.rollback(connection)
        again, after = present_schemas(connection, instance)
        is_steady = (before, *around) == (
            after,
            structures.read_defaults(connection),
            structures.read_sequences(connection),
        )
        are_same = (found.targets, found.online_tables, shadows) == (
            again.targets,
            again.online_tables,
            _shadows(connection, again.online_tables),
        )
        if is_steady and are_same:
            targets = {table: found.targets[table] for table in before}
            return View(moment, targets, before, *around, found.online_tables, shadows)
    raise StructuresUnsteady(source, ATTEMPTS)


def _shadows(connection: Connection, online_tables: OnlineTables) -> dict[TableId, TableSchema]:
    return structures.read_schemas(
        connection, [online_table.table for online_table in online_tables if online_table.role is OnlineRole.SHADOW]
    )


def _stored_online_tables(work: Work, view: View) -> Iterator[OnlineTable]:
    """Yield the tables of tools; a shadow table is fully known if it still equals its shard: no statement was run on
    it.
    """
    for online_table in view.online_tables:
        schema = view.shadows.get(online_table.table)
        if schema is None:
            yield online_table
            continue
        is_equal = schema.shape == view.schemas[online_table.real].shape
        yield replace(online_table, structure=work.meta.structures.put(schema), is_whole=is_equal)


def check_recorded_alike(work: Work, source: str) -> None:
    """Compare the recorded structures of a source with the others: two simultaneous snapshots do not see each other."""
    if joins(work):
        return
    shards = work.meta.structures.shards(source)
    schemas = work.structures({state.structure for state in shards})
    _check_alike(work, source, [(s.shard.table, s.target, schemas[s.structure]) for s in shards])


def _check_alike(work: Work, source: str, shards: Iterable[tuple[TableId, TableId, TableSchema]]) -> None:
    """Compare every shard with the first one of its target, of this source or of one that is not in sync yet."""
    first_shards = _recorded_first_shards(work, source)
    for table, target, schema in shards:
        shard = Shard(source, table)
        first, first_schema = first_shards.setdefault(target, (shard, schema))
        differences = structure_differences(first_schema, schema)
        if differences:
            raise ShardsDiffer(str(target), str(first), str(shard), "; ".join(differences))


def _recorded_first_shards(work: Work, source: str) -> dict[TableId, tuple[Shard, TableSchema]]:
    others = [s.source for s in work.meta.sources.all() if s.source != source and Phase.SNAPSHOT.order <= s.phase.order]
    syncing = {s.source for s in work.meta.sources.all() if s.phase is Phase.SYNC}
    shards = [shard for other in others if other not in syncing for shard in work.meta.structures.shards(other)]
    schemas = work.structures({shard.structure for shard in shards})
    return {shard.target: (shard.shard, schemas[shard.structure]) for shard in reversed(shards)}


def _drop_outdated(work: Work, source: str, view: View) -> None:
    """Drop the empty target tables that an earlier snapshot created from structures that no shard has any more."""
    wanted = defaultdict(set)
    for table, schema in view.schemas.items():
        wanted[view.targets[table]].add(schema.shape)
    outdated = defaultdict(set)
    for state in work.meta.structures.shards(source):
        if state.target in wanted and shape_of(state.structure) not in wanted[state.target]:
            outdated[state.target].add(state.structure)
    if not outdated:
        return
    schemas = work.structures({structure for some in outdated.values() for structure in some})
    with work.target_connection() as connection:
        trials = TrialTables(connection, work.task.meta_schema)
        for target, present in structures.read_schemas(connection, sorted(outdated)).items():
            is_made = any(_makes(trials, schemas[structure], present) for structure in sorted(outdated[target]))
            if is_made and not structures.has_rows(connection, target):
                targetddl.drop_table(connection, target)


def _makes(trials: TrialTables, like: TableSchema, present: TableSchema) -> bool:
    """Whether the target has the structure that it creates from a shard's; TiDB, for example, omits FULLTEXT."""
    if present.shape == like.shape:
        return True
    made = trials.tried(like).made
    return made is not None and made.shape == present.shape


def _prepare_targets(work: Work, instance: Instance, view: View) -> None:
    copy_schemas(work, instance, view.defaults)
    shards = {table: (view.targets[table], schema) for table, schema in view.schemas.items()}
    prepare_targets(work, instance, shards)


def prepare_targets(work: Work, instance: Instance, shards: Mapping[TableId, tuple[TableId, TableSchema]]) -> None:
    """Create the missing target tables, and check that the existing ones can take the rows."""
    models = {target: (table, schema) for table, (target, schema) in reversed(list(shards.items()))}
    keys = keys_of_shards(work, instance.source.id, shards)
    with work.target_connection() as connection:
        refuse_alike_names(connection, {*models, *(state.target for state in work.meta.structures.shards())})
        for target, (table, schema) in models.items():
            with may_lack_columns(work.task):
                make_target(connection, instance.routing, Shard(instance.source.id, table), target, schema, keys)
        present = structures.read_schemas(connection, sorted(models))
        if work.task.task_mode.loads:
            refuse_engines(present)
        behind_at = cache(work.meta.locks.behind_at)  # thousands of shards have one structure
        # A target that follows the join is compared when its shards are recorded.
        for table, (target, schema) in () if joins(work) else shards.items():
            behind = behind_at(target, schema.digest)
            _check_fit(instance, Shard(instance.source.id, table), schema, (target, present[target]), behind)
        if work.task.task_mode.loads and instance.load.on_duplicate is OnDuplicate.ERROR:
            for target in models:
                # The rows are read first, because the task's rows arrive at any time.
                if structures.has_rows(connection, target) and not _is_ours(work, target):
                    raise TargetNotEmpty(str(target))


def _check_fit(
    instance: Instance,
    shard: Shard,
    schema: TableSchema,
    into: tuple[TableId, TableSchema],
    behind: tuple[ExecutedDdl, ...],
) -> None:
    """Check that the target can take the rows of a shard; DDL that only the target has may cause differences."""
    target, present = into
    reshaping = instance.routing.reshaping(shard.table)
    reasons = unfit_reasons(present, schema, {each.column.lower() for each in reshaping.extracted})
    if reasons and not behind:
        raise TargetTableUnfit(str(target), "; ".join(reasons))
    refuse_types(shard, schema, (target, present), reshaping, behind)


def _is_ours(work: Work, target: TableId) -> bool:
    for other in work.meta.sources.all():
        if other.phase.order >= Phase.LOADED.order:
            if any(shard.target == target for shard in work.meta.structures.shards(other.source)):
                return True
        elif any(c.target == target and c.state is ChunkState.LOADED for c in work.meta.chunks.of(other.source)):
            return True
    return False


def _record(work: Work, source: str, location: Location, view: View) -> None:
    gone = [
        StructureChange(state.shard, state.target, location, None)
        for state in work.meta.structures.shards(source)
        if state.shard.table not in view.schemas
    ]
    work.meta.structures.record_all(gone)
    for digest, schema in {schema.digest: schema for schema in view.schemas.values()}.items():
        assert work.meta.structures.put(schema) == digest
    work.meta.schema_defaults.begin(source, location, view.defaults)
    work.meta.ignored.begin(source, view.sequences)
    work.meta.online.begin(source, tuple(_stored_online_tables(work, view)))
    found = (
        StructureChange(Shard(source, table), view.targets[table], location, schema.digest)
        for table, schema in view.schemas.items()
    )
    work.meta.structures.record_all(found)
    work.meta.locks.add_late_skip(source)


def _report(source: str, location: Location, targets: Mapping[TableId, TableId]) -> SnapshotReport:
    return SnapshotReport(source, location, len(targets), tuple(sorted(set(targets.values()))))
