"""Tables with several unique keys, cut into chunks while values move between their rows: the target is the union.

Everything runs in this process, so a test determines the changes between two chunks, and where the load dies.
UNSHARD_EXAMPLES runs more random histories.
"""

import contextlib
import dataclasses
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import pytest
import yaml

from tests.cutting import bound_transactions
from tests.dying import Died, dying_after
from tests.localspark import LocalSpark
from tests.oracle import assert_union, columns_of, rows, union
from tests.suite.portions import examples
from tests.taskfile import Settings, schemas, write_task
from tests.tidbsettings import is_tidb
from unshard.adapters.target import chunkprogress, deferring, fencesteps
from unshard.config import load_task
from unshard.errors.full import LoadCollision
from unshard.errors.rows import DeferredRowMissing
from unshard.units.full import dump as dumps
from unshard.units.full import loadchunks
from unshard.units.full.dump import dump
from unshard.units.full.load import handover, load
from unshard.units.full.loadchunks import LoadBatch
from unshard.units.full.snapshot import take_snapshot
from unshard.units.relay.tasksource import pull_source
from unshard.units.task.status import remarks
from unshard.units.window.sync import run_window
from unshard.units.work import Work, open_work
from unshard_demo.servers import MariaDb

pytestmark = [pytest.mark.integration, pytest.mark.writes_rows]

SEEDS = range(examples(0, 1, 20))
ROWS = 60
CHUNK_ROWS = 10
CI = "COLLATE utf8mb4_general_ci"
PLAIN = f"id INT PRIMARY KEY, u VARCHAR(20) {CI} UNIQUE, n INT"
KINDS = (
    "DECIMAL(9,3) DEFAULT -0.001",
    "DATETIME(3) DEFAULT '2020-01-01 00:00:00.001'",
    "TIME(2) DEFAULT '-00:00:00.01'",
    "TIMESTAMP(1) DEFAULT '2020-01-01 00:00:00.1'",
    "YEAR DEFAULT 1901",
    "ENUM('a','B') DEFAULT 'B'",
    "SET('x','y') DEFAULT 'x,y'",
    "BIT(9) DEFAULT b'100001010'",
    "INET6 DEFAULT '::1'",
    "BINARY(3) DEFAULT 'a'",
    "UUID DEFAULT '00112233-4455-6677-8899-aabbccddeeff'",
    "VARBINARY(5) DEFAULT x'00095c'",
    "CHAR(5) CHARACTER SET latin1 DEFAULT 'é'",
    "VARCHAR(5) CHARACTER SET ucs2 DEFAULT 'a '",
)
"""The load writes a deferred key and a window finds it: the texts of both must be the same."""
LACKED_BY_TIDB = ("INET6", "UUID", "CHARACTER SET ucs2")


def keyed_by(kinds: Sequence[str]) -> str:
    names = ", ".join(f"c{n}" for n in range(len(kinds)))
    columns = ", ".join(f"c{n} {kind}" for n, kind in enumerate(kinds))
    return f"id INT, u VARCHAR(20) {CI} UNIQUE, n INT, {columns}, PRIMARY KEY (id, {names})"


TABLES = {
    "two more": f"id INT(9) ZEROFILL PRIMARY KEY, u VARCHAR(20) {CI}, n INT, UNIQUE (u), UNIQUE (n, u)",
    "composite": f"k VARCHAR(9) {CI} NOT NULL DEFAULT 'é', id INT, u VARCHAR(20) {CI}, n INT, PRIMARY KEY (k, id),"
    " UNIQUE (u, k)",
    "prefix": f"id INT PRIMARY KEY, u TEXT {CI}, n INT, UNIQUE (u(9))",
    "kinds": keyed_by(KINDS),
    "text key": f"id VARCHAR(20) {CI} PRIMARY KEY, u VARCHAR(20) CHARACTER SET latin1 UNIQUE, n INT",
}


def definition(name: str, target: MariaDb) -> str:
    """Return columns and keys of such a table, without types and collations that the target lacks."""
    if not is_tidb(target):
        return TABLES[name]
    kinds = [kind for kind in KINDS if not any(word in kind for word in LACKED_BY_TIDB)]
    found = keyed_by(kinds) if name == "kinds" else TABLES[name]
    return found.replace("CHARACTER SET latin1", "CHARACTER SET latin1 COLLATE latin1_bin")


def items_here(spark, function, items, parallelism):
    for item in items:
        yield from function(item)


