"""Output of the command line: results on stdout, warnings and errors on stderr.

With --json stdout has exactly one JSON document, so progress is not printed.
"""

import json
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, TextIO

from unshard.adapters import tracebacks
from unshard.config import Task, load_task
from unshard.core.masking import statement
from unshard.core.shown import one_line, visible
from unshard.errors import UnshardError
from unshard.errors.config import NotConfirmed
from unshard.operate.documents import error_document

LEAST_WIDTH = 24
"""A narrower last column is not wrapped: each cell gets a line of its own instead."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Result of a command: a document for --json, and the same as lines of text."""

    document: Mapping[str, Any]
    lines: Sequence[str]
    exit_code: int = 0


@dataclass(frozen=True, slots=True)
class Console:
    """Where a command prints; with `as_json` it prints only its document."""

    as_json: bool = False
    verbose: bool = False
    given_out: TextIO | None = None
    given_err: TextIO | None = None
    ask: Callable[[str], str] = field(default_factory=lambda: input)

    @property
    def out(self) -> TextIO:
        """Stream of the results; looked up each time, because a progress display redirects it."""
        return self.given_out or sys.stdout

    @property
    def err(self) -> TextIO:
        return self.given_err or sys.stderr

    @property
    def is_terminal(self) -> bool:
        """Whether the output is a terminal, so that lines may be redrawn."""
        return not self.as_json and self.out.isatty()

    @property
    def width(self) -> int | None:
        """Columns of the terminal; None if the output is something else, which gets whole lines."""
        return shutil.get_terminal_size().columns if self.is_terminal else None

    def note(self, text: str) -> None:
        if not self.as_json:
            _line(text, self.out)

    def warn(self, texts: Iterable[str]) -> None:
        """Print warnings on stderr, with --json too."""
        for text in texts:
            _line(f"warning: {text}", self.err)

    def load(self, path: str, *, begins: bool = False) -> Task:
        """Load a task file and print its warnings."""
        task = load_task(Path(path))
        self.warn_of(task, begins=begins)
        return task

    def warn_of(self, task: Task, *, begins: bool = False) -> None:
        """Print the warnings of the task file, in brief unless verbose. Those about passwords need `begins`."""
        if not begins and not self.verbose:
            task = replace(
                task, warnings=tuple(text for text in task.warnings if text not in task.passwords), passwords=()
            )
        self.warn(task.warnings if self.verbose else task.brief_warnings)

    def confirm(self, question: str, is_confirmed: bool, effects: Iterable[str] = ()) -> None:
        """Print the effects and ask unless --yes was used; raises NotConfirmed for any answer but yes."""
        for line in effects:
            self.note(line)
        if is_confirmed:
            return
        try:
            answer = "" if self.as_json else self.ask(on_terminal(f"{question}? [yes/no] "))
        except EOFError:
            answer = ""
        if answer.strip().lower() not in ("y", "yes"):
            raise NotConfirmed(question)

    def answer(self, answer: Answer) -> int:
        text = json.dumps(answer.document, indent=2) if self.as_json else "\n".join(map(on_terminal, answer.lines))
        print(text, file=self.out, flush=True)
        return answer.exit_code

    def failure(self, error: UnshardError, cause: BaseException | None = None) -> int:
        """Print a coded error; exit code 1. With --verbose also the traceback of its cause, by default its own."""
        if self.as_json:
            print(json.dumps({"error": error_document(error)}, indent=2), file=self.out, flush=True)
        else:
            _line(f"unshard: {error}", self.err)
        if self.verbose:
            print(on_terminal(tracebacks.traceback_text(cause or error)), end="", file=self.err, flush=True)
        return 1


def _line(text: str, out: TextIO) -> None:
    """Print a line in one write, because sources that run in parallel print at the same time."""
    print(f"{on_terminal(text)}\n", end="", file=out, flush=True)


def on_terminal(text: str) -> str:
    """Return a text for a terminal, without the secrets of statements and with escapes for control characters."""
    return visible(statement(text))


def table(
    header: Sequence[str], rows: Iterable[Sequence[object]], width: int | None = None, after: Sequence[str] = ()
) -> list[str]:
    """Lay out rows in columns. `after` has a line to print after each row, or an empty one.

    In a terminal of this width no word is broken: the last column is wrapped, or each cell gets a line.
    """
    cells = [[*header], *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header) - 1)]
    begin = sum(widths) + 2 * len(widths)
    room = max(len(row[-1]) for row in cells) if width is None else width - begin
    longest = max((len(word) for row in cells for word in row[-1].split()), default=0)
    if room < min(max(longest, LEAST_WIDTH), max(len(row[-1]) for row in cells)):
        return _records(cells[0], cells[1:], width or 0, after)
    lines: list[str] = []
    for row, line in zip_longest(cells, ("", *after), fillvalue=""):
        first, *others = _wrapped(row[-1], room)
        columns = [*(text.ljust(each) for text, each in zip(row, widths, strict=False)), first]
        lines += ["  ".join(columns).rstrip(), *(" " * begin + text for text in others), *([line] if line else [])]
    return lines


def _records(header: Sequence[str], rows: Sequence[Sequence[str]], width: int, after: Sequence[str]) -> list[str]:
    """Lay out each row as lines of a heading and a cell, with an empty line between rows."""
    begin = max(map(len, header)) + 2
    lines: list[str] = []
    for row, line in zip_longest(rows, after, fillvalue=""):
        lines += [""] if lines else []
        for name, text in zip(header, row, strict=True):
            first, *others = _wrapped(text, max(width - begin, LEAST_WIDTH))
            lines += [name.ljust(begin) + first, *(" " * begin + text for text in others)]
        lines += [line] if line else []
    return lines


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, max(width, 1), break_long_words=False, break_on_hyphens=False) or [""]


def _cell(value: object) -> str:
    # Secrets are masked before a statement is wrapped: afterwards it is not a statement any more.
    return "-" if value is None or value == "" else on_terminal(one_line(str(value)))
