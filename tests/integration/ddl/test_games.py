"""Random play on real servers: two groups over two sources, DDL in any interleaving, a restart after random steps.

One number determines the groups of a game, a sequence of DDLs for each, and the order of all actions. Processes die
at critical points: with a window begun, with rows written and not committed, with a DDL executed and not recorded. At
the end every shard has run its group's DDLs, and each target must be the union of its shards, column by column.
`UNSHARD_EXAMPLES=1000` plays 1000 games.
"""

import contextlib
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pymysql.err import OperationalError

from tests.dying import Died
from tests.livetask import LiveTask, living
from tests.suite.portions import examples
from unshard.adapters.mysql import connect
from unshard.adapters.structures import read_schema
from unshard.core.model import TableId
from unshard.operate.command import Force
from unshard.operate.issuing import give
from unshard.units.ddl import coordinate, execute
from unshard.units.window import sync
from unshard_demo.servers import MariaDb

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.mariadb_only("the random statements are in the dialect of MariaDB: TiDB refuses FORCE"),
]

EXAMPLES = examples(0, 1, 500)
COLUMNS = {"t": "id INT PRIMARY KEY, v INT", "u": "id INT NOT NULL, v INT"}
"""Rows of t have a key, rows of u have none."""
KINDS = ("INT", "BIGINT", "VARCHAR(20)", "DECIMAL(9,2)", "INT NOT NULL DEFAULT 7", "VARCHAR(9) DEFAULT 'ä''b'")
STEPS = 60
REFUSED = (1067, 1089)
"""NOT NULL has no DEFAULT NULL; an index is not longer than a column that DROP and ADD make shorter."""


class Sequence:
    """The DDLs of one group; each is possible after the earlier ones."""

    def __init__(self, dice: random.Random, forces: bool) -> None:
        self.dice, self.forces = dice, forces
        self.serial = 0
        self.columns = ["v"]
        self.specs = [self.spec() for _ in range(dice.randrange(1, 4))]

    def new(self, letter: str = "c") -> str:
        self.serial += 1
        return f"{letter}{self.serial}"

    def added(self) -> str:
        self.columns.append(self.new())
        return self.columns[-1]

    def dropped(self, name: str) -> str:
        self.columns.remove(name)
        return name

    def spec(self) -> str:
        pick = self.dice.choice
        kind, where = pick(KINDS), pick(("", " FIRST", " AFTER id"))
        forms: list[Callable[[str], str]] = [
            lambda _: f"ADD COLUMN {self.added()} {kind}{where}",
            lambda _: f"ADD ({self.added()} {kind}, {self.added()} INT)",
            lambda some: f"MODIFY {some} VARCHAR(60){where}",
            lambda some: f"ADD INDEX {self.new('i')} ({some})",
            lambda _: f"ADD COLUMN {self.new('g')} INT AS (id + {self.serial}) {pick(('VIRTUAL', 'STORED'))}",
            lambda some: f"DROP COLUMN {self.dropped(some)}, ADD COLUMN {self.added()} {kind}",
            lambda some: pick(("ENGINE=InnoDB", f"COMMENT '{self.new()}'", f"ALTER {some} SET DEFAULT NULL, FORCE")),
            lambda some: f"DROP COLUMN {self.dropped(some)}",
        ]
        if not self.forces:
            # A late shard writes by column name, so a name must keep its meaning: see docs/limits.md.
            forms += [
                lambda some: f"DROP COLUMN {some}, ADD COLUMN {some} {kind}",
                lambda some: f"RENAME COLUMN {self.dropped(some)} TO {self.added()}",
                lambda some: f"CHANGE {self.dropped(some)} {self.added()} VARCHAR(60){where}",
            ]
        return pick(forms)(pick(self.columns)) if self.columns else forms[0]("")


