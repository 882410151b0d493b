"""Operators' commands on real servers, by the command line and the coordinator: no rows, so no Spark."""

import contextlib
import json
from collections.abc import Iterator
from typing import TypeVar

import pytest

from tests.dying import Died
from tests.integration.task.test_cli import World
from unshard.adapters import mysql, upstream
from unshard.adapters.structures import read_schemas
from unshard.cli import main
from unshard.config import load_task
from unshard.core.model import Shard, TableId
from unshard.units.ddl import coordinate, execute
from unshard.units.relay import pull
from unshard.units.window.sync import run_window
from unshard.units.work import Work, open_work

pytestmark = pytest.mark.integration

FIRST, SECOND = ("s1", "t_s1"), ("s2", "t_s2")
AT = "--reason", "because", "--yes"


class Service:
    """A task whose sources are in sync, and its operator."""

    def __init__(self, world: World, work: Work, say) -> None:
        self.world, self.work, self._say = world, work, say
        self.target = f"{world.schema}.t"
        for source, table in (FIRST, SECOND):
            self._begin(source, TableId(f"{world.schema}_1", table))

    def _begin(self, source: str, table: TableId) -> None:
        """Create the state after full load and handover for an empty shard."""
        meta, target = self.work.meta, TableId(self.world.schema, "t")
        with contextlib.closing(mysql.connect(self.work.sources[source])) as connection:
            about = upstream.inspect(connection, source)
            schema = read_schemas(connection, [table])[table]
        meta.sources.add(source, about.identity, about.flavor)
        meta.structures.put(schema)
        meta.structures.record(Shard(source, table), target, about.end, schema.digest)
        meta.checkpoints.start(source, about.end, about.gtid)

    def ddl(self, shard: tuple[str, str], spec: str) -> None:
        """Let a shard run a DDL, and a window queue it."""
        source, table = shard
        getattr(self.world, source).run(f"ALTER TABLE {self.world.schema}_1.{table} {spec}")
        at = self.work.meta.checkpoints.get(source).location
        pull.pull(source, self.work.sources[source], self.work.store, at)
        while run_window(self.work, source).moved:
            pass
        coordinate.observe(self.work.meta)

    def run(self, *given: str) -> tuple[int, dict]:
        code = main([given[0], str(self.world.path), *given[1:], "--json"])
        return code, json.loads(self._say())

    def order(self, *given: str) -> dict:
        """Issue a command; its dry run changes nothing."""
        before = self.state()
        code, dry = self.run(*given, "--dry-run")
        assert (code, dry["dry_run"]) == (0, True) and dry["effects"] and self.state() == before
        code, done = self.run(*given, *AT)
        assert code == 0, done
        assert done["effects"] == dry["effects"]
        return done["lock"]

    def state(self) -> list[list[tuple]]:
        tables = ("ddl_lock", "ddl_lock_member", "shard_ddl", "shard", "ddl_history", "operator_action", "held_rows")
        return [self.world.target.run(f"SELECT * FROM {self.world.schema}_meta.{table}") for table in tables]

    def lock(self) -> dict | None:
        """Return the open lock of the target."""
        code, found = self.run("locks")
        assert code == (3 if found["locks"] else 0)
        return next(iter(found["locks"]), None)

    def shard(self, shard: tuple[str, str]) -> str:
        return f"{shard[0]}/{self.world.schema}_1.{shard[1]}"

    def columns(self) -> list[str]:
        return [row[0] for row in self.world.target.run(f"SHOW COLUMNS FROM {self.target}")]

    def orders(self) -> list[str]:
        return [action.action for action in self.work.meta.locks.actions()]

    def executed(self) -> list[tuple[str, str]]:
        return [(one.ddl.split(" ", 3)[-1], one.outcome) for one in self.work.meta.locks.executions()]


D = TypeVar("D", bound=Service)


@contextlib.contextmanager
def sitting_at(kind: type[D], world: World, capsys: pytest.CaptureFixture[str]) -> Iterator[D]:
    """Open a service over a task, and clean the servers after the test."""
    with open_work(load_task(world.path)) as work:
        yield kind(world, work, lambda: capsys.readouterr().out)
    for server in (world.s1, world.s2):
        server.run(f"DROP DATABASE {world.schema}_1")
    world.target.run(f"DROP DATABASE {world.schema}", f"DROP DATABASE {world.schema}_meta")


