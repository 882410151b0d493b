"""Stages: the named steps of a window, of the full load and of the execution of a DDL, as values.

Pure functions derive the stages from the state: `core.window.stages`, `core.task.fullstages` and `core.ddl.stages`.
`units.stages.evaluate` runs the first of them and derives the rest again, until none is left. `unshard plan` prints
them and runs none.
"""

from dataclasses import dataclass
from typing import ClassVar

from unshard.core.model import Shard, TableId


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
    """The lock that is the reason."""
    ddl: str = ""
    rows: int | None = None
    """Number of rows; None if it is not known before they are read."""


class Stage:
    """One step; subclasses are frozen dataclasses with the values that the step needs."""

    __slots__ = ()
    name: ClassVar[str]

    def describe(self) -> str:
        """Say in one sentence what the stage does and why."""
        raise NotImplementedError
