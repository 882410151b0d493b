"""Snapshot, dump, load, handover: from real servers through Spark into a real target."""

import contextlib
import dataclasses
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import alltypes
from tests.dying import Died, dying_after
from tests.localspark import LocalSpark
from tests.oracle import assert_union
from tests.taskfile import DEFAULT, Settings, schemas, write_task
from tests.tidbsettings import is_tidb
from unshard.adapters import mysql
from unshard.adapters import spark as sparks
from unshard.adapters.structures import read_schema
from unshard.config import load_task
from unshard.core.checks.items import Severity
from unshard.core.model import Location, TableId
from unshard.core.rows.writepath import LoadData
from unshard.core.task.state import ChunkState, Phase
from unshard.errors.checks import ShardsDiffer, TargetTableUnfit
from unshard.errors.full import LoadCollision, NoSnapshot, NotDumped, NotLoaded, StructureChanged, TargetNotEmpty
from unshard.errors.rows import EngineNotTransactional
from unshard.units.checks.precheck import precheck
from unshard.units.full import dump as dumps
from unshard.units.full import load as loads
from unshard.units.full import loadchunks
from unshard.units.full.dump import dump
from unshard.units.full.load import handover, load, postpone_indexes
from unshard.units.full.snapshot import take_snapshot
from unshard.units.work import LIMITS, Limits, Work, open_work
from unshard_demo.servers import MariaDb
from unshard_demo.sparkserver import SparkConnect

pytestmark = [pytest.mark.integration, pytest.mark.spark]
SEQ = "mysql.seq_1_to_"
SKEWED = "CREATE TABLE {} (id BIGINT PRIMARY KEY, v VARCHAR(30), KEY (v))"
WITHOUT_INDEX = "CREATE TABLE {} (id BIGINT PRIMARY KEY, v VARCHAR(30))"
MADE_OTHERWISE = "CREATE TABLE {} (id BIGINT PRIMARY KEY, v VARCHAR(30), j JSON, w TEXT, KEY (v), FULLTEXT KEY (w))"
"""TiDB has no FULLTEXT index and creates the table without it."""


@pytest.fixture(scope="module")
def spark(shared_spark: SparkConnect) -> Iterator[object]:
    with sparks.session(shared_spark.url) as opened:
        yield opened


@dataclasses.dataclass
class Full:
    """Two sources, a target, and the task between them."""

    schema: str
    folder: Path
    sources: dict[str, MariaDb]
    target: MariaDb
    spark: object
    limits: Limits = LIMITS

    @contextlib.contextmanager
    def work(
        self, tables: dict[str, str], settings: Settings = DEFAULT, sources: tuple[str, ...] = ("s1", "s2")
    ) -> Iterator[Work]:
        servers = {source: self.sources[source] for source in sources}
        path = write_task(self.folder, self.schema, servers, self.target, tables, settings)
        with open_work(load_task(path)) as work:
            yield dataclasses.replace(work, spark=lambda: self.spark, bulk_spark=lambda: self.spark, limits=self.limits)

    def compare(self, target: str, **shards: list[str]) -> int:
        named = {source: [f"{self.schema}.{table}" for table in tables] for source, tables in shards.items()}
        return assert_union(self.sources, named, self.target, f"{self.schema}_to.{target}")


@pytest.fixture
def full(source_1, source_2, target, unique, tmp_path, spark) -> Iterator[Full]:
    sources = {"s1": source_1, "s2": source_2}
    with schemas(unique, sources.values(), target):
        yield Full(unique, tmp_path, sources, target, spark)


def run_all(work: Work, *sources: str) -> None:
    for step in (take_snapshot, dump, load):
        for source in sources or work.task.sources:
            step(work, source)


