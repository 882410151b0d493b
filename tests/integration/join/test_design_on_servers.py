"""What must work in optimistic mode, and DM's known failures (`tests/unit/join/test_design.py`), on real servers."""

import random
from pathlib import Path

import pytest

from tests.joinedtask import JoinedTask, joined_task, run
from tests.livetask import LiveTask
from tests.unit.join.test_design import SCRIPTS
from unshard_demo.servers import MariaDb

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.mariadb_only("DDL in the dialect of MariaDB")]

COLUMNS = "id INT PRIMARY KEY, a INT, b INT, e ENUM('x','y'), UNIQUE KEY uk (b)"
SHARDS = (("s1", 11), ("s1", 12), ("s2", 21))


def write(task: JoinedTask, shard: tuple[str, int], key: int) -> None:
    """Insert a row with values in some of the columns that the shard has, and change an older one."""
    table = f"{task.name}.t_{shard[1]}"
    names = [str(row[0]) for row in task.sources[shard[0]].run(f"SHOW COLUMNS FROM {table}") if "int" in str(row[1])]
    own = ", ".join(f"`{name}`" for name in names)
    run(task, shard, f"INSERT INTO {{}} ({own}) VALUES ({', '.join(str(key) for _ in names)})")
    run(task, shard, f"UPDATE {{}} SET `{names[-1]}` = {key} + 1000 WHERE id < {key} ORDER BY id DESC LIMIT 1")


@pytest.mark.sample(reason="all of them run in memory, a part on servers", every=6)
@pytest.mark.parametrize("name", SCRIPTS)
def test_it_ends_equal(
    name: str, source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path
) -> None:
    dice = random.Random(name)
    with joined_task(unique, tmp_path, (source_1, source_2, target), COLUMNS) as task:
        source, extra = task.shards["t"].pop()
        task.sources[source].run(f"DROP TABLE {extra}")
        left = {shard: [*texts] for shard, texts in zip(SHARDS, SCRIPTS[name], strict=True)}
        key = 0
        while any(left.values()):
            shard = dice.choice([shard for shard in SHARDS if left[shard]])
            run(task, shard, f"ALTER TABLE {{}} {left[shard].pop(0)}")
            for each in SHARDS:
                key += 1
                write(task, each, key)
            if dice.random() < 0.5:
                task.pull(shard[0])
                task.window(shard[0])
                task.coordinate()
            if dice.random() < 0.2:
                task.restart()
        task.run()
        task.assert_equal("t")
        LiveTask.assert_union(task, "t")
