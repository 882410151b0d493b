"""A collision: two shards have a row of which the target can have only one.

It is known by its key, never by other values of its rows: by the target table, the condition that finds the
key there, and the shard that brought the row when it was taken.
"""

import hashlib
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from unshard.core.model import Shard, TableId

NAMED_AT_ONCE = 20
"""How many collisions of one chunk, or of one table in one window, are named; the others are counted."""


class Found(StrEnum):
    """Where a collision came to light."""

    LOAD = "load"
    WINDOW = "window"


class CollisionState(StrEnum):
    """What has become of a collision."""

    OPEN = "open"
    """Policy error: the load or the window waits for one of the rows to go."""
    MENDED = "mended"
    """It was open, and the load or the window has gone on."""
    REPLACED = "replaced"
    """Policy replace: the row that came later is in the target."""
    IGNORED = "ignored"
    """Policy ignore: the row that came first is in the target."""


@dataclass(frozen=True, slots=True)
class Clash:
    """A row that met another one of its key; `others` more were met with it and are only counted."""

    target: TableId
    key: str
    """As people read it: `id = 5`."""
    condition: str
    """The key as an SQL condition, to look for it; empty if only the server's words are known."""
    shard: Shard
    owner: Shard | None = None
    others: int = 0

    @property
    def digest(self) -> str:
        """32 hexadecimal digits that name the collision."""
        text = "\0".join((str(self.target), self.condition or self.key, str(self.shard)))
        return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class RecordedCollision:
    """A collision as the meta tables know it."""

    clash: Clash
    found: Found
    window: int
    """Number of the window, 0 in the load."""
    state: CollisionState
    times: int
    """How often it was met."""
    first_at: datetime
    last_at: datetime

    @property
    def is_open(self) -> bool:
        """Whether something waits for it."""
        return self.state is CollisionState.OPEN
