"""Validate that every target table is the union of its shards. Runs in the driver, on threads.

The servers do the work, a few statements at a time; each target table is compared with the union of its shards, and
docs/adr/0004-validate-on-threads.md explains why it needs no Spark. Rows that a DDL lock holds are not in the target
yet: such a table differs, and its verdict names the lock. Rows that the dump has excluded (`where`) are ignored if all
places can evaluate the condition. Otherwise they are missing, and the verdict says why. A table that cannot be compared
has an error in place of a verdict; all others are compared.

Each statement sees its own moment, so rows that are being written differ at first. Each differing key is compared again
and judged by the binlog (core/validate/proof.py): it is a proven difference, or a change of it is on its way.
"""

import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import chain
from math import inf

from unshard.adapters import mysql, structures, tablerows
from unshard.config import Instance, ShardMode
from unshard.core.ddl.columnnames import Names, with_names
from unshard.core.ddl.queue import ShardState
from unshard.core.join.group import Member
from unshard.core.join.joined import JoinedTarget
from unshard.core.model import Location, Shard, TableId, TableSchema
from unshard.core.rules.filters import ALL_ROWS, ValidationFilter, look_through, refused
from unshard.core.rules.reshaping import Reshaping, seen, shard_with_names
from unshard.core.shown import one_line
from unshard.core.sql.keyrange import KeyRange
from unshard.core.structures.comparison import ROWS_OF_TARGET, number_differences, target_differences
from unshard.core.validate.checksum import PLACE_TARGET, LeftOut, Reason, compare_structures
from unshard.core.validate.comparedrows import (
    ALL_AS_THEY_ARE,
    TargetColumns,
    columns_in_target,
    compared_rows,
    without_columns,
)
from unshard.core.validate.ledger import Chosen, JudgedRange, RangeFound, RangeVerdict, chosen
from unshard.core.validate.pace import RESTS
from unshard.core.validate.proof import Touched, Verdict
from unshard.core.validate.rowdifferences import NotYetInTarget, RowDifference
from unshard.errors import UnshardError
from unshard.errors.rows import NoTargetTable, NothingInCommon, NothingToValidate
from unshard.units.ddl import coordinate
from unshard.units.ddl.scene import LockFacts
from unshard.units.full.discover import FoundShards, find_shards
from unshard.units.validate.evidence import binlog_ends, binlogs_since, held_keys, positions
from unshard.units.validate.pacing import Resting
from unshard.units.validate.ranges import (
    ComparedRange,
    ComparedTable,
    Sessions,
    SizedRanges,
    Sum,
    TableCheck,
    agree,
    columns_of_rules,
    narrow,
    number_of_target,
    numbers_of_shards,
    union,
)
from unshard.units.work import Work


def reshaped_place(shard: ComparedTable, target: ComparedTable, reshaping: Reshaping) -> ComparedTable:
    """Return the place with the columns that the shard's names fill or change for the target."""
    if not reshaping:
        return shard
    found = seen(shard.name, shard.table, shard.schema, target.table, target.schema, reshaping)
    return replace(shard, schema=found.structure, reshaped=replace(found, named=shard.seen.named))


def named_place(shard: ComparedTable, names: Names) -> ComparedTable:
    """Return the place with the target's names of its columns."""
    if not names:
        return shard
    found = shard_with_names(shard.table, with_names(shard.schema, names))
    return replace(shard, schema=found.structure, reshaped=found)


def joined_place(shard: ComparedTable, target: ComparedTable, joined: JoinedTarget, member: Member) -> ComparedTable:
    """Return the place with the columns of a target that follows the join of its shards."""
    found = compared_rows(shard.table, shard.schema, target.schema, joined.names, member, joined.group.columns)
    return replace(shard, schema=found.structure, reshaped=found)


def stored_condition(work: Work, source: str) -> str:
    """Return the condition with which a source was dumped, or will be dumped."""
    is_known = work.meta.sources.get(source) is not None
    return work.meta.conditions.get(source) if is_known else work.task.instance(source).dump.where


