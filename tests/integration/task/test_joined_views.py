"""A task file with `shard-mode: optimistic` from the command line: run, locks, plan, validate."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lifetask import LifeTask
from tests.lifetask import living as lifetask
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration


@pytest.fixture
def task(source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> Iterator[LifeTask]:
    sources = {"s1": source_1, "s2": source_2}
    with lifetask(unique, tmp_path, sources, target, **{"shard-mode": "optimistic"}) as made:
        made.make_shard("s1", 1, 1, 2)
        made.make_shard("s2", 2, 3)
        yield made


def told(task: LifeTask, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    capsys.readouterr()
    code = task.command(*words)
    return code, capsys.readouterr().out


def test_a_rollout_is_shown_until_the_shards_are_equal(task: LifeTask, capsys: pytest.CaptureFixture[str]):
    task.go()
    task.sources["s1"].run(f"ALTER TABLE {task.name}.t_1 ADD c INT NOT NULL DEFAULT 7")
    task.go()
    code, text = told(task, capsys, "locks")
    assert code == 0 and f"{task.name}_to.t column c: open (1 of 2 shards), open for " in text
    assert f"shards   without it: s2 {task.name}.t_2" in text
    code, text = told(task, capsys, "locks", "--json")
    (difference,) = json.loads(text)["differences"]
    assert (difference["state"], difference["lack"]) == ("open", [f"s2 {task.name}.t_2"])
    nothing_left = "the target has it already; settled when 1 more shard has it"
    code, text = told(task, capsys, "plan")
    assert code == 0 and f"differences of {task.name}_to.t" in text
    assert f"open              column c: 1 of 2 shards, {nothing_left}" in text
    for command in ("status", "run"):
        code, text = told(task, capsys, command)
        assert code == 0 and f"target {task.name}_to.t: column c is open (1 of 2 shards): {nothing_left}" in text
        (found,) = json.loads(told(task, capsys, command, "--json")[1])["differences"]
        assert found["id"] == difference["id"]
    assert "1 difference(s) between shards open" in text
    assert told(task, capsys, "validate")[0] == 0
    task.sources["s2"].run(f"ALTER TABLE {task.name}.t_2 ADD c INT NOT NULL DEFAULT 7")
    task.go()
    assert told(task, capsys, "locks") == (0, "no DDL lock is open\n")
    task.assert_union()


def test_a_conflict_waits_for_one_shard_only(task: LifeTask, capsys: pytest.CaptureFixture[str]):
    task.go()
    task.sources["s1"].run(f"ALTER TABLE {task.name}.t_1 ADD c INT")
    task.go()
    task.sources["s2"].run(
        f"ALTER TABLE {task.name}.t_2 ADD c DATE", f"INSERT INTO {task.name}.t_2 VALUES (9, 'x', NULL)"
    )
    task.sources["s1"].run(f"INSERT INTO {task.name}.t_1 VALUES (10, 'y', 5)")
    task.run()
    code, text = told(task, capsys, "locks")
    assert code == 3 and "conflict" in text and "c int(11)" in text and "c date" in text
    assert "unshard unlock" not in text, "it would be rejected"
    assert f"--shard s2/{task.name}.t_2" in text and f"--shard s1/{task.name}.t_1" not in text
    assert task.target.run(f"SELECT id FROM {task.name}_to.t WHERE id > 8") == [(10,)]
    task.sources["s2"].run(f"ALTER TABLE {task.name}.t_2 DROP c", f"ALTER TABLE {task.name}.t_2 ADD c INT")
    task.run()
    task.go()
    task.assert_union()


def test_a_ddl_that_the_target_rejects_is_shown_with_the_message(task: LifeTask, capsys: pytest.CaptureFixture[str]):
    task.go()
    task.target.run(f"ALTER TABLE {task.name}_to.t ADD by_hand INT")
    task.sources["s1"].run(f"ALTER TABLE {task.name}.t_1 ADD by_hand DATE")
    code, text = told(task, capsys, "run")
    assert code == 1 and "[US-5161]" in text
    code, text = told(task, capsys, "locks")
    assert code == 3 and "a column of its own with the name" in text and "correct the cause of the error" in text
    task.target.run(f"ALTER TABLE {task.name}_to.t DROP by_hand")
    task.sources["s2"].run(f"ALTER TABLE {task.name}.t_2 ADD by_hand DATE")
    task.go()
    assert told(task, capsys, "locks") == (0, "no DDL lock is open\n")
    task.assert_union()


def test_a_column_that_someone_has_dropped_from_the_target(task: LifeTask, capsys: pytest.CaptureFixture[str]):
    """unshard does not add it again without its values; a reload brings them back."""
    task.go()
    task.target.run(f"ALTER TABLE {task.name}_to.t DROP v")
    for source, shard in (("s1", "t_1"), ("s2", "t_2")):
        task.sources[source].run(f"ALTER TABLE {task.name}.{shard} ADD c INT")
    code, text = told(task, capsys, "run")
    assert code == 1 and "[US-5180]" in text
    task.target.run(f"ALTER TABLE {task.name}_to.t ADD v VARCHAR(20) AFTER id")
    task.go()
    for shard in (f"s1/{task.name}.t_1", f"s2/{task.name}.t_2"):
        assert told(task, capsys, "reload", "--shard", shard, "--columns", "v", "--yes")[0] == 0
    assert told(task, capsys, "validate")[0] == 0
    task.assert_union()
