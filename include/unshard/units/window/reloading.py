"""Reload columns of a shard: read them again from the source, chunk by chunk, and write them into the target.

Each chunk is one transaction of the target:

1. lock the row of the source in the meta tables: no window of the source can begin or end until the COMMIT
2. lock the progress of the reload, and test again that the shard can be reloaded
3. keep DDL of both tables from running, read both structures
4. read the chunk from the source with LOCK IN SHARE MODE
5. UPDATE these columns of the rows with these keys; rows that the target lacks are left out
6. record the last key of the chunk, COMMIT

**Why it is correct beside windows.** Let E be the end of the last window that has begun when step 1 is done; all binlog
up to E was pulled before. A transaction holds the locks of its rows from before it is in the binlog until it is
committed. So the locking read of step 4 waits for every transaction up to E. (A snapshot would not: it may lack
transactions that are in the binlog already.) For each key, the value that is read is that of a position P >= E.

* Changes of the key up to E are contained in the value. A window that has begun may still write its row before or after
  step 5. Its row is whole (`binlog_row_image=FULL`), with the value of a change up to E.
* Changes between E and P are contained in the value too. Later windows write them again, in order, and the last one has
  the value that was read.
* Changes after P are in later windows, which begin after the COMMIT.
* If the key has no change after E, no window touches the row, and the value that was read stays.
* A row that the target lacks will be inserted whole by a window, or was left out by a filter.

So the value of the last change always wins. This is the argument for the chunks of a dump, for one column.

| process dies                        | what happens                                                                |
|-------------------------------------|-----------------------------------------------------------------------------|
| before the reload is recorded       | nothing has happened                                                        |
| in steps 1 to 6                     | the server rolls back and releases the source; the same chunk is read again |
| in COMMIT, the answer is lost       | the next attempt reads the recorded progress and continues from it          |
| between two chunks                  | the same command continues with the next chunk                              |
| it hangs                            | windows of the source wait for it as for any lock; if the server ends the   |
|                                     | session, the UPDATEs and the lock go together                               |
| after the last chunk                | the reload is done; the same command would read everything again            |

The progress counts only as long as nothing changes that it depends on (core.rows.columnreload). Two processes may run
the same reload: they write its chunks in turn.
"""

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pymysql.connections import Connection

from unshard.adapters import mysql, serverstate, structures, tablerows, textrows, upstream
from unshard.adapters.target import chunkprogress as chunks
from unshard.adapters.target.apply import naming_table
from unshard.adapters.target.chunkprogress import ColumnUpdate, ReloadRow, Values
from unshard.adapters.target.fence import Pair, prepare_fence, record_write
from unshard.adapters.target.session import open_session, repeated
from unshard.config.unitkeys import OnDuplicate
from unshard.core.ddl.issuedcommands import IssuedCommand
from unshard.core.ddl.queue import ShardState
from unshard.core.full.chunks import Key, next_bound, walked_columns
from unshard.core.model import Shard, TableId, TableSchema
from unshard.core.rows.columnreload import (
    Reload,
    ReloadState,
    basis_of,
    first_names,
    next_rows,
    unfit_column,
    updated_by_server,
)
from unshard.core.rows.rowerrors import CollisionState
from unshard.core.rules.reshaping import AS_IT_IS
from unshard.core.sql.keyrange import KeyRange
from unshard.core.structures.comparison import structure_differences
from unshard.core.task.state import Phase
from unshard.errors.locks import (
    ReloadColumnUnfit,
    ReloadImpossible,
    ReloadMustWait,
    ReloadShardUnknown,
    ReloadStructureAhead,
)
from unshard.errors.meta import NotInSync
from unshard.units.full.targets import by_filled_keys, reshaped_by
from unshard.units.rows.conversion import Conversion, conversion, conversion_by_ids, convert
from unshard.units.rows.joinedrows import joined_rows
from unshard.units.work import Work

log = logging.getLogger(__name__)

RELOAD = "reload"
ALL_COLLISIONS = 1_000_000
LOCK_WAIT_SECONDS = 3
"""How long a chunk waits for rows that are locked on the source: windows of the source wait meanwhile."""


