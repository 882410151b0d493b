"""A task in optimistic mode in memory: sources with a binlog, one target, windows, and the real coordinator.

Tables are those of `tests.unit.join.paper`. The sources, the target, the meta store and the files survive a death; the
processes are created again in each step. `tick` is called between any two changes of the surviving state, and
`meta.reading` before a process reads what another one may change.
"""

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.scenario.memory import MemoryMeta
from tests.scenario.turns import Turns
from tests.scenario.world import EVENT_BYTES, FILE, NOWHERE, Killed, segments_of
from tests.unit.join.paper import PaperTable, alter
from tests.unit.join.rollout import STRICT, Row, _convert_row, _value, _zero, fits
from unshard.core.ddl.effects import Coordinated, Effect, Joins, Leaves, Renamed
from unshard.core.ddl.online import named_by
from unshard.core.ddl.queue import HeldFile, QueueEntry
from unshard.core.ddl.renaming import name_upstream
from unshard.core.ddl.statement import fingerprint
from unshard.core.join.decision import steps_to_join, wanted
from unshard.core.join.difference import Target, is_equal, target_of
from unshard.core.join.group import joined_by
from unshard.core.join.joined import JoinedTarget, JoinStatement
from unshard.core.join.places import places_of
from unshard.core.model import Location, Shard, TableId, TableSchema
from unshard.core.relay.segment import Segment, Statement
from unshard.core.task.state import BegunWindow
from unshard.core.window.plan import Plan
from unshard.core.window.planning import plan_window
from unshard.core.window.shardchanges import PlanRules, within_window
from unshard.errors.ddl import DdlRefused, EffectRefused, TargetChanged
from unshard.errors.meta import WindowMismatch
from unshard.operate import issuing
from unshard.operate.command import DropShard
from unshard.units.ddl import coordinate, joining
from unshard.units.ddl.joining import JoinRules, ReloadOutcome

TARGET = TableId("shop", "t")


class NotJoined(Killed):
    """The join has not begun, or the target is between two statements: the window runs again after that."""


@dataclass(frozen=True, slots=True)
class PaperEvent:
    """One row event; `row` is None for a delete."""

    table: TableId
    key: object
    row: Row | None
    owner: int
    """The number of the shard, whatever its name is."""


@dataclass
class LockExecutor:
    """Executes the DDL of locks; implements `units.ddl.coordinate.LockExecutor`."""

    world: "JoinedWorld"

    def intended(self, lock: str, entry: QueueEntry) -> QueueEntry:
        for execution in self.world.meta.locks.executions(lock):
            if execution.done_at is None:
                return replace(entry, before=execution.before, after=execution.wanted)
        put = self.world.meta.structures.put
        after = self.world.own(entry, self.world.present(entry.target))
        if after is None:
            raise EffectRefused(str(entry.target), 1060, "the target refuses it", entry.routed)
        return replace(entry, before=put(self.world.target.structure), after=put(after))

    def execute(self, target: TableId, entry: QueueEntry, before: TableSchema, wanted: TableSchema) -> bool:
        statement = JoinStatement(entry.routed, before.digest, wanted.digest, ())
        return self.world.execute(target, statement, entry, lambda: True)


@dataclass
class PaperShard:
    table: PaperTable
    rows: dict[object, Row] = field(default_factory=dict)
    serial: int = 0
    number: int = 0


@dataclass
class PaperSource:
    tables: dict[TableId, PaperShard] = field(default_factory=dict)
    log: list[PaperEvent | Statement] = field(default_factory=list)

    def segments(self, source: str, checkpoint: Location) -> Iterator[Segment]:
        return segments_of(self.log, source, checkpoint)


