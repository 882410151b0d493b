"""An error about one target suspends only that target for that source; it goes on after the cause is removed."""

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cutting import bound_transactions
from tests.livetask import LiveTask, living
from tests.tidbsettings import takes_load_data
from unshard.adapters.meta.problemrecords import SuspendedTargets
from unshard.adapters.meta.windowrecords import Windows
from unshard.adapters.target import fencesteps
from unshard.cli import main
from unshard.core.rows.rowerrors import CollisionState
from unshard.errors.rows import Collision
from unshard.units.ddl import coordinate
from unshard.units.task.run import run
from unshard.units.window import suspending, sync, tasks
from unshard.units.window.sync import run_job
from unshard.units.work import Limits
from unshard_demo.servers import MariaDb

pytestmark = [pytest.mark.integration, pytest.mark.writes_rows]

COLUMNS = "id INT PRIMARY KEY, v VARCHAR(20)"
REFUSED = "US-6026"
REFUSED_ROW = "US-6002"
"""LOAD DATA does not say which row a trigger refuses; INSERT does."""


@dataclass(frozen=True)
class Case:
    """A way to break a target, the statements of its shards, and the repair; `t` is the table."""

    code: str
    broken: str
    happens: tuple[str, ...] = ("INSERT INTO t VALUES (2, 'longer')",)
    mended: str = ""
    mended_in_shard: str = ""
    goes_on_alone: bool = True
    columns: str = COLUMNS


CASES = {
    "gone": Case("US-6001", "DROP TABLE t", mended=f"CREATE TABLE t ({COLUMNS})"),
    "narrow": Case("US-6002", "ALTER TABLE t MODIFY v VARCHAR(3)", mended="ALTER TABLE t MODIFY v VARCHAR(20)"),
    "mended": Case(
        "US-6002",
        "ALTER TABLE t MODIFY v VARCHAR(3)",
        goes_on_alone=False,
        mended_in_shard="UPDATE t SET v = 'ok' WHERE id = 2",
    ),
    "lacking": Case("US-6003", "ALTER TABLE t DROP v", mended="ALTER TABLE t ADD v VARCHAR(20)"),
    "typed": Case(
        "US-6004",
        "ALTER TABLE t MODIFY v BIT(8)",
        mended="ALTER TABLE t MODIFY v BIGINT",
        columns="id INT PRIMARY KEY, v BIGINT",
        happens=("INSERT INTO t VALUES (2, 2)",),
    ),
    "keyed": Case(
        "US-6002",
        "ALTER TABLE t ADD r INT NOT NULL, DROP PRIMARY KEY, ADD PRIMARY KEY (id, r)",
        mended="ALTER TABLE t DROP PRIMARY KEY, DROP r, ADD PRIMARY KEY (id)",
    ),
    "taken": Case("US-6006", "INSERT INTO t VALUES (2, 'other')", mended="DELETE FROM t"),
    "again": Case(
        "US-6007",
        "DO 0",
        (
            "SET sql_log_bin = 0",
            "INSERT INTO t VALUES (1, 'x')",
            "SET sql_log_bin = 1",
            "DELETE FROM t",
            "SET sql_log_bin = 0",
            "INSERT INTO t VALUES (1, 'x')",
            "SET sql_log_bin = 1",
            "DELETE FROM t",
        ),
        goes_on_alone=False,
    ),
    "loose": Case(
        "US-6008",
        "DO 0",
        ("SET sql_log_bin = 0", "INSERT INTO t VALUES (2, 'y')", "SET sql_log_bin = 1", "DELETE FROM t"),
        mended="INSERT INTO t VALUES (2, 'y')",
        goes_on_alone=False,
        columns="id INT, v VARCHAR(20)",
    ),
    "engine": Case("US-6009", "ALTER TABLE t ENGINE = Aria", mended="ALTER TABLE t ENGINE = InnoDB"),
    "refused": Case(
        REFUSED,
        "CREATE TRIGGER never BEFORE INSERT ON t FOR EACH ROW SIGNAL SQLSTATE '45000'",
        mended="DROP TRIGGER never",
        goes_on_alone=False,
    ),
}


@pytest.fixture(params=["one worker", "several workers"])
def task(request, source_1, source_2, target, unique: str, tmp_path: Path) -> Iterator[LiveTask]:
    limits = Limits(small_bytes=0, worker_bytes=1000) if request.param == "several workers" else Limits()
    columns = {name: case.columns for name, case in CASES.items()} | {"fine": COLUMNS}
    numbers = {("s1", name): (1,) for name in columns} | {("s2", name): (2,) for name in columns}
    servers = source_1, source_2, target
    with living(unique, tmp_path, servers, list(columns), columns=columns, numbers=numbers) as opened:
        opened.restart()
        opened.limits = limits
        yield opened


