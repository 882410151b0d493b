"""The page without Airflow: who sees what, who may do what, and that nothing foreign gets into its HTML."""

import asyncio
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from html import unescape
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, HTTPException, Request

from unshard.adapters.meta.commandrecords import CommandRecord, CommandState, OperatorAction
from unshard.adapters.meta.lockrecords import Arrival, Execution
from unshard.adapters.meta.shardrecords import ListedShard
from unshard.adapters.meta.sourcerecords import IgnoredStatement
from unshard.adapters.meta.taskrecords import StoredPrechecks
from unshard.config import Task, load_task
from unshard.core.checks.items import Item, Severity
from unshard.core.ddl.lock import LockState, MemberState, Outcome
from unshard.core.ddl.online import BY_TRIGGER, OnlineRole, OnlineTable
from unshard.core.ddl.statementcommands import CommandKind, StatementCommand, StatementPlace
from unshard.core.join.states import State
from unshard.core.masking import refusal, statement
from unshard.core.model import Column, Location, Shard, TableId, TableSchema
from unshard.core.relay.segment import Statement
from unshard.core.rows.rowerrors import CollisionState, Found, KeyCollision, RecordedCollision, RowError, RowErrorState
from unshard.core.task.history import Charts, EventKind, TaskEvent
from unshard.core.task.state import PauseKind, PauseState, Phase
from unshard.core.validate.ledger import Proof
from unshard.core.window.plan import UnreadStatement
from unshard.core.window.suspension import Refusal, SuspendedTarget, refusal_of
from unshard.errors.locks import UnknownLock
from unshard.errors.rows import RowRefused
from unshard.operate import command
from unshard.operate.command import DropShard, Force, LockCommand, Replace, Retry, Skip
from unshard.units.ddl.differences import DifferenceView
from unshard.units.ddl.matrix import TargetMatrix, difference_matrices
from unshard.units.ddl.scene import LockFacts, LockView
from unshard.units.task.status import Remarks, SourceStatus
from unshard_airflow.page import guard
from unshard_airflow.page.pages import marked
from unshard_airflow.page.routes import application
from unshard_airflow.page.service import SHOWN, CommandHistory, Overview, Reading, Service, ShardList, TaskFile
from unshard_airflow.page.site import FINISHED, Site, Wait, Woken, woken

ROOT = Path(__file__).parents[3]
NOW = datetime.now(UTC)
A1, A2, B1 = (
    Shard(source, TableId("shop_1", table))
    for source, table in (("s1", "orders_1"), ("s1", "orders_2"), ("s2", "orders_1"))
)
EVIL = "<script>alert('x')</script>"
STATEMENT = Statement("", "shop_1", 0, "utf8mb4", 0, "SYSTEM")


def view(**changes: Any) -> LockView:
    made = LockView(
        "orders_merge-shop.orders-1",
        TableId("shop", "orders"),
        1,
        "ALTER TABLE `shop`.`orders` ADD COLUMN c INT",
        LockState.WAITING,
        datetime.now(UTC) - timedelta(minutes=12),
        NOW,
        None,
        "s1",
        False,
        False,
        {"s1": MemberState.READY, "s2": MemberState.WAITING},
        (A1, A2),
        (B1,),
        (),
        (),
        1234,
        5678,
        None,
    )
    return replace(made, **changes)


@dataclass
class Person:
    name: str

    def get_id(self) -> str:
        return f"id of {self.name}"

    def get_name(self) -> str:
        return self.name


@dataclass
class Books:
    """A desk whose locks stand in a list; what is ordered is written down."""

    task: Task
    locks_: list[LockView]
    given: list[tuple[LockCommand, str, str]] = field(default_factory=list)
    previewed: list[LockCommand] = field(default_factory=list)
    halt_: PauseState | None = None
    prechecks_: StoredPrechecks | None = None
    stops_: list[SuspendedTarget] = field(default_factory=list)
    remarks_: dict[str, Any] = field(default_factory=dict)
    reading_: dict[str, Any] = field(default_factory=dict)
    retried: list[tuple[SuspendedTarget, str, str]] = field(default_factory=list)

    def files(self) -> Sequence[TaskFile]:
        return [
            TaskFile("orders_merge", "unshard_ddl__orders_merge", self.task),
            TaskFile("secret", "unshard_ddl__secret", replace(self.task, name="secret")),
            TaskFile("broken.yaml", "unshard_full__broken", None),
        ]

    def overview(self, task: Task, seconds: float = 0) -> Overview:
        return Overview(tuple(self.sources(task)), self.reading(task).remarks)

    def sources(self, task: Task, seconds: float = 0) -> Sequence[SourceStatus]:
        at = Location("mysql-bin.000002", 77)
        known = SourceStatus("s1", Phase.SYNC, at, at, 12, 345, 6, 7890, 1234, 2, 1, rows_per_second=55.5)
        return [known, SourceStatus("s2")]

    def shards(self, task: Task, search: str, first: int, most: int = SHOWN) -> ShardList:
        shard = ListedShard(B1, TableId("shop", EVIL), "digest", False, 2, Location("b.7", 99), 1234, 5678, NOW)
        column = Column("id", "int", "int(11)", False, None, None, None, "")
        schema = TableSchema((column,), (), f"CREATE TABLE t (id int) COMMENT '{EVIL}'")
        return ShardList(1000, first, (shard,), {"s1": Location("b.8", 5)}, {"digest": schema})

    def matrices(self, task: Task) -> Sequence[TargetMatrix]:
        return difference_matrices(self.reading(task).differences)

    def differences(self, task: Task) -> Sequence[DifferenceView]:
        return self.reading(task).differences

    def locks(self, task: Task) -> Sequence[LockFacts]:
        return self.locks_

    def events(self, task: Task, most: int = SHOWN) -> Sequence[TaskEvent]:
        return [TaskEvent(NOW, EventKind.ERROR, f"[US-6002] {EVIL} value: 'a secret'", None, "l", EVIL, (A1,))]

    def charts(self, task: Task, hours: int) -> Charts:
        return Charts([60, 120], [None, hours], [1.5, None], [0, 7], [None, 12.5])

    def arrivals(self, task: Task, lock: str) -> Sequence[Arrival]:
        return [Arrival(A1, 1_700_000_000, NOW)]

    def lock(self, task: Task, lock: str) -> LockView | None:
        return next((each for each in self.locks_ if each.id == lock), None)

    def facts(self, task: Task, lock: str) -> LockFacts | None:
        return self.lock(task, lock)

    def reading(self, task: Task) -> Reading:
        passed = IgnoredStatement("s1", UnreadStatement(Location("b.7", 99), f"florble {EVIL}"), NOW)
        remarks = Remarks((passed,), tuple(self.locks_), self.halt_, tuple(self.stops_), **self.remarks_)
        collision = KeyCollision(TableId("shop", "orders"), f"id = {EVIL}", "", A1, B1, 3)
        collision = RecordedCollision(collision, Found.WINDOW, 17, CollisionState.OPEN, 2, NOW, NOW)
        return Reading(remarks, self.history(task, ""), self.prechecks_, collisions=(collision,), **self.reading_)

    def history(self, task: Task, lock: str | None) -> CommandHistory:
        return CommandHistory(
            (
                OperatorAction(
                    1, "l", "unlock", EVIL, "page", f"because {EVIL}", NOW, {"statements": [EVIL, "B"], "shard": EVIL}
                ),
            ),
            (Execution("l", "s1", "ALTER TABLE t COMMENT 'x'", "a", "b", NOW, None, None, None),),
        )

    def pause(self, task: Task) -> PauseState | None:
        return self.halt_

    def stops(self, task: Task) -> Sequence[SuspendedTarget]:
        return self.stops_

    def at_work(self, task: Task) -> Sequence[str]:
        return [f"a DDL on {EVIL}"]

    def set_paused(self, task: Task, is_paused: bool, by: str, reason: str) -> None:
        self.halt_ = PauseState(PauseKind.PAUSED, by, "page", reason, NOW) if is_paused else None

    def retry(self, task: Task, stops: Collection[SuspendedTarget], by: str, reason: str) -> None:
        self.retried += [(stop, by, reason) for stop in stops]
        self.stops_ = [stop for stop in self.stops_ if stop not in stops]

    def preview(self, task: Task, command: LockCommand) -> tuple[LockCommand, Sequence[str]]:
        if command.lock not in {lock.id for lock in self.locks_ if lock.is_open}:
            raise UnknownLock(task.name, command.lock)
        self.previewed.append(command)
        pinned = replace(command, seq=7) if isinstance(command, Skip) and command.shard else command
        return pinned, [f"would {type(command).__name__} {EVIL}"]

    def give(self, task: Task, command: LockCommand, by: str, reason: str) -> None:
        self.given.append((command, by, reason))


