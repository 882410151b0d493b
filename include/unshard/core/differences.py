"""What differs between the rows of the target and the union of its shards, row by row.

Rows come as multisets: per place, how often a (key, hash) occurs. A table without a key has all its
columns as the key, and only the number of equal rows can differ.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeGuard

Key = tuple[str | None, ...]
Rows = Counter[tuple[Key, str]]
"""How often a row with that key and that hash occurs in one place."""


class Kind(StrEnum):
    """In what way a row differs."""

    MISSING = "missing"
    """The shard has it, the target has not."""
    EXTRA = "extra"
    """The target has it, no shard has."""
    DIFFERENT = "different"
    """Both have a row of that key with other values."""
    COLLISION = "collision"
    """Several shards have the key, the target has fewer rows of it than they have together."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One key whose rows differ."""

    kind: Kind
    key: Key
    shards: tuple[str, ...]
    """Shards that have the key."""
    count: int
    """Rows concerned; more than 1 only where rows may repeat or collide."""


def explain(target: Rows, shards: Mapping[str, Rows], keyed: bool) -> Iterator[Difference]:
    """Yield the differences, in the order of their keys."""
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
            kind = _kind(have.total(), want.total(), keyed)
            yield Difference(kind, key, tuple(owners.get(key, ())), _concerned(have, want, keyed))


def _kind(have: int, want: int, keyed: bool) -> Kind:
    if not keyed:
        return Kind.MISSING if want > have else Kind.EXTRA
    if not have:
        return Kind.MISSING
    if not want:
        return Kind.EXTRA
    return Kind.COLLISION if want > have else Kind.DIFFERENT


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
    """Return what tells values apart however they are printed; integers by size, other values as text, NULL first."""
    return (True, int(value), "") if _is_integer(value) else (value is not None, 0, value or "")


def _sortable(key: Key) -> tuple[tuple[bool, int, str], ...]:
    return tuple(map(comparable, key))


def _is_integer(value: str | None) -> TypeGuard[str]:
    return value is not None and re.fullmatch(r"-?[0-9]+", value) is not None