def validation_filter(sessions: Sessions, check: TableCheck, known: Mapping[str, str]) -> TableCheck:
    """Return the check under the condition of its sources' dumps, if it has the same meaning in all places."""
    looked = look_through(known, columns_of_rules(check.shards))
    if looked.condition:
        target, *shards = (replace(place, only=looked.condition) for place in check.places)
        filtered = replace(check, target=target, shards=tuple(shards))
        looked = refused(looked, _messages(sessions, filtered, looked))
        check = filtered if looked.condition else check
    return replace(check, through=looked)


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
    """Most rows of a range; it has fewer if the servers would sum it longer than half a second."""
    rows_per_shard: int = 1_000
    """Minimum number of rows per shard in a chunk; with fewer, the statements would cost more than the rows."""
    limit: int = 20
    """Number of differing keys that are named per table."""
    wait: float = 60.0
    """Seconds that pending keys of a table are waited for."""
    still: float = 5.0
    """Windows that have not moved for so many seconds are not waited for."""
    resumes: bool = False
    """Whether to leave out the ranges that the last validation has compared and found equal."""
    older_than: timedelta | None = None
    """Leave out the ranges that were equal in the time before that."""
    rate: int = 0
    """Most rows of the target per second; 0: as many as windows leave time for."""
    rests: float = RESTS
    """Seconds of rest for a second of the servers' work, while windows run; 0: it leaves them no time."""
    until: datetime | None = None
    """Begin no range after that time."""
    number: int = 0
    """Number of the validation, if the caller has chosen it: the ranges that `still_proven` names are left out."""
    still_proven: Mapping[TableId, Callable[[JudgedRange], bool]] = field(default_factory=dict)


DEFAULTS = Settings()
NAMED_PER_RANGE = 20_000
"""Differing keys of a range that are looked at: most of them may be on their way."""
PLANS = 5
"""How often a table is compared anew because its structures change."""
POLL_SECONDS = 0.05
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
    differing: Mapping[KeyRange, Sequence[RowDifference]]
    """Proven and explained differences, by chunk."""
    waiting: NotYetInTarget
    seconds: float
    pending: tuple[RowDifference, ...] = ()
    """Keys that changes on their way may make equal."""
    why_pending: str = ""
    """Why every difference is pending, if that has a reason of its own."""
    unseen: tuple[str, ...] = ()
    """Shards that their source does not show: dropped or renamed meanwhile, or the account may not read them."""
    through: ValidationFilter = ALL_ROWS
    error: UnshardError | None = None
    """Why there is no verdict; nothing of the table was compared then."""
    left_out_chunks: int = 0
    """Chunks that an earlier validation has found equal, and that were not compared again."""
    left_out_rows: int = 0
    is_cut: bool = False
    """Whether the time was over before all chunks were compared."""
    structure: tuple[str, ...] = ()
    """How the structure of the target differs from those of its shards, beside columns that only some places have."""
    lacked: tuple[LeftOut, ...] = ()
    """The columns of `left_out` that the target lacks and no DDL lock explains."""
    reloads: tuple[str, ...] = ()
    """Of a table that differs: DDLs that have filled columns with each server's own values, and the remedies."""

    @property
    def named_by(self) -> tuple[str, ...]:
        """The columns that name a row: those of the key, or all."""
        return self.key or self.compared

    @property
    def differences(self) -> tuple[RowDifference, ...]:
        return tuple(chain.from_iterable(self.differing.values()))

    @property
    def differing_chunks(self) -> int:
        return len(self.differing)

    @property
    def lost_columns(self) -> tuple[str, ...]:
        """Columns of shards that the target lacks, although no DDL of them is on its way."""
        return tuple(each.column for each in self.lacked if each.reason is Reason.NOT_IN_TARGET)

    @property
    def coming_columns(self) -> tuple[str, ...]:
        """Columns whose DDL, or whose values of some shards, are on their way to the target."""
        return tuple(each.column for each in self.lacked if each.reason is Reason.ON_ITS_WAY)

    @property
    def equal(self) -> bool:
        """Whether target and union agree in everything that was compared, and no column is lost."""
        return not (self.error or self.differs or self.pending or self.coming_columns or self.is_cut)

    @property
    def differs(self) -> bool:
        return bool(self.differing_chunks or self.lost_columns)


