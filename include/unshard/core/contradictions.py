"""Rows that contradict the structure of their shard: a DDL of it is missing in the binlog (sql_log_bin=0).

The first attempt at a window finds them while it reads, before a target gets any row. The window is then planned anew:
where the contradiction begins, a change of unknown effect is put into the queue of that shard. So its rows are held raw
from there on, and an operator says which statement is missing. All other shards go on.
"""

from unshard.core.model import TableId
from unshard.core.segment import Segment
from unshard.core.window import Contradiction
from unshard.errors.relay import RowsContradict


def is_met(found: Contradiction, segment: Segment) -> bool:
    """Return whether the contradicting rows are read when the segment is passed."""
    if not found.committed:
        return found.segment == segment.name
    prepared = (commit.prepared for commit in segment.commits)
    return any((one.segment, one.start) == (found.segment, found.start) for one in prepared)


def text_of(found: Contradiction, table: TableId) -> str:
    """Return what is shown in place of the missing statement."""
    return f"(not in the binlog) a change of {table} after which its columns are {found.columns}"


def agreement_of(found: Contradiction, target: TableId) -> str:
    """Return what tells such a change from others: shards whose rows have got the same columns agree."""
    return f"unlogged change of {target} to {found.columns}"


def reason_of(found: Contradiction) -> str:
    """Return why an operator is asked."""
    return str(RowsContradict(str(found.shard), str(found.location), found.words))