@dataclass
class Stage:
    """The page with a browser's cookies; `viewer` may look, `operator` may act, both not at `secret`."""

    books: Books
    app: FastAPI
    woken: list[tuple[str, str]]
    wait: Wait | None = None
    cookies: httpx.Cookies = field(default_factory=httpx.Cookies)

    def request(self, method: str, path: str, **given: Any) -> httpx.Response:
        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(app=self.app)
            async with httpx.AsyncClient(transport=transport, base_url=HOST, cookies=self.cookies) as client:
                answer = await client.request(method, path, **given)
                self.cookies = client.cookies
                return answer

        return asyncio.run(ask())

    def get(self, path: str, user: str = "operator") -> httpx.Response:
        return self.request("GET", path, headers={"X-User": user} if user else {})

    def post(self, path: str, fields: dict[str, str], user: str = "operator", **headers: str) -> httpx.Response:
        sent = {"X-User": user, "Origin": HOST} | headers
        return self.request("POST", path, data=fields, headers={name: value for name, value in sent.items() if value})

    def token(self, user: str = "operator") -> str:
        found = re.search(rf'name="{guard.FIELD}" value="(\w+)"', self.get(LOCK, user).text)
        return found[1] if found else ""


HOST = "http://airflow.test"
AT = "/unshard/task/orders_merge"
LOCK = f"{AT}/lock/orders_merge-shop.orders-1"


def user_of(request: Request) -> Person:
    if name := request.headers.get("x-user"):
        return Person(name)
    raise HTTPException(401, "Not authenticated")


def may(user: Any, change: bool, dag: str) -> bool:
    return dag == "unshard_ddl__orders_merge" and (user.get_name() == "operator" or not change)


@pytest.fixture
def stage() -> Stage:
    books, woken_runs = Books(load_task(ROOT / "include/tasks/orders_merge.yaml"), [view()]), []

    async def wake(request: Request, dag: str, run: str) -> Woken:
        woken_runs.append((dag, run))
        return Woken.CLEARED

    airflow = FastAPI()
    made = Stage(books, airflow, woken_runs)
    site = Site(user_of, may, wake, b"key", HOST, lambda dag, run: made.wait)
    airflow.mount("/unshard", application(site, books))
    return made


