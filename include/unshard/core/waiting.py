"""Why a target may differ from its shards although nothing is wrong: rows that wait, rows that were put aside."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from unshard.core.differences import Difference, comparable
from unshard.core.rowerrors import RowError
from unshard.core.stops import Stop


class Because(StrEnum):
    """What explains a difference."""

    ASIDE = "put aside"
    """The target could not take this row (`unshard row-errors`)."""
    STOPPED = "target stopped"
    """Rows of its shard are held: the target takes none of that source (`unshard retry`)."""
    HELD = "held"
    """Rows of its shard are held behind a DDL (`unshard locks`)."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """What of one target is not in it."""

    locks: tuple[str, ...] = ()
    held_rows: int = 0
    shards: tuple[str, ...] = ()
    """Those that have held rows or DDL."""
    stops: tuple[Stop, ...] = ()
    aside: tuple[RowError, ...] = ()

    def because(self, key: Sequence[str], difference: Difference) -> Because | None:
        """Tell what explains a difference, None if nothing is known that does; `key` names the columns of its key.

        Of rows that are held only their shard is known. A row that no shard has is explained by none.
        """
        if any(str(each.shard) in difference.shards and _is_of(each, key, difference) for each in self.aside):
            return Because.ASIDE
        held = set(self.shards) & set(difference.shards)
        if any(shard.startswith(f"{stop.source} ") for shard in held for stop in self.stops):
            return Because.STOPPED
        return Because.HELD if held else None


def _is_of(error: RowError, key: Sequence[str], difference: Difference) -> bool:
    values = {name.lower(): value for name, value in error.values.items()}
    return bool(key) and all(
        name.lower() in values and comparable(values[name.lower()]) == comparable(value)
        for name, value in zip(key, difference.key, strict=True)
    )
