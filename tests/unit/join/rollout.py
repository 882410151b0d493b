"""A rollout on paper: sources with rows and DDL, a target, and an unshard that decides with `core.join`.

Rows have a key `id` that no two shards share. `World` keeps what a death leaves: accepted structures, the target, the
checkpoint of each shard, held DDL and rows. Everything else is decided again in each step.
"""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import ROUND_HALF_UP, Decimal

from tests.unit.join.paper import PaperTable, alter
from unshard.core.ddl.lineage import ExecutedDdl
from unshard.core.join import decision
from unshard.core.join.decision import (
    Change,
    Decided,
    Decision,
    ShardProgress,
    contracting,
    decide_change,
    decide_group,
    decide_waiting,
    group_after,
    hindering,
    steps_to_join,
    wanted,
)
from unshard.core.join.difference import (
    AddColumn,
    ChangeColumn,
    DropColumn,
    Step,
    apply,
    is_equal,
)
from unshard.core.join.group import (
    Group,
    Member,
    begin_group,
    intended,
    joined_by,
    left_by,
    reloaded,
)
from unshard.core.join.jointables import Definition
from unshard.core.join.places import places_of
from unshard.core.join.states import OpenDifference, group_differences
from unshard.core.model import Location, Shard, TableId
from unshard.core.sql.mode import NAMES
from unshard.core.structures.columntypes import DecimalType, IntegerType, LabelType, TextType

STRICT = 1 << NAMES.index("STRICT_TRANS_TABLES")
Row = dict[str, object]


@dataclass(frozen=True)
class Event:
    """A row's new image (None: deleted), or a DDL with the structure after it."""

    key: object = None
    row: Row | None = None
    ddl: str = ""
    after: PaperTable | None = None


@dataclass
class Upstream:
    """A shard on its source."""

    table: PaperTable
    rows: dict[object, Row] = field(default_factory=dict)
    log: list[Event] = field(default_factory=list)
    serial: int = 0


@dataclass
class Deferred:
    """Rows from before a DDL that are written later, with the shard as it was then."""

    shard: Shard
    member: Member
    events: list[Event]