def hidden(page: str) -> dict[str, str]:
    """The hidden fields of a page's only form."""
    return {name: unescape(value) for name, value in re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', page)}


@pytest.mark.parametrize("path", ["/unshard/", AT, LOCK])
def test_nobody_sees_anything_without_a_login(stage: Stage, path: str) -> None:
    answer = stage.get(path, "")
    assert answer.status_code == 401
    assert "shop" not in answer.text


def test_overview_has_what_the_user_may_see(stage: Stage) -> None:
    page = stage.get("/unshard/", "viewer").text
    assert "orders_merge" in page and "waiting" in page and "12 min" in page and "7,890" in page
    assert "at least 12 s" in page and "full load" in page, "the other source has not begun"
    assert "secret" not in page and "broken" not in page


def test_task_that_may_not_be_seen_is_as_one_that_is_not_there(stage: Stage) -> None:
    answers = [stage.get(f"/unshard/task/{name}/lock/x") for name in ("secret", "nothing")]
    assert [answer.status_code for answer in answers] == [404, 404]
    assert len({answer.text for answer in answers}) == 1
    assert stage.post("/unshard/task/secret/lock/x/give", {}).status_code == 404


def test_task_shows_sources_locks_and_history(stage: Stage) -> None:
    stage.books.locks_ = [view(id="old", state=LockState.RESOLVED, resolved_at=NOW), view()]
    page = stage.get(AT, "viewer").text
    for told in (
        "12 s",
        "345 B",
        "mysql-bin.000002",
        "2, 1 held",
        "ADD COLUMN c INT",
        "s2 shop_1.orders_1",
        "1,234",
        "5.5 KiB",
        ">old<",
        "because",
    ):
        assert told in page, told


def test_task_shows_what_the_last_prechecks_have_found(stage: Stage) -> None:
    assert "No result is stored yet" in stage.get(AT).text
    fine = Item("binlog_enable", Severity.OK, "source s1", "ON")
    bad = [
        Item("key_overlap", severity, f"target t{n}", f"both {EVIL}", "US-2326", f"map {EVIL}")
        for n, severity in enumerate([Severity.WARNING] * 201 + [Severity.ERROR])
    ]
    stage.books.prechecks_ = StoredPrechecks((fine, *bad[-200:]), NOW)
    page = stage.get(AT, "viewer").text
    assert "1 error, 199 warning, 0 ignored, 1 ok" in page and "more; `" not in page and "<script>" not in page
    first, *_ = re.findall(r"<tr><td.*?</tr>", page[page.index('<table id="prechecks">') :], re.DOTALL)
    assert [unescape(cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", first)] == [
        "error",
        "target t201",
        "key_overlap",
        f"[US-2326] both {EVIL}",
        f"map {EVIL}",
    ]
    assert page.index("target t2<") < page.index("binlog_enable")
    stage.books.prechecks_ = StoredPrechecks((fine, *bad), NOW)
    page = stage.get(AT).text
    assert "And 2 more" in page and "target t201" in page, "errors are not what is left out"


def test_operator_pauses_and_resumes_a_task(stage: Stage) -> None:
    page = stage.get(f"{AT}/pause").text
    assert "no work of orders_merge begins" in page and "ends normally: a DDL on &lt;script" in page
    assert stage.books.halt_ is None, "a question changes nothing"
    done = stage.post(f"{AT}/pause", hidden(page) | {"reason": EVIL})
    assert (done.status_code, done.headers["location"]) == (303, AT)
    assert stage.books.halt_ and (stage.books.halt_.who, stage.books.halt_.reason) == ("operator", EVIL)
    page = stage.get(AT).text
    assert "paused by operator (page)" in page and EVIL not in page
    assert "paused" in stage.get("/unshard/", "viewer").text
    assert "button" not in stage.get(AT, "viewer").text and stage.get(f"{AT}/pause", "viewer").status_code == 403
    page = stage.get(f"{AT}/pause").text
    assert "orders_merge continues: the next windows" in page
    assert stage.post(f"{AT}/pause", hidden(page)).status_code == 303 and stage.books.halt_ is None


def test_pause_that_is_forged_or_by_who_may_not_is_refused(stage: Stage) -> None:
    fields = hidden(stage.get(f"{AT}/pause").text)
    assert stage.post(f"{AT}/pause", fields, Origin="http://evil.test").status_code == 403
    assert stage.post(f"{AT}/pause", fields | {guard.FIELD: "0" * 64}).status_code == 403
    assert stage.post(f"{AT}/pause", fields, "viewer").status_code == 403
    assert stage.post(f"{AT}/pause", fields | {"action": "burn"}).status_code == 422
    assert stage.books.halt_ is None


def stopped(number: int, table: str = "orders", key: str = "id = 7") -> SuspendedTarget:
    words = "(1366, \"Incorrect integer value: 'a secret' for column `shop`.`orders`.`n` at row 1\")"
    refusal = Refusal(TableId("shop", table), "n", key, words)
    return SuspendedTarget("s1", refusal, number, "digest", 3, NOW - timedelta(hours=49))


def rows_of(page: str, table: str) -> list[list[str]]:
    """The cells of a table's body as texts."""
    body = re.search(rf'<table id="{table}".*?<tbody>(.*?)</tbody>', page, re.DOTALL)
    found = re.findall(r"<tr>(.*?)</tr>", body[1], re.DOTALL) if body else []
    cells = [re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL) for row in found]
    return [[" ".join(unescape(re.sub(r"<[^>]+>", " ", cell)).split()) for cell in row] for row in cells]


def test_task_shows_targets_that_are_stopped(stage: Stage) -> None:
    assert "Suspended targets" not in stage.get(AT).text
    stage.books.stops_ = [stopped(7), stopped(8, EVIL)]
    page = stage.get(AT, "viewer").text
    first, second = rows_of(page, "stops")
    assert first[:5] == ["shop.orders", "s1", "2 d 1 h", "id = 7", "n"]
    assert first[5].startswith("[US-6002] (1366") and "a secret" not in page, "no value of a row"
    assert first[6].startswith("make the target's column as wide") and first[7:] == ["7", "3"], "a viewer has no button"
    assert second[0] == f"shop.{EVIL}" and EVIL not in page
    assert "Retry all 2" in stage.get(AT).text and "2 targets suspended" in stage.get("/unshard/", "viewer").text


def test_lock_in_the_list_says_that_its_target_is_stopped(stage: Stage) -> None:
    assert rows_of(stage.get(AT).text, "locks")[0][1] == "waiting"
    stage.books.locks_ = [view(stopped=(stopped(7),))]
    assert rows_of(stage.get(AT).text, "locks")[0][1] == "waiting after a suspended target"


def retries(page: str) -> list[str]:
    return [unescape(found) for found in re.findall(r'href="([^"]*/retry[^"]*)"', page)]


def test_operator_retries_one_target_or_all(stage: Stage) -> None:
    stage.books.stops_ = [stopped(7), stopped(8, EVIL, ""), stopped(9, "c d")]
    one, other, *_, all_ = retries(stage.get(AT).text)
    asked = stage.get(other)
    assert "goes on for s1" in asked.text and EVIL not in asked.text and "id = 7" not in asked.text
    assert "a secret" not in asked.text and "US-6002 comes again" in asked.text
    assert not stage.books.retried, "a question changes nothing"
    done = stage.post(f"{AT}/retry", hidden(asked.text) | {"reason": "mended"})
    assert (done.status_code, done.headers["location"]) == (303, f"{AT}?told=retried")
    assert stage.books.retried == [(stopped(8, EVIL, ""), "operator", "mended")]
    assert "The command is issued" in stage.get(done.headers["location"]).text
    gone = stage.get(other)
    assert gone.status_code == 422 and "continues already, or is suspended again" in gone.text
    assert stage.post(f"{AT}/retry", hidden(asked.text)).status_code == 422
    assert stage.post(f"{AT}/retry", hidden(stage.get(all_).text)).status_code == 303
    assert [stop.window for stop, *_ in stage.books.retried] == [8, 7, 9] and not stage.books.stops_
    assert "no target is suspended" in stage.get(one.partition("?")[0]).text


def test_retry_is_of_the_stops_that_were_seen(stage: Stage) -> None:
    stage.books.stops_ = [stopped(7)]
    fields = hidden(stage.get(f"{AT}/retry").text) | {"reason": f"why {EVIL}"}
    stage.books.stops_ = [stopped(7), stopped(10, "another")]
    again = stage.post(f"{AT}/retry", fields)
    assert again.status_code == 409 and "has changed" in again.text and not stage.books.retried
    assert "shop.another" in again.text and f'value="why {EVIL}"' in unescape(again.text), "the reason is kept"
    assert stage.post(f"{AT}/retry", hidden(again.text)).status_code == 303


def test_retry_that_is_forged_or_by_who_may_not_is_refused(stage: Stage) -> None:
    stage.books.stops_ = [stopped(7)]
    fields = hidden(stage.get(f"{AT}/retry").text)
    assert stage.post(f"{AT}/retry", fields, Origin="http://evil.test").status_code == 403
    assert stage.post(f"{AT}/retry", fields | {guard.FIELD: "0" * 64}).status_code == 403
    assert stage.post(f"{AT}/retry", fields, "viewer").status_code == 403
    assert stage.get(f"{AT}/retry", "viewer").status_code == 403
    assert stage.post(f"{AT}/retry", fields | {"reason": "x" * 1001}).status_code == 422
    assert not stage.books.retried


def test_task_shows_what_is_proven_of_its_targets(stage: Stage) -> None:
    assert "Validation" not in stage.get(AT).text
    proofs = (
        Proof(TableId("shop", EVIL), 1000, 975, timedelta(hours=31), 1, 0),
        Proof(TableId("shop", "few"), 0, 0, timedelta(minutes=5), 0, 2),
    )
    stage.books.remarks_ = {"proofs": proofs}
    page = stage.get(AT, "viewer").text
    first, second = rows_of(page, "validation")
    within = "of the rows proven equal within 24 h, oldest range"
    assert first == [f"shop.{EVIL}", "1,000", f"97 % {within} 31 h, 1 ranges differ"] and EVIL not in page
    assert second == ["shop.few", "0", f"100 % {within} 5 min, 0 ranges differ, 2 ranges pending"]


def test_task_shows_rows_that_were_put_aside(stage: Stage) -> None:
    assert "Diverted rows" not in stage.get(AT).text
    row = RowError(
        TableId("shop", EVIL),
        A1,
        f"id = {EVIL}",
        "n",
        "Incorrect integer value: 'a secret' for column n",
        '{"a": "a secret"}',
        12,
        RowErrorState.OPEN,
        2,
        NOW,
        NOW,
    )
    assert "Deferred rows" not in stage.get(AT).text
    stage.books.remarks_ = {"diverted": {"shop.few": 3, f"shop.{EVIL}": 1200}, "deferred": {f"shop.{EVIL}": 17}}
    stage.books.reading_ = {"row_errors": (row,) * 10}
    page = stage.get(AT, "viewer").text
    assert rows_of(page, "diverted") == [[f"shop.{EVIL}", "1,200"], ["shop.few", "3"]]
    assert rows_of(page, "deferred") == [[f"shop.{EVIL}", "17"]]
    latest = rows_of(page, "row-errors")
    assert len(latest) == 10 and "And 1,193 more" in page
    assert latest[0][:4] == [f"shop.{EVIL}", f"id = {EVIL}", "n", "s1 shop_1.orders_1"]
    assert "a secret" not in page and EVIL not in page
    assert "1,203 rows diverted" in stage.get("/unshard/", "viewer").text


def test_task_shows_orders_about_statements(stage: Stage) -> None:
    assert "Commands about statements" not in stage.get(AT).text
    waits = StatementCommand(
        2, CommandKind.REPLACE, StatementPlace("s1", Location("b.7", 99)), ("ALTER x PASSWORD 'hidden'", EVIL)
    )
    used = StatementCommand(1, CommandKind.SKIP, StatementPlace("s2", gtid="0-1-7"))
    met = Location("b.8", 5)
    stage.books.reading_ = {
        "commands": (
            CommandRecord(
                waits, CommandState.WAITING, EVIL, "command line", f"because {EVIL}", NOW, None, None, None, ""
            ),
            CommandRecord(used, CommandState.USED, "ann", "page", "", NOW, NOW, 12, met, f"DROP {EVIL}"),
        )
    }
    page = stage.get(AT, "viewer").text
    first, second = rows_of(page, "statement-orders")
    assert first[:3] == ["2", "s1", "b.7:99"] and first[3].startswith("replace ALTER x") and first[4] == "waiting"
    assert first[5:7] == [EVIL, "command line"] and first[9] == "–"
    assert second[2:4] == ["0-1-7", "skip"] and second[4].startswith("used by window 12")
    assert second[9] == f"DROP {EVIL} b.8:5"
    assert "hidden'" not in page and EVIL not in page


def test_task_shows_online_ddl_under_way(stage: Stage) -> None:
    assert "Online DDL" not in stage.get(AT).text
    real, shadow = TableId("shop_1", "orders_1"), TableId("shop_1", EVIL)
    ran = replace(STATEMENT, text=f"ALTER TABLE orders_1 COMMENT '{EVIL}'")
    made = int((datetime.now(UTC) - timedelta(minutes=7)).timestamp())  # ages are taken from now on
    stage.books.remarks_ = {
        "online": (
            ("s1", OnlineTable(shadow, real, OnlineRole.SHADOW, "gh-ost", made, statements=(ran,))),
            ("s2", OnlineTable(shadow, real, OnlineRole.SHADOW, BY_TRIGGER, is_whole=False, is_away=True)),
        )
    }
    page = stage.get(AT, "viewer").text
    first, second = rows_of(page, "online")
    assert first[:4] == ["s1", "shop_1.orders_1", f"shop_1.{EVIL}", "gh-ost"] and first[4].startswith("7 min")
    assert first[5] == f"ALTER TABLE orders_1 COMMENT '{EVIL}';" and first[6] == "copies rows"
    assert second[3:] == [
        BY_TRIGGER,
        "since before the snapshot",
        "its first statements are not known",
        "about to replace the table",
    ]
    assert EVIL not in page and "2 online DDL" in stage.get("/unshard/", "viewer").text


def test_lists_are_bounded_and_say_how_many_more_there_are(stage: Stage) -> None:
    stage.books.stops_ = [stopped(number, f"t_{number}") for number in range(1000)]
    stage.books.locks_ = [view(id=f"l-{number}") for number in range(1000)]
    online_table = OnlineTable(TableId("a", "b"), TableId("a", "c"), OnlineRole.SHADOW, "gh-ost")
    stage.books.remarks_ = {"diverted": {f"t{n}": n + 1 for n in range(1000)}, "online": (("s1", online_table),) * 1000}
    page = stage.get(AT).text
    for table in ("stops", "diverted", "locks", "online"):
        assert len(rows_of(page, table)) == SHOWN, table
    assert page.count("And 900 more") == 4 and "Retry all 1,000" in page
    assert rows_of(page, "diverted")[0] == ["t999", "1,000"]
    asked = stage.get(f"{AT}/retry").text
    assert asked.count("<li>") == SHOWN + 1 and "the same for 900 more" in asked
    stage.post(f"{AT}/retry", hidden(asked))
    assert len(stage.books.retried) == 1000
    assert "And 990 more" in stage.get("/unshard/").text


def test_warnings_about_the_task_file_are_shown(stage: Stage) -> None:
    stage.books.task = replace(stage.books.task, warnings=(f"key {EVIL} is deprecated",))
    page = stage.get(AT, "viewer").text
    assert "key &lt;script" in page and EVIL not in page


def test_viewer_sees_a_lock_and_has_no_button(stage: Stage) -> None:
    page = stage.get(LOCK, "viewer").text
    assert "s2 shop_1.orders_1" in page and "1,234 rows" in page
    assert "<form" not in page and "<button" not in page and guard.FIELD not in page
    assert "<form" in stage.get(LOCK).text


def test_what_a_ddl_does_to_the_union_is_told_before_and_after_it(stage: Stage) -> None:
    for state in (LockState.WAITING, LockState.RESOLVED):
        stage.books.locks_ = [view(state=state, resolved_at=NOW, filled=("c", EVIL))]
        for page in (stage.get(LOCK).text, stage.get(AT, "viewer").text):
            assert "own value of c, &lt;script&gt;" in page
    stage.books.locks_ = [view()]
    assert "own value" not in stage.get(LOCK).text + stage.get(AT).text


def test_resolved_lock_has_no_button(stage: Stage) -> None:
    stage.books.locks_ = [view(state=LockState.RESOLVED, resolved_at=NOW)]
    assert "<form" not in stage.get(LOCK).text


@pytest.mark.parametrize("step", ["preview", "give"])
def test_viewer_who_posts_is_refused(stage: Stage, step: str) -> None:
    stage.get(LOCK, "viewer")
    token = guard.token(b"key", stage.cookies.get(guard.COOKIE) or "", "id of viewer", "orders_merge")
    answer = stage.post(f"{LOCK}/{step}", {"action": "unlock", guard.FIELD: token}, "viewer")
    assert answer.status_code == 403 and "unshard_ddl__orders_merge" in answer.text
    assert not stage.books.given and not stage.books.previewed


def test_operator_sees_the_dry_run_and_then_orders(stage: Stage) -> None:
    fields = {"action": "unlock", "owner": "s1", "reason": " has\nbeen dropped ", guard.FIELD: stage.token()}
    shown_first = stage.post(f"{LOCK}/preview", fields)
    assert shown_first.status_code == 200 and "would Force" in shown_first.text
    assert not stage.books.given, "a dry run gives no order"
    done = stage.post(f"{LOCK}/give", hidden(shown_first.text))
    assert (done.status_code, done.headers["location"]) == (303, f"{LOCK}?told=cleared")
    order = Force("orders_merge-shop.orders-1", "s1")
    assert stage.books.given == [(order, "operator", "has been dropped")]
    assert stage.woken == [("unshard_ddl__orders_merge", order.lock)]
    assert "its wait was cleared" in stage.get(done.headers["location"]).text


def test_order_is_about_the_ddl_of_its_dry_run(stage: Stage) -> None:
    page = stage.post(f"{LOCK}/preview", {"action": "skip", "shard": str(B1), guard.FIELD: stage.token()}).text
    assert stage.post(f"{LOCK}/give", hidden(page)).status_code == 303
    assert [order for order, *_ in stage.books.given] == [Skip("orders_merge-shop.orders-1", B1, 7)]


def test_order_without_its_dry_run_is_not_carried_out(stage: Stage) -> None:
    answer = stage.post(f"{LOCK}/give", {"action": "unlock", guard.FIELD: stage.token()})
    assert answer.status_code == 409 and not stage.books.given and not stage.woken


def test_lock_that_has_changed_since_is_shown_again(stage: Stage) -> None:
    page = stage.post(f"{LOCK}/preview", {"action": "unlock", guard.FIELD: stage.token()}).text
    stage.books.locks_ = [view(missing=(), ready=(A1, A2, B1))]
    answer = stage.post(f"{LOCK}/give", hidden(page))
    assert answer.status_code == 409 and "has changed" in answer.text and not stage.books.given
    assert stage.post(f"{LOCK}/give", hidden(answer.text)).status_code == 303


def test_more_held_rows_change_no_decision(stage: Stage) -> None:
    page = stage.post(f"{LOCK}/preview", {"action": "unlock", guard.FIELD: stage.token()}).text
    stage.books.locks_ = [view(held_rows=99999, held_bytes=9, seen_at=datetime.now(UTC))]
    assert stage.post(f"{LOCK}/give", hidden(page)).status_code == 303


FORGERIES: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "no token": ({guard.FIELD: ""}, {}),
    "another token": ({guard.FIELD: "0" * 64}, {}),
    "no origin": ({}, {"Origin": ""}),
    "a stranger's page": ({}, {"Origin": "http://evil.test"}),
    "a page without an origin": ({}, {"Origin": "null"}),
    "another host of the site": ({}, {"Sec-Fetch-Site": "same-site"}),
    "a stranger's page, says the browser": ({}, {"Sec-Fetch-Site": "cross-site"}),
}


