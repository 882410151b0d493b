"""Repair target tables: rows whose difference is proven become those of their shards. Runs in the driver.

A first comparison finds the chunks that differ. Then up to MOST_KEYS keys of a chunk are repaired in one transaction of
the target:

1. lock the rows of the target's sources in the meta tables: no window of them can begin or end until the COMMIT
2. keep DDL of the target from running
3. compare the chunk again; only a key that is proven again is repaired (core/validate/proof.py)
4. read the rows of these keys from the shards, whole, after the transactions that change them
5. delete, update and insert rows of the target, record the keys in `operator_action`, COMMIT

**Why it is correct beside windows.** A proven key has no change between the checkpoints and the ends of the binlogs. So
no window that has begun has it, and none begins before the COMMIT. The rows of step 4 are found by the hashes of step
3: a row that has changed meanwhile is not found, and its key is left to the windows. A later change of the key is in a
later window, as it is for the chunks of a reload (units/window/reloading.py).

| process dies                  | what happens                                                        |
|-------------------------------|---------------------------------------------------------------------|
| in steps 1 to 5               | the server rolls back and releases the sources                      |
| in COMMIT, the answer is lost | the next comparison finds the chunk equal, or repairs it            |
| between two transactions      | the same command finds what is left                                 |
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TypeVar

import pyarrow as pa
from pymysql.connections import Connection

from unshard.adapters import mysql, textrows
from unshard.adapters.target import chunkprogress as chunks
from unshard.adapters.target.chunkprogress import Values
from unshard.adapters.target.fence import Pair, prepare_fence, record_write
from unshard.adapters.target.rowrepairs import RowRepairs, WholeRow
from unshard.adapters.target.session import open_session, repeated
from unshard.adapters.target.targetrows import Destination, LineForm
from unshard.core.ddl.issuedcommands import IssuedCommand
from unshard.core.ddl.queue import ShardState
from unshard.core.model import Column, TableId, TableSchema
from unshard.core.rules.reshaping import AS_IT_IS
from unshard.core.sql.keyrange import KeyRange
from unshard.core.sql.literals import expression
from unshard.core.validate import checksum
from unshard.core.validate.rowdifferences import DifferenceKind, FoldedKey, Key, RowDifference, folded_key
from unshard.errors import UnshardError
from unshard.units.rows.conversion import Conversion, convert
from unshard.units.validate.ranges import ComparedTable, Sessions, TableCheck, row_condition, shown_rows
from unshard.units.validate.validate import (
    DEFAULTS,
    Settings,
    TableComparison,
    TableResult,
    Watch,
    planned_check,
    pool_of,
    validate,
)
from unshard.units.window.reloading import refuse_waiting, whole_rows
from unshard.units.work import Work

T = TypeVar("T")
REPAIR = "repair"
MOST_KEYS = 1_000
"""Keys of one transaction."""
MOST_DIFFERENCES = 100_000
"""Differing keys of a table that one call repairs."""
CHANGED = "it has changed meanwhile: windows write it"
Chosen = Callable[[TableId, FoldedKey], bool]
"""Whether a repair may write a key."""


def every_key(_table: TableId, _key: FoldedKey) -> bool:
    """Choose all keys."""
    return True


@dataclass(frozen=True, slots=True)
class Left:
    """A difference that is not repaired, and why."""

    difference: RowDifference
    why: str


@dataclass(frozen=True, slots=True)
class TableRepair:
    """The repair of a table, before or after it is done."""

    result: TableResult
    to_repair: Mapping[KeyRange, Sequence[RowDifference]] = field(default_factory=dict)
    left: tuple[Left, ...] = ()
    repaired: tuple[RowDifference, ...] = ()

    @property
    def target(self) -> TableId:
        return self.result.target

    @property
    def planned(self) -> tuple[RowDifference, ...]:
        return tuple(chain.from_iterable(self.to_repair.values()))

    @property
    def is_done(self) -> bool:
        """Whether nothing of the table differs after the repair: a planned key is repaired, left, or equal by now."""
        return not (self.left or self.result.error or self.result.pending)


def plan_repair(
    work: Work,
    tables: Sequence[TableId] = (),
    settings: Settings = DEFAULTS,
    watch: Watch = lambda _: None,
    chosen: Chosen = every_key,
) -> tuple[TableRepair, ...]:
    """Compare tables and return what a repair of the chosen keys would do."""
    settings = replace(settings, limit=MOST_DIFFERENCES)
    return tuple(_planned(work, result, chosen) for result in validate(work, tables, settings, watch))


def _planned(work: Work, result: TableResult, chosen: Chosen) -> TableRepair:
    to_repair, left = defaultdict[KeyRange, list[RowDifference]](list), list[Left]()
    impossible = _impossible(work, _states(work, result.target)) if result.differing else ""
    for span, differences in result.differing.items():
        for each in differences:
            if not chosen(result.target, folded_key(each.key)):
                continue
            if why := impossible or _why_not(each):
                left.append(Left(each, why))
            else:
                to_repair[span].append(each)
    return TableRepair(result, to_repair, tuple(left))


def _why_not(difference: RowDifference) -> str:
    """Return why a difference is left; empty if it can be repaired."""
    if difference.because:
        return f"it is explained: {difference.because}"
    if difference.kind is DifferenceKind.COLLISION:
        return "several shards have the key: `unshard collisions`"
    if difference.kind is DifferenceKind.GENERATED:
        return "only values that the target generates differ: compare the expressions of the columns"
    return ""


def _states(work: Work, target: TableId) -> dict[str, ShardState]:
    """Return the shards that feed a target, by name."""
    found = (state for state in work.meta.structures.shards() if state.target == target)
    return {str(state.shard): state for state in found if not (state.has_left or state.is_dropped)}


def _impossible(work: Work, states: Mapping[str, ShardState]) -> str:
    """Return why no row of the target of these shards can be repaired now; empty if rows can."""
    for state in states.values():
        reshaping = work.task.instance(state.shard.source).routing.reshaping(state.shard.table) or AS_IT_IS
        if reshaping.events or reshaping.filters:
            return f"rows of {state.shard} are filtered, so the target need not have its rows"
    try:
        refuse_waiting(work, [*states.values()])
    except UnshardError as error:
        return str(error)
    structures = work.structures({state.structure for state in states.values()})
    for state in states.values():
        if any(column.own_name for column in structures[state.structure].columns):
            return f"a column has another name in {state.shard} than in its group"
    return ""


@dataclass(frozen=True, slots=True)
class PlannedRow:
    """A row of a planned repair, with the values of the compared columns as people read them."""

    difference: RowDifference
    before: Mapping[str, str | None]
    """Empty: the target has no such row."""
    after: Mapping[str, str | None]
    """Empty: no shard has such a row."""


def row_changes(work: Work, plan: TableRepair, most: int) -> tuple[PlannedRow, ...]:
    """Read the values that the first rows of a planned repair have in the target and in the shards."""
    check, found = planned_check(work, plan.target), list[PlannedRow]()
    with Sessions() as sessions:
        for span, differences in plan.to_repair.items():
            some = differences[: most - len(found)]
            there = shown_rows(sessions, check, check.target, span, {one for each in some for one in each.surplus})
            here: dict[str, Mapping[str, str | None]] = {}
            for place in check.shards:
                wanted = {one for each in some if place.name in each.shards for one in each.lacking}
                here |= shown_rows(sessions, check, place, span, wanted)
            found += [PlannedRow(each, _first(there, each.surplus), _first(here, each.lacking)) for each in some]
    return tuple(found)


def _first(rows: Mapping[str, Mapping[str, str | None]], hashes: Sequence[str]) -> Mapping[str, str | None]:
    return next((rows[each] for each in hashes if each in rows), {})


def repair(
    work: Work,
    plans: Sequence[TableRepair],
    command: IssuedCommand,
    settings: Settings = DEFAULTS,
    progress: Callable[[TableId, int], None] = lambda _table, _keys: None,
    tell: Callable[[str], None] | None = None,
) -> tuple[TableRepair, ...]:
    """Repair what is still proven; `command` is a person's command. Another call continues after an error.

    With `tell` nothing is written: it gets each statement that would be executed.
    """
    with Sessions() as sessions, pool_of(settings.threads) as pool:
        comparison = TableComparison(work, settings, sessions, pool, lambda *_: iter(()), lambda _: None)
        return tuple(_repaired(_Repair(work, each, comparison, command, tell), progress) for each in plans)


def _repaired(tables: "_Repair", progress: Callable[[TableId, int], None]) -> TableRepair:
    done: list[RowDifference] = []
    left: list[Left] = []
    for span, differences in tables.plan.to_repair.items():
        for first in range(0, len(differences), MOST_KEYS):
            wanted = {each.key for each in differences[first : first + MOST_KEYS]}
            some, others = repeated(lambda: tables.repaired(span, wanted))  # noqa: B023  called at once
            done += some
            left += others
            progress(tables.plan.target, len(done))
    return replace(tables.plan, repaired=tuple(done), left=(*tables.plan.left, *left))


@dataclass(frozen=True, slots=True)
class _Repair:
    """The repair of one table."""

    work: Work
    plan: TableRepair
    comparison: TableComparison
    command: IssuedCommand
    tell: Callable[[str], None] | None = None
    """Gets the statements, which are then not executed."""

    def repaired(self, span: KeyRange, wanted: Collection[Key]) -> tuple[list[RowDifference], list[Left]]:
        """Repair those of the keys that are still proven, in one transaction."""
        work, target = self.work, self.plan.target
        check = planned_check(work, target)
        sources = sorted({place.name.split()[0] for place in check.shards})
        pairs = [Pair(work.task.meta_schema, work.task.name, source, target) for source in sources]
        with closing(open_session(work.writer())) as connection:
            for pair in pairs:
                prepare_fence(connection, pair)
            with _transaction(connection):
                for source in sources:
                    chunks.hold_source(connection, work.task.meta_schema, work.task.name, source)
                chunks.hold_structure(connection, target, for_writing=True)
                states = _states(work, target)
                if why := _impossible(work, states):
                    return [], [Left(each, why) for each in self.plan.planned if each.key in wanted]
                look = self.comparison.looked_at(check, [span])
                settled = [(each, _why_not(each)) for each in look.settled.get(span, ()) if each.key in wanted]
                proven = [each for each, why in settled if not why]
                left = [Left(each, why) for each, why in settled if why]
                left += [Left(each, CHANGED) for each in look.pending.get(span, ()) if each.key in wanted]
                done, writes = self._writes(_Chunk(self.work, self.comparison, check, span, states), proven)
                left += [Left(each, CHANGED) for each in proven if each not in done]
                if done and self.tell is None:
                    writes.execute(connection)
                    self._record(connection, done)
                    for pair in pairs:
                        record_write(connection, pair)
        if self.tell is not None:
            for statement in writes.statements():
                self.tell(statement)
        return done, left

    def _writes(self, chunk: "_Chunk", proven: Sequence[RowDifference]) -> tuple[list[RowDifference], RowRepairs]:
        """Return the differences whose rows are still there, and what makes them equal."""
        rows = chunk.rows_of_shards(proven)
        done: list[RowDifference] = []
        changed: list[WholeRow] = []
        removed: list[RowDifference] = []
        inserted: list[WholeRow] = []
        for each in proven:
            own = [rows[digest].pop() for digest in each.lacking if rows[digest]]
            if len(own) < len(each.lacking):
                continue
            done.append(each)
            if _is_update(chunk.check, each) and not own[0].has_blank:
                changed += own
            else:
                removed.append(each)
                inserted += own
        destination = chunk.conversion(chunk.check.shards[0])[0].destination
        surplus = [*chunk.surplus(destination, removed)]
        return done, RowRepairs(chunk.check.target.schema, destination, surplus, changed, inserted)

    def _record(self, connection: Connection, done: Sequence[RowDifference]) -> None:
        names = self.plan.result.named_by
        keys = [{"kind": each.kind, "key": dict(zip(names, each.key, strict=True))} for each in done]
        details = {**self.command.details, "table": str(self.plan.target), "keys": keys}
        chunks.record_action(connection, self.work.task.meta_schema, self.work.task.name, self.command, details)


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Reads the rows of a chunk whole."""

    work: Work
    comparison: TableComparison
    check: TableCheck
    span: KeyRange
    states: Mapping[str, ShardState]

    def rows_of_shards(self, proven: Sequence[RowDifference]) -> defaultdict[str, list[WholeRow]]:
        """Read the rows that the target lacks, by hash, as rows of the target."""
        found: defaultdict[str, list[WholeRow]] = defaultdict(list)
        for place in self.check.shards:
            wanted = {digest for each in proven if place.name in each.shards for digest in each.lacking}
            if wanted:
                plan, present = self.conversion(place)
                rows = self._own_rows(place, wanted, present.written)
                arrays = [pa.array(column, pa.binary()) for column in list(zip(*rows, strict=True))[1:]] if rows else []
                values = zip(*(array.to_pylist() for array in convert(plan, arrays)), strict=True) if rows else ()
                for (digest, *_), row in zip(rows, values, strict=True):
                    found[(digest or b"").decode()].append(WholeRow(plan.destination, plan.key, row))
        return found

    def surplus(self, destination: Destination, proven: Sequence[RowDifference]) -> Iterator[bytes]:
        """Read the target's rows to delete, as lines of the columns that shards fill."""
        wanted = Counter(digest for each in proven for digest in each.surplus)
        if not wanted:
            return
        for digest, *values in self._own_rows(self.check.target, wanted, destination.columns):
            if wanted[name := (digest or b"").decode()] > 0:
                wanted[name] -= 1
                arrays = [pa.array([value], pa.binary()) for value in values]
                yield destination.lines(arrays)[0].as_py()

    def _own_rows(self, place: ComparedTable, hashes: Collection[str], columns: Sequence[Column]) -> list[Values]:
        """Read rows by their hashes: the hash, then the stored value of each column."""
        inside, outside = row_condition(self.check, place, self.span, hashes)
        hashed = checksum.row_digest(self.check.comparison.forms, place.schema)
        sessions, is_target = self.comparison.sessions, place is self.check.target
        textrows.prepare_reading(sessions.connection(place, waits=not is_target))
        read = sessions.query if is_target else sessions.committed_rows
        return read(place, place.seen.own_rows(hashed, [*map(expression, columns)], outside, inside))

    def conversion(self, place: ComparedTable) -> tuple[Conversion, TableSchema]:
        """Return how the rows of a shard become rows of the target, and the structure of the shard."""
        state = self.states[place.name]
        tracked = self.work.structures({state.structure})[state.structure]
        _, found = whole_rows(self.work, state, tracked, tracked)
        return found.in_form(LineForm.TEXT), tracked


def _is_update(check: TableCheck, difference: RowDifference) -> bool:
    """Whether a row is changed in place, which keeps the values of columns that only the target has.

    With a second unique key, two rows may have exchanged their values: then all are deleted before any is inserted.
    """
    return (
        bool(check.comparison.key)
        and len(difference.surplus) == len(difference.lacking) == 1
        and len([index for index in check.target.schema.indexes if index.unique]) <= 1
    )


@contextmanager
def _transaction(connection: Connection) -> Iterator[None]:
    mysql.begin(connection)
    try:
        yield
    except BaseException:
        mysql.rollback(connection)
        raise
    mysql.commit(connection)


def repair_document(each: TableRepair) -> dict[str, object]:
    """Return a table's repair as JSON."""
    names = each.result.named_by

    def shown(difference: RowDifference) -> dict[str, object]:
        key = dict(zip(names, difference.key, strict=True))
        return {"kind": difference.kind, "key": key, "shards": [*difference.shards]}

    return {
        "target": str(each.target),
        "to_repair": [shown(one) for one in each.planned],
        "repaired": [shown(one) for one in each.repaired],
        "left": [{**shown(one.difference), "because": one.why} for one in each.left],
        "pending": len(each.result.pending),
    }
