"""The transactions before a position of a binlog, as GTIDs, which are the same on every server with that history.

MariaDB: the last GTID of each domain, `0-1-55,1-3-7`. MySQL: all GTIDs, as intervals of each server and tag,
`uuid:1-55:60,uuid:tag:1-9`. A history is known only if it is complete; otherwise its text is empty.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping

Interval = tuple[int, int]
"""First and last number."""


class History:
    """The transactions so far; it grows while a binlog is read."""

    def __init__(self, text: str = "") -> None:
        self.is_known = bool(text)
        self._last: dict[str, str] = {}
        """MariaDB: the last GTID by domain."""
        self._sets: dict[str, list[Interval]] = {}
        """MySQL: the intervals by server and tag."""
        if ":" in text:
            self._sets = read_set(text)
        elif text:
            self._last = last_of_domains(text.split(","))

    def reset(self, gtids: Mapping[str, list[Interval]] | Iterable[str]) -> None:
        """Replace the history by the GTIDs in the head of a file, which are complete up to there."""
        self.is_known = True
        if isinstance(gtids, Mapping):
            self._sets, self._last = {name: list(found) for name, found in gtids.items()}, {}
        else:
            self._last, self._sets = last_of_domains(gtids), {}

    def add(self, gtid: str) -> None:
        """Add a transaction; without a GTID, the history becomes unknown. Raises ValueError for a repeated GTID."""
        if not gtid:
            self.is_known = False
        elif ":" in gtid:
            name, _, number = gtid.rpartition(":")
            _add(self._sets.setdefault(name, []), int(number))
        else:
            self._last[gtid.partition("-")[0]] = gtid

    @property
    def text(self) -> str:
        """The text in the form that servers accept; empty if the history is unknown or empty."""
        if not self.is_known:
            return ""
        if self._sets:
            return write_set(self._sets)
        return ",".join(self._last[domain] for domain in sorted(self._last, key=int))


def last_of_domains(gtids: Iterable[str]) -> dict[str, str]:
    """Return the last GTID of each domain; if a domain occurs several times, the last one in the text."""
    return {gtid.strip().partition("-")[0]: gtid.strip() for gtid in gtids if gtid.strip()}


def same(one: str, other: str) -> bool:
    """Whether two texts describe the same history."""
    return History(one).text == History(other).text


def contains(whole: str, part: str) -> bool:
    """Whether MySQL's GTID set `whole` contains all GTIDs of `part`."""
    held = read_set(whole)
    return all(
        any(first <= start and end <= last for first, last in held.get(name, ()))
        for name, some in read_set(part).items()
        for start, end in some
    )


def has_gtid(history: Mapping[str, list[Interval]] | Iterable[str], gtid: str) -> bool:
    """Whether the history in the head of a file contains a GTID."""
    if isinstance(history, Mapping):
        name, _, number = gtid.rpartition(":")
        return any(first <= int(number) <= last for first, last in history.get(name, ()))
    domain, server, sequence = gtid.split("-")
    others = (one.split("-") for one in history)
    return any((one, other) == (domain, server) and int(last) >= int(sequence) for one, other, last in others)


def read_set(text: str) -> dict[str, list[Interval]]:
    """Parse a MySQL GTID set; raises ValueError. A tag applies up to the next tag of the same server.

    The number 0, which DM's files may have, is no transaction: `uuid:0` is the set before the first one.
    """
    found: dict[str, list[Interval]] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        server, *rest = entry.lower().split(":")
        name = server
        for piece in rest:
            if piece[0].isdigit():
                first, _, last = piece.partition("-")
                if int(last or first):
                    found.setdefault(name, []).append((int(first) or 1, int(last or first)))
            else:
                name = f"{server}:{piece}"
    return {name: _merged(some) for name, some in found.items()}


def write_set(sets: Mapping[str, list[Interval]]) -> str:
    """Return the text of a MySQL GTID set, with one entry for each server and tag."""
    shown = (":".join((name, *(f"{a}-{b}" if b > a else str(a) for a, b in sets[name]))) for name in sorted(sets))
    return ",".join(shown)


def _merged(some: list[Interval]) -> list[Interval]:
    merged: list[Interval] = []
    for first, last in sorted(some):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], max(last, merged[-1][1])
        else:
            merged.append((first, last))
    return merged


def _add(some: list[Interval], number: int) -> None:
    if some and number == some[-1][1] + 1:
        some[-1] = some[-1][0], number
        return
    index = bisect_left(some, (number + 1, 0))
    if index and number <= some[index - 1][1]:
        raise ValueError(f"transaction {number} is repeated")
    some[max(index - 1, 0) : index + 1] = _merged([*some[max(index - 1, 0) : index + 1], (number, number)])