@pytest.fixture
def desk(source_1, source_2, target, unique, tmp_path, monkeypatch, capsys) -> Iterator[Service]:
    monkeypatch.setenv("UNSHARD_DB_PASSWORD", "unshard")
    with sitting_at(Service, World(source_1, source_2, target, unique, tmp_path), capsys) as found:
        yield found


def test_forced_with_an_owner_then_the_same_comes_late_then_another(desk: Service) -> None:
    desk.ddl(FIRST, "ADD a INT")
    lock = desk.lock()
    assert (lock["state"], lock["missing"]) == ("waiting", [f"s2 {desk.world.schema}_1.t_s2"])
    assert desk.run("unlock", lock["id"], "--owner", "s2", *AT)[1]["error"]["code"] == "US-5032"
    assert desk.order("unlock", lock["id"], "--owner", "s1")["outcome"] == "executed"
    assert desk.columns() == ["id", "v", "a"] and desk.lock() is None
    desk.ddl(SECOND, "ADD a INT")
    assert desk.lock() is None and desk.executed() == [("ADD a INT", "executed")]
    desk.ddl(FIRST, "ADD b INT")
    desk.order("unlock", desk.lock()["id"])
    desk.ddl(SECOND, "ADD b BIGINT")
    lock = desk.lock()
    assert lock["state"] == "conflict" and "must first skip" in lock["conflicts"][0]["differences"][0]
    desk.order("skip", lock["id"], "--shard", desk.shard(SECOND))
    assert desk.lock() is None and desk.columns() == ["id", "v", "a", "b"]
    assert desk.orders() == ["unlock", "unlock", "skip"]
    assert desk.run("skip", lock["id"], *AT)[1]["error"]["code"] == "US-5030"


def test_dry_run_of_a_shard_that_has_the_ddl_and_owes_another(desk: Service) -> None:
    desk.ddl(FIRST, "ADD a INT")
    desk.order("unlock", desk.lock()["id"])
    desk.ddl(SECOND, "ADD b INT")
    lock, shard = desk.lock(), f"s2 {desk.world.schema}_1.t_s2"
    assert (lock["state"], lock["ready"]) == ("conflict", [shard])
    assert "must first skip" in lock["conflicts"][0]["differences"][0]
    told = desk.run("replace", lock["id"], "--sql", f"ALTER TABLE {desk.target} ADD c INT", "--dry-run")[1]["effects"]
    assert any("must skip an earlier DDL first" in line for line in told)
    effects = desk.run("unlock", lock["id"], "--dry-run")[1]["effects"]
    assert not any("ran another DDL" in line for line in effects) and f"held rows of {shard} are released" in effects
    desk.order("unlock", lock["id"])
    assert desk.lock() is None and desk.columns() == ["id", "v", "a", "b"]


def test_skipped_for_all(desk: Service) -> None:
    desk.ddl(FIRST, "ADD a INT")
    assert desk.order("skip", desk.lock()["id"])["outcome"] == "skipped"
    desk.ddl(SECOND, "ADD a INT")
    assert desk.lock() is None and desk.columns() == ["id", "v"] and desk.executed() == []


