"""`unshard cutover` switches writers to the target: beside them, through deaths, and back when anything fails."""

import contextlib
import json
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import pymysql
import pytest
from pymysql.connections import Connection

from tests.dying import Died, mortal
from tests.integration.validate.test_under_load import ROWS, repeated
from tests.lifetask import LifeTask, living
from tests.running import while_up
from unshard.adapters import serverstate, upstream
from unshard.adapters.meta.cutoverrecords import Cutovers
from unshard.cli.app import main
from unshard.core.ddl.issuedcommands import IssuedCommand
from unshard.core.validate.cutoverstate import CutoverPhase, StoredCutover, Who
from unshard.errors.meta import CutoverBlocked, CutoverDone, CutoverLate, CutoverNotProven
from unshard.units.task import cutover, lifecycle
from unshard.units.task.cutover import CutoverOptions, abort_cutover, obstacles, run_cutover
from unshard.units.validate import ranges, validate
from unshard.units.validate.ranges import Sum
from unshard_demo.processes import await_true
from unshard_demo.servers import MariaDb, start_server

pytestmark = [pytest.mark.integration, pytest.mark.on_tidb]
COMMAND = IssuedCommand("cutover", "ann", "test", "because")
APP = "app"
"""The account of an application: it may not write into a server that is read-only."""
REFUSED = 1290
SECONDS = 600.0
PAUSE_SECONDS = 0.005
"""Between two transactions of a writer."""


@pytest.fixture(scope="module")
def own_sources(server_folder: Path) -> Iterator[dict[str, MariaDb]]:
    """Two sources that no other test uses, because a cutover makes them read-only."""
    with contextlib.ExitStack() as stack:
        yield {
            source: stack.enter_context(while_up(start_server(server_folder / f"cutover-{source}", server_id=number)))
            for number, source in enumerate(("s1", "s2"), start=801)
        }


@pytest.fixture
def task(own_sources: dict[str, MariaDb], target: MariaDb, unique: str, tmp_path: Path) -> Iterator[LifeTask]:
    with living(unique, tmp_path, own_sources, target) as made:
        for number, (source, server) in enumerate(own_sources.items()):
            shard, first = made.make_shard(source, number), 1 + number * 1_000_000
            server.run(
                f"ALTER TABLE {shard} MODIFY id INT AUTO_INCREMENT",
                f"INSERT INTO {shard} SELECT {first} + seq, CONCAT('row ', seq) FROM {made.name}.seq_0_to_{ROWS - 1}",
                f"CREATE OR REPLACE USER {APP} IDENTIFIED BY '{server.password}'",
                f"GRANT ALL ON {made.name}.* TO {APP}",
            )
        made.go()
        yield made
        for server in own_sources.values():
            server.run("SET GLOBAL read_only = OFF")


@contextlib.contextmanager
def application(task: LifeTask) -> Iterator[list[int]]:
    """Write into all shards until the block ends; yield the numbers of the writers that a source has refused."""
    refused: list[int] = []

    def write(writer: int, connection: Connection, shard: str, number: int) -> None:
        first, count = 1 + writer * 1_000_000, ROWS + number
        try:
            connection.cursor().execute(f"INSERT INTO {shard} VALUES ({first + count}, 'new')")
            connection.cursor().execute(f"UPDATE {shard} SET v = '{count}' WHERE id = {first + count % ROWS}")
        except pymysql.err.OperationalError as error:
            assert error.args[0] == REFUSED
            refused.append(writer)
        time.sleep(PAUSE_SECONDS)

    with contextlib.ExitStack() as stack:
        for writer, (source, (shard,)) in enumerate(task.shards.items()):
            server = task.sources[source]
            account = {"host": "127.0.0.1", "port": server.port, "user": APP, "password": server.password}
            connection = stack.enter_context(contextlib.closing(pymysql.connect(**account, autocommit=True)))
            stack.enter_context(repeated(partial(write, writer, connection, shard)))
        yield refused


def cut(task: LifeTask, **options: float | bool) -> StoredCutover:
    with task.work() as work:
        return run_cutover(work, COMMAND, CutoverOptions(**{"sets_read_only": True, **options}))


def are_read_only(task: LifeTask) -> list[bool]:
    return [bool(server.run("SELECT @@read_only")[0][0]) for server in task.sources.values()]


def assert_cut_over(task: LifeTask, done: StoredCutover) -> None:
    """Assert that the certificate is true: positions, rows, the union by plain SQL, read-only sources, the pause."""
    found = json.loads(done.certificate)
    ends = {}
    for source, server in task.sources.items():
        with contextlib.closing(server.connect()) as connection:
            ends[source] = str(upstream.location(connection))
    assert {each["source"]: each["position"] for each in found["sources"]} == ends
    assert [each["rows"] for each in found["tables"]] == [task.assert_union()]
    assert done.phase is CutoverPhase.DONE and are_read_only(task) == [True, True]
    with task.work() as work:
        assert "cut over" in str(work.meta.pauses.get())


