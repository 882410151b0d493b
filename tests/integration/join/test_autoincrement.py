"""Shards set different next AUTO_INCREMENT values: the target takes the largest."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.livetask import LiveTask, living
from unshard_demo.servers import MariaDb

pytestmark = [pytest.mark.integration, pytest.mark.on_tidb]

COLUMNS = "id INT PRIMARY KEY AUTO_INCREMENT, v INT"
NEXT = "SELECT AUTO_INCREMENT FROM information_schema.TABLES WHERE TABLE_SCHEMA = '{}' AND TABLE_NAME = 't'"


@pytest.fixture
def task(source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> Iterator[LiveTask]:
    numbers = {("s1", "t"): (1, 2), ("s2", "t"): (1,)}
    with living(unique, tmp_path, (source_1, source_2, target), "t", columns={"t": COLUMNS}, numbers=numbers) as made:
        yield made


@pytest.mark.parametrize(
    "spec",
    ["AUTO_INCREMENT = {}", "auto_increment {}, COMMENT 'AUTO_INCREMENT = 9999999'", "ADD w INT, AUTO_INCREMENT={}"],
)
def test_the_target_takes_the_largest(task: LiveTask, spec: str) -> None:
    for number, (source, table) in zip((500, 700_000, 60_000), task.shards["t"], strict=True):
        task.sources[source].run(f"ALTER TABLE {table} {spec.format(number)}", f"INSERT INTO {table} (v) VALUES (1)")
    task.run()
    task.assert_settled()
    assert len(task.executed("t")) == 1
    ((found,),) = task.target.run(NEXT.format(f"{task.name}_to"))
    assert 700_000 <= int(str(found)) < 800_000
