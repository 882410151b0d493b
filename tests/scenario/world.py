"""A whole task in memory: sources with a binlog, a target, windows and locks, driven by the real decisions of core.

The sources, the target, the meta store and the stored files survive a death. Each call of `run` creates everything else
again. `tick` is called between any two changes of the surviving state; if it raises `Killed`, the process dies there.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

from tests.scenario.memory import MemoryMeta
from unshard.core.ddl.effects import Coordinated, Effect, IgnoredEffect, Joins, Leaves, Renamed, Undecided
from unshard.core.ddl.online import named_by
from unshard.core.ddl.queue import HeldFile, QueueEntry
from unshard.core.ddl.reconcile import Record
from unshard.core.ddl.renaming import net_renames
from unshard.core.ddl.statement import fingerprint
from unshard.core.model import Column, Index, Location, Server, Shard, TableId, TableSchema
from unshard.core.relay.segment import ByteRange, Segment, Statement
from unshard.core.window.plan import Plan
from unshard.core.window.shardchanges import PlanRules, within_window
from unshard.core.window.windowplanning import plan_window
from unshard.errors import UnshardError
from unshard.errors.ddl import DdlRefused, StructureNotShown, StructureUnknown
from unshard.operate import issuing
from unshard.operate.command import LockCommand
from unshard.units.ddl import coordinate
from unshard.units.ddl.reconciling import reconcile_structures
from unshard.units.ddl.scene import LockView
from unshard.units.rows.windowjob import dropped_since

FILE = "mysql-bin.000001"
EVENT_BYTES = 10
NOWHERE = Server("localhost", 1, "nobody", "")
Row = tuple[str, ...]
Rows = list[tuple["RowChange", str]]
"""Row changes, each with the digest of its structure."""


WHY = "a table that is not a shard gets the name of a shard"


CREATE = "CREATE TABLE `t` ("


class Killed(Exception):
    """The process died here."""


@dataclass(frozen=True, slots=True)
class RowChange:
    """One row event: `values` is None for a delete."""

    table: TableId
    key: str
    values: Row | None


@cache
def structure(columns: str) -> TableSchema:
    """Return the structure written as `id int, c int default 5`."""
    made: list[Column] = []
    for one in filter(None, (part.strip() for part in columns.split(","))):
        name, kind, *rest = one.split()
        default = rest[1] if rest[:1] == ["default"] else None
        made.append(Column(name, kind, kind, bool(made), None, None, default, ""))
    shown = ", ".join(
        f"`{name}` {rest}" for name, _, rest in (one.strip().partition(" ") for one in columns.split(","))
    )
    return TableSchema(tuple(made), (Index("PRIMARY", (made[0].name,), True),), f"{CREATE}{shown})")


def columns_of(schema: TableSchema) -> str:
    """Return the text of which `structure` made the structure."""
    return schema.create_sql.removeprefix(CREATE).removesuffix(")").replace("`", "")


def altered(schema: TableSchema, ddl: str) -> TableSchema:
    """Return the structure after `add column c int default 5`, `drop column c` or another statement."""
    parts = [part.strip() for part in columns_of(schema).split(",")]
    if match := re.fullmatch(r"(?i:add column) (.+)", ddl):
        return structure(", ".join([*parts, match[1].replace("`", "")]))
    if match := re.fullmatch(r"drop column (\w+)", ddl):
        return structure(", ".join(part for part in parts if part.split()[0] != match[1]))
    return schema


def identified(name: str) -> TableId:
    return TableId(*name.strip().split("."))


def pairs(text: str) -> list[tuple[TableId, TableId]]:
    """Return the tables of `a.b to a.c, a.d to a.e`."""
    return [(identified(old), identified(new)) for old, _, new in (part.partition(" to ") for part in text.split(","))]


def default_of(column: Column) -> str:
    return "NULL" if column.default is None else column.default


def changes_in(routed: str) -> str:
    """Return the text after the table's name."""
    return routed.split(" ", 3)[3]


meaning = cache(fingerprint)


