"""What the DDL of a shard in conflict may count as (core.rows.waysout finds out which of them succeed)."""

from enum import StrEnum


class Way(StrEnum):
    """A way out of a conflict."""

    SAME = "as this one"
    NOTHING = "as nothing"
    UNLOCKED = "unlocked"
    """As this one if both DDLs lead to the same columns, else as one of its own that follows."""
    SKIPPED = "this one as nothing"
    """The lock's own DDL is skipped for all shards: the target has its effect already."""
    EXTENDED = "as this one, with the columns of both"
    """The target gets the lock's DDL and the columns that only the DDLs of the shards in conflict add."""

    PLACED = "with a place for its rows"
    """The target gets what the rows of a new shard need."""


USUAL = (Way.UNLOCKED, Way.SAME, Way.NOTHING)
