"""Whole windows, from two sources' binlogs through Spark into the target, compared with the union."""

import contextlib
import dataclasses
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.oracle import assert_union
from tests.taskfile import endpoint, write_sources
from unshard.adapters import mysql, upstream
from unshard.adapters import spark as sparks
from unshard.adapters.spark import session
from unshard.adapters.structures import read_schemas
from unshard.config import environment_connections, load_task
from unshard.core.model import Shard, TableId
from unshard.errors import UnshardError
from unshard.errors.meta import FencedOut, NotInSync
from unshard.errors.rows import Collision, ColumnNotInTarget
from unshard.operate import issuing
from unshard.operate.command import DropShard, Force, Skip
from unshard.units.ddl import coordinate
from unshard.units.ddl.execute import create_target
from unshard.units.relay import pull
from unshard.units.window.sync import WindowReport, next_plan, run_job, run_window, window_job
from unshard.units.window.tasks import PartReport
from unshard.units.work import LazySpark, Limits, Work, open_work
from unshard_demo.servers import MariaDb
from unshard_demo.sparkserver import SparkConnect

pytestmark = [
    pytest.mark.integration,
    pytest.mark.spark,
    pytest.mark.mariadb_only("one of the tables has the character set ucs2, which TiDB lacks"),
]

TABLES = {
    "item": "id INT PRIMARY KEY, v VARCHAR(40) CHARACTER SET latin1, n DECIMAL(9,2), at TIMESTAMP(3) NOT NULL",
    "person": "name VARCHAR(20) COLLATE utf8mb4_general_ci PRIMARY KEY, mail INT NOT NULL UNIQUE, kind ENUM('a','b')",
    "event": "what VARCHAR(9), size FLOAT",
    "kind": "id INT PRIMARY KEY, a TINYINT UNSIGNED, b BIGINT UNSIGNED, c DECIMAL(65,30), d FLOAT, e DOUBLE, f CHAR(5),"
    " g VARCHAR(20) CHARACTER SET ucs2, h TEXT CHARACTER SET cp932, i VARBINARY(9), j BINARY(4), k LONGBLOB, l DATE,"
    " m DATETIME(6), n TIMESTAMP(3) NULL, o TIME(6), p YEAR, q ENUM('a','b') CHARACTER SET ucs2, r SET('x','y'),"
    " s BIT(17), t JSON, u POINT, w INT AS (a + 1) STORED, x MEDIUMINT",
}
NAMES = "abcdefghijklmnopqrstux"
KINDS = (
    "255, 18446744073709551615, -12345678901234567890123456789012345.000000000000000000000000000001, 1.1, 0.1, 'a\\tb',"
    " 'ä€\\n', '表', x'00090a5c', x'0100', x'00ff', '0000-00-00', '9999-12-31 23:59:59.999999',"
    " '1970-01-01 00:00:01.001', '-00:00:00.000001', 2155, 'b', 'x,y', b'10000000100001010',"
    ' \'{"a": "\\\\n"}\','
    " POINT(1, 2), -8388608",
    "0, 0, 0, 3.4e38, -1e-300, '', '', '', '', '', '', '2021-00-31', '0000-00-00', '0000-00-00', '838:59:59', 0, '',"
    " '', 0, '[]', NULL, 8388607",
    ", ".join(["NULL"] * len(NAMES)),
)
SOURCES = ("s1", "s2")
SHARDS = (1, 2)


@pytest.fixture(scope="module")
def spark(shared_spark: SparkConnect) -> Iterator[object]:
    with session(shared_spark.url) as opened:
        yield opened


