"""Explains expected differences between a target and its shards: held rows and diverted rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from unshard.core.rows.rowerrors import RowError
from unshard.core.validate.rowdifferences import Difference, comparable
from unshard.core.window.suspension import SuspendedTarget


class Because(StrEnum):
    """The cause of an expected difference."""

    DIVERTED = "diverted"
    """The target could not store this row (`unshard row-errors`)."""
    SUSPENDED = "target suspended"
    """Rows of its shard are held because the target is suspended for that source (`unshard retry`)."""
    HELD = "held"
    """Rows of its shard are held until a DDL is resolved (`unshard locks`)."""


@dataclass(frozen=True, slots=True)
class NotYetInTarget:
    """The rows of one target that are not in it yet."""

    locks: tuple[str, ...] = ()
    held_rows: int = 0
    shards: tuple[str, ...] = ()
    """The shards that have held rows or queued DDL."""
    suspended: tuple[SuspendedTarget, ...] = ()
    diverted: tuple[RowError, ...] = ()

    def because(self, key: Sequence[str], difference: Difference) -> Because | None:
        """Return the cause of a difference, None if no cause is known; `key` are the names of its key columns.

        Of held rows, only the shard is known. The difference of a row that no shard has is never explained.
        """
        if any(str(each.shard) in difference.shards and _is_of(each, key, difference) for each in self.diverted):
            return Because.DIVERTED
        held = set(self.shards) & set(difference.shards)
        if any(shard.startswith(f"{stop.source} ") for shard in held for stop in self.suspended):
            return Because.SUSPENDED
        return Because.HELD if held else None


def _is_of(error: RowError, key: Sequence[str], difference: Difference) -> bool:
    values = {name.lower(): value for name, value in error.values.items()}
    return bool(key) and all(
        name.lower() in values and comparable(values[name.lower()]) == comparable(value)
        for name, value in zip(key, difference.key, strict=True)
    )
