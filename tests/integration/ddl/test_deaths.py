"""The table of docs/life-of-a-shard-ddl.md by kill -9: each line is a process that dies there, in one history.

Two groups in one source: t, whose two shards run a DDL one after the other, and u, which only has rows. Every
death is followed by a check of the remaining state, and the next process continues from it. At the end the
targets are the unions and each DDL was executed once.
"""

import re
from pathlib import Path

import pytest

from tests.dying import DIED, Point, run_until_death
from tests.livetask import LiveTask, living
from unshard.core.ddl.lock import LockState
from unshard.operate.command import Replace
from unshard.operate.issuing import give
from unshard.units.ddl import coordinate
from unshard.units.ddl.scene import LockView
from unshard_demo.servers import MariaDb

pytestmark = [pytest.mark.integration, pytest.mark.writes_rows]

DOCS = Path(__file__).parents[3] / "docs" / "life-of-a-shard-ddl.md"
WINDOWS, LOCKS = "unshard.adapters.meta.windowrecords:Windows", "unshard.adapters.meta.lockrecords:Locks"
STRUCTURES, ORDERS = (
    "unshard.adapters.meta.shardrecords:Structures",
    "unshard.adapters.meta.commandrecords:LockCommands",
)
POINTS = {
    "before a window's plan is committed": Point("in", f"{WINDOWS}.begin"),
    "after it, before a row moves": Point("after", f"{WINDOWS}.begin"),
    "after held rows are written to files": Point("before", "unshard.units.window.tasks:apply_target"),
    "in the transaction of a target's rows": Point("in", "unshard.units.window.tasks:apply_target"),
    "after it, before other targets have theirs": Point("after", "unshard.units.window.tasks:apply_target"),
    "after the rows of all targets": Point("before", f"{WINDOWS}.commit"),
    "in the commit of the window": Point("in", f"{WINDOWS}.commit"),
    "after the commit of the window": Point("after", f"{WINDOWS}.commit"),
    "before the lock is committed": Point("in", f"{LOCKS}.create"),
    "after the lock is committed": Point("after", f"{LOCKS}.create"),
    "before the intent is committed": Point("in", f"{LOCKS}.start"),
    "after the intent, before the DDL": Point("after", f"{LOCKS}.start"),
    "after the DDL": Point("after", "unshard.units.ddl.execute:execute_ddl"),
    "in the transaction that resolves the lock": Point("in", f"{LOCKS}.resolve"),
    "after it, before a window releases the rows": Point("after", f"{LOCKS}.resolve"),
    "before structures are resolved by a decision": Point("in", f"{STRUCTURES}.settle"),
    "after it, before the plan is committed": Point("after", f"{STRUCTURES}.settle"),
    "with an open window that was planned before the decision": Point("after", f"{WINDOWS}.begin"),
    "before an operator's command is committed": Point("in", f"{ORDERS}.force"),
    "after an operator's command": Point("after", f"{ORDERS}.force"),
    "before a pending skip is committed": Point("in", f"{LOCKS}.settle"),
    "after the skip": Point("after", f"{LOCKS}.settle"),
}
WRITTEN_ELSEWHERE = (
    "while the target runs the DDL",
    "before the plan is replaced, because rows contradict it",
    "after the plan is replaced",
)
"""Lines whose kills are in test_execute.py and test_unlogged_ddl.py."""