@pytest.mark.parametrize("forgery", FORGERIES)
@pytest.mark.parametrize("step", ["preview", "give"])
def test_forged_post_is_refused(stage: Stage, forgery: str, step: str) -> None:
    fields, headers = FORGERIES[forgery]
    page = stage.post(f"{LOCK}/preview", {"action": "unlock", guard.FIELD: stage.token()}).text
    answer = stage.post(f"{LOCK}/{step}", hidden(page) | fields, **headers)
    assert answer.status_code == 403 and not stage.books.given


def test_form_is_of_one_session_user_and_task(stage: Stage) -> None:
    session = "a session"
    made = guard.token(b"key", session, "id of operator", "orders_merge")
    assert guard.is_token(b"key", session, "id of operator", "orders_merge", made)
    for other in (
        (b"k", session, "id of operator", "orders_merge"),
        (b"key", "", "id of operator", "orders_merge"),
        (b"key", "other", "id of operator", "orders_merge"),
        (b"key", session, "id", "orders_merge"),
        (b"key", session, "id of operator", "other"),
    ):
        assert not guard.is_token(*other, made)
    assert not guard.is_token(b"key", "", "u", "t", guard.token(b"key", "", "u", "t")), "no session, no form"


def test_cookie_of_forms_is_for_this_page_only(stage: Stage) -> None:
    cookie = stage.get(LOCK).headers["set-cookie"]
    for told in ("HttpOnly", "SameSite=strict", "Path=/unshard"):
        assert told in cookie
    assert "set-cookie" not in stage.get(LOCK).headers, "a session keeps its cookie"
    assert "set-cookie" not in stage.get("/unshard/").headers