@dataclass(frozen=True, slots=True)
class ReloadPlan:
    """A shard whose columns can be reloaded, with everything that decides about a chunk."""

    state: ShardState
    present: TableSchema
    conversion: Conversion
    """Of the columns that are read: first those of the target's key, then those that are written."""
    reads: TableSchema
    """The columns of the shard that are read, with its indexes."""
    update: ColumnUpdate
    basis: str


def shard_named(work: Work, text: str) -> Shard:
    """Return the shard that an argument of the command line names; raises ReloadShardUnknown."""
    shards = sorted(state.shard for state in work.meta.structures.shards())
    for shard in shards:
        if text in (f"{shard.source}/{shard.table}", str(shard)):
            return shard
    raise ReloadShardUnknown(text, first_names(shards))


def plan_reload(work: Work, shard: Shard, columns: Sequence[str]) -> ReloadPlan:
    """Return what a reload would do; raises the coded error that says why it is not possible."""
    _refuse_kind(work, shard)
    with work.source_connection(shard.source) as connection:
        return _planned(work, shard, columns, connection)


def reload_columns(
    work: Work,
    shard: Shard,
    columns: Sequence[str],
    command: IssuedCommand | None = None,
    progress: Callable[[Reload], None] | None = None,
) -> Reload:
    """Reload columns of a shard, or continue that; return the finished reload. `command` is that of a person."""
    work.meta.pauses.refuse()
    plan = plan_reload(work, shard, columns)
    goes_on = work.meta.reloads.begin(shard, plan.state.target, columns, plan.basis, command)
    log.info("reload %s shard=%s columns=%s", "continues" if goes_on else "begins", shard, ",".join(columns))
    most = rows = work.limits.reload_rows
    while True:
        wanted = rows
        chunk = repeated(lambda: _write_chunk(work, shard, columns, wanted))  # noqa: B023  called at once
        if chunk is None:
            return _found(work, shard, columns)
        rows = next_rows(chunk.rows, chunk.bytes, most)
        if progress is not None:
            progress(_found(work, shard, columns))


def _found(work: Work, shard: Shard, columns: Sequence[str]) -> Reload:
    found = work.meta.reloads.get(shard, columns)
    if found is None:
        raise ReloadMustWait(str(shard), "its reload is not recorded any more", "look at `unshard status`")
    return found


# --- what may be reloaded


def _refuse_kind(work: Work, shard: Shard) -> None:
    target = _state(work, shard).target
    found = [each for each in work.meta.collisions.all(ALL_COLLISIONS) if each.collision.target == target]
    if found and work.task.instance(shard.source).load.on_duplicate is not OnDuplicate.ERROR:
        raise ReloadImpossible(
            str(shard),
            f"shards of {target} have had the same keys, so a row of the target may be another shard's",
            "set the column by an UPDATE on the shard",
        )
    if any(each.state is CollisionState.OPEN for each in found):
        raise ReloadMustWait(str(shard), f"a collision of {target} is open", "resolve it (`unshard collisions`)")


def _state(work: Work, shard: Shard) -> ShardState:
    found = [state for state in work.meta.structures.shards() if not state.has_left]
    for state in found:
        if state.shard == shard and not state.is_dropped:
            return state
    known = sorted(state.shard for state in found if not state.is_dropped)
    raise ReloadShardUnknown(f"{shard.source}/{shard.table}", first_names(known))


def _ready(work: Work, shard: Shard) -> ShardState:
    """Return the state of the shard; raises if anything of it waits."""
    state = _state(work, shard)
    refuse_waiting(work, [state])
    return state


def refuse_waiting(work: Work, states: Sequence[ShardState]) -> None:
    """Raise for the first of these shards of which anything waits."""
    sources = {source: work.meta.sources.get(source) for source in {state.shard.source for state in states}}
    stopped = {(stop.source, stop.target) for stop in work.meta.suspended_targets.all()}
    for state in states:
        shard, source = str(state.shard), sources[state.shard.source]
        if source is None or source.phase is not Phase.SYNC:
            raise NotInSync(state.shard.source, (source.phase if source else Phase.NEW).value)
        if (state.shard.source, state.target) in stopped:
            raise ReloadMustWait(shard, f"target {state.target} is suspended", "correct it, `unshard retry`")
        if state.queue or state.held or not state.structure:
            locks = [lock.id for lock in work.meta.locks.open() if lock.target == state.target]
            named = f" for lock {', '.join(locks)}" if locks else ""
            what = (
                "a DDL of it waits"
                if state.queue
                else "rows of it are held"
                if state.held
                else "its structure is unknown"
            )
            raise ReloadMustWait(shard, f"{what}{named}", "resolve it (`unshard locks`), and let windows run")


