"""The target refuses a DDL: the lock shows the message, and every remedy works, including a retry.

Each test runs in a process that dies after each step of some windows and is started again.
"""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.dying import mortal
from tests.livetask import LiveTask, living
from tests.openlocks import open_locks
from tests.operator import lock, order, run
from unshard.cli import main
from unshard.core.ddl.lock import LockState
from unshard.core.model import Shard, TableId
from unshard.errors.locks import NothingRefused
from unshard.operate.command import Replace, Retry, Skip
from unshard.operate.issuing import give, preview
from unshard.units.ddl.coordinate import views
from unshard.units.window import sync
from unshard_demo.servers import MariaDb

pytestmark = [pytest.mark.integration, pytest.mark.on_tidb]

COLUMNS = "id INT NOT NULL, v INT NOT NULL, PRIMARY KEY (id)"
SHARDS = (("s1", "t_1"), ("s1", "t_2"), ("s2", "t_1"))


class Case:
    """A DDL that the target refuses on an empty table, its message, and the change that makes the target accept it."""

    def __init__(self, task: LiveTask) -> None:
        self.task = task
        self.is_tidb = "TiDB" in task.target.run("SELECT VERSION()")[0][0]
        self.ddl = "DROP PRIMARY KEY"
        self.words, self.instead = "clustered", "ADD INDEX both_columns (id, v)"
        if not self.is_tidb:
            # The target lacks the sequence from which the new column takes its values.
            self.ddl = f"ADD n INT DEFAULT (NEXT VALUE FOR {task.name}_else.numbers)"
            self.words, self.instead = "doesn't exist", "ADD n INT"
            for server in task.sources.values():
                server.run(f"CREATE SEQUENCE {task.name}_else.numbers")

    def cure(self) -> None:
        target, table = self.task.target, self.task.table("t")
        if not self.is_tidb:
            target.run(f"CREATE DATABASE {self.task.name}_else", f"CREATE SEQUENCE {self.task.name}_else.numbers")
            return
        # New tables get this kind of key, too, including the trial table of the DDL.
        target.run("SET GLOBAL tidb_enable_clustered_index = OFF")
        columns = COLUMNS.replace("(id)", "(id) NONCLUSTERED")
        target.run(
            f"CREATE TABLE {table}_new ({columns})",
            f"INSERT INTO {table}_new SELECT * FROM {table}",
            f"DROP TABLE {table}",
            f"RENAME TABLE {table}_new TO {table}",
        )