@dataclasses.dataclass
class Field:
    """Two sources with two shards of each table, a target, and the task between them."""

    name: str
    servers: dict[str, MariaDb]
    target: MariaDb
    work: Work
    chance: random.Random
    next_id: int = 0

    def shards(self, table: str) -> dict[str, list[str]]:
        return {source: [f"{self.name}.{table}_{n}" for n in SHARDS] for source in SOURCES}

    def pull(self, source: str) -> None:
        at = self.work.meta.checkpoints.get(source).location
        pull.pull(source, self.work.sources[source], self.work.store, at, segment_bytes=4096)

    def window(self, source: str) -> WindowReport:
        return run_window(self.work, source)

    def catch_up(self) -> list[WindowReport]:
        reports = []
        for source in SOURCES:
            self.pull(source)
            while (report := self.window(source)).moved:
                reports.append(report)
                assert report.more == bool(next_plan(self.work, source).is_empty is False)
        return reports

    def compare(self) -> int:
        return sum(
            assert_union(self.servers, self.shards(table), self.target, f"{self.name}.{table}") for table in TABLES
        )

    def run(self, source: str, *statements: str) -> None:
        self.servers[source].run(f"USE {self.name}", *statements)

    def change(self, count: int) -> None:
        """Change rows in all shards by transactions of a few statements."""
        for _ in range(count):
            source, shard = self.chance.choice(SOURCES), self.chance.choice(SHARDS)
            some = [self._statement(source, shard) for _ in range(self.chance.randint(1, 4))]
            self.run(source, "SET SESSION sql_mode = ''", "BEGIN", *some, "COMMIT")

    def _statement(self, source: str, shard: int) -> str:
        self.next_id += 1
        base, pick = (SOURCES.index(source) * 2 + shard) * 1_000_000, self.chance.randint
        new, old = base + self.next_id, base + pick(1, self.next_id)
        return self.chance.choice(
            [
                f"INSERT INTO item_{shard} (id, v, n, at) VALUES ({new}, 'ä\\t{new}', {pick(0, 999)}.5, NOW(3))",
                f"UPDATE item_{shard} SET v = 'e\\\\{new}', n = n + 1 WHERE id >= {old} LIMIT 5",
                f"UPDATE item_{shard} SET id = {new} WHERE id >= {old} LIMIT 1",
                f"DELETE FROM item_{shard} WHERE id >= {old} LIMIT 1",
                f"INSERT INTO person_{shard} (name, mail, kind) VALUES ('p{new}', {new}, '')",
                f"UPDATE person_{shard} SET name = UPPER(name), kind = 'b' WHERE mail >= {old} LIMIT 2",
                f"UPDATE person_{shard} SET mail = {new} WHERE mail >= {old} LIMIT 1",
                f"DELETE FROM person_{shard} WHERE mail >= {old} LIMIT 1",
                f"INSERT INTO event_{shard} VALUES ('w{pick(0, 3)}', 1.1), (NULL, 2.5)",
                f"UPDATE event_{shard} SET what = 'W1' WHERE what = 'w1' LIMIT 1",
                f"DELETE FROM event_{shard} WHERE what = 'w2' LIMIT 1",
            ]
        )


@pytest.fixture
def field(source_1, source_2, target, unique, tmp_path, spark) -> Iterator[Field]:
    servers = dict(zip(SOURCES, (source_1, source_2), strict=True))
    for server in servers.values():
        server.run(
            f"CREATE DATABASE {unique}",
            *(
                f"CREATE TABLE {unique}.{name}_{shard} ({columns})"
                for name, columns in TABLES.items()
                for shard in SHARDS
            ),
        )
    with open_work(load_task(task_file(tmp_path, unique, servers, target))) as work:
        lively = dataclasses.replace(work, spark=lambda: spark)
        for source in SOURCES:
            begin_at_the_end(lively, source, unique)
        yield Field(unique, servers, target, lively, random.Random(unique))
    for server in (*servers.values(), target):
        server.run(f"DROP DATABASE IF EXISTS {unique}", f"DROP DATABASE IF EXISTS {unique}_meta")


def task_file(folder: Path, name: str, servers: dict[str, MariaDb], target: MariaDb) -> Path:
    write_sources(folder, servers)
    routes = {
        table: {"schema-pattern": name, "table-pattern": f"{table}_*", "target-schema": name, "target-table": table}
        for table in TABLES
    }
    body = {
        "name": "windows",
        "task-mode": "incremental",
        "meta-schema": f"{name}_meta",
        "target-database": endpoint(target),
        "mysql-instances": [
            {"source-id": source, "route-rules": list(TABLES), "block-allow-list": "ours"} for source in servers
        ],
        "routes": routes,
        "block-allow-list": {"ours": {"do-dbs": [name]}},
        "unshard": {"storage-path": str(folder / "storage"), "window-size": "30000"},
    }
    (folder / "windows.yaml").write_text(yaml.safe_dump(body))
    return folder / "windows.yaml"


def begin_at_the_end(work: Work, source: str, name: str) -> None:
    """Set the state that full load and handover leave for empty shards."""
    with contextlib.closing(mysql.connect(work.sources[source])) as connection:
        about = upstream.inspect(connection, source)
        tables = [TableId(name, f"{table}_{n}") for table in TABLES for n in SHARDS]
        found = read_schemas(connection, tables)
    work.meta.sources.add(source, about.identity, about.flavor)
    with contextlib.closing(mysql.connect(work.target)) as connection:
        for table, schema in found.items():
            target = work.task.instance(source).routing.target_of(table)
            create_target(connection, target, schema)
            work.meta.structures.put(schema)
            work.meta.structures.record(Shard(source, table), target, about.end, schema.digest)
    work.meta.checkpoints.start(source, about.end, about.gtid)


