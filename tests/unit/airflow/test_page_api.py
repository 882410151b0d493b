"""The JSON API of the page: its documents, who sees and may do what, and that no other site can give a command."""

import json
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from tests.unit.airflow.test_page import AT, B1, EVIL, HOST, LOCK, NOW, Stage, difference, stage, stopped, view
from unshard.core.ddl.lock import LockState
from unshard.core.join.states import State
from unshard.core.shown import as_json
from unshard.operate.command import DropShard, Force, Skip
from unshard.operate.documents import difference_document, lock_document
from unshard.operate.statusdocument import status_document
from unshard.units.ddl.differences import DifferenceView
from unshard_airflow.page import guard
from unshard_airflow.page.jsonapi import TOKEN

__all__ = ["stage"]

API = "/unshard/api"
TASK = f"{API}/tasks/orders_merge"
LOCK_ID = "orders_merge-shop.orders-1"
READS = (
    "",
    "/locks",
    f"/locks/{LOCK_ID}",
    "/differences",
    "/commands",
    "/shards",
    "/history",
    "/history?hours=24",
    "/events",
)


def read(stage: Stage, path: str = "", user: str = "viewer") -> Any:
    answer = stage.get(f"{TASK}{path}", user)
    assert answer.status_code == 200, answer.text
    return answer.json()


def give(stage: Stage, body: dict[str, Any], user: str = "operator", **headers: str) -> Any:
    """Send a command as a page of this site does, unless the headers say otherwise."""
    token = stage.get(f"{TASK}/token", user).json().get("token", "")
    sent = {"X-User": user, "Origin": HOST, TOKEN: token} | headers
    return stage.request("POST", f"{TASK}/commands", json=body, headers={k: v for k, v in sent.items() if v})


@pytest.mark.parametrize("path", [f"{API}/tasks", f"{API}/openapi.json", *(f"{TASK}{path}" for path in READS)])
def test_a_login_is_needed_and_the_answer_is_json(stage: Stage, path: str) -> None:
    answer = stage.get(path, "")
    assert answer.status_code == 401
    assert answer.json() == {"error": {"code": "", "message": "Not authenticated", "hint": ""}}
    assert stage.get(path, "viewer").status_code == 200


def test_other_tasks_are_not_there(stage: Stage) -> None:
    assert [task["task"] for task in stage.get(f"{API}/tasks", "viewer").json()] == ["orders_merge"]
    for path in (*READS, "/token"):
        assert stage.get(f"{API}/tasks/secret{path}").status_code == 404
    body = {"action": "pause", "dry_run": False}
    assert (
        stage.request("POST", f"{API}/tasks/secret/commands", json=body, headers={"X-User": "operator"}).status_code
        == 404
    )


def test_the_list_has_what_the_header_of_the_page_shows(stage: Stage) -> None:
    (task,) = stage.get(f"{API}/tasks").json()
    step = f"run the DDL of lock {LOCK_ID} on 1 more shard, or unlock it"
    expected = {
        "state": "full load",
        "lag_seconds": 12,
        "lag_is_least": True,
        "rows_per_second": 55.5,
        "rows_held": 1234,
    }
    assert task.items() >= (expected | {"open_locks": 1, "next_step": step, "error": None}).items()
    page = stage.get(AT).text
    for shown in (">full load<", ">at least 12 s<", ">56<", ">1,234<", f">{step}<"):
        assert shown in page, shown


def test_documents_are_those_of_the_command_line(stage: Stage) -> None:
    books = stage.books
    books.stops_ = [stopped(7)]
    books.reading_ = {"differences": (column_c(),)}
    reading = books.reading(books.task)
    expected = status_document(books.task, books.sources(books.task), reading.remarks, reading.differences)
    found = read(stage)
    assert found.keys() == expected.keys() and found["validated"] == []
    (stop,) = found["suspended_targets"]
    assert "a secret" in expected["suspended_targets"][0]["error"] and "a secret" not in stop["error"]
    assert {**found, "suspended_targets": 0} == as_json({**expected, "suspended_targets": 0})
    assert read(stage, "/differences") == [difference_document(column_c())]
    told = read(stage, f"/locks/{LOCK_ID}")
    assert told["lock"] == lock_document(view(opened_at=told_at(told)))
    assert (told["dag"], told["run"], told["wait"]) == ("unshard_ddl__orders_merge", LOCK_ID, None)
    assert told["arrivals"] == [
        {"shard": "s1 shop_1.orders_1", "executed_at": 1_700_000_000, "seen_at": NOW.isoformat()}
    ]


def told_at(told: Any) -> datetime:
    return datetime.fromisoformat(told["lock"]["opened_at"])


def column_c() -> DifferenceView:
    return difference("column c", State.OPEN, (B1,), (), ddl="ALTER")


def test_lists_are_short_documents(stage: Stage) -> None:
    (lock,) = read(stage, "/locks")
    assert (lock["id"], lock["ready"], lock["missing"], lock["held_rows"]) == (LOCK_ID, 2, 1, 1234)
    found = read(stage, "/shards?search=x&first=200")
    assert (found["count"], found["first"]) == (1000, 200)
    assert (
        found["shards"][0].items() >= {"shard": str(B1), "position": "b.7:99", "queued": 2, "held_rows": 1234}.items()
    )
    assert stage.get(f"{TASK}/shards?most=100000").status_code == 422, "a part has a limit"
    assert read(stage, "/history?hours=24") == {
        "at": [60, 120],
        "lag_seconds": [None, 24],
        "rows_per_second": [1.5, None],
        "rows_held": [0, 7],
        "window_millis": [None, 12.5],
    }
    (event,) = read(stage, "/events")
    assert event["kind"] == "error" and event["shards"] == ["s1 shop_1.orders_1"] and "a secret" not in event["text"]
    assert read(stage, "/commands")[0]["reason"] == f"because {EVIL}"