@dataclass(frozen=True, slots=True)
class Chunked:
    """Progress: the number of compared rows of a table."""

    target: TableId
    chunks: int
    rows: int
    seconds: float = 0.0
    of_rows: int = 0
    """The rows to compare, as far as an earlier validation has counted them; 0: not known."""


@dataclass(frozen=True, slots=True)
class KeysPending:
    """Progress: so many keys of a table wait for windows."""

    target: TableId
    keys: int


@dataclass(frozen=True, slots=True)
class Yielding:
    """Progress: the lag of these sources has grown, so their windows are waited for."""

    target: TableId
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Incomparable:
    """A target table that cannot be compared, and why."""

    target: TableId
    error: UnshardError
    shards: int = 0
    unseen: tuple[str, ...] = ()


_Found = tuple[Shard, TableSchema]
Watch = Callable[[Chunked | KeysPending | Yielding], None]
Comparer = Callable[[TableCheck, Sequence[KeyRange]], Iterator[ComparedRange]]
"""Compares ranges of a table, divided into chunks: on threads here, on Spark in spark_jobs/validate_table.py."""


def validate(
    work: Work,
    tables: Sequence[TableId] = (),
    settings: Settings = DEFAULTS,
    watch: Watch = lambda _: None,
    comparer: Comparer | None = None,
) -> tuple[TableResult, ...]:
    """Compare the target tables of the task, or only `tables`, and name the differences."""
    return compare_all(work, plan_checks(work, tables), settings, watch, comparer)


def compare_all(
    work: Work,
    checks: Sequence[TableCheck | Incomparable],
    settings: Settings,
    watch: Watch,
    comparer: Comparer | None = None,
) -> tuple[TableResult, ...]:
    """Compare tables as it is planned."""
    waiting = _waiting(work)
    with Sessions() as sessions, pool_of(settings.threads) as pool:
        compare = comparer or (
            lambda check, spans: sized_ranges(work, check, settings, sessions, pool, watch).compared(spans)
        )
        comparison = TableComparison(work, settings, sessions, pool, compare, watch)
        found = [_verdict(each, waiting.get(_target_of(each), NotYetInTarget()), comparison) for each in checks]
    resolved = coordinate.facts(work.meta, resolved=True) if any(each.differs for each in found) else ()
    return tuple(replace(each, reloads=_reloads(each, resolved)) for each in found)


def _reloads(result: TableResult, locks: Sequence[LockFacts]) -> tuple[str, ...]:
    if not result.differs:
        return ()
    return tuple(
        f"`{one_line(lock.ddl)}` {lock.warning}" for lock in locks if lock.target == result.target and lock.warning
    )


def sized_ranges(
    work: Work, check: TableCheck, settings: Settings, sessions: Sessions, pool: ThreadPoolExecutor, watch: Watch
) -> SizedRanges:
    """Return the comparison of a table's ranges on threads, which rests beside windows."""
    places = {place.name.split()[0]: place for place in check.shards} if work.task.task_mode.syncs else {}
    connections = {source: partial(sessions.connection, place) for source, place in places.items()}

    def tell(lagging: tuple[str, ...]) -> None:
        watch(Yielding(check.target.table, lagging))

    pace = Resting(work, connections, settings.rests, bool(settings.rate), tell)
    bounds = settings.rows_per_shard * len(check.shards), chunk_rows(check, settings)
    return SizedRanges(check, bounds, sessions, pool, 2 * settings.threads, pace)


def _target_of(each: TableCheck | Incomparable) -> TableId:
    return each.target if isinstance(each, Incomparable) else each.target.table


