"""Validate that every target table is the union of its shards. Runs in the driver, on threads.

The servers do the work, a few statements at a time; `compare` describes the method, and
docs/adr/0004-validate-on-threads.md explains why it needs no Spark. Rows that a DDL lock holds are not in the target
yet: such a table differs, and its verdict names the lock. Rows that the dump has excluded (`where`) are ignored if all
places can evaluate the condition. Otherwise they are missing, and the verdict says why. A table that cannot be compared
has an error in place of a verdict; all others are compared.
"""

import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from unshard.adapters import mysql, structures, tablerows
from unshard.config import Instance, ShardMode
from unshard.core.ddl.queue import ShardState
from unshard.core.join.joined import JoinedTarget
from unshard.core.model import Shard, TableId, TableSchema
from unshard.core.rules.filters import ALL_ROWS, ValidationFilter, look_through, refused
from unshard.core.sql.keyrange import KeyRange
from unshard.core.validate.checksum import PLACE_TARGET, LeftOut, Reason, compare_structures
from unshard.core.validate.comparedrows import ALL_AS_THEY_ARE, TargetColumns, target_columns, without_columns
from unshard.core.validate.rowdifferences import Because, Difference, NotYetInTarget
from unshard.errors import UnshardError
from unshard.errors.rows import NoTargetTable, NothingInCommon, NothingToValidate
from unshard.units.full.discover import FoundShards, find_shards
from unshard.units.validate.compare import (
    ComparedTable,
    Sessions,
    Sum,
    TableCheck,
    agree,
    checksums,
    joined_place,
    named_place,
    narrow,
    ranges,
    reshaped_place,
    union,
)
from unshard.units.work import Work


def condition_of(work: Work, source: str) -> str:
    """Return the condition with which a source was dumped, or will be dumped."""
    is_known = work.meta.sources.get(source) is not None
    return work.meta.conditions.get(source) if is_known else work.task.instance(source).dump.where


def validation_filter(sessions: Sessions, check: TableCheck, known: Mapping[str, str]) -> TableCheck:
    """Return the check under the condition of its sources' dumps, if it has the same meaning in all places."""
    looked = look_through(known, changed_columns(check.shards))
    if looked.condition:
        filtered = _under(check, looked.condition)
        looked = refused(looked, _messages(sessions, filtered, looked))
        check = filtered if looked.condition else check
    return replace(check, through=looked)


def changed_columns(shards: Sequence[ComparedTable]) -> set[str]:
    """Return the columns, in lower case, whose values a rule fills or changes."""
    reshaped = [place.reshaped for place in shards if place.reshaped]
    filled = {name for each in reshaped for name, _ in each.constants}
    return filled | {name for each in reshaped for name, _, _ in each.mapped}


def _under(check: TableCheck, condition: str) -> TableCheck:
    target, *shards = (replace(place, only=condition) for place in check.places)
    return replace(check, target=target, shards=tuple(shards))


def _messages(sessions: Sessions, check: TableCheck, looked: ValidationFilter) -> dict[str, str]:
    places: dict[tuple[object, str], ComparedTable] = {}
    for place in check.places:
        places.setdefault((place.server, place.schema.shape), place)
    asked = {
        place.name: tablerows.condition_refusal(sessions.connection(place), place.table, looked.condition)
        for place in places.values()
    }
    return {name: message for name, message in asked.items() if message}


# --- the validation


@dataclass(frozen=True, slots=True)
class Settings:
    """Options for thoroughness and speed."""

    threads: int = 4
    chunk_rows: int = 50_000
    rows_per_shard: int = 1_000
    """Minimum number of rows per shard in a chunk; with fewer, the statements would cost more than the rows."""
    limit: int = 20
    """Number of differing keys that are named per table."""


DEFAULTS = Settings()
MOST_DIVERTED = 10_000
"""Number of diverted rows that are searched for among the differences."""


@dataclass(frozen=True, slots=True)
class TableResult:
    """The result for one target table."""

    target: TableId
    key: tuple[str, ...]
    compared: tuple[str, ...]
    left_out: tuple[LeftOut, ...]
    shards: int
    chunks: int
    rows_target: int
    rows_union: int
    differences: tuple[Difference, ...]
    differing_chunks: int
    waiting: NotYetInTarget
    seconds: float
    unseen: tuple[str, ...] = ()
    """Shards that their source does not show: dropped or renamed meanwhile, or the account may not read them."""
    through: ValidationFilter = ALL_ROWS
    error: UnshardError | None = None
    """Why there is no verdict; nothing of the table was compared then."""

    @property
    def lost_columns(self) -> tuple[str, ...]:
        """Columns of shards that the target lacks and no open DDL lock explains."""
        if self.waiting.locks or self.waiting.shards:
            return ()
        return tuple(each.column for each in self.left_out if each.reason is Reason.NOT_IN_TARGET)

    def because(self, difference: Difference) -> Because | None:
        return self.waiting.because(self.key, difference)

    @property
    def equal(self) -> bool:
        """Whether target and union agree in everything that was compared, and no column is lost."""
        return not self.error and not self.differs

    @property
    def differs(self) -> bool:
        return bool(self.differing_chunks or self.lost_columns)


