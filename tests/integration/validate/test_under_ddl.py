"""While shards run DDL under load, `unshard validate` reports no difference and ends in no error, in both modes."""

import pytest

from tests.integration.validate.test_under_load import judged, loaded, under_load
from tests.lifetask import LifeTask, task

__all__ = ["loaded", "task"]
MODES = "pessimistic", "optimistic"
BOTH = pytest.mark.parametrize("task", [{"shard-mode": mode} for mode in MODES], ids=MODES, indirect=True)
pytestmark = [pytest.mark.integration, pytest.mark.on_tidb, BOTH]
DDL = (
    "ADD w INT DEFAULT 1",
    "MODIFY w BIGINT DEFAULT 1",
    "ADD INDEX k (v)",
    "RENAME COLUMN w TO w2",
    "ADD t {t}",
    "DROP INDEX k",
    "DROP t",
    "DROP w2",
)
T = {"pessimistic": "INT DEFAULT 3", "optimistic": "TIMESTAMP NULL DEFAULT CURRENT_TIMESTAMP"}
"""Pessimistic mode reports that the times of the target are not those of the shards (docs/limits.md)."""


def assert_not_wrong(task: LifeTask, wait: float, what: str) -> None:
    found = judged(task, wait)
    wrong = [each for each in found.differences if not each.because]
    assert (wrong, found.error, found.lost_columns) == ([], None, ()), what


def texts(task: LifeTask, *ddl: str) -> list[str]:
    return [each.format(t=T[task.body["shard-mode"]]) for each in ddl]


@pytest.mark.test_all("a minute; the next test has the states between the DDL of two shards")
def test_shards_that_run_ddl_one_after_the_other(loaded: LifeTask) -> None:
    with under_load(loaded):
        for text in texts(loaded, *DDL):
            for source, (shard,) in loaded.shards.items():
                loaded.sources[source].run(f"ALTER TABLE {shard} {text}")
                for wait in (0.0, 3.0):
                    assert_not_wrong(loaded, wait, f"after {source}: {text}")
    loaded.go()
    loaded.go()
    loaded.assert_union()


def test_a_column_that_only_one_shard_has(loaded: LifeTask) -> None:
    """The target fills it in the rows of the other by its clock, which no value of a shard can be compared with."""
    for text in texts(loaded, "ADD t {t}", "ADD w INT DEFAULT 5"):
        for source, (shard,) in loaded.shards.items():
            loaded.sources[source].run(f"ALTER TABLE {shard} {text}")
            assert_not_wrong(loaded, 0.0, f"before the windows: {source} {text}")
            loaded.go()
            assert_not_wrong(loaded, 0.0, f"after the windows: {source} {text}")
    found = judged(loaded)
    assert found.equal and {"t", "w"} <= {*found.compared}
    loaded.target.run(f"ALTER TABLE {loaded.name}_to.t DROP w")
    found = judged(loaded, 0.0)
    assert (found.error, found.lost_columns) == (None, ("w",))
