"""Rows that a target cannot take and that the task's policy puts aside, so that the others go on."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from unshard.core.model import Shard, TableId


class RowErrors(StrEnum):
    """What becomes of a window's rows for a target that cannot take one of them; the safest first."""

    STOP = "stop"
    """All rows of that target and source are held (core.stops)."""
    DIVERT = "divert"
    """The row goes into the table `row_error` instead, the others into the target."""


class RowErrorState(StrEnum):
    """Whether the target lacks the row."""

    OPEN = "open"
    MENDED = "mended"
    """A later change of the same key has been applied."""


@dataclass(frozen=True, slots=True)
class RowError:
    """A row that was put aside."""

    target: TableId
    shard: Shard
    key: str
    column: str
    words: str
    row: str
    """The row as JSON, by the target's columns: texts, `0x…` what is no text, null."""
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
