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


@pytest.mark.parametrize("option", ["ROW_FORMAT=PAGE", "PAGE_CHECKSUM=1, TRANSACTIONAL=1", "ROW_FORMAT=FIXED"])
def test_an_option_of_an_earlier_engine_stays_with_the_shard(task: LiveTask, option: str) -> None:
    """The statement that gave the shard its engine was left out, so the target's engine does not know the option."""
    write(task, "ALTER TABLE g_1 ENGINE=Aria", "INSERT INTO g_1 VALUES (1, 'a')")
    task.run()
    write(task, f"ALTER TABLE g_1 {option}", "INSERT INTO g_1 VALUES (2, 'b')")
    task.pull("s1")
    report = task.window("s1")
    (warning,) = report.engines
    assert warning.code == "US-2375" and "Aria" in str(warning) and not report.ddls
    write(task, f"ALTER TABLE g_1 ADD COLUMN w INT, {option}", "INSERT INTO g_1 VALUES (3, 'c', 7)")
    write(task, "ALTER TABLE g_2 ADD COLUMN w INT", "INSERT INTO g_2 VALUES (4, 'd', 8)")
    task.run()
    assert task.assert_union("g") == 4
    task.assert_settled()
    assert "ENGINE=InnoDB" in shown(task) and "ROW_FORMAT" not in shown(task) and "TRANSACTIONAL" not in shown(task)


@pytest.mark.parametrize(("engine", "option"), [("Aria", "ROW_FORMAT=PAGE"), ("MyISAM", "ROW_FORMAT=FIXED")])
def test_options_of_the_engine_that_a_new_shard_has(task: LiveTask, engine: str, option: str) -> None:
    write(task, "CREATE TABLE g_3 LIKE g_1", f"ALTER TABLE g_3 ENGINE={engine}")
    task.shards["g"].append(("s1", f"{task.name}.g_3"))
    task.run()
    write(task, f"ALTER TABLE g_3 {option}", "INSERT INTO g_3 VALUES (1, 'a')")
    task.run()
    assert task.assert_union("g") == 1
    task.assert_settled()