def _verdict(each: TableCheck | Incomparable, waiting: NotYetInTarget, comparison: "TableComparison") -> TableResult:
    """Compare a table; an error that concerns it alone becomes its result, unless a DDL has come meanwhile."""
    for _ in range(PLANS):
        if isinstance(each, Incomparable):
            break
        try:
            return comparison.judged(each, waiting)
        except UnshardError as error:
            found = _incomparable(each.target.table, error, len(each.shards), each.unseen)
        (again,) = plan_checks(comparison.work, [found.target])
        each = found if again == each else again
    else:
        each = found
    return _without_verdict(each, waiting)


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
        differing={},
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


def planned_check(work: Work, target: TableId) -> TableCheck:
    """Return how a table is compared now; raises why it cannot be."""
    (planned,) = plan_checks(work, [target])
    if isinstance(planned, Incomparable):
        raise planned.error
    return planned


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
        inventory.conditions[source] = stored_condition(work, source)
        is_followed = work.task.task_mode.syncs and work.meta.sources.get(source) is not None
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
        columns = TargetColumns(coming=frozenset(map(str.lower, schema.names)))
        if table in known:
            columns = columns_in_target(schema, tracked[known[table]], missing.get((shard, None), ()))
        inventory.columns[shard] = columns if is_followed else replace(columns, coming=frozenset())
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
    coming = {name for shard, _ in shards for name in found.columns[shard].coming}
    if joined := found.joined.get(target):
        read_again = (each.column for member in joined.group.members.values() for each in member.reloads)
        coming |= {joined.names[id] for id in read_again if id in joined.names}
    comparison = compare_structures(structures_by_place, columns_of_rules(places), dropped, coming)
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
def pool_of(threads: int) -> Iterator[ThreadPoolExecutor]:
    """Return a pool that is not waited for if the block is left by an error or an interruption."""
    pool = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="validate")
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()


@dataclass(frozen=True, slots=True)
class _Narrowed:
    """What is known of the ranges whose sums differ."""

    settled: Mapping[KeyRange, Sequence[RowDifference]]
    """Proven and explained differences."""
    pending: Mapping[KeyRange, Sequence[RowDifference]]
    why_pending: str
    waiting: NotYetInTarget

    def verdict(self, span: KeyRange) -> RangeVerdict:
        if span in self.settled:
            return RangeVerdict.DIFFERENT
        return RangeVerdict.PENDING if span in self.pending else RangeVerdict.EQUAL


