"""Progress of a running command: bars and a status line on a terminal, else a line every few seconds.

There is one display per command, because two live regions on one terminal would overwrite each
other. Other lines appear above it: rich redirects stdout and stderr for that.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Self

from unshard.adapters import tracebacks
from unshard.cli.console import Console
from unshard.core.full.fullprogress import Progress, progress_line
from unshard.core.shown import visible
from unshard.errors import UnshardError

if TYPE_CHECKING:
    from rich.progress import TaskID

log = logging.getLogger(__name__)

LINE_SECONDS = 5.0
REPEAT_SECONDS = 60.0
DRAW_SECONDS = 2.0
POLL_SECONDS = 0.5
Figures = Mapping[str, tuple[Progress, Progress]]
"""Progress of dump and load per source."""


class Display:
    """Display of a running command: `tell` for one line, `follow` for dump and load of every source."""

    def __init__(
        self, console: Console, line_seconds: float = LINE_SECONDS, poll_seconds: float = POLL_SECONDS
    ) -> None:
        self._console, self._line_seconds, self._poll_seconds = console, line_seconds, poll_seconds
        self._bars: Any = None
        self._tasks: dict[str, TaskID] = {}
        self._told = time.monotonic()
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._bars = _bars(self._console)
            self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join(self._line_seconds)
        if self._bars is not None:
            self._bars.stop()

    def tell(self, text: str) -> None:
        """Show the text now, or drop it if a line was printed less than LINE_SECONDS ago."""
        with self._lock:
            if self._bars is not None:
                self._bar("now", 0, 0, text)
            elif time.monotonic() - self._told >= self._line_seconds:
                self._told = time.monotonic()
                self._console.note(text)

    def follow(self, read: Callable[[], Figures]) -> None:
        """Show the progress of unfinished full loads, as `read` returns it, until the display ends."""
        self._begin(lambda: self._follow(read))

    def repeat(self, read: Callable[[], Mapping[str, str]]) -> None:
        """Show the present lines: on a terminal in place, otherwise once a minute."""
        self._begin(lambda: self._repeat(read))

    def _begin(self, show: Callable[[], None]) -> None:
        if not self._console.as_json:
            self._threads.append(threading.Thread(target=show, name="progress", daemon=True))
            self._threads[-1].start()

    def _repeat(self, read: Callable[[], Mapping[str, str]]) -> None:
        while not self._done.wait(DRAW_SECONDS if self._bars is not None else REPEAT_SECONDS):
            try:
                lines = read()
            except UnshardError as error:
                log.info("the state cannot be read error=%s", error.code)  # the run reports the same error
                continue
            for name, text in lines.items():
                if self._bars is not None:
                    with self._lock:
                        self._bar(name, 0, 0, text)
                else:
                    self._console.note(f"{name}: {text}")

    def _follow(self, read: Callable[[], Figures]) -> None:
        printed = ""
        unfinished: set[str] = set()
        while not self._done.wait(self._poll_seconds if self._bars is not None else self._line_seconds):
            try:
                figures = read()
            except UnshardError as error:
                log.info("progress cannot be read error=%s", error.code)  # the run reports the same error
                continue
            except Exception as error:
                self._console.warn([f"no progress is shown: {tracebacks.with_traceback_file(error)}"])
                return
            # An unfinished load is shown to its end; a load that an earlier run has finished is not shown.
            unfinished |= {source for source, (_, load) in figures.items() if load.done < load.chunks}
            shown = {source: figures[source] for source in figures if source in unfinished}
            if self._bars is not None:
                self._draw(shown)
            elif (text := "; ".join(progress_line(source, *each) for source, each in shown.items())) != printed:
                self._console.note(text)
                printed = text

    def _draw(self, figures: Figures) -> None:
        with self._lock:
            for source, (dump, load) in figures.items():
                self._bar(f"{source} dump", dump.percent, 100, str(dump))
                self._bar(f"{source} load", load.percent, 100, str(load))

    def _bar(self, name: str, done: float, total: int, text: str) -> None:
        if name not in self._tasks:
            self._tasks[name] = self._bars.add_task(visible(name), total=total, text="")
        self._bars.update(self._tasks[name], total=total or None, completed=done, text=visible(text))


def _bars(console: Console) -> Any:
    from rich.console import Console as Terminal
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bars

    name, text = (TextColumn(form, markup=False) for form in ("{task.description}", "{task.fields[text]}"))
    return Bars(name, BarColumn(), text, console=Terminal(file=console.out), transient=True)
