"""Progress while a command works: bars and one living line on a terminal, else a line now and then.

There is one display per command, because two living regions on one terminal would overwrite each
other. Lines that are printed meanwhile appear above it: rich redirects stdout and stderr for that.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Self

from unshard.cli.console import Console
from unshard.core.fullload import Progress
from unshard.errors import UnshardError

if TYPE_CHECKING:
    from rich.progress import TaskID

log = logging.getLogger(__name__)

LINE_SECONDS = 5.0
POLL_SECONDS = 0.5
Figures = Mapping[str, tuple[Progress, Progress]]
"""Progress of dump and load per source."""


class Display:
    """What moves while a command works: `tell` for one line, `follow` for dump and load of every source."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bars: Any = None
        self._tasks: dict[str, TaskID] = {}
        self._told = time.monotonic()
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._follower: threading.Thread | None = None

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._bars = _bars(self._console)
            self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        if self._follower is not None:
            self._follower.join(LINE_SECONDS)
        if self._bars is not None:
            self._bars.stop()

    def tell(self, text: str) -> None:
        """Show the text now, or leave it out when a line was printed moments ago."""
        with self._lock:
            if self._bars is not None:
                self._bar("now", 0, 0, text)
            elif time.monotonic() - self._told >= LINE_SECONDS:
                self._told = time.monotonic()
                self._console.note(text)

    def follow(self, read: Callable[[], Figures]) -> None:
        """Show what `read` says of the full loads that are not finished, until the display ends."""
        if not self._console.as_json:
            self._follower = threading.Thread(target=self._follow, args=(read,), name="progress", daemon=True)
            self._follower.start()

    def _follow(self, read: Callable[[], Figures]) -> None:
        said = ""
        unfinished: set[str] = set()
        while not self._done.wait(POLL_SECONDS if self._bars is not None else LINE_SECONDS):
            try:
                figures = read()
            except UnshardError as error:
                log.info("progress cannot be read error=%s", error.code)  # the run meets the same error and reports it
                continue
            # A load that is seen to be unfinished is shown to its end; one of an earlier run is not.
            unfinished |= {source for source, (_, load) in figures.items() if load.done < load.chunks}
            shown = {source: figures[source] for source in figures if source in unfinished}
            if self._bars is not None:
                self._draw(shown)
            elif (text := "; ".join(_words(source, *each) for source, each in shown.items())) != said:
                self._console.note(text)
                said = text

    def _draw(self, figures: Figures) -> None:
        with self._lock:
            for source, (dump, load) in figures.items():
                self._bar(f"{source} dump", dump.percent, 100, str(dump))
                self._bar(f"{source} load", load.percent, 100, str(load))

    def _bar(self, name: str, done: float, total: int, text: str) -> None:
        if name not in self._tasks:
            self._tasks[name] = self._bars.add_task(name, total=total, text="")
        self._bars.update(self._tasks[name], total=total or None, completed=done, text=text)


def _bars(console: Console) -> Any:
    from rich.console import Console as Terminal
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[text]}", markup=False))
    return Bars(*columns, console=Terminal(file=console.out), transient=True)


def _words(source: str, dump: Progress, load: Progress) -> str:
    """What is going on: the dump until it is done, then the load."""
    dumps = dump.done < dump.chunks
    step, now = ("dumped", dump) if dumps else ("loaded", load)
    return f"{source}: {step} {now.done}/{now.chunks} chunks, {now}"
