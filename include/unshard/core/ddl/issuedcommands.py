"""A command of an operator as the meta tables record it; operate.command has the commands to locks."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Cleared:
    """The unknown user who cleared a task in Airflow: Airflow does not tell the worker that issues the command."""

    run: str
    instance: str
    """Airflow's id of the task instance that issued the command, by which the page later finds the user."""

    def __str__(self) -> str:
        return f"someone in Airflow (run {self.run})"


@dataclass(frozen=True, slots=True)
class IssuedCommand:
    """A command as it is recorded."""

    action: str
    by: str | Cleared
    via: str
    reason: str
    details: dict[str, Any] = field(default_factory=dict)
    """The parameters of the command other than its lock."""
