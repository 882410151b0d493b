"""Adopts changed rules of a source from the checkpoint on, or refuses them, and loads the tables that they add.

Every window first compares the rules of the file with those in force. core.window.rulechanges decides about their
effect on the shards of the source. An existing table that the new rules add is loaded before the window. It is read in
one snapshot, which becomes its `start`, while the other sources go on.

| death                                       | what the next run does                                            |
|---------------------------------------------|-------------------------------------------------------------------|
| while new tables are recorded or loaded     | the old rules are still in force: it does all of it again, and    |
|                                             | tables whose chunk is not loaded are read again                   |
| after the load, before the rules are stored | the tables are loaded already; it does the rest again             |
"""

import getpass
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from unshard.adapters import structures
from unshard.adapters.meta import MetaReader
from unshard.adapters.meta.taskrecords import load_of
from unshard.adapters.spark import map_items
from unshard.config import Instance
from unshard.core import codec
from unshard.core.ddl.issuedcommands import IssuedCommand
from unshard.core.ddl.online import OnlineRole as Shown
from unshard.core.ddl.parsed import DdlKind, Role
from unshard.core.ddl.queue import ShardState
from unshard.core.ddl.statement import read_ddl
from unshard.core.model import Location, Shard, TableId, TableSchema
from unshard.core.relay.segment import Statement, chain
from unshard.core.rows.rowerrors import Found
from unshard.core.structures.comparison import structure_differences
from unshard.core.task.state import Chunk, ChunkState, Phase, SyncState
from unshard.core.window.plan import StructureChange
from unshard.core.window.rulechanges import Revision, revise, routing_of, rules_digest
from unshard.errors import UnshardError
from unshard.errors.checks import ShardsDiffer
from unshard.errors.full import LoadCollision
from unshard.errors.meta import RulesSpoilRows, RulesWait
from unshard.errors.rows import RowFilterFailed, RowRefused, RowsFiltered
from unshard.units.full.discover import find_shards
from unshard.units.full.dump import dump_again
from unshard.units.full.keyowners import stopped_by
from unshard.units.full.load import job_of
from unshard.units.full.loadchunks import LoadBatch, load_one_batch
from unshard.units.full.snapshot import joins, note_rules, prepare_targets
from unshard.units.full.targets import join_targets, without_refused_indexes
from unshard.units.relay.tasksource import pull_source
from unshard.units.window.suspending import retry
from unshard.units.work import Work

log = logging.getLogger(__name__)

CHANGE = "rules"
VIA = "task file"
LISTED = 5
STOPPED_BY_RULES = frozenset({RowRefused.code, RowsFiltered.code, RowFilterFailed.code})
OPEN_WINDOW = "a window that has begun by the former rules has not ended"


@dataclass(frozen=True, slots=True)
class _Newcomer:
    shard: Shard
    target: TableId
    schema: TableSchema


def _digest(instance: Instance) -> str:
    return rules_digest(instance.routing, instance.online)


def adopt_rules(work: Work, sync_state: SyncState) -> bool:
    """Adopt the rules of the file if they are not in force yet; a coded error says why they are refused."""
    instance, checkpoint = work.task.instance(sync_state.source), sync_state.checkpoint
    if sync_state.rules == _digest(instance) or checkpoint is None or sync_state.phase is not Phase.SYNC:
        return False
    if sync_state.rules is not None:
        _adopt(work, instance, checkpoint)
        retry(work, work.meta.suspended_targets.all(sync_state.source))
    note_rules(work, instance, checkpoint)
    return True


def changes_by_rules(meta: MetaReader, instance: Instance) -> tuple[str, ...] | None:
    """Return what the next window would change for the source's shards by the rules of the file, one sentence each.

    None if these rules are in force. The sentences do not name tables that the rules add. Raises RulesSpoilRows or
    RulesWait if the rules are refused.
    """
    source = instance.source.id
    if meta.windows.sync_state(source).rules in (None, _digest(instance)):
        return None
    shards = meta.structures.shards()
    revision = _revised(meta, instance, _own(shards, source, _unfinished(meta, source)))
    _refuse_waiting(meta, source, shards, revision, set())
    return revision.told


def rules_refusal(meta: MetaReader, instance: Instance) -> UnshardError | None:
    """Return why the next window would refuse the rules of the file, as far as the meta tables show it."""
    try:
        changes_by_rules(meta, instance)
    except (RulesSpoilRows, RulesWait) as error:
        return error
    return None


