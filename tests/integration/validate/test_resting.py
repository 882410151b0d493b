"""`unshard validate` leaves time to windows that run beside it."""

from dataclasses import replace

import pytest

from tests.integration.validate.test_under_load import ROWS, SETTINGS, loaded
from tests.lifetask import LifeTask, task
from unshard.adapters.meta.taskrecords import window_of
from unshard.core.model import TableId
from unshard.core.validate import pace
from unshard.units.validate import pacing
from unshard.units.validate.validate import Chunked, TableResult, Yielding, validate

__all__ = ["loaded", "task"]
pytestmark = [pytest.mark.integration, pytest.mark.on_tidb]


def beside_a_window(task: LifeTask, told: list[object]) -> TableResult:
    """Compare while a window of s1 is at work; after the first range a change of 100 seconds ago is unread."""

    def watch(each: object) -> None:
        if not told:
            task.insert("s1", task.shards["s1"][0], 900_000)
            task.target.run(
                f"UPDATE {task.meta_schema}.checkpoint SET last_time = UNIX_TIMESTAMP() - 100 WHERE source = 's1'"
            )
        told.append(each)

    settings = replace(SETTINGS, rows_per_shard=1, threads=1, wait=0.0, rests=pace.RESTS)
    with task.work() as work, work.meta.active_workers.at(window_of("s1")):
        (found,) = validate(work, settings=settings, watch=watch)
    return found


def test_it_waits_for_windows_whose_lag_has_grown(loaded: LifeTask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "LOOK_SECONDS", 0.0)
    told: list[object] = []
    found = beside_a_window(loaded, told)
    assert Yielding(TableId(f"{loaded.name}_to", "t"), ("s1",)) in told
    assert not found.differs and [each.key for each in found.pending] == [("900000",)]
    assert isinstance(told[-2], Chunked) and told[-2].rows == 2 * ROWS, "it goes on nevertheless"
    loaded.go()
    loaded.assert_union()
