"""A group with a waiting DDL does not delay other groups: these lag by one window at most."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.livetask import LiveTask, living
from unshard.core.ddl.lock import LockState
from unshard.units.ddl import coordinate
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration

ROUNDS = 6
COLUMNS = "id INT PRIMARY KEY, v INT"
EVERYWHERE = {(source, group): (1, 2) for source in ("s1", "s2") for group in "tu"}
FIRST = {"s1": 0, "s2": 1000}


@pytest.fixture
def servers(source_1: MariaDb, source_2: MariaDb, target: MariaDb) -> tuple[MariaDb, MariaDb, MariaDb]:
    return source_1, source_2, target


def alter(task: LiveTask, shards: Iterable[tuple[str, str]], change: str) -> None:
    for source, shard in shards:
        task.sources[source].run(f"ALTER TABLE {shard} {change}")


def insert(task: LiveTask, group: str, number: int) -> None:
    """One row into every shard of a group."""
    for place, (source, shard) in enumerate(sorted(task.shards[group])):
        task.sources[source].run(f"INSERT INTO {shard} (id, v) VALUES ({FIRST[source] + place * 100 + number}, 1)")


def test_a_shard_that_never_runs_its_ddl_delays_only_its_group(servers, unique: str, tmp_path: Path) -> None:
    """Every round: new rows everywhere, one window for each source. All of them but those held are in the target."""
    with living(
        unique, tmp_path, servers, "tu", columns=dict.fromkeys("tu", COLUMNS), numbers=EVERYWHERE, window_bytes=1 << 20
    ) as task:
        late, *others = sorted(task.shards["t"])
        alter(task, others, "ADD COLUMN c INT")
        for number in range(ROUNDS):
            insert(task, "t", number)
            insert(task, "u", number)
            for source in task.sources:
                task.pull(source)
                end = task.upstream_end(source)
                assert task.window(source).ends == task.checkpoint(source) == end, "one window takes it to the end"
            if task.coordinate():
                # The others' own DDL went through; the rows behind it come with the next window.
                assert [task.window(source).rows_released for source in task.sources] == [2, 2]
            assert task.assert_union("u") == 4 * (number + 1)
            assert task.target.run(f"SELECT COUNT(*) FROM {task.table('t')}") == [(number + 1,)]
            (lock,) = coordinate.views(task.work().meta)
            assert (lock.target.name, lock.state, lock.held_rows) == ("t", LockState.WAITING, 3 * (number + 1))
            assert [str(shard) for shard in lock.missing] == [" ".join(late)]
            if number % 2:
                alter(task, task.shards["u"], f"ADD COLUMN e{number} INT DEFAULT {number}")
        alter(task, [late], "ADD COLUMN c INT")
        task.run()
        task.assert_settled()
        assert [len(task.executed(group)) for group in "tu"] == [1, ROUNDS // 2]


def test_two_groups_whose_ddls_cross_on_two_sources_resolve_both(servers, unique: str, tmp_path: Path) -> None:
    """s1 alters t then u, s2 alters u then t, rows between all of it, everything restarted after every step."""
    add = {"t": "ADD COLUMN c INT DEFAULT 3", "u": "ADD COLUMN e VARCHAR(9) DEFAULT 'x'"}
    with living(unique, tmp_path, servers, "tu", columns=dict.fromkeys("tu", COLUMNS), numbers=EVERYWHERE) as task:
        number = 0
        for groups in (("t", "u"), ("u", "t")):
            for source, group in zip(("s1", "s2"), groups, strict=True):
                for shard in (1, 2):
                    task.sources[source].run(f"ALTER TABLE {unique}.{group}_{shard} {add[group]}")
                    number += 1
                    insert(task, "t", number)
                    insert(task, "u", number)
                    task.restart()
                    task.run()
            states = [(view.target.name, view.state) for view in coordinate.views(task.work().meta)]
            assert states == ([("t", LockState.WAITING), ("u", LockState.WAITING)] if groups == ("t", "u") else [])
        task.assert_settled()
        assert [len(task.executed(group)) for group in "tu"] == [1, 1]