@pytest.mark.mariadb_only("the tables have types and character sets that TiDB lacks")
def test_every_type_arrives_as_it_left(full: Full) -> None:
    full.sources["s1"].run(*alltypes.statements(full.schema))
    tables = {name: name for name in alltypes.TABLES}
    with full.work(tables, sources=("s1",)) as work:
        run_all(work)
    for name in alltypes.TABLES:
        assert full.compare(name, s1=[name]) >= 2
        ours, theirs = (
            server.run(f"CHECKSUM TABLE {schema}.{name}")[0][1]
            for server, schema in ((full.sources["s1"], full.schema), (full.target, f"{full.schema}_to"))
        )
        assert ours == theirs, name


@pytest.mark.on_tidb
def test_chunks_are_no_larger_than_a_transaction_of_the_target(full: Full, request: pytest.FixtureRequest) -> None:
    full.sources["s1"].run(
        f"CREATE TABLE {full.schema}.t_1 (id BIGINT PRIMARY KEY, v VARCHAR(30))",
        f"INSERT INTO {full.schema}.t_1 SELECT seq, 'v' FROM {SEQ}45000",
    )
    with full.work({"t": "t_*"}, dataclasses.replace(DEFAULT, chunk_rows=200_000), sources=("s1",)) as work:
        run_all(work)
        chunks = work.meta.chunks.of("s1")
    assert [chunk.rows for chunk in sorted(chunks, key=lambda chunk: chunk.number)] == (
        [20_000, 20_000, 5_000] if "tidb" in request.node.name else [45_000]
    )
    assert full.compare("t", s1=["t_1"]) == 45_000


@pytest.mark.on_tidb
@pytest.mark.on_statements
def test_table_read_in_one_piece_is_loaded_in_transactions_that_the_target_can_take(full: Full) -> None:
    s1, name = full.sources["s1"], full.schema
    s1.run(
        f"CREATE TABLE {name}.log_1 (v INT, w VARCHAR(30))",
        f"INSERT INTO {name}.log_1 SELECT seq % 10, 'w' FROM {SEQ}45000",
        f"CREATE TABLE {name}.wide_1 (v INT, w LONGTEXT)",
        f"INSERT INTO {name}.wide_1 SELECT seq, REPEAT('x', 1000000) FROM {SEQ}40",
    )
    with full.work({"log": "log_*", "wide": "wide_*"}, sources=("s1",)) as work:
        run_all(work)
        by_statements = work.writer().load_data is not LoadData.TRANSACTIONAL
        rows = {
            table: [c.rows for c in work.meta.chunks.of("s1") if c.target.name == table] for table in ("log", "wide")
        }
        report = dump(work, "s1")
    assert rows["log"] == ([20_000, 20_000, 5_000] if by_statements else [45_000])
    assert len(rows["wide"]) == (3 if by_statements else 1) and sum(rows["wide"]) == 40
    assert (report.chunks, report.rows) == (sum(map(len, rows.values())), 45_040)
    assert full.compare("log", s1=["log_1"]) == 45_000
    assert full.compare("wide", s1=["wide_1"]) == 40


