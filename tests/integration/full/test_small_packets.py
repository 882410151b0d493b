"""A target takes only small packets: a larger row suspends it, and nothing else stops."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.livetask import LiveTask, living
from tests.running import while_up
from unshard_demo.servers import MariaDb, start_server

pytestmark = pytest.mark.integration

COLUMNS = {"t": "id INT PRIMARY KEY, v LONGTEXT", "u": "id INT, v LONGBLOB"}


@pytest.fixture
def small(server_folder: Path, tmp_path: Path) -> Iterator[MariaDb]:
    with while_up(start_server(server_folder / tmp_path.name, "--max-allowed-packet=64K")) as server:
        yield server


@pytest.fixture
def task(source_1: MariaDb, small: MariaDb, unique: str, tmp_path: Path) -> Iterator[LiveTask]:
    numbers = {("s1", "t"): (1,), ("s1", "u"): (1,)}
    with living(unique, tmp_path, (source_1, small), "tu", columns=COLUMNS, numbers=numbers) as made:
        yield made


@pytest.mark.parametrize(
    ("group", "statements"),
    [
        ("t", ["INSERT INTO t_1 VALUES (2, REPEAT('é', 150000))"]),
        (
            "t",
            ["INSERT INTO t_1 VALUES (2, REPEAT('x\\t', 40000))", "UPDATE t_1 SET v = REPEAT('y', 90000) WHERE id = 2"],
        ),
        ("u", ["INSERT INTO u_1 VALUES (2, REPEAT(X'00FF', 150000))", "DELETE FROM u_1 WHERE id = 2"]),
    ],
)
def test_a_row_that_is_too_large_suspends_its_target(task: LiveTask, group: str, statements: list[str]) -> None:
    other = {"t": "u", "u": "t"}[group]
    task.sources["s1"].run(f"USE {task.name}", statements[0], f"INSERT INTO {other}_1 VALUES (1, 'x')")
    task.run()
    assert {name for _, name in task.stopped()} == {group}
    assert "max_allowed_packet" in str(next(iter(task.stopped().values())))
    assert task.assert_union(other) == 1
    task.sources["s1"].run(f"USE {task.name}", *statements[1:], f"INSERT INTO {other}_1 VALUES (2, 'y')")
    task.run()
    assert task.assert_union(other) == 2
    task.target.run("SET GLOBAL max_allowed_packet = 16777216")
    task.restart()
    task.retry()
    task.assert_settled()