class History:
    """One task, and the actions on it."""

    def __init__(self, task: LiveTask) -> None:
        self.task, self.died = task, set[str]()

    def run(self, *statements: str) -> None:
        self.task.sources["s1"].run(f"USE {self.task.name}", *statements)

    def die(self, line: str, action: str, subject: str = "s1") -> None:
        """Let a process run an action until it dies at that line of the table."""
        self.task.restart()
        assert run_until_death(self.task.path, action, subject, POINTS[line]) == DIED, line
        self.died.add(line)

    def rows(self) -> tuple[int, int]:
        """Return the number of rows in the targets t and u."""
        count = "SELECT COUNT(*) FROM {}"
        ((t,),), ((u,),) = (self.task.target.run(count.format(self.task.table(group))) for group in "tu")
        return int(str(t)), int(str(u))

    def window(self) -> int:
        """Return the number of the last committed window."""
        checkpoint = self.task.work().meta.checkpoints.get("s1")
        assert checkpoint is not None
        return checkpoint.window

    def is_open(self) -> bool:
        return self.task.work().meta.windows.open("s1") is not None

    def held(self) -> tuple[int, int]:
        """Return the number of held files, and of those that windows may use."""
        work = self.task.work()
        known = [file.path for state in work.meta.structures.shards() for file in state.held]
        return len(work.storage.list("held")), len(known)

    def pending(self) -> int:
        return sum(len(state.queue) for state in self.task.work().meta.structures.shards())

    def lock(self) -> LockView:
        (view,) = coordinate.views(self.task.work().meta)
        return view

    def structure(self) -> str:
        """Return the digest of t_1, empty while it is unknown."""
        shards = self.task.work().meta.structures.shards()
        return next(state.structure for state in shards if state.shard.table.name == "t_1")

    def columns(self) -> list[str]:
        return [str(row[0]) for row in self.task.target.run(f"SHOW COLUMNS FROM {self.task.table('t')}")]