def test_writers_are_switched_under_load(task: LifeTask) -> None:
    with application(task) as refused:
        done = cut(task)
        assert_cut_over(task, done)
        refused.clear()
        await_true(lambda: {*refused} == {0, 1}, SECONDS, [], "no application can write after the certificate")
    assert cut(task).certificate == done.certificate, "a second call shows it"
    with task.work() as work, pytest.raises(CutoverDone):
        abort_cutover(work, COMMAND)
    with task.work() as work:
        lifecycle.resume(work, "ann", "test", "applications go back")
    again = cut(task)
    assert_cut_over(task, again)
    assert again.certificate != done.certificate


def test_it_may_be_killed_at_every_step(task: LifeTask, monkeypatch: pytest.MonkeyPatch) -> None:
    deaths = mortal(monkeypatch, Cutovers, "put")
    more = mortal(monkeypatch, serverstate, "set_read_only")
    last = mortal(monkeypatch, cutover, "restore")
    done = None
    with application(task):
        while done is None:
            with contextlib.suppress(Died):
                done = cut(task)
        monkeypatch.undo()
        assert_cut_over(task, done)
    assert deaths["put"] > 5 and more["set_read_only"] > 3 and last["restore"]


def test_a_death_after_the_certificate_leaves_only_the_pause(task: LifeTask, monkeypatch: pytest.MonkeyPatch) -> None:
    deaths = mortal(monkeypatch, Cutovers, "put")
    monkeypatch.setattr(cutover.lifecycle, "pause", lambda *_: (_ for _ in ()).throw(Died()))
    with task.work() as work:
        while (stored := work.meta.cutovers.get()) is None or stored.phase is not CutoverPhase.DONE:
            with contextlib.suppress(Died):
                cut(task)
    assert deaths["put"]
    monkeypatch.undo()
    assert main(["cutover", "run", str(task.path), "--yes", "--reason", "again"]) == 0
    with task.work() as work:
        assert work.meta.cutovers.get() == stored
    assert_cut_over(task, stored)


def test_what_is_in_the_way_after_a_death_gives_the_sources_back(
    task: LifeTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cutover, "restore", lambda *_: None)
    monkeypatch.setattr(cutover._Cutover, "_finish", lambda *_: (_ for _ in ()).throw(Died()))
    with pytest.raises(Died):
        cut(task)
    monkeypatch.undo()
    assert are_read_only(task) == [True, True]
    with task.work() as work:
        lifecycle.pause(work, "ann", "test", "meanwhile")
    with pytest.raises(CutoverBlocked, match="paused"):
        cut(task)
    assert are_read_only(task) == [False, False]


def test_after_a_death_the_sources_are_as_before_an_abort_later(
    task: LifeTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cutover, "restore", lambda *_: None)  # as if the process was killed
    monkeypatch.setattr(cutover.serverstate, "is_read_only", lambda _: (_ for _ in ()).throw(Died()))
    with application(task) as refused:
        with pytest.raises(Died):
            cut(task)
        monkeypatch.undo()
        with task.work() as work:
            assert abort_cutover(work, COMMAND) is not None
            assert abort_cutover(work, COMMAND) is None, "nothing is left"
        assert are_read_only(task) == [False, False]
        refused.clear()
    assert not refused
    task.go()
    task.assert_union()


def test_sources_are_as_before_when_the_time_is_over(task: LifeTask) -> None:
    task.sources["s2"].run("SET GLOBAL read_only = ON")
    with application(task), pytest.raises(CutoverLate):
        cut(task, within=-1.0)
    assert are_read_only(task) == [False, True], "s2 was read-only before"
    with task.work() as work, pytest.raises(CutoverLate, match="s1"):
        run_cutover(work, COMMAND, CutoverOptions(wait=0.1))
    task.sources["s1"].run("SET GLOBAL read_only = ON")
    assert_cut_over(task, cut(task, sets_read_only=False))


def test_two_cutovers_of_a_task_do_not_mix(task: LifeTask) -> None:
    other = f"SELECT GET_LOCK('unshard cutover {task.body['name']}', 1)"
    with contextlib.closing(task.target.connect()) as connection:
        connection.cursor().execute(other)
        with pytest.raises(CutoverBlocked, match="another process"):
            cut(task)


def test_a_wrong_row_ends_it_before_a_source_is_touched(task: LifeTask, monkeypatch: pytest.MonkeyPatch) -> None:
    task.target.run(f"UPDATE {task.name}_to.t SET v = 'wrong' WHERE id = 100")
    monkeypatch.setattr(serverstate, "set_read_only", None)
    with pytest.raises(CutoverNotProven, match="id=100"):
        cut(task)
    assert are_read_only(task) == [False, False]