@dataclass(frozen=True, slots=True)
class Chunked:
    """Progress: the number of compared rows of a table."""

    target: TableId
    chunks: int
    rows: int


@dataclass(frozen=True, slots=True)
class ChunkResult:
    """One compared range. It has `differences` only if the sums differ, and no more than the limit."""

    sums: Mapping[str, Sum]
    differences: tuple[Difference, ...] = ()


@dataclass(frozen=True, slots=True)
class Incomparable:
    """A target table that cannot be compared, and why."""

    target: TableId
    error: UnshardError
    shards: int = 0
    unseen: tuple[str, ...] = ()


_Found = tuple[Shard, TableSchema]
Watch = Callable[[Chunked], None]
Comparer = Callable[[TableCheck], Iterator[ChunkResult]]
"""Compares all ranges of a table: on threads here, on Spark in spark_jobs/validate_table.py."""


def validate(
    work: Work,
    tables: Sequence[TableId] = (),
    settings: Settings = DEFAULTS,
    watch: Watch = lambda _: None,
    comparer: Comparer | None = None,
) -> tuple[TableResult, ...]:
    """Compare the target tables of the task, or only `tables`, and name the differences."""
    checks = plan_checks(work, tables)
    waiting = _waiting(work)
    with Sessions() as sessions, _pool(settings.threads) as pool:
        compare = comparer or (lambda check: _on_threads(check, settings, sessions, pool))
        return tuple(_verdict(each, waiting.get(_target_of(each), NotYetInTarget()), compare, watch) for each in checks)


def _target_of(each: TableCheck | Incomparable) -> TableId:
    return each.target if isinstance(each, Incomparable) else each.target.table


def _verdict(each: TableCheck | Incomparable, waiting: NotYetInTarget, compare: Comparer, watch: Watch) -> TableResult:
    """Compare a table; an error that concerns it alone becomes its result."""
    if isinstance(each, Incomparable):
        return _without_verdict(each, waiting)
    try:
        return _judged(each, waiting, compare(each), watch)
    except UnshardError as error:
        found = _incomparable(each.target.table, error, len(each.shards), each.unseen)
        return _without_verdict(found, waiting)


def _incomparable(target: TableId, error: UnshardError, shards: int = 0, unseen: Sequence[str] = ()) -> Incomparable:
    """Return the table without a verdict; raises a transient error, after which the others would fail as well."""
    if error.transient:
        raise error
    return Incomparable(target, error, shards, tuple(unseen))


def _without_verdict(each: Incomparable, waiting: NotYetInTarget) -> TableResult:
    return TableResult(
        target=each.target,
        key=(),
        compared=(),
        left_out=(),
        shards=each.shards,
        chunks=0,
        rows_target=0,
        rows_union=0,
        differences=(),
        differing_chunks=0,
        waiting=waiting,
        seconds=0.0,
        unseen=each.unseen,
        error=each.error,
    )


def unfed(work: Work) -> tuple[TableId, ...]:
    """Return the target tables that exist and that no shard feeds any more: their rows are of dropped shards."""
    return tuple(sorted(work.present({*work.meta.structures.unfed_targets()})))


def chunk_rows(check: TableCheck, settings: Settings) -> int:
    """Return the number of target rows of one range."""
    return max(settings.chunk_rows, settings.rows_per_shard * len(check.shards))


def plan_checks(work: Work, tables: Sequence[TableId] = ()) -> tuple[TableCheck | Incomparable, ...]:
    """Find shards and target tables, read their structures, decide how to compare them."""
    found = _Inventory()
    for source in work.sources:
        _add_source(work, source, tables, found)
    if absent := [str(table) for table in tables if table not in found.targets]:
        raise NothingToValidate(f" {', '.join(absent)}")
    if not found.targets:
        raise NothingToValidate("")
    found.present = work.present(set(found.targets))
    if work.task.shard_mode is ShardMode.OPTIMISTIC:
        found.joined = {joined.target: joined for joined in work.meta.joins.all()}
    with Sessions() as sessions:
        return tuple(_planned(work, target, found, sessions) for target in found.targets)