@dataclasses.dataclass
class Stage:
    """Shards t_1 and t_2 of one source and t_3 of another, and the task that merges them."""

    name: str
    folder: Path
    sources: dict[str, MariaDb]
    target: MariaDb
    patch: pytest.MonkeyPatch
    ignores: Sequence[str] = ()
    """Row changes that the task ignores."""
    where: str = ""
    """The condition of the dump."""
    shards = {"s1": (1, 2), "s2": (3,)}

    def make(self, definition: str) -> None:
        for source, numbers in self.shards.items():
            for number in numbers:
                row = f"seq * 10 + {number}, CONCAT('u', seq * 10 + {number}), seq"
                self.sources[source].run(
                    f"CREATE TABLE {self.name}.t_{number} ({definition})",
                    f"INSERT INTO {self.name}.t_{number} (id, u, n) SELECT {row} FROM mysql.seq_1_to_{ROWS}",
                )

    @contextlib.contextmanager
    def work(self, **different: str) -> Iterator[Work]:
        settings = Settings(chunk_rows=CHUNK_ROWS, **different)
        path = write_task(self.folder, self.name, self.sources, self.target, {"t": "t_*"}, settings)
        body = yaml.safe_load(path.read_text())
        body["unshard"]["window-size"] = "6000"
        body["mydumpers"]["d"]["where"] = self.where
        if self.ignores:
            body["filters"] = {"f": {"schema-pattern": "*", "events": self.ignores, "action": "Ignore"}}
            for instance in body["mysql-instances"]:
                instance["filter-rules"] = ["f"]
        path.write_text(yaml.safe_dump(body))
        with open_work(load_task(path)) as work:
            yield dataclasses.replace(work, spark=LocalSpark, bulk_spark=LocalSpark)

    def chunks(self, work: Work) -> list[int]:
        return [
            sum(chunk.shard == state.shard for chunk in work.meta.chunks.of(state.shard.source))
            for state in work.meta.structures.shards()
        ]

    def read(self, work: Work, between: Callable[[str], None] = lambda source: None) -> None:
        """Dump all sources; call `between` with the source after each of its chunks."""

        def reading(spark, function, items, parallelism):
            for item in items:
                yield from function(item)
                between(function.args[0].source)

        for source in self.sources:
            take_snapshot(work, source)
        with self.patch.context() as patch:
            patch.setattr(dumps, "map_items", reading)
            for source in self.sources:
                dump(work, source)

    def load(self, work: Work) -> None:
        for source in self.sources:
            load(work, source)

    def follow(self, work: Work) -> None:
        handover(work)
        self.catch_up(work)

    def catch_up(self, work: Work) -> None:
        for source in self.sources:
            pull_source(work, source, segment_bytes=3000)
            while run_window(work, source).moved:
                pass

    def assert_union(self) -> int:
        return assert_union(self.sources, self._named(), self.target, f"{self.name}_to.t")

    def assert_union_where(self) -> int:
        """Assert that only rows that fail the condition are missing, and no other rows exist; return the number of
        rows.
        """
        target = f"{self.name}_to.t"
        columns = columns_of(self.target, target)
        want, got = union(self.sources, self._named(), columns), rows(self.target, target, columns)
        under = union(self.sources, self._named(f" WHERE {self.where}"), columns)
        assert not got - want and not under - got
        return sum((want - got).values())

    def _named(self, under: str = "") -> dict[str, list[str]]:
        return {source: [f"{self.name}.t_{n}{under}" for n in numbers] for source, numbers in self.shards.items()}


@pytest.fixture
def stage(source_1, source_2, target, unique, tmp_path, monkeypatch) -> Iterator[Stage]:
    sources = {"s1": source_1, "s2": source_2}
    monkeypatch.setattr("unshard.units.full.load.map_items", items_here)
    monkeypatch.setattr(dumps, "map_items", items_here)
    with schemas(unique, sources.values(), target):
        yield Stage(unique, tmp_path, sources, target, monkeypatch)


