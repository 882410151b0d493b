"""How much a bench run measures: rounds, rows, and the changes of a backlog."""

from dataclasses import dataclass
from math import inf

from tests.bench.workloads import INSERTED, TRANSACTION

MARGIN = 1.1
"""A long backlog is replayed faster or slower than a short one, so it gets more changes than the short one promises."""
AT_MOST = 4.0
"""The slower side takes at most so many times the wanted seconds."""
STEP = INSERTED * TRANSACTION
"""Changes are a multiple of it, so that every transaction is whole."""


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a run."""

    rounds: int = 3
    rows: int = 200_000
    """The rows of a table before the backlog."""
    changes: int = 0
    """The row changes of a backlog; 0: as many as rows, or as `seconds` needs."""
    seconds: float = 0.0
    """How long each side shall need for a backlog; 0: any time."""
    part_seconds: float = inf
    """How long a part shall take: it begins no round that would end later."""
    threads: tuple[int, ...] = (1, 2)
    """The numbers of threads that native replication tries."""
    load_seconds: float = 20.0
    """How long parts p and q measure each load."""
    idle_seconds: float = 20.0
    """How long they measure without a load."""

    @property
    def fixed(self) -> int:
        """The changes of a backlog whose duration does not matter."""
        return self.changes or self.rows

    @property
    def is_timed(self) -> bool:
        """Whether the changes of a backlog follow from its duration."""
        return bool(self.seconds and not self.changes)


def enough(speeds: tuple[float, float], seconds: float) -> int:
    """Return the changes that take the faster of two sides the wanted time.

    It returns fewer if the slower side would take more than `AT_MOST` times as long, but never less than the wanted
    time of the slower side.
    """
    slow, fast = sorted(speeds)
    wanted = min(fast, AT_MOST * slow) * seconds * MARGIN
    return -(-int(wanted) // STEP) * STEP
