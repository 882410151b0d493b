"""Two shards with one key: found, named, recorded by key only, resolved by the policy, repaired without a new start."""

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.dying import Died
from tests.livetask import LiveTask, living
from tests.localspark import LocalSpark
from tests.oracle import assert_union
from tests.taskfile import Settings, schemas, write_task
from unshard.adapters.meta.loadrecords import Chunks
from unshard.adapters.target import chunkprogress
from unshard.cli import main
from unshard.config import load_task
from unshard.core.rows.rowerrors import CollisionState, Found, RecordedCollision
from unshard.core.task.state import ChunkState, Phase
from unshard.errors.full import LoadCollision
from unshard.errors.rows import Collision
from unshard.units.full import load as loading
from unshard.units.full.dump import dump
from unshard.units.full.load import handover, load
from unshard.units.full.snapshot import take_snapshot
from unshard.units.relay import pull
from unshard.units.window.suspending import retry
from unshard.units.window.sync import next_plan, run_window
from unshard.units.work import Work, open_work
from unshard_demo.servers import MariaDb

pytestmark = [pytest.mark.integration, pytest.mark.writes_rows]
COLUMNS = "id INT PRIMARY KEY, u VARCHAR(9), secret VARCHAR(20), UNIQUE KEY short (u(2))"


@contextlib.contextmanager
def merging(servers, unique: str, folder: Path, **made: object) -> Iterator[LiveTask]:
    numbers = {("s1", "t"): (1, 2), ("s2", "t"): (3,)}
    with living(unique, folder, servers, ("t",), columns={"t": COLUMNS}, numbers=numbers, **made) as task:
        yield task


@pytest.fixture
def servers(source_1, source_2, target):
    return source_1, source_2, target


def told(one: RecordedCollision) -> tuple[str, str, str, str, int]:
    collision = one.collision
    return (
        collision.key,
        collision.shard.table.name,
        collision.owner.table.name if collision.owner else "",
        one.state.value,
        one.times,
    )


def advance(task: LiveTask, *sources: str) -> None:
    for source in sources or ("s1", "s2"):
        task.pull(source)
        while task.window(source).moved:
            pass


def applied(task: LiveTask, source: str) -> int:
    return task.work().meta.checkpoints.get(source).rows_applied


KEYS = [
    ("INSERT INTO t_3 VALUES (1, 'zz', 'b')", "id = 1"),
    ("INSERT INTO t_3 VALUES (9, 'ABx', 'b')", "u = ABx"),
]


@pytest.mark.parametrize(("statement", "key"), KEYS)
def test_a_window_that_meets_a_taken_key_stops_names_both_and_goes_on_when_one_is_gone(
    servers, unique, tmp_path, statement, key
):
    source_1, source_2, _ = servers
    with merging(servers, unique, tmp_path) as task:
        source_1.run(f"INSERT INTO {unique}.t_1 VALUES (1, 'abc', 'a')")
        source_2.run(f"USE {unique}", statement, "INSERT INTO t_3 VALUES (30, 'free', 'c')")
        advance(task, "s1")
        for attempt in (1, 2):
            advance(task, "s2")
            error = task.stopped()["s2", "t"]
            assert isinstance(error, Collision)
            assert (error.key, error.shard, error.owner) == (key, f"s2 {unique}.t_3", f"shard s1 {unique}.t_1")
            assert "remove the row" in str(error)
            (found,) = task.work().meta.collisions.all()
            assert told(found) == (key, "t_3", "t_1", "open", attempt)
            task.restart()
            retry(task.work(), task.work().meta.suspended_targets.all() if attempt == 1 else ())
        assert "secret" not in str(task.target.run(f"SELECT * FROM {task.meta_schema}.collision"))
        assert task.work().meta.collisions.counts("s2") == {CollisionState.OPEN: 1}
        source_1.run(f"DELETE FROM {unique}.t_1")
        advance(task)
        task.assert_union("t")
        (found,) = task.work().meta.collisions.all()
        assert (found.state, found.found) == (CollisionState.MENDED, Found.WINDOW)


