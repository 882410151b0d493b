"""Late shards of a forced DDL, from their binlog into the target: every row is as their own DDL makes it."""

from pathlib import Path

import pytest

from tests.livetask import LiveTask, living
from tests.openlocks import open_locks
from tests.tidbsettings import is_tidb
from unshard.core.validate.checksum import Reason
from unshard.operate.command import Force
from unshard.operate.issuing import give
from unshard.units.full.snapshot import retake_snapshot
from unshard.units.validate.validate import validate
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration

COLUMNS = "id INT PRIMARY KEY, a INT, b INT DEFAULT 1"
CHANGES = ("RENAME COLUMN a TO x", "DROP COLUMN b, ADD COLUMN b VARCHAR(9) DEFAULT 'anew'", "ADD COLUMN n INT NOT NULL")


def force(task: LiveTask) -> None:
    """Force the open lock and execute it."""
    (lock,) = open_locks(task.work().meta)
    give(task.work().meta, Force(lock.id), "operator", "test", "late")
    task.coordinate()


def assert_executed(task: LiveTask, *changes: str) -> None:
    """Assert that the target executed these changes, in the steps that TiDB needs."""
    if is_tidb(task.target):  # it adds no column in a statement that drops one of that name
        changes = tuple(step for change in changes for step in change.split(", "))
    assert task.executed("t") == [f"ALTER TABLE `{task.name}_to`.`t` {change}" for change in changes]


def run(task: LiveTask, source: str, *statements: str) -> None:
    task.sources[source].run(f"USE {task.name}", *statements)


