"""Identifies the rows of one shard in a merged target, so that they are deleted without rows of other shards.

No event of DROP or TRUNCATE names the rows that it removes, so the values in the target must name their shard. Two
shards are apart if one of these columns separates them:

| column of the target                             | the shards are apart if                                  |
|--------------------------------------------------|----------------------------------------------------------|
| is extracted for both shards                     | the values differ, byte by byte                          |
| is mapped by `partition id` for both shards      | the ranges of their mapped ids do not overlap            |
| is mapped by `add prefix` or `add suffix`        | never: one text may be a part of another one             |
| is not filled by a rule                          | never: keys that are disjoint now may not be so later    |

A mapped column counts only if it is a number and never NULL: a NULL belongs to no range. A shard must be apart from
every other shard that has ever had the target, because rows of shards that have left may still be there.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from unshard.core.model import Shard, TableSchema
from unshard.core.rules.columnmapping import PartitionId
from unshard.core.rules.reshaping import Extracted, Reshaping
from unshard.core.sql.literals import DECIMALS, INTEGERS

NO_RULE = "{shard} has no extracted column, and no numeric NOT NULL column that is mapped by `partition id`"
ALIKE = "the extracted columns and mapped ids of {shard} and {other} are equal or overlap"


class DropShardRows(StrEnum):
    """What happens to the rows of a dropped or truncated shard in a merged target."""

    KEEP = "keep"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class IdRange:
    """The mapped ids that a shard may have."""

    column: str
    first: int
    end: int
    """The first number after the range."""


@dataclass(frozen=True, slots=True)
class ShardRows:
    """The values that all rows of a shard have in the target."""

    values: tuple[Extracted, ...] = ()
    ids: tuple[IdRange, ...] = ()


def rows_of(reshaping: Reshaping, structure: TableSchema | None = None) -> ShardRows:
    """Return the values that rules give to all rows of a shard; with its structure, only those that no row lacks."""
    columns = structure.by_name.items() if structure else ()
    filled = {name for name, each in columns if not each.nullable}
    numbers = {name for name, each in columns if each.data_type in INTEGERS | DECIMALS}
    ids = (
        IdRange(each.column, each.change.high, each.change.end)
        for each in reshaping.mapped
        if isinstance(each.change, PartitionId) and not each.is_shared
        if structure is None or (each.source.lower() in filled and each.column.lower() in numbers)
    )
    return ShardRows(reshaping.extracted, tuple(ids))


def are_apart(one: ShardRows, other: ShardRows) -> bool:
    """Whether no row has the values of both shards."""
    values = {each.column.lower(): each.value for each in other.values}
    ids = {each.column.lower(): each for each in other.ids}
    return any(values.get(each.column.lower(), each.value) != each.value for each in one.values) or any(
        (same := ids.get(each.column.lower())) is not None and (each.end <= same.first or same.end <= each.first)
        for each in one.ids
    )


def why_unknown(shard: Shard, rows: ShardRows, others: Mapping[Shard, ShardRows]) -> str:
    """Return why the rows of a shard cannot be told from those of the others; empty if they can."""
    if not (rows.values or rows.ids):
        return NO_RULE.format(shard=shard)
    alike = (other for other, its in sorted(others.items()) if other != shard and not are_apart(rows, its))
    other = next(alike, None)
    return "" if other is None else ALIKE.format(shard=shard, other=other)


def why_unknown_in(shards: Mapping[Shard, ShardRows]) -> str:
    """Return why the rows of some shard of a target cannot be told from those of the others; empty if all can."""
    for shard, rows in sorted(shards.items()):
        if found := why_unknown(shard, rows, {}):
            return found
    for some in _alike_by_values(shards):
        if _have_disjoint_ids(some.values()):
            continue
        for shard, rows in sorted(some.items()):
            if found := why_unknown(shard, rows, some):
                return found
    return ""


def _alike_by_values(shards: Mapping[Shard, ShardRows]) -> Iterable[Mapping[Shard, ShardRows]]:
    """Return the shards in groups; those of different groups have different values in a column that all have."""
    columns = _common(shards.values())
    found: dict[Sequence[str], dict[Shard, ShardRows]] = {}
    for shard, rows in shards.items():
        values = {each.column.lower(): each.value for each in rows.values}
        found.setdefault(tuple(values[column] for column in columns), {})[shard] = rows
    return [some for some in found.values() if len(some) > 1]


def _have_disjoint_ids(all_rows: Collection[ShardRows]) -> bool:
    """Whether the ids of one column keep all apart; without comparing each pair of thousands of shards."""
    for column in {each.column.lower() for rows in all_rows for each in rows.ids}:
        ranges = sorted(
            (each.first, each.end) for rows in all_rows for each in rows.ids if each.column.lower() == column
        )
        if len(ranges) == len(all_rows) and all(one[1] <= other[0] for one, other in pairwise(ranges)):
            return True
    return False


def _common(all_rows: Iterable[ShardRows]) -> list[str]:
    columns = [{each.column.lower() for each in rows.values} for rows in all_rows]
    return sorted(set.intersection(*columns)) if columns else []
