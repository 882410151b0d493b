"""Prepared XA transactions, tracked from PREPARE to COMMIT or ROLLBACK across segments and pulls.

Each segment's index contains the list at its end, so no other state is needed: a pull that continues after a segment
continues with its list.
"""

from collections import deque
from dataclasses import replace

from unshard.core.relay.segment import Prepared, Segment
from unshard.errors.relay import PreparedUnseen

REMEMBERED = 64
"""A server that was killed during XA COMMIT may have logged it and ask for it again."""


class PreparedTransactions:
    """The prepared transactions at the current point of a stream; `before` is the segment that ends at its start."""

    def __init__(self, before: Segment | None) -> None:
        # A repeated name belongs to a new transaction, because a crash rolled back the old one.
        self.open = {prepared.xid: prepared for prepared in before.open} if before else {}
        self._finished = deque(before.finished if before else (), REMEMBERED)

    @property
    def finished(self) -> tuple[str, ...]:
        """Names of the transactions that ended last."""
        return tuple(self._finished)

    def finish(self, xid: str, commits: bool, source: str, place: str) -> Prepared | None:
        """Remove a transaction from the list; None if its rows do not count, or were counted already."""
        if commits and xid not in self.open and xid not in self._finished:
            raise PreparedUnseen(source, xid, place)
        self._finished.append(xid)
        prepared = self.open.pop(xid, None)
        return prepared if commits and prepared and prepared.tables else None

    def name_segment(self, segment: str) -> None:
        """Set the segment's name, now known, in the transactions that were prepared in it."""
        self.open = {xid: named(one, segment) for xid, one in self.open.items()}


def named(prepared: Prepared, segment: str) -> Prepared:
    """Return the transaction with the segment's name, if it had none."""
    return prepared if prepared.segment else replace(prepared, segment=segment)
