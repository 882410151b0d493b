"""Pause, resume and stop of a task, and the removal of its state.

| death in the removal               | what happens                                                   |
|------------------------------------|----------------------------------------------------------------|
| after the task was stopped         | it stays stopped; the operator repeats the removal             |
| between the rows and the files     | no row names the files: the repeated removal finds no rows and |
|                                    | removes the files                                              |

Target tables are not changed: they belong to the user.
"""

import contextlib
import logging
from collections.abc import Iterable
from dataclasses import dataclass

from unshard.adapters import mysql
from unshard.adapters.meta import Meta
from unshard.adapters.meta.taskrecords import dump_of, load_of, window_of
from unshard.adapters.target import fence
from unshard.config import Task
from unshard.core.ddl.issuedcommands import IssuedCommand
from unshard.core.model import Server, TableId
from unshard.core.task.state import PauseKind, PauseState
from unshard.errors.meta import TaskAtWork
from unshard.units.ddl import coordinate
from unshard.units.ddl.execute import guarded_targets
from unshard.units.work import Work

log = logging.getLogger(__name__)

PAUSE, STOP, RESUME, REMOVE = "pause", "stop", "resume", "remove-meta"
FOLDERS = ("relay", "dump", "held")
GOES_ON = "the next windows go on where it was; a full load that was cut off is triggered again"
LISTED = 10


@dataclass(frozen=True, slots=True)
class Changed:
    """The result of a command about the whole task."""

    pause: PauseState | None
    is_new: bool


def pause(work: Work, by: str, via: str, reason: str, kind: PauseKind = PauseKind.PAUSED) -> Changed:
    """Let nothing more of a task begin; work that has begun ends by itself. Idempotent."""
    action = PAUSE if kind is PauseKind.PAUSED else STOP
    is_new = work.meta.pauses.pause(kind, IssuedCommand(action, by, via, reason))
    log.info("command %s task=%s by=%s via=%s new=%s", action, work.task.name, by, via, is_new)
    return Changed(work.meta.pauses.get(), is_new)


def resume(work: Work, by: str, via: str, reason: str) -> Changed:
    """Let a task go on from where it was; idempotent."""
    is_new = work.meta.pauses.resume(IssuedCommand(RESUME, by, via, reason))
    log.info("command %s task=%s by=%s via=%s new=%s", RESUME, work.task.name, by, via, is_new)
    return Changed(None, is_new)


def at_work(task: Task, meta: Meta, target: Server) -> tuple[str, ...]:
    """Return the work of the task that is running now, on any host; changes nothing."""
    places = [place(source) for source in _sources(task, meta) for place in (window_of, dump_of, load_of)]
    with contextlib.closing(mysql.connect(target, "target")) as connection:
        busy = guarded_targets(connection, meta.removal.targets())
    return (*meta.active_workers.seen(places), *(f"a DDL on {table}" for table in busy))


def remains(work: Work) -> tuple[str, ...]:
    """Return what remains of a stopped task, one sentence for each kind."""
    lines = [
        f"{work.meta.removal.count()} rows in the tables of {work.task.meta_schema}, by which it goes on where it was"
    ]
    files = sum(len(work.storage.list(folder)) for folder in FOLDERS)
    lines.append(f"{files} files below {work.task.storage}")
    held = sum(work.meta.structures.totals(source).rows for source in _sources(work.task, work.meta))
    if held:
        lines.append(f"{held} rows that are held after DDL and are in no target yet")
    if locks := [lock.id for lock in coordinate.facts(work.meta) if lock.is_open]:
        lines.append(f"open locks: {_listed(locks)}")
    if targets := work.meta.removal.targets():
        lines.append(f"the target tables: {_listed(targets)}")
    if busy := at_work(work.task, work.meta, work.target):
        lines.append(f"still going on, ends by itself: {_listed(busy)}")
    return tuple(lines)


def preview_removal(work: Work) -> tuple[str, ...]:
    """Return what the removal will do, one sentence for each effect."""
    lines = [
        f"{work.meta.removal.count()} rows of task {work.task.name} are removed from the tables of "
        f"{work.task.meta_schema}: positions, structures, locks, the record of orders",
        f"the files of {', '.join(FOLDERS)} below {work.task.storage} are removed",
    ]
    held = sum(work.meta.structures.totals(source).rows for source in _sources(work.task, work.meta))
    if held:
        lines.append(f"{held} rows that are held after DDL are removed too, so that the target never gets them")
    for target, indexes in work.meta.late_indexes.all().items():
        lines.append(f"{target} gets its indexes back that the load has put off: {_listed(i.name for i in indexes)}")
    if targets := work.meta.removal.targets():
        lines.append(f"the target tables stay: {_listed(targets)}; a load from the start wants them empty or dropped")
    return tuple(lines)


def remove(work: Work, by: str, via: str, reason: str) -> int:
    """Stop a task, remove its rows in the meta tables and its files, and return the number of removed rows.

    Raises TaskAtWork while work of the task is running; the task is stopped then, and the command can be repeated.
    """
    from unshard.units.full.load import MAKING_SECONDS, make_all  # with it all of dump and load

    pause(work, by, via, reason, PauseKind.STOPPED)
    if busy := at_work(work.task, work.meta, work.target):
        raise TaskAtWork(work.task.name, _listed(busy))
    make_all(work, MAKING_SECONDS)
    with work.target_connection() as connection:
        rows = work.meta.removal.remove(fence.schemas_with_writes(connection))
    for folder in FOLDERS:
        work.storage.delete_folder(folder)
    log.info("command %s task=%s by=%s via=%s reason=%s rows=%s", REMOVE, work.task.name, by, via, reason, rows)
    return rows


def _sources(task: Task, meta: Meta) -> tuple[str, ...]:
    """Return the sources of the task file and those that it had before."""
    return tuple(dict.fromkeys((*task.sources, *(state.source for state in meta.sources.all()))))


def _listed(names: Iterable[str | TableId]) -> str:
    shown = [str(name) for name in names]
    more = f" and {len(shown) - LISTED} more" if len(shown) > LISTED else ""
    return ", ".join(shown[:LISTED]) + more