class World:
    """All shards of one target."""

    def __init__(self, tables: dict[Shard, PaperTable], dice: random.Random | None = None) -> None:
        self.dice = dice or random.Random(0)
        self.upstream = {shard: Upstream(table) for shard, table in tables.items()}
        self.done = dict.fromkeys(tables, 0)
        self.group = begin_group({shard: table.structure for shard, table in tables.items()})
        self.target = wanted(self.group)
        self.rows: dict[object, dict[int, object]] = {}
        """The target's rows, by the ids of the columns."""
        self.owners: dict[object, Shard] = {}
        self.waiting: dict[Shard, Decided] = {}
        self.deferred: list[Deferred] = []
        self.windows = 0
        self.executed: list[str] = []

    # --- upstream

    def ddl(self, shard: Shard, sql: str) -> None:
        up = self.upstream[shard]
        after = alter(up.table, sql)
        for row in up.rows.values():
            _convert_row(row, up.table, after, sql, shard, up)
        up.table = after
        up.log.append(Event(ddl=sql, after=after))

    def write(self, shard: Shard, key: object, values: Row) -> None:
        up = self.upstream[shard]
        row = {c.name.lower(): values.get(c.name.lower()) for c in up.table.columns if not c.generated}
        up.rows[key] = row
        up.log.append(Event(key, dict(row)))

    def delete(self, shard: Shard, key: object) -> None:
        del self.upstream[shard].rows[key]
        self.upstream[shard].log.append(Event(key))

    # --- unshard

    def window(self, shard: Shard, size: int = 1_000_000, defer: bool = False) -> bool:
        """Apply rows up to the next DDL and decide it; return whether anything was done."""
        up, start = self.upstream[shard], self.done[shard]
        rows = []
        while shard not in self.waiting and self.done[shard] < len(up.log) and len(rows) < size:
            event = up.log[self.done[shard]]
            if event.ddl:
                self.apply(shard, rows, defer)
                rows = []
                break
            rows.append(event)
            self.done[shard] += 1
        self.apply(shard, rows, False)
        is_ddl = self.done[shard] < len(up.log) and bool(up.log[self.done[shard]].ddl)
        return (is_ddl and self.decide(shard)) or self.done[shard] > start

    def apply(self, shard: Shard, events: Sequence[Event], defer: bool) -> None:
        keys = {event.key for each in self.deferred if each.shard == shard for event in each.events}
        if events and defer and not keys:
            self.deferred.append(Deferred(shard, self.group.members[shard], list(events)))
            return
        if keys & {event.key for event in events}:
            self.write_deferred(shard)
        self.put(self.group, shard, events)

    def put(self, group: Group, shard: Shard, events: Sequence[Event]) -> None:
        ids = {name: id for id, name in self.target.names.items()}
        found = places_of(group.members[shard].ids, group.fills, self.target)
        where = [(ids[place.target_column], place) for place in found]
        for event in events:
            if event.row is None:
                self.rows.pop(event.key, None)
                continue
            old = self.rows.get(event.key)
            row = dict(old) if old is not None else {}
            for id, place in where:
                if place.shard_column:
                    row[id] = event.row[place.shard_column]
                definition = self.target.table.columns[id]
                assert definition is not None
                if not place.shard_column and old is None:
                    row[id] = _value(place.fill) if place.fill else _zero(definition)
                assert fits(row[id], definition), (event, place, definition)
            self.rows[event.key] = row
            self.owners[event.key] = shard

    def write_deferred(self, shard: Shard) -> None:
        for each in [each for each in self.deferred if each.shard == shard]:
            group = replace(self.group, members={**self.group.members, shard: each.member})
            self.put(group, shard, each.events)
            self.deferred.remove(each)

    def decide(self, shard: Shard) -> bool:
        """Decide the DDL that the shard has reached; if it waits, together with all that it and the others reach."""
        if shard in self.waiting:
            queues = {each: [change for _, change in self.queue(each)] for each in self.waiting}
            decided = decide_waiting(self.group, self.target, queues)
            if decided is None:
                return False
        else:
            decided = decide_change(self.group, self.target, shard, self.queue(shard)[0][1])
        str(decided)
        if decided.decision in (Decision.CONFLICT, Decision.BARRIER):
            self.waiting[shard] = decided
            return True
        if decided.first and self.hindering():
            return False
        self.group = intended(self.group, decided.group)
        for step in (*decided.first, *decided.steps):
            self.execute(step, decided.group)
            if self.dice.random() < 0.02:
                return True  # a death between two statements: nothing else was committed
        self.group = group_after(decided.group, decided.first)
        for each, between in (decided.accepted or {shard: ()}).items():
            self.release(each, between)
        return True

    def queue(self, shard: Shard) -> list[tuple[int, Change]]:
        """Return the DDLs that the shard has reached, with their places in its log."""
        log = self.upstream[shard].log
        found = [(at, log[at]) for at in range(self.done[shard], len(log)) if log[at].ddl]
        return [(at, Change((ExecutedDdl(e.ddl, STRICT),), e.after.structure)) for at, e in found if e.after]

    def release(self, shard: Shard, between: Sequence[Member]) -> None:
        """Write the rows between DDLs that are accepted together, and go on after the last of them."""
        log, places_in_log = self.upstream[shard].log, [at for at, _ in self.queue(shard)]
        self.waiting.pop(shard, None)
        if between:
            self.write_deferred(shard)
        for number, member in enumerate(between):
            group = replace(self.group, members={**self.group.members, shard: member})
            self.put(group, shard, log[places_in_log[number] + 1 : places_in_log[number + 1]])
        self.done[shard] = places_in_log[len(between)] + 1

    def barrier(self, shards: Sequence[Shard]) -> None:
        """Execute a DDL that all shards wait with, as in pessimistic mode."""
        for shard in shards:
            event = self.upstream[shard].log[self.done[shard]]
            assert event.after is not None
            change = Change((ExecutedDdl(event.ddl, STRICT),), event.after.structure)
            self.group, conflicts = decision.moved(self.group, shard, change.statements, change.after)
            assert not conflicts
            self.waiting.pop(shard)
            self.done[shard] += 1

    def hindering(self) -> tuple[Shard, ...]:
        late = {each.shard for each in self.deferred}
        return hindering({s: ShardProgress(Location("b.1", 1), None, s in late) for s in self.upstream})

    def contract(self) -> bool:
        """Contract the target; after a death between two statements, first execute what is left of an expansion."""
        left = steps_to_join(self.group, self.target)
        steps = (*left.first, *left.expanding) or contracting(self.group, self.target)
        if not steps or self.hindering() or any(map(self.rejects, steps)):
            return False
        for step in steps:
            self.execute(step, self.group)
            if self.dice.random() < 0.02:
                return True
        self.group = group_after(self.group, steps)
        return True

    def reload(self, shard: Shard) -> bool:
        """Read columns again; the shard must have no other events left."""
        member, up = self.group.members[shard], self.upstream[shard]
        if not member.reloads or self.done[shard] < len(up.log) or any(d.shard == shard for d in self.deferred):
            return False
        ids = {each.column for each in member.reloads}
        for key, row in up.rows.items():
            for id in ids:
                self.rows[key][id] = row[member.names[id]]
        self.group = reloaded(self.group, shard, ids)
        return True

    def rejects(self, step: Step) -> bool:
        """Whether rows from before their shard dropped a column have NULL where other shards have NOT NULL."""
        if not isinstance(step, ChangeColumn) or step.after.is_generated or step.after.nullable:
            return False
        return any(row.get(step.id) is None for row in self.rows.values())

    def execute(self, step: Step, group: Group) -> None:
        """Run one step on the structure and the rows of the target."""
        self.executed.append(str(step))
        match step:
            case AddColumn(id, _, definition) if not definition.is_generated:
                for row in self.rows.values():
                    row[id] = _value(group.columns[id].fill)
                    assert fits(row[id], definition)
            case DropColumn(id, _):
                for row in self.rows.values():
                    row.pop(id, None)
            case ChangeColumn(id, _, _, after):
                for row in self.rows.values():
                    if after.is_generated:
                        row.pop(id, None)
                    else:
                        assert row.get(id) is not None or after.nullable, f"strict: NULL in {step}"
                        row[id] = converted_value(row.get(id), after)
                        assert fits(row[id], after)
        self.target = apply([step], self.target)

    # --- shards that come and go

    def create(self, shard: Shard, table: PaperTable) -> None:
        self.upstream[shard] = Upstream(table)
        self.done[shard] = 0
        decided = decide_group(self.group, joined_by(self.group, shard, table.structure), self.target)
        assert decided.decision in (Decision.NOTHING, Decision.EXPAND), decided
        self.group = decided.group
        for step in decided.steps:
            self.execute(step, self.group)

    def drop(self, shard: Shard) -> None:
        self.run([shard])
        del self.upstream[shard], self.done[shard]
        self.waiting.pop(shard, None)
        self.group = left_by(self.group, shard)

    def rename(self, shard: Shard, to: Shard) -> None:
        self.run([shard])
        self.upstream[to], self.done[to] = self.upstream.pop(shard), self.done.pop(shard)
        members = {to if each == shard else each: member for each, member in self.group.members.items()}
        self.group = replace(self.group, members=members)
        self.owners = {key: to if owner == shard else owner for key, owner in self.owners.items()}

    # --- the end

    def run(self, shards: Sequence[Shard] | None = None) -> None:
        """Run windows of these shards, or all of them with everything else, until nothing changes."""
        for _ in range(10_000):
            is_busy = sum(self.window(shard) for shard in shards or sorted(self.upstream)) > 0
            if shards is None:
                is_busy |= bool(self.deferred)
                for shard in {each.shard for each in self.deferred}:
                    self.write_deferred(shard)
                is_busy |= self.contract()
                is_busy |= sum(self.reload(shard) for shard in sorted(self.upstream)) > 0
            if not is_busy:
                return
        raise AssertionError("it never ends")

    def open(self) -> tuple[OpenDifference, ...]:
        return group_differences(self.group, self.target, self.waiting)

    def check_rows(self) -> None:
        """Compare the target with the rows of all shards that have no events left, by the columns that they have."""
        for shard, up in self.upstream.items():
            if shard in self.waiting or self.done[shard] < len(up.log) or any(d.shard == shard for d in self.deferred):
                continue
            member = self.group.members[shard]
            late = {each.column for each in member.reloads}
            mine = {key for key, owner in self.owners.items() if owner == shard and key in self.rows}
            assert mine == {*up.rows}, (shard, mine, {*up.rows})
            for key, row in up.rows.items():
                for name, id in member.ids.items():
                    if id not in late and name in row:
                        definition = self.target.table.columns[id]
                        assert definition is not None
                        if not definition.is_generated:
                            assert self.rows[key][id] == row[name], (shard, key, name, row)

    def check_end(self) -> None:
        """Check that all shards and the target are equal."""
        self.run()
        assert not self.waiting, {str(shard): str(each) for shard, each in self.waiting.items()}
        assert not [str(each) for each in self.open()]
        assert is_equal(self.target, wanted(self.group))
        self.check_rows()


