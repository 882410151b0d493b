"""The cutover: the switch of the applications from the shards to the target, and what is in its way.

| phase     | the sources                        | killed in it                                                        |
|-----------|------------------------------------|---------------------------------------------------------------------|
| proving   | are written                        | the next run goes on with the ranges that are not proven            |
| read-only | are not written; set so by unshard | the next run goes on, or `abort` makes the sources as they were     |
| done      | are not written; the task is paused| the certificate is stored                                           |

A round of proofs reads the checkpoints first, compares the ranges that are due, and stores these checkpoints. A range
that a round has found equal stays proven until the binlog after the stored checkpoints touches a key of it. So each
round is shorter than the one before, and the last one, after the sources are read-only, is short.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from unshard.core.model import Column, Location
from unshard.core.sql.keyrange import KeyRange
from unshard.core.sql.quoting import qualified
from unshard.core.structures.foreignkeys import ForeignKey
from unshard.core.validate.ledger import JudgedRange
from unshard.core.validate.proof import Touched


class CutoverPhase(StrEnum):
    """How far a cutover is."""

    PROVING = "proving"
    READ_ONLY = "read-only"
    DONE = "done"


class Who(StrEnum):
    """The one who removes an obstacle."""

    YOU = "before it"
    """`cutover run` refuses to begin."""
    RUN = "in it"
    """`cutover run` does it."""
    LATER = "beside it"
    """The target lacks it, and only the operator knows whether the applications need it."""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Something that is in the way of a cutover."""

    who: Who
    about: str
    text: str
    next_step: str = ""

    def __str__(self) -> str:
        return f"{self.about}: {self.text}{f' ({self.next_step})' if self.next_step else ''}"


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """The global variables of a source that a cutover changes, with the values to put back."""

    source: str
    found: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class StoredCutover:
    """A cutover as it is stored; times are those of the target's clock."""

    phase: CutoverPhase
    number: int
    """Of its proofs in the ledger: larger than the numbers of all validations before."""
    checkpoints: Mapping[str, Location] = field(default_factory=dict)
    """Those before the last round; empty: no round is done."""
    changed: tuple[SourceSettings, ...] = ()
    """Values before the change, stored before it."""
    read_only_at: datetime | None = None
    certificate: str = ""
    """JSON; empty before the end."""

    @property
    def is_done(self) -> bool:
        return self.phase is CutoverPhase.DONE


@dataclass(frozen=True, slots=True)
class TouchedRanges:
    """Tells which ranges of a key the binlog may have touched."""

    anything: bool
    numbers: tuple[int, ...] = ()
    """The touched values of the first column of the key, sorted."""

    def may_touch(self, span: KeyRange) -> bool:
        """Whether a touched key may be in a range."""
        if self.anything:
            return True
        first = 0 if span.lower is None else bisect_left(self.numbers, int(span.lower[0]))
        last = len(self.numbers) if span.upper is None else bisect_right(self.numbers, int(span.upper[0]))
        return first < last


INTEGERS = {"tinyint", "smallint", "mediumint", "int", "bigint"}


def touched_ranges(touched: Touched, key: Collection[Column]) -> TouchedRanges:
    """Return which ranges the touched keys are in; only servers know the order of keys that are not integers."""
    if touched.anything:
        return TouchedRanges(anything=True)
    if not touched.keys:
        return TouchedRanges(anything=False)
    if not key or next(iter(key)).data_type not in INTEGERS:
        return TouchedRanges(anything=True)
    return TouchedRanges(False, tuple(sorted(int(each[0] or 0) for each in touched.keys)))


def still_proven(number: int, touched: TouchedRanges) -> Callable[[JudgedRange], bool]:
    """Return whether a range need not be compared again; one without a sum is, for the certificate."""
    return lambda each: each.round == number and each.found.total is not None and not touched.may_touch(each.span)


def add_foreign_key(key: ForeignKey) -> str:
    """Return the statement that creates a foreign key."""
    return f"ALTER TABLE {qualified(key.child.schema, key.child.name)} ADD {key.clause}"


@dataclass(frozen=True, slots=True)
class TableSum:
    """The rows of a table and the sum of their hashes."""

    rows: int
    total: int
    is_incomplete: bool = False
    """Whether a range has no sum: its rows were found equal one by one."""

    @property
    def checksum(self) -> str:
        """The sum modulo 2 to the power of 64, as hexadecimal text."""
        return f"{self.total % (1 << 64):016x}"


def total_of(ranges: Collection[JudgedRange]) -> TableSum:
    """Add up the ranges of a table."""
    found = [each.found.total for each in ranges]
    rows = sum(each.found.rows for each in ranges)
    return TableSum(rows, sum(each or 0 for each in found), is_incomplete=None in found)
