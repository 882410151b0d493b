"""A task with `shard-mode: optimistic` that begins while its shards differ: the target is the join of all."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lifetask import LifeTask
from tests.lifetask import living as lifetask
from unshard.config import ShardMode, Task
from unshard.core.model import TableId
from unshard.errors.locks import ShardsWithoutJoin
from unshard.units.full import snapshot
from unshard.units.full.snapshot import take_snapshot
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration


class JoinedLife(LifeTask):
    """LifeTask in optimistic mode."""

    def load(self) -> Task:
        return dataclasses.replace(super().load(), shard_mode=ShardMode.OPTIMISTIC)


@pytest.fixture
def task(source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> Iterator[JoinedLife]:
    with lifetask(unique, tmp_path, {"s1": source_1, "s2": source_2}, target) as made:
        yield JoinedLife(**{field.name: getattr(made, field.name) for field in dataclasses.fields(made)})


def shown(task: JoinedLife) -> list[tuple]:
    return task.target.run(f"SELECT * FROM {task.name}_to.t ORDER BY id")


def columns(task: JoinedLife) -> list[tuple[str, str, str]]:
    return [row[:3] for row in task.target.run(f"DESC {task.name}_to.t")]


def test_a_task_begins_while_its_shards_differ(task: JoinedLife):
    one, two, three = task.make_shard("s1", 1, 1, 2), task.make_shard("s1", 2, 3), task.make_shard("s2", 3, 4, 5)
    task.sources["s1"].run(f"ALTER TABLE {one} ADD c INT NOT NULL DEFAULT 7, MODIFY id BIGINT")
    task.sources["s1"].run(f"ALTER TABLE {two} MODIFY v VARCHAR(30)")
    task.sources["s2"].run(f"ALTER TABLE {three} DROP v, ADD KEY c2 (id)")
    task.go()
    assert columns(task) == [("id", "bigint(20)", "NO"), ("v", "varchar(30)", "YES"), ("c", "int(11)", "YES")]
    assert shown(task) == [(1, "row 1", 7), (2, "row 2", 7), (3, "row 3", None), (4, None, None), (5, None, None)]
    task.sources["s1"].run(f"INSERT INTO {one} VALUES (1 << 40, 'new', 8)", f"UPDATE {two} SET v = repeat('x', 30)")
    task.sources["s2"].run(f"INSERT INTO {three} VALUES (6)", f"DELETE FROM {three} WHERE id = 4")
    task.go()
    found = [(1, "row 1", 7), (2, "row 2", 7), (3, "x" * 30, None), (5, None, None), (6, None, None)]
    assert shown(task) == [*found, (1 << 40, "new", 8)]
    assert not task.verdicts()["t"].differs


def test_columns_that_only_later_shards_have_get_their_place(task: JoinedLife):
    _, two = task.make_shard("s1", 1, 1), task.make_shard("s2", 2, 2)
    task.sources["s2"].run(f"ALTER TABLE {two} ADD c INT AFTER id, ADD d INT AFTER c, ADD e INT, ADD f INT FIRST")
    task.go()
    assert [name for name, *_ in columns(task)] == ["f", "id", "c", "d", "v", "e"]


def test_shards_without_a_join_are_named(task: JoinedLife):
    one, two = task.make_shard("s1", 1, 1), task.make_shard("s2", 2, 2)
    task.sources["s1"].run(f"ALTER TABLE {one} ADD c INT")
    task.sources["s2"].run(f"ALTER TABLE {two} ADD c DATE")
    assert "US-5100" in task.checked()
    with task.work() as work, pytest.raises(ShardsWithoutJoin):
        for source in ("s1", "s2"):
            take_snapshot(work, source)


@pytest.mark.parametrize("step", ["_prepare_targets", "_start", "_record", "_join", "note_rules"])
def test_another_source_takes_its_snapshot_at_the_same_time(
    task: JoinedLife, step: str, monkeypatch: pytest.MonkeyPatch
):
    one, two = task.make_shard("s1", 1, 1), task.make_shard("s2", 2, 2)
    task.sources["s1"].run(f"ALTER TABLE {one} ADD c INT")
    task.sources["s2"].run(f"ALTER TABLE {two} ADD d INT")
    own = getattr(snapshot, step)

    def after_the_other(*args: object) -> object:
        monkeypatch.setattr(snapshot, step, own)
        with task.work() as other:
            take_snapshot(other, "s2")
        return own(*args)

    monkeypatch.setattr(snapshot, step, after_the_other)
    with task.work() as work:
        take_snapshot(work, "s1")
    task.go()
    assert task.target.run(f"SELECT id, v, c, d FROM {task.name}_to.t ORDER BY id") == [
        (1, "row 1", None, None),
        (2, "row 2", None, None),
    ]
    for server, shard, name in (("s1", one, "d"), ("s2", two, "c")):
        task.sources[server].run(f"ALTER TABLE {shard} ADD {name} INT")
    task.go()
    assert not task.verdicts()["t"].differs


def test_after_the_load_all_shards_become_equal(task: JoinedLife):
    one, two = task.make_shard("s1", 1, 1), task.make_shard("s2", 2, 2)
    task.sources["s1"].run(f"ALTER TABLE {one} ADD c INT")
    task.go()
    task.sources["s2"].run(f"ALTER TABLE {two} ADD c INT", f"INSERT INTO {two} VALUES (3, 'x', 9)")
    task.go()
    assert task.assert_union() == 3
    with task.work() as work:
        joined = work.meta.joins.get(TableId(f"{task.name}_to", "t"))
    assert joined.settled_version == joined.version


def test_a_source_is_added_while_a_difference_is_open(task: JoinedLife):
    """Its shard is further in one difference and behind in another; the rollout ends as if it had always been there."""
    one = task.make_shard("s1", 1, 1, 2)
    two = task.make_shard("s1", 2, 3)
    instances = task.body["mysql-instances"]
    task.body["mysql-instances"] = instances[:1]
    task.write()
    task.go()
    task.sources["s1"].run(
        f"ALTER TABLE {one} ADD c INT NOT NULL DEFAULT 7, RENAME COLUMN v TO w", f"INSERT INTO {one} VALUES (4, 'x', 8)"
    )
    task.go()
    three = task.make_shard("s2", 3, 5, 6)
    task.sources["s2"].run(f"ALTER TABLE {three} ADD c INT NOT NULL DEFAULT 7, ADD d INT")
    task.body["mysql-instances"] = instances
    task.write()
    task.go()
    task.sources["s2"].run(f"INSERT INTO {three} VALUES (9, 'y', 9, 9)")
    task.go()
    found = [(1, "row 1", 7, None), (2, "row 2", 7, None), (3, "row 3", 7, None), (4, "x", 8, None)]
    assert shown(task) == [*found, (5, "row 5", 7, None), (6, "row 6", 7, None), (9, "y", 9, 9)]
    task.sources["s1"].run(
        f"ALTER TABLE {one} ADD d INT",
        f"ALTER TABLE {two} ADD c INT NOT NULL DEFAULT 7, RENAME COLUMN v TO w, ADD d INT",
    )
    task.sources["s2"].run(f"ALTER TABLE {three} RENAME COLUMN v TO w")
    task.go()
    assert task.assert_union() == 7 and not task.verdicts()["t"].differs
