"""A task that somebody has halted: nothing of it moves until somebody resumes it."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class HaltKind(StrEnum):
    """How a task is halted; both hold until `resume`, and say what was meant."""

    PAUSED = "paused"
    """It goes on soon."""
    STOPPED = "stopped"
    """It is not meant to go on; what it has left may be removed."""


@dataclass(frozen=True, slots=True)
class Halt:
    """Who has halted a task, when and why."""

    kind: HaltKind
    who: str
    via: str
    reason: str
    at: datetime

    def __str__(self) -> str:
        why = f": {' '.join(self.reason.split())}" if self.reason else ""
        return f"{self.kind} by {self.who} ({self.via}) since {self.at:%Y-%m-%d %H:%M:%S} UTC{why}"