def test_keys_of_every_kind_are_cut_into_even_chunks(full: Full) -> None:
    s1, s2, name = full.sources["s1"], full.sources["s2"], full.schema
    pair = "CREATE TABLE {}.pair_{} (a INT, b VARCHAR(9) COLLATE utf8mb4_general_ci, c DATE, PRIMARY KEY (a, b, c))"
    word = "CREATE TABLE {}.word_{} (w VARCHAR(20) COLLATE utf8mb4_unicode_ci PRIMARY KEY, n INT)"
    raw = "CREATE TABLE {}.raw_{} (k VARBINARY(20) PRIMARY KEY, t TIMESTAMP(3) NOT NULL)"
    enum = "CREATE TABLE {}.sort_{} (e ENUM('z','y','x'), n INT, PRIMARY KEY (e, n))"
    late = "CREATE TABLE {}.late_{} (n INT, e ENUM('z','y','x'), PRIMARY KEY (n, e))"
    for number, server in enumerate((s1, s2)):
        server.run(*(table.format(name, number) for table in (pair, word, raw, enum, late)))
        server.run(SKEWED.format(f"{name}.skew_{number}"))
        odd, seq = f"seq * 2 + {number}", "mysql.seq_1_to_"
        server.run(
            f"INSERT INTO {name}.pair_{number} SELECT seq % 7, CONCAT('ü', {odd}), '2020-01-01' FROM {seq}5000",
            f"INSERT INTO {name}.word_{number} SELECT CONCAT(CHAR(97 + seq % 26), {odd}), seq FROM {seq}5000",
            f"INSERT INTO {name}.raw_{number} SELECT UNHEX(MD5({odd})), NOW(3) FROM {seq}5000",
            f"INSERT INTO {name}.sort_{number} SELECT 1 + seq % 3, {odd} FROM {seq}3000",
            f"INSERT INTO {name}.late_{number} SELECT ({odd}) DIV 3 * 2 + {number}, 1 + seq % 3 FROM {seq}3000",
            f"INSERT INTO {name}.skew_{number} SELECT POW(seq, 4) * 2 + {number}, 'v' FROM {seq}5000",
        )
    tables = {table: f"{table}_*" for table in ("pair", "word", "raw", "sort", "late", "skew")}
    with full.work(tables) as work:
        run_all(work)
        chunks = work.meta.chunks.of("s1")
        sizes = {name: [c.rows for c in chunks if c.target.name == name] for name in tables}
        assert handover(work).checkpoints
    for table in ("pair", "word", "raw", "skew"):
        assert sizes[table] == [1000] * 5 + [0]
    assert sizes["sort"] == [3000]
    assert len(sizes["late"]) >= 3 and max(sizes["late"]) < 1010
    for table in tables:
        full.compare(table, s1=[f"{table}_0"], s2=[f"{table}_1"])


def test_tables_that_cannot_be_cut_are_one_snapshot_each(full: Full) -> None:
    s1, name = full.sources["s1"], full.schema
    s1.run(
        f"CREATE TABLE {name}.log_1 (v INT, w FLOAT)",
        f"CREATE TABLE {name}.mail_1 (id INT PRIMARY KEY, m INT, g INT AS (-m) STORED UNIQUE)",
        f"INSERT INTO {name}.log_1 SELECT seq % 10, NULL FROM mysql.seq_1_to_5000",
        f"INSERT INTO {name}.mail_1 (id, m) SELECT seq, -seq FROM mysql.seq_1_to_5000",
    )
    with full.work({"log": "log_*", "mail": "mail_*"}, sources=("s1",)) as work:
        snapshot = take_snapshot(work, "s1").location
        s1.run(f"INSERT INTO {name}.log_1 VALUES (77, 1.1)")
        dump(work, "s1")
        starts = {state.target.name: state.start for state in work.meta.structures.shards("s1")}
        end = work.meta.sources.get("s1").dump_end
        load(work, "s1")
        assert [c.rows for c in work.meta.chunks.of("s1")] == [5001, 5000]
    assert all(snapshot < start <= end for start in starts.values())
    assert full.compare("log", s1=["log_1"]) == 5001
    assert full.compare("mail", s1=["mail_1"]) == 5000


def test_a_task_without_windows_reads_each_table_at_one_moment(full: Full) -> None:
    full.sources["s1"].run(
        SKEWED.format(f"{full.schema}.t_1"), f"INSERT INTO {full.schema}.t_1 SELECT seq, 'v' FROM mysql.seq_1_to_5000"
    )
    with full.work({"t": "t_*"}, Settings(mode="full"), sources=("s1",)) as work:
        run_all(work)
        assert [c.rows for c in work.meta.chunks.of("s1")] == [5000]
        assert handover(work).checkpoints == ()
        assert work.meta.sources.get("s1").phase is Phase.LOADED
    full.compare("t", s1=["t_1"])