class Play:
    """Shards run their DDL in random order, with rows, windows, contractions and reloads in between."""

    def __init__(self, table: PaperTable, texts: Mapping[Shard, Sequence[str]], dice: random.Random) -> None:
        self.dice, self.texts = dice, texts
        self.shards = sorted(texts)
        self.world = World(dict.fromkeys(self.shards, table), dice)
        self.key = 0

    def rows(self, shard: Shard) -> None:
        up = self.world.upstream[shard]
        if up.rows and self.dice.random() < 0.2:
            self.world.delete(shard, self.dice.choice(sorted(up.rows)))
            return
        if not up.rows or self.dice.random() < 0.6:
            self.key += 1
            key = self.key
        else:
            key = self.dice.choice(sorted(up.rows))
        self.world.write(shard, key, {c.name.lower(): self.value(c.type, c.nullable, key) for c in up.table.columns})

    def value(self, kind: str, nullable: bool, key: int) -> object:
        if nullable and self.dice.random() < 0.2:
            return None
        if kind.startswith("enum"):
            return self.dice.choice(kind[5:-1].replace("'", "").split(","))
        if kind.startswith("decimal"):
            return (Decimal(key) / 4).quantize(Decimal(1).scaleb(-int(kind[-2])))
        return key if "int" in kind else f"v{key % 100}"

    def prepare(self, shard: Shard, text: str) -> None:
        """Change the values that a strict server would refuse to convert."""
        for key, row in [*self.world.upstream[shard].rows.items()]:
            if (changed := convertible(row, text)) != row:
                self.world.write(shard, key, changed)

    def play(self) -> None:
        left = {shard: [*texts] for shard, texts in self.texts.items()}
        while any(left.values()):
            shard = self.dice.choice(self.shards)
            match self.dice.randrange(8):
                case 0 | 1:
                    if left[shard]:
                        self.prepare(shard, left[shard][0])
                        self.world.ddl(shard, left[shard].pop(0))
                case 2 | 3:
                    self.rows(shard)
                case 4 | 5:
                    self.world.window(shard, self.dice.randrange(1, 6), defer=self.dice.random() < 0.2)
                case 6:
                    self.world.contract()
                    self.world.check_rows()
                case 7:
                    self.world.reload(shard)
        self.world.check_end()


