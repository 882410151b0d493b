"""A DDL of unknown effect before a later statement of the same shard: the source shows only what follows both.

The values after the DDL fit only an unsigned column. The row events of MariaDB do not tell signed from unsigned, so a
wrong structure would turn them into negative numbers. Each test runs in a process that dies after each step of some
windows and is started again.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.dying import mortal
from tests.joinedtask import JoinedTask, joined_task
from tests.livetask import LiveTask, living
from tests.openlocks import open_locks
from tests.operator import lock, order, run
from unshard.core.ddl.lock import LockState
from unshard.core.model import Shard, TableId
from unshard.operate.advice import advice_lines
from unshard.operate.command import Force, Replace, Skip
from unshard.units.window import sync
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration

COLUMNS = "id INT NOT NULL, v INT NOT NULL, PRIMARY KEY (id)"
UNSIGNED = "MODIFY v INT UNSIGNED NOT NULL"
SHARDS = (("s1", "t_1"), ("s1", "t_2"), ("s2", "t_1"))
BIG = 3 * 10**9
DDLS = {
    "refused": "ALTER TABLE {} " + UNSIGNED + " DEFAULT (NEXT VALUE FOR {}_else.numbers)",
    "not tried": "ALTER IGNORE TABLE {} " + UNSIGNED + ", ADD UNIQUE (id, v)",
    "unknown columns": "ALTER TABLE {} ADD SYSTEM VERSIONING, " + UNSIGNED,
}

UNCOMPARED = pytest.mark.mariadb_only("TiDB makes no versioned table to compare: it asks for CREATE TABLE")
CASES = [pytest.param(name, marks=UNCOMPARED) if name == "unknown columns" else name for name in DDLS]


@pytest.fixture
def deaths(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Let the process die after each step of a window."""
    return mortal(monkeypatch, sync, "reconcile_structures", "_move", "_sweep")


