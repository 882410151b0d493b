"""Runs stages (core.stages) in the driver: windows, the full load of a source, the execution of a DDL."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from unshard.core.stages import Stage

S = TypeVar("S", bound=Stage)
T = TypeVar("T")


def evaluate(state: T, following: Callable[[T], Sequence[S]], run: Callable[[S, T], T]) -> T:
    """Run the first of the stages that follow from a state, and repeat with the new state until none follows.

    `run` carries out one stage and returns the state after it. An error ends the evaluation. Every stage can be
    repeated, so the next call derives from the meta tables which stages are left.
    """
    while stages := following(state):
        state = run(stages[0], state)
    return state