def transaction(chance: random.Random, number: int) -> list[str]:
    """Return changes of a shard, most of which move values of `u` between rows; refused statements are ignored."""
    table = f"t_{number}"
    first, second = (chance.randint(1, ROWS) * 10 + number for _ in range(2))
    new = chance.randint(1, 2 * ROWS) * 10 + number
    values = (
        f"SET @a = (SELECT u FROM {table} WHERE id = {first} LIMIT 1),"
        f" @b = (SELECT u FROM {table} WHERE id = {second} LIMIT 1)"
    )
    free, given = f"UPDATE {table} SET u = NULL WHERE id = {first}", f"UPDATE {table} SET u = {{}} WHERE id = {{}}"
    row = f"INSERT IGNORE INTO {table} (id, u, n) VALUES ({new}, {{}}, {first})"
    return chance.choice(
        [
            [values, free, given.format("@a", second), given.format("@b", first)],
            [values, free, given.format("UPPER(@a)", second)],
            [values, f"DELETE FROM {table} WHERE id = {first}", row.format("@a")],
            [f"UPDATE IGNORE {table} SET id = {new} WHERE id = {first}"],
            [row.format(f"CONCAT('u', {second})")],
            [f"UPDATE {table} SET n = {new} WHERE id = {first}"],
        ]
    )


@pytest.mark.parametrize(("name", "where"), [*((name, "") for name in TABLES), ("two more", "n % 5 > 0")])
@pytest.mark.parametrize("seed", SEEDS)
def test_values_that_move_while_chunks_are_read(stage: Stage, name: str, where: str, seed: int) -> None:
    """The binlog adds all deferred rows, for any moves, any death of the load, and any order of chunks.

    The same with a condition, which excludes other rows: at the end all rows that meet it are in the target.
    """
    chance = random.Random(f"{name} {seed}")
    stage.where = where

    def between(source: str) -> None:
        changes = [transaction(chance, number) for number in stage.shards[source] for _ in range(chance.randint(0, 6))]
        some = [statement for each in changes for statement in ("BEGIN", *each, "COMMIT")]
        stage.sources[source].run(f"USE {stage.name}", "SET sql_mode = ''", *some)

    stage.make(definition(name, stage.target))
    bound_transactions(stage.patch, fencesteps.Bounds(chance.choice([5, 1000]), 1 << 20, 1))
    stage.patch.setattr(deferring, "AT_ONCE", 2)
    stage.patch.setattr("unshard.units.full.load.in_order", lambda batches: shuffled(batches, chance))
    with stage.work() as work:
        stage.read(work, between)
        assert min(stage.chunks(work)) > 4
        for source in stage.sources:
            for module, step in ((chunkprogress, "mark_loaded"), (loadchunks, "_write"), (loadchunks.mysql, "query")):
                with stage.patch.context() as patch, contextlib.suppress(Died):
                    patch.setattr(module, step, dying_after(chance.randint(2, 9), getattr(module, step)))
                    load(work, source)
            load(work, source)
            between(source)
        left = sum(work.meta.deferred.counts().values())
        stage.follow(work)
        assert not work.meta.deferred.counts()
        assert work.meta.checkpoints.get("s1").window > 3
    assert left, "a history in which no value moves shows nothing"
    assert stage.assert_union_where() if where else stage.assert_union() > ROWS


def shuffled(batches: Iterable[LoadBatch], chance: random.Random) -> list[LoadBatch]:
    some = [*batches]
    return chance.sample(some, len(some))


def test_a_target_that_is_keyed_by_another_column(stage: Stage) -> None:
    """The target's key is not `id`, because shards have the same ids: its only unique key moves between rows."""
    stage.make(f"id INT PRIMARY KEY, u VARCHAR(20) {CI} NOT NULL UNIQUE, n INT")
    stage.target.run(
        f"CREATE DATABASE {stage.name}_to",
        f"CREATE TABLE {stage.name}_to.t (id INT NOT NULL, u VARCHAR(20) {CI} NOT NULL UNIQUE, n INT)",
    )
    moves = iter(range(3))

    def between(source: str) -> None:
        if source == "s1" and next(moves, None) == 2:
            taken = "UPDATE t_1 SET u = 'u11' WHERE id = 501"
            stage.sources[source].run(f"USE {stage.name}", "UPDATE t_1 SET u = 'new' WHERE id = 11", taken)

    with stage.work() as work:
        stage.read(work, between)
        assert min(stage.chunks(work)) > 4
        stage.load(work)
        assert work.meta.deferred.counts() == {f"{stage.name}_to.t": 1}
        assert remarks(work.meta, ()).deferred == {f"{stage.name}_to.t": 1}
        stage.follow(work)
        assert not work.meta.deferred.counts()
    stage.assert_union()


