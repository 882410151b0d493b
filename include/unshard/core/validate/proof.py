"""Decide whether a row that differs is wrong in the target, or on its way to it.

A comparison reads the checkpoints first (P), then the rows of the target, then those of the shards, then the ends of
the binlogs (Q). The target has every change up to P when its rows are read, and both sides have been read before Q. So
a key that no change between P and Q touches has, on both sides, the rows of position P. If they differ, the difference
is proven. A key that was touched is pending: it is compared again when the windows have passed Q.

A target may show rows of a window that is not committed yet: they are changes after P. So no snapshot is needed.

Keys are compared in a form that ignores all that collations and types of columns may ignore. Two keys that only look
alike make a difference pending, never proven.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from unshard.core.model import Location
from unshard.core.validate.rowdifferences import FoldedKey, RowDifference, folded_key


class Verdict(StrEnum):
    """What is known of a key that differs."""

    PROVEN = "proven"
    """Nothing has touched it between the two positions."""
    PENDING = "pending"
    """A change of it may be on its way."""


@dataclass(frozen=True, slots=True)
class Touched:
    """The keys that the binlogs of a target's sources touch between two positions."""

    keys: frozenset[FoldedKey] = frozenset()
    anything: str = ""
    """Why any key may be touched; empty: only these keys are."""
    until: Mapping[str, Location] | None = None
    """Where the windows of each source must be before another comparison decides."""

    def verdict(self, difference: RowDifference, keyed: bool) -> Verdict:
        """Return the verdict on a difference; of a table without a key, every change may be one of its rows."""
        if self.anything or (self.keys if not keyed else folded_key(difference.key) in self.keys):
            return Verdict.PENDING
        return Verdict.PROVEN
