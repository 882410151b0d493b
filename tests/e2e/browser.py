"""Chromium without a window, driven over its own protocol: no driver program, nothing to download.

Every step waits for a condition in the page and tries again until it holds; nothing waits for a time. The
pages of Airflow are redrawn under our hands, so an element is looked up and used in the same evaluation.
"""

import base64
import contextlib
import json
import shutil
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import ClientConnection, connect

from unshard_demo import processes
from unshard_demo.processes import Program

SECONDS = 600.0
PORT_FILE = "DevToolsActivePort"
OPTIONS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--mute-audio",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
    "--disable-renderer-backgrounding", "--disable-background-timer-throttling", "--password-store=basic",
    # Whatever a page asks of another host fails at once.
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
    # Port 0: Chromium takes a free one and writes it into a file.
    "--remote-debugging-port=0", "--window-size=1400,1000",
)  # fmt: skip
HELPERS = """
globalThis.pages_ = () => [document, ...[...document.querySelectorAll('iframe')].map(f => f.contentDocument)]
  .filter(Boolean);
globalThis.all_ = selector => pages_().flatMap(page => [...page.querySelectorAll(selector)])
  .filter(element => element.getClientRects().length);
globalThis.find_ = (selector, text) => all_(selector).find(e => !text || e.innerText.trim() === text);
globalThis.click_ = (selector, text) => {
  const element = find_(selector, text);
  if (!element || element.disabled || element.ariaDisabled === 'true') return false;
  element.click();
  return true;
};
globalThis.fill_ = (selector, value) => {
  const element = find_(selector);
  if (!element) return false;
  element.focus();
  // React keeps what it has set itself; the prototype's setter goes past that.
  Object.getOwnPropertyDescriptor(Object.getPrototypeOf(element), 'value').set.call(element, value);
  for (const kind of ['input', 'change']) element.dispatchEvent(new Event(kind, {bubbles: true}));
  return element.value === value;
};
"""


class Browser:
    """One page of a private browser; selectors look into iframes of the same site, too."""

    def __init__(self, program: Program, socket: ClientConnection) -> None:
        self.program = program
        self._socket = socket
        self._number = 0
        self.requested: list[str] = []

    def go(self, url: str) -> None:
        """Open an address and wait until the page has been read."""
        self.call("Page.navigate", url=url)
        self.until("document.readyState === 'complete' && location.href !== 'about:blank'", url)

    def js(self, expression: str) -> Any:
        """Evaluate in the page; an exception there is an error here."""
        told = self.call(
            "Runtime.evaluate", expression=f"{HELPERS};{expression}", returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in told:
            raise RuntimeError(f"{expression}: {told['exceptionDetails']}")
        return told["result"].get("value")

    def until(self, expression: str, what: str) -> None:
        """Wait until the expression is true; a page that is being replaced is looked at again."""

        def holds() -> bool:
            with contextlib.suppress(RuntimeError):
                return bool(self.js(expression))
            return False

        try:
            processes.await_true(holds, SECONDS, [self.program], what)
        except TimeoutError as error:
            text = self.js("pages_().map(d => d.location.href + '\\n' + d.body.innerText).join('\\n---\\n')")
            raise TimeoutError(f"{what}\n{text[:4000]}") from error

    def await_element(self, selector: str, text: str = "") -> None:
        """Wait until the element is there and visible."""
        self.until(f"Boolean(find_({_quoted(selector)}, {_quoted(text)}))", f"{selector} {text}")

    def click(self, selector: str, text: str = "") -> None:
        """Click an element as soon as it is there and enabled."""
        self.until(f"click_({_quoted(selector)}, {_quoted(text)})", f"click {selector} {text}")

    def fill(self, selector: str, value: str) -> None:
        """Type into a field, or choose an option, so that a page that keeps the value elsewhere notices."""
        self.until(f"fill_({_quoted(selector)}, {_quoted(value)})", f"fill {selector}")

    def text(self, selector: str) -> str:
        """Return what an element shows."""
        self.await_element(selector)
        return str(self.js(f"find_({_quoted(selector)}).innerText"))

    def count(self, selector: str) -> int:
        """Return how many visible elements there are now."""
        return int(self.js(f"all_({_quoted(selector)}).length"))

    def post(self, path: str, fields: dict[str, str]) -> tuple[int, str]:
        """Send a form from the page that is shown, as the user who is logged in; return status and text."""
        body = f"new URLSearchParams({json.dumps(fields)})"
        told = self.js(
            f"fetch({_quoted(path)}, {{method: 'POST', body: {body}}}).then(async a => [a.status, await a.text()])"
        )
        return told[0], told[1]

    def send_json(self, path: str, body: str) -> int:
        """Send a request to Airflow's REST API as the user who is logged in; return the status."""
        sent = f"{{method: 'POST', headers: {{'Content-Type': 'application/json'}}, body: {_quoted(body)}}}"
        return int(self.js(f"fetch({_quoted(path)}, {sent}).then(answer => answer.status)"))

    def colours(self, scheme: str) -> None:
        """Let the page believe that the user prefers light or dark."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def picture(self, path: Path) -> None:
        """Take a screenshot."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def forget(self) -> None:
        """Log out of everything."""
        self.call("Network.clearBrowserCookies")

    def call(self, method: str, **parameters: Any) -> Any:
        """Send a command of the protocol; return its result."""
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while True:
            told = json.loads(self._socket.recv(timeout=SECONDS))
            if told.get("id") == self._number:
                if "error" in told:
                    raise RuntimeError(f"{method}: {told['error']}")
                return told["result"]
            if told.get("method") == "Network.requestWillBeSent":
                self.requested.append(told["params"]["request"]["url"])


def _quoted(text: str) -> str:
    return json.dumps(text)


@contextlib.contextmanager
def browsing(folder: Path) -> Iterator[Browser]:
    """Run a browser with a profile of its own for the block; a missing Chromium fails instead of skipping."""
    if shutil.which("chromium") is None:
        pytest.fail("chromium is not installed: run `make test` once")
    # A socket in the profile has a longest path, which a test's folder may exceed.
    with tempfile.TemporaryDirectory(prefix="unshard-", ignore_cleanup_errors=True) as profile:
        command = ["chromium", *OPTIONS, f"--user-data-dir={profile}", "about:blank"]
        environment = {"HOME": profile, "PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
        program = processes.start("chromium", command, environment, folder / "chromium.log")
        try:
            # Events pile up while nobody asks anything, and a full queue would leave a ping without its answer.
            with connect(_address(program, Path(profile)), max_size=None, max_queue=None, ping_interval=None) as socket:
                browser = Browser(program, socket)
                for domain in ("Page", "Network", "Runtime"):
                    browser.call(f"{domain}.enable")
                yield browser
        finally:
            processes.stop(program)


def _address(program: Program, profile: Path) -> str:
    """Return where the first page listens, once it does."""
    found: list[str] = []

    def listens() -> bool:
        with contextlib.suppress(OSError, IndexError, ValueError):
            port = int((profile / PORT_FILE).read_text().splitlines()[0])
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/json", timeout=5) as answer:
                found[:] = [t["webSocketDebuggerUrl"] for t in json.load(answer) if t["type"] == "page"]
        return bool(found)

    processes.await_true(listens, SECONDS, [program], "chromium listens")
    return found[0]
