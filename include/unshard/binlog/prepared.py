"""XA transactions that are prepared: known from PREPARE to COMMIT or ROLLBACK, across segments and pulls.

The list goes from segment to segment in their indexes, so that it needs no state of its own: whoever goes on
behind a segment goes on with its list.
"""

from collections import deque
from dataclasses import replace

from unshard.core.segment import Prepared, Segment
from unshard.errors.relay import PreparedUnseen

REMEMBERED = 64
"""A server that was killed in an XA COMMIT may have logged it and still ask for it to be done again."""


class Ledger:
    """What is prepared where a stream has been read to; `before` is a segment that ends where it begins."""

    def __init__(self, before: Segment | None) -> None:
        # A name that comes again belongs to a new transaction: a crash has undone the old one.
        self.open = {prepared.xid: prepared for prepared in before.open} if before else {}
        self._finished = deque(before.finished if before else (), REMEMBERED)

    @property
    def finished(self) -> tuple[str, ...]:
        """Names of those that ended last."""
        return tuple(self._finished)

    def finish(self, xid: str, commits: bool, source: str, place: str) -> Prepared | None:
        """Take a transaction off the list; None if its rows do not count, or no more."""
        if commits and xid not in self.open and xid not in self._finished:
            raise PreparedUnseen(source, xid, place)
        self._finished.append(xid)
        prepared = self.open.pop(xid, None)
        return prepared if commits and prepared and prepared.tables else None

    def settle(self, segment: str) -> None:
        """Give the segment's name, now that it has one, to what was prepared in it."""
        self.open = {xid: named(one, segment) for xid, one in self.open.items()}


def named(prepared: Prepared, segment: str) -> Prepared:
    """Return it with the name of its segment, if that was open."""
    return prepared if prepared.segment else replace(prepared, segment=segment)
