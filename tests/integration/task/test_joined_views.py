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
    assert told(task, capsys, "plan")[0] == 0
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
    assert task.target.run(f"SELECT id FROM {task.name}_to.t WHERE id > 8") == [(10,)]
    task.sources["s2"].run(f"ALTER TABLE {task.name}.t_2 DROP c", f"ALTER TABLE {task.name}.t_2 ADD c INT")
    task.run()
    task.go()
    task.assert_union()
