"""The ranges of a target's key that were compared: when, how many rows, and with which verdict.

The ranges of a target cover its whole key. A later validation compares the same ranges, so it can leave out those whose
verdict still counts, and go on where another one has stopped.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from unshard.core.model import TableId
from unshard.core.sql.keyrange import Bound, KeyRange


class RangeVerdict(StrEnum):
    """The result of the last comparison of a range."""

    EQUAL = "equal"
    DIFFERENT = "different"
    """A difference is proven or explained."""
    PENDING = "pending"
    """The changes of some keys were on their way."""


@dataclass(frozen=True, slots=True)
class RangeFound:
    """The result of the comparison of a range."""

    rows: int
    """Of the target."""
    verdict: RangeVerdict
    total: int | None = None
    """Sum of the hashes of its rows; None: it was found equal row by row, or it is not equal."""


@dataclass(frozen=True, slots=True)
class JudgedRange:
    """A range of a target's key with its last verdict."""

    span: KeyRange
    found: RangeFound
    round: int
    """Number of the validation that compared it."""
    at: datetime


@dataclass(frozen=True, slots=True)
class Proof:
    """What is known of a whole target table."""

    target: TableId
    rows: int
    fresh_rows: int
    """Rows in ranges that were equal within PROOF_HOURS."""
    age: timedelta
    """Since the range was compared that was compared longest ago."""
    different: int
    """Number of ranges that differ."""
    pending: int

    @property
    def percent(self) -> int:
        """Whole percents; 100 only if all rows are proven."""
        return 100 if self.fresh_rows == self.rows else min(99, 100 * self.fresh_rows // self.rows)

    def __str__(self) -> str:
        hours = self.age.total_seconds() / 3600
        age = f"{hours:.0f} h" if hours >= 1 else f"{hours * 60:.0f} min"
        others = f", {self.pending} ranges pending" if self.pending else ""
        return (
            f"{self.percent} % of the rows proven equal within {PROOF_HOURS} h, oldest range {age},"
            f" {self.different} ranges differ{others}"
        )


PROOF_HOURS = 24


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which ranges of a target a validation compares."""

    due: tuple[KeyRange, ...]
    """Those first that were compared longest ago."""
    left_out: tuple[JudgedRange, ...] = ()
    """Ranges whose verdict still counts."""
    stale: tuple[JudgedRange, ...] = ()
    """Ranges that overlap others, because a validation died while it divided one."""
    rows: int = 0
    """Rows that the ranges to compare had when they were compared last."""


def chosen(known: Sequence[JudgedRange], counts_still: Callable[[JudgedRange], bool]) -> Chosen:
    """Choose the ranges to compare; what no range covers is compared first."""
    others = {each.span.lower: each for each in known}
    left_out: list[JudgedRange] = []
    due: list[JudgedRange] = []
    reached: Bound = None
    while following := others.pop(reached, None):
        is_proven = following.found.verdict is RangeVerdict.EQUAL and counts_still(following)
        (left_out if is_proven else due).append(following)
        reached = following.span.upper
    covers_all = reached is None and (left_out or due)
    due.sort(key=lambda each: each.at)
    spans = [] if covers_all else [KeyRange(reached)]
    spans += [each.span for each in due]
    return Chosen(tuple(spans), tuple(left_out), tuple(others.values()), sum(each.found.rows for each in due))
