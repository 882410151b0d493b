"""The life of a task besides its work: pause, resume, stop, and the removal of all that it has left.

| died in the removal                | what happens                                                   |
|------------------------------------|----------------------------------------------------------------|
| after the task was stopped         | it stays stopped; the removal is given again                   |
| between the rows and the files     | the files are named by no row: the removal given again finds   |
|                                    | no rows and removes them                                       |

Target tables stay as they are: they are the user's.
"""

import contextlib
import logging
from collections.abc import Iterable
from dataclasses import dataclass

from unshard.adapters import mysql
from unshard.adapters.meta import Meta
from unshard.adapters.meta.presence import dump_of, load_of, window_of
from unshard.config import Task
from unshard.core.halt import Halt, HaltKind
from unshard.core.model import Server, TableId
from unshard.core.orders import Given
from unshard.errors.life import TaskAtWork
from unshard.units import coordinate
from unshard.units.execute import guarded
from unshard.units.lateindexes import MAKING_SECONDS, make_all
from unshard.units.work import Work

log = logging.getLogger(__name__)

PAUSE, STOP, RESUME, REMOVE = "pause", "stop", "resume", "remove-meta"
FOLDERS = ("relay", "dump", "held")
GOES_ON = "the next windows go on where it was; a full load that was cut off is triggered again"
LISTED = 10


@dataclass(frozen=True, slots=True)
class Changed:
    """What an order about the whole task has come to."""

    halt: Halt | None
    """How the task stands now."""
    is_new: bool
    """Whether that is by this order."""


def pause(work: Work, by: str, via: str, reason: str, kind: HaltKind = HaltKind.PAUSED) -> Changed:
    """Let nothing more of a task begin; what has begun ends by itself. Idempotent."""
    action = PAUSE if kind is HaltKind.PAUSED else STOP
    is_new = work.meta.halts.halt(kind, Given(action, by, via, reason))
    log.info("order %s task=%s by=%s via=%s new=%s", action, work.task.name, by, via, is_new)
    return Changed(work.meta.halts.get(), is_new)


def resume(work: Work, by: str, via: str, reason: str) -> Changed:
    """Let a task go on where it was; idempotent."""
    is_new = work.meta.halts.resume(Given(RESUME, by, via, reason))
    log.info("order %s task=%s by=%s via=%s new=%s", RESUME, work.task.name, by, via, is_new)
    return Changed(None, is_new)


def at_work(task: Task, meta: Meta, target: Server) -> tuple[str, ...]:
    """Name what is going on of the task at this moment, wherever it runs; changes nothing."""
    places = [place(source) for source in _sources(task, meta) for place in (window_of, dump_of, load_of)]
    with contextlib.closing(mysql.connect(target, "target")) as connection:
        busy = guarded(connection, meta.removal.targets())
    return (*meta.presence.seen(places), *(f"a DDL on {table}" for table in busy))


def remains(work: Work) -> tuple[str, ...]:
    """Say what a stopped task leaves behind, one sentence a line."""
    lines = [f"{work.meta.removal.count()} rows in the tables of {work.task.meta_schema}, by which it goes on where "
             "it was"]  # fmt: skip
    files = sum(len(work.storage.list(folder)) for folder in FOLDERS)
    lines.append(f"{files} files below {work.task.storage}")
    held = sum(work.meta.structures.totals(source).rows for source in _sources(work.task, work.meta))
    if held:
        lines.append(f"{held} rows that wait behind DDL and are in no target yet")
    if locks := [view.id for view in coordinate.views(work.meta) if view.is_open]:
        lines.append(f"open locks: {_listed(locks)}")
    if targets := work.meta.removal.targets():
        lines.append(f"the target tables: {_listed(targets)}")
    if busy := at_work(work.task, work.meta, work.target):
        lines.append(f"still going on, ends by itself: {_listed(busy)}")
    return tuple(lines)


def preview_removal(work: Work) -> tuple[str, ...]:
    """Say what the removal will do, one sentence a line."""
    lines = [
        f"{work.meta.removal.count()} rows of task {work.task.name} are removed from the tables of "
        f"{work.task.meta_schema}: positions, structures, locks, the record of orders",
        f"the files of {', '.join(FOLDERS)} below {work.task.storage} are removed",
    ]
    held = sum(work.meta.structures.totals(source).rows for source in _sources(work.task, work.meta))
    if held:
        lines.append(f"{held} rows that wait behind DDL are lost with them, as far as the target is concerned")
    for target, indexes in work.meta.late_indexes.all().items():
        lines.append(f"{target} gets its indexes back that the load has put off: {_listed(i.name for i in indexes)}")
    if targets := work.meta.removal.targets():
        lines.append(f"the target tables stay: {_listed(targets)}; a load from the start wants them empty or dropped")
    return tuple(lines)


def remove(work: Work, by: str, via: str, reason: str) -> int:
    """Stop a task and remove all that it has left but the target tables; return how many rows there were.

    TaskAtWork while anything of it is going on: it is stopped then, and the order can be given again.
    """
    pause(work, by, via, reason, HaltKind.STOPPED)
    if busy := at_work(work.task, work.meta, work.target):
        raise TaskAtWork(work.task.name, _listed(busy))
    make_all(work, MAKING_SECONDS)
    rows = work.meta.removal.remove()
    for folder in FOLDERS:
        work.storage.delete_folder(folder)
    log.info("order %s task=%s by=%s via=%s reason=%s rows=%s", REMOVE, work.task.name, by, via, reason, rows)
    return rows


def _sources(task: Task, meta: Meta) -> tuple[str, ...]:
    """Those of the file and those that it once had."""
    return tuple(dict.fromkeys((*task.sources, *(state.source for state in meta.sources.all()))))


def _listed(names: Iterable[str | TableId]) -> str:
    shown = [str(name) for name in names]
    more = f" and {len(shown) - LISTED} more" if len(shown) > LISTED else ""
    return ", ".join(shown[:LISTED]) + more