@pytest.mark.mariadb_only("TiDB cannot drop a clustered primary key")
def test_every_error_about_a_target_stops_that_target_alone(task: LiveTask, monkeypatch, capsys) -> None:
    run_on = task.target.run
    codes = {name: case.code for name, case in CASES.items()}
    if not takes_load_data(task.target):
        codes = {name: REFUSED_ROW if code == REFUSED else code for name, code in codes.items()}
    run_on(f"USE {task.name}_to", *(named(case.broken, name) for name, case in CASES.items()))
    for name, case in CASES.items():
        given = (named(statement, f"{name}_1") for statement in case.happens)
        task.sources["s1"].run(
            f"USE {task.name}",
            f"INSERT INTO fine_1 VALUES ({len(name)}{len(case.happens)}, 'x') ON DUPLICATE KEY UPDATE v = 'y'",
            *given,
        )
        task.sources["s2"].run(f"USE {task.name}", f"REPLACE INTO fine_2 VALUES (1{len(name)}, 'x')")
    task.run()
    assert {name: error.code for (_, name), error in task.stopped().items()} == codes
    assert task.assert_union("fine") and task.checkpoint("s1") == task.upstream_end("s1")

    task.restart()
    for name, case in CASES.items():
        # Held in a second window and behind a DDL: both wait, and the other source is not concerned.
        task.sources["s1"].run(
            f"USE {task.name}",
            named(case.mended_in_shard, f"{name}_1") or "DO 0",
            f"INSERT INTO {task.name}.{name}_1 VALUES (7, 7)",
            f"ALTER TABLE {task.name}.{name}_1 ADD w INT DEFAULT 3",
        )
        task.sources["s2"].run(f"ALTER TABLE {task.name}.{name}_2 ADD w INT DEFAULT 3")
    task.run()
    assert len(task.stopped()) == len(CASES) and task.assert_union("fine")
    waiting = {
        view.target.name: (str(view.state), *(stop.refusal.code for stop in view.stopped))
        for view in coordinate.views(task.work().meta)
    }
    assert waiting == {name: ("draining", code) for name, code in codes.items()}
    monkeypatch.setenv("UNSHARD_DB_PASSWORD", "unshard")
    capsys.readouterr()
    assert main(["locks", str(task.path)]) == 3
    said = capsys.readouterr().out
    assert all("is suspended for source s1 since" in said and f"[{code}]" in said for code in codes.values())
    assert main(["status", str(task.path)]) == 0
    said = capsys.readouterr().out
    assert all(f"[{code}]" in said for code in codes.values())
    assert f", {len(codes)} suspended targets\n" in said and "no errors" not in said

    run_on(f"USE {task.name}_to", *(named(c.mended, name) for name, c in CASES.items() if c.mended))
    task.run()
    left = {name for _, name in task.stopped()}
    assert left == {name for name, case in CASES.items() if not case.goes_on_alone}
    set_options(task, syncer={"safe-mode": True})
    outcome = run(task.work())
    assert outcome.exit_code == 0, [str(trouble.error) for trouble in outcome.errors]
    task.assert_settled()


def named(statement: str, table: str) -> str:
    return re.sub(r"\bt\b", table, statement)


def set_options(task: LiveTask, **more: Any) -> None:
    """Change the blocks of all instances in the task file."""
    body = yaml.safe_load(task.path.read_text())
    for instance in body["mysql-instances"]:
        instance.update(more)
    task.path.write_text(yaml.safe_dump(body))
    task.restart()


