"""A connection that breaks at any statement ends in a retry or a coded error, and the next attempt goes on."""

import shutil
import tempfile
from itertools import count
from pathlib import Path

import pytest

from tests.cutting import cut_at_commit
from tests.lifetask import LifeTask, task
from unshard.adapters.meta import Meta
from unshard.core.model import Location
from unshard.errors import UnshardError
from unshard.errors.source import ConnectionLost
from unshard.errors.storage import SparkTaskCrashed
from unshard.errors.task import UnexpectedError
from unshard.units.limits import Limits
from unshard.units.relay.pull import RelayReport
from unshard.units.relay.tasksource import pull_source
from unshard.units.task.run import Trouble
from unshard.units.work import Work
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration
__all__ = ["task"]

ANY_STATEMENT = b"\x03"
ARRIVES = pytest.mark.parametrize("arrives", [False, True], ids=["lost statement", "lost answer"])


@ARRIVES
def test_a_connection_that_breaks_while_meta_tables_are_created(target: MariaDb, unique: str, arrives: bool) -> None:
    lost, number, is_cut = [], 0, True
    while is_cut:
        number += 1
        with cut_at_commit(target, arrives=arrives, number=number, statement=ANY_STATEMENT) as (cut, way):
            meta = Meta(cut.server, unique, "task")
            try:
                meta.migrate()
                target.run(f"DROP DATABASE {unique}")  # complete; so that the next attempt begins again
            except ConnectionLost as error:
                lost.append(error.where)
            finally:
                meta.close()
            is_cut = way.broken.is_set()
    assert len(lost) > 30 and set(lost) == {"target (meta tables)"}


@ARRIVES
@pytest.mark.parametrize(("is_full", "every"), [(False, 13), (True, 41)], ids=["windows", "full load"])
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


def point_at(task: LifeTask, port: int) -> None:
    task.body["target-database"]["port"] = port
    task.write()


def test_an_unexpected_error_of_one_source_does_not_stop_the_other(
    task: LifeTask, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    task.go()
    for first, (source, (shard,)) in zip((10, 20), task.shards.items(), strict=True):
        task.insert(source, shard, first)

    def broken(work: Work, source: str, until: Location) -> RelayReport | None:
        return pull_source(work, source, until=until if source == "s2" else Location("", 1 // 0))

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with monkeypatch.context() as patch:
        patch.setattr("unshard.units.task.run.pull_source", broken)
        (trouble,) = task.run().errors
    assert (trouble.place, trouble.error.code) == ("s1", "US-7012") and "ZeroDivisionError" in str(trouble.error)
    (file,) = tmp_path.glob("unshard-error-*.txt")
    assert str(file) in str(trouble.error) and "1 // 0" in file.read_text()
    assert task.target.run(f"SELECT id FROM {task.name}_to.t WHERE id >= 10") == [(20,)]
    task.go()
    task.assert_union()
