"""Optimistic mode with a target that leaves out parts of a structure, takes changes one by one, or refuses them.

MariaDB does all of it. TiDB leaves out FULLTEXT indexes and CHECK constraints, checks each change of an ALTER TABLE
against the table as it was before, swaps no names, and refuses some changes.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.dying import DIED, Point, run_until_death
from tests.joinedtask import FIRST, SECOND, JoinedTask, joined_task, run
from unshard.core.model import Shard, TableId
from unshard.operate.command import Replace
from unshard.operate.issuing import give
from unshard.units.ddl import coordinate
from unshard.units.ddl.differences import differences
from unshard.units.ddl.execute import OnTarget
from unshard.units.ddl.joining import JoinRules
from unshard_demo.servers import MariaDb

pytestmark = [pytest.mark.integration, pytest.mark.on_tidb]

COLUMNS = "id INT PRIMARY KEY, a INT, b VARCHAR(20), c INT"
LEFT_OUT = (
    "id INT PRIMARY KEY, a INT CHECK (a > 0), b VARCHAR(20) DEFAULT 'x', j JSON, d DECIMAL(8,2) DEFAULT 1.5, "
    "g INT AS (id + 1) STORED, v VARCHAR(30) AS (concat(b, 'x')) VIRTUAL, t TIMESTAMP(3) NULL, "
    "FULLTEXT KEY f (b), KEY k (a DESC), CONSTRAINT less CHECK (a < 100)"
)
Servers = tuple[MariaDb, MariaDb, MariaDb]


@pytest.fixture
def servers(source_1: MariaDb, source_2: MariaDb, target: MariaDb) -> Servers:
    return source_1, source_2, target


@pytest.fixture
def task(servers: Servers, unique: str, tmp_path: Path) -> Iterator[JoinedTask]:
    with joined_task(unique, tmp_path, servers, COLUMNS, shards=1) as task:
        for shard in (FIRST, SECOND):
            run(task, shard, f"INSERT INTO {{}} VALUES ({shard[1]}, 1, 'b', 3)")
        task.run()
        yield task


def changes(task: JoinedTask) -> int:
    """Return how many changes of the target were begun."""
    ((count,),) = task.target.run(f"SELECT COUNT(*) FROM {task.meta_schema}.join_change")
    return int(str(count))


def open_subjects(task: JoinedTask) -> list[str]:
    work = task.work()
    found = differences(work.meta, OnTarget(work.target, task.meta_schema), JoinRules())
    return [view.subject for view in found]


def both(task: JoinedTask, *texts: str) -> None:
    """Run statements on one shard after the other, with rows before and after, and compare at the end."""
    for shard in (FIRST, SECOND):
        run(task, shard, *texts, "INSERT INTO {0} (id) SELECT MAX(id) + 100 FROM {0}")
        task.run()
        task.assert_union("t")
    task.assert_equal("t")


def test_features_that_a_target_leaves_out_are_no_difference(servers: Servers, unique: str, tmp_path: Path) -> None:
    with joined_task(unique, tmp_path, servers, LEFT_OUT, shards=1) as task:
        for shard in (FIRST, SECOND):
            run(task, shard, f"INSERT INTO {{}} (id, a, j) VALUES ({shard[1]}, 1, '[]')")
        task.run()
        assert (changes(task), open_subjects(task)) == (0, [])
        run(task, FIRST, "ALTER TABLE {} ADD COLUMN n INT DEFAULT 7", "INSERT INTO {} (id, n) VALUES (1, 1)")
        task.run()
        assert (changes(task), open_subjects(task)) == (1, ["column n"])
        task.assert_union("t")
        run(task, SECOND, "ALTER TABLE {} ADD COLUMN n INT DEFAULT 7", "INSERT INTO {} (id, n) VALUES (2, 2)")
        task.run()
        assert (changes(task), open_subjects(task)) == (1, [])
        task.assert_equal("t")


def test_held_rows_have_the_values_of_stored_columns(servers: Servers, unique: str, tmp_path: Path) -> None:
    """Also in a window that writes no row of their target."""
    columns = "id INT PRIMARY KEY, g INT AS (id + 1) STORED, b VARCHAR(9), a INT"
    with joined_task(unique, tmp_path, servers, columns, shards=1) as task:
        task.run()
        for shard in (FIRST, SECOND):
            run(task, shard, "ALTER TABLE {} ADD COLUMN n INT DEFAULT 7")
            run(task, shard, f"INSERT INTO {{}} (id, b, a, n) VALUES ({shard[1]}, 'b', 1, 1)")
        task.run()
        task.assert_equal("t")


def test_changes_that_depend_on_each_other(task: JoinedTask) -> None:
    both(task, "ALTER TABLE {} ADD COLUMN n INT DEFAULT 7, ADD KEY k (n), ADD KEY (a), MODIFY a BIGINT")
    both(task, "ALTER TABLE {} ADD COLUMN (x INT, y INT, KEY (y)), ADD COLUMN s INT AS (x + n) VIRTUAL, ADD KEY (s)")
    both(task, "ALTER TABLE {} DROP KEY k, ADD KEY k (n, a), DROP COLUMN s, CHANGE b n2 VARCHAR(40), RENAME KEY y TO z")
    for shard in (FIRST, SECOND):  # another column of the same name: it has no place while a shard has the former one
        run(task, shard, "ALTER TABLE {} DROP KEY k, DROP COLUMN n, ADD COLUMN n VARCHAR(9) DEFAULT 'x', DROP COLUMN x")
    task.run()
    task.assert_equal("t")


def test_names_are_swapped(task: JoinedTask) -> None:
    both(task, "ALTER TABLE {} RENAME COLUMN a TO c, RENAME COLUMN c TO a")
    both(task, "ALTER TABLE {} CHANGE a c BIGINT, CHANGE c a INT, RENAME COLUMN b TO x")


def test_a_swap_whose_process_dies_in_between_is_continued(task: JoinedTask) -> None:
    run(
        task, FIRST, "ALTER TABLE {} RENAME COLUMN a TO c, RENAME COLUMN c TO a", "INSERT INTO {} (id, a) VALUES (1, 1)"
    )
    for source in task.sources:
        task.pull(source)
        task.window(source)
    task.restart()
    advance = Point("after", "unshard.adapters.meta.joinrecords:Joins.advance")
    assert run_until_death(task.path, "follow", "", advance) == DIED
    run(task, SECOND, "INSERT INTO {} (id, c) VALUES (2, 2)")
    task.run()
    task.assert_union("t")
    run(task, SECOND, "ALTER TABLE {} RENAME COLUMN a TO c, RENAME COLUMN c TO a")
    task.run()
    task.assert_equal("t")


@pytest.mark.tidb_only("MariaDB takes the statement")
def test_a_refused_change_waits_for_an_operator_and_nobody_else(task: JoinedTask) -> None:
    """TiDB adds no STORED column to a table. As a plain column it gets the values of the row images."""
    clause = "ADD COLUMN g INT AS (a + 1) STORED"
    run(task, FIRST, f"ALTER TABLE {{}} {clause}", "INSERT INTO {} (id, a) VALUES (1, 1)")
    run(task, SECOND, "ALTER TABLE {} ADD COLUMN n INT DEFAULT 7", "INSERT INTO {} (id, n) VALUES (2, 2)")
    task.run()
    assert (2, 2) in task.target.run(f"SELECT id, n FROM {task.table('t')}")
    (view,) = coordinate.views(task.work().meta)
    assert clause in view.ddl and "[US-4003]" in view.reason, view.reason
    shard, plain = Shard("s1", TableId(task.name, "t_11")), f"ALTER TABLE {task.table('t')} ADD COLUMN g INT"
    give(task.work().meta, Replace(view.id, (plain,), shard), "operator", "test", "because")
    task.run()
    assert coordinate.views(task.work().meta) == ()
    assert not [state for state in task.states() if state.queue or state.held]
    run(task, FIRST, "UPDATE {} SET a = a + 1")
    task.run()
    task.assert_union("t")