def test_reload_of_a_step_leads_back_to_the_lock(stage: Stage) -> None:
    for step in ("preview", "give"):
        answer = stage.get(f"{LOCK}/{step}")
        assert (answer.status_code, answer.headers["location"]) == (303, LOCK)


def test_long_form_is_refused(stage: Stage) -> None:
    fields = {"action": "replace", "statements": "x" * 300_000, guard.FIELD: stage.token()}
    assert stage.post(f"{LOCK}/preview", fields).status_code == 413


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"action": "nonsense"}, "no action"),
        ({"action": "unlock", "owner": EVIL}, "not a source"),
        ({"action": "skip", "shard": "s9 a.b"}, "not a shard"),
        ({"action": "skip", "seq": "-1"}, "not the number"),
        ({"action": "replace", "statements": " ;\n"}, "enter the statements"),
        ({"action": "drop-shard"}, "choose the shard"),
        ({"action": "unlock", "reason": "x" * 1001}, "more than 1000"),
    ],
)
def test_unfit_field_is_named(stage: Stage, fields: dict[str, str], told: str) -> None:
    answer = stage.post(f"{LOCK}/preview", fields | {guard.FIELD: stage.token()})
    assert answer.status_code == 422 and told in answer.text and "<script>" not in answer.text
    assert not stage.books.previewed


