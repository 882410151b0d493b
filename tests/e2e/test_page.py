"""The page in a browser: 1,000 shards, 50 locks, a running load, light and dark, a phone, the keyboard, three users."""

import contextlib
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn
from fastapi import FastAPI, HTTPException, Request

from tests.e2e.browser import Browser, browsing
from tests.integration.task.test_lock_page import TASK
from tests.integration.task.test_page_limits import LOCKS, Crowd, crowd
from unshard.adapters.meta import Meta
from unshard.core.checks.items import Item, Severity
from unshard.core.model import Location, Shard, TableId
from unshard.core.task.state import Chunk, DumpedFile, Phase
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.e2e

PHONE, DESK = {"width": 375, "height": 812}, {"width": 1400, "height": 1000}
WIDTH = "document.documentElement.scrollWidth"
SAMPLES = """INSERT INTO {schema}.sample SELECT '{task}', 's1', UNIX_TIMESTAMP() DIV 60 - 1440 + seq, 100 * seq,
6000 * seq, 9000 * seq, 120, 5 + seq % 60 FROM {schema}.seq_1_to_1439"""
CHECKPOINT = "UPDATE {schema}.checkpoint SET windows = 144000, rows_applied = 8640000 WHERE task = '{task}'"


@dataclass
class Stage:
    """The page of two tasks, one of which loads, and a browser; `viewer` may see them, `operator` may change them."""

    url: str
    browser: Browser
    crowd: Crowd
    loading: Meta
    chunks: list[int]
    target: MariaDb
    said: list[str] = field(default_factory=list)
    """Errors that the browser has reported."""

    @property
    def at(self) -> str:
        return f"/task/{self.crowd.meta.task}"

    def log_in(self, user: str) -> None:
        self.browser.forget()
        self.browser.page.context.add_cookies([{"name": "who", "value": user, "url": self.url}])

    def go(self, path: str, user: str = "operator") -> None:
        self.log_in(user)
        self.browser.go(f"{self.url}/unshard{path}")

    def load(self, chunks: int) -> None:
        """Let so many chunks be loaded."""
        ids = ", ".join(map(str, self.chunks[:chunks]))
        done = "state = 'loaded', loaded_rows = row_count, loaded_at = UTC_TIMESTAMP(6), load_millis = 500"
        self.target.run(f"UPDATE {self.loading.schema}.load_chunk SET {done} WHERE id IN ({ids})")


def user_of(request: Request) -> Any:
    name = request.cookies.get("who", "")
    if not name:
        raise HTTPException(401, "Not authenticated")
    return SimpleNamespace(get_id=lambda: name, get_name=lambda: name)