def _adopt(work: Work, instance: Instance, checkpoint: Location) -> None:
    source = instance.source.id
    work.meta.pauses.refuse()
    unfinished = _unfinished(work.meta, source)
    own = _own(work.meta.structures.shards(source), source, unfinished)
    revision = _revised(work.meta, instance, own)
    new = _newcomers(work, instance, {state.shard for state in own}, unfinished)
    shards = work.meta.structures.shards()  # other sources have gone on since
    _refuse_waiting(work.meta, source, shards, revision, {each.target for each in new})
    if new:
        with work.meta.active_workers.at(load_of(source)):
            _take(work, instance, new, checkpoint, shards)
    gone = [StructureChange(state.shard, state.target, checkpoint, None) for state in revision.out]
    work.meta.structures.record_all(gone)
    if instance.online is None:
        work.meta.online.begin(source, ())
    told = (*(f"{each.shard} joins {each.target}" for each in new), *revision.told)
    if told:
        log.info("rules changed source=%s location=%s changes=%s", source, checkpoint, told)
        reason = f"{source} from {checkpoint} on: {_some(told)}"
        work.meta.pauses.record(IssuedCommand(CHANGE, getpass.getuser(), VIA, reason))


def _own(shards: Iterable[ShardState], source: str, unfinished: set[Shard]) -> list[ShardState]:
    return [s for s in shards if s.shard.source == source and not s.has_left and s.shard not in unfinished]


def _revised(meta: MetaReader, instance: Instance, own: Sequence[ShardState]) -> Revision:
    source = instance.source.id
    rules = meta.rules.get(source)
    old = routing_of(rules, instance.routing)
    revision = revise(old, instance.routing, own, meta.structures.get({s.structure for s in own if s.structure}))
    if revision.spoiled:
        raise RulesSpoilRows(source, _some(revision.spoiled))
    if rules.online != instance.online:
        _refuse_under_way(meta, source)
    return revision


def _refuse_under_way(meta: MetaReader, source: str) -> None:
    """Refuse changed online-DDL rules while a tool is at work: its shadow table would be treated as a normal table."""
    shadows = [
        online_table
        for online_table in meta.online.of(source)
        if online_table.role is Shown.SHADOW and online_table.seen
    ]
    if shadows:
        told = _some(
            f"{online_table.table} is about to take the place of {online_table.real}" for online_table in shadows
        )
        raise RulesWait(source, f"online-ddl and its rules hold until the tools that are at work have ended ({told})")
    if meta.windows.open(source) is not None:
        raise RulesWait(source, OPEN_WINDOW)


def _refuse_waiting(
    meta: MetaReader, source: str, shards: Iterable[ShardState], revision: Revision, joined: set[TableId]
) -> None:
    """Refuse while DDL or rows of a concerned group wait, or while a window that began with the old rules is open."""
    concerned = revision.targets | joined
    stops = meta.suspended_targets.all(and_lifted=True)
    # Rows of a target that a filter has suspended wait for another filter. A run of the task lets these targets go on
    # before it compares the rules.
    freed = {(stop.source, stop.target) for stop in stops if stop.refusal.code in STOPPED_BY_RULES}
    waiting = [
        s
        for s in shards
        if s.target in concerned
        and (s.queue or s.held)
        and not ((s.shard.source, s.target) in freed and (s.shard.source == source or not s.queue))
    ]
    if waiting:
        raise RulesWait(source, _told(waiting, {(stop.source, stop.target) for stop in stops}))
    if (revision.out or joined) and meta.windows.open(source) is not None:
        raise RulesWait(source, OPEN_WINDOW)


def _told(waiting: Sequence[ShardState], stopped: set[tuple[str, TableId]]) -> str:
    first, shards = waiting[0], _some(str(state.shard) for state in waiting)
    if ddl := next((state.queue[0].routed for state in waiting if state.queue), ""):
        return f"the DDL `{' '.join(ddl.split())}` of {first.target} waits ({shards})"
    if (first.shard.source, first.target) in stopped:
        return f"rows of {first.target} are held, because it could not take them ({shards})"
    return f"rows of {first.target} are held after a DDL ({shards})"


def _newcomers(work: Work, instance: Instance, known: set[Shard], unfinished: set[Shard]) -> list[_Newcomer]:
    """Return the existing tables of the source that the rules take and that are not shards yet.

    A table that was created after the checkpoint is left to the windows, which read its CREATE TABLE.
    """
    source = instance.source.id
    with work.source_connection(source) as connection:
        found = find_shards(connection, instance)
        if found.problems:
            raise found.problems[0]
        apart = {online_table.table for online_table in work.meta.online.of(source)} if instance.online else set()
        wanted = [table for table in sorted(found.targets) if Shard(source, table) not in known and table not in apart]
        schemas = without_refused_indexes(work, structures.read_schemas(connection, wanted))
    if not schemas:
        return []
    pull_source(work, source)
    made = []
    for table, schema in schemas.items():
        shard = Shard(source, table)
        if _is_created_behind(work, shard):
            continue
        if work.meta.structures.history(shard) and shard not in unfinished:
            raise RulesSpoilRows(source, f"{shard} was left out before: what it had then is in {found.targets[table]}")
        made.append(_Newcomer(shard, found.targets[table], schema))
    return made