@pytest.mark.parametrize("consistency", ["snapshot", "flush", "lock"])
def test_consistency_asks_for_one_moment_per_table(
    full: Full, monkeypatch: pytest.MonkeyPatch, consistency: str
) -> None:
    """Every table is one chunk, read at the location from which its binlog counts."""
    monkeypatch.setattr(dumps, "map_items", items_here)
    full.sources["s1"].run(
        SKEWED.format(f"{full.schema}.t_1"), f"INSERT INTO {full.schema}.t_1 SELECT seq, 'v' FROM mysql.seq_1_to_2500"
    )
    with full.work({"t": "t_*"}, Settings(consistency=consistency), sources=("s1",)) as work:
        before = take_snapshot(work, "s1").location
        full.sources["s1"].run(f"INSERT INTO {full.schema}.t_1 VALUES (-1, 'later')")
        dump(work, "s1")
        (shard,) = work.meta.structures.shards("s1")
        assert [chunk.rows for chunk in work.meta.chunks.of("s1")] == [2501]
        assert shard.start is not None and before < shard.start


def test_an_incremental_task_begins_where_the_source_is(full: Full) -> None:
    full.sources["s1"].run(
        SKEWED.format(f"{full.schema}.t_1"),
        f"INSERT INTO {full.schema}.t_1 VALUES (1, 'v')",
        f"CREATE SEQUENCE {full.schema}.t_2",
    )
    with full.work({"t": "t_*"}, Settings(mode="incremental"), sources=("s1",)) as work:
        location = take_snapshot(work, "s1").location
        assert TableId(full.schema, "t_2") in work.meta.ignored.sequences("s1")
        run_all(work)
        assert handover(work).checkpoints == (("s1", location),)
        assert not work.meta.chunks.of("s1")
    assert full.target.run(f"SELECT * FROM {full.schema}_to.t") == []


def items_here(spark, function, items, parallelism):
    """Run the items in this process, where a test can let a function die."""
    for item in items:
        yield from function(item)


def test_a_killed_dump_and_load_go_on_where_they_were(full: Full, monkeypatch: pytest.MonkeyPatch) -> None:
    """Die after every number of chunks, before and after the last step of a chunk."""
    s1, name = full.sources["s1"], full.schema
    s1.run(
        SKEWED.format(f"{name}.t_1"),
        f"CREATE TABLE {name}.log_1 (v INT)",
        f"INSERT INTO {name}.t_1 SELECT seq, 'v' FROM mysql.seq_1_to_4500",
        f"INSERT INTO {name}.log_1 SELECT seq FROM mysql.seq_1_to_10",
    )
    with full.work({"t": "t_*", "log": "log_*"}, sources=("s1",)) as work:
        take_snapshot(work, "s1")
        monkeypatch.setattr(dumps, "map_items", items_here)
        monkeypatch.setattr("unshard.units.full.load.map_items", items_here)
        progress = []
        for place, count in (("begin", 2), ("mark", 1), ("mark", 2), ("end", 0), ("phase", 0)):
            with monkeypatch.context() as patch, pytest.raises(Died):
                if place == "begin":
                    patch.setattr(dumps, "dump_piece", dying_after(count, dumps.dump_piece))
                elif place == "mark":
                    patch.setattr(
                        "unshard.adapters.meta.loadrecords.Chunks.dumped",
                        dying_after(count, type(work.meta.chunks).dumped),
                    )
                elif place == "end":
                    patch.setattr(dumps, "_end", dying_after(count, dumps._end))
                else:
                    patch.setattr(dumps, "_set_starts", dying_after(count, dumps._set_starts))
                dump(work, "s1")
            progress.append(sum(c.state is ChunkState.DUMPED for c in work.meta.chunks.of("s1")))
        assert progress == [2, 3, 5, 6, 6]
        assert dump(work, "s1").rows == 4510
        progress = []
        steps = {
            "unshard.units.full.loadchunks._write": 2,
            "unshard.adapters.target.chunkprogress.mark_loaded": 1,
            "unshard.units.full.load.load_one_batch": 1,
        }
        for step, count in steps.items():
            with monkeypatch.context() as patch, pytest.raises(Died):
                patch.setattr(step, dying_after(count, pkgutil.resolve_name(step)))
                load(work, "s1")
            progress.append(sum(c.state is ChunkState.LOADED for c in work.meta.chunks.of("s1")))
        assert progress == [2, 3, 4]
        assert load(work, "s1").rows == 4510
        assert load(work, "s1").rows == 4510
        assert not work.storage.list("dump")
    full.compare("t", s1=["t_1"])
    full.compare("log", s1=["log_1"])


