"""Stages: the named steps of a window, of the full load and of the execution of a DDL, as values.

Pure functions derive the stages from the state: `core.window.windowstages`, `core.task.state`,
`core.ddl.lock` and `core.join.planning`. `evaluate` runs the first of them and derives the rest again, until none
is left. `unshard plan` prints them and runs none.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from unshard.core.model import Shard, TableId

K = TypeVar("K", bound=StrEnum)
V = TypeVar("V")
S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Detail:
    """One effect of a stage: what happens to which shard or target, and why."""

    action: str
    """What happens, in one word: `apply`, `hold`, `release`, `queue`, …"""
    text: str
    """The effect and its reason, in one sentence."""
    shard: Shard | None = None
    target: TableId | None = None
    lock: str = ""
    ddl: str = ""
    rows: int | None = None
    """Number of rows; None if it is not known before they are read."""


@dataclass(frozen=True, slots=True)
class Stage(Generic[K, V]):
    """One step."""

    kind: K
    text: str
    values: V
    """What the step needs in addition to the state that it follows from."""


def evaluate(state: T, following: Callable[[T], Sequence[S]], run: Callable[[S, T], T]) -> T:
    """Run the first of the stages that follow from a state, and repeat with the new state until none follows.

    `run` carries out one stage and returns the state after it. An error ends the evaluation. Every stage can be
    repeated, so the next call derives from the meta tables which stages are left.
    """
    while stages := following(state):
        state = run(stages[0], state)
    return state