def test_refused_order_shows_the_coded_error(stage: Stage) -> None:
    token = stage.token()
    stage.books.locks_ = [view(state=LockState.RESOLVED, resolved_at=NOW)]
    answer = stage.post(f"{LOCK}/preview", {"action": "unlock", guard.FIELD: token})
    assert answer.status_code == 422 and "US-5004" in answer.text


@pytest.mark.parametrize(
    "order",
    [
        Force("orders_merge-shop.orders-1"),
        Force("orders_merge-shop.orders-1", "s1"),
        Skip("orders_merge-shop.orders-1"),
        Skip("orders_merge-shop.orders-1", B1),
        Skip("orders_merge-shop.orders-1", B1, 0),
        Replace("orders_merge-shop.orders-1", ("A",), B1, 12),
        Replace("orders_merge-shop.orders-1", ("ALTER TABLE shop.orders ADD c INT", "UPDATE t SET a = ';\\n'"), A2),
        DropShard("orders_merge-shop.orders-1", B1),
        Retry("orders_merge-shop.orders-1"),
    ],
    ids=lambda order: type(order).__name__,
)
def test_form_and_order_say_the_same(order: LockCommand) -> None:
    assert command.read_form(view(), command.form_fields(order)) == order


def test_statements_end_at_the_end_of_a_line() -> None:
    text = "ALTER TABLE t\r\n  ADD c INT;\r\nUPDATE t SET a = 'x;y';  \r\n\r\nDROP TABLE z"
    assert command.statements(text) == ("ALTER TABLE t\r\n  ADD c INT", "UPDATE t SET a = 'x;y'", "DROP TABLE z")
    assert command.statements(" ; \n;") == ()


def test_conflict_is_marked_word_by_word() -> None:
    left, right = marked("ALTER TABLE t ADD  c INT DEFAULT 5", "alter table t\nADD c BIGINT DEFAULT 5")
    assert [piece.text for piece in left if piece.differs] == ["INT"]
    assert [piece.text for piece in right if piece.differs] == ["BIGINT"]
    assert "".join(piece.text for piece in right) == "alter table t\nADD c BIGINT DEFAULT 5"


def test_only_the_case_of_literals_is_marked() -> None:
    _, right = marked("ADD `C` INT DEFAULT 'it''s'", "add `c` int default 'IT''s'")
    assert [piece.text for piece in right if piece.differs] == ["'IT''s'"]


