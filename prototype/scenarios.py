"""Plays the scenario cases of pessimistic mode (`tests/scenario/cases/*.txt`) against the prototype, line by line."""

from collections import Counter
from fnmatch import fnmatchcase
from pathlib import Path

from prototype import paper
from prototype.group import Policy
from prototype.world import World
from tests.unit.join.rollout import Event
from tests.scenario.language import Change, Expect, LockCommand, Scenario, parse
from unshard.core.ddl.renaming import net_renames
from unshard.core.model import Shard, TableId
from unshard.errors import UnshardError

CASES = sorted((Path(__file__).parents[1] / "tests/scenario/cases").glob("*.txt"))
NOT_OF_THE_GROUP = {
    "30_swapped_and_changed": "whether the source still shows a structure (core/ddl/hiddenstructure.py)",
}
VALUES = {"NULL": None}


def identified(name: str) -> TableId:
    return TableId(*name.strip().split("."))


def table_of(columns: str) -> paper.Paper:
    first, *rest = [part.strip() for part in columns.split(",")]
    return paper.create(f"CREATE TABLE t ({', '.join([f'{first} PRIMARY KEY', *rest])})")


class Player:
    """Plays a scenario; `differs` are the lines that are not as expected."""

    def __init__(self, scenario: Scenario, in_order: bool = True) -> None:
        self.scenario, self.differs, self.checked = scenario, list[str](), Counter[str]()
        self.has_unlocked = False
        self.dropped: dict[Shard, str] = {}
        """Shards that an operator has dropped, each with its target."""
        self.outside: dict[tuple[str, TableId], World] = {}
        """Tables without a route, each as a world of its own."""
        self.told: dict[str, int] = {}
        self.all_told, self.order = 0, list[tuple[str, str]]()
        tables: dict[str, dict[Shard, paper.PaperTable]] = {}
        for source, name, columns in scenario.tables:
            target = self.target_of(identified(name))
            assert target
            tables.setdefault(target, {})[Shard(source, identified(name))] = table_of(columns)
        self.worlds = {target: World(own, None, Policy.TOGETHER, in_order) for target, own in tables.items()}

    def target_of(self, table: TableId) -> str | None:
        return next((target for pattern, target in self.scenario.routes if fnmatchcase(str(table), pattern)), None)

    def play(self) -> "Player":
        for step in self.scenario.steps:
            match step:
                case Change(source, name, "drop schema", _):
                    schema = name.rstrip(".")
                    for target, world in self.worlds.items():
                        for shard in [s for s in world.upstream if s.source == source and s.table.schema == schema]:
                            if shard not in world.gone:
                                world.drop(shard)
                case Change(source, name, op, body):
                    self.change(Shard(source, identified(name)), op, body)
                case LockCommand(what, body):
                    self.has_unlocked |= what == "unlock"  # shards with another form of the DDL differ afterwards
                    self.run()
                    self.command(what, body)
                    self.run()
                case Expect(what, body):
                    self.run()
                    self.checked[what] += 1
                    for world in self.worlds.values() if not self.has_unlocked else ():
                        world.check_together()
                    getattr(self, f"check_{what}")(body)
        self.run()
        self.check_union("")
        return self

    def run(self) -> None:
        for world in self.worlds.values():
            world.run()

    def world(self, shard: Shard) -> World | None:
        target = self.target_of(shard.table)
        if shard in self.dropped or target is None or shard not in self.worlds[target].upstream:
            return self.outside.get((shard.source, shard.table))
        return self.worlds[target]

    # --- changes

    def change(self, shard: Shard, op: str, body: str) -> None:
        target, world = self.target_of(shard.table), self.world(shard)
        if op == "create":
            if shard in self.dropped and (shard.source, shard.table) in self.outside:
                return  # a table that exists cannot be created
            self.dropped.pop(shard, None)
            if target is None:
                self.outside[shard.source, shard.table] = World({shard: table_of(body)})
            else:
                self.worlds[target].create(shard, table_of(body))
        elif op == "rename":
            self.rename(shard, body)
        elif world is None or op == "truncate":
            return
        elif op in "+~":
            up = world.upstream[shard]
            plain = [c for c in up.table.columns]
            given: list[object] = [VALUES.get(v.strip(), int(v) if v.strip().isdigit() else v) for v in body.split(",")]
            row = {c.name.lower(): int(c.default) if c.default else None for c in plain}
            world.write(shard, given[0], {**row, **dict(zip([c.name.lower() for c in plain], given, strict=False))})
        elif op == "-":
            world.delete(shard, int(body))
        elif op in ("ddl", "odd"):
            text, _, name = body.partition(", rename to ")
            try:
                world.ddl(shard, f"ALTER TABLE t {text}", is_unknown=op == "odd")
            except KeyError:  # a column that does not exist: in these cases a DDL without an effect
                world.upstream[shard].log.append(Event(ddl=f"ALTER TABLE t {text}", after=world.upstream[shard].table))
            if name:
                self.rename(shard, name)
        elif op == "drop":
            if self.outside.pop((shard.source, shard.table), None) is None:
                world.drop(shard)
            self.dropped.pop(shard, None)

    def rename(self, shard: Shard, body: str) -> None:
        pairs = [
            (identified(a), identified(b))
            for a, _, b in (p.partition(" to ") for p in f"{shard.table} to {body}".split(","))
        ]
        net, source = net_renames(pairs), shard.source
        moved: dict[str, dict[Shard, Shard]] = {}
        tables = {old: self.world(Shard(source, old)) for old in net}
        strangers = []
        for old, new in net.items():
            before, world, after = Shard(source, old), tables[old], self.target_of(new)
            if world is None:
                continue
            if before in self.dropped:
                self.dropped.pop(before)
                self.outside.pop((source, old), None)
                if after:
                    self.outside[source, new] = self.taken(world, before, Shard(source, new))
                    self.dropped[Shard(source, new)] = after
            elif world not in self.worlds.values():
                self.outside.pop((source, old))
                strangers.append((world, before, Shard(source, new)))
            elif after is None:
                self.outside[source, new] = self.taken(world, before, Shard(source, new))
                world.drop(before)
            else:
                moved.setdefault(after, {})[before] = Shard(source, new)
        for target, names in moved.items():
            self.worlds[target].move(names)
        for world, before, after in strangers:
            self.stranger(world, before, after)

    @staticmethod
    def taken(world: World, before: Shard, after: Shard) -> World:
        up = world.upstream[before]
        found = World({after: up.table})
        found.upstream[after].rows = {key: dict(row) for key, row in up.rows.items()}
        return found

    def stranger(self, world: World, before: Shard, after: Shard) -> None:
        target = self.target_of(after.table)
        if target is None:
            self.outside[after.source, after.table] = world
            return
        own, up = self.worlds[target], world.upstream[before]
        own.strangers.add(after)
        own.create(after, up.table)
        own.upstream[after].rows = {key: dict(row) for key, row in up.rows.items()}
        own.owners |= dict.fromkeys(up.rows.keys() & own.rows.keys(), after)

    # --- commands

    def command(self, what: str, body: str) -> None:
        names, _, ddl = body.partition(" : ")
        if what in ("refuse", "accept"):
            for world in self.worlds.values():
                world.refuses = what == "refuse"
            return
        target, *shard = names.split()
        world = self.worlds[target]
        one = Shard(shard[0], identified(shard[1])) if shard else None
        if not world.changes():
            self.differs.append(f"nothing waits at {what} {body}")
            return
        texts = [f"ALTER TABLE t {text}" for text in ddl.split(" | ")]
        match what, one:
            case "unlock", _:
                done = world.unlock()
            case "skip", None:
                done = world.skip()
            case "skip", _:
                done = world.skip_shard(one)
            case "replace", None:
                done = world.replace_all(*texts)
            case "replace", _:
                done = world.replace_shard(one, *texts)
            case _:
                self.outside[one.source, one.table] = self.taken(world, one, one)
                world.drop_shard(one)
                self.dropped[one] = target
                done = True
        if not done:
            self.differs.append(f"not possible: {what} {body}")

    # --- expectations

    def expect(self, line: str, found: object, wanted: object) -> None:
        if found != wanted:
            self.differs.append(f"{line}: {found}")

    def check_lock(self, body: str) -> None:
        target, state, *shards = body.split(" ", 2)
        world = self.worlds[target]
        changes = world.changes()
        if not changes:
            self.differs.append(f"lock {body}: nothing waits")
            return
        first = changes[0]
        own = "failed" if world.is_failed else first.state
        named = first.others if own == "conflict" else first.lacks
        found = f"{own} {', '.join(map(str, sorted(named)))}".strip()
        self.expect(f"lock {body}", found, " ".join([state, *shards]) if state != "failed" else "failed")

    def check_nolock(self, body: str) -> None:
        self.expect("nolock", [(c.text, c.state) for c in self.worlds[body].changes()], [])

    def check_held(self, body: str) -> None:
        self.expect(f"held {body}", sum(world.held() for world in self.worlds.values()), int(body))

    def check_ddl(self, body: str) -> None:
        found = []
        for target, world in self.worlds.items():
            found += world.texts[self.told.get(target, 0) :]
            self.told[target] = len(world.texts)
        self.expect(
            f"ddl {body}",
            [text.removeprefix("ALTER TABLE t ") for text in found],
            [d.strip() for d in body.split("|") if d.strip()],
        )

    def check_rows(self, body: str) -> None:
        target, _, rows = body.partition(" ")
        world = self.worlds[target]
        order = [*world.target.table.columns]
        found = {
            ",".join("NULL" if row.get(id) is None else str(row[id]) for id in order) for row in world.rows.values()
        }
        self.expect(f"rows {body}", sorted(found), sorted({row.strip() for row in rows.split("|") if row.strip()}))

    def check_union(self, _: str) -> None:
        for target, world in self.worlds.items():
            world.check_rows()
            if not world.changes():
                keys = {key for up in world.upstream.values() for key in up.rows} | {*world.left}
                self.expect(f"union {target}", {*world.rows} ^ keys, set())


def played(path: Path, in_order: bool = True) -> Player:
    """Play a case; an error of the prototype is one of its differences."""
    player = Player(parse(path), in_order)
    try:
        return player.play()
    except (AssertionError, KeyError, UnshardError, StopIteration, ValueError) as error:
        player.differs.append(f"{type(error).__name__}: {error}")
        return player