def test_the_api_is_described(stage: Stage) -> None:
    found = stage.get(f"{API}/openapi.json", "viewer").json()
    paths = {path.removeprefix("/api") for path in found["paths"]}
    assert {"/tasks", "/tasks/{task}", "/tasks/{task}/shards", "/tasks/{task}/commands"} <= paths and len(paths) == 10
    assert "StatusDocument" in found["components"]["schemas"] and "CommandRequest" in found["components"]["schemas"]


def test_a_command_is_shown_first_and_given_then(stage: Stage) -> None:
    body = {"action": "unlock", "lock": LOCK_ID, "owner": "s1", "reason": "  gone "}
    seen = give(stage, body).json()
    assert seen["effects"] == [f"would Force {EVIL}"] and not seen["is_given"] and not stage.books.given
    done = give(stage, body | {"dry_run": False, "seen": seen["seen"]}).json()
    assert done["is_given"] and done["run"] == "cleared"
    assert stage.books.given == [(Force(LOCK_ID, "s1"), "operator", "gone")]
    assert stage.woken == [("unshard_ddl__orders_merge", LOCK_ID)]
    assert give(stage, {"action": "skip", "lock": LOCK_ID, "shard": str(B1), "dry_run": False}).json()["is_given"]
    assert give(stage, {"action": "drop-shard", "lock": LOCK_ID, "shard": str(B1), "dry_run": False}).json()["is_given"]
    assert [command for command, *_ in stage.books.given[1:]] == [Skip(LOCK_ID, B1, 7), DropShard(LOCK_ID, B1)]


def test_a_command_after_a_change_is_rejected(stage: Stage) -> None:
    body = {"action": "unlock", "lock": LOCK_ID}
    seen = give(stage, body).json()["seen"]
    stage.books.locks_ = [replace(view(), missing=())]
    assert give(stage, body | {"dry_run": False, "seen": seen}).status_code == 409 and not stage.books.given


def test_commands_about_the_task(stage: Stage) -> None:
    assert "no work of orders_merge begins" in give(stage, {"action": "pause"}).json()["effects"][0]
    assert stage.books.halt_ is None
    assert give(stage, {"action": "pause", "reason": "why", "dry_run": False}).json()["is_given"]
    assert stage.books.halt_ is not None and stage.books.halt_.reason == "why"
    assert read(stage)["pause"]["by"] == "operator" and read(stage)["next_step"].startswith("resume the task")
    assert give(stage, {"action": "resume", "dry_run": False}).json()["is_given"] and stage.books.halt_ is None
    stage.books.stops_ = [stopped(7), stopped(8, "b")]
    assert give(stage, {"action": "retry-target", "stop": "8 s1 shop.b", "dry_run": False}).json()["is_given"]
    assert [stop.window for stop, *_ in stage.books.retried] == [8]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"action": "burn"}, 422),
        ({"action": "unlock", "lock": "no-such"}, 404),
        ({"action": "unlock", "lock": LOCK_ID, "owner": "s9"}, 422),
        ({"action": "replace", "lock": LOCK_ID}, 422),
        ({"action": "retry-target"}, 422),
        ({"action": "pause", "reason": "x" * 1001}, 422),
    ],
)
def test_an_invalid_command_is_rejected(stage: Stage, body: dict[str, Any], status: int) -> None:
    answer = give(stage, body | {"dry_run": False})
    assert answer.status_code == status and not stage.books.given and stage.books.halt_ is None
    assert "shop" not in json.dumps(stage.woken)


def test_a_viewer_gives_no_command(stage: Stage) -> None:
    assert stage.get(f"{TASK}/token", "viewer").status_code == 403
    token = guard.token(b"key", stage.cookies.get(guard.COOKIE) or "", "id of viewer", "orders_merge")
    for headers in ({TOKEN: token}, {"Authorization": "Bearer x"}):
        answer = give(stage, {"action": "pause", "dry_run": False}, "viewer", **headers)
        assert answer.status_code == 403 and "task instances of unshard_ddl__orders_merge" in answer.text
    assert stage.books.halt_ is None


FORGERIES: dict[str, dict[str, str]] = {
    "no token": {TOKEN: ""},
    "another token": {TOKEN: "0" * 64},
    "no origin": {"Origin": ""},
    "another site": {"Origin": "http://evil.test"},
    "another site, says the browser": {"Sec-Fetch-Site": "cross-site"},
    "another kind of login": {TOKEN: "", "Authorization": "Basic eDp5"},
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_another_site_gives_no_command(stage: Stage, forgery: str) -> None:
    answer = give(stage, {"action": "pause", "dry_run": False}, **FORGERIES[forgery])
    assert answer.status_code == 403 and stage.books.halt_ is None


def test_a_token_of_airflow_needs_no_other(stage: Stage) -> None:
    headers = {TOKEN: "", "Origin": "", "Authorization": "Bearer token-of-airflow"}
    assert give(stage, {"action": "pause", "dry_run": False}, **headers).json()["is_given"]


def test_an_error_of_a_server_is_json_too(stage: Stage) -> None:
    stage.books.locks_ = [view(state=LockState.RESOLVED, resolved_at=NOW)]
    answer = give(stage, {"action": "unlock", "lock": LOCK_ID, "dry_run": False})
    assert answer.status_code == 422 and "US-5004" in answer.json()["error"]["message"]
    assert stage.get(LOCK).headers["content-type"].startswith("text/html")