@dataclass
class Table:
    """Rows by key, each with a value for every column."""

    schema: TableSchema
    rows: dict[str, dict[str, str]] = field(default_factory=dict)

    def put(self, schema: TableSchema, values: Row, lossy: bool = False) -> None:
        """Write a row of another structure by the names of its columns."""
        given = dict(zip(schema.names, values, strict=True))
        unknown = given.keys() - set(self.schema.names)
        assert lossy or not unknown, f"columns {sorted(unknown)} are not in the target"
        self.rows[values[0]] = {c.name: given.get(c.name, default_of(c)) for c in self.schema.columns}

    def alter(self, ddl: str) -> None:
        self.schema = altered(self.schema, ddl)
        for key, row in self.rows.items():
            self.rows[key] = {c.name: row.get(c.name, default_of(c)) for c in self.schema.columns}

    def listing(self) -> tuple[Row, ...]:
        names = sorted(self.schema.names)
        return tuple(sorted(tuple(f"{name}={row[name]}" for name in names) for row in self.rows.values()))


@dataclass
class Upstream:
    """A source: its tables as they are now, and its binlog."""

    tables: dict[TableId, Table] = field(default_factory=dict)
    log: list[RowChange | Statement] = field(default_factory=list)
    moment: int = 0

    def change(self, table: TableId, op: str, body: str) -> None:
        """Execute one change and log it, as a server does."""
        values = tuple(part.strip() for part in body.split(","))
        match op:
            case "+" | "~":
                own = self.tables[table]
                padded = (*values, *(default_of(c) for c in own.schema.columns[len(values) :]))
                own.put(own.schema, padded)
                self.log.append(RowChange(table, padded[0], padded))
            case "-":
                del self.tables[table].rows[values[0]]
                self.log.append(RowChange(table, values[0], None))
            case "ddl" | "odd":
                change, _, name = body.partition(", rename to ")
                self.tables[table].alter(change)
                if name:
                    self.tables[identified(name)] = self.tables.pop(table)
                self._statement(f"{'alter' if op == 'ddl' else op} {table} {body}")
            case "create":
                self.tables[table] = Table(structure(body))
                self._statement(f"create {table} {body}")
            case "drop":
                del self.tables[table]
                self._statement(f"drop {table} ")
            case "drop schema":
                self.tables = {one: own for one, own in self.tables.items() if one.schema != table.schema}
                self._statement(f"drop_schema {table.schema} ")
            case "rename":
                for old, new in pairs(f"{table} to {body}"):
                    assert new not in self.tables, f"{new} exists"
                    self.tables[new] = self.tables.pop(old)
                self._statement(f"rename {table} {body}")
            case _:
                self._statement(f"{op} {table} ")

    def _statement(self, text: str) -> None:
        self.moment += 1
        self.log.append(Statement(text, "", 0, "utf8mb4", 1_700_000_000 + self.moment, "SYSTEM"))

    def segments(self, source: str, checkpoint: Location) -> Iterator[Segment]:
        """Yield one segment per event, from the checkpoint on."""
        return segments_of(self.log, source, checkpoint)


def segments_of(log: Sequence[Any], source: str, checkpoint: Location) -> Iterator[Segment]:
    """Yield one segment per event, from the checkpoint on: statements, and changes of rows of a table."""
    for number, event in enumerate(log):
        start, end = 4 + number * EVENT_BYTES, 4 + (number + 1) * EVENT_BYTES
        if start >= checkpoint.position:
            if isinstance(event, Statement):
                yield Segment(source, FILE, start, end, str(number), "", 1, 1, (), event)
            else:
                ranges: tuple[ByteRange, ...] = (ByteRange(start, end, ((event.table, 1),)),)
                yield Segment(source, FILE, start, end, str(number), "", 1, 1, ranges)


