"""The page of a task after real windows: suspended targets, diverted rows, commands, online DDL."""

import sys
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest
import yaml

from tests.integration.ddl.test_online_ddl import GhOst
from tests.integration.task.test_lock_page import browse
from tests.livetask import LiveTask, living
from unshard.cli import main
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration

AT = "/task/live"
COLUMNS = "id INT PRIMARY KEY AUTO_INCREMENT, v VARCHAR(20)"


@pytest.fixture
def task(
    source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[LiveTask]:
    if "airflow" not in sys.modules:
        monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    monkeypatch.setenv("UNSHARD_DB_PASSWORD", "unshard")
    monkeypatch.setenv("UNSHARD_TASKS", str(tmp_path))
    columns, numbers = {"t": COLUMNS, "b": COLUMNS}, {("s1", "t"): (1,), ("s2", "t"): (2,), ("s1", "b"): (1,)}
    servers, made = (source_1, source_2, target), {"columns": columns, "numbers": numbers, "window_bytes": 1 << 20}
    with living(unique, tmp_path, servers, "tb", **made) as opened:
        yield opened


def put(task: LiveTask, source: str, shard: str, number: int, value: str) -> None:
    task.sources[source].run(f"REPLACE INTO {task.name}.{shard} VALUES ({number}, '{value}')")


def look(task: LiveTask, path: str = AT) -> str:
    task.restart()
    return unescape(browse(("GET", path, {}))[0])


def test_operator_sees_a_target_that_is_stopped_and_lets_it_go_on(task: LiveTask) -> None:
    assert "Suspended targets" not in look(task)
    task.target.run(*(f"ALTER TABLE {task.table(group)} MODIFY v VARCHAR(3)" for group in "tb"))
    put(task, "s1", "t_1", 7, "too long")
    put(task, "s1", "b_1", 8, "long, too")
    task.run()
    assert "2 targets suspended" in look(task, "/")
    page = look(task)
    assert f">{task.table('t')}<" in page and "id = 7" in page and "id = 8" in page and "[US-6002]" in page
    (stop,) = [stop for stop in task.work().meta.suspended_targets.all() if stop.target.name == "t"]
    one = f"{AT}/retry?stop={stop.window}%20s1%20{task.table('t')}"
    asked, done = browse(("GET", one, {}), ("POST", f"{AT}/retry", {"reason": "mended"}))
    assert f"{task.table('t')} goes on for s1" in asked and f"{task.table('b')} goes on" not in asked
    assert "The command is issued" in done and "id = 8" in done
    assert [stop.target.name for stop in task.work().meta.suspended_targets.all()] == ["b"]
    (action,) = task.work().meta.locks.actions()
    assert (action.action, action.who, action.via, action.reason) == ("retry", "olga", "page", "mended")
    assert action.details == {"source": "s1", "target": task.table("t"), "key": "id = 7"}
    task.run()
    (again,) = [stop for stop in task.work().meta.suspended_targets.all() if stop.target.name == "t"]
    assert (again.times, again.window > stop.window) == (2, True), "the row did not fit still"
    put(task, "s1", "t_1", 7, "ok")
    put(task, "s1", "b_1", 8, "yes")
    task.run()
    browse(("GET", f"{AT}/retry", {}), ("POST", f"{AT}/retry", {}))
    task.run()
    task.assert_settled()
    assert "Suspended targets" not in look(task)


def test_page_shows_rows_put_aside_orders_and_online_ddl(task: LiveTask) -> None:
    body = yaml.safe_load(task.path.read_text())
    body["unshard"]["row-errors"] = "divert"
    task.path.write_text(yaml.safe_dump(body))
    task.restart()
    task.target.run(f"ALTER TABLE {task.table('t')} MODIFY v VARCHAR(3)")
    put(task, "s1", "t_1", 7, "a secret")
    put(task, "s2", "t_2", 8, "a secret")
    tool = GhOst(task, "s1", "t_1")
    tool.begin("ADD COLUMN c INT")
    task.run()
    end = task.upstream_end("s2")
    assert (
        main(
            [
                "ddl",
                "skip",
                str(task.path),
                "--source",
                "s2",
                "--at",
                f"{end.file}:{end.position + 900}",
                "--reason",
                "not here",
                "--yes",
            ]
        )
        == 0
    )
    page = look(task)
    assert "Diverted rows" in page and "id = 7" in page and "id = 8" in page and "a secret" not in page
    assert f"{task.name}._t_1_gho" in page and "ADD COLUMN c INT;" in page and "_t_1_ghc" not in page
    assert f">{end.file}:{end.position + 900}<" in page and ">waiting<" in page and "not here" in page
    number = task.work().meta.statement_commands.all()[0].command.number
    assert main(["ddl", "revert", str(task.path), "--number", str(number), "--yes"]) == 0
    assert ">waiting<" not in (page := look(task)) and ">reverted<" in page and ">ddl revert<" in page


def test_question_before_a_pause_names_what_is_going_on(task: LiveTask) -> None:
    with task.work().meta.active_workers.at("a window of s1"):
        (asked,) = browse(("GET", f"{AT}/pause", {}))
    assert "ends normally: a window of s1" in asked and "a window of s2" not in asked
    assert task.work().meta.pauses.get() is None
