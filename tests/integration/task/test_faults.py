"""A connection that breaks at any statement ends in a retry or a coded error, and the next attempt goes on."""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest
from pymysql.err import OperationalError

from tests.cutting import cut_at_commit
from tests.lifetask import LifeTask, task
from tests.suite.portions import portion
from tests.taskfile import endpoint, write_source
from unshard.adapters.meta import Meta
from unshard.core.checks.items import Severity
from unshard.errors import UnshardError
from unshard.errors.meta import FinishedElsewhere, SparkTaskCrashed, UnexpectedError
from unshard.errors.source import ConnectionLost
from unshard.units.checks.precheck import check
from unshard.units.full import loadchunks
from unshard.units.full.dump import dump
from unshard.units.full.load import load
from unshard.units.full.snapshot import take_snapshot
from unshard.units.task import live
from unshard.units.task.live import Trouble
from unshard.units.window.sync import WindowReport
from unshard.units.work import Limits, Work
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration
__all__ = ["task"]

ANY_STATEMENT = b"\x03"
TO_SOURCE = (ANY_STATEMENT, b"\x12", b"\x15")
"""Statements, and the requests to stream the binlog and to register as a replica."""
ARRIVES = pytest.mark.parametrize("arrives", [False, True], ids=["lost statement", "lost answer"])


@ARRIVES
def test_a_connection_that_breaks_while_meta_tables_are_created(target: MariaDb, unique: str, arrives: bool) -> None:
    lost, number, is_cut = [], 0, True
    while is_cut:
        number += 1
        with cut_at_commit(target, arrives=arrives, number=number, statement=ANY_STATEMENT) as (cut, way):
            meta = Meta(cut.server, unique, "task")
            try:
                meta.create_tables()
                target.run(f"DROP DATABASE {unique}")  # complete; so that the next attempt begins again
            except ConnectionLost as error:
                lost.append(error.where)
            finally:
                meta.close()
            is_cut = way.broken.is_set()
    assert len(lost) > 30 and set(lost) == {"target (meta tables)"}


@pytest.mark.sample(reason="each cuts the connection at every moment; half of the forms of rows", every=2)
@ARRIVES
@pytest.mark.parametrize(
    ("is_full", "every"), [(False, portion(13, 29, 13)), (True, portion(41, 193, 41))], ids=["windows", "full load"]
)
def test_a_run_survives_a_broken_connection_to_the_target(
    task: LifeTask, is_full: bool, every: int, arrives: bool
) -> None:
    """Cut at each n-th statement: no error is a defect, and the next run catches up."""
    task.limits = Limits(pause_seconds=0.01)
    task.go()
    for number in count(1, every):
        if is_full:
            task.target.run(f"DROP DATABASE {task.name}_to", f"DROP DATABASE {task.meta_schema}")
            shutil.rmtree(task.folder / "storage")
        for first, (source, (shard,)) in zip((1000, 2000), task.shards.items(), strict=True):
            task.insert(source, shard, first + number)
        with cut_at_commit(task.target, arrives=arrives, number=number, statement=ANY_STATEMENT) as (cut, way):
            point_at(task, cut.port)
            try:
                errors = task.run().errors
            except UnshardError as error:
                errors = (Trouble("task", error, False),)
            is_cut = way.broken.is_set()
        assert not [str(each.error) for each in errors if isinstance(each.error, UnexpectedError | SparkTaskCrashed)]
        point_at(task, task.target.port)
        task.go()
        task.assert_union()
        if not is_cut:
            break
    assert number > 50


