"""The base of all coded errors."""

from dataclasses import dataclass, fields
from enum import StrEnum
from typing import ClassVar


class Scope(StrEnum):
    """Where the cause of an error lies."""

    CONFIG = "config"
    UPSTREAM = "upstream"
    DOWNSTREAM = "downstream"
    INTERNAL = "internal"


@dataclass(eq=False)
class UnshardError(Exception):
    """Base class: `code` never changes its meaning, `hint` says what to do next.

    `transient` answers the one question that a caller has: may the same call succeed later?
    """

    code: ClassVar[str] = "US-0000"
    scope: ClassVar[Scope] = Scope.INTERNAL
    transient: ClassVar[bool] = False
    template: ClassVar[str] = "internal error"
    hint: ClassVar[str] = ""

    def __post_init__(self) -> None:
        # Positional arguments make the error picklable across Spark and Airflow processes.
        super().__init__(*(getattr(self, field.name) for field in fields(self)))

    @property
    def message(self) -> str:
        """The sentence without code and hint."""
        return self.template.format_map(vars(self))

    @property
    def next_step(self) -> str:
        """The hint, filled in; empty if there is none."""
        return self.hint.format_map(vars(self))

    def __str__(self) -> str:
        hint = f" ({self.next_step})" if self.hint else ""
        return f"[{self.code}] {self.message}{hint}"