def test_a_row_that_its_shard_has_truncated_away_is_removed_as_the_command_says(servers, unique, tmp_path, capsys):
    source_1, source_2, target = servers
    with merging(servers, unique, tmp_path) as task:
        source_1.run(f"USE {unique}", "INSERT INTO t_1 VALUES (1, 'abc', 'a')", "TRUNCATE t_1")
        source_2.run(f"USE {unique}", "INSERT INTO t_3 VALUES (1, 'x', 'c')")
        advance(task, "s1")
        advance(task, "s2")
        assert "id = 1 already, from a shard that does not have it any more" in str(task.stopped()["s2", "t"])
        assert main(["collisions", str(task.path)]) == 3
        (statement,) = (line for line in capsys.readouterr().out.splitlines() if "DELETE FROM" in line)
        target.run(statement)
        advance(task)
        task.assert_union("t")


CI = "COLLATE utf8mb4_general_ci"
GENERATED = (
    f"id INT PRIMARY KEY, name VARCHAR(20) {CI}, a INT, n INT, f VARCHAR(20) AS (TRIM(name)) VIRTUAL,"
    f" g VARCHAR(20) AS (LOWER(f)) VIRTUAL, h INT AS (n / 2) STORED, k VARCHAR(30) {CI} AS (CONCAT('x', name)) STORED,"
    " UNIQUE KEY low (g), UNIQUE KEY half (a, h), UNIQUE KEY start (k(3))"
)
BY_GENERATED = [
    ("(2, ' ALICE', 2, 2)", "name =  ALICE"),
    ("(2, 'Bob', 1, 5)", "a = 1, n = 5"),
    ("(2, 'ALTO', 2, 2)", "name = ALTO"),
]


@pytest.mark.on_tidb
@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize(("row", "key"), BY_GENERATED)
def test_a_collision_on_a_generated_column_names_the_values_and_shards(servers, unique, tmp_path, row, key, at_once):
    """A column reads another one, an odd n is rounded up, and the last key is a prefix."""
    numbers = {("s1", "t"): (1, 2), ("s2", "t"): (3,)}
    with living(unique, tmp_path, servers, ("t",), columns={"t": GENERATED}, numbers=numbers) as task:
        insert = "INSERT INTO {}.{} (id, name, a, n) VALUES {}"
        servers[0].run(insert.format(unique, "t_1", "(1, 'Alice', 1, 6), (9, NULL, NULL, 1), (8, NULL, NULL, 1)"))
        if not at_once:
            advance(task, "s1")
        servers[0].run(insert.format(unique, "t_2", f"(7, 'Zoe', 7, 7), {row}"))
        advance(task, "s1")
        error = task.stopped()["s1", "t"]
        assert isinstance(error, Collision)
        found = (error.key, error.shard, error.owner)
        assert found == (key, f"s1 {unique}.t_2", f"shard s1 {unique}.t_1")
        servers[0].run(f"DELETE FROM {unique}.t_1 WHERE id = 1")
        task.retry()
        advance(task)
        task.assert_settled()


TWINS = [
    ("INSERT INTO t_2 VALUES (1, 'zz', 'b')", "id = 1"),
    ("INSERT INTO t_2 VALUES (2, 'abc', 'b')", "u = abc"),
    ("INSERT INTO t_2 VALUES (2, 'ÁBx', 'b')", "u = ÁBx"),
]


@pytest.mark.parametrize(
    ("policy", "winner", "statement", "key"),
    [
        ("error", None, *TWINS[1]),
        ("error", None, *TWINS[2]),
        ("replace", "b", *TWINS[0]),
        ("ignore", "a", *TWINS[0]),
        ("ignore", "a", *TWINS[2]),
    ],
)
def test_two_shards_that_bring_one_key_in_one_window(servers, unique, tmp_path, policy, winner, statement, key):
    with merging(servers, unique, tmp_path, on_duplicate=policy) as task:
        servers[0].run(f"USE {unique}", "INSERT INTO t_1 VALUES (1, 'abc', 'a')", statement)
        if winner is None:
            advance(task, "s1")
            error = task.stopped()["s1", "t"]
            assert isinstance(error, Collision)
            assert (error.key, error.owner, error.condition) == (key, f"shard s1 {unique}.t_1", "")
            servers[0].run(f"DELETE FROM {unique}.t_2")
            advance(task)
            assert task.stopped() and task.target.run(f"SELECT * FROM {task.table('t')}") == []
            task.retry()
            task.assert_settled()
            return
        advance(task, "s1")
        assert task.target.run(f"SELECT secret FROM {task.table('t')}") == [(winner,)]
        assert applied(task, "s1") == (2 if policy == "replace" else 1)
        (found,) = task.work().meta.collisions.all()
        assert told(found) == (key, "t_2", "t_1", "replaced" if policy == "replace" else "ignored", 1)