@contextlib.contextmanager
def serving() -> Iterator[str]:
    """Serve the page for the block, on a free port."""
    from unshard_airflow.page.routes import application
    from unshard_airflow.page.service import Service
    from unshard_airflow.page.site import Site, Woken

    async def wake(*_: Any) -> Woken:
        return Woken.RUNNING

    site = Site(user_of, lambda user, change, dag: user.get_name() == "operator" or not change, wake, b"key")
    airflow = FastAPI()
    airflow.mount("/unshard", application(site, Service(lambda *_: None)))
    server = uvicorn.Server(uvicorn.Config(airflow, port=0, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            thread.join(0.05)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


@contextlib.contextmanager
def loading(target: MariaDb, folder: Path, many: Crowd) -> Iterator[tuple[Meta, list[int]]]:
    """Add a task whose full load has dumped ten chunks."""
    name = f"{many.meta.task}_load"
    text = TASK.format(name=name, schema=many.meta.schema, port=target.port, folder=folder)
    (folder / "loading.yaml").write_text(text)
    shard, at = Shard("s1", TableId("shard_1", "t_1")), Location("b.000001", 4)
    with contextlib.closing(Meta(target.server, many.meta.schema, name)) as meta:
        meta.sources.add("s1", "uuid", "mariadb")
        meta.sources.set_phase("s1", Phase.SNAPSHOT, snapshot=at)
        chunks = (Chunk(0, shard, TableId("shop", "orders"), number, None, None) for number in range(1, 11))
        ids = [chunk.id for chunk in meta.chunks.plan("s1", chunks)]
        for number in ids:
            meta.chunks.dumped(number, [DumpedFile(f"dump/{number}", 1000, 50_000)], 200)
        meta.sources.set_phase("s1", Phase.DUMPED, dump_end=at)
        meta.prechecks.store((Item("binlog_enable", Severity.OK, "source s1", "ON"),))
        yield meta, ids


@pytest.fixture(scope="module")
def stage(source_1: MariaDb, target: MariaDb, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("page")
    with contextlib.ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        if "airflow" not in sys.modules:
            patch.setenv("AIRFLOW_HOME", str(folder))
        patch.setenv("UNSHARD_DB_PASSWORD", "unshard")
        patch.setenv("UNSHARD_TASKS", str(folder))
        many = stack.enter_context(crowd(source_1, target, folder, "page_in_browser", LOCKS, 1000))
        meta, chunks = stack.enter_context(loading(target, folder, many))
        names = {"schema": many.meta.schema, "task": many.meta.task}
        target.run(f"DELETE FROM {many.meta.schema}.sample", SAMPLES.format(**names), CHECKPOINT.format(**names))
        browser = stack.enter_context(browsing(folder))
        made = Stage(stack.enter_context(serving()), browser, many, meta, chunks, target)
        browser.page.on("console", lambda said: made.said.append(said.text) if said.type == "error" else None)
        browser.page.on("pageerror", lambda error: made.said.append(str(error)))
        yield made


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [PHONE, DESK], ids=["phone", "desk"])
def test_every_part_fits_and_is_drawn(stage: Stage, size: Any, scheme: Any) -> None:
    page = stage.browser.page
    page.set_viewport_size(size)
    page.emulate_media(color_scheme=scheme)
    lock = f"{stage.at}/lock/{stage.crowd.lock}"
    for path, shows in (
        ("/", "#tasks"),
        (stage.at, ".u-wrap canvas"),
        (f"/task/{stage.loading.task}", "#loading progress"),
        (f"{stage.at}/shards", "#shards"),
        (f"{stage.at}/changes", "table.matrix"),
        (f"{stage.at}/events", "#events"),
        (lock, "#arrivals"),
    ):
        stage.go(path)
        stage.browser.await_element(shows)
        assert page.evaluate(WIDTH) <= size["width"], path
        red, green, blue = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
        assert (red + green + blue > 600) == (scheme == "light"), path
    assert stage.said == [], "the policy of the page stops nothing of it"


def test_charts_have_an_hour_and_a_day(stage: Stage) -> None:
    stage.go(stage.at)
    for title, unit in (("Lag", "seconds"), ("Throughput", "rows per second")):
        for span in ("last hour", "last day"):
            stage.browser.await_element(f'[aria-label^="{title}, {span}: at most"][aria-label$="{unit}"] canvas')
    stage.browser.await_element('[aria-label="Throughput, last hour: at most 100 rows per second"]')
    stage.browser.await_element('[aria-label="Lag, last day: at most 64 seconds"]')


def test_a_load_moves_without_a_reload(stage: Stage) -> None:
    browser = stage.browser
    stage.go(f"/task/{stage.loading.task}")
    browser.await_element("#loading", "")
    assert "wait for the full load" in browser.text("#step")
    browser.page.evaluate("window.isSame = true")
    browser.click("details summary")
    stage.load(7)
    browser.await_element('#loading progress[value="70.0"]')
    assert "7/10 chunks" in browser.text("#loading") and "rows/s" in browser.text("#loading")
    assert browser.page.evaluate("window.isSame") is True, "the page was not loaded again"
    assert browser.count("details[open]") == 1, "what the user has opened stays open"


def test_a_thousand_shards_are_searched_while_one_types(stage: Stage) -> None:
    browser, page = stage.browser, stage.browser.page
    stage.go(f"{stage.at}/shards")
    assert "1,000 shards, 1 to 100" in browser.text("[role=status].quiet")
    page.keyboard.press("/")
    page.keyboard.type("shard_77.")
    browser.await_element("tr[id='s1/shard_77.t_77']")
    browser.await_element("p.quiet", "1 shard with “shard_77.”")
    assert browser.count("#shards tbody tr") == 1 and page.url.endswith("?search=shard_77.")
    assert page.evaluate("document.activeElement.value") == "shard_77.", "the cursor stays in the field"
    stage.go(f"{stage.at}/shards")
    browser.click("a[rel=next]")
    browser.await_element("p.quiet", "1,000 shards, 101 to 200")


def test_everything_is_reached_by_keyboard(stage: Stage) -> None:
    browser, page = stage.browser, stage.browser.page
    stage.go("/")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    browser.await_element(".tabs")
    found = set()
    for _ in range(12):
        page.keyboard.press("Tab")
        found.add(page.evaluate("document.activeElement.textContent.trim()"))
    assert {"Shards", "Changes", "Events"} <= found


def test_fifty_locks_and_the_way_from_one_to_its_run(stage: Stage) -> None:
    browser = stage.browser
    stage.go(stage.at)
    assert browser.count("#locks tbody tr") == LOCKS
    browser.click("#step a")
    browser.await_element("#timeout")
    assert browser.count("#arrivals tbody tr") == 1 and "none yet" in browser.text("#run")
    stage.go(f"{stage.at}/changes")
    assert browser.count("table.matrix") == LOCKS and browser.count("td.cell.has") == LOCKS
    browser.page.keyboard.press("/")
    browser.page.keyboard.type("shard_1.")
    browser.await_element("td.quiet", "no shard with “shard_1.”")
    assert browser.count("td.cell") == 1


def test_who_may_see_and_change_what(stage: Stage) -> None:
    browser, lock = stage.browser, f"{stage.at}/lock/{stage.crowd.lock}"
    for path in ("/", stage.at, f"{stage.at}/shards", lock):
        browser.forget()
        browser.go(f"{stage.url}/unshard{path}")
        assert browser.text("#failure") == "Not authenticated"
    for path in (stage.at, lock):
        stage.go(path, "viewer")
        browser.await_element("#live")
        assert browser.count("form button") == browser.count("#pause") == 0
    assert browser.post(f"/unshard{lock}/give", {"action": "unlock"})[0] == 403
    stage.go(stage.at)
    browser.click("#pause")
    browser.fill("[name=reason]", "a look")
    browser.click("#confirm button")
    assert "paused by operator (page)" in browser.text("#paused") and "a look" in browser.text("#paused")
    assert browser.text("#step").startswith("resume the task")
    browser.click("#pause")
    browser.click("#confirm button")
    browser.await_element("#state", "sync")
    assert browser.count("#paused") == 0


def test_a_page_that_is_not_refreshed_says_so(stage: Stage) -> None:
    stage.go(f"{stage.at}/events")
    stage.browser.await_element("#events")
    stage.browser.forget()
    stage.browser.await_element("#stale", "Not refreshed: Not authenticated")
    assert stage.browser.count("#events") == 1, "the last state is still there"
    stage.log_in("viewer")
    stage.browser.page.locator("#stale:empty").wait_for(state="attached", timeout=600_000)
