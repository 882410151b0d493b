"""Finds the differences between the rows of the target and the union of its shards, row by row.

Rows are given as multisets: the number of each (key, hash) per place. For a table without a key, the key consists of
all columns, and only the number of equal rows can differ.
"""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from typing import TypeGuard

from unshard.core.rows.rowerrors import RowError
from unshard.core.sql.literals import EXACT
from unshard.core.window.suspension import SuspendedTarget

Key = tuple[str | None, ...]
Rows = Counter[tuple[Key, str]]
"""The number of rows with each key and hash in one place."""
FoldedKey = tuple[str | None, ...]
SHOWN_LENGTH = 60
HASH_LENGTH = 64
_ZERO_FRACTION = re.compile(r"(:\d\d)\.0+\Z")


def folded_key(key: Key) -> FoldedKey:
    """Return a key in the form in which keys of rows and of the binlog are compared."""
    return tuple(None if value is None else _folded(value) for value in key)


def _folded(value: str) -> str:
    """Return a text without what a collation, a scale or a fraction of zeros adds."""
    plain = "".join(each for each in unicodedata.normalize("NFKD", value) if not unicodedata.combining(each))
    plain = _ZERO_FRACTION.sub(r"\1", plain.casefold().strip(" \0"))
    try:
        return str(EXACT.add(Decimal(plain).normalize(EXACT), 0)) if plain[:1] in "+-.0123456789" and plain else plain
    except InvalidOperation:
        return plain


class DifferenceKind(StrEnum):
    """The kind of a difference."""

    MISSING = "missing"
    """A shard has the row, but the target does not."""
    EXTRA = "extra"
    """The target has the row, but no shard does."""
    DIFFERENT = "different"
    """Both have a row with the key, with different values."""
    GENERATED = "generated"
    """Both have a row with the key; only values that the target generates are different."""
    COLLISION = "collision"
    """Several shards have the key, and the target has fewer rows with it than all shards together."""


class Because(StrEnum):
    """The cause of an expected difference."""

    DIVERTED = "diverted"
    """The target could not store this row (`unshard row-errors`)."""
    SUSPENDED = "target suspended"
    """Rows of its shard are held because the target is suspended for that source (`unshard retry`)."""
    HELD = "held"
    """Rows of its shard are held until a DDL is resolved (`unshard locks`)."""


@dataclass(frozen=True, slots=True)
class RowDifference:
    """One key whose rows differ."""

    kind: DifferenceKind
    key: Key
    shards: tuple[str, ...]
    count: int
    """The number of rows; more than 1 only if rows may repeat or collide."""
    because: Because | None = None
    """The cause of an expected difference, as it was when the rows were compared."""
    surplus: tuple[str, ...] = ()
    """The hashes of the target's rows that the shards do not have."""
    lacking: tuple[str, ...] = ()
    """The hashes of the shards' rows that the target does not have."""

    def named(self, columns: Sequence[str]) -> str:
        """Return `id=5, name=ann`, with long values shortened; `columns` are those of the key."""
        return ", ".join(f"{column}={_shortened(value)}" for column, value in zip(columns, self.key, strict=True))


def _shortened(value: str | None) -> str:
    if value is None:
        return "NULL"
    return value if len(value) <= SHOWN_LENGTH else f"{value[: SHOWN_LENGTH - 3]}..."


def explain(target: Rows, shards: Mapping[str, Rows], keyed: bool) -> Iterator[RowDifference]:
    """Yield the differences, sorted by key."""
    there = _by_key(target)
    union: defaultdict[Key, Counter[str]] = defaultdict(Counter)
    owners: defaultdict[Key, list[str]] = defaultdict(list)
    for shard, rows in shards.items():
        for key, hashes in _by_key(rows).items():
            union[key] += hashes
            owners[key].append(shard)
    for key in sorted(there.keys() | union.keys(), key=_sortable):
        have, want = there.get(key, Counter()), union.get(key, Counter())
        if have != want:
            kind = _kind(have, want, keyed)
            surplus, lacking = (tuple((a - b).elements()) for a, b in ((have, want), (want, have)))
            concerned = _concerned(have, want, keyed)
            yield RowDifference(kind, key, tuple(owners.get(key, ())), concerned, surplus=surplus, lacking=lacking)


def _kind(have: Counter[str], want: Counter[str], keyed: bool) -> DifferenceKind:
    if not keyed:
        return DifferenceKind.MISSING if want.total() > have.total() else DifferenceKind.EXTRA
    if not have:
        return DifferenceKind.MISSING
    if not want:
        return DifferenceKind.EXTRA
    if want.total() > have.total():
        return DifferenceKind.COLLISION
    return DifferenceKind.GENERATED if _written(have) == _written(want) else DifferenceKind.DIFFERENT


def _written(digests: Counter[str]) -> Counter[str]:
    """Return the hashes without the values that the target generates, which are at the end of the digests."""
    return Counter(digest[-HASH_LENGTH:] for digest in digests.elements())


def _concerned(have: Counter[str], want: Counter[str], keyed: bool) -> int:
    if keyed:
        return max(have.total(), want.total())
    return abs(have.total() - want.total()) or max((have - want).total(), (want - have).total())


def _by_key(rows: Rows) -> dict[Key, Counter[str]]:
    found: defaultdict[Key, Counter[str]] = defaultdict(Counter)
    for (key, digest), count in rows.items():
        found[key][digest] += count
    return found


def comparable(value: str | None) -> tuple[bool, int, str]:
    """Return a key to compare and sort printed values: NULL first, integers by size, other values as text."""
    return (True, int(value), "") if _is_integer(value) else (value is not None, 0, value or "")


def _sortable(key: Key) -> tuple[tuple[bool, int, str], ...]:
    return tuple(map(comparable, key))


def _is_integer(value: str | None) -> TypeGuard[str]:
    return value is not None and re.fullmatch(r"-?[0-9]+", value) is not None


# --- expected differences: held rows and diverted rows


@dataclass(frozen=True, slots=True)
class NotYetInTarget:
    """The rows of one target that are not in it yet."""

    locks: tuple[str, ...] = ()
    held_rows: int = 0
    shards: tuple[str, ...] = ()
    """The shards that have held rows or queued DDL."""
    suspended: tuple[SuspendedTarget, ...] = ()
    diverted: tuple[RowError, ...] = ()
    held_keys: Mapping[str, frozenset[FoldedKey] | None] = field(default_factory=dict)
    """The keys of the held rows by shard; a shard whose keys are unknown is missing or has None."""

    def because(self, key: Sequence[str], difference: RowDifference) -> Because | None:
        """Return the cause of a difference, None if no cause is known; `key` are the names of its key columns.

        A row that no shard has is explained by a held row with its key, which may delete it.
        """
        if any(str(each.shard) in difference.shards and _is_of(each, key, difference) for each in self.diverted):
            return Because.DIVERTED
        held = {shard for shard in self.shards if self._holds(shard, difference)}
        if any(shard.startswith(f"{stop.source} ") for shard in held for stop in self.suspended):
            return Because.SUSPENDED
        return Because.HELD if held else None

    def _holds(self, shard: str, difference: RowDifference) -> bool:
        keys = self.held_keys.get(shard)
        if keys is not None:
            return folded_key(difference.key) in keys
        return shard in (difference.shards or self.held_keys)


def _is_of(error: RowError, key: Sequence[str], difference: RowDifference) -> bool:
    values = {name.lower(): value for name, value in error.values.items()}
    return bool(key) and all(
        name.lower() in values and comparable(values[name.lower()]) == comparable(value)
        for name, value in zip(key, difference.key, strict=True)
    )