@pytest.mark.parametrize(("policy", "winner"), [("replace", "b"), ("ignore", "a")])
def test_what_a_policy_decides_is_recorded_once_and_named(servers, unique, tmp_path, policy, winner):
    """Collisions in large numbers are counted; a repeated window records nothing again."""
    source_1, source_2, _ = servers
    with merging(servers, unique, tmp_path, on_duplicate=policy) as task:
        rows = "INSERT INTO {}.{} SELECT seq, CONCAT({}, seq), '{}' FROM mysql.seq_{}"
        source_1.run(rows.format(unique, "t_2", "CHAR(96 + seq DIV 10 % 10, 97 + seq % 10)", "a", "1_to_60"))
        advance(task, "s1")
        assert applied(task, "s1") == 60
        source_2.run(rows.format(unique, "t_3", "CHAR(48 + seq DIV 10 % 10, 97 + seq % 10)", "b", "11_to_90"))
        task.pull("s2")
        begun = task.work().meta.windows.begin("s2", next_plan(task.work(), "s2"))
        report = task.window("s2")
        assert (report.rows_applied, report.rows_skipped) == ((80, 0) if policy == "replace" else (30, 50))
        assert applied(task, "s2") == report.rows_applied
        assert task.window("s2").moved is False
        assert begun.plan.number == 1
        won = task.target.run(f"SELECT COUNT(*), SUM(secret = '{winner}') FROM {task.table('t')}")
        assert won == [(90, 80 if policy == "replace" else 60)]
        found = task.work().meta.collisions.all()
        assert {told(one)[1:] for one in found} == {("t_3", "t_2", f"{policy}d" if winner == "b" else "ignored", 1)}
        assert (len(found), sum(one.collision.others for one in found)) == (20, 30)
        assert sum(task.work().meta.collisions.counts("s2").values()) == 50


# --- the load -----------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Full:
    """Two sources with a shard each, loaded as far as a test requires."""

    path: Path
    name: str
    sources: dict[str, MariaDb]
    target: MariaDb

    @contextlib.contextmanager
    def work(self) -> Iterator[Work]:
        with open_work(load_task(self.path)) as work:
            yield dataclasses.replace(work, spark=LocalSpark, bulk_spark=LocalSpark)

    def step(self, step, source: str) -> None:
        """Run each step with the state of a new process."""
        with self.work() as work:
            step(work, source)

    def loaded(self) -> None:
        """Finish the load, hand over and follow the binlog."""
        for source in self.sources:
            self.step(load, source)
        with self.work() as work:
            assert handover(work).checkpoints
            assert not work.storage.list("dump"), "the files of the dump are removed"
            for source in self.sources:
                at = work.meta.checkpoints.get(source)
                assert at is not None
                pull.pull(source, work.sources[source], work.store, at.location)
                while run_window(work, source).moved:
                    pass

    def compare(self) -> int:
        shards = {"s1": [f"{self.name}.t_1"], "s2": [f"{self.name}.t_2"]}
        return assert_union(self.sources, shards, self.target, f"{self.name}_to.t")


@pytest.fixture
def full(source_1, source_2, target, unique, tmp_path) -> Iterator[Full]:
    sources = {"s1": source_1, "s2": source_2}
    path = write_task(tmp_path, unique, sources, target, {"t": "t_*"}, Settings(chunk_rows=50))
    made = Full(path, unique, sources, target)
    with schemas(unique, sources.values(), target):
        for number, server in enumerate(sources.values(), 1):
            server.run(
                f"CREATE TABLE {unique}.t_{number} (id INT PRIMARY KEY, v INT)",
                f"INSERT INTO {unique}.t_{number} SELECT seq * 2 + {number % 2}, 0 FROM mysql.seq_100_to_400",
                f"INSERT INTO {unique}.t_{number} VALUES (9, {number})",
            )
        for source in sources:
            made.step(take_snapshot, source)
            made.step(dump, source)
        made.step(load, "s1")
        yield made


