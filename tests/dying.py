"""Crashes, for tests of the state that they leave: a process that kills itself (SIGKILL) at a named point of a unit, or
an exception that no code catches, for tests in one process.
"""

import dataclasses
import importlib
import multiprocessing
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pymysql
import pytest

from tests.localspark import LocalSpark
from unshard.config import ShardMode, load_task
from unshard.operate.command import Force
from unshard.operate.issuing import give
from unshard.units.ddl import coordinate
from unshard.units.relay import pull
from unshard.units.task.optimistic import follow_each
from unshard.units.task.run import Until, run
from unshard.units.window.sync import run_window
from unshard.units.work import Work, open_work

DIED = -signal.SIGKILL
SECONDS = 600.0


class Died(BaseException):
    """The exception of a simulated kill."""


def died(*_: object) -> None:
    """Die instead of running a function."""
    raise Died


def dying_after(count: int, function: Callable[..., object]) -> Callable[..., object]:
    """Return the function with a kill after `count` calls."""
    left = [count]

    def maybe(*arguments: object) -> object:
        if not left[0]:
            raise Died
        left[0] -= 1
        return function(*arguments)

    return maybe


SEASON = frozenset(n * (n + 1) // 2 for n in range(1, 100))


def mortal(patch: pytest.MonkeyPatch, module: Any, *names: str) -> Counter[str]:
    """Let the process die after each of these steps, at first often and then less and less often."""
    calls: Counter[str] = Counter()

    def dying(name: str, step: Callable[..., Any]) -> Callable[..., Any]:
        def taken(*given: Any, **named: Any) -> Any:
            found = step(*given, **named)
            calls[name] += 1
            if calls[name] in SEASON:
                raise Died
            return found

        return taken

    for name in names:
        patch.setattr(module, name, dying(name, getattr(module, name)))
    return calls


@dataclasses.dataclass(frozen=True)
class Point:
    """Before, in or after a function, `module:name`; *in* is where its transaction is about to be committed."""

    when: str
    place: str


def window(work: Work, source: str) -> None:
    checkpoint = work.meta.checkpoints.get(source)
    assert checkpoint is not None
    pull.pull(source, work.sources[source], work.store, checkpoint.location)
    run_window(work, source)


def observe(work: Work, _: str) -> None:
    coordinate.observe(work.meta)


def follow(work: Work, _: str) -> None:
    joined = dataclasses.replace(work.task, shard_mode=ShardMode.OPTIMISTIC)
    follow_each(dataclasses.replace(work, task=joined)).raised()


def execute(work: Work, lock: str) -> None:
    coordinate.execute(work.meta, work.target, lock)


def force(work: Work, lock: str) -> None:
    give(work.meta, Force(lock), "operator", "test", "because")


def load(work: Work, _: str) -> None:
    run(work, Until.FULL)


ACTIONS: dict[str, Callable[[Work, str], None]] = {
    "window": window,
    "observe": observe,
    "follow": follow,
    "execute": execute,
    "force": force,
    "load": load,
}


def run_until_death(task: Path, action: str, subject: str, point: Point) -> int | None:
    """Run an action of a task in its own process, which dies at the point; return its exit status."""
    # The fork server imports everything once; it finds our modules only by this path.
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    process = context.Process(target=_act, args=(task, action, subject, point))
    process.start()
    process.join(SECONDS)
    if process.exitcode is None:
        process.kill()
        process.join()
    return process.exitcode


def _act(task: Path, action: str, subject: str, point: Point) -> None:
    _arm(point)
    with open_work(load_task(task)) as work:
        ACTIONS[action](dataclasses.replace(work, spark=LocalSpark, bulk_spark=LocalSpark), subject)


def _arm(point: Point) -> None:
    module, _, path = point.place.partition(":")
    holder: Any = importlib.import_module(module)
    *owners, name = path.split(".")
    for owner in owners:
        holder = getattr(holder, owner)
    function = getattr(holder, name)

    def replacement(*given: Any, **named: Any) -> Any:
        if point.when == "before":
            _die()
        if point.when == "in":
            _die_at_commit()
        found = function(*given, **named)
        _die()
        return found

    setattr(holder, name, replacement)


def _die_at_commit() -> None:
    send = pymysql.connections.Connection._execute_command

    def replacement(self: Any, command: int, sql: str | bytes) -> None:
        if (sql.encode() if isinstance(sql, str) else sql).strip().upper() == b"COMMIT":
            _die()
        send(self, command, sql)

    pymysql.connections.Connection._execute_command = replacement  # type: ignore[method-assign]


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
