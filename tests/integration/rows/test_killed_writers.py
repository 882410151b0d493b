"""A writer dies between the rows and their fence: no row is lost or doubled, and the next run needs no help.

TiDB commits the open transaction when it runs LOAD DATA LOCAL. With that statement, the rows of the dead attempt would
be committed without their fence, and each later run would fail because the savepoint of its transaction is gone (1305).
"""

from pathlib import Path

import pytest

from tests.dying import DIED, Point, run_until_death
from tests.livetask import living
from tests.oracle import assert_union
from tests.taskfile import TaskFile, schemas, write_task
from unshard_demo.servers import MariaDb

pytestmark = [pytest.mark.integration, pytest.mark.on_statements, pytest.mark.on_tidb]
COLUMNS = {"t": "id INT PRIMARY KEY, v VARCHAR(9)", "bag": "id INT, v VARCHAR(9)"}
FENCE = "unshard.adapters.target.apply:raise_fence"
CHUNK = "unshard.adapters.target.chunkprogress:mark_loaded"


def test_a_window_dies_between_the_rows_and_the_fence(
    source_1: MariaDb, target: MariaDb, unique: str, tmp_path: Path
) -> None:
    numbers = {("s1", group): (1, 2) for group in COLUMNS}
    with living(unique, tmp_path, (source_1, target), [*COLUMNS], columns=COLUMNS, numbers=numbers) as task:
        for group in COLUMNS:
            first, second = (f"{unique}.{group}_{number}" for number in (1, 2))
            source_1.run(
                f"INSERT INTO {first} VALUES (1, 'a'), (2, 'b'), (2000, 'c')", f"INSERT INTO {second} VALUES (4, 'd')"
            )
        task.pull("s1")
        for when in ("before", "in", "after"):
            task.restart()
            assert run_until_death(task.path, "window", "s1", Point(when, FENCE)) == DIED, when
            assert [_rows(target, task.table(group)) for group in COLUMNS] == [0, 0]
        task.restart()
        task.run()
        for group in COLUMNS:
            source_1.run(f"UPDATE {unique}.{group}_1 SET v = 'x' WHERE id < 3", f"DELETE FROM {unique}.{group}_2")
        task.pull("s1")
        for _ in range(3):
            task.restart()
            assert run_until_death(task.path, "window", "s1", Point("before", FENCE)) == DIED
        task.restart()
        task.run()
        task.assert_settled()


class FullTask(TaskFile):
    """A task file, which `go` runs."""

    def __init__(self, path: Path) -> None:
        self.path = path


def test_a_load_dies_between_the_rows_and_the_state_of_the_chunk(
    source_1: MariaDb, target: MariaDb, unique: str, tmp_path: Path
) -> None:
    with schemas(unique, [source_1], target):
        for group, columns in COLUMNS.items():
            for number in (1, 2):
                table, first = f"{unique}.{group}_{number}", 1000 * number
                numbers = f"{unique}.seq_{first}_to_{first + 299}"
                source_1.run(f"CREATE TABLE {table} ({columns})", f"INSERT INTO {table} SELECT seq, 1 FROM {numbers}")
        path = write_task(tmp_path, unique, {"s1": source_1}, target, {group: f"{group}_*" for group in COLUMNS})
        for when in ("before", "in", "before"):
            assert run_until_death(path, "load", "", Point(when, CHUNK)) == DIED, when
            found = [_rows(target, f"{unique}_to.{group}") for group in COLUMNS]
            assert all(count % 300 == 0 for count in found), found
        FullTask(path).go()
        for group in COLUMNS:
            shards = {"s1": [f"{unique}.{group}_{number}" for number in (1, 2)]}
            assert assert_union({"s1": source_1}, shards, target, f"{unique}_to.{group}") == 600


def _rows(server: MariaDb, table: str) -> int:
    return int(str(server.run(f"SELECT COUNT(*) FROM {table}")[0][0]))