@dataclass(slots=True)
class _Inventory:
    """The tables to compare, by target, and the conditions of the dumps, by source."""

    shards: dict[TableId, list[_Found]] = field(default_factory=lambda: defaultdict(list))
    unseen: dict[TableId, list[str]] = field(default_factory=lambda: defaultdict(list))
    errors: dict[TableId, UnshardError] = field(default_factory=dict)
    """Why the structure of a shard cannot be read; the first one of each target."""
    present: dict[TableId, TableSchema] = field(default_factory=dict)
    conditions: dict[str, str] = field(default_factory=dict)
    columns: dict[Shard, TargetColumns] = field(default_factory=dict)
    """Where the target has the columns of the shards; shards without an applied structure are missing."""
    joined: dict[TableId, JoinedTarget] = field(default_factory=dict)
    """The targets that follow the join of their shards."""

    @property
    def targets(self) -> list[TableId]:
        return sorted({*self.shards, *self.unseen, *self.errors})


def _add_source(work: Work, source: str, tables: Sequence[TableId], inventory: _Inventory) -> None:
    with contextlib.closing(mysql.connect(work.sources[source], f"source {source}")) as connection:
        states, instance = work.meta.structures.shards(source), work.task.instance(source)
        inventory.conditions[source] = condition_of(work, source)
        found = find_shards(connection, instance, {state.shard.table for state in states})
        for problem in found.problems:
            raise problem
        for state in states:
            if _is_unseen(state, found, instance) and (not tables or state.target in tables):
                inventory.unseen[state.target].append(str(state.shard))
        dropped = {state.shard.table for state in states if state.is_dropped}
        wanted = [
            table
            for table, target in found.targets.items()
            if table not in dropped and (not tables or target in tables)
        ]
        schemas, refused = structures.read_each(connection, sorted(wanted))
    known = {state.shard.table: state.structure for state in states if state.structure}
    tracked = work.meta.structures.get(set(known.values()))
    missing = work.meta.locks.behind({Shard(source, table) for table in known})
    for table, schema in schemas.items():
        shard = Shard(source, table)
        inventory.shards[found.targets[table]].append((shard, schema))
        if table in known:
            inventory.columns[shard] = target_columns(schema, tracked[known[table]], missing.get((shard, None), ()))
    for table, error in refused.items():
        inventory.errors.setdefault(found.targets[table], error)


def _planned(work: Work, target: TableId, found: _Inventory, sessions: Sessions) -> TableCheck | Incomparable:
    shards, unseen = found.shards[target], tuple(found.unseen[target])
    try:
        if target in found.errors:
            raise found.errors[target]
        check = _check(work, target, found, shards)
        conditions = {shard.source: found.conditions[shard.source] for shard, _ in shards}
        return replace(validation_filter(sessions, check, conditions), unseen=unseen)
    except UnshardError as error:
        return _incomparable(target, error, len(shards), unseen)


def _is_unseen(state: ShardState, found: FoundShards, instance: Instance) -> bool:
    is_shard = (
        not (state.has_left or state.is_dropped) and instance.routing.target_of(state.shard.table) == state.target
    )
    return is_shard and state.shard.table not in found.targets


def _check(work: Work, target: TableId, found: _Inventory, shards: Sequence[_Found]) -> TableCheck:
    if target not in found.present:
        raise NoTargetTable(str(target))
    place = ComparedTable(PLACE_TARGET, work.target, target, found.present[target])
    known = () if target in found.joined else shards
    columns = [found.columns.get(shard, ALL_AS_THEY_ARE) for shard, _ in known]
    places = tuple(_place(work, shard, schema, place, found) for shard, schema in shards)
    structures_by_place = {each.name: each.schema for each in (place, *places)}
    dropped = {name for own in columns for name in own.dropped}
    comparison = compare_structures(structures_by_place, changed_columns(places), dropped)
    if not comparison.forms:
        reasons = "; ".join(f"{each.column} is {each.reason}" for each in comparison.left_out)
        raise NothingInCommon(str(target), reasons)
    return TableCheck(place, places, comparison)