def convertible(row: Row, text: str) -> Row:
    """Return the row with values that a strict server converts to the types of a MODIFY."""
    changed = dict(row)
    for name in row.keys() & {"b", "g"}:
        if row[name] is None and re.search(rf"MODIFY {name} INT NOT NULL", text):
            changed[name] = row["id"]
    if "MODIFY e ENUM" in text and row["e"] is not None and f"'{row['e']}'" not in text:
        changed["e"] = "x"
    return changed


def fits(value: object, definition: Definition) -> bool:
    """Whether a column of this definition can hold the value unchanged."""
    if value is None:
        return definition.nullable
    kind = definition.type
    if isinstance(kind, IntegerType) and isinstance(value, int):
        low = 0 if kind.is_unsigned else -(1 << kind.bits - 1)
        return low <= value < low + (1 << kind.bits)
    if isinstance(kind, DecimalType) and isinstance(value, Decimal):
        digits = value.quantize(Decimal(1).scaleb(-kind.scale))
        return digits == value and abs(value) < 10**kind.whole
    if isinstance(kind, TextType) and isinstance(value, str):
        _, length = kind.resolved
        return len(value) <= length
    if isinstance(kind, LabelType):
        return value in kind.labels
    return True


def converted_value(value: object, definition: Definition) -> object:
    """Return a value after ALTER TABLE has changed the type of its column."""
    kind = definition.type
    if value is None and not definition.nullable:
        return _zero(definition)
    if isinstance(kind, TextType) and isinstance(value, int):
        return str(value)
    if isinstance(kind, DecimalType) and value is not None:
        return Decimal(str(value)).quantize(Decimal(1).scaleb(-kind.scale), ROUND_HALF_UP)
    return value