def test_a_lost_answer_to_commit_does_not_double_rows(full: Full, monkeypatch: pytest.MonkeyPatch) -> None:
    full.sources["s1"].run(
        f"CREATE TABLE {full.schema}.log_1 (v INT)", f"INSERT INTO {full.schema}.log_1 VALUES (1), (1)"
    )
    with full.work({"log": "log_*"}, sources=("s1",)) as work:
        take_snapshot(work, "s1")
        dump(work, "s1")
        monkeypatch.setattr("unshard.units.full.load.map_items", items_here)
        query, lost = loadchunks.mysql.query, []

        def losing(connection, sql, *arguments):
            result = query(connection, sql, *arguments)
            if sql == "COMMIT" and not lost:
                lost.append(connection._force_close())
                return query(connection, "SELECT 1")
            return result

        monkeypatch.setattr(loadchunks.mysql, "query", losing)
        load(work, "s1")
        assert lost
    assert full.compare("log", s1=["log_1"]) == 2


def test_a_collision_names_the_key_and_both_shards(full: Full) -> None:
    for number, server in enumerate(full.sources.values(), 1):
        server.run(
            f"CREATE TABLE {full.schema}.t_{number} (a INT, b VARCHAR(9), v INT, PRIMARY KEY (a, b))",
            f"INSERT INTO {full.schema}.t_{number} SELECT {number}, CONCAT('k', seq), 0 FROM {SEQ}2500",
            f"INSERT INTO {full.schema}.t_{number} VALUES (9, 'same', {number})",
        )
    with full.work({"t": "t_*"}) as work:
        for step in (take_snapshot, dump):
            for source in ("s1", "s2"):
                step(work, source)
        load(work, "s1")
        with pytest.raises(LoadCollision) as caught:
            load(work, "s2")
        error = caught.value
        assert error.key == "a = 9, b = same"
        assert error.shard == f"s2 {full.schema}.t_2"
        assert error.owner == f"shard s1 {full.schema}.t_1"
        with pytest.raises(LoadCollision):
            load(work, "s2")
    assert full.target.run(f"SELECT v FROM {full.schema}_to.t WHERE a = 9") == [(1,)]


@pytest.mark.parametrize(("policy", "want"), [("replace", 2), ("ignore", 1)])
def test_other_policies_let_one_of_them_win(full: Full, policy: str, want: int) -> None:
    for number, server in enumerate(full.sources.values(), 1):
        server.run(
            f"CREATE TABLE {full.schema}.t_{number} (id INT PRIMARY KEY, v INT)",
            f"INSERT INTO {full.schema}.t_{number} VALUES ({number}, {number}), (9, {number})",
        )
    with full.work({"t": "t_*"}, Settings(on_duplicate=policy)) as work:
        run_all(work, "s1")
        run_all(work, "s2")
    assert full.target.run(f"SELECT id, v FROM {full.schema}_to.t ORDER BY id") == [(1, 1), (2, 2), (9, want)]