def test_conflict_is_shown_word_by_word_and_replaced(desk: Service) -> None:
    desk.ddl(FIRST, "ADD a VARCHAR(20)")
    desk.ddl(SECOND, "ADD a VARCHAR(30)")
    lock = desk.lock()
    assert lock["conflicts"][0]["differences"] == ["`30` instead of `20`"]
    unfit = desk.run("replace", lock["id"], "--shard", desk.shard(SECOND), "--sql", "DROP TABLE t", *AT)
    assert unfit[1]["error"]["code"] == "US-5036"
    assert main(["locks", str(desk.world.path)]) == 3
    said = desk._say()
    assert "`30` instead of `20`" in said and f"--shard {desk.shard(SECOND)}" in said
    wanted = f"ALTER TABLE {desk.world.schema}_1.t_s2 add a varchar(20)"
    assert desk.order("replace", lock["id"], "--shard", desk.shard(SECOND), "--sql", wanted)["outcome"] == "executed"
    assert desk.columns() == ["id", "v", "a"] and desk.lock() is None


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("step", [1, 2])
def test_replaced_by_two_statements_and_killed_at_each(desk: Service, monkeypatch, step: int, after: bool) -> None:
    """The target refuses the DDL, because it already has such a column of another type."""
    desk.world.target.run(f"ALTER TABLE {desk.target} ADD a SMALLINT")
    for shard in (FIRST, SECOND):
        desk.ddl(shard, "ADD a INT")
    lock = desk.lock()["id"]
    assert coordinate.execute(desk.work.meta, desk.work.target, lock).state == "failed"
    run, calls = execute._run, []

    def dying(*given) -> None:
        calls.append(given)
        if len(calls) == step and not after:
            raise Died
        run(*given)
        if len(calls) == step:
            raise Died

    statements = "--sql", f"ALTER TABLE {desk.target} MODIFY a BIGINT", "--sql", f"CREATE INDEX ia ON {desk.target} (a)"
    with monkeypatch.context() as patch:
        patch.setattr(execute, "_run", dying)
        with pytest.raises(Died):
            desk.run("replace", lock, *statements, *AT)
    found = desk.lock()
    assert (found["statements_done"], len(found["statements"])) == (step - 1, 2)
    assert desk.run("skip", lock, *AT)[1]["error"]["code"] == "US-5033"
    assert coordinate.execute(desk.work.meta, desk.work.target, lock).outcome == (
        "present" if after and step == 2 else "executed"
    )
    outcomes = ["present" if after and number == step else "executed" for number in (1, 2)]
    assert [outcome for _, outcome in desk.executed()] == outcomes
    ((_, text),) = desk.world.target.run(f"SHOW CREATE TABLE {desk.target}")
    assert "`a` bigint(20)" in text and "KEY `ia` (`a`)" in text
    assert main(["locks", str(desk.world.path), "--all"]) == 0
    said = desk._say().splitlines()
    assert [line.split("ALTER")[0].split("CREATE")[0] for line in said if "instead" in line] == ["  instead  "] * 2


def test_a_run_says_what_it_has_executed(desk: Service) -> None:
    desk.ddl(FIRST, "ADD a INT")
    wanted = f"ALTER TABLE {desk.target}\n MODIFY v varchar(200)"
    assert desk.order("replace", desk.lock()["id"], "--sql", wanted)["state"] == "waiting"
    getattr(desk.world, SECOND[0]).run(f"ALTER TABLE {desk.world.schema}_1.{SECOND[1]} ADD a INT")
    assert main(["run", str(desk.world.path)]) == 0
    (line,) = (line for line in desk._say().splitlines() if ": executed: " in line)
    assert line.endswith("MODIFY v varchar(200)")


def test_dropped_shard_is_not_waited_for_and_passed_over_until_it_is_made_again(desk: Service) -> None:
    desk.ddl(SECOND, "ADD z INT")
    desk.ddl(FIRST, "ADD a INT")
    lock = desk.lock()
    assert desk.run("drop-shard", lock["id"], "--shard", "s2/no.such", *AT)[1]["error"]["code"] == "US-5034"
    assert desk.order("drop-shard", lock["id"], "--shard", desk.shard(SECOND))["outcome"] == "withdrawn"
    assert desk.order("unlock", desk.lock()["id"])["outcome"] == "executed"
    desk.ddl(SECOND, "ADD y INT")
    assert desk.lock() is None and desk.columns() == ["id", "v", "a"]
    assert [state.queue for state in desk.work.meta.structures.shards("s2")] == [()]
    code, compared = desk.run("validate")
    assert (code, compared["tables"][0]["shards"]) == (0, 1), "its columns, and what it brings since, are nobody's loss"
    name = f"{desk.world.schema}_1.t_s2"
    desk.world.s2.run(f"DROP TABLE {name}", f"CREATE TABLE {name} (id int PRIMARY KEY, v varchar(9), a int)")
    desk.ddl(SECOND, "ADD b INT")
    lock = desk.lock()
    assert (lock["state"], lock["ready"]) == ("waiting", [f"s2 {name}"])
