"""The sections of a large window: each is committed before the next one, which is read meanwhile.

A section is applied like a window: it has the size of one, its own number for the fence, and its own transactions. If
something goes wrong in a section, the window ends before it, and the next window begins there. So only a window whose
plan can be cut between any two segments has more than one section:

| the window                                            | because                                                      |
|-------------------------------------------------------|--------------------------------------------------------------|
| applies rows to one target, and holds none            | one Spark task writes it while it reads                      |
| neither releases nor drops held rows, has no DDL      | its commit changes nothing but the checkpoint                |
| is not in safe mode                                   | a window in safe mode is written as a whole                  |
| has few dispositions                                  | its plan is one value of a meta table                        |

The caller also allows one section only if the task checks foreign keys, or if several tasks read a section.
"""

from dataclasses import dataclass, replace

from unshard.core.window.plan import Border, Read
from unshard.core.window.shardchanges import Walk

MOST_DISPOSITIONS = 2_000
"""The plan of a window with several sections has at most so many; as JSON each takes about 200 bytes."""


@dataclass(frozen=True, slots=True)
class Sections:
    """The sections of a window up to some segment."""

    begun: Walk
    """The walk before the first segment."""
    most: int
    borders: tuple[Border, ...] = ()
    size: int = 0
    """Bytes in the last section."""

    def may_end(self, walk: Walk) -> bool:
        """Whether another section may follow the segments of this walk."""
        return len(self.borders) + 1 < self.most and self.has_only_rows(walk)

    def ended(self, walk: Walk) -> "Sections":
        """Return the sections with a border after this walk."""
        last_time = max(segment.last_time for segment in walk.passed)
        border = Border(len(walk.reads), walk.passed[-1].ends, walk.passed[-1].gtid, last_time)
        return replace(self, borders=(*self.borders, border), size=0)

    def has_only_rows(self, walk: Walk) -> bool:
        """Whether the window so far applies rows to one target and does nothing else."""
        targets = {disposition.target for read in walk.reads for disposition in read.dispositions}
        count = sum(len(read.dispositions) for read in walk.reads)
        return (
            replace(walk, reads=self.begun.reads, passed=self.begun.passed) == self.begun
            and len(targets) == 1
            and count <= MOST_DISPOSITIONS
            and all(map(_is_applied, walk.reads))
        )


def _is_applied(read: Read) -> bool:
    """Whether all rows of the transactions in these ranges are applied."""
    return not read.committed and all(
        each.hold is None and each.structure and each.until is None for each in read.dispositions
    )
