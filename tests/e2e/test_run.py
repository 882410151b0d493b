"""`unshard run` as a user runs it: full load, windows, DDL locks, exit codes, on real servers and Spark."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pymysql
import pytest
from spark_jobs import validate_table

from tests.oracle import assert_union
from tests.s3server import BUCKET, S3
from unshard.cli import main
from unshard.config import load_task
from unshard.units.validate.validate import Settings, validate
from unshard.units.work import open_work
from unshard_demo.processes import await_true
from unshard_demo.servers import MariaDb
from unshard_demo.sparkserver import SparkConnect

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.integration]

TASK = """
name: {schema}
task-mode: all
shard-mode: pessimistic
meta-schema: {schema}_meta
target-database: {{host: 127.0.0.1, port: {target}, user: admin, password-env: UNSHARD_DB_PASSWORD}}
mysql-instances:
  - {{source-id: s1, route-rules: [orders, events], block-allow-list: all}}
  - {{source-id: s2, route-rules: [orders, events], block-allow-list: all}}
routes:
  orders: {{schema-pattern: "{schema}_*", table-pattern: "orders_*", target-schema: {schema}, target-table: orders}}
  events: {{schema-pattern: "{schema}_*", table-pattern: "events_*", target-schema: {schema}, target-table: events}}
block-allow-list:
  all: {{do-dbs: ["{schema}_*"]}}
unshard:
  storage-path: {storage}
  spark-connection: {spark}
  bulk-connection: {spark}