class World:
    """The sources, the target and the meta store of a scenario."""

    def __init__(
        self,
        routes: Sequence[tuple[str, str]],
        tick: Callable[[str], None] = lambda _: None,
        meta: Any = None,
        window_bytes: int = 3 * EVENT_BYTES,
    ) -> None:
        self.routes, self.tick, self.window_bytes = tuple(routes), tick, window_bytes
        self.meta: Any = meta or MemoryMeta(tick)
        self.sources: dict[str, Upstream] = defaultdict(Upstream)
        self.target: dict[TableId, Table] = {}
        self.files: dict[str, Rows] = {}
        self.executed: list[tuple[TableId, str]] = []
        self.refuses = False
        self.refused: frozenset[str] = frozenset()
        """DDLs that the target refuses."""
        self.lossy = False
        self.left_rows: dict[TableId, dict[str, dict[str, str]]] = defaultdict(dict)

    # --- upstream

    def add_table(self, source: str, table: TableId, columns: str) -> None:
        """Create a shard before the task starts."""
        self.sources[source].tables[table] = Table(structure(columns))
        target = self.target_of(table)
        assert target is not None
        schema = structure(columns)
        self.meta.structures.put(schema)
        self.target.setdefault(target, Table(schema))
        origin = Location(FILE, 4)
        self.meta.sources.add(source, "", "mariadb")
        self.meta.checkpoints.start(source, origin)
        self.meta.structures.record(Shard(source, table), target, origin, schema.digest)

    def change(self, source: str, table: TableId, op: str, body: str) -> None:
        """Change a source; the rows of a dropped table stay in the target."""
        own = self.sources[source].tables
        before = {id(found): (self.target_of(one), found) for one, found in own.items()}
        self.sources[source].change(table, op, body)
        after = {id(found): self.target_of(one) for one, found in self.sources[source].tables.items()}
        for known, (target, found) in before.items():
            if target is not None and after.get(known) is None:
                self.left_rows[target] |= found.rows

    def target_of(self, table: TableId) -> TableId | None:
        for pattern, target in self.routes:
            if fnmatchcase(str(table), pattern):
                return TableId(*target.split("."))
        return None

    # --- windows

    def window(self, source: str) -> bool:
        """Run one window; return False if there is nothing to do."""
        plan = self.meta.windows.open(source) or self._plan(source)
        if plan.is_empty:
            return False
        begun = self.meta.windows.begin(source, plan)
        applied, held = self._sort(begun.plan)
        for target in sorted(begun.plan.targets):
            self.tick("before rows")
            if self.meta.claim(target, begun):
                for change, digest in applied[target]:
                    self._write(target, change, digest)
            self.tick("after rows")
        files = [self._store(begun.plan, part, *item) for part, item in enumerate(sorted(held.items()))]
        self.meta.windows.commit(begun, files, sum(map(len, applied.values())))
        return True

    def _plan(self, source: str) -> Plan:
        reconcile_structures(self.meta.structures, source, self)
        checkpoint = self.meta.checkpoints.get(source)
        assert checkpoint is not None
        segments = tuple(self.sources[source].segments(source, checkpoint.location))
        rules = PlanRules(self.target_of, self._effects, self.window_bytes)
        segments = within_window(segments, rules)
        near = self.meta.structures.planned_shards(source, named_by(segments))
        plan = plan_window(source, checkpoint.window + 1, checkpoint.location, segments, near, rules)
        shards = self.meta.structures.shards()
        assert plan == plan_window(source, plan.number, plan.begins, segments, shards, rules), (
            "the plan depends on shards outside of its tables"
        )
        return plan

    def _effects(self, statement: Statement, present: Mapping[TableId, str]) -> tuple[Effect, ...]:
        verb, name, ddl = statement.text.split(" ", 2)
        if verb == "drop_schema":
            return tuple(Leaves(table) for table in sorted(present) if table.schema == name)
        table = identified(name)
        if verb == "rename":
            return self._renamed(pairs(f"{table} to {ddl}"), present)
        if verb in ("alter", "odd"):
            return self._altered(verb, table, ddl, present)
        if self.target_of(table) is None:
            return ()
        if verb == "create":
            return (Joins(table, self.meta.structures.put(structure(ddl))),)
        return (Leaves(table),) if verb == "drop" else (IgnoredEffect(table),)

    def _altered(self, verb: str, table: TableId, ddl: str, present: Mapping[TableId, str]) -> tuple[Effect, ...]:
        if verb == "odd":
            return (Undecided(table, "its effect is unknown", f"odd {self.target_of(table)} {ddl}", f"odd {ddl}"),)
        ddl, _, new = ddl.partition(", rename to ")
        after, target = "", self.target_of(table)
        if target is None:
            return ()
        if present.get(table):
            after = self.meta.structures.put(altered(self._schema(present[table]), ddl))
        renamed = self._renamed([(table, identified(new))], present) if new else ()
        if any(isinstance(effect, Leaves) for effect in renamed):
            return renamed
        routed = f"alter table `{target.schema}`.`{target.name}` {ddl}"
        return (Coordinated(table, routed, meaning(routed), after), *renamed)

    def _renamed(self, renames: list[tuple[TableId, TableId]], present: Mapping[TableId, str]) -> tuple[Effect, ...]:
        net = net_renames(renames)
        moved = {old: new for old, new in net.items() if old in present}
        strangers = [new for old, new in net.items() if self.target_of(old) is None and self.target_of(new) is not None]
        leaving = [Leaves(old) for old, new in moved.items() if self.target_of(new) is None]
        followed = (Renamed(old, new) for old, new in moved.items() if self.target_of(new) is not None)
        return *leaving, *followed, *(Undecided(new, WHY, f"rename to {new}", "", is_new=True) for new in strangers)

    # --- implements units.ddl.reconciling.Trial

    def after(self, before: TableSchema | None, text: str, record: Record) -> TableSchema:
        if before is None:
            raise StructureUnknown(str(record.entry.shard), text)
        return altered(before, changes_in(text) if text.startswith("alter table") else text)

    def is_create(self, text: str, record: Record) -> bool:
        return False

    def shown(self, record: Record) -> TableSchema:
        """Return the structure at the source, unless a later statement names the table."""
        source, table = record.entry.shard.source, record.entry.shard.table
        later = self.sources[source].log[(record.entry.location.position - 4) // EVENT_BYTES :]
        if any(isinstance(event, Statement) and str(table) in event.text for event in later):
            raise StructureNotShown(str(record.entry.shard), "a later statement concerns it")
        schema = self.sources[source].tables[table].schema
        self.meta.structures.put(schema)
        return schema

    asks_source = True

    def rebuilt(self, record: Record, before: TableSchema, later: Sequence[Statement]) -> None:
        """Nobody alters a target by hand in this world."""

    def skipped(self, record: Record, before: TableSchema, later: Sequence[Statement]) -> TableSchema:
        """Do not look at the source: only the held rows can contradict."""
        return before

    def require_shown(
        self, record: Record, before: TableSchema, later: Sequence[Statement], result: TableSchema
    ) -> None:
        """Do not look at the source."""

    def misfit(self, file: HeldFile, schema: TableSchema) -> str:
        wrong = [
            change for change, _ in self.files[file.path] if len(change.values or schema.names) != len(schema.names)
        ]
        return "other columns" if wrong else ""

    def _schema(self, digest: str) -> TableSchema:
        found: TableSchema = self.meta.structures.get({digest})[digest]
        return found

    def _sort(self, plan: Plan) -> tuple[dict[TableId, Rows], dict[tuple[Shard, int], Rows]]:
        """Return the rows of a plan: rows to apply per target, in order, and rows to hold per shard."""
        applied: dict[TableId, Rows] = defaultdict(list)
        held: dict[tuple[Shard, int], Rows] = defaultdict(list)
        dropped = dropped_since({s.shard for s in self.meta.structures.shards() if s.is_dropped}, plan)
        for release in plan.releases:
            for file in release.files if release.shard not in dropped else ():
                rows = self.files[file.path]
                applied[release.target] += [(change, file.structure) for change, _ in rows] if file.is_raw else rows
        for read in plan.reads:
            change = self.sources[plan.source].log[int(read.segment)]
            assert isinstance(change, RowChange)
            for one in read.dispositions:
                if one.shard in dropped:
                    continue
                assert one.shard.table == change.table
                into = applied[one.target] if one.hold is None else held[one.shard, one.hold]
                into.append((change, one.structure))
        return applied, held

    def _store(self, plan: Plan, part: int, key: tuple[Shard, int], rows: Rows) -> HeldFile:
        shard, seq = key
        path = f"{shard} {seq} {plan.number}"
        self.tick("before file")
        self.files[path] = rows
        size = len(rows) * EVENT_BYTES
        return HeldFile(shard, seq, plan.number, part, path, len(rows), size, rows[0][1], is_raw=not rows[0][1])

    def _write(self, target: TableId, change: RowChange, digest: str) -> None:
        if target not in self.target:
            self.target[target] = Table(self._schema(digest))
        if change.values is None:
            self.target[target].rows.pop(change.key, None)
        else:
            self.target[target].put(self._schema(digest), change.values, self.lossy)

    # --- DDL

    def intended(self, lock: str, entry: QueueEntry) -> QueueEntry:
        """Return the entry with the target's structures: those of an open intent, as units.ddl.execute does."""
        for execution in self.meta.locks.executions(lock):
            if execution.done_at is None:
                return replace(entry, before=execution.before, after=execution.wanted)
        before, ddl = self.target[entry.target].schema, changes_in(entry.routed)
        wanted = altered(before, ddl)
        if len(set(wanted.names)) < len(wanted.names):
            raise DdlRefused(str(entry.target), 1, "duplicate column", ddl)
        return replace(entry, before=self.meta.structures.put(before), after=self.meta.structures.put(wanted))

    def execute(self, target: TableId, entry: QueueEntry, before: TableSchema, wanted: TableSchema) -> bool:
        """Execute a DDL on the target as units.ddl.execute does: not if the target has the wanted structure already."""
        ddl, table = changes_in(entry.routed), self.target[target]
        if before.digest != wanted.digest and table.schema.digest == wanted.digest:
            return False
        assert table.schema.digest == before.digest, "an intent was lost"
        if self.refuses or ddl in self.refused:
            raise DdlRefused(str(target), 1, "the target does not want it", ddl)
        self.tick("before ddl")
        table.alter(ddl)
        self.executed.append((target, ddl))
        self.tick("after ddl")
        return True

    # --- running

    def step(self, source: str | None) -> bool:
        """Run one window of a source, or the coordinator for None; return whether anything changed."""
        if source is not None:
            return self.window(source)
        moved = False
        scene = coordinate.observe(self.meta)
        for lock in map(scene.facts, scene.locks):
            if lock.is_executable:
                scene = coordinate.executed(self.meta, NOWHERE, lock.id, scene, executor=self)
                moved = True
        return moved

    def run(self) -> dict[str, UnshardError]:
        """Run everything until nothing changes any more; return the errors that stopped sources."""
        errors: dict[str, UnshardError] = {}
        self.step(None)
        moved = True
        while moved:
            moved = False
            for source in sorted(self.sources):
                try:
                    moved = self.step(source) or moved
                    errors.pop(source, None)
                except UnshardError as error:
                    errors[source] = error
            moved = self.step(None) or moved
        return errors

    def lock(self, target: TableId) -> LockView:
        """Return the open lock of a target."""
        (lock,) = [view for view in coordinate.views(self.meta) if view.target == target]
        return lock

    def order(self, command: LockCommand) -> LockView:
        """Issue a command, after its dry run, which must change nothing."""
        before = coordinate.views(self.meta, resolved=True)
        assert issuing.preview(self.meta, command) and coordinate.views(self.meta, resolved=True) == before
        scene = issuing.give(self.meta, command, "operator", "test", "because")
        return coordinate.view(self.meta, command.lock, scene)

    # --- oracle

    def union(self, target: TableId) -> tuple[Row, ...]:
        """Return the rows that the target must have: those of its shards, and those of dropped shards."""
        tables = (item for source in self.sources.values() for item in source.tables.items())
        shards = [rows for table, rows in tables if self.target_of(table) == target]
        union = Table(self.target[target].schema)
        for key, row in self.left_rows[target].items():
            union.rows[key] = {c.name: row.get(c.name, default_of(c)) for c in union.schema.columns}
        for table in shards:
            for values in table.rows.values():
                union.put(table.schema, tuple(values[name] for name in table.schema.names), self.lossy)
        return union.listing()
