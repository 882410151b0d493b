"""The table of docs/life-of-a-shard-ddl.md about optimistic mode by kill -9: each line is a process that dies there."""

import contextlib
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.dying import DIED, Point, run_until_death
from tests.joinedtask import FIRST, SECOND, JoinedTask, joined_task, run
from unshard.adapters import mysql, serverstate
from unshard.core.model import TableId
from unshard.operate.command import Skip
from unshard.operate.issuing import give
from unshard.units.ddl import coordinate
from unshard.units.ddl.execute import _guard_of
from unshard_demo.servers import MariaDb

pytestmark = [pytest.mark.integration, pytest.mark.writes_rows]

DOCS = Path(__file__).parents[3] / "docs" / "life-of-a-shard-ddl.md"
JOINS, TARGET = "unshard.adapters.meta.joinrecords:Joins", "unshard.units.ddl.execute:OnTarget"
POINTS = {
    "before the intent of a change is committed": Point("in", f"{JOINS}.intend"),
    "after the intent, before a statement": Point("after", f"{JOINS}.intend"),
    "after a statement, before its record": Point("after", f"{TARGET}.execute"),
    "between two statements": Point("after", f"{JOINS}.advance"),
    "after the last statement, before the completion": Point("before", f"{JOINS}.complete"),
    "in the completion": Point("in", f"{JOINS}.complete"),
    "after the completion, before a window": Point("after", f"{JOINS}.complete"),
    "before a new group is committed": Point("in", f"{JOINS}.begin"),
    "after a new group is committed, before its first change": Point("after", f"{JOINS}.begin"),
    "in a reload of columns": Point("in", "unshard.units.window.reloading:_write_chunk"),
}
ELSEWHERE = ("while the target runs a statement", "in a window that follows a command before its rows")
COLUMNS = "id INT PRIMARY KEY, a INT, b VARCHAR(20)"


@pytest.fixture
def task(source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> Iterator[JoinedTask]:
    with joined_task(unique, tmp_path, (source_1, source_2, target), COLUMNS, shards=1) as task:
        yield task


def pull(task: JoinedTask) -> None:
    for source in task.sources:
        task.pull(source)
        while task.window(source).moved:
            pass


def die(task: JoinedTask, line: str) -> None:
    task.restart()
    assert run_until_death(task.path, "follow", "", POINTS[line]) == DIED, line


@pytest.mark.test_all("in memory all deaths are simulated, and another test reaches each line on servers")
def test_every_line(task: JoinedTask) -> None:
    run(task, FIRST, "INSERT INTO {} VALUES (1, 1, 'x')")
    run(task, SECOND, "INSERT INTO {} VALUES (2, 2, 'y')")
    die(task, "before a new group is committed")
    task.run()
    for number, line in enumerate([*POINTS][:7], 1):
        # The narrower type leads to two statements of unshard's own: the other shard still has the wider one.
        kind = "BIGINT" if number % 2 else "INT"
        other = f"CHANGE a{number - 1 or ''} a{number} {kind}, ADD COLUMN c{number} INT DEFAULT {number}"
        for shard in (FIRST, SECOND):
            run(task, shard, f"ALTER TABLE {{}} {other}", f"INSERT INTO {{}} (id) VALUES ({shard[1]}{number})")
            pull(task)
            if shard == FIRST:
                die(task, line)
            task.run()
        task.assert_equal("t")


def test_each_line_is_reached(task: JoinedTask) -> None:
    task.run()
    for line in [*POINTS][:7]:
        run(task, FIRST, "ALTER TABLE {} ADD COLUMN c INT DEFAULT 7")
        pull(task)
        die(task, line)
        task.run()
        assert "c" in task.joined("t")[1].names.values(), line
        run(task, FIRST, "ALTER TABLE {} DROP COLUMN c")
        task.run()
        task.assert_equal("t")


@pytest.mark.on_tidb
def test_a_reload_that_dies_continues(task: JoinedTask) -> None:
    for shard in (FIRST, SECOND):
        run(task, shard, f"INSERT INTO {{}} VALUES ({shard[1]}, 1, 'x')")
    task.run()
    run(task, FIRST, "ALTER TABLE {} ADD COLUMN c INT DEFAULT 1")
    task.run()
    run(task, SECOND, "ALTER TABLE {} ADD COLUMN c INT DEFAULT 2")
    pull(task)
    die(task, "in a reload of columns")
    task.run()
    task.assert_equal("t")


@pytest.mark.parametrize("when", ["before", "in", "after"])
def test_a_window_that_dies_while_it_follows_a_command(task: JoinedTask, when: str) -> None:
    """The rows after a skipped DDL are written by the columns that are left, never by those from before the command."""
    task.run()
    task.path.write_text(yaml.safe_dump(yaml.safe_load(task.path.read_text()) | {"shard-mode": "optimistic"}))
    run(task, FIRST, "ALTER TABLE {} MODIFY a FLOAT", "INSERT INTO {} VALUES (1, 1.5, 'x')")
    task.run()
    (view,) = coordinate.views(task.work().meta)
    give(task.work().meta, Skip(view.id, view.ready[0]), "operator", "test", "because")
    task.restart()
    assert run_until_death(task.path, "window", "s1", Point(when, f"{JOINS}.complete")) == DIED
    task.run()
    assert task.stopped() == {} and task.target.run(f"SELECT a, b FROM {task.table('t')}") == [(None, "x")]
    run(task, SECOND, "ALTER TABLE {} MODIFY a FLOAT")
    task.run()
    task.assert_equal("t")
    assert task.target.run(f"SELECT a, b FROM {task.table('t')}") == [(1.5, "x")]


def test_rows_wait_for_the_first_change_of_a_target(task: JoinedTask) -> None:
    """The target exists and does not hold the rows of its shards yet. The process dies before it changes the target."""
    task.target.run(f"ALTER TABLE {task.table('t')} MODIFY a TINYINT")
    task.restart()
    run(task, FIRST, "INSERT INTO {} VALUES (1, 1000, 'x')")
    die(task, "after a new group is committed, before its first change")
    pull(task)
    assert task.stopped() == {} and task.target.run(f"SELECT a FROM {task.table('t')}") == [(1000,)]
    task.run()
    task.assert_equal("t")


def test_the_next_attempt_waits_for_a_statement_that_still_runs(task: JoinedTask) -> None:
    task.run()
    run(task, FIRST, "ALTER TABLE {} ADD COLUMN c INT DEFAULT 7")
    pull(task)
    die(task, "after the intent, before a statement")
    target = TableId(f"{task.name}_to", "t")
    with contextlib.closing(mysql.connect(task.work().target)) as session:
        assert serverstate.take_lock(session, _guard_of(target), 5)
        waiting = threading.Thread(target=task.coordinate)
        waiting.start()
        mysql.query(session, f"ALTER TABLE {target} ADD COLUMN c INT DEFAULT 7")
        serverstate.release_lock(session, _guard_of(target))
        waiting.join()
    task.run()
    assert task.joined("t")[0].change is None
    run(task, SECOND, "ALTER TABLE {} ADD COLUMN c INT DEFAULT 7")
    task.run()
    task.assert_equal("t")


def test_the_table_of_the_docs_has_the_same_lines() -> None:
    section = DOCS.read_text().partition("## Optimistic mode")[2].partition("\n## ")[0]
    lines = re.findall(r"^\| (.+?) \|", section.partition("| killed |")[2], re.MULTILINE)
    assert [line for line in lines if line not in ELSEWHERE] == list(POINTS)
