"""The DAG run of an open difference: a slow rollout never fails it, a conflict does after `lock-timeout`."""

import os
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from unshard.core.join.states import State
from unshard.core.model import Shard, TableId
from unshard.units.ddl.differences import DifferenceView

HOUR = timedelta(hours=1)
B1 = Shard("s2", TableId("shop_1", "orders_1"))


@pytest.fixture(scope="module", autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Airflow in this process, with a home that is not the developer's."""
    if "airflow" not in sys.modules:
        os.environ["AIRFLOW_HOME"] = str(tmp_path_factory.mktemp("home"))


def view(state: State, age: timedelta, reason: str = "c: x and y") -> DifferenceView:
    since = datetime.now(UTC) - age
    return DifferenceView("d", TableId("a", "t"), "DDL", state, since, (), (B1,), (), (), "then", {}, reason)


@pytest.mark.parametrize("state", [state for state in State if state is not State.CONFLICT])
def test_a_slow_rollout_never_fails(state: State) -> None:
    from unshard_airflow.differencetasks import fail_if_stuck

    fail_if_stuck(view(state, 1000 * HOUR, ""), None, HOUR)


def test_a_column_that_cannot_be_read_again_fails_with_the_reason() -> None:
    from airflow.sdk.exceptions import AirflowFailException

    from unshard_airflow.differencetasks import fail_if_stuck

    with pytest.raises(AirflowFailException, match="cannot be read again: c: x and y; then"):
        fail_if_stuck(view(State.RELOAD, 2 * HOUR), None, HOUR)


def test_a_conflict_fails_with_both_sides_when_its_time_is_over() -> None:
    from airflow.sdk.exceptions import AirflowFailException

    from unshard_airflow.differencetasks import fail_if_stuck

    fail_if_stuck(view(State.CONFLICT, HOUR / 2), None, HOUR)
    with pytest.raises(AirflowFailException, match="c: x and y; then"):
        fail_if_stuck(view(State.CONFLICT, 2 * HOUR), datetime.now(UTC) - 2 * HOUR, HOUR)


def test_a_cleared_run_has_the_whole_time_again() -> None:
    from unshard_airflow.differencetasks import fail_if_stuck

    fail_if_stuck(view(State.CONFLICT, 9 * HOUR), datetime.now(UTC) - HOUR / 2, HOUR)


def test_an_alert_of_a_conflict_has_both_sides_and_the_way_out() -> None:
    from unshard_airflow.alerts import alert_of
    from unshard_airflow.differencetasks import FollowDifference

    task = FollowDifference(task_id="follow_difference", task_file="/tasks/my shop.yaml")
    task.last = replace(view(State.CONFLICT, HOUR), ddl="ALTER TABLE a.t ADD c DATE")
    instance = SimpleNamespace(dag_id="unshard_join__m", run_id="difference-1", task_id="follow_difference")
    text = alert_of({"task": task, "ti": instance, "exception": ValueError("in conflict")}).text
    for told in ("ADD c DATE", "c: x and y", "unshard locks '/tasks/my shop.yaml'", "clear the task follow_difference"):
        assert told in text


def test_an_id_is_valid_for_a_run() -> None:
    from unshard.units.ddl.differences import difference_id

    found = difference_id(TableId("a b", "t/ü"), "5", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    assert found.startswith("difference-") and found.endswith("-20260102T030405")
    assert found != difference_id(TableId("a b", "t/ü"), "6", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