@pytest.mark.parametrize(
    "shards",
    [(SKEWED, SKEWED), (MADE_OTHERWISE, MADE_OTHERWISE), (SKEWED, WITHOUT_INDEX)],
    ids=["alike", "made otherwise", "other indexes"],
)
def test_a_ddl_during_the_dump_starts_it_anew(
    full: Full, monkeypatch: pytest.MonkeyPatch, shards: tuple[str, str]
) -> None:
    s1, name = full.sources["s1"], full.schema
    for number, shard in enumerate(shards, 1):
        s1.run(shard.format(f"{name}.t_{number}"))
    s1.run(
        f"INSERT INTO {name}.t_1 (id, v) SELECT seq, 'v' FROM mysql.seq_1_to_1500",
        f"INSERT INTO {name}.t_2 (id, v) VALUES (-1, 'w')",
    )
    changes = ["DROP COLUMN v, ADD COLUMN n INT", "ADD COLUMN x INT DEFAULT 5"]
    whole = dumps.map_items

    def with_ddl(spark, function, items, parallelism):
        if function.func is dumps.dump_piece and changes:
            change = changes.pop(0)
            s1.run(f"ALTER TABLE {name}.t_1 {change}", f"ALTER TABLE {name}.t_2 {change}")
        return whole(spark, function, items, parallelism)

    monkeypatch.setattr(dumps, "map_items", with_ddl)
    with full.work({"t": "t_*"}, sources=("s1",)) as work:
        before = take_snapshot(work, "s1").location
        dump(work, "s1")
        load(work, "s1")
        assert not changes
        assert before < work.meta.sources.get("s1").snapshot
    full.compare("t", s1=["t_1", "t_2"])


def test_a_ddl_in_every_dump_is_told(full: Full, monkeypatch: pytest.MonkeyPatch) -> None:
    s1, name = full.sources["s1"], full.schema
    s1.run(SKEWED.format(f"{name}.t_1"))
    real, number = dumps._end, iter(range(100))

    def with_ddl(*arguments):
        s1.run(f"ALTER TABLE {name}.t_1 ADD COLUMN c{next(number)} INT")
        return real(*arguments)

    monkeypatch.setattr(dumps, "_end", with_ddl)
    with full.work({"t": "t_*"}, sources=("s1",)) as work:
        take_snapshot(work, "s1")
        with pytest.raises(StructureChanged, match=rf"s1 {name}\.t_1"):
            dump(work, "s1")
        assert next(number) == 3
        assert work.meta.sources.get("s1").phase is Phase.SNAPSHOT


def test_shards_of_different_structure_are_refused(full: Full) -> None:
    s1, s2, name = full.sources["s1"], full.sources["s2"], full.schema
    s1.run(
        f"CREATE TABLE {name}.t_1 (id INT PRIMARY KEY, v INT)",
        f"CREATE TABLE {name}.t_2 (id INT PRIMARY KEY, v BIGINT)",
    )
    s2.run(f"CREATE TABLE {name}.t_3 (id INT PRIMARY KEY, v INT, w INT)")
    with full.work({"t": "t_*"}) as work:
        with pytest.raises(ShardsDiffer, match="column v"):
            take_snapshot(work, "s1")
        s1.run(f"DROP TABLE {name}.t_2")
        take_snapshot(work, "s1")
        with pytest.raises(ShardsDiffer, match="column w"):
            take_snapshot(work, "s2")
        assert work.meta.sources.get("s2") is None


def test_what_the_target_has_is_looked_at_first(full: Full) -> None:
    name = full.schema
    full.sources["s1"].run(SKEWED.format(f"{name}.t_1"))
    full.target.run(
        f"CREATE DATABASE {name}_to", SKEWED.format(f"{name}_to.t"), f"INSERT INTO {name}_to.t VALUES (1, 'x')"
    )
    with full.work({"t": "t_*"}, sources=("s1",)) as work:
        with pytest.raises(TargetNotEmpty, match=f"{name}_to.t"):
            take_snapshot(work, "s1")
        full.target.run(f"DELETE FROM {name}_to.t", f"ALTER TABLE {name}_to.t ADD COLUMN must INT NOT NULL")
        with pytest.raises(TargetTableUnfit, match="must"):
            take_snapshot(work, "s1")


