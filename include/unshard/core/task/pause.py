"""The pause state of a task: nothing of a paused or stopped task begins until it is resumed."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class PauseKind(StrEnum):
    """How a task is paused; both kinds last until `resume`, and differ in the intention."""

    PAUSED = "paused"
    """The task is expected to go on soon."""
    STOPPED = "stopped"
    """The task is not expected to go on; its state may be removed."""


@dataclass(frozen=True, slots=True)
class PauseState:
    """A record of the person who paused or stopped a task, with time and reason."""

    kind: PauseKind
    who: str
    via: str
    reason: str
    at: datetime

    def __str__(self) -> str:
        why = f": {' '.join(self.reason.split())}" if self.reason else ""
        return f"{self.kind} by {self.who} ({self.via}) since {self.at:%Y-%m-%d %H:%M:%S} UTC{why}"