@pytest.fixture
def deaths(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Let the process die after each step of a window."""
    return mortal(monkeypatch, sync, "reconcile_structures", "_move", "_sweep")


@pytest.fixture
def task(source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> Iterator[LiveTask]:
    numbers = {("s1", "t"): (1, 2), ("s2", "t"): (1,), ("s1", "u"): (1,)}
    columns = {"t": COLUMNS, "u": COLUMNS}
    with living(unique, tmp_path, (source_1, source_2, target), "tu", columns=columns, numbers=numbers) as made:
        for server in made.sources.values():
            server.run(f"CREATE DATABASE {unique}_else")
        yield made
    for server in (source_1, source_2, target):
        server.run(f"DROP DATABASE IF EXISTS {unique}_else")


@pytest.fixture
def case(task: LiveTask) -> Iterator[Case]:
    made = Case(task)
    yield made
    if made.is_tidb:
        task.target.run("SET GLOBAL tidb_enable_clustered_index = ON")


def alter(task: LiveTask, change: str) -> None:
    """Let all shards run the DDL, each with rows before and after it."""
    for number, (source, name) in enumerate(SHARDS, 1):
        task.sources[source].run(
            f"USE {task.name}",
            f"ALTER TABLE {name} {change}",
            f"INSERT INTO {name} (id, v) VALUES ({number}, 1), ({number + 10}, 1)",
            f"UPDATE {name} SET v = 2 WHERE id > 10",
        )


def ask_again(task: LiveTask) -> None:
    assert main(["retry", str(task.path), "--lock", lock(task).id, "--yes", "--reason", "mended"]) == 0


def actions(task: LiveTask) -> list[str]:
    return [action.action for action in task.work().meta.locks.actions(None)]


def assert_refused(task: LiveTask, words: str) -> None:
    found = lock(task)
    assert found.state is LockState.UNDECIDED and "[US-4003]" in found.reason and words in found.reason.lower()
    assert len(found.ready) == 3 and found.is_refused


@pytest.mark.parametrize("way", ["skip", "replace", "retry"])
def test_ways_out_of_a_ddl_that_the_target_refuses(
    task: LiveTask, case: Case, deaths: Counter[str], way: str, capsys: pytest.CaptureFixture[str]
) -> None:
    alter(task, case.ddl)
    task.sources["s1"].run(f"INSERT INTO {task.name}.u_1 VALUES (1, 1)")
    run(task)
    assert_refused(task, case.words)
    assert task.assert_union("u") == 1 and task.target.run(f"SELECT * FROM {task.table('t')}") == []
    assert main(["locks", str(task.path)]) == 3
    shown = capsys.readouterr().out
    assert case.words in shown.lower() and all(f"unshard {name} " in shown for name in ("skip", "replace", "retry"))
    match way:
        case "skip":
            order(task, Skip(lock(task).id))
        case "replace":
            order(task, Replace(lock(task).id, (f"ALTER TABLE {task.name}.t_1 {case.instead}",)))
        case _:
            ask_again(task)
            assert_refused(task, case.words)
            case.cure()
            ask_again(task)
    run(task)
    contradicts = way == "skip" and not case.is_tidb
    if contradicts:  # the rows have another column
        assert lock(task).state is LockState.UNDECIDED and "[US-5020]" in lock(task).reason
        order(task, Replace(lock(task).id, (f"ALTER TABLE {task.name}.t_1 {case.instead}",)))
        run(task)
    task.assert_settled()
    given = {"skip": ["skip"], "replace": ["replace"], "retry": ["retry"] * 2}[way]
    assert actions(task) == given + ["replace"] * contradicts
    assert len(task.executed("t")) == (way != "skip" or contradicts)


def test_retry_only_asks_and_the_group_is_waited_for(task: LiveTask, case: Case, deaths: Counter[str]) -> None:
    """The page's command leaves the attempt to the next window; a repeated command changes nothing."""
    task.sources["s1"].run(f"USE {task.name}", f"ALTER TABLE t_1 {case.ddl}", "INSERT INTO t_1 (id, v) VALUES (1, 1)")
    run(task)
    case.cure()
    asked = Retry(lock(task).id)
    for _ in range(2):
        order(task, asked)
    assert lock(task).reason == "" and actions(task) == ["retry"]
    run(task)
    assert (lock(task).state, len(lock(task).missing)) == (LockState.WAITING, 2)
    with pytest.raises(NothingRefused, match="waiting"):
        preview(task.work().meta, asked)
    for source, name in SHARDS[1:]:
        task.sources[source].run(f"ALTER TABLE {task.name}.{name} {case.ddl}")
    run(task)
    task.assert_settled()


@pytest.mark.mariadb_only("on TiDB the cause is in each target table")
def test_one_command_retries_all_that_the_target_has_refused(
    task: LiveTask, case: Case, deaths: Counter[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Two locks, and two DDLs of each shard, which all wait for the same cause."""
    again = ["retry", str(task.path), "--all-locks", "--json"]
    assert main(again) == 0 and json.loads(capsys.readouterr().out)["locks"] == []
    for number, (source, name) in enumerate((*SHARDS, ("s1", "u_1"))):
        changes = (f"ALTER TABLE {name} {case.ddl.replace('ADD n', f'ADD {column}')}" for column in "nm")
        task.sources[source].run(f"USE {task.name}", *changes, f"INSERT INTO {name} (id, v) VALUES ({number}, 1)")
    run(task)
    assert [view.is_refused for view in views(task.work().meta)] == [True, True]
    case.cure()
    assert main([*again, "--dry-run"]) == 0
    assert [view["state"] for view in json.loads(capsys.readouterr().out)["locks"]] == ["undecided"] * 2
    assert main([*again, "--yes"]) == 0
    assert "undecided" not in {view["state"] for view in json.loads(capsys.readouterr().out)["locks"]}
    run(task)
    task.assert_settled()
    assert actions(task) == ["retry"] * 2
    assert len(task.executed("t")) == len(task.executed("u")) == 2


def test_retry_of_a_ddl_that_the_target_could_not_execute(task: LiveTask, deaths: Counter[str]) -> None:
    task.target.run(f"ALTER TABLE {task.table('t')} ADD c VARCHAR(9)")
    alter(task, "ADD c INT")
    with pytest.raises(AssertionError, match="1060"):
        run(task)
    assert lock(task).state is LockState.FAILED and "1060" in (lock(task).error or "")
    ask_again(task)
    assert lock(task).state is LockState.FAILED and "1060" in (lock(task).error or "")
    task.target.run(f"ALTER TABLE {task.table('t')} DROP COLUMN c")
    ask_again(task)
    assert open_locks(task.work().meta) == ()
    run(task)
    task.assert_settled()
    assert actions(task) == ["retry"] * 2 and len(task.executed("t")) == 1


def test_only_a_refusal_of_the_target_is_asked_about(task: LiveTask, capsys: pytest.CaptureFixture[str]) -> None:
    task.sources["s1"].run(f"ALTER IGNORE TABLE {task.name}.t_1 ADD w INT, ADD UNIQUE (id, v)")
    run(task)
    found = lock(task)
    assert found.state is LockState.UNDECIDED and not found.is_refused
    with pytest.raises(NothingRefused, match="US-5001"):
        give(task.work().meta, Retry(found.id), "operator", "test", "")
    assert main(["retry", str(task.path), "--lock", found.id, "--yes"]) == 1
    assert "US-5037" in capsys.readouterr().err
    assert main(["retry", str(task.path), "--lock", found.id, "--table", "a.b"]) == 1
    assert main(["retry", str(task.path), "--all-locks", "--table", "a.b"]) == 1
    assert "US-1901" in capsys.readouterr().err


def test_a_new_shard_that_the_target_could_not_read(task: LiveTask, case: Case, deaths: Counter[str]) -> None:
    """Its CREATE TABLE is tried again; the shard joins its group, or waits because it differs from all its shards."""
    if case.is_tidb:
        pytest.skip("TiDB is not brought to take a type or an index that it lacks")
    column = case.ddl.removeprefix("ADD ")
    task.sources["s1"].run(
        f"USE {task.name}", f"CREATE TABLE t_9 ({COLUMNS}, {column})", "INSERT INTO t_9 VALUES (9, 9, 9)"
    )
    run(task)
    assert lock(task).state is LockState.UNDECIDED and lock(task).is_refused
    case.cure()
    order(task, Retry(lock(task).id))
    run(task)
    assert lock(task).state is LockState.UNDECIDED and "[US-5003]" in lock(task).reason
    for source, name in SHARDS:
        task.sources[source].run(f"ALTER TABLE {task.name}.{name} {case.ddl}")
    run(task)
    task.shards["t"].append(("s1", f"{task.name}.t_9"))
    task.assert_settled()
    (shard,) = [s for s in task.work().meta.structures.shards() if s.shard == Shard("s1", TableId(task.name, "t_9"))]
    assert shard.queue == ()


# --- the operator rebuilds the target by hand --------------------------------------------------------------------

WIDER = "id BIGINT UNSIGNED NOT NULL"


def widen(task: LiveTask, *shards: tuple[str, str]) -> None:
    """Let shards change the type of their key, which TiDB refuses, and write keys of the new type."""
    for source, name in shards:
        number = SHARDS.index((source, name)) + 1
        task.sources[source].run(
            f"USE {task.name}",
            f"INSERT INTO {name} VALUES ({number}, 1)",
            f"ALTER TABLE {name} MODIFY {WIDER}",
            f"INSERT INTO {name} VALUES ({number * 10**15}, 1), ({number + 10}, 1)",
            f"DELETE FROM {name} WHERE id = {number}",
        )


def rebuild(task: LiveTask, columns: str) -> None:
    table = task.table("t")
    task.target.run(
        f"CREATE TABLE {table}_new ({columns})",
        f"INSERT INTO {table}_new SELECT * FROM {table}",
        f"DROP TABLE {table}",
        f"RENAME TABLE {table}_new TO {table}",
    )


def give_up_refusals(task: LiveTask, way: str) -> None:
    change = f"ALTER TABLE {task.table('t')} MODIFY {WIDER}"
    match way:
        case "retry":
            ask_again(task)
        case "skip":
            order(task, Skip(lock(task).id))
        case "replace":
            order(task, Replace(lock(task).id, (change,)))
        case _:
            for source, name in SHARDS:
                order(task, Replace(lock(task).id, (change,), Shard(source, TableId(task.name, name))))


def assert_goes_on(task: LiveTask) -> None:
    """Assert that the next DDL and its rows reach the target, too."""
    for number, (source, name) in enumerate(SHARDS, 1):
        task.sources[source].run(
            f"USE {task.name}", f"ALTER TABLE {name} ADD w INT", f"INSERT INTO {name} VALUES ({number + 20}, 1, 1)"
        )
    run(task)
    task.assert_settled()


@pytest.mark.tidb_only
@pytest.mark.sample(reason="each command takes seconds on TiDB, and they differ in how the structure is found", every=2)
@pytest.mark.parametrize("way", ["retry", "skip", "replace", "replace-shard"])
def test_after_the_target_is_rebuilt_by_hand_every_command_leads_out(
    task: LiveTask, deaths: Counter[str], way: str
) -> None:
    widen(task, *SHARDS)
    run(task)
    assert_refused(task, "")
    if way == "retry":
        ask_again(task)
        assert_refused(task, "")
    rebuild(task, COLUMNS.replace("id INT NOT NULL", WIDER))
    give_up_refusals(task, way)
    run(task)
    task.assert_settled()
    assert_goes_on(task)


@pytest.mark.tidb_only
@pytest.mark.sample(reason="each command takes seconds on TiDB, and they differ in how the structure is found", every=2)
@pytest.mark.parametrize("way", ["retry", "skip", "replace", "replace-shard"])
def test_every_command_leads_out_if_the_shards_have_run_the_next_ddl(
    task: LiveTask, deaths: Counter[str], way: str
) -> None:
    widen(task, *SHARDS)
    for source, name in SHARDS:
        task.sources[source].run(
            f"USE {task.name}", f"ALTER TABLE {name} ADD w INT FIRST", f"UPDATE {name} SET w = id % 9"
        )
    run(task)
    rebuild(task, COLUMNS.replace("id INT NOT NULL", WIDER))
    give_up_refusals(task, way)
    run(task)
    task.assert_settled()
    assert task.executed("t")[-1].endswith("ADD w INT FIRST")


@pytest.mark.tidb_only
def test_a_shard_that_comes_late_to_a_rebuilt_target_needs_no_command(task: LiveTask, deaths: Counter[str]) -> None:
    widen(task, *SHARDS[:2])
    run(task)
    rebuild(task, COLUMNS.replace("id INT NOT NULL", WIDER))
    ask_again(task)
    run(task)
    assert (lock(task).state, len(lock(task).missing)) == (LockState.WAITING, 1)
    widen(task, SHARDS[2])
    run(task)
    task.assert_settled()
    assert_goes_on(task)


def test_an_operator_states_the_structure_of_shards_that_went_on(task: LiveTask, case: Case) -> None:
    """A later change of the same column hides the structure after the first one; a wrong statement is not taken."""
    if case.is_tidb:
        case.ddl, case.words = f"MODIFY {WIDER}", ""
    column = f"{WIDER} COMMENT 'later'" if case.is_tidb else "n INT COMMENT 'later'"
    alter(task, case.ddl)
    for source, name in SHARDS:
        task.sources[source].run(
            f"USE {task.name}", f"ALTER TABLE {name} MODIFY {column}", f"ALTER TABLE {name} ADD w INT"
        )
    run(task)
    if case.is_tidb:
        columns = COLUMNS.replace("id INT NOT NULL", WIDER)
        rebuild(task, columns)
    else:
        columns = COLUMNS.replace(", PRIMARY", ", n INT, PRIMARY")
        task.target.run(f"ALTER TABLE {task.table('t')} ADD n INT")
    ask_again(task)
    assert_refused(task, case.words)
    stated = f"CREATE TABLE {task.table('t')} ({columns})"
    order(task, Replace(lock(task).id, (stated.replace("v INT", "v BIGINT"),)))
    run(task)
    assert lock(task).state is LockState.UNDECIDED and "[US-5020]" in lock(task).reason
    assert main(["ddl", "replace", str(task.path), "--all-sources", "--current", "--sql", stated, "--yes"]) == 0
    run(task)
    task.assert_settled()
    assert task.executed("t")[-1].endswith("ADD w INT")
