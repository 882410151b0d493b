"""A source does not choose files, tables or servers of the target (core.structures.storageclauses)."""

from pathlib import Path

import pytest

from tests.lifetask import COLUMNS, LifeTask, task

pytestmark = [pytest.mark.integration, pytest.mark.on_tidb]
__all__ = ["task"]

LINK = "CONNECTION='mysql://u:hunter2@h/d/t'"


def test_no_clause_about_storage_reaches_the_target(task: LifeTask, tmp_path: Path) -> None:
    directory = f"DATA DIRECTORY='{tmp_path / 'shard'}'"
    (tmp_path / "shard").mkdir(mode=0o777)
    for source, number in (("s1", 1), ("s2", 2)):
        table = f"{task.name}.t_{number}"
        task.sources[source].run(f"DROP TABLE {table}", f"CREATE TABLE {table} ({COLUMNS}) {directory} {LINK}")
        task.insert(source, table, number)
    assert "without CONNECTION, DATA DIRECTORY of its shard" in task.checked()["US-2395"]
    task.go()
    assert task.assert_union() == 2

    one, other = task.sources["s1"], task.sources["s2"]
    one.run(f"ALTER TABLE {task.name}.t_1 ADD c INT, {LINK.replace('hunter2', 'hunter22')} COMMENT='x'")
    other.run(f"ALTER TABLE {task.name}.t_2 ADD c INT, COMMENT='x' /*!50000 {LINK} */")
    one.run(f"ALTER TABLE {task.name}.t_1 {LINK}")
    third = f"{task.name}.t_3"
    one.run(
        f"CREATE TABLE {third} ({COLUMNS}, c INT) {directory} {LINK} COMMENT='x'",
        f"INSERT INTO {third} VALUES (3, 'x', 1)",
    )
    task.shards["s1"].append(third)
    task.go()
    task.go()
    assert task.assert_union() == 3

    shown = task.target.run(f"SHOW CREATE TABLE {task.name}_to.t")[0][1]
    assert "`c`" in shown and "COMMENT='x'" in shown
    assert not [word for word in ("hunter2", "CONNECTION", "DIRECTORY", str(tmp_path)) if word in shown]
    assert len(list((tmp_path / "shard").rglob("*.ibd"))) == 3, "only the shards are in the folder"