def test_conflicts_stand_side_by_side(stage: Stage) -> None:
    stage.books.locks_ = [
        view(
            state=LockState.CONFLICT,
            conflicts=(B1,),
            conflicting=("ALTER TABLE `shop`.`orders` ADD COLUMN c BIGINT",),
            differences=(("it must first skip `x` of lock m-shop.orders-0",),),
        )
    ]
    page = stage.get(LOCK, "viewer").text
    assert "<mark>INT</mark>" in page and "<mark>BIGINT</mark>" in page
    assert "it must first skip `x` of lock m-shop.orders-0" in page


def test_undecided_lock_says_why(stage: Stage) -> None:
    stage.books.locks_ = [view(state=LockState.UNDECIDED, reason="the server says: no")]
    page = stage.get(LOCK).text
    assert "the server says: no" in page and "Try again" not in page


@pytest.mark.parametrize("state", [LockState.UNDECIDED, LockState.FAILED])
def test_target_that_has_refused_is_asked_again(stage: Stage, state: LockState) -> None:
    stage.books.locks_ = [view(state=state, reason="[US-4003] the target refuses with error 8200, no")]
    assert "Try again" in stage.get(LOCK).text and "Try again" not in stage.get(LOCK, "viewer").text
    answer = stage.post(f"{LOCK}/preview", {"action": "retry", "reason": "upgraded", guard.FIELD: stage.token()})
    assert answer.status_code == 200 and stage.books.given == []
    assert stage.post(f"{LOCK}/give", hidden(answer.text)).status_code == 303
    assert stage.books.given == [(Retry(view().id), "operator", "upgraded")]


def test_draining_lock_names_the_stopped_target_that_it_waits_for(stage: Stage) -> None:
    error = RowRefused("shop.orders", EVIL, "id = 1", "Incorrect integer value: 'zoe@x.org' for column `v` at row 1")
    stop = SuspendedTarget("s1", refusal_of(TableId("shop", "orders"), error), 1, "", 1, NOW)
    stage.books.locks_ = [view(state=LockState.DRAINING, missing=(), stopped=(stop,))]
    page = stage.get(LOCK, "viewer").text
    assert "is suspended for source s1" in page and "US-6002" in page and "zoe" not in page and "<script>" not in page


def test_what_was_ordered_already_is_shown(stage: Stage) -> None:
    stage.books.locks_ = [view(statements=("ALTER TABLE a", f"ALTER {EVIL}"), done=1, exempted=(B1,), missing=())]
    page = stage.get(LOCK, "viewer").text
    assert "ALTER TABLE a;</code> <span" in page and "exempted" in page and "<script>" not in page
    stage.books.locks_ = [view(state=LockState.RESOLVED, resolved_at=NOW, outcome=Outcome.EXECUTED)]
    assert f", {Outcome.EXECUTED}" in stage.get(LOCK, "viewer").text and str(Outcome.EXECUTED) in stage.get(AT).text


def test_every_text_is_escaped(stage: Stage) -> None:
    evil, name = Shard("s2", TableId(EVIL, EVIL)), EVIL.replace("/", "")
    evils = {"ddl": EVIL, "error": EVIL, "reason": EVIL, "owner": EVIL, "target": TableId(EVIL, EVIL)}
    stage.books.locks_ = [
        view(
            id=name,
            missing=(evil,),
            conflicts=(evil,),
            conflicting=(EVIL,),
            differences=((EVIL,),),
            members={EVIL: MemberState.CONFLICT},
            **evils,
        )
    ]
    for path in ("/unshard/", AT, "/unshard/task/<script>", f"{AT}/lock/{name}"):
        page = stage.get(path).text
        assert "&lt;script" in page or "404" in page
        assert "<script>" not in page.lower(), path


PAGES = ("/unshard/", AT, LOCK, "/unshard/task/nothing", f"{AT}/shards", f"{AT}/changes", f"{AT}/events")


def test_page_runs_its_own_files_only_and_loads_nothing_foreign(stage: Stage) -> None:
    files = set()
    for path in PAGES:
        answer = stage.get(path)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "script-src 'self';" in policy and "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        text = re.sub(r'<script src="/unshard/static/\w[\w.]*" defer></script>', "", answer.text)
        assert not re.search(r"<script|javascript:|\son\w+=|style=|https?://", text), path
        files |= set(re.findall(r'(?:src|href)="(/unshard/static/[^"]+)"', answer.text))
    kinds = {path.rpartition(".")[2]: stage.get(path).headers["content-type"].partition(";")[0] for path in files}
    assert kinds == {"js": "text/javascript", "css": "text/css"} and len(files) == 5


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("(1062, \"Duplicate entry 'ann@x.org-5' for key 'mail'\")", "(1062, \"Duplicate entry '…' for key 'mail'\")"),
        ("Duplicate entry 'it''s' for key 'k' ", "Duplicate entry '…' for key 'k' "),
        (
            "Incorrect integer value: 'secret' for column `a`.`b` at row 1",
            "Incorrect integer value: '…' for column `a`.`b` at row 1",
        ),
        ("Truncated incorrect DOUBLE value: 'secret'", "Truncated incorrect DOUBLE value: '…'"),
        ("Unknown column 'c' in 't'", "Unknown column 'c' in 't'"),
    ],
)
def test_value_of_a_row_is_not_shown(said: str, expected: str) -> None:
    assert refusal(said) == expected


@pytest.mark.parametrize(
    "said",
    [
        "CREATE TABLE t (a INT) ENGINE=FEDERATED CONNECTION='mysql://u:hidden@h/d/t'",
        "CREATE USER u IDENTIFIED BY 'hidden'",
        'alter table t connection = "mysql://u:hid\\"den hidden@h/"',
        "CHANGE MASTER TO MASTER_PASSWORD='hidden', PASSWORD 'hidden'",
    ],
)
def test_secret_of_a_statement_is_not_shown(said: str) -> None:
    assert "hidden" not in statement(said)
    assert statement("ALTER TABLE t COMMENT 'x'") == "ALTER TABLE t COMMENT 'x'"


