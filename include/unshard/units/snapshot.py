"""Snapshot: where the binlog of a source stands (P0), and which structure each of its shards has there.

The structures must be those at P0, or rows would be read by the wrong columns. A structure can only be
asked for "now", so it is asked before P0 and again after it: equal answers mean that no DDL ended between
them. A DDL that is running holds the table's metadata lock until its event is in the binlog, and asking
waits for that lock, so it cannot hide between the two.

| died                                  | what happens                                                     |
|---------------------------------------|------------------------------------------------------------------|
| before anything is recorded           | a target table may exist, empty and right; the snapshot is taken |
| between the structures and the phase  | the snapshot is taken anew, at a later P0, over what is recorded |
| after the phase                       | a repeated call finds the phase and reports what is recorded     |
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache

from pymysql.connections import Connection

from unshard.adapters import mysql, structures, upstream
from unshard.adapters.snapshot import Moment, begin_snapshot
from unshard.config import Instance, OnDuplicate
from unshard.core.alike import structure_differences, unfit_reasons
from unshard.core.lineage import Ran
from unshard.core.model import Location, Shard, TableId, TableSchema, shape_of
from unshard.core.online import Ghost, Ghosts, Role
from unshard.core.progress import ChunkState, Phase
from unshard.core.rules import digest_of, rules_of
from unshard.core.segment import SchemaDefault
from unshard.core.window import StructureChange
from unshard.errors.source import NoShards, ShardsDiffer, StructuresUnsteady, TransactionsPrepared
from unshard.errors.target import TargetNotEmpty, TargetTableUnfit
from unshard.units.conversion import conversion
from unshard.units.discover import Found, find_shards
from unshard.units.failover import locate
from unshard.units.leftout import without_refused_indexes
from unshard.units.starttime import location_at
from unshard.units.targets import make_target, refuse_engines
from unshard.units.work import Work

ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class SnapshotReport:
    """What is recorded of a source."""

    source: str
    location: Location
    shards: int
    targets: tuple[TableId, ...]


@dataclass(frozen=True, slots=True)
class View:
    """The shards of a source at one moment."""

    moment: Moment
    targets: Mapping[TableId, TableId]
    schemas: Mapping[TableId, TableSchema]
    defaults: Mapping[str, SchemaDefault]
    sequences: frozenset[TableId]
    ghosts: Ghosts = ()
    shadows: Mapping[TableId, TableSchema] = field(default_factory=dict)
    """Structures of the shadow tables of tools at work."""


def take_snapshot(work: Work, source: str) -> SnapshotReport:
    """Record P0 and the structures of a source, and see to its target tables; idempotent."""
    work.meta.halts.refuse()
    state = work.meta.sources.get(source)
    if state is None or state.phase.order < Phase.SNAPSHOT.order:
        return retake_snapshot(work, source)
    assert state.snapshot is not None
    shards = work.meta.structures.shards(source)
    return _report(source, state.snapshot, {shard.shard.table: shard.target for shard in shards})


def note_rules(work: Work, instance: Instance, begins: Location) -> None:
    """Note the rules that a source goes by from a location on."""
    routing, online = instance.routing, instance.online
    work.meta.rules.put(instance.source.id, digest_of(routing, online), rules_of(routing, online), begins)


def retake_snapshot(work: Work, source: str) -> SnapshotReport:
    """Take the snapshot whether there is one or not; nothing of the source may be loaded yet."""
    instance = work.task.instance(source)
    with contextlib.closing(mysql.connect(work.sources[source], f"source {source}")) as connection:
        about = upstream.inspect(connection, source)
        view = _steady_view(connection, instance)
    view = replace(view, schemas=without_refused_indexes(work, view.schemas),
                   shadows=without_refused_indexes(work, view.shadows))  # fmt: skip
    _check_alike(work, source, [(table, view.targets[table], schema) for table, schema in view.schemas.items()])
    _drop_outdated(work, source, view)
    _prepare_targets(work, instance, view)
    work.meta.sources.add(source, about.identity, about.flavor)
    location, gtid = _start(work, instance, view)
    _record(work, source, location, view)
    note_rules(work, instance, location)
    # What stands between a start time and now may be in the target already.
    known_until = view.moment.location if instance.start_time else None
    work.meta.sources.set_phase(source, Phase.SNAPSHOT, snapshot=location, snapshot_gtid=gtid, dump_end=known_until)
    return _report(source, location, view.targets)


def _start(work: Work, instance: Instance, view: View) -> tuple[Location, str]:
    """Return P0 and the history before it: what the task file says, or the moment of the view."""
    if instance.start_time:
        source = instance.source
        return location_at(work.sources[source.id], source.id, instance.start_time, source.server_id), ""
    if instance.start:
        return instance.start, ""
    if instance.start_gtid:
        source = instance.source
        return locate(work.sources[source.id], source.id, instance.start_gtid, source.server_id), instance.start_gtid
    return view.moment.location, view.moment.gtid


def present_schemas(connection: Connection, instance: Instance) -> tuple[Found, dict[TableId, TableSchema]]:
    """Read the shards of a source and their structures as they are now; raises what is wrong with the routes."""
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
        shadows = _shadows(connection, found.ghosts)
        if not found.targets:
            ((account,),) = mysql.query(connection, "SELECT CURRENT_USER()")
            raise NoShards(source, account, found.seen)
        if count := upstream.prepared(connection):
            raise TransactionsPrepared(source, count)
        moment = begin_snapshot(connection, source)
        mysql.query(connection, "ROLLBACK")
        again, after = present_schemas(connection, instance)
        is_steady = (before, *around) == (
            after, structures.read_defaults(connection), structures.read_sequences(connection)
        )  # fmt: skip
        are_same = (found.targets, found.ghosts, shadows) == (
            again.targets, again.ghosts, _shadows(connection, again.ghosts)
        )  # fmt: skip
        if is_steady and are_same:
            targets = {table: found.targets[table] for table in before}
            return View(moment, targets, before, *around, found.ghosts, shadows)
    raise StructuresUnsteady(source, ATTEMPTS)


def _shadows(connection: Connection, ghosts: Ghosts) -> dict[TableId, TableSchema]:
    return structures.read_schemas(connection, [ghost.table for ghost in ghosts if ghost.role is Role.SHADOW])


def _kept_ghosts(work: Work, view: View) -> Iterator[Ghost]:
    """Yield the tables of tools; all of a shadow is known if it is still like its table: nothing was run on it."""
    for ghost in view.ghosts:
        schema = view.shadows.get(ghost.table)
        if schema is None:
            yield ghost
            continue
        is_like = schema.shape == view.schemas[ghost.real].shape
        yield replace(ghost, structure=work.meta.structures.put(schema), is_whole=is_like)


def check_recorded_alike(work: Work, source: str) -> None:
    """Compare what is recorded of a source with the others: two snapshots at one time do not see each other."""
    shards = work.meta.structures.shards(source)
    schemas = work.structures({state.structure for state in shards})
    _check_alike(work, source, [(s.shard.table, s.target, schemas[s.structure]) for s in shards])


def _check_alike(work: Work, source: str, shards: Iterable[tuple[TableId, TableId, TableSchema]]) -> None:
    """Compare every shard with the first one of its target, of this source or of one that is not in sync yet."""
    firsts = _recorded_firsts(work, source)
    for table, target, schema in shards:
        shard = Shard(source, table)
        first, its_schema = firsts.setdefault(target, (shard, schema))
        differences = structure_differences(its_schema, schema)
        if differences:
            raise ShardsDiffer(str(target), str(first), str(shard), "; ".join(differences))


def _recorded_firsts(work: Work, source: str) -> dict[TableId, tuple[Shard, TableSchema]]:
    others = [s.source for s in work.meta.sources.all() if s.source != source and Phase.SNAPSHOT.order <= s.phase.order]
    syncing = {s.source for s in work.meta.sources.all() if s.phase is Phase.SYNC}
    shards = [shard for other in others if other not in syncing for shard in work.meta.structures.shards(other)]
    schemas = work.structures({shard.structure for shard in shards})
    return {shard.target: (shard.shard, schemas[shard.structure]) for shard in reversed(shards)}


def _drop_outdated(work: Work, source: str, view: View) -> None:
    """Drop target tables that an earlier snapshot made and a DDL has overtaken: empty, and exactly of its structure."""
    wanted = {view.targets[table]: schema.shape for table, schema in view.schemas.items()}
    made = {state.target: shape_of(state.structure) for state in work.meta.structures.shards(source)}
    with contextlib.closing(mysql.connect(work.target, "target")) as connection:
        for target, present in structures.read_schemas(connection, sorted(wanted)).items():
            if present.shape == made.get(target) != wanted[target] and not structures.has_rows(connection, target):
                mysql.query(connection, f"DROP TABLE {mysql.table_name(target)}")


def _prepare_targets(work: Work, instance: Instance, view: View) -> None:
    shards = {table: (view.targets[table], schema) for table, schema in view.schemas.items()}
    prepare_targets(work, instance, shards)


def prepare_targets(work: Work, instance: Instance, shards: Mapping[TableId, tuple[TableId, TableSchema]]) -> None:
    """Create the target tables that are missing; see that those which exist can take the rows."""
    likes = {target: (table, schema) for table, (target, schema) in reversed(list(shards.items()))}
    with contextlib.closing(mysql.connect(work.target, "target")) as connection:
        for target, (table, schema) in likes.items():
            make_target(connection, instance.routing, Shard(instance.source.id, table), target, schema)
        present = structures.read_schemas(connection, sorted(likes))
        if work.task.task_mode.loads:
            refuse_engines(present)
        behind_at = cache(work.meta.locks.behind_at)  # thousands of shards have one structure
        for table, (target, schema) in shards.items():
            behind = behind_at(target, schema.digest)
            _check_fit(instance, Shard(instance.source.id, table), schema, (target, present[target]), behind)
        if work.task.task_mode.loads and instance.load.on_duplicate is OnDuplicate.ERROR:
            for target in likes:
                _refuse_rows(work, connection, target)


def _check_fit(instance: Instance, shard: Shard, schema: TableSchema, into: tuple[TableId, TableSchema],
               behind: tuple[Ran, ...]) -> None:  # fmt: skip
    """See that the target can take the rows of a shard; DDL that it has had since the shard was like it may differ."""
    target, present = into
    reshaping = instance.routing.reshaping(shard.table)
    reasons = unfit_reasons(present, schema, {each.column.lower() for each in reshaping.extracted})
    if reasons and not behind:
        raise TargetTableUnfit(str(target), "; ".join(reasons))
    conversion(shard, schema, target, present, behind, reshaping)


def _refuse_rows(work: Work, connection: Connection, target: TableId) -> None:
    """Refuse a target with rows that are not ours; rows are looked for first, because ours come at any time."""
    if structures.has_rows(connection, target) and not _is_ours(work, target):
        raise TargetNotEmpty(str(target))


def _is_ours(work: Work, target: TableId) -> bool:
    for other in work.meta.sources.all():
        if other.phase.order >= Phase.LOADED.order:
            if any(shard.target == target for shard in work.meta.structures.shards(other.source)):
                return True
        elif any(c.target == target and c.state is ChunkState.LOADED for c in work.meta.chunks.of(other.source)):
            return True
    return False


def _record(work: Work, source: str, location: Location, view: View) -> None:
    gone = [StructureChange(state.shard, state.target, location, None)
            for state in work.meta.structures.shards(source) if state.shard.table not in view.schemas]  # fmt: skip
    work.meta.structures.record_all(gone)
    for digest, schema in {schema.digest: schema for schema in view.schemas.values()}.items():
        assert work.meta.structures.put(schema) == digest
    work.meta.defaults.begin(source, location, view.defaults)
    work.meta.aside.begin(source, view.sequences)
    work.meta.online.begin(source, tuple(_kept_ghosts(work, view)))
    there = (StructureChange(Shard(source, table), view.targets[table], location, schema.digest)
             for table, schema in view.schemas.items())  # fmt: skip
    work.meta.structures.record_all(there)
    work.meta.locks.owe_late(source)


def _report(source: str, location: Location, targets: Mapping[TableId, TableId]) -> SnapshotReport:
    return SnapshotReport(source, location, len(targets), tuple(sorted(set(targets.values()))))