def test_windows_end_in_the_union(field):
    """The random changes may cancel each other out, so each round ends with rows that nothing changes after them."""
    for number, count in enumerate((60, 5, 60), 1):
        field.change(count)
        rows = f"SELECT {number * 100_000_000} + seq, 'new', 1, NOW(3) FROM mysql.seq_1_to_{count}"
        field.run("s2", f"INSERT INTO item_1 (id, v, n, at) {rows}")
        reports = field.catch_up()
        assert reports
        assert sum(report.rows_applied for report in reports) >= count
        field.compare()


def test_every_type_arrives_as_it_was(field):
    columns, lenient = ", ".join(NAMES), "SET SESSION sql_mode = 'ALLOW_INVALID_DATES'"
    for number, values in enumerate(KINDS):
        field.run("s1", lenient, f"INSERT INTO kind_1 (id, {columns}) VALUES ({number}, {values})")
    field.run("s1", lenient, f"INSERT INTO kind_2 (id, {columns}) SELECT id + 10, {columns} FROM kind_1")
    for _ in range(2):
        field.catch_up()
        assert _kinds(field.target, f"{field.name}.kind") == _kinds(
            field.servers["s1"], f"{field.name}.kind_1", f"{field.name}.kind_2"
        )
        field.run("s1", lenient, "UPDATE kind_2 SET id = id + 100, x = 1")


def _kinds(server: MariaDb, *tables: str) -> list[tuple[bytes, ...]]:
    shown = ", ".join(f"{name} + 0e0" if name == "d" else name for name in NAMES)
    with contextlib.closing(mysql.connect_raw(server.server)) as connection:
        rows = [row for table in tables for row in mysql.query(connection, f"SELECT id, {shown}, w FROM {table}")]
    return sorted(rows)


def test_an_idle_source_needs_no_spark(field):
    field.catch_up()
    work = dataclasses.replace(field.work, spark=lambda: pytest.fail("Spark is not needed"))
    report = run_window(work, "s1")
    assert (report.moved, report.more, report.rows_applied) == (False, False, 0)
    field.run("s1", "CREATE TABLE elsewhere (a int)", "INSERT INTO elsewhere VALUES (1)")


def test_a_small_window_with_a_local_master_starts_no_jvm(field, monkeypatch):
    monkeypatch.setattr(sparks, "session", lambda *_: pytest.fail("Spark is not needed"))
    with contextlib.ExitStack() as stack:
        local = LazySpark(stack, "local[2]", environment_connections, "windows", lambda: None)
        here = dataclasses.replace(field, work=dataclasses.replace(field.work, spark=local))
        here.change(60)
        assert here.catch_up()
        here.compare()
        here.run("s1", "INSERT INTO event_1 VALUES ('last', 1)")
        here.pull("s1")
        with pytest.raises(pytest.fail.Exception, match="not needed"):
            run_window(dataclasses.replace(here.work, limits=Limits(small_bytes=0, alone_bytes=0)), "s1")


def test_a_window_without_rows_of_ours_moves_on_without_spark(field):
    field.run("s1", "CREATE TABLE elsewhere_x (a int)", "CREATE VIEW v AS SELECT 1")
    field.pull("s1")
    work = dataclasses.replace(field.work, spark=lambda: pytest.fail("Spark is not needed"))
    report = run_window(work, "s1")
    assert report.moved
    assert report.begins < report.ends


def test_rows_wait_behind_a_ddl_and_go_on_when_all_shards_have_it(field):
    field.change(20)
    field.catch_up()
    waiting = []
    for source in SOURCES:
        for shard in SHARDS:
            number = -shard - 10 * SOURCES.index(source)
            field.run(
                source,
                f"ALTER TABLE item_{shard} ADD c INT NOT NULL DEFAULT 7 AFTER id",
                f"INSERT INTO item_{shard} (id, c, v, at) VALUES ({number}, 1, 'x', NOW(3))",
            )
            reports = field.catch_up()
            waiting.append(sum(report.rows_held for report in reports))
            assert [ddl.routed for report in reports for ddl in report.ddls]
            coordinate.observe(field.work.meta)
            (lock,) = coordinate.views(field.work.meta)
            assert lock.is_executable == ((source, shard) == ("s2", 2))
    assert waiting == [1, 1, 1, 1]
    assert field.work.storage.list("held")
    coordinate.execute(field.work.meta, field.work.target, lock.id)
    reports = field.catch_up()
    assert sum(report.rows_released for report in reports) == 4
    assert not field.work.storage.list("held"), "released files are removed"
    field.change(20)
    field.catch_up()
    field.compare()