@pytest.fixture
def pair(source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> Iterator[LiveTask]:
    columns = {"a": COLUMNS, "b": COLUMNS}
    numbers = {("s1", "a"): (1, 2), ("s2", "a"): (3,), ("s1", "b"): (1,)}
    servers = source_1, source_2, target
    with living(unique, tmp_path, servers, ["a", "b", "c"], columns=columns, numbers=numbers) as opened:
        opened.groups = ["a", "b"]
        yield opened


def states(task: LiveTask) -> list[CollisionState]:
    return [one.state for one in task.work().meta.collisions.all()]


def test_a_collision_is_over_when_the_other_shard_gives_the_key_up(pair: LiveTask) -> None:
    """The owner is of another source: the key is seen to be free. It is of the same source: its DELETE is held, too."""
    one, two = pair.sources["s1"], pair.sources["s2"]
    for owner, shard, goes_on_alone in ((two, "a_3", True), (one, "a_1", False)):
        owner.run(f"INSERT INTO {pair.name}.{shard} VALUES (5, 'first')")
        pair.run()
        one.run(
            f"USE {pair.name}", "INSERT INTO a_2 VALUES (5, 'second'), (6, 'z')", "REPLACE INTO b_1 VALUES (1, 'b')"
        )
        pair.run()
        error = pair.stopped()["s1", "a"]
        assert isinstance(error, Collision) and shard in error.owner and states(pair) == [CollisionState.OPEN]
        one.run(f"UPDATE {pair.name}.a_2 SET v = 'third' WHERE id = 5", f"REPLACE INTO {pair.name}.b_1 VALUES (2, 'b')")
        pair.run()
        assert pair.stopped() and states(pair) == [CollisionState.OPEN] and pair.assert_union("b") == 2
        owner.run(f"DELETE FROM {pair.name}.{shard} WHERE id = 5")
        pair.run()
        assert bool(pair.stopped()) is not goes_on_alone
        pair.retry()
        pair.assert_settled()
        assert states(pair) == [CollisionState.MENDED]
        one.run(f"DELETE FROM {pair.name}.a_2")
        pair.target.run(f"DELETE FROM {pair.meta_schema}.collision")


def test_a_collision_in_a_half_written_window_waits_with_its_source(pair: LiveTask, monkeypatch) -> None:
    """Repeated rows of a half-written window are written by REPLACE, so they must not replace another shard's row."""
    bound_transactions(monkeypatch, fencesteps.Bounds(2, 1 << 20, 1))
    pair.sources["s2"].run(f"INSERT INTO {pair.name}.a_3 VALUES (1, 'first')")
    pair.run()
    rows = "INSERT INTO {}.a_1 VALUES (1, 'x'), (2, 'x'), (3, 'x'), (4, 'x'), (5, 'x')"
    pair.sources["s1"].run(rows.format(pair.name))
    pair.run()
    assert [type(error) for error in pair.stopped().values()] == [Collision], "in the first step: nothing is written"
    pair.sources["s2"].run(f"UPDATE {pair.name}.a_3 SET id = 15")
    pair.run()
    pair.assert_settled()
    pair.sources["s1"].run(rows.format(pair.name).replace("(", "(1"))
    pair.pull("s1")
    for _ in range(2):
        with pytest.raises(Collision, match="id = 15"):
            pair.window("s1")
        assert not pair.stopped()
        pair.restart()
    assert pair.target.run(f"SELECT v FROM {pair.table('a')} WHERE id = 15") == [("first",)]
    pair.sources["s2"].run(f"DELETE FROM {pair.name}.a_3")
    pair.pull("s2")
    pair.window("s2")
    pair.run()
    pair.assert_settled()


def test_a_filter_stops_a_target_until_it_says_something_else(pair: LiveTask) -> None:
    rule = {"schema-pattern": pair.name, "table-pattern": "a_*", "events": ["delete"], "action": "Error"}
    change(pair, filters={"no-deletes": rule})
    set_options(pair, **{"filter-rules": ["no-deletes"]})
    pair.sources["s1"].run(
        f"USE {pair.name}",
        "INSERT INTO a_1 VALUES (1, 'x'), (2, 'y')",
        "DELETE FROM a_1 WHERE id = 2",
        "INSERT INTO b_1 VALUES (1, 'x')",
    )
    pair.run()
    assert [error.code for error in pair.stopped().values()] == ["US-6023"] and pair.assert_union("b") == 1
    change(pair, filters={"no-deletes": {**rule, "action": "Ignore"}})
    pair.run()
    assert not pair.stopped()
    assert pair.target.run(f"SELECT id FROM {pair.table('a')} ORDER BY id") == [(1,), (2,)]


def test_a_target_that_is_altered_while_a_window_fails_is_tried_again_at_once(pair: LiveTask, monkeypatch) -> None:
    """As by a forced lock: the target's structure changes between the error and the decision about it."""
    pair.target.run(f"ALTER TABLE {pair.table('a')} MODIFY v VARCHAR(3)")

    def altered(*given: Any) -> tuple[tasks.Result, ...]:
        results = run_job(*given)
        pair.target.run(f"ALTER TABLE {pair.table('a')} MODIFY v VARCHAR(20)")
        return results

    monkeypatch.setattr(sync, "run_job", altered)
    pair.sources["s1"].run(f"INSERT INTO {pair.name}.a_1 VALUES (1, 'longer')")
    pair.run()
    assert not pair.stopped()
    pair.assert_settled()


def test_a_new_target_that_cannot_be_made_stops_alone(pair: LiveTask) -> None:
    body = yaml.safe_load(pair.path.read_text())
    extract = {"table-regexp": "c_(.*)", "target-column": "of_table"}
    change(pair, routes={**body["routes"], "c": {**body["routes"]["c"], "extract-table": extract}})
    create = f"CREATE TABLE {pair.name}.c_1 ({COLUMNS})"
    for statements in ([create], [f"INSERT INTO {pair.name}.c_1 VALUES (1, 'x')"]):
        pair.sources["s1"].run(*statements, f"REPLACE INTO {pair.name}.b_1 VALUES ({len(statements[0])}, 'x')")
        pair.run()
        assert [(name, error.code) for (_, name), error in pair.stopped().items()] == [("c", "US-6017")]
        assert pair.assert_union("b")
    retried = run(pair.work())
    assert [trouble.error.code for trouble in retried.errors] == ["US-6001"]
    pair.target.run(f"CREATE TABLE {pair.table('c')} ({COLUMNS}, of_table VARCHAR(9))")
    pair.run()
    assert pair.target.run(f"SELECT * FROM {pair.table('c')}") == [(1, "x", "1")] and not pair.stopped()
    pair.assert_settled()


def change(task: LiveTask, **more: Any) -> None:
    """Change the task file."""
    task.path.write_text(yaml.safe_dump({**yaml.safe_load(task.path.read_text()), **more}))
    task.restart()


BREAKS = (
    ("ALTER TABLE a ENGINE = Aria", "ALTER TABLE a ENGINE = InnoDB"),
    ("CREATE TRIGGER never BEFORE INSERT ON a FOR EACH ROW SIGNAL SQLSTATE '45000'", "DROP TRIGGER never"),
    ("RENAME TABLE a TO away", "RENAME TABLE away TO a"),
)


@pytest.mark.mariadb_only("it stops targets by triggers, which TiDB lacks")
@pytest.mark.parametrize("seed", range(2))
def test_whatever_stops_and_goes_on_and_dies_in_any_order_nothing_is_lost_or_doubled(
    pair: LiveTask, monkeypatch, seed: int
) -> None:
    """Sources with keys in common, a target that breaks and is mended, deaths around any step; then all is mended."""
    dice = random.Random(seed)
    shards = [("s1", "a_1"), ("s1", "a_2"), ("s2", "a_3"), ("s1", "b_1")]
    for module, name in ((suspending, "stopped_by"), (SuspendedTargets, "stop"), (Windows, "commit"), (sync, "_move")):
        monkeypatch.setattr(module, name, mortal(dice, getattr(module, name)))
    broken = ""
    for number in range(60):
        source, shard = dice.choice(shards)
        key = dice.randrange(6) if dice.random() < 0.3 else 10 * shards.index((source, shard)) + dice.randrange(10)
        statement = dice.choice(("REPLACE INTO {} VALUES ({}, {})", "DELETE FROM {} WHERE id = {}"))
        pair.sources[source].run(f"USE {pair.name}", statement.format(shard, key, number))
        if dice.random() < 0.4:
            living_on(pair, lambda: advance(pair, dice.choice(("s1", "s2"))))
        if dice.random() < 0.1:
            suspending.retry(pair.work(), pair.work().meta.suspended_targets.all())
        if dice.random() < 0.1:
            statement, mending = (broken, "") if broken else dice.choice(BREAKS)
            pair.target.run(f"USE {pair.name}_to", statement)
            broken = mending
    if broken:
        pair.target.run(f"USE {pair.name}_to", broken)
    living_on(pair, pair.run)
    pair.assert_union("b")
    for source, shard in shards[:3]:
        pair.sources[source].run(f"DELETE FROM {pair.name}.{shard} WHERE id < 6")
    for _ in range(3):  # what one source gives up may be what the other waits for
        living_on(pair, pair.retry)
    assert pair.stopped() == {}
    # A death behind a commit leaves files that nothing names, until rows are held again.
    assert not [state for state in pair.work().meta.structures.shards() if state.held]
    pair.assert_union("a")
    pair.assert_union("b")


def advance(task: LiveTask, source: str) -> None:
    task.pull(source)
    task.window(source)


def living_on(task: LiveTask, step: Callable[[], None]) -> None:
    while True:
        try:
            return step()
        except Died:
            task.restart()


class Died(BaseException):
    """The process ended here."""


def mortal(dice: random.Random, step: Callable[..., Any]) -> Callable[..., Any]:
    """Let the process die before or after a step, at random."""

    def taken(*given: Any) -> Any:
        if dice.random() < 0.07:
            raise Died
        found = step(*given)
        if dice.random() < 0.07:
            raise Died
        return found

    return taken