def _zero(definition: Definition) -> object:
    kind = definition.type
    if isinstance(kind, LabelType):
        return kind.labels[0]
    return Decimal(0) if isinstance(kind, DecimalType) else 0 if isinstance(kind, IntegerType) else ""


def _value(literal: str) -> object:
    """Return the value of an SQL literal."""
    if literal in ("NULL", ""):
        return None
    if literal.startswith("'"):
        return literal[1:-1]
    return Decimal(literal) if "." in literal else int(literal)


def _convert_row(row: Row, before: PaperTable, after: PaperTable, sql: str, shard: Shard, up: Upstream) -> None:
    """Do to one row what ALTER TABLE does."""
    from unshard.core.ddl.lineage import names_after
    from unshard.core.join.jointables import table_with_ids

    moved = names_after([c.name for c in before.columns if not c.generated], [ExecutedDdl(sql, STRICT)])
    old = dict(row)
    row.clear()
    row.update({new: old[name] for name, new in moved.items() if name in old})
    definitions = table_with_ids(
        after.structure, {name.lower(): number for number, name in enumerate(after.names)}
    ).columns
    for number, column in enumerate(after.columns):
        definition, name = definitions[number], column.name.lower()
        assert definition is not None
        if column.generated:
            row.pop(name, None)
        elif name in row:
            row[name] = converted_value(row[name], definition)
            assert fits(row[name], definition), f"{shard} refuses {sql}"
        elif column.default is not None and not re.fullmatch(r"'.*'|-?[\d.]+", column.default):
            up.serial += 1
            row[name] = f"{shard}-{up.serial}"
        elif column.default is not None:
            row[name] = converted_value(_value(column.default), definition)
        else:
            row[name] = None if column.nullable else _zero(definition)


def shards(count: int, sources: int = 2) -> list[Shard]:
    return [Shard(f"s{number % sources + 1}", TableId("d", f"t{number + 1}")) for number in range(count)]