@dataclass(frozen=True, slots=True)
class TableComparison:
    """Compares a table: first the sums of all ranges, then the rows of those that differ, until all is settled."""

    work: Work
    settings: Settings
    sessions: Sessions
    pool: ThreadPoolExecutor
    compare: Comparer
    watch: Watch

    def judged(self, check: TableCheck, waiting: NotYetInTarget) -> TableResult:
        began = time.monotonic()
        check, waiting = self._arrived(check, waiting)
        given = self._numbers(check)
        table, comparison = check.target.table, check.comparison
        plan, number = self._chosen(table, comparison.key)
        target, shards, chunks, suspects, is_cut = Sum(), Sum(), 0, dict[KeyRange, int](), False
        for span, sums in self.compare(check, plan.due) if plan.due else ():
            if is_cut := self._is_over(began, target.rows):
                break
            chunks += 1
            target, shards = target + sums[PLACE_TARGET], shards + union(sums)
            if agree(sums):
                found = RangeFound(sums[PLACE_TARGET].rows, RangeVerdict.EQUAL, sums[PLACE_TARGET].total)
                self._record(check, span, found, number)
            else:
                suspects[span] = sums[PLACE_TARGET].rows
            self.watch(Chunked(table, chunks, target.rows, time.monotonic() - began, plan.rows))
        narrowed = self._narrowed(check, [*suspects]) if suspects else _Narrowed({}, {}, "", waiting)
        for span, rows in suspects.items():
            self._record(check, span, RangeFound(rows, narrowed.verdict(span)), number)
        return TableResult(
            target=table,
            key=comparison.key,
            compared=tuple(form.column for form in comparison.forms),
            left_out=comparison.left_out,
            lacked=_lacked(check, waiting),
            shards=len(check.shards),
            chunks=chunks,
            rows_target=target.rows,
            rows_union=shards.rows,
            differing=narrowed.settled,
            waiting=narrowed.waiting,
            seconds=time.monotonic() - began,
            unseen=check.unseen,
            through=check.through,
            pending=tuple(chain.from_iterable(narrowed.pending.values())),
            why_pending=narrowed.why_pending,
            left_out_chunks=len(plan.left_out),
            left_out_rows=sum(each.found.rows for each in plan.left_out),
            is_cut=is_cut,
            structure=(
                *target_differences(check.target.schema, {each.name: each.schema for each in check.shards}),
                *self._wrong_numbers(check, *given),
            ),
        )

    def _arrived(self, check: TableCheck, waiting: NotYetInTarget) -> tuple[TableCheck, NotYetInTarget]:
        """Look again at columns that the target lacks: their DDL may be on its way, or has come meanwhile."""
        target, lacked = check.target.table, _lacked(check, waiting)
        if not lacked:
            return check, waiting
        if any(each.reason is Reason.ON_ITS_WAY for each in lacked):
            sources = positions(self.work, [*check.tables_by_source])
            self._passed(binlog_ends(self.work, sources), time.monotonic() + self.settings.wait)
        before, again = _waiting(self.work), planned_check(self.work, target)
        return again, before.get(target) or _waiting(self.work).get(target, NotYetInTarget())

    def _numbers(self, check: TableCheck) -> tuple[Mapping[str, int], Mapping[str, Location]]:
        """Return the next AUTO_INCREMENT values of the shards, and how far windows must come to bring their rows."""
        given = numbers_of_shards(self.sessions, check)
        number, _ = number_of_target(self.sessions, check) if given and self.work.task.task_mode.syncs else (inf, 0)
        sources = positions(self.work, [*check.tables_by_source]) if max(given.values(), default=0) > number else ()
        return given, binlog_ends(self.work, sources)

    def _wrong_numbers(
        self, check: TableCheck, given: Mapping[str, int], until: Mapping[str, Location]
    ) -> tuple[str, ...]:
        """Return that the target would give a number by AUTO_INCREMENT that is given already, and what mends it."""
        reached = positions(self.work, [*until])
        number, after_rows = number_of_target(self.sessions, check)
        if any(reached[source] < end for source, end in until.items()):
            given = {}  # their rows may be on their way
        return number_differences(check.target.table, number, {**given, ROWS_OF_TARGET: after_rows})

    def _chosen(self, target: TableId, key: Sequence[str]) -> tuple[Chosen, int]:
        """Choose the ranges to compare by the ledger; return the number of this validation, too."""
        ledger, settings = self.work.meta.judged_ranges, self.settings
        known = ledger.of(target, key)
        number = settings.number or max((each.round for each in known), default=0)
        if settings.older_than is not None:
            since = ledger.now() - settings.older_than
            plan = chosen(known, lambda each: each.at >= since)
        elif settings.number:
            plan = chosen(known, settings.still_proven.get(target, lambda _: False))
        else:
            plan = chosen(known, lambda each: settings.resumes and each.round == number)
        ledger.forget(target, key, plan.stale)
        return plan, number if settings.number or (settings.resumes and number) else number + 1

    def _record(self, check: TableCheck, span: KeyRange, found: RangeFound, number: int) -> None:
        self.work.meta.judged_ranges.record(check.target.table, check.comparison.key, span, found, number)

    def _is_over(self, began: float, rows: int) -> bool:
        """Keep the rate; return whether the time of the validation is over."""
        if self.settings.rate:
            time.sleep(max(0.0, began + rows / self.settings.rate - time.monotonic()))
        return self.settings.until is not None and datetime.now(UTC) >= self.settings.until

    def _narrowed(self, check: TableCheck, suspects: Sequence[KeyRange]) -> _Narrowed:
        """Compare the rows of ranges again and again, until no key is pending or there is no point in waiting."""
        deadline = time.monotonic() + self.settings.wait
        found = self.looked_at(check, suspects)
        pending = {span: [*some] for span, some in found.pending.items()}
        settled = {span: [*some] for span, some in found.settled.items()}
        while True:
            if pending:
                self.watch(KeysPending(check.target.table, sum(map(len, pending.values()))))
            is_over = not pending or time.monotonic() > deadline
            if is_over or not self._passed(found.touched.until, deadline):
                return _Narrowed(settled, pending, found.touched.anything if pending else "", found.waiting)
            check = planned_check(self.work, check.target.table)
            # A key that was equal before has been decided, even if a later change of it is on its way now.
            undecided = {span: {each.key for each in some} for span, some in pending.items()}
            found = self.looked_at(check, [*undecided])
            for span, keys in undecided.items():
                settled.setdefault(span, []).extend(each for each in found.settled.get(span, ()) if each.key in keys)
                pending[span] = [each for each in found.pending.get(span, ()) if each.key in keys]
            settled = {span: some for span, some in settled.items() if some}
            pending = {span: some for span, some in pending.items() if some}

    def looked_at(self, check: TableCheck, spans: Sequence[KeyRange]) -> "Look":
        """Compare the rows of ranges, and decide on each difference."""
        sources = check.tables_by_source
        before, states = positions(self.work, [*sources]), self.work.meta.structures.shards()
        waiting = _waiting(self.work).get(check.target.table, NotYetInTarget())
        limit = NAMED_PER_RANGE if check.comparison.ranged else self.settings.limit
        asked = [self.pool.submit(narrow, self.sessions, check, span, limit) for span in spans]
        found = dict(zip(spans, (each.result() for each in asked), strict=True))
        if not any(found.values()):
            return Look({}, {}, Touched(), waiting)
        key = check.comparison.key
        with binlogs_since(self.work, before) as binlogs:
            touched = binlogs.touched(check.target.table, sources, key)
        if waiting.shards and check.comparison.ranged:
            held = dict.fromkeys(waiting.shards) | held_keys(self.work, states, check.target.table, key)
            waiting = replace(waiting, held_keys=held)
        if not touched.anything and planned_check(self.work, check.target.table) != check:
            touched = replace(touched, anything="a structure has changed during the comparison")
        settled, pending = dict[KeyRange, list[RowDifference]](), dict[KeyRange, list[RowDifference]]()
        for span, differences in found.items():
            for each in differences:
                verdict = touched.verdict(each, keyed=check.comparison.ranged)
                because = waiting.because(key, each)
                is_known = verdict is Verdict.PROVEN or because
                (settled if is_known else pending).setdefault(span, []).append(replace(each, because=because))
        return Look(settled, pending, touched, waiting)

    def _passed(self, until: Mapping[str, Location] | None, deadline: float) -> bool:
        """Wait until the windows have passed these positions; return whether they have, or still move."""
        wanted, reached, moved_at = until or {}, dict[str, Location](), time.monotonic()
        while wanted and (now := time.monotonic()) < deadline:
            found = positions(self.work, [*wanted])
            if all(found[source] >= end for source, end in wanted.items()):
                return True
            if found != reached:
                reached, moved_at = found, now
            if now - moved_at > self.settings.still:
                return False
            time.sleep(POLL_SECONDS)
        return False


def _lacked(check: TableCheck, waiting: NotYetInTarget) -> tuple[LeftOut, ...]:
    """Return the columns that the target lacks and no open lock explains."""
    if waiting.locks or waiting.shards:
        return ()
    return tuple(each for each in check.comparison.left_out if each.reason in (Reason.NOT_IN_TARGET, Reason.ON_ITS_WAY))


@dataclass(frozen=True, slots=True)
class Look:
    """One look at the rows of ranges."""

    settled: Mapping[KeyRange, Sequence[RowDifference]]
    pending: Mapping[KeyRange, Sequence[RowDifference]]
    touched: Touched
    waiting: NotYetInTarget
