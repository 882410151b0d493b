"""The rules of a window's plan, and the segments that one window can read."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from unshard.core.ddl.effects import Effects
from unshard.core.ddl.online import Online, OnlineTables
from unshard.core.ddl.queue import ShardState
from unshard.core.ddl.statementcommands import StatementCommand
from unshard.core.model import Location, Shard, TableId
from unshard.core.relay.segment import Segment
from unshard.core.rules.shardrows import ShardRows
from unshard.core.window.pace import WindowLimits
from unshard.core.window.plan import Contradiction

RowsOf = Callable[[ShardState, Sequence[Shard]], ShardRows | str]
"""Returns the values that name the rows of a shard in its target, or why they cannot be told from those of the group
(the second argument) and of shards that have left it."""
FILE_BY_FILE = WindowLimits(0, 0, 0)


@dataclass(frozen=True, slots=True)
class PlanRules:
    """The rules of the task for windows, and the functions that find the effect of a DDL."""

    target_of: Callable[[TableId], TableId | None]
    effects: Effects
    window_bytes: int
    """Largest size of a window, or of a section of a window that can have several."""
    sections: int = 1
    """Largest number of sections."""
    safe_until: Location | None = None
    """Windows that begin before it run in safe mode: the dump may have seen their rows."""
    force_safe: bool = False
    sequences: frozenset[TableId] = frozenset()
    """The sequences of the source at the checkpoint."""
    orders: tuple[StatementCommand, ...] = ()
    """Commands about statements that no window has reached."""
    ordered: Effects | None = None
    """As `effects`, without the task's filters: a command overrides them."""
    history: str = ""
    """The GTIDs up to the checkpoint."""
    stopped: frozenset[TableId] = frozenset()
    """Suspended targets of the source (core.window.suspension): all rows for them are held."""
    retried: tuple[TableId, ...] = ()
    """Targets that go on after a suspension."""
    together: WindowLimits = FILE_BY_FILE
    """How many of their held rows are released together, so that they are compacted with later corrections."""
    online_tables: OnlineTables = ()
    """The tables of online DDL tools at the checkpoint."""
    contradictions: tuple[Contradiction, ...] = ()
    """Rows without the structure of their shard, found by an attempt at this window."""
    online: Online | None = None
    """Follows the tables of online DDL tools; None: they are treated like other tables."""
    is_joined: bool = False
    """The targets follow the join of their shards: rows of one window under one name are those of one shard."""
    rows_of: RowsOf = lambda state, _: f"nothing tells the rows of {state.shard}"


def within_window(segments: Iterable[Segment], rules: PlanRules) -> tuple[Segment, ...]:
    """Return the first segments, as many as one window can read at most: planning looks at no others."""
    taken: list[Segment] = []
    size = 0
    for segment in segments:
        weight = weight_of(segment, rules)
        if taken and weight and size + weight > rules.window_bytes * rules.sections:
            break
        taken.append(segment)
        size += weight
    return tuple(taken)


def weight_of(segment: Segment, rules: PlanRules) -> int:
    """Return the bytes of the segment that must be decoded."""
    wanted = (r for r in segment.pieces if any(rules.target_of(table) for table, _ in r.tables))
    return sum(r.end - r.start for r in wanted)
