"""System-versioned shards: the present rows are merged, whatever history the sources keep."""

import pytest

from tests.livetask import living
from tests.oracle import rows, union

pytestmark = pytest.mark.integration
PERIOD = (
    "rs TIMESTAMP(6) GENERATED ALWAYS AS ROW START, re TIMESTAMP(6) GENERATED ALWAYS AS ROW END INVISIBLE,"
    " PERIOD FOR SYSTEM_TIME (rs, re)"
)


def change(task, group: str, numbers: range) -> None:
    """Let all shards of a group make history."""
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


def test_versioned_shards(source_1, source_2, target, unique, tmp_path):
    """Hidden and shown periods, no key; a table that becomes versioned, gets a column, and is none any more."""
    groups = {"hidden": "id INT PRIMARY KEY, v VARCHAR(20)", "shown": f"id INT PRIMARY KEY, v VARCHAR(20), {PERIOD}",
              "keyless": "id INT, v VARCHAR(20)", "late": "id INT PRIMARY KEY, v VARCHAR(20)"}  # fmt: skip
    numbers = {("s1", group): (1, 2) for group in groups} | {("s2", group): (3,) for group in groups}
    options = {group: "" if group == "late" else "WITH SYSTEM VERSIONING" for group in groups}
    with living(unique, tmp_path, [source_1, source_2, target], list(groups), columns=groups, numbers=numbers,
                options=options) as task:  # fmt: skip
        for group in groups:
            change(task, group, range(10))
        task.run()
        for source, name in task.shards["late"][:2]:
            task.sources[source].run(f"ALTER TABLE {name} ADD SYSTEM VERSIONING")
        for group in groups:
            change(task, group, range(10, 20))
        task.run()
        for group in groups:
            assert_present(task, group)
            assert "VERSIONING" not in str(target.run(f"SHOW CREATE TABLE {task.table(group)}"))
        for group in ("late", "hidden"):
            for source, name in task.shards[group]:
                task.sources[source].run(
                    "SET SESSION system_versioning_alter_history = KEEP",
                    f"ALTER TABLE {name} ADD COLUMN more INT DEFAULT 7",
                )
        for source, name in task.shards["hidden"]:
            task.sources[source].run(f"ALTER TABLE {name} DROP SYSTEM VERSIONING")
        source_1.run(
            f"CREATE TABLE {unique}.shown_9 ({groups['shown']}) WITH SYSTEM VERSIONING",
            f"INSERT INTO {unique}.shown_9 (id, v) VALUES (90000, 'a'), (90001, 'b')",
            f"DELETE FROM {unique}.shown_9 WHERE id = 90000",
        )
        task.shards["shown"].append(("s1", f"{unique}.shown_9"))
        for group in groups:
            change(task, group, range(20, 30))
        task.run()
        for group in groups:
            assert_present(task, group)
        assert [len(task.executed(group)) for group in groups] == [1, 0, 0, 1]
        assert not task.work().storage.list("held")
