"""Flags of pending work, read before every window is planned and again when it begins.

Commands, pending DDL, held rows and suspended targets are rare. One statement reads which of them exist, and only these
are read then.
"""

from enum import IntFlag, auto


class PendingWork(IntFlag):
    """The kinds of work that a window may have besides new binlog."""

    PAUSE = auto()
    """The task is paused or stopped."""
    STATEMENT_COMMANDS = auto()
    """Commands about statements that no window has reached."""
    SEQUENCES = auto()
    ONLINE_TABLES = auto()
    """Tables of online DDL tools."""
    SUSPENDED = auto()
    """Suspended targets, including those that may go on since."""
    UNKNOWNS = auto()
    """Unknown structures after undecided DDL."""
    QUEUES = auto()
    """Unresolved DDL of any source of the task."""
    HELD = auto()
    """Held rows."""
    DROPPED = auto()
    """Shards that an operator has dropped."""
    DEFERRED = auto()
    """Deferred rows."""
    UNNAMED = auto()
    """Structures without the target's names of columns."""
    JOINED = auto()
    """Targets that follow the join of their shards."""


NOTHING = PendingWork(0)
EVERYTHING = ~NOTHING
"""The flags to use when they were not read."""
