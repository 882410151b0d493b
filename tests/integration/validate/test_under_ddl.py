"""While shards run DDL under load, `unshard validate` reports no difference and ends in no error, in both modes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.validate.test_under_load import judged, loaded, under_load
from tests.lifetask import LifeTask, living
from unshard_demo.servers import MariaDb

__all__ = ["loaded"]
pytestmark = [pytest.mark.integration, pytest.mark.on_tidb]
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


@pytest.fixture(params=["pessimistic", "optimistic"])
def task(
    request: pytest.FixtureRequest,
    source_1: MariaDb,
    source_2: MariaDb,
    target: MariaDb,
    unique: str,
    tmp_path: Path,
) -> Iterator[LifeTask]:
    sources = {"s1": source_1, "s2": source_2}
    with living(unique, tmp_path, sources, target, **{"shard-mode": request.param}) as made:
        made.make_shard("s1", 1, 1, 2)
        made.make_shard("s2", 2, 3)
        yield made


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