def test_a_row_that_changes_after_its_proof_is_proven_again(task: LifeTask, monkeypatch: pytest.MonkeyPatch) -> None:
    """The row of the target is spoilt between the rounds, and its key is in the binlog."""
    switch = serverstate.set_read_only

    def spoil(*given: object) -> None:
        (shard,) = task.shards["s1"]
        task.sources["s1"].run(f"UPDATE {shard} SET v = 'touched' WHERE id = 100")
        task.target.run(f"UPDATE {task.name}_to.t SET v = 'wrong' WHERE id = 101")
        switch(*given)

    monkeypatch.setattr(serverstate, "set_read_only", spoil)
    with pytest.raises(CutoverNotProven, match="id=101"):
        cut(task)
    monkeypatch.undo()
    assert are_read_only(task) == [False, False]


def test_a_range_that_is_found_equal_by_its_rows_is_in_the_checksum(
    task: LifeTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change between the two sums of a range makes it so; here the sources are read-only when it is looked at."""
    looked: list[bool] = []

    def agree(sums: Mapping[str, Sum]) -> bool:
        looked.append(all(are_read_only(task)))
        return looked.count(True) != 1 and ranges.agree(sums)

    switch = serverstate.set_read_only

    def touch(*given: object) -> None:
        (shard,) = task.shards["s1"]
        task.sources["s1"].run(f"UPDATE {shard} SET v = 'touched' WHERE id = 100")
        switch(*given)

    monkeypatch.setattr(serverstate, "set_read_only", touch)
    monkeypatch.setattr(validate, "agree", agree)
    done = cut(task)
    monkeypatch.undo()
    assert looked.count(True) > 1
    with task.work() as work:
        lifecycle.resume(work, "ann", "test", "to compare")
    again = cut(task)
    assert json.loads(done.certificate)["tables"] == json.loads(again.certificate)["tables"]


def test_the_plan_names_what_stands_in_the_way(task: LifeTask, capsys: pytest.CaptureFixture[str]) -> None:
    (first,), (second,) = task.shards.values()
    view, trigger = f"{task.name}.names", f"{task.name}.stamp"
    task.sources["s1"].run(
        f"CREATE VIEW {view} AS SELECT v FROM {first}",
        f"CREATE TRIGGER {trigger} BEFORE INSERT ON {first} FOR EACH ROW SET NEW.v = UPPER(NEW.v)",
    )
    with task.work() as work:
        assert {(each.who, each.about) for each in obstacles(work)} == {(Who.LATER, "view"), (Who.LATER, "trigger")}
    assert main(["cutover", "plan", str(task.path)]) == 0
    shown = capsys.readouterr().out
    assert f"s1 {view}" in shown and f"s1 {trigger}" in shown

    task.sources["s1"].run(f"ALTER TABLE {first} ADD w INT")
    task.go()
    assert main(["cutover", "plan", str(task.path)]) == 3
    assert "before the cutover, by you:" in capsys.readouterr().out
    with pytest.raises(CutoverBlocked, match="lock"):
        cut(task)
    task.sources["s2"].run(f"ALTER TABLE {second} ADD w INT")
    task.go()
    assert_cut_over(task, cut(task))


def test_rows_that_the_target_lacks_are_in_the_way(task: LifeTask) -> None:
    for source, (shard,) in task.shards.items():
        task.sources[source].run(f"INSERT INTO {shard} VALUES (9000000, '{source}')")
    task.run()
    with task.work() as work:
        assert "unshard collisions" in {each.next_step for each in obstacles(work)}
    with pytest.raises(CutoverBlocked):
        cut(task)


def test_what_the_target_lacks_is_created(task: LifeTask, capsys: pytest.CaptureFixture[str]) -> None:
    for source, (shard,) in task.shards.items():
        task.sources[source].run(
            f"ALTER TABLE {shard} ADD up INT, ADD CONSTRAINT tree FOREIGN KEY (up) REFERENCES {shard} (id)"
        )
    task.go()
    (shard,) = task.shards["s1"]
    row = f"INSERT INTO {shard} (id, v) VALUES (5000000, 'x')"
    task.sources["s1"].run("BEGIN", row, f"DELETE FROM {shard} WHERE v = 'x'", "COMMIT")
    assert main(["cutover", "run", str(task.path), "--read-only", "--yes", "--reason", "now"]) == 0
    into = f"{task.name}_to.t"
    task.target.run(f"INSERT INTO {into} (v) VALUES ('first of the target')")
    ((number,),) = task.target.run(f"SELECT id FROM {into} WHERE v = 'first of the target'")
    assert int(str(number)) > 5000000
    assert "REFERENCES" in str(task.target.run(f"SHOW CREATE TABLE {into}"))
    capsys.readouterr()
    for words in (["plan", str(task.path)], ["run", str(task.path), "--yes"]):
        assert main(["cutover", *words]) == 0
        shown = capsys.readouterr().out
        assert "cut over at" in shown and "by you" not in shown, "it shows the certificate"