@pytest.mark.parametrize("why", ["policy", "row image", "collation", "prefix", "generated", "filter"])
def test_tables_that_stay_in_one_piece(stage: Stage, why: str) -> None:
    """Where a deferred row might never come again, all rows of a shard are read at one moment."""
    plain = "v VARCHAR(20) COLLATE utf8mb4_bin UNIQUE"
    own = "g VARCHAR(20) AS (LOWER(u)) STORED UNIQUE" if why == "generated" else plain
    there = {"collation": own.replace("utf8mb4_bin", "utf8mb4_general_ci")}.get(why, own)
    unique = ", UNIQUE (u(3))" if why == "prefix" else ""
    columns = "id INT PRIMARY KEY, u VARCHAR(20), n INT, {}"
    stage.make(columns.format(own))
    table = f"CREATE TABLE {stage.name}_to.t ({columns.format(there)}{unique})"
    stage.target.run(f"CREATE DATABASE {stage.name}_to", table)
    if why == "filter":
        stage.ignores = ["update"]
    images = ("MINIMAL", "FULL") if why == "row image" else ()
    with contextlib.ExitStack() as stack:
        for image in images[:1]:
            for server in stage.sources.values():
                server.run(f"SET GLOBAL binlog_row_image = {image}")
                stack.callback(server.run, f"SET GLOBAL binlog_row_image = {images[1]}")
        policy = {"on_duplicate": "replace"} if why == "policy" else {}
        work = stack.enter_context(stage.work(**policy))
        stage.read(work)
        assert stage.chunks(work) == [1, 1, 1]
        assert all(state.start for state in work.meta.structures.shards())


@pytest.mark.sample("a change without all columns, and no change")
@pytest.mark.parametrize("session", ["binlog_row_image = MINIMAL", "sql_log_bin = 0"])
def test_a_row_that_never_comes_is_said_until_it_does(stage: Stage, session: str) -> None:
    """The binlog has only the changed columns of the deferred row, or no change of it: other changes do not count."""
    stage.make(PLAIN)
    moves = iter(range(3))

    def between(source: str) -> None:
        if source == "s1" and next(moves, None) == 2:
            first, *rest = "UPDATE t_1 SET u = NULL WHERE id = 11", "UPDATE t_1 SET u = 'u11' WHERE id = 501"
            stage.sources[source].run(f"USE {stage.name}", first, f"SET SESSION {session}", *rest)

    with stage.work() as work:
        stage.read(work, between)
        stage.load(work)
        for _ in range(2):
            with pytest.raises(DeferredRowMissing, match=r"lacks 1 deferred rows.* id = 501 of shard s1 .*t_1"):
                stage.follow(work)
        missing = stage.target.run(f"SELECT COUNT(*) FROM {stage.name}_to.t WHERE id = 501")
        assert missing == [(0,)]
        stage.sources["s1"].run(f"UPDATE {stage.name}.t_1 SET n = -n WHERE id = 501")
        with pytest.raises(DeferredRowMissing):
            run_window(work, "s1")
        stage.catch_up(work)
    stage.assert_union()


def test_a_value_of_another_shard_is_a_collision_and_its_shard_read_anew(stage: Stage) -> None:
    """The deferred rows of a shard that is read again are read at one moment then, and no longer deferred."""
    stage.make(PLAIN)
    stage.sources["s1"].run(f"UPDATE {stage.name}.t_2 SET u = 'u31' WHERE id = 502")
    moves = iter(range(9))

    def between(source: str) -> None:
        if source == "s1" and next(moves, None) == 8:
            free, take = "UPDATE t_2 SET u = NULL WHERE id = 12", "UPDATE t_2 SET u = 'u12' WHERE id = 252"
            stage.sources[source].run(f"USE {stage.name}", free, take)

    with stage.work() as work:
        stage.read(work, between)
        stage.patch.setattr(
            "unshard.units.full.load.in_order", lambda batches: sorted(batches, key=lambda each: each.chunk)
        )
        with pytest.raises(LoadCollision, match="u = u31") as caught:
            load(work, "s1")
        assert {caught.value.shard, caught.value.owner} == {f"s1 {stage.name}.t_2", f"shard s1 {stage.name}.t_1"}
        assert work.meta.deferred.counts() == {f"{stage.name}_to.t": 1}
        stage.sources["s1"].run(f"UPDATE {stage.name}.t_2 SET u = 'other' WHERE id = 502")
        stage.load(work)
        assert stage.chunks(work)[1] == 1
        assert not work.meta.deferred.counts()
        stage.follow(work)
    stage.assert_union()
