"""What the tasks of a lock's run ask, take for an answer, and tell people when they fail."""

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from unshard.core.ddl.lock import LockState, MemberState, Way
from unshard.core.model import Shard, TableId
from unshard.core.window.suspension import SuspendedTarget, refusal_of
from unshard.errors.rows import NoTargetTable, RowRefused
from unshard.errors.source import AccessDenied, ConnectionLost, ServerUnreachable
from unshard.operate.advice import advice_lines
from unshard.operate.command import LockCommand, Replace, Retry, Skip
from unshard.units.ddl.scene import LockView

A1, B1 = (Shard(source, TableId("shop_1", "orders_1")) for source in ("s1", "s2"))
NOW = datetime(2026, 1, 1, tzinfo=UTC)
VIEW = LockView(
    "m-shop.orders-1",
    TableId("shop", "orders"),
    1,
    "ALTER TABLE `shop`.`orders` ADD COLUMN c INT",
    LockState.WAITING,
    NOW,
    NOW,
    None,
    "s1",
    False,
    False,
    {"s1": MemberState.READY, "s2": MemberState.WAITING},
    (A1,),
    (B1,),
    (),
    (),
    0,
    0,
    None,
)


@pytest.fixture(scope="module", autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Airflow in this process, with a home that is not the developer's."""
    if "airflow" not in sys.modules:
        os.environ["AIRFLOW_HOME"] = str(tmp_path_factory.mktemp("home"))


def test_paused_task_is_skipped_and_not_failed() -> None:
    from airflow.sdk.exceptions import AirflowSkipException

    from unshard.errors.meta import TaskPaused
    from unshard_airflow.outcome import failures_told

    with pytest.raises(AirflowSkipException, match="task m is paused by eve"), failures_told():
        raise TaskPaused("m", "paused by eve")


def test_waiting_lock_is_helped_by_unlocking() -> None:
    from unshard_airflow.outcome import remedies

    told = "\n".join(remedies(VIEW, "/tasks/m.yaml"))
    for command in (
        "clear the task unlock",
        "unshard unlock /tasks/m.yaml m-shop.orders-1",
        "clear the task replace",
        "unshard skip /tasks/m.yaml m-shop.orders-1 --shard s2/shop_1.orders_1",
        "unshard drop-shard",
        "shards that have not reached it: s2 shop_1.orders_1",
    ):
        assert command in told, command


def test_undecided_lock_is_not_told_to_be_unlocked() -> None:
    from unshard_airflow.outcome import remedies

    told = "\n".join(remedies(replace(VIEW, state=LockState.UNDECIDED, reason="cannot be read"), "m.yaml"))
    assert "unshard unlock" not in told and "unshard replace m.yaml" in told and "cannot be read" in told
    assert "unshard retry" not in told


def test_refused_lock_is_helped_by_asking_again() -> None:
    from unshard_airflow.outcome import remedies

    for parts in ({"state": LockState.UNDECIDED, "reason": "[US-4003] no"}, {"state": LockState.FAILED, "error": "no"}):
        told = "\n".join(remedies(replace(VIEW, **parts), "m.yaml"))
        assert "to try the DDL again: unshard retry m.yaml --lock m-shop.orders-1" in told


def test_commands_can_be_pasted_into_a_shell() -> None:
    from unshard_airflow.outcome import remedies

    odd = Shard("s 2", TableId("a'b", "t"))
    told = "\n".join(remedies(replace(VIEW, missing=(odd,)), "/my tasks/m.yaml"))
    assert "unshard unlock '/my tasks/m.yaml' m-shop.orders-1" in told
    assert "--shard 's 2/" in told


def test_shard_in_conflict_is_the_one_to_go_without() -> None:
    from unshard_airflow.outcome import remedies

    told = "\n".join(
        remedies(
            replace(VIEW, conflicts=(A1,), conflicting=("ALTER TABLE x",), differences=(("`x` instead of `y`",),)),
            "m.yaml",
        )
    )
    assert "in conflict: s1 shop_1.orders_1 ran ALTER TABLE x (`x` instead of `y`)" in told
    assert "--shard s1/shop_1.orders_1" in told and "--shard s2" not in told


def test_only_ways_out_of_a_conflict_that_succeed_are_told() -> None:
    from unshard_airflow.outcome import remedies
    from unshard_airflow.replace import SKIP, options

    why = "the target would not have column a any more, which the DDL of s2 shop_1.orders_1 changes"
    conflict = replace(
        VIEW,
        state=LockState.CONFLICT,
        missing=(),
        conflicts=(B1,),
        conflicting=("ALTER TABLE x",),
        differences=((),),
        ways=(Way.SAME,),
        barred=((Way.UNLOCKED, why),),
    )
    told = "\n".join(remedies(conflict, "m.yaml"))
    assert "to count it as this one: unshard replace m.yaml m-shop.orders-1 --shard s2/shop_1.orders_1 --sql" in told
    assert f"not unlock: {why}" in told
    assert "unshard unlock" not in told and "unshard skip" not in told and "unshard drop-shard" in told
    assert SKIP not in options(conflict) and SKIP in options(replace(conflict, ways=(Way.NOTHING,)))


def test_a_new_shard_whose_columns_the_target_lacks_is_not_to_be_skipped() -> None:
    from unshard.operate.advice import advice_lines, choices
    from unshard_airflow.outcome import remedies
    from unshard_airflow.replace import SKIP, options

    text, why = "ALTER TABLE `shop`.`orders` ADD COLUMN `c` int", "no place in shop.orders"
    parts = {"ways": (Way.PLACED,), "barred": ((Way.NOTHING, why),), "extension": (text,), "missing": ()}
    placed = replace(VIEW, state=LockState.UNDECIDED, reason="[US-5001] a name", ready=(A1,), **parts)
    for told in ("\n".join(remedies(placed, "m.yaml")), "\n".join(advice_lines(placed, "m.yaml"))):
        assert f"unshard replace m.yaml m-shop.orders-1 --sql '{text}'" in told and why in told
        assert "unshard skip" not in told
    found = choices(placed)
    assert (found.unlock, found.skip, found.skip_all) == (False, (), False) and why in found.barred[0]
    assert [fields["statements"] for _, fields in found.ready] == [f"{text};\n"]
    assert SKIP not in options(placed)


def test_a_target_that_follows_its_shards_is_not_to_be_unlocked() -> None:
    """It would be rejected; the shards that have not reached the DDL need not."""
    from unshard.operate.advice import advice_lines, choices
    from unshard_airflow.outcome import remedies

    joined = replace(VIEW, is_joined=True, ready=(A1,), missing=(B1,), error="Duplicate column name")
    for told in ("\n".join(remedies(joined, "m.yaml")), "\n".join(advice_lines(joined, "m.yaml"))):
        assert "unshard unlock" not in told and "unshard skip m.yaml m-shop.orders-1 --shard s1/shop_1.orders_1" in told
        assert "--shard s2" not in told
    assert "correct the cause of the error" in "\n".join(advice_lines(joined, "m.yaml"))
    found = choices(joined)
    assert (found.unlock, found.skip, found.skip_all) == (False, (A1,), False) and "unlock" in found.barred[0]


@pytest.mark.parametrize("code, is_refused, skips", [("US-3032", False, False), ("US-4003", True, True)])
def test_a_ddl_of_unknown_effect_of_such_a_target(code: str, is_refused: bool, skips: bool) -> None:
    """Other statements explain it; rows of another structure cannot be skipped to."""
    from unshard.core.ddl.lock import LockState
    from unshard.operate.advice import advice_lines, choices
    from unshard_airflow.outcome import remedies

    joined = replace(VIEW, is_joined=True, ready=(A1,), state=LockState.UNDECIDED, reason=f"[{code}] why")
    at = "m.yaml m-shop.orders-1 --shard s1/shop_1.orders_1"
    for told in ("\n".join(remedies(joined, "m.yaml")), "\n".join(advice_lines(joined, "m.yaml"))):
        assert f"unshard replace {at} --sql" in told and f"unshard drop-shard {at}" in told
        assert ("unshard retry m.yaml --lock m-shop.orders-1" in told) == is_refused
        assert ("unshard skip" in told) == skips
    assert choices(joined).skip == ((A1,) if skips else ())


@pytest.mark.parametrize("state", [LockState.WAITING, LockState.FAILED, LockState.UNDECIDED, LockState.SYNCED])
def test_airflow_tells_what_the_command_line_tells(state: LockState) -> None:
    from unshard_airflow.outcome import remedies

    view = replace(VIEW, state=state, missing=() if state is LockState.SYNCED else VIEW.missing)
    told = [line.replace("clear the task unlock, or run: ", "") for line in remedies(view, "m.yaml")]
    assert advice_lines(view, "m.yaml") and not [line for line in advice_lines(view, "m.yaml") if line not in told]


def context_of(task: Any, **more: Any) -> dict[str, Any]:
    instance = SimpleNamespace(dag_id="unshard_ddl__m", run_id="m-shop.orders-1", task_id="wait_for_shards")
    return {"task": task, "ti": instance, **more}


def test_alert_of_a_lock_has_all_that_helps() -> None:
    from unshard_airflow.alerts import alert_of
    from unshard_airflow.locktasks import WaitForShards

    task = WaitForShards(task_id="wait_for_shards", task_file="/tasks/m.yaml")
    task.seen = VIEW
    alert = alert_of(context_of(task, exception=TimeoutError("Sensor has timed out")))
    assert (alert.lock, alert.missing) == ("m-shop.orders-1", ("s2 shop_1.orders_1",))
    assert alert.title == "unshard: DDL lock m-shop.orders-1: wait_for_shards failed"
    for told in ("Sensor has timed out", "unshard unlock /tasks/m.yaml m-shop.orders-1", "ADD COLUMN c INT"):
        assert told in alert.text


def test_alert_shows_no_value_of_a_row_and_no_secret() -> None:
    from unshard_airflow.alerts import alert_of
    from unshard_airflow.locktasks import ExecuteDdl

    task = ExecuteDdl(task_id="execute_ddl", task_file="/tasks/m.yaml")
    said = "Duplicate entry 'ann@x.org' for key 'mail'"
    task.seen = replace(VIEW, error=said, ddl="ALTER TABLE t CONNECTION='mysql://u:hidden@h'", state=LockState.FAILED)
    text = alert_of(context_of(task, exception=ValueError(said))).text
    assert "ann" not in text and "hidden" not in text and "for key 'mail'" in text


def test_alert_of_a_window_names_every_target_that_has_stopped_and_what_helps() -> None:
    from unshard_airflow.alerts import alert_of
    from unshard_airflow.follow import Follow

    task = Follow(task_id="follow", task_file="/tasks/m.yaml", sources=["s1"], is_continuous=True, dag_of_locks="d")
    errors = (
        RowRefused("shop.a", "v", "id = 1", "Incorrect integer value: 'zoe@x.org' for column `v` at row 1"),
        NoTargetTable("shop.b"),
    )
    refusals = [refusal_of(TableId("shop", error.target[-1]), error) for error in errors]
    task.stopped = [SuspendedTarget("s1", each, 1, "", 1, NOW) for each in refusals]
    text = alert_of(context_of(task, exception=ValueError("[US-6002]"))).text
    retry = "unshard retry /tasks/m.yaml --table shop."
    for told in ("[US-6002] target table shop.a", f"{retry}a", "[US-6001] target table shop.b", f"{retry}b"):
        assert told in text, told
    assert "zoe" not in text


def test_alert_of_another_task_says_what_failed() -> None:
    from unshard_airflow.alerts import alert_of

    alert = alert_of(context_of(SimpleNamespace(), exception=None))
    assert (alert.lock, alert.remedies) == ("", ())
    assert alert.text == "unshard: unshard_ddl__m, run m-shop.orders-1: wait_for_shards failed"


def test_alert_of_a_missed_deadline_comes_although_the_state_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    from unshard_airflow import alerts, deadlines

    sent: list[alerts.Alert] = []

    class Chat(alerts.FailureNotifier):
        def send(self, alert: alerts.Alert) -> None:
            sent.append(alert)

    monkeypatch.setattr(deadlines, "notify", Chat())
    run = {"dag_id": "unshard_lag__m", "dag_run_id": "scheduled__1", "run_after": "2026-01-01T00:00:00Z"}
    asyncio.run(deadlines.targets_lag("no such file", "10 min 0 s", {"dag_run": run, "deadline": {}}))
    (alert,) = sent
    about = "unshard: unshard_lag__m, run scheduled__1"
    assert alert.title == f"{about}: the targets have lacked changes for longer than 10 min 0 s"
    assert alert.error.startswith("the state of the task cannot be read: [US-1002] ")


told_of: list[Any] = []


class Recorder:
    """A notifier that is no class of Airflow's."""

    def __call__(self, context: Mapping[str, Any]) -> None:
        told_of.append(context["ti"].task_id)


def test_notifier_of_the_environment_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    from unshard_airflow.alerts import notify

    notify(context_of(SimpleNamespace()))  # none is named: nothing happens
    monkeypatch.setenv("UNSHARD_NOTIFIER", f"{__name__}.Recorder")
    notify(context_of(SimpleNamespace()))
    assert told_of == ["wait_for_shards"]


class Store:
    """Airflow's Variables, without Airflow's database."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def get(self, key: str, default: Any, deserialize_json: bool) -> Any:
        return json.loads(self.values[key]) if key in self.values else default

    def set(self, key: str, value: Any, description: str, serialize_json: bool) -> None:
        self.values[key] = json.dumps(value)

    def delete(self, key: str) -> None:
        del self.values[key]


DOWN = ServerUnreachable("source s1", "u@h:3306", "Connection refused")
LOST = ConnectionLost("source s1", "u@h:3306", "Lost connection to server during query")
DENIED = AccessDenied("source s1", "u@h:3306", "Access denied")
TARGET_DOWN = ServerUnreachable("target", "u@t:4000", "Connection refused")


@pytest.mark.parametrize(
    ("windows", "told"),
    [
        ([DOWN, DOWN, DOWN, None, None], ["failed", "skipped", "skipped", "works", ""]),
        ([LOST, DOWN, None], ["failed", "skipped", "works"]),
        ([DOWN, DENIED, DENIED, None], ["failed", "failed", "skipped", "works"]),
        ([DOWN, TARGET_DOWN, DOWN], ["failed", "failed", "failed"]),
        ([DOWN, None, DOWN], ["failed", "works", "failed"]),
        ([RuntimeError("odd"), RuntimeError("odd"), RuntimeError("even")], ["failed", "skipped", "failed"]),
    ],
    ids=["lasts", "lost, then down", "another cause", "another server", "again", "a defect"],
)
def test_failure_that_lasts_is_told_once(
    windows: list[Exception | None], told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.sdk.exceptions import AirflowSkipException

    from unshard_airflow import outages
    from unshard_airflow.alerts import FailureNotifier
    from unshard_airflow.follow import Follow
    from unshard_airflow.outcome import failures_told

    sent: list[str] = []

    class Chat(FailureNotifier):
        def send(self, alert: Any) -> None:
            sent.append(alert.title)

    monkeypatch.setattr(outages, "Variable", Store())
    monkeypatch.setattr(outages, "notify", Chat())
    south, north = (
        Follow(task_id="follow", task_file="m.yaml", sources=[source], is_continuous=True, dag_of_locks="d")
        for source in ("s1", "s2")
    )
    found = []
    for error in windows:
        before, context = len(sent), context_of(south)
        try:
            with south.told_once(context), failures_told():
                if error:
                    raise error
        except AirflowSkipException as skip:
            assert str(error.args[-1]) in str(skip), "the reason stays to be seen"
            found.append("skipped")
            continue
        except Exception as failure:
            outages.tell_people({**context, "exception": failure})
        else:
            outages.tell_recovery(context)
        outages.tell_recovery(context_of(north))  # another source has nothing to do with it
        found.append(next((word for word in ("failed", "works") for title in sent[before:] if word in title), ""))
    assert found == told
    assert len(sent) == len([word for word in told if word in ("failed", "works")]), "each is told once"


def test_target_that_is_suspended_is_always_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one with the same code may be suspended in the next window."""
    from unshard_airflow import outages
    from unshard_airflow.follow import Follow

    monkeypatch.setattr(outages, "Variable", Store())
    task, error = (
        Follow(task_id="follow", task_file="m.yaml", sources=["s1"], is_continuous=True, dag_of_locks="d"),
        NoTargetTable("shop.b"),
    )
    for _ in range(2):
        with pytest.raises(NoTargetTable), task.told_once(context_of(task)):
            task.stopped = [SuspendedTarget("s1", refusal_of(TableId("shop", "b"), error), 1, "", 1, NOW)]
            raise error
        outages.tell_people(context_of(task, exception=error))
        task.stopped = ()


def test_two_failures_of_one_process_are_told_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """An alert is about one error, so only that one is known afterwards."""
    from airflow.sdk.exceptions import AirflowSkipException

    from unshard_airflow import outages
    from unshard_airflow.follow import Follow

    monkeypatch.setattr(outages, "Variable", Store())
    task = Follow(task_id="follow", task_file="m.yaml", sources=["s1", "t"], is_continuous=True, dag_of_locks="d")
    for failing in ((DENIED, TARGET_DOWN), (TARGET_DOWN, DENIED)):
        task.failing = failing
        with pytest.raises(type(failing[0])), task.told_once(context_of(task)):
            raise failing[0]
        outages.tell_people(context_of(task, exception=failing[0]))
    with pytest.raises(AirflowSkipException), task.told_once(context_of(task)):
        raise DENIED


@pytest.mark.parametrize("name", ["nonsense", "no.such.Module", f"{__name__}.Nobody", ".x"])
def test_notifier_that_is_not_there_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from unshard_airflow.alerts import notify

    monkeypatch.setenv("UNSHARD_NOTIFIER", name)
    with pytest.raises(ImportError, match=r"\[unshard\] notifier"):
        notify(context_of(SimpleNamespace()))


def test_subclass_gets_an_alert() -> None:
    from unshard_airflow.alerts import Alert, FailureNotifier
    from unshard_airflow.locktasks import WaitForShards

    sent: list[Alert] = []

    class Chat(FailureNotifier):
        def send(self, alert: Alert) -> None:
            sent.append(alert)

    task = WaitForShards(task_id="wait_for_shards", task_file="m.yaml")
    task.seen = VIEW
    Chat()(context_of(task))
    assert [alert.lock for alert in sent] == [VIEW.id]


@pytest.mark.parametrize(
    ("choice", "given", "command"),
    [
        ("Skip", {"statements": "is not looked at"}, Skip(VIEW.id)),
        ("Skip", {"shard": "s2 shop_1.orders_1"}, Skip(VIEW.id, B1)),
        ("Replace", {"statements": "A;\nB;\n", "shard": None}, Replace(VIEW.id, ("A", "B"))),
        ("Replace", {"statements": "A", "shard": "s1 shop_1.orders_1"}, Replace(VIEW.id, ("A",), A1)),
        ("Try again", {"statements": "is not looked at", "shard": "s2 shop_1.orders_1"}, Retry(VIEW.id)),
        ("Show the effect", {"statements": "A"}, Replace(VIEW.id, ("A",))),
        ("Show the effect", {"statements": None}, Skip(VIEW.id)),
    ],
)
def test_answer_becomes_an_order(choice: str, given: dict[str, Any], command: LockCommand) -> None:
    from unshard_airflow.replace import command_of

    assert command_of(VIEW, choice, given) == command


@pytest.mark.parametrize("given", [{"statements": ""}, {"statements": "A", "shard": "s9 x.y"}, {}])
def test_answer_that_says_nothing_is_refused(given: dict[str, Any]) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    from unshard_airflow.replace import command_of

    with pytest.raises(AirflowFailException, match="clear this task to answer again"):
        command_of(VIEW, "Replace", given)


def test_question_offers_the_shards_of_the_lock() -> None:
    from airflow.sdk.definitions.param import ParamsDict

    from unshard_airflow.replace import fields

    shard = ParamsDict(fields((A1, B1))).get_param("shard").serialize()
    assert shard["schema"]["enum"] == ["", "s1 shop_1.orders_1", "s2 shop_1.orders_1"]