@pytest.fixture
def task(source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> Iterator[LiveTask]:
    numbers = {("s1", "t"): (1, 2), ("s2", "t"): (1,)}
    with living(unique, tmp_path, (source_1, source_2, target), "t", columns={"t": COLUMNS}, numbers=numbers) as made:
        create_sequences(made)
        yield made
        drop_sequences(made)


def create_sequences(task: LiveTask) -> None:
    for server in task.sources.values():
        server.run(f"CREATE DATABASE {task.name}_else", f"CREATE SEQUENCE {task.name}_else.numbers")


def drop_sequences(task: LiveTask) -> None:
    for server in task.sources.values():
        server.run(f"DROP DATABASE {task.name}_else")


def change(task: LiveTask, shard: tuple[str, str], ddl: str, *later: str) -> None:
    """Let a shard run a DDL and later ones, with rows before and after each."""
    source, name = shard
    number = SHARDS.index(shard) + 1
    task.sources[source].run(
        f"USE {task.name}",
        "SET SESSION system_versioning_alter_history = KEEP",
        f"INSERT INTO {name} VALUES ({number}, 1)",
        DDLS[ddl].format(name, task.name),
        f"INSERT INTO {name} (id, v) VALUES ({number + 10}, {BIG}), ({number + 20}, {BIG})",
        *(f"ALTER TABLE {name} {each}" for each in later),
        f"UPDATE {name} SET v = {BIG + 1} WHERE id = {number + 20}",
        f"INSERT INTO {name} (id, v) VALUES ({number + 30}, {BIG})",
    )


def by_hand(task: LiveTask, text: str) -> None:
    task.target.run(f"ALTER TABLE {task.table('t')} {text}")


def assert_undecided(task: LiveTask, code: str) -> None:
    assert lock(task).state is LockState.UNDECIDED and code in lock(task).reason, lock(task)


def assert_complete(task: LiveTask, rows: int = 12) -> None:
    task.assert_settled()
    assert task.assert_union("t") == rows


@pytest.mark.parametrize("ddl", CASES)
def test_a_skip_takes_the_columns_that_the_shards_have(task: LiveTask, deaths: Counter[str], ddl: str) -> None:
    for shard in SHARDS:
        change(task, shard, ddl, "ADD w INT FIRST", "ADD INDEX (w)")
    run(task)
    assert_undecided(task, "[US-")
    by_hand(task, UNSIGNED)
    order(task, Skip(lock(task).id))
    run(task)
    assert_complete(task)
    assert [text.partition("` ")[2] for text in task.executed("t")] == ["ADD w INT FIRST", "ADD INDEX (w)"]


def test_the_later_statement_is_not_in_a_window_yet(task: LiveTask, deaths: Counter[str]) -> None:
    """Statements about other tables that name the shard do not count."""
    for shard in SHARDS:
        change(task, shard, "refused")
    run(task)
    by_hand(task, UNSIGNED)
    for source, name in SHARDS:
        task.sources[source].run(
            f"USE {task.name}_else",
            f"CREATE TABLE like_{name} LIKE {task.name}.{name}",
            f"CREATE TABLE child_{name} (n INT, FOREIGN KEY (n) REFERENCES {task.name}.{name} (id))",
            f"ALTER TABLE child_{name} ADD m INT FIRST, ADD FOREIGN KEY (m) REFERENCES {task.name}.{name} (id)",
            f"ALTER TABLE {task.name}.{name} ADD w INT",
        )
    order(task, Skip(lock(task).id))
    run(task)
    assert_complete(task)


@pytest.mark.parametrize("later", [(), ("ADD w INT",)], ids=["last", "hidden"])
def test_a_wrong_answer_is_asked_for_again(task: LiveTask, deaths: Counter[str], later: tuple[str, ...]) -> None:
    """A skip says that no column has changed, and so do other statements. CREATE TABLE states the columns."""
    for shard in SHARDS:
        change(task, shard, "refused", *later)
    run(task)
    by_hand(task, "MODIFY v BIGINT NOT NULL")
    order(task, Skip(lock(task).id))
    run(task)
    assert_undecided(task, "[US-5020]")
    assert "column 2 was v int" in lock(task).reason and "and is v int" in lock(task).reason
    order(task, Replace(lock(task).id, (f"ALTER TABLE {task.table('t')} ADD INDEX (v)",)))
    run(task)
    assert_undecided(task, "[US-5020]")
    stated = COLUMNS.replace("v INT", "v INT UNSIGNED")
    order(task, Replace(lock(task).id, (f"CREATE TABLE {task.table('t')} ({stated})",)))
    run(task)
    assert_complete(task)


@pytest.mark.parametrize("later", ["MODIFY v BIGINT UNSIGNED NOT NULL", "DROP v, ADD v BIGINT UNSIGNED NOT NULL"])
def test_a_column_that_changes_again_is_stated_by_the_operator(
    task: LiveTask, deaths: Counter[str], later: str
) -> None:
    for shard in SHARDS:
        change(task, shard, "refused", later)
    run(task)
    by_hand(task, UNSIGNED)
    for _ in range(2):
        order(task, Skip(lock(task).id))
        run(task)
        assert_undecided(task, "[US-4030]")
        said = "\n".join(advice_lines(lock(task), "t.yaml"))
        assert "unshard replace t.yaml" in said and "CREATE TABLE" in said
    stated = COLUMNS.replace("v INT", "v INT UNSIGNED")
    order(task, Replace(lock(task).id, (f"CREATE TABLE {task.table('t')} ({stated})",)))
    run(task)
    task.assert_settled()


def test_one_shard_of_a_lock_has_to_be_described(task: LiveTask, deaths: Counter[str]) -> None:
    change(task, SHARDS[0], "refused", "MODIFY v BIGINT UNSIGNED NOT NULL")
    change(task, SHARDS[1], "refused", "ADD w INT")
    change(task, SHARDS[2], "refused")
    run(task)
    by_hand(task, UNSIGNED)
    order(task, Skip(lock(task).id))
    run(task)
    rows = task.target.run(f"SELECT id FROM {task.table('t')} WHERE v = {BIG} ORDER BY id")
    assert [row[0] for row in rows] == [12, 13, 22, 33], "shards that are known go on up to their next DDL"
    assert_undecided(task, "[US-4030]")
    first = Shard("s1", TableId(task.name, "t_1"))
    assert lock(task).ready == (first,)
    stated = COLUMNS.replace("v INT", "v INT UNSIGNED")
    order(task, Replace(lock(task).id, (f"CREATE TABLE {task.table('t')} ({stated})",), first))
    run(task)
    order(task, Skip(lock(task).id))
    task.sources["s1"].run(
        f"USE {task.name}", "ALTER TABLE t_1 ADD w INT", "ALTER TABLE t_2 MODIFY v BIGINT UNSIGNED NOT NULL"
    )
    task.sources["s2"].run(
        f"USE {task.name}", "ALTER TABLE t_1 MODIFY v BIGINT UNSIGNED NOT NULL", "ALTER TABLE t_1 ADD w INT"
    )
    run(task)
    for _ in range(2):
        if task.work().meta.locks.open():
            order(task, Force(lock(task).id))
            run(task)
    assert_complete(task)


@pytest.fixture
def joined(source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> Iterator[JoinedTask]:
    with joined_task(unique, tmp_path, (source_1, source_2, target), COLUMNS, shards=2) as made:
        create_sequences(made)
        yield made
        drop_sequences(made)


@pytest.mark.parametrize("ddl", CASES)
def test_optimistic_mode(joined: JoinedTask, ddl: str) -> None:
    task = joined
    for source, name in (("s1", "t_11"), ("s1", "t_12"), ("s2", "t_21"), ("s2", "t_22")):
        task.sources[source].run(
            f"USE {task.name}",
            "SET SESSION system_versioning_alter_history = KEEP",
            f"INSERT INTO {name} VALUES ({name[2:]}, 1)",
            DDLS[ddl].format(name, task.name),
            f"INSERT INTO {name} (id, v) VALUES (1{name[2:]}, {BIG})",
            f"ALTER TABLE {name} ADD w INT",
            f"UPDATE {name} SET v = {BIG + 1} WHERE id < 100",
        )
    task.run()
    by_hand(task, UNSIGNED)
    for _ in range(4):  # all shards at once, or one after the other
        for found in open_locks(task.work().meta):
            assert found.state is LockState.UNDECIDED and found.ready
            for shard in found.ready:
                order(task, Skip(found.id, shard))
        task.run()
    assert open_locks(task.work().meta) == () and task.assert_union("t") == 8