def test_every_line_of_the_table(source_1: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> None:
    columns, numbers = dict.fromkeys("tu", "id INT PRIMARY KEY, v INT"), {("s1", "t"): (1, 2), ("s1", "u"): (1,)}
    with living(unique, tmp_path, (source_1, target), "tu", columns=columns, numbers=numbers) as task:
        source_1.run(f"CREATE DATABASE {unique}_else")
        history = History(task)
        holding(history)
        locking(history)
        releasing(history)
        owing(history)
        deciding(history)
        task.run()
        task.assert_settled()
        assert [ddl.partition("` ")[2] for ddl in task.executed("t")] == [
            "ADD COLUMN c INT",
            "ADD COLUMN d INT",
            "ADD n INT",
        ]
        assert history.died == POINTS.keys()
    source_1.run(f"DROP DATABASE {unique}_else")


def holding(history: History) -> None:
    """A window queues a DDL, holds rows after it, and writes rows of t and u."""
    history.run(
        "INSERT INTO t_1 VALUES (1, 1)",
        "INSERT INTO t_2 VALUES (2, 2)",
        "ALTER TABLE t_1 ADD COLUMN c INT",
        "INSERT INTO t_1 VALUES (3, 3, 3)",
        "INSERT INTO u_1 VALUES (1, 1)",
    )
    history.die("before a window's plan is committed", "window")
    assert (history.is_open(), history.rows()) == (False, (0, 0))
    history.die("after it, before a row moves", "window")
    assert (history.is_open(), history.rows(), history.held()) == (True, (0, 0), (0, 0))
    history.die("after held rows are written to files", "window")
    assert (history.rows(), history.held()) == ((0, 0), (1, 0))
    history.die("in the transaction of a target's rows", "window")
    assert history.rows() == (0, 0)
    history.die("after it, before other targets have theirs", "window")
    assert sorted(history.rows()) == [0, sum(history.rows())] != [0, 0], "one target has its rows"
    history.die("after the rows of all targets", "window")
    assert (history.rows(), history.window(), history.pending()) == ((2, 1), 0, 0)
    history.die("in the commit of the window", "window")
    assert (history.rows(), history.window(), history.pending()) == ((2, 1), 0, 0)
    history.die("after the commit of the window", "window")
    assert (history.rows(), history.window(), history.pending(), history.is_open()) == ((2, 1), 1, 1, False)


def locking(history: History) -> None:
    """The lock is opened, synced by the other shard, executed and resolved."""
    history.die("before the lock is committed", "observe")
    assert coordinate.views(history.task.work().meta) == ()
    history.die("after the lock is committed", "observe")
    assert history.lock().state is LockState.WAITING
    history.run("ALTER TABLE t_2 ADD COLUMN c INT", "INSERT INTO t_2 VALUES (4, 4, 4)")
    history.task.pull("s1")
    history.task.window("s1")
    lock = history.lock().id
    history.die("before the intent is committed", "execute", lock)
    assert (history.columns(), history.task.work().meta.locks.executions()) == (["id", "v"], ())
    history.die("after the intent, before the DDL", "execute", lock)
    assert (history.columns(), len(history.task.work().meta.locks.executions())) == (["id", "v"], 1)
    history.die("after the DDL", "execute", lock)
    assert (history.columns(), history.pending()) == (["id", "v", "c"], 2)
    history.die("in the transaction that resolves the lock", "execute", lock)
    assert (history.pending(), history.lock().id) == (2, lock)
    history.die("after it, before a window releases the rows", "execute", lock)
    assert (history.pending(), history.rows()) == (0, (2, 1))
    assert [one.outcome for one in history.task.work().meta.locks.executions()] == ["present"]


def releasing(history: History) -> None:
    """The window that releases the held rows dies at the same points as the earlier one."""
    history.die("after it, before a row moves", "window")
    history.die("in the transaction of a target's rows", "window")
    assert history.rows() == (2, 1)
    history.die("after the rows of all targets", "window")
    assert (history.rows(), history.held()[1]) == ((4, 1), 2)
    history.die("in the commit of the window", "window")
    assert (history.rows(), history.held()[1]) == ((4, 1), 2)
    history.die("after the commit of the window", "window")
    assert (history.rows(), history.held()[1]) == ((4, 1), 0)


def owing(history: History) -> None:
    """An operator forces the next DDL's lock; the late shard has a pending skip."""
    history.run("ALTER TABLE t_1 ADD COLUMN d INT", "INSERT INTO t_1 VALUES (5, 5, 5, 5)")
    history.task.run()
    lock = history.lock().id
    history.die("before an operator's command is committed", "force", lock)
    assert (history.lock().is_forced, history.task.work().meta.locks.actions()) == (False, ())
    history.die("after an operator's command", "force", lock)
    assert (history.lock().state, len(history.task.work().meta.locks.actions())) == (LockState.FORCED, 1)
    history.task.run()
    assert history.columns() == ["id", "v", "c", "d"]
    history.run("INSERT INTO t_2 VALUES (6, 6, 6)", "ALTER TABLE t_2 ADD COLUMN d INT")
    history.task.pull("s1")
    history.task.window("s1")
    assert len(history.task.work().meta.locks.pending_skips()) == 1
    history.die("before a pending skip is committed", "observe")
    assert (len(history.task.work().meta.locks.pending_skips()), history.pending()) == (1, 1)
    history.die("after the skip", "observe")
    assert (len(history.task.work().meta.locks.pending_skips()), history.pending()) == (0, 0)


def deciding(history: History) -> None:
    """A DDL that only an operator can decide: the target lacks the sequence that it names."""
    numbers = f"{history.task.name}_else.numbers"
    odd = f"ADD n INT DEFAULT (NEXT VALUE FOR {numbers})"
    # Existing rows get their numbers without binlog events.
    history.run(
        "DELETE FROM t_1",
        f"CREATE SEQUENCE {numbers}",
        f"ALTER TABLE t_1 {odd}",
        "INSERT INTO t_1 (id, v) VALUES (7, 7)",
    )
    history.task.run()
    lock = history.lock()
    assert (lock.state, history.structure()) == (LockState.UNDECIDED, "")
    history.run("INSERT INTO t_1 (id, v) VALUES (8, 8)")
    history.die("with an open window that was planned before the decision", "window")
    text = f"ALTER TABLE {history.task.table('t')} ADD n INT"
    give(history.task.work().meta, Replace(lock.id, (text,), lock.ready[0]), "operator", "test", "because")
    history.task.window("s1")
    history.die("before structures are resolved by a decision", "window")
    assert history.structure() == ""
    history.run("INSERT INTO t_1 (id, v) VALUES (9, 9)")
    history.die("after it, before the plan is committed", "window")
    assert (history.structure() != "", history.is_open()) == (True, False)
    history.run("ALTER TABLE t_2 ADD n INT", "INSERT INTO t_2 (id, v) VALUES (10, 10)")


def test_the_table_of_the_docs_has_the_same_lines() -> None:
    section = DOCS.read_text().partition("## If a process is killed")[2].partition("\n## ")[0]
    lines = re.findall(r"^\| (.+?) \|", section, re.MULTILINE)
    assert lines[0] == "killed"
    assert [line for line in lines[1:] if line not in WRITTEN_ELSEWHERE] == list(POINTS)
