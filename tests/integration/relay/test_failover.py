"""Another server replaces a source: the relay continues by GTID, or reports why it cannot."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.binlogs import end_of, end_xa
from tests.livetask import LiveTask, living
from tests.taskfile import endpoint
from unshard.core.task.state import Phase
from unshard.errors.relay import GtidNotFound, SourceReplaced
from unshard.units.relay.failover import locate
from unshard.units.task.status import lag_bytes
from unshard_demo import servers
from unshard_demo.processes import await_true
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration

COLUMNS = {"t": "id INT PRIMARY KEY, v VARCHAR(40)", "u": "v VARCHAR(40), n INT"}
REPLICATES = ("--log-bin=other-bin", "--log-slave-updates", "--gtid-strict-mode=1")
SECONDS = 120.0


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
        servers.running(server_folder / f"{unique}-1", "--gtid-strict-mode=1", server_id=81) as first,
        servers.running(server_folder / f"{unique}-2", *REPLICATES, server_id=82) as second,
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
