"""Shards that change their storage engine: the target keeps an engine with transactions."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.livetask import LiveTask, living
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration


@pytest.fixture
def task(source_1: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> Iterator[LiveTask]:
    columns, numbers = {"g": "id INT PRIMARY KEY, v VARCHAR(20)"}, {("s1", "g"): (1, 2)}
    with living(unique, tmp_path, (source_1, target), "g", columns=columns, numbers=numbers) as opened:
        yield opened


def write(task: LiveTask, *statements: str) -> None:
    task.sources["s1"].run(f"USE {task.name}", *statements)


def shown(task: LiveTask) -> str:
    return str(task.target.run(f"SHOW CREATE TABLE {task.table('g')}")[0][1])


def test_an_engine_without_transactions_stays_with_the_shard(task: LiveTask) -> None:
    """The shard does not wait for the other one, and nothing is executed on the target."""
    write(task, "ALTER TABLE g_1 ENGINE=MyISAM ROW_FORMAT=FIXED", "INSERT INTO g_1 VALUES (1, 'a')")
    task.pull("s1")
    report = task.window("s1")
    (warning,) = report.engines
    assert warning.code == "US-2375" and "MyISAM" in str(warning) and not report.ddls
    assert task.assert_union("g") == 1 and "ENGINE=InnoDB" in shown(task)
    write(
        task,
        "INSERT INTO g_2 VALUES (2, 'b')",
        "ALTER TABLE g_1 ENGINE=InnoDB ROW_FORMAT=DEFAULT",
        "UPDATE g_1 SET v = 'c'",
    )
    task.run()
    assert task.assert_union("g") == 2
    task.assert_settled()


def test_the_rest_of_the_statement_is_executed(task: LiveTask) -> None:
    write(task, "ALTER TABLE g_1 ENGINE=Aria TRANSACTIONAL=0, ADD COLUMN w INT COMMENT 'ENGINE', COMMENT='new'")
    write(
        task, "INSERT INTO g_1 VALUES (1, 'a', 7)", "ALTER TABLE g_2 ADD COLUMN w INT COMMENT 'ENGINE', COMMENT='new'"
    )
    write(task, "INSERT INTO g_2 VALUES (2, 'b', 8)", "DELETE FROM g_1")
    task.run()
    assert task.assert_union("g") == 1
    task.assert_settled()
    assert "ENGINE=InnoDB" in shown(task) and "COMMENT='new'" in shown(task) and "`w`" in shown(task)
