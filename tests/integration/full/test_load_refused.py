"""A row that the target cannot take, found by the load: other tables are loaded, and the row is named or diverted."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lifetask import LifeTask, living
from tests.oracle import assert_union
from unshard.units.validate.validate import validate
from unshard_demo.servers import MariaDb

pytestmark = [pytest.mark.integration, pytest.mark.on_tidb]
SESSION = "SET SESSION sql_mode = '', time_zone = '+00:00'"
COLUMNS = "id INT PRIMARY KEY, t TIMESTAMP(6) NULL, d DATE, n DECIMAL({})"
TOO_EARLY = "'1970-01-01 00:00:00.5'"
"""Only MariaDB and MySQL have such a TIMESTAMP."""
TOO_FINE = "1.2345"
"""The target has two digits after the point."""


@pytest.fixture
def task(source_1: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> Iterator[LifeTask]:
    """Three shards of `t`, two of them with a row that does not fit, and one of `u`."""
    where = {"schema-pattern": f"{unique}*", "target-schema": f"{unique}_to"}
    routes = {name: {**where, "table-pattern": f"{name}_*", "target-table": name} for name in ("t", "u")}
    with living(unique, tmp_path, {"s1": source_1}, target, routes=routes) as made:
        made.body["mysql-instances"][0]["route-rules"] = list(routes)
        made.write()
        for number in (1, 2, 3):
            name = f"{unique}.t_{number}"
            made.shards.setdefault("s1", []).append(name)
            source_1.run(
                SESSION,
                f"CREATE TABLE {name} ({COLUMNS.format('10,4')})",
                f"INSERT INTO {name} VALUES ({number}, NULL, '2020-00-31', 1.5)",
            )
        source_1.run(
            SESSION,
            *(
                f"INSERT INTO {unique}.t_{number} VALUES ({number}0, {TOO_EARLY}, NULL, {TOO_FINE})"
                for number in (1, 3)
            ),
        )
        source_1.run(f"CREATE TABLE {unique}.u_1 (id INT PRIMARY KEY)", f"INSERT INTO {unique}.u_1 VALUES (1), (2)")
        target.run(f"CREATE DATABASE {unique}_to", f"CREATE TABLE {unique}_to.t ({COLUMNS.format('8,2')})")
        yield made


def correct(task: LifeTask, number: int) -> None:
    task.sources["s1"].run(f"UPDATE {task.name}.t_{number} SET t = NULL, n = 1 WHERE id = {number}0")


def ids(task: LifeTask) -> list[int]:
    return [row[0] for row in task.target.run(f"SELECT id FROM {task.name}_to.t ORDER BY id")]


def test_other_tables_and_chunks_are_loaded_and_the_error_names_the_rows(task: LifeTask) -> None:
    (trouble,) = task.run().errors
    assert trouble.error.code == "US-6407"
    assert all(words in str(trouble.error) for words in (f"{task.name}_to.t", "row id = 10", "row id = 30"))
    assert ids(task) == [2]
    assert_union(task.sources, {"s1": [f"{task.name}.u_1"]}, task.target, f"{task.name}_to.u")
    task.body["unshard"]["row-errors"] = "divert"
    task.write()
    task.go()
    assert ids(task) == [1, 2, 3]


def test_with_divert_only_the_rows_are_missing_until_they_are_corrected(task: LifeTask) -> None:
    task.body["unshard"]["row-errors"] = "divert"
    task.write()
    task.go()
    assert ids(task) == [1, 2, 3]
    with task.work() as work:
        found = {each.key: each for each in work.meta.row_errors.all(9, only_open=True)}
        assert found.keys() == {"id = 10", "id = 30"} and {each.column for each in found.values()} <= {"t", "n"}
        verdict = next(each for each in validate(work) if each.target.name == "t")
        assert [each.because is not None for each in verdict.differences] == [True, True]
    for number in (1, 3):
        correct(task, number)
    task.go()
    with task.work() as work:
        assert not work.meta.row_errors.all(9, only_open=True)
    assert task.assert_union() == 5
