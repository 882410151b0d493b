"""The installed Chromium without a window, driven by Playwright; Playwright downloads no browser.

Every step is tried again until it works: Airflow redraws its pages while a test acts on them. Each try may take
longer than the last one, because a busy machine needs long for one. Selectors also look into iframes, because Airflow
shows the pages of plugins in one.
"""

import contextlib
import itertools
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Error, Locator, Page, Request, sync_playwright

from unshard_demo import processes

SECONDS = 1800.0
SHORTEST, LONGEST = 500, 60_000
"""Milliseconds of the first try of a step, and of any."""
OPENING = 20
"""A page may take so many times as long as a step."""
OPTIONS = (
    "--disable-dev-shm-usage",
    "--disable-gpu",
    # A request to any other host fails at once.
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
)
POST = "([path, body, type]) => fetch(path, {method: 'POST', body, headers: {'Content-Type': type}})"


class Browser:
    """One page of a private browser."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.requested: list[str] = []
        page.on("request", lambda request: self.requested.append(request.url))

    def go(self, url: str) -> None:
        """Open an address and wait until the page has been read."""
        self._until(lambda limit: bool(self.page.goto(url, timeout=OPENING * limit)), url)

    def await_element(self, selector: str, text: str = "") -> None:
        """Wait until the element is there and visible."""
        self._with(selector, text, lambda element, limit: element.wait_for(timeout=limit))

    def click(self, selector: str, text: str = "") -> None:
        """Click an element as soon as it is there and enabled."""

        def click(element: Locator, limit: int) -> None:
            element.wait_for(timeout=limit)
            # A click whose limit ends after it, while the next page opens, would be tried again there without end.
            element.click(timeout=LONGEST, no_wait_after=True)

        self._with(selector, text, click)

    def send(self, selector: str, text: str, request: Callable[[Request], bool]) -> int:
        """Click an element, and return the status of the server's answer to the request that follows."""
        with self.page.expect_response(lambda answer: request(answer.request), timeout=SECONDS * 1000) as answered:
            self.click(selector, text)
        return answered.value.status

    def fill(self, selector: str, value: str) -> None:
        """Type into a field."""
        self._with(selector, "", lambda element, limit: element.fill(value, timeout=limit))

    def text(self, selector: str) -> str:
        """Return the text that an element shows."""
        found: list[str] = []
        self._with(selector, "", lambda element, limit: found.append(element.inner_text(timeout=limit)))
        return found[-1]

    def count(self, selector: str) -> int:
        """Return how many visible elements there are now."""
        return sum(element.count() for element in self._found(selector, ""))

    def post(self, path: str, fields: dict[str, str]) -> tuple[int, str]:
        """Send a form from the page that is shown, as the user who is logged in; return status and text."""
        script = f"async ([path, fields]) => {{ const answer = await ({POST})([path, new URLSearchParams(fields),"
        script += " 'application/x-www-form-urlencoded']); return [answer.status, await answer.text()] }"
        status, text = self.page.evaluate(script, [path, fields])
        return status, text

    def send_json(self, path: str, body: str) -> int:
        """Send a request to Airflow's REST API as the user who is logged in; return the status."""
        script = f"async sent => (await ({POST})(sent)).status"
        return int(self.page.evaluate(script, [path, body, "application/json"]))

    def forget(self) -> None:
        """Log out of everything."""
        self.page.context.clear_cookies()

    def _found(self, selector: str, text: str) -> list[Locator]:
        exactly = re.compile(rf"^\s*{re.escape(text)}\s*$") if text else None
        frames = reversed(self.page.frames)  # what a test uses is in the iframe, if there is one
        return [frame.locator(selector, has_text=exactly).filter(visible=True) for frame in frames]

    def _with(self, selector: str, text: str, use: Callable[[Locator, int], Any]) -> None:
        """Use the first such element as soon as that works."""

        def works(limit: int) -> bool:
            for element in self._found(selector, text):
                with contextlib.suppress(Error):
                    use(element.first, limit)
                    return True
            return False

        self._until(works, f"{selector} {text}")

    def _until(self, condition: Callable[[int], bool], what: str) -> None:
        """Try it with a limit in milliseconds that doubles from try to try."""
        limits = itertools.accumulate(
            itertools.repeat(2), lambda limit, factor: min(limit * factor, LONGEST), initial=SHORTEST
        )

        def holds() -> bool:
            with contextlib.suppress(Error):
                return condition(next(limits))
            return False

        try:
            processes.await_true(holds, SECONDS, [], what)
        except TimeoutError as error:
            shown = "\n---\n".join(f"{frame.url}\n{frame.inner_text('body')}" for frame in self.page.frames)
            raise TimeoutError(f"{what}\n{shown[:4000]}") from error


@contextlib.contextmanager
def browsing(folder: Path) -> Iterator[Browser]:
    """Run a browser with a profile of its own for the block; a missing Chromium fails instead of skipping."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.fail("chromium is not installed: run `make test` once")
    environment = {"HOME": str(folder), "PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=OPTIONS, env=environment)
        yield Browser(browser.new_page(viewport={"width": 1400, "height": 1000}))
        browser.close()