class JoinedWorld:
    """All tables are shards of one target."""

    def __init__(
        self,
        tables: Mapping[Shard, PaperTable],
        tick: Callable[[str], None] = lambda _: None,
        window_bytes: int = 3 * EVENT_BYTES,
    ) -> None:
        self.tick, self.window_bytes = tick, window_bytes
        self.meta: Any = MemoryMeta(tick)
        self.sources: dict[str, PaperSource] = defaultdict(PaperSource)
        self.files: dict[str, list[tuple[PaperEvent, str]]] = {}
        self.owners: dict[object, int] = {}
        self.executed: list[str] = []
        self.moment, self.left_rows, self.count = 0, set[object](), 0
        self.dropped: dict[tuple[str, TableId], set[int]] = defaultdict(set)
        self.rules, self.turns = JoinRules(), Turns(lambda _name, me, _left: me)
        self.is_busy: Callable[[], bool] = lambda: False
        """Whether a reload must wait."""
        self.tables: dict[str, PaperTable] = {}
        self.target = next(iter(tables.values())).copy()
        self.rows: dict[object, Row] = {}
        origin = Location(FILE, 4)
        for shard, table in tables.items():
            self._add(shard, table)
            self.meta.sources.add(shard.source, "", "mariadb")
            self.meta.checkpoints.start(shard.source, origin)
            self.meta.structures.record(shard, TARGET, origin, self._put(table))

    def _add(self, shard: Shard, table: PaperTable) -> None:
        self.count += 1
        self.sources[shard.source].tables[shard.table] = PaperShard(table, number=self.count)

    def _put(self, table: PaperTable) -> str:
        digest: str = self.meta.structures.put(table.structure)
        self.tables[digest] = table
        return digest

    # --- upstream

    def ddl(self, shard: Shard, clauses: str) -> None:
        own = self.sources[shard.source].tables[shard.table]
        text = f"ALTER TABLE {shard.table} {clauses}"
        after = alter(own.table, text)
        for row in own.rows.values():
            _convert_row(row, own.table, after, text, shard, own)  # type: ignore[arg-type]
        own.table = after
        self._log(shard.source, text)

    def _log(self, source: str, text: str) -> None:
        self.moment += 1
        statement = Statement(text, "", STRICT, "utf8mb4", 1_700_000_000 + self.moment, "SYSTEM")
        self.sources[source].log.append(statement)

    def write(self, shard: Shard, key: object, values: Row) -> None:
        source, own = self.sources[shard.source], self.sources[shard.source].tables[shard.table]
        row = {c.name.lower(): values.get(c.name.lower()) for c in own.table.columns if not c.generated}
        own.rows[key] = row
        source.log.append(PaperEvent(shard.table, key, dict(row), own.number))

    def delete(self, shard: Shard, key: object) -> None:
        own = self.sources[shard.source].tables[shard.table]
        del own.rows[key]
        self.sources[shard.source].log.append(PaperEvent(shard.table, key, None, own.number))

    def create(self, shard: Shard, table: PaperTable) -> None:
        self._add(shard, table)
        self._log(shard.source, f"CREATE TABLE {shard.table} {self._put(table)}")

    def drop(self, shard: Shard) -> None:
        own = self.sources[shard.source].tables.pop(shard.table)
        self.left_rows |= own.rows.keys()
        self.dropped[shard.source, shard.table].add(own.number)
        self._log(shard.source, f"DROP TABLE {shard.table} x")

    def rename(self, shard: Shard, to: TableId) -> None:
        tables = self.sources[shard.source].tables
        assert to not in tables
        tables[to] = tables.pop(shard.table)
        self._log(shard.source, f"RENAME TABLE {shard.table} TO {to}")

    # --- windows

    def window(self, source: str) -> bool:
        """Run one window; return False if there is nothing to do."""
        with self.turns.alone():
            plan = self.meta.windows.open(source) or self._plan(source)
        if plan.is_empty:
            return False
        begun = self.meta.windows.begin(source, plan)
        applied, held = self._sort(begun.plan)
        if begun.plan.targets:
            self.tick("before rows")
            joining.announce(self.meta, begun.plan)
            with self.turns.alone():
                self._write_all(begun, applied)
            self.tick("after rows")
        files = [self._store(begun.plan, part, *item) for part, item in enumerate(sorted(held.items()))]
        self.meta.windows.commit(begun, files, len(applied))
        return True

    def _plan(self, source: str) -> Plan:
        checkpoint = self.meta.checkpoints.get(source)
        segments = tuple(self.sources[source].segments(source, checkpoint.location))
        rules = PlanRules(lambda _: TARGET, self._effects, self.window_bytes, is_joined=True)
        segments = within_window(segments, rules)
        shards = self.meta.structures.planned_shards(source, named_by(segments))
        return plan_window(source, checkpoint.window + 1, checkpoint.location, segments, shards, rules)

    def _effects(self, statement: Statement, present: Mapping[TableId, str]) -> tuple[Effect, ...]:
        verb, _, name, rest = statement.text.split(" ", 3)
        table = TableId(*name.split("."))
        if verb == "CREATE":
            return (Joins(table, rest),)
        if verb == "DROP":
            return (Leaves(table),)
        if verb == "RENAME":
            return (Renamed(table, TableId(*rest.removeprefix("TO ").split("."))),)
        after = self._put(alter(self.tables[present[table]], statement.text))
        routed = f"ALTER TABLE {TARGET} {rest}"
        return (Coordinated(table, routed, fingerprint(routed), after),)

    def _sort(self, plan: Plan) -> tuple[list[Any], dict[tuple[Shard, int], list[tuple[PaperEvent, str]]]]:
        applied: list[tuple[PaperEvent, Shard, int | None, str]] = []
        held: dict[tuple[Shard, int], list[tuple[PaperEvent, str]]] = defaultdict(list)
        for release in plan.releases:
            for file in release.files:
                applied += [(event, release.shard, file.seq, digest) for event, digest in self.files[file.path]]
        for read in plan.reads:
            event = self.sources[plan.source].log[int(read.segment)]
            assert isinstance(event, PaperEvent)
            for one in read.dispositions:
                if one.hold is None:
                    applied.append((event, one.shard, None, one.structure))
                else:
                    held[one.shard, one.hold].append((event, one.structure))
        return applied, held

    def _store(self, plan: Plan, part: int, key: tuple[Shard, int], rows: list[tuple[PaperEvent, str]]) -> HeldFile:
        shard, seq = key
        path = f"{shard} {seq} {plan.number}"
        self.tick("before file")
        self.files[path] = rows
        return HeldFile(shard, seq, plan.number, part, path, len(rows), len(rows) * EVENT_BYTES, rows[0][1])

    def _write_all(self, begun: BegunWindow, applied: Sequence[tuple[PaperEvent, Shard, int | None, str]]) -> None:
        joined = self.meta.joins.get(TARGET)
        if joined is None or joined.change is not None:
            raise NotJoined
        if TARGET in self.meta.joins.begun() and steps_to_join(joined.group, self._joined_target(joined)).expanding:
            raise NotJoined  # a real window makes the first change of the target before it writes rows
        if self.meta.claim(TARGET, begun):
            for event, shard, seq, structure in applied:
                self._write(event, shard, seq, structure, joined)

    def _write(self, event: PaperEvent, shard: Shard, seq: int | None, structure: str, joined: JoinedTarget) -> None:
        if event.row is None:
            self.rows.pop(event.key, None)
            return
        group = joined.group
        if shard not in group.members:  # this window creates it, so its structure is that of another shard
            group = joined_by(group, shard, self.tables[structure].structure)
        member = group.members[shard]
        if seq is not None:
            member = self.meta.joins.history(TARGET).get((shard, seq), member)
        target = self._joined_target(joined)
        ids = {name: id for id, name in target.names.items()}
        old, row = self.rows.get(event.key), dict[str, object]()
        try:
            places = places_of(member.ids, group.fills, target)
        except KeyError as error:  # a real window suspends the target, and goes on when it has the column
            raise NotJoined from error
        for place in places:
            definition = target.table.columns[ids[place.target_column]]
            assert definition is not None
            if place.shard_column:
                row[place.target_column] = event.row[place.shard_column]
            elif old is not None:
                row[place.target_column] = old[place.target_column]
            else:
                row[place.target_column] = _value(place.fill) if place.fill else _zero(definition)
                if not place.fill and definition.nullable:
                    row[place.target_column] = None
            assert fits(row[place.target_column], definition), (event, place, definition)
        self.rows[event.key] = row
        self.owners[event.key] = event.owner

    def _joined_target(self, joined: JoinedTarget) -> Target:
        return target_of(self.target.structure, joined.names)

    # --- replaces units.ddl.execute.OnTarget

    def present(self, target: TableId) -> TableSchema:
        self.meta.reading("target")
        self.tables[self.target.structure.digest] = self.target
        return self.target.structure

    @contextlib.contextmanager
    def at_rest(self, target: TableId) -> Iterator[TableSchema]:
        with self.turns.guard():
            yield self.target.structure

    def own(self, entry: QueueEntry, before: TableSchema, *, in_steps: bool = False) -> TableSchema | None:
        try:
            after = alter(self.tables[before.digest], entry.routed)
        except (KeyError, StopIteration, ValueError):
            return None
        return after.structure if len({*after.names}) == len(after.names) else None

    def tried(self, target: TableId, text: str, before: TableSchema) -> TableSchema:
        after = alter(self.tables[before.digest], text)
        if len({*after.names}) < len(after.names):
            raise EffectRefused(str(target), 1060, "duplicate column", text)
        self.tables[after.structure.digest] = after
        return after.structure

    def lacks(self, asked: frozenset[str]) -> frozenset[str]:
        return frozenset()

    def execute(
        self, target: TableId, statement: JoinStatement, entry: QueueEntry | None, is_open: Callable[[], bool]
    ) -> bool:
        self.tick("before ddl")
        with self.turns.guard():
            if not is_open():
                return False
            self.meta.reading("target")
            is_new = self._alter(target, statement)
        if is_new:
            self.tick("after ddl")
        return True

    def _alter(self, target: TableId, statement: JoinStatement) -> bool:
        """Execute a statement; return False if the target has it already."""
        found = self.target.structure
        if statement.is_after(found):
            return False
        if not statement.is_before(found):
            raise TargetChanged(str(target), found.create_sql, statement.text)
        after = alter(self.target, statement.text)
        rows = {key: dict(row) for key, row in self.rows.items()}
        try:
            for row in rows.values():
                _convert_row(row, self.target, after, statement.text, Shard("", target), PaperShard(after))  # type: ignore[arg-type]
        except AssertionError as error:
            raise DdlRefused(str(target), 1265, str(error), statement.text) from error
        self.target, self.rows = after, rows
        self.executed.append(statement.text)
        return True

    # --- running

    def follow(self) -> bool:
        try:
            moved = joining.follow_each(self.meta, self, replace(self.rules, reload=self._reload)).raised()
        except DdlRefused:  # rows of a shard that was dropped do not fit the narrower type
            assert self.left_rows
            moved = True
        scene = coordinate.observe(self.meta)
        for lock in map(scene.facts, scene.locks):
            if lock.is_executable:
                scene = coordinate.executed(self.meta, NOWHERE, lock.id, scene, executor=LockExecutor(self))
                moved = True
        return moved

    def give_up_left_shards(self) -> None:
        """Drop shards that have left while a DDL of them is in conflict, as an operator does."""
        self.follow()
        for view in coordinate.views(self.meta):
            for state in self.meta.structures.shards():
                if state.has_left and state.shard in (*view.ready, *view.conflicts):
                    owner = state.shard.source, name_upstream(state.shard.table)
                    # First, because the process may die behind the command, and its DELETEs are gone then.
                    self.left_rows |= {key for key, each in self.owners.items() if each in self.dropped[owner]}
                    command = DropShard(view.id, state.shard)
                    issuing.give(self.meta, command, "operator", "test", "its table is gone")
                    return

    def _reload(self, shard: Shard, columns: Sequence[str]) -> ReloadOutcome:
        self.tick("before reload")
        with self.turns.alone():
            is_done = not self.is_busy() and self._reload_now(shard, columns)
        if is_done:
            self.tick("after reload")
        return ReloadOutcome.DONE if is_done else ReloadOutcome.WAITS

    def _reload_now(self, shard: Shard, columns: Sequence[str]) -> bool:
        own = self.sources[shard.source].tables.get(shard.table)
        joined = self.meta.joins.get(TARGET)
        member = joined.group.members.get(shard)
        if own is None or member is None or own.table.structure.digest != member.structure.digest:
            return False
        if any(state.shard == shard and (state.queue or state.held) for state in self.meta.structures.shards()):
            return False
        for key, row in own.rows.items():
            if key in self.rows and self.owners[key] == own.number:
                for name in columns:
                    self.rows[key][joined.names[member.ids[name]]] = row[name]
        return True

    def run(self) -> None:
        """Run everything until nothing changes any more."""
        for _ in range(10_000):
            moved = self.follow()
            for source in sorted(self.sources):
                with contextlib.suppress(WindowMismatch, NotJoined):
                    moved = self.window(source) or moved
            if not moved:
                return
        raise AssertionError("it never ends")

    # --- oracle

    def check_rows(self) -> None:
        """Compare the target with all shards, by the ids of their columns."""
        joined = self.meta.joins.get(TARGET)
        seen = set[object]()
        for shard, member in joined.group.members.items():
            own = self.sources[shard.source].tables[shard.table]
            seen |= own.rows.keys()
            for key, row in own.rows.items():
                for name, id in member.ids.items():
                    if name in row:
                        assert self.rows[key][joined.names[id]] == row[name], (shard, key, name, row, self.rows[key])
        assert seen - self.left_rows == self.rows.keys() - self.left_rows, (seen, [*self.rows])
        self._check_equal_shards(joined)

    def _check_equal_shards(self, joined: JoinedTarget) -> None:
        """If all shards are equal, compare the target with them by the names of columns, without ids."""
        tables = [self.sources[shard.source].tables[shard.table] for shard in joined.group.members]
        shapes = {frozenset(own.table.columns) for own in tables}
        if len(shapes) > 1:
            return
        assert {*self.target.names} >= {*tables[0].table.names}
        if not self.meta.joins.refused(TARGET) and joined.group.floor is None:
            differing = {*self.target.columns} ^ {*tables[0].table.columns}
            assert not differing, differing
        for own in tables:
            for key, row in own.rows.items():
                assert row.items() <= self.rows[key].items(), (key, row, self.rows[key])

    def check_end(self) -> None:
        """Check that nothing waits, that shards and target are equal, and that the target has the union."""
        self.run()
        assert not [state for state in self.meta.structures.shards() if state.queue or state.held]
        joined = self.meta.joins.get(TARGET)
        target = target_of(self.target.structure, joined.names)
        is_settled = is_equal(target, wanted(joined.group)) or self.meta.joins.refused(TARGET)
        assert is_settled, (target.names, wanted(joined.group).names)
        assert not [member.reloads for member in joined.group.members.values() if member.reloads]
        assert joined.change is None
        self.check_rows()