"""
SOURCE = "source-id: {name}\nfrom: {{host: 127.0.0.1, port: {port}, user: admin, password-env: UNSHARD_DB_PASSWORD}}\n"
COMMAND = (sys.executable, "-m", "unshard.cli")
ADD = "ALTER TABLE {} ADD COLUMN channel varchar(9) NOT NULL DEFAULT 'web'"


class World:
    """Two sources with two shards of two targets each: orders have a key, events have none."""

    def __init__(self, sources: dict[str, MariaDb], target: MariaDb, schema: str, folder: Path) -> None:
        self.sources, self.target, self.schema, self.folder = sources, target, schema, folder
        self.path = folder / "task.yaml"
        (folder / "sources").mkdir()
        for number, (name, source) in enumerate(sources.items()):
            self.point(name, source.port)
            source.run(f"CREATE DATABASE {schema}_1")
            for shard in (1, 2):
                first = number * 100_000 + shard * 10_000
                source.run(
                    f"CREATE TABLE {schema}_1.orders_{shard} (id int PRIMARY KEY, v varchar(20), n decimal(9,2))",
                    f"CREATE TABLE {schema}_1.events_{shard} (what varchar(20))",
                    f"INSERT INTO {schema}_1.orders_{shard}"
                    f" SELECT {first} + seq, seq, seq / 3 FROM {schema}_1.seq_1_to_500",
                    f"INSERT INTO {schema}_1.events_{shard} VALUES ('a'), ('a'), (NULL)",
                )

    def write_task(self, spark: SparkConnect, storage: str = "") -> None:
        storage = storage or f"{self.folder}/storage"
        text = TASK.format(schema=self.schema, target=self.target.port, storage=storage, spark=spark.url)
        self.path.write_text(text)

    def point(self, source: str, port: int) -> None:
        (self.folder / f"sources/{source}.yaml").write_text(SOURCE.format(name=source, port=port))

    def write(self, source: str, *statements: str) -> None:
        """Run statements; names such as `orders_1` refer to the shards of this world."""
        changed = (
            s.replace(" orders_", f" {self.schema}_1.orders_").replace(" events_", f" {self.schema}_1.events_")
            for s in statements
        )
        self.sources[source].run(*changed)

    def assert_union(self) -> None:
        for name in ("orders", "events"):
            shards = {source: [f"{self.schema}_1.{name}_{n}" for n in (1, 2)] for source in self.sources}
            assert_union(self.sources, shards, self.target, f"{self.schema}.{name}")


@pytest.fixture
def spark(shared_spark: SparkConnect) -> SparkConnect:
    return shared_spark


@pytest.fixture
def sources(source_1: MariaDb, source_2: MariaDb) -> dict[str, MariaDb]:
    return {"s1": source_1, "s2": source_2}


@pytest.fixture
def world(sources, target, spark, unique, tmp_path, monkeypatch) -> World:
    monkeypatch.setenv("UNSHARD_DB_PASSWORD", "unshard")
    world = World(sources, target, unique, tmp_path)
    world.write_task(spark)
    return world


@pytest.fixture
def command(world: World, capsys):
    """Run a command with --json; return exit code and document."""

    def run(*given: str):
        capsys.readouterr()
        code = main([given[0], str(world.path), *given[1:], "--json"])
        said = capsys.readouterr()
        assert said.out.startswith("{"), said.err
        return code, json.loads(said.out)

    return run


def test_a_task_in_an_object_store(world: World, spark: SparkConnect, s3: S3, command, monkeypatch) -> None:
    """Dump, load, windows, rows that wait for a DDL and their release, with all files in a bucket."""
    monkeypatch.setenv("AIRFLOW_CONN_STORE", s3.connection)
    world.write_task(spark, f"s3://{BUCKET}/some/where\n  storage-conn-id: store")
    assert command("run", "--until", "full")[0] == 0
    world.write("s1", ADD.format("orders_1"), "UPDATE orders_1 SET channel = 'app'", "DELETE FROM events_1 LIMIT 1")
    code, found = command("run")
    assert code == 3, found
    assert [key for key in s3.objects if "/held/" in key and key.endswith(".parquet")]
    for number, (source, shard) in enumerate((("s1", 2), ("s2", 1), ("s2", 2))):
        row = f"INSERT INTO orders_{shard} VALUES ({number}, 'v', 1, 'shop')"
        world.write(source, ADD.format(f"orders_{shard}"), row)
    code, found = command("run")
    assert code == 0, found
    world.assert_union()
    assert not [key for key in s3.objects if key.endswith(".parquet")]
    assert not list(world.folder.glob("**/relay"))


def test_full_load_then_windows_then_nothing(world: World, command, capsys) -> None:
    code, found = command("run", "--until", "full")
    assert code == 0, found
    assert [(s["phase"], s["windows"]) for s in found["sources"]] == [("sync", 0), ("sync", 0)]
    status = command("status")[1]["sources"]
    assert [(s["load"]["done"], s["load"]["rows"]) for s in status] == [(s["load"]["chunks"], 1006) for s in status]
    world.write(
        "s1",
        "INSERT INTO orders_1 VALUES (1, 'new', 0)",
        "UPDATE orders_1 SET id = 2 WHERE id = 10001",
        "DELETE FROM orders_2 WHERE id <= 20100",
        "INSERT INTO events_1 VALUES ('a'), ('b')",
    )
    world.write("s2", "UPDATE orders_1 SET v = 'x'", "DELETE FROM events_2 WHERE what = 'a' LIMIT 1")
    code, found = command("run")
    assert code == 0, found
    assert all(s["windows"] >= 1 and s["rows_applied"] >= 1 for s in found["sources"])
    world.assert_union()
    assert command("validate")[1]["equal"] is True
    assert [(s["lag_seconds"], s["lag_bytes"]) for s in command("status")[1]["sources"]] == [(0, 0), (0, 0)]
    code, found = command("run")
    assert code == 0 and [s["windows"] for s in found["sources"]] == [0, 0]
    assert main(["run", str(world.path)]) == 0
    assert "caught up in" in capsys.readouterr().out


def test_run_waits_at_a_lock_with_3_and_goes_on_when_the_last_shard_has_come(world: World, command, capsys) -> None:
    assert command("run")[0] == 0
    world.write("s1", ADD.format("orders_1"), "INSERT INTO orders_1 VALUES (1, 'held', 1, 'app')")
    world.write("s2", "INSERT INTO orders_1 VALUES (2, 'free', 2)", "INSERT INTO events_1 VALUES ('free')")
    code, found = command("run")
    assert code == 3, found
    (lock,) = found["locks"]
    assert lock["target"] == f"{world.schema}.orders" and lock["state"] == "waiting"
    assert len(lock["ready"]) == 1 and len(lock["missing"]) == 3 and lock["held_rows"] == 1
    assert world.target.run(f"SELECT v FROM {world.schema}.orders WHERE id < 10") == [("free",)]
    assert main(["run", str(world.path)]) == 3
    said = capsys.readouterr().out
    assert lock["id"] in said and "unshard unlock" in said and "channel" in said and "1 DDL lock(s) open" in said
    assert command("locks")[0] == 3
    code, found = command("validate")
    waiting = next(t["waiting"] for t in found["tables"] if t["target"].endswith("orders"))
    assert (code, waiting["locks"], waiting["held_rows"]) == (2, [lock["id"]], 1)

    world.write("s1", ADD.format("orders_2"))
    world.write("s2", ADD.format("orders_1"), ADD.format("orders_2"), "UPDATE orders_2 SET channel = 'shop'")
    code, found = command("run")
    assert (code, found["locks"]) == (0, []), found
    assert sum(s["rows_released"] for s in found["sources"]) >= 1
    world.assert_union()
    nothing = {"task": world.schema, "locks": [], "differences": [], "commands": [], "warnings": []}
    assert command("locks") == (0, nothing)
    assert command("locks", "--all")[1]["locks"][0]["state"] == "resolved"


def test_unlock_goes_on_without_the_missing_shards(world: World, command, capsys, monkeypatch) -> None:
    assert command("run")[0] == 0
    for source in ("s1", "s2"):
        world.write(source, ADD.format("orders_1"), "UPDATE orders_1 SET channel = 'app' WHERE id % 2")
    world.write("s1", ADD.format("orders_2"))
    code, found = command("run")
    assert code == 3
    lock = found["locks"][0]["id"]
    code, found = command("unlock", lock, "--dry-run")
    assert (code, found["dry_run"]) == (0, True) and "channel" in found["effects"][0]
    assert command("unlock", lock)[1]["error"]["code"] == "US-1902"
    monkeypatch.setattr("builtins.input", lambda question: "no")
    assert main(["unlock", str(world.path), lock]) == 1
    assert command("locks")[0] == 3
    code, found = command("unlock", lock, "--yes", "--reason", "the shard is retired")
    assert (code, found["lock"]["state"]) == (0, "resolved")
    world.write("s2", "INSERT INTO orders_2 VALUES (5, 'behind', 5)")
    assert command("run")[0] == 0
    assert world.target.run(f"SELECT channel FROM {world.schema}.orders WHERE id = 5") == [("web",)]
    world.write("s2", ADD.format("orders_2"), "INSERT INTO orders_2 VALUES (6, 'late', 6, 'shop')")
    assert command("run")[0] == 0
    world.assert_union()
    (order,) = command("locks", "--all")[1]["commands"]
    assert (order["lock"], order["command"], order["via"]) == (lock, "unlock", "command line")
    assert main(["locks", str(world.path), "--all"]) == 0
    assert f"command  unlock by {order['by']} (command line)" in capsys.readouterr().out
    assert order["reason"] == "the shard is retired"


@pytest.mark.test_all("the scheduler has a source that fails")
def test_a_source_that_is_down_does_not_stop_the_other(world: World, command) -> None:
    assert command("run")[0] == 0
    world.write("s1", "INSERT INTO orders_1 VALUES (1, 'waits', 1)")
    world.write("s2", "INSERT INTO orders_1 VALUES (2, 'goes', 2)")
    world.point("s1", 1)
    code, found = command("run")
    assert code == 1
    assert [(e["place"], e["code"]) for e in found["errors"]] == [("s1", "US-2001")]
    assert world.target.run(f"SELECT v FROM {world.schema}.orders WHERE id < 10") == [("goes",)]
    world.point("s1", world.sources["s1"].port)
    assert command("run")[0] == 0
    world.assert_union()


@pytest.mark.test_all("tests/integration/window moves rows without Spark")
def test_a_row_that_moves_to_another_source_is_no_collision(world: World, command) -> None:
    assert command("run")[0] == 0
    for number in range(110_001, 110_021):
        world.write("s2", f"DELETE FROM orders_1 WHERE id = {number}")
        world.write("s1", f"INSERT INTO orders_1 VALUES ({number}, 'moved', 1)")
    code, found = command("run")
    assert code == 0, found
    world.assert_union()


@pytest.mark.test_all("tests/integration/rows mends collisions without Spark")
def test_a_collision_stops_its_target_until_it_is_mended(world: World, command) -> None:
    assert command("run")[0] == 0
    world.write("s1", "INSERT INTO orders_1 VALUES (110001, 'twice', 1)")
    world.write("s2", "INSERT INTO orders_2 VALUES (3, 'goes', 3)")
    code, found = command("run")
    assert (code, [(e["place"], e["code"]) for e in found["errors"]]) == (
        4,
        [(f"s1, {world.schema}.orders", "US-6006")],
    )
    assert "orders_1" in found["errors"][0]["message"] and "110001" in found["errors"][0]["message"]
    assert world.target.run(f"SELECT v FROM {world.schema}.orders WHERE id = 3") == [("goes",)]
    process = subprocess.run(
        [*COMMAND, "run", str(world.path)], check=False, env=environment(), capture_output=True, text=True
    )
    said = process.stdout + process.stderr
    assert process.returncode == 4 and "except for 1 suspended target(s)" in said
    assert said.count("remove the row from one of the shards") == said.count("110001") == 1, said
    code, found = command("validate")
    orders = next(t for t in found["tables"] if t["target"].endswith("orders"))
    assert code == 2 and orders["differences"][0]["kind"] == "collision"
    world.write("s2", "DELETE FROM orders_1 WHERE id = 110001")
    assert command("run")[0] == 0
    world.assert_union()


def test_validation_on_spark_judges_as_on_threads(world: World, command, spark: SparkConnect) -> None:
    assert command("run")[0] == 0
    world.target.run(
        f"DELETE FROM {world.schema}.orders WHERE id IN (10007, 120001)",
        f"INSERT INTO {world.schema}.events VALUES ('more')",
    )
    with open_work(load_task(world.path)) as work:
        settings = Settings(chunk_rows=300, rows_per_shard=1)
        on_threads = validate(work, settings=settings)
        on_spark = validate_table.run_validation(work.spark(), work, 2, settings=settings)
    assert [(v.target.name, v.chunks, v.differing_chunks, v.equal) for v in on_spark] == [
        ("events", 1, 1, False),
        ("orders", 7, 2, False),
    ]
    for first, second in zip(on_threads, on_spark, strict=True):
        assert sorted(first.differences, key=str) == sorted(second.differences, key=str)
        assert (first.rows_target, first.rows_union) == (second.rows_target, second.rows_union)


def test_a_failed_precheck_ends_the_run_before_anything_is_written(world: World, command) -> None:
    world.write("s2", "ALTER TABLE orders_2 MODIFY v varchar(40)")
    code, found = command("run")
    assert (code, found["error"]["code"]) == (1, "US-2311")
    assert world.target.run(f"SHOW DATABASES LIKE '{world.schema}'") == []


@pytest.mark.test_all("tests/integration/ddl refuses DDLs without Spark")
def test_a_ddl_that_the_target_refuses_is_shown_and_tried_once_a_run(world: World, command, capsys) -> None:
    assert command("run")[0] == 0
    world.target.run(f"ALTER TABLE {world.schema}.orders ADD COLUMN channel int")
    for source in ("s1", "s2"):
        world.write(source, ADD.format("orders_1"), ADD.format("orders_2"))
    code, found = command("run")
    assert code == 3, found
    assert found["locks"][0]["state"] == "failed" and "channel" in found["locks"][0]["error"]
    world.target.run(f"ALTER TABLE {world.schema}.orders DROP COLUMN channel")
    assert command("run")[0] == 0
    world.assert_union()


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        pytest.param(signal.SIGINT, 130, id="ctrl-c", marks=pytest.mark.test_all("SIGTERM takes the same way")),
        pytest.param(signal.SIGTERM, 143, id="sigterm"),
    ],
)
def test_a_signal_ends_a_run_and_the_next_one_goes_on(world: World, command, sent: int, code: int) -> None:
    world.write("s1", f"INSERT INTO orders_1 SELECT 500000 + seq, 'many', 1 FROM {world.schema}_1.seq_1_to_40000")
    # Processes that a shell starts in the background ignore SIGINT; those of a user's terminal do not.
    process = subprocess.Popen(
        [*COMMAND, "run", str(world.path)],
        env=environment(),
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert any("dump begins" in line for line in iter(process.stdout.readline, ""))
    process.send_signal(sent)
    _, said = process.communicate(timeout=1800)
    assert process.returncode == code, said
    assert "the next run continues from here" in said and "Traceback" not in said
    assert command("run")[0] == 0
    world.assert_union()


def test_follow_applies_later_rows_and_ddl_until_a_signal(world: World, command) -> None:
    """Rows, a DDL on all shards and the rows after it reach the target without a further command."""
    process = subprocess.Popen(
        [*COMMAND, "run", str(world.path), "--follow"],
        env=environment(),
        text=True,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        await_true(lambda: equal(world), 600, [], "the full load")
        for number, source in enumerate(world.sources):
            world.write(source, f"INSERT INTO orders_1 VALUES ({700_000 + number}, 'later', 1)")
            for shard in (1, 2):
                world.write(source, ADD.format(f"orders_{shard}"), f"UPDATE orders_{shard} SET channel = 'app', n = 1")
        await_true(lambda: equal(world), 600, [], "rows and DDL")
    finally:
        process.send_signal(signal.SIGTERM)
        said, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors
    assert "followed in" in said and not errors
    assert command("run", "--follow", "--for", "1s")[0] == 0
    world.assert_union()


def equal(world: World) -> bool:
    try:
        world.assert_union()
    except (AssertionError, pymysql.err.Error):
        return False
    return True