def _place(
    work: Work, shard: Shard, structure: TableSchema, target: ComparedTable, inventory: _Inventory
) -> ComparedTable:
    server, joined = work.sources[shard.source], inventory.joined.get(target.table)
    if joined is not None and shard in joined.group.members:
        whole = ComparedTable(str(shard), server, shard.table, structure)
        place = joined_place(whole, target, joined, joined.group.members[shard])
    else:
        columns = inventory.columns.get(shard, ALL_AS_THEY_ARE)
        kept = without_columns(structure, columns.dropped)
        place = named_place(ComparedTable(str(shard), server, shard.table, kept), columns.names)
    return reshaped_place(place, target, work.task.instance(shard.source).routing.reshaping(shard.table))


def _waiting(work: Work) -> dict[TableId, NotYetInTarget]:
    """Return per target the shards whose rows wait, the locks that they wait for, and the diverted rows."""
    locks: dict[TableId, list[str]] = defaultdict(list)
    for lock in work.meta.locks.open():
        locks[lock.target].append(str(lock.id))
    held = [state for state in work.meta.structures.shards() if state.queue or state.held]
    suspended, diverted = work.meta.suspended_targets.all(), work.meta.row_errors.all(MOST_DIVERTED, only_open=True)
    return {
        target: NotYetInTarget(
            tuple(locks.get(target, ())),
            sum(file.rows for state in held if state.target == target for file in state.held),
            tuple(str(state.shard) for state in held if state.target == target),
            tuple(each for each in suspended if each.target == target),
            tuple(error for error in diverted if error.target == target),
        )
        for target in {
            *locks,
            *(s.target for s in held),
            *(each.target for each in suspended),
            *(row.target for row in diverted),
        }
    }


@contextlib.contextmanager
def _pool(threads: int) -> Iterator[ThreadPoolExecutor]:
    """Return a pool that is not waited for if the block is left by an error or an interruption."""
    pool = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="validate")
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()


def _judged(check: TableCheck, waiting: NotYetInTarget, results: Iterator[ChunkResult], watch: Watch) -> TableResult:
    began = time.monotonic()
    target, shards, chunks, differing = Sum(), Sum(), 0, 0
    differences: list[Difference] = []
    for result in results:
        chunks += 1
        target, shards = target + result.sums[PLACE_TARGET], shards + union(result.sums)
        differing += not agree(result.sums)
        differences += result.differences
        watch(Chunked(check.target.table, chunks, target.rows))
    comparison = check.comparison
    return TableResult(
        target=check.target.table,
        key=comparison.key,
        compared=tuple(form.column for form in comparison.forms),
        left_out=comparison.left_out,
        shards=len(check.shards),
        chunks=chunks,
        rows_target=target.rows,
        rows_union=shards.rows,
        differences=tuple(differences),
        differing_chunks=differing,
        waiting=waiting,
        seconds=time.monotonic() - began,
        unseen=check.unseen,
        through=check.through,
    )


def _on_threads(
    check: TableCheck, settings: Settings, sessions: Sessions, pool: ThreadPoolExecutor
) -> Iterator[ChunkResult]:
    """Compare all ranges first, then narrow the differing ones until enough keys are named."""
    suspects: list[tuple[KeyRange, dict[str, Sum]]] = []
    for span, sums in _compared(check, settings, sessions, pool):
        if agree(sums):
            yield ChunkResult(sums)
        else:
            suspects.append((span, sums))
    found = 0
    for first in range(0, len(suspects), settings.threads):
        some = suspects[first : first + settings.threads]
        enough = found >= settings.limit
        asked = [None if enough else pool.submit(narrow, sessions, check, span, settings.limit) for span, _ in some]
        for (_, sums), future in zip(some, asked, strict=True):
            differences = tuple(future.result()) if future else ()
            found += len(differences)
            yield ChunkResult(sums, differences)


def _compared(
    check: TableCheck, settings: Settings, sessions: Sessions, pool: ThreadPoolExecutor
) -> Iterator[tuple[KeyRange, dict[str, Sum]]]:
    """Yield the sums of each range; the servers work a few ranges ahead."""
    ahead: list[tuple[KeyRange, list[Future[dict[str, Sum]]]]] = []
    for span in ranges(sessions, check, chunk_rows(check, settings)):
        ahead.append((span, [pool.submit(checksums, sessions, check, p, span) for p in check.by_server]))
        if len(ahead) > 2 * settings.threads:
            yield _collected(*ahead.pop(0))
    for span, asked in ahead:
        yield _collected(span, asked)


def _collected(span: KeyRange, asked: Sequence[Future[dict[str, Sum]]]) -> tuple[KeyRange, dict[str, Sum]]:
    sums: dict[str, Sum] = {}
    for each in asked:
        sums |= each.result()
    return span, sums