def test_folder_of_task_files_as_the_dags_see_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    example = ROOT / "include/tasks"
    (tmp_path / "sources").mkdir()
    for path in (example / "sources").iterdir():
        (tmp_path / "sources" / path.name).write_text(path.read_text())
    text = (example / "orders_merge.yaml").read_text()
    (tmp_path / "a.yaml").write_text(text)
    (tmp_path / "b.yaml").write_text(text.replace("task-mode: all", "task-mode: full").replace("orders_merge", "f"))
    (tmp_path / "c d.yaml").write_text("name: [")
    monkeypatch.setenv("UNSHARD_TASKS", str(tmp_path))
    found = Service(lambda *_: None).files()
    assert [(file.name, file.dag, file.task is None) for file in found] == [
        ("orders_merge", "unshard_ddl__orders_merge", False),
        ("f", "unshard_full__f", False),
        ("c d.yaml", "unshard_full__c d", True),
    ]


def run_of(state: str | None, answer: int, asked: list[str]) -> Woken:
    """Wake a run through a REST API that knows one run."""

    def airflow(request: httpx.Request) -> httpx.Response:
        asked.append(f"{request.method} {request.url.raw_path.decode()}")
        if request.method == "GET":
            return httpx.Response(404) if state is None else httpx.Response(200, json={"state": state})
        return httpx.Response(answer)

    async def ask() -> Woken:
        transport = httpx.MockTransport(airflow)
        async with httpx.AsyncClient(transport=transport, base_url="http://airflow") as api:
            return await woken(api, "unshard_ddl__m", "m-a.b-1")

    return asyncio.run(ask())


def test_run_that_has_ended_is_woken() -> None:
    asked: list[str] = []
    assert [run_of(state, 200, asked) for state in FINISHED] == [Woken.CLEARED, Woken.CLEARED]
    assert asked[1] == "POST /api/v2/dags/unshard_ddl__m/clearTaskInstances"
    assert run_of("failed", 403, asked) is Woken.REFUSED


def test_run_that_goes_on_or_is_to_come_is_left_alone() -> None:
    asked: list[str] = []
    assert [run_of(state, 200, asked) for state in ("running", "queued", None)] == [
        Woken.RUNNING,
        Woken.RUNNING,
        Woken.ABSENT,
    ]
    assert all(one.startswith("GET") for one in asked)


def difference(subject: str, state: State, have: tuple[Shard, ...], lack: tuple[Shard, ...], **more: Any):
    values = {"reloads": (), "statements": (), "when": "now", "forms": {}, **more}
    return DifferenceView(f"d-{subject}", TableId("shop", "orders"), subject, state, NOW, have, lack, **values)


def test_a_rollout_is_a_matrix_of_shards_and_changes(stage: Stage) -> None:
    stage.books.reading_ = {
        "differences": (
            difference("column c", State.OPEN, (A1,), (B1,)),
            difference(f"column {EVIL}", State.RELOAD, (A1, B1), (), reloads=(B1,)),
            difference(f"DDL of {B1}", State.CONFLICT, (), (B1,), ddl=f"ALTER {EVIL}", reason=EVIL, held_rows=1234),
        )
    }
    text = stage.get(AT).text
    assert "Differences between shards" in text and EVIL not in text
    assert "1 of 2" in text and "1,234 rows held" in text
    text = stage.get(f"{AT}/changes", "viewer").text
    assert EVIL not in text and 'href="/dags/unshard_join__orders_merge/runs/d-column%20c"' in text
    cells = re.findall(r'<td class="cell (\w+)">', text)
    assert cells == ["has", "has", "apart", "lacks", "reloads", "waits"]


def test_a_shard_has_structure_position_and_held_rows(stage: Stage) -> None:
    page = stage.get(f"{AT}/shards?search=s2&first=200", "viewer").text
    (row,) = rows_of(page.replace('<tr id="s2/shop_1.orders_1">', "<tr>"), "shards")
    waits = "b.7:99 rows after it wait"
    structure = f"1 columns digest CREATE TABLE t (id int) COMMENT '{EVIL}'"
    assert row[:7] == ["s2 shop_1.orders_1", f"shop.{EVIL}", structure, waits, "2", "1,234", "5.5 KiB"]
    assert 'value="s2"' in page and "1,000 shards with “s2”, 201 to 201" in page and EVIL not in page
    assert 'href="?search=s2&amp;first=100"' in page and 'href="?search=s2&amp;first=300"' in page
    assert stage.get(f"{AT}/shards?first=-1").status_code == 422


def test_the_timeline_masks_values(stage: Stage) -> None:
    page = stage.get(f"{AT}/events", "viewer").text
    assert 'class="event error"' in page and "[US-6002]" in page and f'href="{AT}/lock/l"' in page
    assert "a secret" not in page and EVIL not in page


def test_a_lock_has_its_run_its_timeout_and_when_each_shard_came(stage: Stage) -> None:
    page = stage.get(LOCK, "viewer").text
    assert "none yet: the next live run starts it" in page and "1 h 0 min after the run has begun to wait" in page
    assert rows_of(page, "arrivals")[0][:2] == ["s1 shop_1.orders_1", "2023-11-14 22:13:20 UTC"]
    stage.wait = Wait("deferred", datetime(2026, 11, 28, 12, 0, tzinfo=UTC))
    page = stage.get(LOCK, "viewer").text
    assert 'href="/dags/unshard_ddl__orders_merge/runs/orders_merge-shop.orders-1" target="_top"' in page
    assert "wait_for_shards is deferred" in page and "2026-11-28 13:00:00 UTC (lock-timeout 1 h 0 min)" in page


def test_the_lock_that_needs_a_decision_is_the_next_step(stage: Stage) -> None:
    failed = view(id="other", state=LockState.FAILED, error="no")
    stage.books.locks_ = [view(), failed]
    page = stage.get(f"{AT}/events").text
    assert f'<a href="{AT}/lock/other">decide on lock other, which is failed</a>' in page
    stage.books.stops_ = [stopped(7), stopped(8, "b")]
    assert "correct the cause of suspended target shop.b and 1 more, then retry" in stage.get(f"{AT}/shards").text
    assert "correct the cause of suspended target" in stage.get("/unshard/").text


def test_a_task_without_differences_shows_none(stage: Stage) -> None:
    assert "Differences between shards" not in stage.get(AT).text
