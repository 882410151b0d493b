"""System-versioned shards: the present rows are merged, independent of the history that the sources keep."""

import contextlib
from collections.abc import Iterator

import pytest

from tests.livetask import LiveTask, living
from tests.openlocks import open_locks
from tests.oracle import rows, union
from tests.tidbsettings import is_tidb
from unshard.core.ddl.lock import LockState

pytestmark = pytest.mark.integration
PERIOD = (
    "rs TIMESTAMP(6) GENERATED ALWAYS AS ROW START, re TIMESTAMP(6) GENERATED ALWAYS AS ROW END INVISIBLE,"
    " PERIOD FOR SYSTEM_TIME (rs, re)"
)
GROUPS = {
    "hidden": "id INT PRIMARY KEY, v VARCHAR(20)",
    "shown": f"id INT PRIMARY KEY, v VARCHAR(20), {PERIOD}",
    "keyless": "id INT, v VARCHAR(20)",
    "late": "id INT PRIMARY KEY, v VARCHAR(20)",
}


def change(task, group: str, numbers: range) -> None:
    """Change rows of all shards of a group so that they get a history."""
    for place, (source, name) in enumerate(task.shards[group]):
        ids = [1000 * place + number for number in numbers]
        task.sources[source].run(
            "SET time_zone = '+00:00'",
            *(f"INSERT INTO {name} (id, v) VALUES ({n}, 'new')" for n in ids),
            f"UPDATE {name} SET v = CONCAT(v, '!') WHERE id % 2",
            f"DELETE FROM {name} WHERE id = {ids[0]}",
            f"REPLACE INTO {name} (id, v) VALUES ({ids[1]}, 'other'), ({ids[0]}, 'back')",
            f"UPDATE {name} SET id = id + 500 WHERE id = {ids[2]}",
        )


def assert_present(task, group: str) -> None:
    names = ["id", "v"]
    shards = {source: [name for at, name in task.shards[group] if at == source] for source in task.sources}
    assert rows(task.target, task.table(group), names) == union(task.sources, shards, names)


@contextlib.contextmanager
def versioned(sources, target, unique, tmp_path) -> Iterator[LiveTask]:
    """Create shards with hidden and visible periods, without a key, and some that keep no history yet."""
    numbers = {("s1", group): (1, 2) for group in GROUPS} | {("s2", group): (3,) for group in GROUPS}
    options = {group: "" if group == "late" else "WITH SYSTEM VERSIONING" for group in GROUPS}
    with living(
        unique, tmp_path, [*sources, target], list(GROUPS), columns=GROUPS, numbers=numbers, options=options
    ) as task:
        yield task


def test_present_rows_of_versioned_shards(source_1, source_2, target, unique, tmp_path):
    with versioned([source_1, source_2], target, unique, tmp_path) as task:
        for first in (0, 10):
            for group in GROUPS:
                change(task, group, range(first, first + 10))
            task.run()
            for group in GROUPS:
                assert_present(task, group)
        assert all("VERSIONING" not in str(target.run(f"SHOW CREATE TABLE {task.table(group)}")) for group in GROUPS)


def test_target_that_does_not_know_versioning_asks_an_operator(source_1, source_2, target, unique, tmp_path):
    """Only the shard with this DDL waits."""
    with versioned([source_1, source_2], target, unique, tmp_path) as task:
        ((source, name), *_) = task.shards["late"]
        task.sources[source].run(f"ALTER TABLE {name} ADD SYSTEM VERSIONING")
        for group in GROUPS:
            change(task, group, range(10))
        task.run()
        found = [lock.state for lock in open_locks(task.work().meta)]
        assert found == ([LockState.UNDECIDED] if is_tidb(target) else [])
        for group in ("hidden", "shown", "keyless"):
            assert_present(task, group)


@pytest.mark.mariadb_only("TiDB lacks system versioning: a DDL of it, or of such a table, waits for an operator")
def test_versioned_shards(source_1, source_2, target, unique, tmp_path):
    """Hidden and visible periods, no key; a table that becomes versioned, gets a column, and loses its versioning."""
    with versioned([source_1, source_2], target, unique, tmp_path) as task:
        for group in GROUPS:
            change(task, group, range(10))
        task.run()
        for source, name in task.shards["late"][:2]:
            task.sources[source].run(f"ALTER TABLE {name} ADD SYSTEM VERSIONING")
        for group in GROUPS:
            change(task, group, range(10, 20))
        task.run()
        for group in GROUPS:
            assert_present(task, group)
            assert "VERSIONING" not in str(target.run(f"SHOW CREATE TABLE {task.table(group)}"))
        for group, history in (("late", ""), ("hidden", "WITHOUT SYSTEM VERSIONING")):
            for source, name in task.shards[group]:
                task.sources[source].run(
                    "SET SESSION system_versioning_alter_history = KEEP",
                    f"ALTER TABLE {name} ADD COLUMN more INT DEFAULT 7 {history}",
                )
        for source, name in task.shards["hidden"]:
            task.sources[source].run(f"ALTER TABLE {name} DROP SYSTEM VERSIONING")
        source_1.run(
            f"CREATE TABLE {unique}.shown_9 ({GROUPS['shown']}) WITH SYSTEM VERSIONING",
            f"INSERT INTO {unique}.shown_9 (id, v) VALUES (90000, 'a'), (90001, 'b')",
            f"DELETE FROM {unique}.shown_9 WHERE id = 90000",
        )
        task.shards["shown"].append(("s1", f"{unique}.shown_9"))
        for group in GROUPS:
            change(task, group, range(20, 30))
        task.run()
        for group in GROUPS:
            assert_present(task, group)
        assert [len(task.executed(group)) for group in GROUPS] == [1, 0, 0, 1]
        assert not task.work().storage.list("held")
