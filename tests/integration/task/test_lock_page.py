"""The page and the task `replace` over a real meta store: their reads, questions and commands."""

import asyncio
import contextlib
import json
import os
import re
import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from html import unescape
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from fastapi import Request

from tests.calls import counted
from tests.integration.ddl.test_intent import lock_for
from unshard.adapters.meta import Meta
from unshard.config import load_task
from unshard.core.ddl.issuedcommands import Cleared
from unshard.core.model import Location, Shard, TableId
from unshard.core.task.state import Phase
from unshard.operate import issuing
from unshard.operate.command import Force, Skip
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration

TASK = """
name: {name}
task-mode: all
shard-mode: pessimistic
meta-schema: {schema}
target-database: {{host: 127.0.0.1, port: {port}, user: admin, password-env: UNSHARD_DB_PASSWORD}}
mysql-instances:
  - {{source-id: s1, route-rules: [all], block-allow-list: all}}
routes:
  all: {{schema-pattern: "shard_*", table-pattern: "t_*", target-schema: shop, target-table: orders}}
block-allow-list:
  all: {{do-dbs: ["shard_*"]}}
unshard: {{storage-path: {folder}/storage, lock-timeout: 10m}}
"""
SOURCE = "source-id: s1\nfrom: {{host: 127.0.0.1, port: {port}, user: admin, password-env: UNSHARD_DB_PASSWORD}}\n"
HOST = "http://airflow.test"
OTHERWISE = "ALTER TABLE shard_1.t_1 ADD COLUMN c bigint"
OTHER = Shard("s1", TableId("shard_1", "t_2"))


@dataclass
class Stage:
    """A task whose lock waits for its second shard."""

    meta: Meta
    file: Path
    lock: str
    asked: list[dict[str, Any]] = field(default_factory=list)
    pushed: dict[str, Any] = field(default_factory=dict)
    waited: timedelta = timedelta()
    """How long `wait_for_shards` waits already."""

    @property
    def at(self) -> str:
        """Where the page shows the task."""
        return f"/task/{self.meta.task}"

    def actions(self) -> list[tuple[str, Any, str]]:
        return [(one.action, one.who, one.via) for one in self.meta.locks.actions()]

    def context(self, cleared: bool = False) -> Any:
        """The context that Airflow passes to the task of this lock's run."""
        begun = datetime.now(UTC) - self.waited
        instance = SimpleNamespace(id="ti", max_tries=3 if cleared else 2, xcom_push=self.push, start_date=begun)
        run = SimpleNamespace(run_id=self.lock, conf={})
        return {"ti": instance, "task_instance": instance, "dag_run": run, "task": SimpleNamespace(retries=2)}

    def push(self, key: str, value: Any) -> None:
        self.pushed[key] = value


@pytest.fixture(scope="module")
def schema(target: MariaDb) -> Iterator[str]:
    """A meta schema for all tasks of this file: making one takes longer than a test."""
    name = f"page_{uuid.uuid4().hex[:12]}"
    with contextlib.closing(Meta(target.server, name, "none")) as meta:
        meta.create_tables()
    yield name
    target.run(f"DROP DATABASE {name}")


@pytest.fixture
def stage(
    target: MariaDb, schema: str, unique: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Stage]:
    if "airflow" not in sys.modules:
        monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    monkeypatch.setenv("UNSHARD_DB_PASSWORD", "unshard")
    monkeypatch.setenv("UNSHARD_TASKS", str(tmp_path))
    (tmp_path / "sources").mkdir()
    (tmp_path / "sources/s1.yaml").write_text(SOURCE.format(port=target.port))
    file = tmp_path / "task.yaml"
    file.write_text(TASK.format(name=unique, schema=schema, port=target.port, folder=tmp_path))
    with contextlib.closing(Meta(target.server, schema, unique)) as meta:
        lock = lock_for(meta, TableId("shop", "orders"), "ADD COLUMN c int")
        meta.sources.set_phase("s1", Phase.SYNC)
        (first,) = meta.structures.shards()
        meta.structures.record(OTHER, first.target, Location("b.000001", 4), first.queue[0].before)
        made = Stage(meta, file, lock)
        asked = "airflow.providers.standard.operators.hitl.upsert_hitl_detail"
        monkeypatch.setattr(asked, lambda **question: made.asked.append(question))
        yield made


