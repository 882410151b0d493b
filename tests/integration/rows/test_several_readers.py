"""A window of several targets that several tasks read: MariaDB gets parameters, and text if rows are partial."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.livetask import LiveTask, living
from unshard.units.work import Limits
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration
SEVERAL = Limits(small_bytes=0, alone_bytes=0, worker_bytes=2000)
GROUPS = ("a", "b", "kept")
COLUMNS = "id INT PRIMARY KEY, v VARCHAR(2000), n INT"
ROWS = 40


@pytest.fixture
def task(source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> Iterator[LiveTask]:
    columns = dict.fromkeys(GROUPS, COLUMNS) | {"kept": "v VARCHAR(2000), n INT"}
    numbers = {("s1", name): (1,) for name in GROUPS} | {("s2", name): (2,) for name in GROUPS}
    servers = source_1, source_2, target
    with living(unique, tmp_path, servers, list(GROUPS), columns=columns, numbers=numbers) as opened:
        opened.restart()
        opened.limits = SEVERAL
        yield opened


def write(task: LiveTask, source: str, first: int) -> None:
    """Insert, update and delete rows in one shard of each target."""
    shard = first // 1000
    for row in range(first, first + ROWS):
        task.sources[source].run(
            f"USE {task.name}",
            *(f"INSERT INTO {name}_{shard} VALUES ({row}, REPEAT('ä\\t', 100), {row})" for name in ("a", "b")),
            f"INSERT INTO kept_{shard} VALUES ('x\\n', {row % 7})",
        )
    task.sources[source].run(
        f"USE {task.name}",
        *(f"UPDATE {name}_{shard} SET n = -n, v = NULL WHERE id % 3 = 0" for name in ("a", "b")),
        f"UPDATE a_{shard} SET id = id + 500 WHERE id % 5 = 0",
        f"DELETE FROM b_{shard} WHERE id % 4 = 0",
        f"DELETE FROM kept_{shard} WHERE n = 3",
    )
    task.pull(source)


def commands(task: LiveTask) -> tuple[int, int]:
    """Return how many commands of bulk and of LOAD DATA the target has run."""
    rows = task.target.run("SHOW GLOBAL STATUS WHERE Variable_name IN ('Com_stmt_execute', 'Com_load')")
    counts = {name: int(count) for name, count in rows}
    return counts.get("Com_stmt_execute", 0), counts.get("Com_load", 0)


def assert_unions(task: LiveTask) -> None:
    task.assert_settled()
    for name in GROUPS:
        assert task.assert_union(name)


@pytest.mark.mariadb_only("TiDB has no COM_STMT_BULK_EXECUTE")
def test_their_rows_go_by_bulk(task: LiveTask) -> None:
    write(task, "s1", 1000)
    task.run()
    write(task, "s2", 2000)
    before = commands(task)
    task.run()
    bulk, text = (after - then for after, then in zip(commands(task), before, strict=True))
    assert bulk >= len(GROUPS)
    assert text == 0
    assert_unions(task)


def test_partial_rows_among_them_go_as_text(task: LiveTask) -> None:
    """Full images come first, so some parts are read as parameters before a part with partial rows is met."""
    write(task, "s1", 1000)
    task.run()
    task.sources["s1"].run(f"USE {task.name}", *(f"UPDATE a_1 SET n = {n} WHERE id = {1001 + n}" for n in range(ROWS)))
    task.sources["s1"].run("SET GLOBAL binlog_row_image = MINIMAL")
    try:
        task.sources["s1"].run(f"USE {task.name}", *(f"UPDATE b_1 SET n = {n} WHERE id > {n}" for n in range(20)))
    finally:
        task.sources["s1"].run("SET GLOBAL binlog_row_image = FULL")
    task.sources["s1"].run(f"USE {task.name}", "UPDATE b_1 SET v = 'end' WHERE id % 2 = 1")
    task.pull("s1")
    task.run()
    assert_unions(task)