@pytest.mark.parametrize("ends", ["lost statement", "lost answer", "torn answer"])
@pytest.mark.parametrize(("is_full", "every"), [(False, 3), (True, 11)], ids=["windows", "full load"])
def test_a_run_survives_a_broken_connection_to_a_source(task: LifeTask, is_full: bool, every: int, ends: str) -> None:
    """Cut at each n-th message, among them those of the dump and the relay."""
    task.limits = Limits(pause_seconds=0.01)
    task.go()
    arrives, torn = ends != "lost statement", ends == "torn answer"
    for number in count(1, every):
        if is_full:
            task.target.run(f"DROP DATABASE {task.name}_to", f"DROP DATABASE {task.meta_schema}")
            shutil.rmtree(task.folder / "storage")
        for first, (source, (shard,)) in zip((1000, 2000), task.shards.items(), strict=True):
            task.insert(source, shard, first + number)
        server = task.sources["s1"]
        with cut_at_commit(server, arrives=arrives, number=number, statement=TO_SOURCE, torn=torn) as (cut, way):
            write_source(task.folder, "s1", endpoint(cut))
            try:
                errors = task.run().errors
            except UnshardError as error:
                errors = (Trouble("task", error, False),)
            is_cut = way.broken.is_set()
        assert not [str(each.error) for each in errors if isinstance(each.error, UnexpectedError | SparkTaskCrashed)]
        assert not [str(each.error) for each in errors if each.place == "s2"]
        task.write_source("s1")
        task.go()
        task.assert_union()
        if not is_cut:
            break
    assert number > 10


@pytest.mark.parametrize("ends", ["lost statement", "lost answer", "torn answer"])
def test_a_check_reports_a_broken_connection_to_a_source(task: LifeTask, ends: str) -> None:
    arrives, torn, failed = ends != "lost statement", ends == "torn answer", 0
    for number in count(1, 3):
        server = task.sources["s1"]
        with cut_at_commit(server, arrives=arrives, number=number, statement=TO_SOURCE, torn=torn) as (cut, way):
            write_source(task.folder, "s1", endpoint(cut))
            found = check(task.load())
            is_cut = way.broken.is_set()
        errors = {item.code for item in found if item.severity is Severity.ERROR}
        if not is_cut:
            break
        assert UnexpectedError.code not in errors, number
        failed += bool(errors)
    assert not errors and failed > 5


@pytest.mark.mariadb_only("the sessions of transactions are read from innodb_trx")
def test_the_files_of_a_load_that_another_run_has_finished(task: LifeTask, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection that holds the chunk breaks, the other run loads it, and this run still reads its file."""
    with task.work() as work, task.work() as other:
        for source in task.sources:
            take_snapshot(work, source)
            dump(work, source)
        load(work, "s2")
        rows_of = loadchunks._batches

        def overtaken(job: loadchunks.LoadJob, batch: loadchunks.LoadBatch) -> Iterator[pa.RecordBatch]:
            monkeypatch.setattr(loadchunks, "_batches", rows_of)
            for (session,) in task.target.run("SELECT trx_mysql_thread_id FROM information_schema.innodb_trx"):
                with contextlib.suppress(OperationalError):  # its transaction has ended meanwhile
                    task.target.run(f"KILL {session}")
            load(other, "s1")
            yield from rows_of(job, batch)

        monkeypatch.setattr(loadchunks, "_batches", overtaken)
        with pytest.raises(FinishedElsewhere) as caught:
            load(work, "s1")
    assert (caught.value.code, caught.value.transient) == ("US-7104", True)
    task.go()
    assert task.assert_union() == 3


def point_at(task: LifeTask, port: int) -> None:
    task.body["target-database"]["port"] = port
    task.write()


def test_an_unexpected_error_of_one_source_does_not_stop_the_other(
    task: LifeTask, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    task.go()
    for first, (source, (shard,)) in zip((10, 20), task.shards.items(), strict=True):
        task.insert(source, shard, first)

    whole = live.run_window

    def broken(work: Work, source: str) -> WindowReport:
        return whole(work, source if source == "s2" else str(1 // 0))

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with monkeypatch.context() as patch:
        patch.setattr(live, "run_window", broken)
        (trouble,) = task.run().errors
    assert (trouble.place, trouble.error.code) == ("s1", "US-7012") and "ZeroDivisionError" in str(trouble.error)
    (file,) = tmp_path.glob("unshard-error-*.txt")
    assert str(file) in str(trouble.error) and "1 // 0" in file.read_text()
    assert task.target.run(f"SELECT id FROM {task.name}_to.t WHERE id >= 10") == [(20,)]
    task.go()
    task.assert_union()
