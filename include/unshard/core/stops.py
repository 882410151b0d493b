"""A target that cannot take a row of a source: its rows of that source are held, everything else goes on.

| comes                                        | what happens                                                       |
|----------------------------------------------|--------------------------------------------------------------------|
| a row that does not fit, in a window         | the target's transaction rolls back; the stop is recorded, and the |
|                                              | same plan runs again: rows for that target are held, not applied   |
| the next windows of the source               | hold the target's rows, too, in order; its DDL waits behind them   |
| the target's structure changes               | the next window lifts the stop and releases the rows               |
| an order (`unshard retry`), or `unshard run` | the same                                                           |
| the row still does not fit                   | the target stops again; nothing was written                        |

A correction of the row in its shard is held as well: when both are released they are netted, so only the last value
must fit.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from unshard.core.model import Shard, TableId
from unshard.core.window import Disposition, Plan


@dataclass(frozen=True, slots=True)
class Refusal:
    """What a target said about a row."""

    target: TableId
    column: str
    key: str
    words: str


@dataclass(frozen=True, slots=True)
class Stop:
    """A target that takes no rows of a source for now."""

    source: str
    refusal: Refusal
    window: int
    """In which the row came."""
    structure: str
    """Digest of the target's structure then; another one is worth a try."""
    times: int
    """How often it has stopped since rows of it were applied."""
    since: datetime
    is_partial: bool = False
    """Some of the window's rows are in the target: it was too large for one transaction."""

    @property
    def target(self) -> TableId:
        return self.refusal.target


def held_behind(plan: Plan, last: Mapping[Shard, int]) -> Mapping[Shard, int]:
    """Return behind which DDL of its queue each shard's rows stand that the plan wants applied.

    `last` has the newest DDL of each shard before the window; what the window itself queues comes behind these rows.
    """
    first = {entry.shard: entry.seq for entry in sorted(plan.queued, key=lambda entry: -entry.seq)}
    return {**last, **{shard: seq - 1 for shard, seq in first.items()}}


def withheld(dispositions: Iterable[Disposition], stopped: Collection[TableId],
             behind: Mapping[Shard, int]) -> tuple[Disposition, ...]:  # fmt: skip
    """Hold the rows of targets that are stopped."""
    return tuple(
        replace(d, hold=behind.get(d.shard, 0)) if d.hold is None and d.target in stopped else d for d in dispositions
    )