def browse(
    *steps: tuple[str, str, dict[str, str]], who_cleared: Callable[[str, Cleared], str | None] = lambda *_: None
) -> list[str]:
    """Go through pages as an operator; each form is sent with the hidden fields of the page before."""
    from unshard_airflow.page.routes import application
    from unshard_airflow.page.service import Service
    from unshard_airflow.page.site import Site, Woken

    def user(request: Request) -> Any:
        return SimpleNamespace(get_id=lambda: "7", get_name=lambda: "olga")

    async def wake(request: Request, dag: str, run: str) -> Woken:
        return Woken.RUNNING

    async def go() -> list[str]:
        pages: list[str] = []
        site = Site(user, lambda *_: True, wake, b"key")
        transport = httpx.ASGITransport(app=application(site, Service(who_cleared)))
        headers = {"Origin": HOST}
        async with httpx.AsyncClient(
            transport=transport, base_url=HOST, headers=headers, follow_redirects=True
        ) as client:
            for method, path, fields in steps:
                known = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', pages[-1])) if pages else {}
                sent = {name: unescape(value) for name, value in known.items()} | fields
                answer = await client.request(method, path, data=sent if method == "POST" else None)
                assert answer.status_code == 200, answer.text
                pages.append(answer.text)
        return pages

    return asyncio.run(go())


def browse_json(path: str) -> Any:
    """Read a document of the API."""
    return json.loads(browse(("GET", path, {}))[0])


def test_page_reads_what_is_there(stage: Stage) -> None:
    overview, task, lock = browse(("GET", "/", {}), ("GET", stage.at, {}), ("GET", f"{stage.at}/lock/{stage.lock}", {}))
    assert "1 sync" in overview and "waiting" in overview
    assert f">{stage.lock}<" in task and "s1 shard_1.t_2" in task
    assert "ADD COLUMN c int" in lock and 'id="missing">' in lock and "<form" in lock


def test_task_that_has_never_begun_is_shown(stage: Stage, target: MariaDb) -> None:
    text = stage.file.read_text()
    stage.file.write_text(re.sub(r"meta-schema: \w+", "meta-schema: nothing_here", text))
    overview, task = browse(("GET", "/", {}), ("GET", stage.at, {}))
    assert "1 new" in overview and "No DDL lock is open." in task
    assert target.run("SHOW DATABASES LIKE 'nothing_here'") == [], "looking makes nothing"


def test_target_that_does_not_answer_is_an_error_on_the_page(stage: Stage) -> None:
    stage.file.write_text(re.sub(r"port: \d+", "port: 1", stage.file.read_text()))
    (overview,) = browse(("GET", "/", {}))
    assert "US-2001" in overview and "unshard" in overview