def _is_created_behind(work: Work, shard: Shard) -> bool:
    """Whether its CREATE TABLE is after the checkpoint; raises RulesWait if another DDL of it is there."""
    for statement in _statements(work, shard):
        try:
            ddl = read_ddl(statement.text, statement.sql_mode, statement.schema)
        except UnshardError:
            ddl = None
        uninvolved = Role.LIKE, Role.REFERENCED
        if ddl is not None and all(ref.table != shard.table or ref.role in uninvolved for ref in ddl.tables):
            continue
        if ddl is not None and ddl.kind is DdlKind.CREATE_TABLE:
            return True
        raise RulesWait(shard.source, f"a DDL that may be about {shard} is not reached yet: `{statement.text[:200]}`")
    return False


def _statements(work: Work, shard: Shard) -> Iterable[Statement]:
    checkpoint = work.meta.checkpoints.one(shard.source)
    name = shard.table.name.lower()
    for segment in chain(work.store.segments(shard.source), checkpoint.location):
        if segment.statement is not None and name in segment.statement.text.lower():
            yield segment.statement


def _take(
    work: Work, instance: Instance, new: Sequence[_Newcomer], checkpoint: Location, shards: Sequence[ShardState]
) -> None:
    """Make shards of new tables and load them; no DDL or rows wait in the groups of their targets (`shards`)."""
    source = instance.source.id
    if not joins(work):
        _check_alike(work, new, shards)
    prepare_targets(work, instance, {each.shard.table: (each.target, each.schema) for each in new})
    for each in new:
        _begin_anew(work, each)
        digest = work.meta.structures.put(each.schema)
        change = StructureChange(each.shard, each.target, checkpoint, digest, joins=True)
        work.meta.structures.record_all([change])
        if joins(work):
            join_targets(work)
        if work.task.task_mode.loads:
            _load(work, source, each, digest)


def _begin_anew(work: Work, each: _Newcomer) -> None:
    """Record a chunk of the table before it becomes a shard: a shard without a chunk has nothing to load."""
    if not work.task.task_mode.loads:
        return
    for chunk in work.meta.chunks.begin_anew(each.shard, each.target):
        if chunk.path:
            work.storage.delete(chunk.path)


def _check_alike(work: Work, new: Sequence[_Newcomer], shards: Sequence[ShardState]) -> None:
    """Compare each new shard with one of its group: no DDL waits there, so all shards have one structure."""
    taken = {each.shard for each in new}
    there = {
        state.target: state
        for state in reversed(shards)
        if state.shard not in taken and not state.is_dropped and not state.has_left
    }
    schemas = work.structures({state.structure for state in there.values()})
    for each in new:
        state = there.get(each.target)
        if state is None:
            continue
        if differences := structure_differences(schemas[state.structure], each.schema):
            raise ShardsDiffer(str(each.target), str(state.shard), str(each.shard), "; ".join(differences))


def _load(work: Work, source: str, each: _Newcomer, digest: str) -> None:
    state = next(s for s in work.meta.structures.shards(source) if s.shard == each.shard)
    dump_again(work, state)
    batches = [codec.dumps(LoadBatch.of(chunk, digest)) for chunk in _chunks(work, each.shard)]
    try:
        for _ in map_items(work.bulk_spark(), partial(load_one_batch, job_of(work, source)), batches, 1):
            pass
    except LoadCollision as error:
        raise stopped_by(work, error, Found.LOAD) from error
    if work.task.clean_dump_file:
        for chunk in _chunks(work, each.shard):
            work.storage.delete(chunk.path)


def _chunks(work: Work, shard: Shard) -> list[Chunk]:
    return [chunk for chunk in work.meta.chunks.of(shard.source) if chunk.shard == shard]


def _unfinished(meta: MetaReader, source: str) -> set[Shard]:
    """Return the tables whose load was begun by an attempt that died."""
    return {chunk.shard for chunk in meta.chunks.of(source) if chunk.state is not ChunkState.LOADED}


def _some(texts: Iterable[str]) -> str:
    shown = [*texts]
    more = f" and {len(shown) - LISTED} more" if len(shown) > LISTED else ""
    return "; ".join(shown[:LISTED]) + more