@pytest.mark.mariadb_only("TiDB has one engine")
def test_a_target_without_transactions_is_refused(full: Full) -> None:
    """The rows that a crashed load has written would stay, and be written again."""
    s1, name = full.sources["s1"], full.schema
    s1.run(f"CREATE TABLE {name}.t_1 (v INT) ENGINE=MyISAM", f"INSERT INTO {name}.t_1 VALUES (1), (1)")
    full.target.run(f"CREATE DATABASE {name}_to", f"CREATE TABLE {name}_to.t (v INT) ENGINE=MyISAM")
    with full.work({"t": "t_*"}, sources=("s1",)) as work:
        with pytest.raises(EngineNotTransactional, match="MyISAM"):
            take_snapshot(work, "s1")
        full.target.run(f"ALTER TABLE {name}_to.t ENGINE=InnoDB")
        take_snapshot(work, "s1")
        dump(work, "s1")
        full.target.run(f"ALTER TABLE {name}_to.t ENGINE=Aria")
        with pytest.raises(EngineNotTransactional, match="Aria"):
            load(work, "s1")
        [found] = [item for item in precheck(work.task) if item.name == "target_tables"]
        assert (found.severity, found.code) == (Severity.ERROR, "US-6009")
        full.target.run(f"ALTER TABLE {name}_to.t ENGINE=InnoDB")
        load(work, "s1")
    assert full.compare("t", s1=["t_1"]) == 2


def test_steps_in_the_wrong_order_are_refused(full: Full) -> None:
    full.sources["s1"].run(SKEWED.format(f"{full.schema}.t_1"))
    with full.work({"t": "t_*"}) as work:
        with pytest.raises(NoSnapshot):
            dump(work, "s1")
        with pytest.raises(NotDumped):
            load(work, "s1")
        with pytest.raises(NotLoaded, match="s1, s2"):
            handover(work)
        assert not take_snapshot(work, "s2").shards, "its tables may come later"
        assert take_snapshot(work, "s1") == take_snapshot(work, "s1")
        assert isinstance(take_snapshot(work, "s1").location, Location)


LATE = """CREATE TABLE {} (id BIGINT NOT NULL AUTO_INCREMENT, n INT, w VARCHAR(40), x INT, e ENUM('a','a') DEFAULT 'a',
d DATE DEFAULT '2020-02-31',
PRIMARY KEY (id), UNIQUE KEY one (x, id), KEY `b``y, n` (n), KEY w (w(7), n DESC) COMMENT 'so, (it) is',
KEY own (id, n), FULLTEXT KEY words (w))"""