@pytest.mark.parametrize(
    "spec", ["ADD c INT NOT NULL DEFAULT 7 FIRST", "DROP v", "MODIFY v TEXT CHARACTER SET utf8mb4"]
)
def test_a_shard_left_behind_by_a_forced_unlock_goes_on_by_name(field, spec):
    late, others = ("s2", 2), [("s1", 1), ("s1", 2), ("s2", 1)]
    field.run("s2", "INSERT INTO item_2 VALUES (5, 'ä', 1, NOW(3)), (6, 'ö', 1, NOW(3))")
    for source, shard in others:
        field.run(
            source,
            f"ALTER TABLE item_{shard} {spec}",
            f"INSERT INTO item_{shard} (id, at) VALUES ({shard}0{source[1]}, NOW(3))",
        )
    field.catch_up()
    coordinate.observe(field.work.meta)
    (lock,) = coordinate.views(field.work.meta)
    assert not lock.is_executable
    issuing.give(field.work.meta, Force(lock.id), "me", "test", "it takes too long")
    coordinate.execute(field.work.meta, field.work.target, lock.id)
    field.catch_up()
    field.run("s2", "UPDATE item_2 SET id = 7, v = 'ü' WHERE id = 5", "INSERT INTO item_2 VALUES (8, 'ß', 2, NOW(3))")
    field.catch_up()
    assert field.target.run(f"SELECT id FROM {field.name}.item WHERE id < 10 ORDER BY id") == [(6,), (7,), (8,)]
    field.run(late[0], f"ALTER TABLE item_{late[1]} {spec}", "UPDATE item_2 SET n = 3")
    field.catch_up()
    coordinate.observe(field.work.meta)
    field.catch_up()
    field.compare()


def test_a_shard_whose_rows_have_no_place_any_more_is_dropped_and_its_source_goes_on(field):
    field.run("s1", "ALTER TABLE item_1 ADD odd INT", "INSERT INTO item_1 VALUES (1, 'x', 1, NOW(3), 7)")
    field.run("s1", "INSERT INTO item_2 VALUES (2, 'y', 1, NOW(3))")
    field.catch_up()
    coordinate.observe(field.work.meta)
    (lock,) = coordinate.views(field.work.meta)
    issuing.give(field.work.meta, Skip(lock.id), "me", "test", "nobody wants it")
    field.catch_up()
    assert [stop.refusal.code for stop in field.work.meta.suspended_targets.all()] == [ColumnNotInTarget.code]
    shard = Shard("s1", TableId(field.name, "item_1"))
    issuing.give(field.work.meta, DropShard(lock.id, shard), "me", "test", "nor that")
    field.run("s1", "INSERT INTO item_1 VALUES (3, 'x', 1, NOW(3), 7)", "INSERT INTO item_2 VALUES (4, 'y', 1, NOW(3))")
    reports = field.catch_up()
    assert field.target.run(f"SELECT id FROM {field.name}.item ORDER BY id") == [(2,), (4,)]
    assert sum(report.rows_passed for report in reports) == 1
    assert not field.work.storage.list("held"), "what waited of it is removed"


def test_a_run_that_died_before_its_commit_is_repeated_without_harm(field):
    field.run("s1", "ALTER TABLE person_1 ADD c INT", "INSERT INTO person_1 VALUES ('held', 1, 'a', 1)")
    field.change(60)
    field.pull("s1")
    plan = next_plan(field.work, "s1")
    begun = field.work.meta.windows.begin("s1", plan)
    results = run_job(field.work.spark, window_job(field.work, begun, {}, field.work.present({*begun.plan.targets})))
    assert not [result for result in results if isinstance(result, UnshardError)]
    again = field.window("s1")
    assert (again.begins, again.ends) == (plan.begins, plan.ends)
    held = [file for result in results if isinstance(result, PartReport) for file in result.held]
    assert not any(field.work.storage.exists(file.path) for file in held), "files of the dead run are swept"
    with pytest.raises(FencedOut):
        field.work.meta.windows.commit(begun, (), 0)
    field.catch_up()
    for table in ("item", "event"):
        assert_union(field.servers, field.shards(table), field.target, f"{field.name}.{table}")


def test_a_collision_names_both_shards_and_goes_away_with_its_cause(field):
    field.run("s1", "INSERT INTO item_1 VALUES (5, 'x', 1, NOW(3))")
    field.catch_up()
    field.run("s2", "INSERT INTO item_2 VALUES (5, 'y', 1, NOW(3)), (6, 'z', 1, NOW(3))")
    field.pull("s2")
    (stop,) = field.window("s2").stopped
    error = stop.refusal.error
    assert isinstance(error, Collision)
    assert (error.key, error.shard, error.owner) == (
        "id = 5",
        f"s2 {field.name}.item_2",
        f"shard s1 {field.name}.item_1",
    )
    field.run("s1", "DELETE FROM item_1 WHERE id = 5")
    field.catch_up()
    field.compare()


def test_a_source_without_checkpoint_is_refused(field):
    field.target.run(f"DELETE FROM {field.name}_meta.checkpoint WHERE source = 's1'")
    with pytest.raises(NotInSync):
        field.window("s1")
