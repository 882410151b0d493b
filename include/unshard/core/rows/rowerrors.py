"""Row errors: rows that a target cannot store and that the task's policy diverts, so that other rows are applied.

In a collision, two shards have rows with the same key, and the target can have only one of them. It is identified by
the target table, the condition that finds the key there, and the shard whose row came when the target already had the
key, never by other values of its rows.
"""

import hashlib
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
        found: dict[str, str | None] = json.loads(self.row)
        return found


# --- collisions


NAMED_AT_ONCE = 20
"""How many collisions of one chunk, or of one table in one window, are recorded; the others are counted."""


class Found(StrEnum):
    """The step that found a collision."""

    LOAD = "load"
    WINDOW = "window"


class CollisionState(StrEnum):
    """The state of a collision."""

    OPEN = "open"
    """Policy error: the load or the window waits until one of the rows is deleted."""
    MENDED = "mended"
    """It was open, and the load or the window has continued."""
    REPLACED = "replaced"
    """Policy replace: the later row is in the target."""
    IGNORED = "ignored"
    """Policy ignore: the earlier row is in the target."""


@dataclass(frozen=True, slots=True)
class KeyCollision:
    """A row whose key another row already has; `others` is the number of more such rows, which are only counted."""

    target: TableId
    key: str
    """The key for people: `id = 5`."""
    condition: str
    """The key as an SQL condition; empty if only the server's message is known."""
    shard: Shard
    owner: Shard | None = None
    others: int = 0

    @property
    def digest(self) -> str:
        """32 hexadecimal digits that identify the collision."""
        text = "\0".join((str(self.target), self.condition or self.key, str(self.shard)))
        return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class RecordedCollision:
    """A collision as stored in the meta tables."""

    collision: KeyCollision
    found: Found
    window: int
    """Number of the window; 0 for the load."""
    state: CollisionState
    times: int
    first_at: datetime
    last_at: datetime

    @property
    def is_open(self) -> bool:
        return self.state is CollisionState.OPEN