def _refuse_source(work: Work, shard: Shard, connection: Connection) -> None:
    """Raise if the source does not log whole rows, or is not the server from which the binlog was pulled."""
    found, known = upstream.inspect(connection, shard.source), work.meta.sources.get(shard.source)
    if found.binlog_row_image.upper() not in ("", "FULL"):
        raise ReloadImpossible(
            str(shard),
            f"its source has binlog_row_image = {found.binlog_row_image}, so a window may write an older value that it"
            " has read from the target",
            f"give source {shard.source} the global binlog_row_image FULL, let its sessions connect again, let windows"
            " apply the binlog before that, then run the same command again",
        )
    if known is not None and found.identity != known.identity:
        raise ReloadMustWait(str(shard), "another server answers for its source", "let the relay pull from it")


def _planned(work: Work, shard: Shard, columns: Sequence[str], connection: Connection) -> ReloadPlan:
    state = _ready(work, shard)
    _refuse_source(work, shard, connection)
    tracked = work.structures({state.structure})[state.structure]
    present = structures.read_schemas(connection, [shard.table]).get(shard.table)
    if present is None:
        raise ReloadStructureAhead(str(shard), "the table does not exist on the source")
    if any(column.own_name for column in tracked.columns):
        raise ReloadImpossible(
            str(shard), "a column has another name in the shard than in its group", "give it the name of its group"
        )
    if differences := structure_differences(tracked, present):
        raise ReloadStructureAhead(str(shard), "; ".join(differences))
    return _matched(work, state, tracked, present, columns)


def _matched(
    work: Work, state: ShardState, tracked: TableSchema, present: TableSchema, columns: Sequence[str]
) -> ReloadPlan:
    shard = state.shard
    schema, found = whole_rows(work, state, tracked, present)
    if not walked_columns(present) or not schema.key:
        whose = "target's" if present.key else "shard's"
        raise ReloadImpossible(
            str(shard),
            f"the {whose} rows cannot be found by a key that can be walked",
            "set the column by an UPDATE on the shard, or load the target again (`unshard run --remove-meta`)",
        )
    written = _written(shard, present, schema, found, columns)
    reads, narrow = _narrowed(present, found, (*found.key, *written))
    keys, values = narrow.destination.columns[: len(found.key)], narrow.destination.columns[len(found.key) :]
    update = ColumnUpdate(state.target, keys, values, updated_by_server(schema, [column.name for column in values]))
    return ReloadPlan(state, present, narrow, reads, update, basis_of(state, present, schema))


def whole_rows(
    work: Work, state: ShardState, tracked: TableSchema, present: TableSchema
) -> tuple[TableSchema, Conversion]:
    """Return the structure of a shard's target, and how the shard's rows of now become rows of it."""
    shard, target = state.shard, state.target
    behind = work.meta.locks.behind({shard})
    reshapings = reshaped_by(work, shard.source, {shard})
    joined = joined_rows(work, {target}, {shard})
    there = work.target_schemas({target})
    schema = by_filled_keys(there, [state], {state.structure: tracked}, behind, reshapings, joined)[target]
    reshaping = reshapings.get(shard.table, AS_IT_IS)
    if target in joined:
        return schema, conversion_by_ids(shard, None, present, (target, schema), joined[target], reshaping)
    return schema, conversion(shard, present, target, schema, behind.get((shard, None), ()), reshaping)


