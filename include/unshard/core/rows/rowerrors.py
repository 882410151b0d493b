"""Row errors: rows that a target cannot store and that the task's policy diverts, so that other rows are applied."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from unshard.core.model import Shard, TableId


class RowErrors(StrEnum):
    """The policy for a window's rows of a target that cannot store one of them; the safest first."""

    STOP = "stop"
    """All rows of that target and source are held (core.window.suspension)."""
    DIVERT = "divert"
    """The row is written to the table `row_error` instead; the other rows are written to the target."""


class RowErrorState(StrEnum):
    """Whether the row is still missing in the target."""

    OPEN = "open"
    MENDED = "mended"
    """A later change of the same key has been applied."""


@dataclass(frozen=True, slots=True)
class RowError:
    """A diverted row, with the error of the target."""

    target: TableId
    shard: Shard
    key: str
    column: str
    words: str
    row: str
    """The row as JSON, by the target's columns: texts, `0x…` for bytes that are not text, null."""
    window: int
    state: RowErrorState
    times: int
    first_at: datetime
    last_at: datetime

    @property
    def values(self) -> Mapping[str, str | None]:
        """The row's values by column."""
        found: dict[str, str | None] = json.loads(self.row)
        return found
