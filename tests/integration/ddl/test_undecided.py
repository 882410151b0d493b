"""Statements that only an operator can decide, on real servers: their rows are held as events until then.

Each test runs in a process that dies after each step of some windows and is started again.
"""

import dataclasses
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.dying import mortal
from tests.livetask import LiveTask, living
from tests.openlocks import open_locks
from tests.operator import lock, order, run
from tests.taskfile import META
from tests.tidbsettings import is_tidb
from unshard.core.ddl.lock import LockState
from unshard.core.ddl.queue import ShardState
from unshard.core.model import Server, Shard, TableId
from unshard.operate.command import DropShard, Replace, Retry, Skip
from unshard.units.window import sync
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration

PLAIN = "id INT PRIMARY KEY, v INT"
PARTS = f"{PLAIN}) PARTITION BY RANGE (id) (PARTITION p VALUES LESS THAN (10), PARTITION q VALUES LESS THAN MAXVALUE"
STEPS = ("reconcile_structures", "create_joined", "_move", "_sweep")


@pytest.fixture
def deaths(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Let the process die after each step of a window."""
    return mortal(monkeypatch, sync, *STEPS)


@pytest.fixture
def task(source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> Iterator[LiveTask]:
    numbers = {("s1", "t"): (1, 2), ("s2", "t"): (1,), ("s1", "u"): (1,), ("s2", "u"): (1,)}
    servers = source_1, source_2, target
    with living(unique, tmp_path, servers, "tu", columns={"t": PARTS, "u": PLAIN}, numbers=numbers) as made:
        source_1.run(f"CREATE DATABASE {unique}_else")
        yield made
    source_1.run(f"DROP DATABASE {unique}_else")


def upstream(task: LiveTask, source: str, *statements: str) -> None:
    task.sources[source].run(f"USE {task.name}", *statements)


def add_numbered_column(task: LiveTask) -> None:
    """Add a column whose values come from a sequence that the target lacks."""
    column = f"n INT DEFAULT (NEXT VALUE FOR {task.name}_else.numbers)"
    upstream(task, "s1", f"CREATE SEQUENCE {task.name}_else.numbers", f"ALTER TABLE t_1 ADD {column}")


def rows(task: LiveTask, group: str = "t") -> list[tuple[Any, ...]]:
    return task.target.run(f"SELECT * FROM {task.table(group)} ORDER BY id")


def state(task: LiveTask, table: str = "t_1", source: str = "s1") -> ShardState:
    shard = Shard(source, TableId(task.name, table))
    (found,) = [state for state in task.work().meta.structures.shards() if state.shard == shard]
    return found


def skip(task: LiveTask, table: str = "t_1") -> None:
    order(task, Skip(lock(task).id, state(task, table).shard))


def replace(task: LiveTask, *changes: str, table: str = "t_1") -> None:
    texts = tuple(f"ALTER TABLE {table} {change}" if change[:6] != "CREATE" else change for change in changes)
    order(
        task,
        Replace(
            lock(task).id,
            tuple(text.replace(table, f"{task.name}.{table}") for text in texts),
            state(task, table).shard,
        ),
    )


def test_rows_behind_an_exchange_of_partitions_wait_and_all_others_go_on(task: LiveTask, deaths: Counter[str]) -> None:
    exchange = f"ALTER TABLE t_1 EXCHANGE PARTITION p WITH TABLE {task.name}_else.away"
    upstream(
        task,
        "s1",
        f"CREATE TABLE {task.name}_else.away ({PLAIN})",
        "INSERT INTO t_1 VALUES (1, 1), (11, 1)",
        exchange,
        exchange,
        "BEGIN",
        "INSERT INTO t_1 VALUES (2, 2)",
        "UPDATE t_1 SET v = 7 WHERE id = 1",
        "INSERT INTO t_2 VALUES (3, 3)",
        "COMMIT",
        "DELETE FROM t_1 WHERE id = 11",
    )
    for source in ("s1", "s2"):
        upstream(task, source, "ALTER TABLE u_1 ADD COLUMN c INT", f"INSERT INTO u_1 VALUES ({source[1]}, 1, 1)")
    upstream(task, "s2", "INSERT INTO t_1 VALUES (4, 4)")
    run(task)
    assert rows(task) == [(1, 1), (3, 3), (4, 4), (11, 1)]
    assert task.assert_union("u") == 2
    assert (lock(task).state, [str(shard.table) for shard in lock(task).missing]) == (
        LockState.UNDECIDED,
        [f"{task.name}.t_2", f"{task.name}.t_1"],
    )
    assert "exchanged without being in the binlog" in lock(task).reason
    assert [(file.is_raw, file.structure) for file in state(task).held] == [(True, "")] * len(state(task).held)
    skip(task)
    run(task)
    assert lock(task).state is LockState.UNDECIDED, "the second exchange"
    skip(task)
    run(task)
    task.assert_settled()
    assert rows(task) == [(1, 7), (2, 2), (3, 3), (4, 4)] and task.executed("t") == []
    assert set(deaths) == set(STEPS)


def test_ddl_behind_what_the_target_refuses_are_settled_with_it(task: LiveTask, deaths: Counter[str]) -> None:
    add_numbered_column(task)
    upstream(
        task,
        "s1",
        "INSERT INTO t_1 (id, v) VALUES (1, 1), (2, 2)",
        "ALTER TABLE t_1 ADD m VARCHAR(9) DEFAULT 'ä' FIRST",
        "INSERT INTO t_1 (id, v) VALUES (3, 3)",
        "ALTER TABLE t_1 DROP COLUMN v",
        "INSERT INTO t_1 (id, n) VALUES (4, 4)",
        "UPDATE t_1 SET m = 'new' WHERE id = 1",
    )
    run(task)
    assert lock(task).state is LockState.UNDECIDED and "[US-4003]" in lock(task).reason
    assert [bool(entry.after) for entry in state(task).queue] == [False] * 3 and rows(task) == []
    for change in ("ADD n INT", "ADD m VARCHAR(9) DEFAULT 'ä' FIRST", "DROP COLUMN v"):
        for source, table in (("s1", "t_2"), ("s2", "t_1")):
            upstream(task, source, f"ALTER TABLE {table} {change}")
    run(task)
    replace(task, "ADD n INT")
    run(task)
    task.assert_settled()
    assert [text.partition(" `t` ")[2] or text for text in task.executed("t")] and len(task.executed("t")) == 3
    assert rows(task) == [("new", 1, 1), ("ä", 2, 2), ("ä", 3, 3), ("ä", 4, 4)]


def test_a_decision_that_the_rows_contradict_is_asked_for_again(task: LiveTask, deaths: Counter[str]) -> None:
    add_numbered_column(task)
    upstream(task, "s1", "INSERT INTO t_1 (id, v) VALUES (1, 1)")
    run(task)
    skip(task)
    run(task)
    assert lock(task).state is LockState.UNDECIDED and "[US-5020]" in lock(task).reason
    replace(task, "ADD n INT")
    for source, table in (("s1", "t_2"), ("s2", "t_1")):
        upstream(task, source, f"ALTER TABLE {table} ADD n INT")
    run(task)
    task.assert_settled()
    assert rows(task) == [(1, 1, 1)]
    history = task.work().meta.structures.history(Shard("s1", TableId(task.name, "t_1")))
    assert all(change.structure for change in history)


def test_a_table_that_becomes_a_shard_is_taken_to_be_like_its_group(task: LiveTask, deaths: Counter[str]) -> None:
    upstream(
        task,
        "s1",
        f"CREATE TABLE {task.name}_else.plain ({PARTS})",
        f"RENAME TABLE {task.name}_else.plain TO t_9",
        "INSERT INTO t_9 VALUES (9, 9)",
        f"CREATE TABLE t_8 ({PLAIN}, w INT)",
        "INSERT INTO t_8 VALUES (8, 8, 8)",
    )
    upstream(task, "s2", "INSERT INTO t_1 VALUES (1, 1)")
    run(task)
    assert rows(task) == [(1, 1)] and lock(task).state is LockState.UNDECIDED
    skip(task, "t_9")
    run(task)
    assert rows(task) == [(1, 1), (9, 9)]
    assert "US-5003" in lock(task).reason
    for source, table in (("s1", "t_1"), ("s1", "t_2"), ("s1", "t_9"), ("s2", "t_1")):
        upstream(task, source, f"ALTER TABLE {table} ADD w INT")
    run(task)
    task.shards["t"] += [("s1", f"{task.name}.t_9"), ("s1", f"{task.name}.t_8")]
    task.assert_settled()
    assert rows(task) == [(1, 1, None), (8, 8, 8), (9, 9, None)]


@pytest.mark.parametrize(("other", "waits"), [("new", False), ("zoo", True)])
def test_a_table_takes_the_name_that_a_shard_gives_up_in_the_same_statement(
    task: LiveTask, deaths: Counter[str], other: str, waits: bool
) -> None:
    """Independent of the order of the two names; with and without a pending DDL of the renamed shard."""
    alter, more = "ALTER TABLE {} ADD w INT", ", w INT" * waits
    upstream(
        task,
        "s1",
        "INSERT INTO t_1 VALUES (1, 1)",
        *[alter.format("t_1")] * waits,
        f"CREATE TABLE {task.name}_else.{other} ({PLAIN}{more})",
        f"RENAME TABLE t_1 TO t_9, {task.name}_else.{other} TO t_1",
        "INSERT INTO t_9 (id, v) VALUES (9, 9)",
        "INSERT INTO t_1 (id, v) VALUES (3, 3)",
        "INSERT INTO t_2 VALUES (2, 2)",
        "INSERT INTO u_1 VALUES (7, 7)",
    )
    run(task)
    task.assert_union("u")
    assert [row[0] for row in rows(task)] == ([1, 2] if waits else [1, 2, 9])
    for source, table in (("s1", "t_2"), ("s2", "t_1")) * waits:
        upstream(task, source, alter.format(table))
    run(task)
    assert [row[0] for row in rows(task)] == [1, 2, 9] and "US-5001" in lock(task).reason
    skip(task, "t_1")
    run(task)
    task.shards["t"].append(("s1", f"{task.name}.t_9"))
    task.assert_settled()
    assert [row[0] for row in rows(task)] == [1, 2, 3, 9]


def test_a_decision_about_the_lock_is_one_about_all_shards_that_bring_the_ddl(task: LiveTask) -> None:
    for source, table in (("s1", "t_1"), ("s1", "t_2"), ("s2", "t_1")):
        upstream(
            task,
            source,
            f"ALTER IGNORE TABLE {table} ADD w INT, ADD UNIQUE (id, v)",
            f"INSERT INTO {table} VALUES ({source[1]}0 + '{table[2]}', 1, 1)",
        )
        run(task)
        if source == "s1" and table == "t_1":
            order(
                task, Replace(lock(task).id, (f"ALTER TABLE {task.name}.t_2 ADD w INT", "ALTER TABLE t ADD INDEX (v)"))
            )
            run(task)
            assert lock(task).state is LockState.WAITING
    task.assert_settled()
    assert [text.partition("` ")[2] for text in task.executed("t")] == ["ADD w INT", "ADD INDEX (v)"]
    assert len(rows(task)) == 3


def test_a_shard_whose_structure_only_the_operator_knows(task: LiveTask, deaths: Counter[str]) -> None:
    numbers = f"n INT DEFAULT (NEXT VALUE FOR {task.name}_else.numbers)"
    if is_tidb(task.target):  # it reads the sequence only when a row needs it
        numbers = f"n INT INVISIBLE DEFAULT (NEXT VALUE FOR {task.name}_else.numbers)"
    upstream(
        task,
        "s1",
        f"CREATE SEQUENCE {task.name}_else.numbers",
        f"CREATE TABLE t_9 ({PLAIN}, {numbers})",
        "INSERT INTO t_9 (id, v) VALUES (1, 1)",
        f"CREATE TABLE first (id INT PRIMARY KEY, {numbers})",
        "INSERT INTO first (id) VALUES (2)",
    )
    run(task)
    first, ninth = sorted(open_locks(task.work().meta), key=lambda view: view.target.name)
    assert (first.state, ninth.state) == (LockState.UNDECIDED, LockState.UNDECIDED)
    shard = state(task, "t_9").shard
    order(task, Skip(ninth.id, shard))
    run(task)
    first, again = sorted(open_locks(task.work().meta), key=lambda view: view.target.name)
    assert again.state is LockState.UNDECIDED and "[US-5020]" in again.reason
    order(task, Replace(again.id, ("ALTER TABLE t ADD n INT",), shard))
    made = f"CREATE TABLE {task.name}.first (id INT PRIMARY KEY, n INT)"
    order(task, Replace(first.id, (made,), state(task, "first").shard))
    run(task)
    assert open_locks(task.work().meta) == ()
    assert rows(task) == [(1, 1, 1)]
    assert task.target.run(f"SELECT * FROM {task.name}.first") == [(2, 2)]
    task.target.run(f"DROP DATABASE {task.name}")


class Limited(MariaDb):
    """A target where the task has an account with privileges on its own schemas only."""

    @property
    def server(self) -> Server:
        return dataclasses.replace(super().server, user=f"a{self.folder.name}")


def test_a_ddl_that_the_account_of_the_target_may_not_try(
    source_1: MariaDb, source_2: MariaDb, mariadb_target: MariaDb, unique: str, tmp_path: Path
) -> None:
    """The target has the sequence, but not the privilege to use it."""
    account = f"a{unique}"
    mariadb_target.run(
        f"CREATE DATABASE {unique}_else",
        f"CREATE SEQUENCE {unique}_else.numbers",
        f"CREATE USER {account}@'%' IDENTIFIED BY '{mariadb_target.password}'",
        *(f"GRANT ALL ON {schema}.* TO {account}@'%'" for schema in (unique, f"{unique}_to", META)),
    )
    limited = Limited(tmp_path / unique, mariadb_target.port, mariadb_target.program, mariadb_target.password)
    numbers = {("s1", "t"): (1,), ("s2", "t"): (1,), ("s1", "u"): (1,)}
    with living(
        unique, tmp_path, (source_1, source_2, limited), "tu", columns={"t": PLAIN, "u": PLAIN}, numbers=numbers
    ) as task:
        for source, server in task.sources.items():
            server.run(
                f"CREATE DATABASE {unique}_else",
                f"CREATE SEQUENCE {unique}_else.numbers",
                f"ALTER TABLE {unique}.t_1 ADD n INT DEFAULT (NEXT VALUE FOR {unique}_else.numbers)",
                f"INSERT INTO {unique}.t_1 (id, v) VALUES ({source[1]}, 1)",
            )
        source_1.run(f"INSERT INTO {unique}.u_1 VALUES (1, 1)")
        task.run()
        assert lock(task).state is LockState.UNDECIDED
        assert "[US-4003]" in lock(task).reason and "denied" in lock(task).reason
        assert task.assert_union("u") == 1 and rows(task) == []
        mariadb_target.run(f"GRANT ALL ON {unique}_else.* TO {account}@'%'")
        order(task, Retry(lock(task).id))
        task.run()
        task.assert_settled()
    for server in (source_1, source_2, mariadb_target):
        server.run(f"DROP DATABASE {unique}_else")
    mariadb_target.run(f"DROP USER {account}@'%'")


def test_a_ddl_of_a_table_whose_creation_was_not_logged_holds_that_table_only(
    task: LiveTask, deaths: Counter[str]
) -> None:
    upstream(
        task,
        "s1",
        "SET SESSION sql_log_bin = 0",
        f"CREATE TABLE t_9 ({PARTS})",
        "SET SESSION sql_log_bin = 1",
        "ALTER TABLE t_9 ADD w INT",
        "INSERT INTO t_9 VALUES (9, 9, 9)",
        "INSERT INTO t_1 VALUES (1, 1)",
    )
    run(task)
    assert rows(task) == [(1, 1)]
    assert lock(task).state is LockState.UNDECIDED and "[US-5002]" in lock(task).reason
    order(task, DropShard(lock(task).id, state(task, "t_9").shard))
    run(task)
    task.assert_settled()