@pytest.mark.mariadb_only("TiDB keeps its indexes while rows are loaded, and refuses an ENUM that names a value twice")
def test_late_indexes_come_back_as_they_were(full: Full, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are dropped while rows are loaded; a death after DROP, and before or after ADD, changes nothing."""
    monkeypatch.setattr("unshard.units.full.load.map_items", items_here)
    full.limits = Limits(late_rows=1000)
    for number, server in enumerate(full.sources.values()):
        server.run(
            "SET sql_mode = 'ALLOW_INVALID_DATES'",
            LATE.format(f"{full.schema}.t_{number}"),
            f"INSERT INTO {full.schema}.t_{number} (id, n, w, x)"
            f" SELECT seq * 2 + {number}, seq % 9, seq, seq FROM {SEQ}1500",
            LATE.format(f"{full.schema}.few_{number}"),
        )

    def indexes() -> set[str]:
        found = full.target.run(
            f"SELECT INDEX_NAME FROM information_schema.STATISTICS"
            f" WHERE TABLE_SCHEMA = '{full.schema}_to' AND TABLE_NAME = 't'"
        )
        return {str(name) for (name,) in found}

    with full.work({"t": "t_*", "few": "few_*"}) as work:
        for step in (take_snapshot, dump):
            for source in ("s1", "s2"):
                step(work, source)
        (shown,) = full.target.run(f"SHOW CREATE TABLE {full.schema}_to.t")
        everything = indexes()
        with monkeypatch.context() as patch, pytest.raises(Died):
            patch.setattr("unshard.units.full.load.load_one_batch", dying_after(1, loadchunks.load_one_batch))
            load(work, "s1")
        assert everything - indexes() == {"b`y, n", "w"}
        load(work, "s1")
        assert everything - indexes() == {"b`y, n", "w"}
        for name in ("read_schema", "add_statement"):
            with monkeypatch.context() as patch, pytest.raises(Died):
                patch.setattr(loads, name, dying_after(0, getattr(loads, name)))
                load(work, "s2")
            assert everything - indexes() == {"b`y, n", "w"}
        with monkeypatch.context() as patch, pytest.raises(Died):
            patch.setattr("unshard.adapters.meta.loadrecords.LateIndexes.forget", dying_after(0, print))
            load(work, "s2")
        assert indexes() == everything
        load(work, "s2")
        assert work.meta.late_indexes.all() == {}
    assert sorted(full.target.run(f"SHOW CREATE TABLE {full.schema}_to.t")[0][1].splitlines()[:-1]) == sorted(
        shown[1].splitlines()[:-1]
    )
    assert full.compare("t", s1=["t_0"], s2=["t_1"]) == 3000


def test_indexes_that_a_foreign_key_needs_stay(full: Full) -> None:
    full.limits = Limits(late_rows=1)
    s1, to = full.sources["s1"], f"{full.schema}_to"
    s1.run(
        f"CREATE TABLE {full.schema}.t_1 (id INT PRIMARY KEY, n INT, KEY n (n))",
        f"INSERT INTO {full.schema}.t_1 VALUES (1, 1), (2, 7)",
    )
    full.target.run(
        f"CREATE DATABASE {to}",
        f"CREATE TABLE {to}.p (n INT PRIMARY KEY) ENGINE=InnoDB",
        f"CREATE TABLE {to}.t (id INT PRIMARY KEY, n INT, KEY n (n), FOREIGN KEY (n) REFERENCES {to}.p (n))",
    )
    with full.work({"t": "t_*"}, sources=("s1",)) as work:
        run_all(work)
        assert handover(work).checkpoints
        assert work.meta.late_indexes.all() == {}
    assert full.compare("t", s1=["t_1"]) == 2


@pytest.mark.on_tidb
def test_indexes_are_postponed_on_a_server_with_pages_only(full: Full) -> None:
    full.limits = Limits(late_rows=1)
    full.sources["s1"].run(
        f"CREATE TABLE {full.schema}.t_1 (id INT PRIMARY KEY, n INT, KEY n (n))",
        f"INSERT INTO {full.schema}.t_1 VALUES (1, 1), (2, 7)",
    )
    with full.work({"t": "t_*"}, sources=("s1",)) as work:
        take_snapshot(work, "s1")
        dump(work, "s1")
        postpone_indexes(work, "s1")
        assert bool(work.meta.late_indexes.all()) is not is_tidb(full.target)
        with contextlib.closing(mysql.connect(full.target.server)) as connection:
            kept = read_schema(connection, TableId(f"{full.schema}_to", "t")).indexes
        assert ("n" in {index.name for index in kept}) is is_tidb(full.target)
        run_all(work)
    assert full.compare("t", s1=["t_1"]) == 2


def test_a_process_that_dumps_one_task_after_the_other_keeps_connections_only_for_the_last(full: Full) -> None:
    schema = full.schema
    seen = []
    for number in (1, 2):
        full.schema = f"{schema}_{number}"
        full.sources["s1"].run(f"CREATE DATABASE {full.schema}", f"CREATE TABLE {full.schema}.t_1 (id INT PRIMARY KEY)")
        with full.work({"t": "t_*"}, sources=("s1",)) as work:
            run_all(dataclasses.replace(work, bulk_spark=LocalSpark))
        sessions = {str(name) for (name,) in full.target.run("SELECT db FROM information_schema.processlist")}
        seen.append([f"{schema}_{each}_meta" in sessions for each in (1, 2)])
    full.schema = schema
    assert seen == [[True, False], [False, True]]