def _written(
    shard: Shard, present: TableSchema, schema: TableSchema, found: Conversion, columns: Sequence[str]
) -> list[int]:
    """Return the numbers of the fields to write; raises ReloadColumnUnfit."""
    by_name: dict[str, int] = {}
    for place, field in enumerate(found.fields):
        if not field.is_constant:
            by_name[present.written[field.place].name.lower()] = place
    numbers: list[int] = []
    for name in dict.fromkeys(column.lower() for column in columns):
        number = by_name.get(name)
        target_name = None if number is None else found.fields[number].column.name
        why = unfit_column(name, present, schema, target_name)
        if number is None or why:
            raise ReloadColumnUnfit(str(shard), name, why)
        numbers.append(number)
    return numbers


def _narrowed(present: TableSchema, found: Conversion, numbers: Sequence[int]) -> tuple[TableSchema, Conversion]:
    fields = [found.fields[number] for number in numbers]
    places = sorted({field.place for field in fields if not field.is_constant})
    moved = tuple(field if field.is_constant else replace(field, place=places.index(field.place)) for field in fields)
    narrow = Conversion(found.destination.only(numbers), moved, tuple(range(len(found.key))))
    return replace(present, columns=tuple(present.written[place] for place in places)), narrow


# --- one chunk


@dataclass(frozen=True, slots=True)
class ReloadedChunk:
    """What a chunk had."""

    rows: int
    bytes: int


def _write_chunk(work: Work, shard: Shard, columns: Sequence[str], most: int) -> ReloadedChunk | None:
    """Read and write the next chunk; return None if the reload is done."""
    row = ReloadRow(work.task.meta_schema, work.task.name, shard, tuple(columns))
    with (
        contextlib.closing(open_session(work.writer())) as target,
        _reading(work, shard) as source,
        work.source_connection(shard.source) as beside,
    ):
        pair = Pair(work.task.meta_schema, work.task.name, shard.source, _state(work, shard).target)
        prepare_fence(target, pair)
        mysql.begin(target)
        chunks.hold_source(target, row.meta_schema, row.task, shard.source)
        work.meta.pauses.refuse()
        progress = chunks.lock_reload(target, row)
        if progress is None or progress.state is ReloadState.DONE:
            return None
        mysql.begin(source)
        chunks.hold_structure(source, shard.table)
        chunks.hold_structure(target, _ready(work, shard).target, for_writing=True)
        plan = _planned(work, shard, columns, beside)
        if plan.basis != progress.basis:
            raise ReloadMustWait(str(shard), "a structure has changed since the reload began", "do nothing else")
        upper, rows, size = _read(source, shard.table, plan, progress.reached, most)
        mysql.rollback(source)  # it has only read
        with naming_table(plan.update.table):
            changed = plan.update.run(target, rows)
        chunks.advance_reload(target, row, upper, len(rows), changed)
        record_write(target, pair)
        mysql.commit(target)
    return ReloadedChunk(len(rows), size)


@contextlib.contextmanager
def _reading(work: Work, shard: Shard) -> Iterator[Connection]:
    """Open a session on the source that reads stored bytes and waits only shortly for locks."""
    server = work.sources[shard.source]
    with contextlib.closing(mysql.connect_raw(server, f"source {shard.source}")) as connection:
        textrows.prepare_reading(connection)
        serverstate.read_committed(connection)
        serverstate.limit_row_wait(connection, LOCK_WAIT_SECONDS)
        serverstate.limit_ddl_wait(connection, LOCK_WAIT_SECONDS)
        yield connection


def _read(
    connection: Connection, table: TableId, plan: ReloadPlan, lower: Key | None, most: int
) -> tuple[Key | None, list[Values], int]:
    """Return the last key of the next chunk (None if there is no other), its rows for the target, and their bytes."""
    found = mysql.query(connection, next_bound(table, plan.present, lower, most))
    upper = tuple(found[0]) if found else None
    rows = mysql.query(
        connection, tablerows.locking_rows(table, plan.present, plan.reads.columns, KeyRange(lower, upper))
    )
    if not rows:
        return upper, [], 0
    arrays = [pa.array(values, pa.binary()) for values in zip(*rows, strict=True)]
    converted = convert(plan.conversion, arrays)
    values = list(zip(*(array.to_pylist() for array in converted), strict=True))
    return upper, values, sum(array.nbytes for array in arrays)