class Game:
    """One random history of one task."""

    def __init__(self, task: LiveTask, dice: random.Random, forces: bool) -> None:
        self.task, self.dice, self.forces = task, dice, forces
        self.sequences = {group: Sequence(dice, forces).specs for group in "tu"}
        self.done = {shard: 0 for shards in task.shards.values() for shard in shards}
        self.serial = 0
        self.shapes = {group: self.shapes_of(group) for group in "tu"}

    def shapes_of(self, group: str) -> list[str]:
        """Run the sequence on a table that is not a shard; return the shape after each DDL that is not refused."""
        server, name = self.task.sources["s1"], f"{self.task.name}.plain_{group}"
        server.run(f"CREATE TABLE {name} ({COLUMNS[group]})")
        found = []
        with contextlib.closing(connect(server.server)) as connection:
            for spec in ("FORCE", *self.sequences[group]):
                try:
                    server.run(f"ALTER TABLE {name} {spec}")
                except OperationalError as error:
                    assert error.args[0] in REFUSED, spec
                    self.sequences[group].remove(spec)
                    continue
                found.append(read_schema(connection, TableId(self.task.name, f"plain_{group}")).shape)
        return found

    # --- upstream

    def shard(self) -> tuple[str, str, str]:
        source, name = self.dice.choice(sorted(self.done))
        return source, name, name.rpartition(".")[2][0]

    def rows(self) -> None:
        source, name, _ = self.shard()
        server = self.task.sources[source]
        with contextlib.closing(connect(server.server)) as connection:
            columns = [c for c in read_schema(connection, TableId(*name.split("."))).written if c.name != "id"]
        self.serial += 1
        values = {c.name: str(self.dice.randrange(100)) for c in columns}
        names = "".join(f", {name}" for name in values)
        insert = f"INSERT INTO {name} (id{names}) VALUES ({self.serial}{''.join(f', {v}' for v in values.values())})"
        sets = ", ".join(f"{name} = {value}" for name, value in values.items())
        changes = [insert, insert, f"DELETE FROM {name} ORDER BY id LIMIT 1"]
        changes += [f"UPDATE {name} SET {sets} ORDER BY id DESC LIMIT 2"] * bool(sets)
        server.run(self.dice.choice(changes))

    def ddl(self) -> None:
        behind = [shard for shard, done in sorted(self.done.items()) if done < len(self.sequences[group_of(shard)])]
        if behind:
            source, name = shard = self.dice.choice(behind)
            self.task.sources[source].run(f"ALTER TABLE {name} {self.sequences[group_of(shard)][self.done[shard]]}")
            self.done[shard] += 1

    def newcomer(self) -> None:
        source, name, group = self.shard()
        done = self.done[source, name]
        if self.shapes[group].count(self.shapes[group][done]) > 1:
            return  # it is unknown which of the DDLs it has
        self.serial += 1
        fresh = source, f"{self.task.name}.{group}_{1000 + self.serial}"
        self.task.sources[source].run(f"CREATE TABLE {fresh[1]} LIKE {name}")
        self.done[fresh] = done
        self.task.shards[group].append(fresh)

    def rename(self) -> None:
        source, name, group = self.shard()
        self.serial += 1
        fresh = f"{self.task.name}.{group}_{1000 + self.serial}"
        self.task.sources[source].run(f"RENAME TABLE {name} TO {fresh}")
        self.done[source, fresh] = self.done.pop((source, name))
        self.task.shards[group].remove((source, name))
        self.task.shards[group].append((source, fresh))

    # --- the task

    def step(self) -> None:
        source = self.dice.choice(("s1", "s2"))
        match self.dice.randrange(8):
            case 0 | 1 | 2:
                self.task.pull(source)
            case 3 | 4 | 5:
                self.task.window(source)
            case _:
                self.task.coordinate()

    def die(self) -> None:
        """Run a window or a DDL up to some point, then drop all state of the process."""
        with pytest.MonkeyPatch.context() as patch, contextlib.suppress(Died):
            module, step = self.dice.choice(
                ((sync, "create_joined"), (sync, "_move"), (sync, "_sweep"), (execute, "_run"), (execute, "intent"))
            )
            patch.setattr(module, step, dying(getattr(module, step)))
            source = self.dice.choice(("s1", "s2"))
            self.task.pull(source)
            self.task.window(source)
            self.task.coordinate()
        self.task.restart()

    def force(self) -> None:
        views = coordinate.views(self.task.work().meta)
        if views and self.forces:
            give(self.task.work().meta, Force(self.dice.choice(views).id), "operator", "test", "because")

    def play(self) -> None:
        things = [self.rows] * 6 + [self.ddl] * 3 + [self.step] * 8 + [self.die, self.task.restart, self.force]
        things += [self.newcomer, self.rename]
        for _ in range(self.dice.randrange(STEPS)):
            self.dice.choice(things)()
        while any(done < len(self.sequences[group_of(shard)]) for shard, done in self.done.items()):
            self.ddl()
            self.dice.choice((self.rows, self.step, self.task.restart))()
        self.rows()
        self.task.run()

    def check(self) -> None:
        self.task.assert_settled()
        for group, specs in self.sequences.items():
            done = self.task.executed(group)
            assert len(done) == len(specs)
            assert all(one.endswith(spec) for one, spec in zip(done, specs, strict=True)), (done, specs)


def group_of(shard: tuple[str, str]) -> str:
    return shard[1].rpartition(".")[2][0]


def dying(function):
    """Return the function followed by a death."""

    def replacement(*given: object, **named: object) -> None:
        function(*given, **named)
        raise Died

    return replacement


@settings(max_examples=EXAMPLES, deadline=None, derandomize=EXAMPLES <= 50, suppress_health_check=list(HealthCheck))
@given(number=st.integers(0, 2**48))
def test_targets_become_the_union(
    source_1: MariaDb, source_2: MariaDb, target: MariaDb, tmp_path_factory: pytest.TempPathFactory, number: int
) -> None:
    dice = random.Random(number)
    numbers = {(source, group): range(dice.randrange(source == "s1", 3)) for source in ("s1", "s2") for group in "tu"}
    folder, servers = tmp_path_factory.mktemp("game"), (source_1, source_2, target)
    size = dice.choice((500, 5000, 100_000))
    made = living(f"game_{number:x}", Path(folder), servers, "tu", columns=COLUMNS, numbers=numbers, window_bytes=size)
    with made as task:
        game = Game(task, dice, forces=dice.random() < 0.3)
        game.play()
        game.check()