def collide(full: Full, attempt: int = 1) -> None:
    with pytest.raises(LoadCollision) as caught:
        full.step(load, "s2")
    error = caught.value
    found = (error.key, error.shard, error.owner)
    assert found == ("id = 9", f"s2 {full.name}.t_2", f"shard s1 {full.name}.t_1")
    with full.work() as work:
        (one,) = work.meta.collisions.all()
    assert (told(one), one.found) == (("id = 9", "t_2", "t_1", "open", attempt), Found.LOAD)


@pytest.mark.parametrize("gone", [("s1",), ("s2",), ("s1", "s2")], ids=str)
def test_a_collision_of_the_load_is_mended_by_removing_a_row(full: Full, gone: tuple[str, ...]):
    """All other changes of the shards meanwhile are applied, too; the binlog's DELETE does no harm."""
    collide(full)
    collide(full, 2)
    for number, server in enumerate(full.sources.values(), 1):
        server.run(
            f"UPDATE {full.name}.t_{number} SET v = v + 5 WHERE id % 3 = 0 AND id > 9",
            f"DELETE FROM {full.name}.t_{number} WHERE id > 9 AND id % 5 = 0",
            f"UPDATE {full.name}.t_{number} SET id = id + 5000 WHERE id % 7 = 0 AND id > 9",
        )
    for source in gone:
        full.sources[source].run(f"DELETE FROM {full.name}.t_{source[1]} WHERE id = 9")
    full.loaded()
    full.sources["s1"].run(f"UPDATE {full.name}.t_1 SET v = 77")
    full.sources["s2"].run(f"INSERT INTO {full.name}.t_2 VALUES (10001, 3)")
    full.loaded()
    assert full.compare() > 300
    assert full.target.run(f"SELECT COUNT(*) FROM {full.name}_to.t WHERE id = 9") == [(2 - len(gone),)]
    with full.work() as work:
        (one,) = work.meta.collisions.all()
    assert one.state is CollisionState.MENDED


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ("s1", (loading, "unload_batch")),
        ("s1", (Chunks, "begin_anew")),
        ("s2", (loading, "dump_again")),
        ("s1", (loading, "load_one_batch")),
    ],
    ids=str,
)
def test_mending_goes_on_after_a_death_anywhere(full: Full, monkeypatch, source: str, place):
    collide(full)
    full.sources[source].run(f"DELETE FROM {full.name}.t_{source[1]} WHERE id = 9")
    with monkeypatch.context() as patch:
        _die_after_one(patch, place)
        with pytest.raises(Died):
            full.step(load, "s2")
    with full.work() as work:
        state = work.meta.sources.get("s2")
        assert state is not None
        assert state.phase is Phase.DUMPED
        if place[1] != "load_one_batch":
            assert any(chunk.state is not ChunkState.LOADED for chunk in work.meta.chunks.of(source))
    full.loaded()
    full.compare()


def _die_after_one(patch: pytest.MonkeyPatch, place) -> None:
    owner, name = place
    function = getattr(owner, name)

    def replacement(*given):
        function(*given)
        raise Died

    patch.setattr(owner, name, replacement)


def test_a_load_that_is_killed_in_the_transaction_of_a_mending_takes_nothing_out(full: Full, monkeypatch):
    collide(full)
    full.sources["s1"].run(f"DELETE FROM {full.name}.t_1 WHERE id = 9")
    with monkeypatch.context() as patch:
        patch.setattr(chunkprogress, "mark_dumped", lambda *_: (_ for _ in ()).throw(Died()))
        with pytest.raises(Died):
            full.step(load, "s2")
    assert full.target.run(f"SELECT COUNT(*) FROM {full.name}_to.t WHERE v = 1") == [(1,)]
    full.loaded()
    full.compare()
