"""Another server replaces a source: the relay continues by GTID, or reports why it cannot."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.binlogs import end_of, end_xa, purge
from tests.joinedtask import joined_task, run
from tests.livetask import LiveTask, living
from tests.running import while_up
from tests.taskfile import endpoint
from tests.tidbsettings import is_tidb
from unshard.core.task.state import Phase
from unshard.errors.relay import FailoverDiverged, GtidNotFound, SourceReplaced
from unshard.units.relay.newbinlog import BinlogWatch
from unshard.units.relay.pull import compare_last, last_pulled, locate
from unshard.units.task.status import lag_bytes
from unshard_demo import servers
from unshard_demo.processes import await_true
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration

COLUMNS = {"t": "id INT PRIMARY KEY, v VARCHAR(40)", "u": "v VARCHAR(40), n INT"}
REPLICATES = ("--log-bin=other-bin", "--log-slave-updates", "--gtid-strict-mode=1", "--binlog-row-event-max-size=512")
SECONDS = 900.0


def replicate(replica: MariaDb, source: MariaDb) -> None:
    replica.run(
        "STOP SLAVE",
        f"CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT={source.port}, MASTER_USER='admin',"
        f" MASTER_PASSWORD='{source.password}', MASTER_USE_GTID=slave_pos",
        "START SLAVE",
    )


def await_replica(replica: MariaDb, source: MariaDb) -> None:
    ((wanted,),) = source.run("SELECT @@gtid_binlog_pos")
    await_true(lambda: replica.run("SELECT @@gtid_binlog_pos") == [(wanted,)], SECONDS, [replica.program], "replicated")


@pytest.fixture
def pair(server_folder: Path, unique: str) -> Iterator[tuple[MariaDb, MariaDb]]:
    """Two servers, the second of which replicates from the first."""
    with (
        while_up(servers.start_server(server_folder / f"{unique}-1", "--gtid-strict-mode=1", server_id=81)) as first,
        while_up(servers.start_server(server_folder / f"{unique}-2", *REPLICATES, server_id=82)) as second,
    ):
        second.run("SET SESSION sql_log_bin = 0", *["FLUSH LOGS"] * 4)
        replicate(second, first)
        yield first, second


@pytest.fixture
def task(pair: tuple[MariaDb, MariaDb], target: MariaDb, unique: str, tmp_path: Path) -> Iterator[LiveTask]:
    first, second = pair
    numbers = {("s1", "t"): (1, 2), ("s1", "u"): (1,)}
    with contextlib.ExitStack() as stack:
        made = stack.enter_context(living(unique, tmp_path, (first, target), "tu", columns=COLUMNS, numbers=numbers))
        await_replica(second, first)
        yield made


def move(task: LiveTask, server: MariaDb) -> None:
    """Change the source file to another server."""
    body = {"source-id": "s1", "from": endpoint(server)}
    (task.folder / "sources" / "s1.yaml").write_text(yaml.safe_dump(body))
    task.sources["s1"] = server  # type: ignore[index]
    task.restart()


def write(task: LiveTask, server: MariaDb, first: int, count: int = 10) -> None:
    name = task.name
    for number in range(first, first + count):
        server.run(
            "BEGIN",
            f"INSERT INTO {name}.t_{1 + number % 2} VALUES ({number}, 'a')",
            f"UPDATE {name}.t_1 SET v = '{number}' WHERE id = {number - 2}",
            f"INSERT INTO {name}.u_1 VALUES ('same', {number % 2})",
            "COMMIT",
        )


def test_there_and_back(task: LiveTask, pair: tuple[MariaDb, MariaDb]) -> None:
    first, second = pair
    identity = task.work().meta.sources.get("s1").identity
    write(task, first, 0)
    task.run()
    first.run("SET SESSION gtid_domain_id = 5", f"INSERT INTO {task.name}.t_1 VALUES (1000, 'domain')")
    first.run("XA START 'x'", f"INSERT INTO {task.name}.t_1 VALUES (1001, 'xa')", "XA END 'x'", "XA PREPARE 'x'")
    write(task, first, 10)
    task.pull("s1")
    pulled = task.upstream_end("s1")
    write(task, first, 20)
    await_replica(second, first)
    second.run("STOP SLAVE")
    end_xa(first, "ROLLBACK", "'x'")
    first.run(f"INSERT INTO {task.name}.t_2 VALUES (-1, 'lost with the first server')")
    end_xa(second, "COMMIT", "'x'")
    write(task, second, 30)
    move(task, second)
    task.run()
    assert task.assert_union("t") == 42 and task.assert_union("u") == 40
    state, at = task.work().meta.sources.get("s1"), task.checkpoint("s1")
    assert state.identity != identity and state.phase is Phase.SYNC
    assert at.file.startswith("other-bin@1.") and at > pulled and at.server_file in dict(second.run("SHOW BINARY LOGS"))
    assert lag_bytes({at.server_file: at.position}, pulled, at) > 0
    with contextlib.closing(BinlogWatch(task.work())) as watch:
        assert not watch.has_news()
        second.run(f"INSERT INTO {task.name}.t_1 VALUES (-2, 'news')")
        assert watch.has_news(), "a file of the new server is later than all of the old one, whatever their names"
    for number in (2, 3):
        second.run(
            f"ALTER TABLE {task.name}.t_1 ADD COLUMN c{number} INT",
            f"ALTER TABLE {task.name}.t_2 ADD COLUMN c{number} INT",
            "FLUSH LOGS",
        )
        task.run()
        write_wide = f"UPDATE {task.name}.t_1 SET c{number} = id"
        second.run(write_wide)
    task.run()
    task.assert_settled()


def test_while_shards_differ(pair: tuple[MariaDb, MariaDb], target: MariaDb, unique: str, tmp_path: Path) -> None:
    """In optimistic mode: a difference is open before and after, and one DDL comes from each server."""
    first, second = pair
    with joined_task(unique, tmp_path, (first, target), "id INT PRIMARY KEY, a INT") as task:
        run(task, ("s1", 11), "INSERT INTO {} VALUES (1, 1)", "ALTER TABLE {} ADD COLUMN c INT DEFAULT 7")
        run(task, ("s1", 12), "INSERT INTO {} VALUES (2, 2)")
        task.run()
        run(task, ("s1", 11), "INSERT INTO {} VALUES (3, 3, 3)", "ALTER TABLE {} RENAME COLUMN a TO b")
        task.pull("s1")
        await_replica(second, first)
        second.run("STOP SLAVE")
        move(task, second)
        run(task, ("s1", 11), "INSERT INTO {} VALUES (4, 4, 4)")
        run(task, ("s1", 12), "INSERT INTO {} VALUES (5, 5)")
        task.run()
        assert task.assert_union("t") == 5
        run(task, ("s1", 12), "ALTER TABLE {} RENAME COLUMN a TO b, ADD COLUMN c INT DEFAULT 7")
        task.run()
        task.assert_equal("t")


def test_a_server_that_is_behind_or_has_gone_another_way(task: LiveTask, pair: tuple[MariaDb, MariaDb]) -> None:
    first, second = pair
    second.run("STOP SLAVE")
    write(task, first, 0)
    task.pull("s1")
    kept = task.work().store.segments("s1")
    move(task, second)
    with pytest.raises(GtidNotFound) as caught:
        task.pull("s1")
    assert caught.value.transient and task.work().store.segments("s1") == kept
    second.run("START SLAVE")
    await_replica(second, first)
    task.run()
    assert task.assert_union("t") == 10
    second.run("STOP SLAVE")
    write(task, first, 50, 2)
    write(task, second, 60)
    task.run()
    move(task, first)
    with pytest.raises(GtidNotFound):
        task.pull("s1")
    move(task, second)
    task.run()
    assert task.assert_union("t") == 20 and task.checkpoint("s1").generation == 1


def test_the_place_of_a_history(task: LiveTask, pair: tuple[MariaDb, MariaDb]) -> None:
    first, _ = pair
    noted = []
    for number in range(0, 4):
        write(task, first, number, 1)
        if number == 2:
            first.run("FLUSH LOGS", "SET SESSION gtid_domain_id = 9", f"CREATE TABLE {task.name}.y (a INT)")
        ((gtid,),) = first.run("SELECT @@gtid_binlog_pos")
        noted.append((end_of(first), gtid))
    assert [locate(first.server, "s1", str(gtid), 99) for _, gtid in noted] == [location for location, _ in noted]
    with pytest.raises(GtidNotFound):
        locate(first.server, "s1", "0-81-999999999", 99)


def test_where_gtids_prove_nothing(task: LiveTask) -> None:
    task.target.run(f"UPDATE {task.meta_schema}.source SET identity = 'mysql:other'")
    with pytest.raises(SourceReplaced):
        task.pull("s1")
    task.target.run(
        f"UPDATE {task.meta_schema}.source SET identity = 'mariadb:1:2',"
        " dump_end_file = 'mysql-bin.999999', dump_end_position = 4"
    )
    with pytest.raises(SourceReplaced):
        task.pull("s1")


def last_gtid(server: MariaDb) -> str:
    ((gtid,),) = server.run("SELECT @@gtid_binlog_pos")
    return str(gtid)


def write_as(server: MariaDb, gtid: str, *statements: str) -> None:
    """Run statements as the transaction of another server."""
    domain, number, sequence = gtid.split("-")
    session = f"SET SESSION gtid_domain_id = {domain}, server_id = {number}, gtid_seq_no = {sequence}"
    server.run(session, "BEGIN", *statements, "COMMIT")


@pytest.mark.parametrize(
    ("ours", "theirs", "shown"),
    [
        ("INSERT INTO {0}.t_1 VALUES (500, 'one')", "INSERT INTO {0}.t_1 VALUES (500, 'two')", ("one'", "two'")),
        ("INSERT INTO {0}.t_1 VALUES (500, 'a')", "INSERT INTO {0}.t_2 VALUES (500, 'a')", ("INSERT", "no such")),
        ("DELETE FROM {0}.t_1 WHERE id = 2", "UPDATE {0}.t_1 SET v = '' WHERE id = 2", ("DELETE", "UPDATE")),
        ("INSERT INTO {0}.u_1 VALUES ('a', 1)", "INSERT INTO {0}.u_1 VALUES ('a', 1), ('a', 1)", ("(7", "(14")),
    ],
)
def test_another_transaction_under_the_same_gtid(
    task: LiveTask, pair: tuple[MariaDb, MariaDb], ours: str, theirs: str, shown: tuple[str, str]
) -> None:
    first, second = pair
    write(task, first, 0)
    task.run()
    await_replica(second, first)
    second.run("STOP SLAVE", "SET GLOBAL gtid_strict_mode = 0")
    first.run(ours.format(task.name))
    gtid = last_gtid(first)
    write_as(second, gtid, theirs.format(task.name))
    assert last_gtid(second) == gtid
    task.pull("s1")
    kept = task.work().store.segments("s1")
    move(task, second)
    with pytest.raises(FailoverDiverged) as caught:
        task.pull("s1")
    error = caught.value
    assert not error.transient and error.gtid == gtid and task.work().store.segments("s1") == kept
    assert shown[0] in error.ours and shown[1] in error.theirs, error.message
    move(task, first)
    task.run()
    task.assert_settled()


LASTS = {
    "many rows": ["INSERT INTO {0}.t_1 SELECT seq, REPEAT('x', 40) FROM {0}.seq_1000_to_4000"],
    "several tables": [
        "BEGIN",
        "UPDATE {0}.t_1 SET v = 'z'",
        "DELETE FROM {0}.t_2",
        "INSERT INTO {0}.u_1 VALUES ('a', 1)",
        "COMMIT",
    ],
    "two tables at once": ["UPDATE {0}.t_1 a JOIN {0}.t_2 b ON a.id < b.id SET a.v = 'p', b.v = 'q'"],
    "minimal images": ["SET SESSION binlog_row_image = MINIMAL", "UPDATE {0}.t_1 SET v = 'm' WHERE id = 2"],
    "add": ["ALTER TABLE {0}.t_1 ADD COLUMN  c INT /* a comment */", "ALTER TABLE {0}.t_2 ADD COLUMN c INT"],
    "drop": ["CREATE TABLE {0}.x (a INT)", "DROP TABLE IF EXISTS {0}.x, {0}.y"],
    "truncate": ["CREATE TABLE {0}.x (a INT)", "TRUNCATE TABLE {0}.x"],
    "create as": ["CREATE TABLE {0}.x (PRIMARY KEY (id)) SELECT id FROM {0}.t_1"],
    "versioned": [
        "CREATE TABLE {0}.x (id INT PRIMARY KEY, v INT) WITH SYSTEM VERSIONING",
        "INSERT INTO {0}.x VALUES (1, 1), (2, 2)",
        "UPDATE {0}.x SET v = 3",
    ],
    "xa": ["XA START 'y'", "UPDATE {0}.t_1 SET v = 'xa'", "XA END 'y'", "XA PREPARE 'y'", "XA COMMIT 'y'"],
}


@pytest.mark.parametrize("kind", LASTS)
def test_the_same_transaction_as_another_server_logs_it(
    task: LiveTask, pair: tuple[MariaDb, MariaDb], kind: str
) -> None:
    first, second = pair
    if kind == "versioned" and is_tidb(task.target):
        pytest.skip("TiDB has no system-versioned tables, so the CREATE TABLE waits for an operator")
    second.run(
        "STOP SLAVE",
        "SET GLOBAL log_bin_compress = 1, binlog_row_metadata = FULL",
        "SET GLOBAL binlog_annotate_row_events = 0, binlog_checksum = NONE",
        "START SLAVE",
    )
    write(task, first, 0)
    task.run()
    first.run(*(statement.format(task.name) for statement in LASTS[kind]))
    task.pull("s1")
    await_replica(second, first)
    second.run("STOP SLAVE")
    second.run(f"UPDATE {task.name}.t_1 SET v = 'after'")
    move(task, second)
    task.run()
    assert task.checkpoint("s1").generation == 1
    task.assert_settled()


def test_a_copy_in_an_older_file_and_one_that_is_purged(task: LiveTask, pair: tuple[MariaDb, MariaDb]) -> None:
    first, second = pair
    write(task, first, 0)
    task.run()
    await_replica(second, first)
    second.run("STOP SLAVE", "FLUSH LOGS", "FLUSH LOGS")
    last = last_pulled(task.work().store, "s1", task.checkpoint("s1"))
    assert last is not None and last.gtid == last_gtid(first)
    files = [str(name) for name, *_ in second.run("SHOW BINARY LOGS")]
    at = locate(second.server, "s1", last_gtid(first), 99)
    copy = compare_last(second.server, "s1", last, at, ("other", 99))
    assert copy is not None and copy.file < files[-1]
    purge(second, files[-1])
    assert compare_last(second.server, "s1", last, at, ("other", 99)) is None
    write(task, second, 20)
    move(task, second)
    task.run()
    task.assert_settled()
