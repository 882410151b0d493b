"""Rows that contradict the structure of their shard: a DDL of it is missing in the binlog (sql_log_bin=0).

The first attempt at a window finds them while it reads, before a target gets any row. The window is then planned again:
where the contradiction begins, a DDL of unknown effect is put into the queue of that shard. From there on the rows of
the shard are held raw, and an operator has to name the missing statement. All other shards go on.
"""

from unshard.core.model import TableId
from unshard.core.relay.segment import Segment
from unshard.core.window.plan import Contradiction
from unshard.errors.rows import RowsContradict


def is_met(found: Contradiction, segment: Segment) -> bool:
    """Whether a window that passes the segment reads the contradicting rows."""
    if not found.committed:
        return found.segment == segment.name
    prepared = (commit.prepared for commit in segment.commits)
    return any((one.segment, one.start) == (found.segment, found.start) for one in prepared)


def text_of(found: Contradiction, table: TableId) -> str:
    """Return the text that is shown in place of the missing statement."""
    return f"(not in the binlog) a change of {table} after which its columns are {found.columns}"


def fingerprint_of(found: Contradiction, target: TableId) -> str:
    """Return the DDL fingerprint of the missing change: it is equal for shards whose rows have the same new columns."""
    return f"unlogged change of {target} to {found.columns}"


def reason_of(found: Contradiction) -> str:
    """Return the message that asks the operator."""
    return str(RowsContradict(str(found.shard), str(found.location), found.words))