@pytest.mark.parametrize(
    ("fields", "action", "told"),
    [
        ({"action": "unlock", "owner": "s1"}, "unlock", "executes on"),
        ({"action": "skip", "shard": ""}, "skip", ""),
        ({"action": "skip", "shard": str(OTHER)}, "skip", "s1 shard_1.t_2"),
        (
            {"action": "replace", "statements": "ALTER TABLE shard_1.t_1 ADD COLUMN c bigint;", "shard": ""},
            "replace",
            "bigint",
        ),
        ({"action": "drop-shard", "shard": str(OTHER)}, "drop-shard", "s1 shard_1.t_2"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_every_order_goes_from_its_form_to_the_record(
    stage: Stage, fields: dict[str, str], action: str, told: str
) -> None:
    at = f"{stage.at}/lock/{stage.lock}"
    look = browse(("GET", at, {}), ("POST", f"{at}/preview", {"owner": "", "shard": "", **fields}))
    assert told in look[-1] and stage.actions() == [], "a dry run records nothing"
    steps = (("GET", at, {}), ("POST", f"{at}/preview", {**fields, "reason": "because"}), ("POST", f"{at}/give", {}))
    done = browse(*steps)[-1]
    assert stage.actions() == [(action, "olga", "page")]
    assert "because" in done and "The command is issued" in done


def test_page_lets_the_target_be_asked_again(stage: Stage, target: MariaDb, schema: str) -> None:
    mine = f"WHERE task = '{stage.meta.task}'"
    at = f"{stage.at}/lock/{stage.lock}"
    assert "Try again" not in browse(("GET", at, {}))[-1]
    target.run(f"UPDATE {schema}.shard_ddl SET after_digest = '', reason = '[US-4003] no such sequence' {mine}")
    look = browse(("GET", at, {}), ("POST", f"{at}/preview", {"action": "retry"}))
    assert "no such sequence" in look[0] and "tried on an empty table" in look[-1] and stage.actions() == []
    done = browse(("GET", at, {}), ("POST", f"{at}/preview", {"action": "retry"}), ("POST", f"{at}/give", {}))[-1]
    assert stage.actions() == [("retry", "olga", "page")] and "The command is issued" in done
    assert {row[0] for row in target.run(f"SELECT reason FROM {schema}.shard_ddl {mine}")} == {""}


def unlock(stage: Stage, cleared: bool) -> Any:
    from unshard_airflow.locktasks import Unlock

    return Unlock(task_id="unlock", task_file=str(stage.file)).execute(stage.context(cleared))


def test_first_run_of_unlock_is_nobodys_order(stage: Stage) -> None:
    skipped(lambda: unlock(stage, cleared=False), "clear this task")
    assert stage.actions() == []


def test_clear_is_named_when_airflow_tells_who_it_was(stage: Stage) -> None:
    unlock(stage, cleared=True)
    unlock(stage, cleared=True)  # the same again, as by a retry
    someone = Cleared(stage.lock, "ti")
    assert stage.actions() == [("unlock", someone, "clear")]
    at = f"{stage.at}/lock/{stage.lock}"
    assert f"someone in Airflow (run {stage.lock})" in browse(("GET", at, {}))[0], "Airflow does not know"

    asked: list[tuple[str, Cleared]] = []
    told = browse(("GET", stage.at, {}), who_cleared=lambda *given: asked.append(given) or "<olga>")[0]
    assert asked == [(f"unshard_ddl__{stage.meta.task}", someone)]
    assert "<td>&lt;olga&gt;</td>" in told and "someone in Airflow" not in told
    browse(("GET", at, {}), who_cleared=lambda *_: "somebody else")
    assert stage.actions() == [("unlock", "<olga>", "clear")], "the first name stays"
    assert stage.meta.locks.actions()[0].details == {}


def test_a_cleared_unlock_reads_the_shards_for_the_command_and_after_it(stage: Stage) -> None:
    assert counted(lambda: skipped(lambda: unlock(stage, cleared=False), "clear this task")) == (0, 0)
    assert counted(lambda: unlock(stage, cleared=True)) == (2, 0)
    issuing.give(stage.meta, Skip(stage.lock), by="somebody", via="elsewhere", reason="")
    assert counted(lambda: skipped(lambda: unlock(stage, cleared=True), "resolved already")) == (0, 0)


def test_each_step_on_the_page_reads_the_shards_once_and_the_command_once_more(stage: Stage) -> None:
    from unshard_airflow.page.service import Service

    service, task, command = Service(lambda *_: None), load_task(stage.file), Skip(stage.lock, OTHER)
    assert counted(lambda: service.reading(task)) == (1, 0)
    assert counted(lambda: service.lock(task, stage.lock)) == (1, 0)
    assert counted(lambda: service.facts(task, stage.lock)) == (1, 0)
    assert counted(lambda: service.preview(task, command)) == (1, 0)
    assert counted(lambda: service.give(task, command, "olga", "")) == (2, 0)


def test_prechecks_that_fail_are_on_the_page(stage: Stage, target: MariaDb, schema: str) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    from unshard_airflow.operators import Precheck

    assert "No result is stored yet" in browse(("GET", stage.at, {}))[0]
    target.run(f"DELETE FROM {schema}.source WHERE task = '{stage.meta.task}'")
    with pytest.raises(AirflowFailException, match="US-2311"):
        Precheck(task_id="precheck", task_file=str(stage.file)).execute(stage.context())
    page = browse(("GET", stage.at, {}))[0]
    assert re.search(r'<td class="bad">error</td><td>source s1</td><td>binlog_enable</td><td>\[US-2302\]', page)
    stored = stage.meta.prechecks.last()
    assert stored and {item.name for item in stored.items} > {"binlog_enable", "meta_schema"}


def skipped(call: Callable[[], Any], told: str) -> None:
    """A task that gives no command is not green."""
    from airflow.sdk.exceptions import AirflowSkipException

    with pytest.raises(AirflowSkipException, match=told):
        call()


def asking(stage: Stage) -> Any:
    from unshard_airflow.replace import ReplaceDdl

    return ReplaceDdl(task_id="replace", task_file=str(stage.file))


def ask(stage: Stage, call: Any) -> str:
    """Run the task up to its question; return until when it waits."""
    from airflow.sdk.exceptions import TaskAwaitingInput

    before = len(stage.asked)
    with pytest.raises(TaskAwaitingInput) as waiting:
        call()
    assert len(stage.asked) == before + 1
    assert waiting.value.timeout < timedelta(minutes=5), "it looks at the lock again before long"
    return str(waiting.value.kwargs["until"])


def event(choice: str, timedout: bool = False, **fields: str) -> dict[str, Any]:
    person = None if timedout else {"id": "7", "name": "olga"}
    return {
        "chosen_options": [choice],
        "params_input": {"statements": "", "shard": "", "reason": "", **fields},
        "responded_at": datetime.now(UTC),
        "responded_by_user": person,
        "timedout": timedout,
    }


def test_lock_that_waits_for_shards_is_no_question(stage: Stage) -> None:
    skipped(lambda: asking(stage).execute(stage.context()), "clear this task")
    assert stage.asked == []


def test_whoever_clears_the_task_is_asked(stage: Stage) -> None:
    until = ask(stage, lambda: asking(stage).execute(stage.context(cleared=True)))
    (question,) = stage.asked
    assert "ADD COLUMN c int" in question["body"] and "s1 shard_1.t_2" in question["body"]
    assert question["params"]["shard"]["schema"]["enum"] == ["", "s1 shard_1.t_1", "s1 shard_1.t_2"]
    assert datetime.fromisoformat(until) > datetime.now(UTC) + timedelta(minutes=50)


def test_undecided_lock_asks_by_itself(stage: Stage, target: MariaDb, schema: str) -> None:
    target.run(f"UPDATE {schema}.shard_ddl SET reason = 'it cannot be read' WHERE task = '{stage.meta.task}'")
    until = ask(stage, lambda: asking(stage).execute(stage.context()))
    assert "it cannot be read" in stage.asked[0]["body"]
    assert datetime.fromisoformat(until) < datetime.now(UTC) + timedelta(minutes=11), "no longer than lock-timeout"


def test_answer_is_given_as_an_order_in_the_persons_name(stage: Stage) -> None:
    told = event("Skip", shard=str(OTHER), reason="it has it")
    asking(stage).execute_complete(stage.context(), told, until=datetime.now(UTC).isoformat())
    assert stage.actions() == [("skip", "olga", "required action")]
    assert stage.meta.locks.actions()[0].reason == "it has it"


def test_refused_lock_can_be_tried_again(stage: Stage, target: MariaDb, schema: str) -> None:
    mine = f"WHERE task = '{stage.meta.task}'"
    target.run(f"UPDATE {schema}.shard_ddl SET after_digest = '', reason = '[US-4003] no' {mine}")
    ask(stage, lambda: asking(stage).execute(stage.context()))
    assert "Try again" in stage.asked[0]["options"] and "*Try again* executes this DDL" in stage.asked[0]["body"]
    told = event("Try again", reason="the disk is larger")
    asking(stage).execute_complete(stage.context(), told, until=datetime.now(UTC).isoformat())
    assert stage.actions() == [("retry", "olga", "required action")]
    asked = {row[0] for row in target.run(f"SELECT reason FROM {schema}.shard_ddl {mine}")}
    assert asked == {""}, "the next window asks the target"


def test_lock_that_is_not_refused_is_not_tried_again(stage: Stage) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    ask(stage, lambda: asking(stage).execute(stage.context(cleared=True)))
    assert "Try again" not in stage.asked[0]["options"] and "Try again" not in stage.asked[0]["body"]
    with pytest.raises(AirflowFailException, match="US-5037"):
        asking(stage).execute_complete(stage.context(), event("Try again"), until=datetime.now(UTC).isoformat())
    assert stage.actions() == []


def test_dry_run_is_told_and_the_question_stays(stage: Stage) -> None:
    until = (datetime.now(UTC) + timedelta(minutes=5)).isoformat()
    told = event("Show the effect", statements=OTHERWISE)
    assert ask(stage, lambda: asking(stage).execute_complete(stage.context(), told, until=until)) == until
    assert any("bigint" in line for line in stage.pushed["would_do"]) and stage.actions() == []


def test_dry_run_of_what_is_refused_says_so_and_the_question_stays(stage: Stage) -> None:
    until = (datetime.now(UTC) + timedelta(minutes=5)).isoformat()
    told = event("Show the effect", statements="DROP TABLE elsewhere.t")
    ask(stage, lambda: asking(stage).execute_complete(stage.context(), told, until=until))
    assert "US-" in stage.pushed["would_do"][0] and stage.actions() == []


def test_refused_answer_is_red_and_says_why(stage: Stage) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    told = event("Replace", statements="DROP TABLE elsewhere.t")
    with pytest.raises(AirflowFailException, match="US-"):
        asking(stage).execute_complete(stage.context(), told, until=datetime.now(UTC).isoformat())
    assert stage.actions() == []


def test_question_without_an_answer_is_asked_again_until_the_time_is_up(stage: Stage) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    task, silence = asking(stage), event("Leave it as it is", timedout=True)
    until = (datetime.now(UTC) + timedelta(minutes=5)).isoformat()
    context = stage.context(cleared=True)
    assert ask(stage, lambda: task.execute_complete(context, silence, until=until)) == until
    past = (datetime.now(UTC) - timedelta(seconds=1)).isoformat()
    with pytest.raises(AirflowFailException, match="no decision on lock"):
        task.execute_complete(context, silence, until=past)
    assert any("unshard replace" in line for line in task.remedies())


def test_question_ends_when_the_lock_goes_on_otherwise(stage: Stage) -> None:
    issuing.give(stage.meta, Skip(stage.lock), by="somebody", via="elsewhere", reason="")
    task = asking(stage)
    skipped(lambda: task.execute(stage.context(cleared=True)), "resolved already")
    told, until = event("Replace", statements="DROP TABLE t_1"), datetime.now(UTC).isoformat()
    skipped(lambda: task.execute_complete(stage.context(), told, until=until), "resolved already")
    skipped(lambda: unlock(stage, cleared=True), "resolved already")
    assert [who for _, who, _ in stage.actions()] == ["somebody"] and stage.asked == []


def test_question_ends_when_the_lock_is_decided_or_forced_elsewhere(stage: Stage) -> None:
    task, silence = asking(stage), event("Leave it as it is", timedout=True)
    until = (datetime.now(UTC) + timedelta(minutes=5)).isoformat()
    skipped(lambda: task.execute_complete(stage.context(), silence, until=until), "without an answer")
    issuing.give(stage.meta, Force(stage.lock), by="somebody", via="elsewhere", reason="")
    skipped(lambda: task.execute_complete(stage.context(cleared=True), silence, until=until), "without an answer")


def test_person_who_leaves_it_changes_nothing(stage: Stage) -> None:
    told = event("Leave it as it is")
    skipped(lambda: asking(stage).execute_complete(stage.context(), told, until=""), "left as it is")
    assert stage.actions() == []


def wait(stage: Stage) -> Any:
    """Run `wait_for_shards` once; return its result, or raise TaskDeferred."""
    from unshard_airflow.locktasks import WaitForShards

    task = WaitForShards(task_id="wait_for_shards", task_file=str(stage.file))
    return task.resume_execution("__fail__", {"error": "Trigger timeout"}, stage.context())


def waiting(stage: Stage) -> Any:
    """Run `wait_for_shards` up to its wait; return its trigger as the triggerer builds it."""
    from airflow.sdk.exceptions import TaskDeferred

    with pytest.raises(TaskDeferred) as deferred:
        wait(stage)
    assert deferred.value.timeout is None, "no process starts meanwhile"
    path, given = deferred.value.trigger.serialize()
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)(**json.loads(json.dumps(given)))


def is_over(trigger: Any) -> bool:
    """Look once, as the trigger does."""
    from unshard_airflow.watch import Watch

    with contextlib.closing(Watch(trigger)) as watch:
        return watch.is_over()


def fire(trigger: Any) -> Any:
    """Run a trigger up to its event, and return what it means to the task."""

    async def first() -> Any:
        return await anext(trigger.run())

    return json.loads(asyncio.run(first()).model_dump_json())


def test_wait_needs_no_process_and_ends_when_the_lock_is_forced(stage: Stage) -> None:
    trigger = waiting(stage)
    assert stage.pushed["missing"] == [str(OTHER)] and not is_over(trigger)
    unlock(stage, cleared=True)
    end = fire(trigger)
    assert end["task_instance_state"] == "success", "no process starts to end the task"
    assert (end["xcoms"]["owner"], end["xcoms"]["missing"]) == ("s1", [str(OTHER)])
    wait(stage)  # a wait that is cleared now ends at once


def test_only_the_task_of_the_owner_executes(stage: Stage) -> None:
    from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

    from unshard_airflow.locktasks import ExecuteDdl

    def execute(source: str) -> Any:
        return ExecuteDdl(task_id="execute_ddl", task_file=str(stage.file), source=source).execute(stage.context())

    unlock(stage, cleared=True)
    with pytest.raises(AirflowSkipException, match="is the owner"):
        execute("s2")
    with pytest.raises(AirflowFailException, match=r"there is no table shop\.orders"):
        execute("s1")


def test_triggers_share_the_connections_of_a_task_until_its_file_changes(stage: Stage) -> None:
    from unshard_airflow.watch import OPEN

    file = str(stage.file)
    with OPEN.opened(file) as first:
        with OPEN.opened(file) as second:
            assert second is first
        os.utime(file, ns=(1, 1))
        with OPEN.opened(file) as third, OPEN.opened(file) as fourth:
            assert fourth is third is not first
        assert first.meta.locks.open() is not None, "it is still open"


def test_wait_that_is_over_fails(stage: Stage) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    stage.waited = timedelta(minutes=9, seconds=59)
    trigger = waiting(stage)
    assert not is_over(trigger)
    assert "task_instance_state" not in fire(trigger), "lock-timeout is over: the task looks and fails"
    stage.waited = timedelta(minutes=10)
    with pytest.raises(AirflowFailException, match=f"lock {stage.lock} is waiting, and lock-timeout .* is over"):
        wait(stage)


def test_wait_survives_a_target_that_does_not_answer(stage: Stage) -> None:
    """One watch sees each change of the task file."""
    from unshard_airflow.watch import AFTER_ERROR_SECONDS, LOCK_SECONDS, Watch

    right = stage.file.read_text()
    with contextlib.closing(Watch(waiting(stage))) as watch:
        assert (watch.is_over(), watch.rest) == (False, LOCK_SECONDS)
        stage.file.write_text(re.sub(r"port: \d+", "port: 1", right))
        assert (watch.is_over(), watch.rest) == (False, AFTER_ERROR_SECONDS), "the failed look is logged, and repeated"
        stage.file.write_text(right)
        unlock(stage, cleared=True)
        assert (watch.is_over(), watch.rest) == (True, LOCK_SECONDS)


def test_triggers_of_a_task_share_its_connections_until_the_last_one_ends(stage: Stage) -> None:
    from unshard_airflow.watch import OPEN, Watch

    first, second = Watch(waiting(stage)), Watch(waiting(stage))
    assert (first.is_over(), second.is_over(), len(OPEN._newest)) == (False, False, 1)
    first.close()
    unlock(stage, cleared=True)
    assert (second.is_over(), len(OPEN._newest)) == (True, 1)
    second.close()
    assert not OPEN._newest


def test_paused_task_is_skipped_in_airflow_and_its_lock_waits(stage: Stage) -> None:
    from airflow.sdk.exceptions import AirflowSkipException

    from unshard_airflow.follow import Follow, Report
    from unshard_airflow.operators import Handover, Precheck

    given = {"task_file": str(stage.file)}
    issuing.give(stage.meta, Force(stage.lock), by="me", via="test", reason="")
    pause = f"{stage.at}/pause"
    paused = browse(("GET", pause, {}), ("POST", pause, {"reason": "the target moves"}))[-1]
    assert "paused by olga (page)" in paused and "the target moves" in paused
    assert not is_over(waiting(stage)), "its DDL is due, and not executed"
    tasks = [kind(task_id="x", source="s1", **given) for kind in (Precheck, Handover)]
    follow = Follow(task_id="follow", sources=["s1"], is_continuous=True, dag_of_locks="d", **given)
    for each in (*tasks, follow, Report(task_id="report", groups=[["s1"]], **given)):
        with pytest.raises(AirflowSkipException, match="paused by olga"):
            each.execute(stage.context())
    browse(("GET", pause, {}), ("POST", pause, {}))
    wait(stage)
    assert [action for action, *_ in stage.actions()] == ["unlock", "pause", "resume"]
