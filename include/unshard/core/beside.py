"""What there is beside the rows of a source: asked before every window is planned, and again when it begins.

Most of what a window could have to do with is seldom there: orders, pending DDL, held rows, stopped targets. One look
tells what there is, and only that is read.
"""

from enum import IntFlag, auto


class Beside(IntFlag):
    """What there is beside the source itself."""

    HALT = auto()
    """Somebody has paused or stopped the task."""
    ORDERS = auto()
    """About statements that no window has met."""
    SEQUENCES = auto()
    GHOSTS = auto()
    """Tables of tools that change shards online."""
    STOPS = auto()
    """Of targets; those that have been lifted since are among them."""
    UNKNOWNS = auto()
    """Structures behind undecided DDL."""
    QUEUES = auto()
    """DDL that is not resolved, of any source of the task."""
    HELD = auto()
    """Rows behind a DDL."""
    DROPPED = auto()
    """Shards that an operator has dropped."""
    AWAITED = auto()
    """Rows that were left to a later change."""


NOTHING = Beside(0)
EVERYTHING = ~NOTHING
"""What is to be reckoned with where nobody has looked."""