def test_rows_of_a_late_shard(source_1: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> None:
    numbers = {("s1", "t"): (1, 2)}
    with living(unique, tmp_path, (source_1, target), "t", columns={"t": COLUMNS}, numbers=numbers) as task:
        run(task, "s1", "INSERT INTO t_1 VALUES (1, 10, 100)", "INSERT INTO t_2 VALUES (2, 20, 200), (3, 30, 300)")
        for number, change in enumerate(CHANGES):
            run(
                task,
                "s1",
                f"ALTER TABLE t_1 {change}",
                f"INSERT INTO t_1 (id) VALUES ({10 + number})" if "NOT NULL" not in change else "DO 1",
            )
            task.run()
            force(task)
        run(
            task,
            "s1",
            "INSERT INTO t_2 VALUES (4, 40, 400)",
            "UPDATE t_2 SET a = 21 WHERE id = 2",
            "DELETE FROM t_2 WHERE id = 3",
        )
        task.run()
        for number, change in enumerate(CHANGES):
            run(
                task,
                "s1",
                f"ALTER TABLE t_2 {change}",
                f"INSERT INTO t_2 (id{', n' if 'n INT' in change else ''}) VALUES ({20 + number}"
                f"{', 5' if 'n INT' in change else ''})",
                f"UPDATE t_2 SET b = {number} WHERE id = 4",
            )
            if number != 1:
                task.run()
        task.run()
        task.assert_settled()
        assert_executed(task, *CHANGES)


def test_new_shards_like_a_late_one_have_rows_in_their_first_window(
    source_1: MariaDb, target: MariaDb, unique: str, tmp_path: Path
) -> None:
    numbers = {("s1", "t"): (1, 2)}
    with living(unique, tmp_path, (source_1, target), "t", columns={"t": COLUMNS}, numbers=numbers) as task:
        run(task, "s1", "ALTER TABLE t_1 DROP COLUMN b, RENAME COLUMN a TO x")
        task.run()
        force(task)
        for new, old in ((3, 2), (4, 3)):  # the second equals a shard that only this window knows
            run(task, "s1", f"CREATE TABLE t_{new} LIKE t_{old}", f"INSERT INTO t_{new} VALUES ({new}, {new}0, 1)")
            task.shards["t"].append(("s1", f"{task.name}.t_{new}"))
        task.run()
        assert target.run(f"SELECT id, x FROM {task.table('t')} ORDER BY id") == [(3, 30), (4, 40)]
        for number in (2, 3, 4):
            run(task, "s1", f"ALTER TABLE t_{number} DROP COLUMN b, RENAME COLUMN a TO x")
        task.run()
        task.assert_settled()
        assert len(task.executed("t")) == 1


def test_a_source_that_comes_when_the_ddl_is_resolved(
    source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path
) -> None:
    numbers = {("s1", "t"): (1, 2), ("s2", "t"): ()}
    servers = (source_1, source_2, target)
    with living(unique, tmp_path, servers, "t", columns={"t": COLUMNS}, numbers=numbers) as task:
        run(task, "s1", "INSERT INTO t_1 VALUES (1, 10, 100)")
        for change in CHANGES:
            run(task, "s1", *(f"ALTER TABLE t_{number} {change}" for number in (1, 2)))
        task.run()
        assert_executed(task, *CHANGES)
        columns = f"{COLUMNS}".replace("a INT", "x INT")  # the source ran the first of them before it was added
        run(task, "s2", f"CREATE TABLE t_3 ({columns})", f"CREATE TABLE t_4 ({columns})")
        task.shards["t"] += [("s2", f"{task.name}.t_{number}") for number in (3, 4)]
        come_late(task, "s2")
        run(
            task,
            "s2",
            "INSERT INTO t_3 VALUES (30, 3, 3)",
            "INSERT INTO t_4 VALUES (40, 4, 4)",
            "UPDATE t_3 SET x = 33",
        )
        task.run()
        assert {len(skips_of_shard) for skips_of_shard in task.work().meta.locks.pending_skips().values()} == {
            len(CHANGES) - 1
        }
        for table in ("t_3", "t_4"):
            run(task, "s2", *(f"ALTER TABLE {table} {change}" for change in CHANGES[1:]))
        run(task, "s2", "INSERT INTO t_3 VALUES (31, 3, 'b', 1)")
        task.run()
        task.assert_settled()
        assert_executed(task, *CHANGES)


def test_validate_compares_the_columns_of_a_late_shard_where_the_target_has_them(
    source_1: MariaDb, target: MariaDb, unique: str, tmp_path: Path
) -> None:
    numbers = {("s1", "t"): (1, 2)}
    with living(unique, tmp_path, (source_1, target), "t", columns={"t": COLUMNS}, numbers=numbers) as task:
        run(task, "s1", "INSERT INTO t_1 VALUES (1, 10, 100)", "INSERT INTO t_2 VALUES (2, 20, 200), (3, 30, 300)")
        found = []
        for change in ("CHANGE a x INT", "DROP COLUMN b", "ADD COLUMN b VARCHAR(9)", "RENAME COLUMN x TO y"):
            run(task, "s1", f"ALTER TABLE t_1 {change}")
            task.run()
            force(task)
            run(task, "s1", "UPDATE t_2 SET a = a + 1")
            task.run()
            (verdict,) = validate(task.work())
            assert verdict.equal, (verdict.lost_columns, verdict.differences)
            left_out = {each.column: each.reason for each in verdict.left_out}
            found.append((verdict.compared, left_out))
        assert found == [
            (("id", "x", "b"), {}),
            (("id", "x"), {"b": Reason.DROPPED}),
            (("id", "x"), {"b": Reason.NOT_IN_SHARDS}),
            (("id", "y"), {"b": Reason.NOT_IN_SHARDS}),
        ]
        target.run(f"UPDATE {task.table('t')} SET y = 0 WHERE id = 2")
        (verdict,) = validate(task.work())
        assert [each.key for each in verdict.differences] == [("2",)]


def test_a_column_that_only_a_shard_has_is_lost_also_beside_a_pending_skip(
    source_1: MariaDb, target: MariaDb, unique: str, tmp_path: Path
) -> None:
    numbers = {("s1", "t"): (1, 2)}
    with living(unique, tmp_path, (source_1, target), "t", columns={"t": COLUMNS}, numbers=numbers) as task:
        run(task, "s1", "ALTER TABLE t_1 RENAME COLUMN a TO x")
        task.run()
        force(task)
        target.run(f"ALTER TABLE {task.table('t')} DROP COLUMN b")
        (verdict,) = validate(task.work())
        assert (verdict.lost_columns, verdict.equal) == (("b",), False)


def come_late(task: LiveTask, source: str) -> None:
    """Create the state after the full DAG for a source that was added to the task file, with empty shards."""
    where = f"WHERE source = '{source}'"
    for table in ("checkpoint", "source", "table_schema", "shard"):
        task.target.run(f"DELETE FROM {task.meta_schema}.{table} {where}")
    report = retake_snapshot(task.work(), source)
    task.work().meta.checkpoints.start(source, report.location)
