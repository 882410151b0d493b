"""Extracted columns and column mappings in optimistic mode: shards with equal ids, through a rollout with a reload."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.joinedtask import FIRST, SECOND, JoinedTask, joined_task, run
from unshard.units.ddl import coordinate
from unshard_demo.servers import MariaDb

pytestmark = [pytest.mark.integration, pytest.mark.writes_rows]

COLUMNS = "id BIGINT PRIMARY KEY, v INT, w VARCHAR(9)"
MAPPING = {
    "schema-pattern": "*",
    "table-pattern": "t_*",
    "expression": "partition id",
    "target-column": "id",
    "arguments": ["", "", "t_"],
}


@pytest.fixture
def task(source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> Iterator[JoinedTask]:
    with joined_task(unique, tmp_path, (source_1, source_2, target), COLUMNS, shards=1) as task:
        body = yaml.safe_load(task.path.read_text())
        (rule,) = body["routes"].values()
        rule["extract-table"] = {"table-regexp": "_(.+)$", "target-column": "shard"}
        body["column-mappings"] = {"map": MAPPING}
        for instance in body["mysql-instances"]:
            instance["column-mapping-rules"] = ["map"]
        task.path.write_text(yaml.safe_dump(body))
        target.run(
            f"ALTER TABLE {task.table('t')} ADD COLUMN shard VARCHAR(9), DROP PRIMARY KEY, ADD PRIMARY KEY (id, shard)"
        )
        task.restart()
        yield task


def assert_rows(task: JoinedTask, columns: str) -> None:
    """Compare all columns but the mapped key, and the extracted one."""
    expected = []
    for source, number in (FIRST, SECOND):
        names = [row[0] for row in task.sources[source].run(f"SHOW COLUMNS FROM {task.name}.t_{number}")]
        own = ", ".join(name if name in names else "NULL" for name in columns.split())
        expected += task.sources[source].run(f"SELECT '{number}', {own} FROM {task.name}.t_{number}")
    found = task.target.run(f"SELECT shard, {columns.replace(' ', ', ')} FROM {task.table('t')}")
    assert sorted(map(str, found)) == sorted(map(str, expected))


@pytest.mark.mariadb_only("TiDB changes no clustered primary key")
def test_a_rollout(task: JoinedTask) -> None:
    for shard in (FIRST, SECOND):
        run(task, shard, f"INSERT INTO {{}} VALUES (1, {shard[1]}1, 'x'), (2, {shard[1]}2, 'ü'), (3, NULL, '')")
    task.run()
    assert_rows(task, "v w")
    assert task.target.run(f"SELECT COUNT(DISTINCT id) FROM {task.table('t')}") == [(6,)]
    run(task, FIRST, "ALTER TABLE {} ADD COLUMN c INT, RENAME COLUMN w TO x", "INSERT INTO {} VALUES (4, 4, 'y', 4)")
    run(task, FIRST, "UPDATE {} SET c = 1, id = 9 WHERE id = 1", "DELETE FROM {} WHERE id = 2")
    run(task, SECOND, "UPDATE {} SET w = 'late' WHERE id = 3")
    task.run()
    assert task.target.run(f"SELECT x FROM {task.table('t')} WHERE shard = '21' AND v IS NULL") == [("late",)]
    run(task, SECOND, "ALTER TABLE {} ADD COLUMN c INT DEFAULT -1, RENAME COLUMN w TO x", "DELETE FROM {} WHERE id = 1")
    task.run()
    assert_rows(task, "v x c")
    assert not any(member.reloads for member in task.joined("t")[0].group.members.values())
    for shard in (FIRST, SECOND):
        run(task, shard, "ALTER TABLE {} DROP COLUMN v", "INSERT INTO {} VALUES (5, 'z', 5)")
        task.run()
    assert_rows(task, "x c")
    assert coordinate.views(task.work().meta) == ()
    names = [row[0] for row in task.target.run(f"SHOW COLUMNS FROM {task.table('t')}")]
    assert sorted(names) == ["c", "id", "shard", "x"]
