"""The values that name the rows of a shard: which shards they keep apart."""

import pytest

from unshard.core.model import Column, Shard, TableId, TableSchema
from unshard.core.rules.columnmapping import Affix, Mapped, PartitionId
from unshard.core.rules.reshaping import Extracted, Reshaping
from unshard.core.rules.shardrows import IdRange, ShardRows, are_apart, rows_of, why_unknown, why_unknown_in

NONE = ShardRows()


def shard(number: int, source: str = "s1") -> Shard:
    return Shard(source, TableId("shop", f"t_{number}"))


def filled(**values: str) -> ShardRows:
    return ShardRows(tuple(Extracted(*each) for each in values.items()))


def ids(first: int, end: int, column: str = "id") -> ShardRows:
    return ShardRows(ids=(IdRange(column, first, end),))


@pytest.mark.parametrize(
    ("one", "other", "apart"),
    [
        (filled(c="1"), filled(C="2"), True),
        (filled(c="1"), filled(c="1"), False),
        (filled(c="a"), filled(c="A"), True),
        (filled(c="1"), filled(d="2"), False),
        (filled(c="1", d="1"), filled(c="1", d="2"), True),
        (filled(c="1"), NONE, False),
        (NONE, NONE, False),
        (ids(0, 8), ids(8, 16), True),
        (ids(8, 16), ids(0, 8), True),
        (ids(0, 9), ids(8, 16), False),
        (ids(0, 8), ids(8, 16, "other"), False),
    ],
)
def test_shards_are_apart_by_a_column_that_both_have(one: ShardRows, other: ShardRows, apart: bool) -> None:
    assert are_apart(one, other) is apart
    assert are_apart(other, one) is apart


def test_a_shard_must_be_apart_from_every_other() -> None:
    others = {shard(1): filled(c="1"), shard(2): filled(c="2"), shard(3): filled(c="1")}
    assert "s1 shop.t_3" in why_unknown(shard(1), others[shard(1)], others)
    assert why_unknown(shard(2), others[shard(2)], others) == ""
    assert "no extracted column" in why_unknown(shard(4), NONE, {})


def test_all_shards_of_a_target_are_compared() -> None:
    shards = {shard(n): filled(c=str(n)) for n in range(50)}
    assert why_unknown_in(shards) == ""
    assert "t_7" in why_unknown_in({**shards, shard(7, "s2"): filled(c="7")})
    mapped = {shard(n): ids(n << 10, (n + 1) << 10) for n in range(50)}
    assert why_unknown_in(mapped) == ""
    assert "overlap" in why_unknown_in({**mapped, shard(7, "s2"): ids(7 << 10, 8 << 10)})
    both = {shard(n, s): ShardRows(filled(c=s).values, ids(n, n + 1).ids) for n in range(5) for s in ("s1", "s2")}
    assert why_unknown_in(both) == ""
    assert why_unknown_in({**both, shard(9): NONE}) != ""


def column(name: str, kind: str = "bigint", *, nullable: bool = False) -> Column:
    return Column(name, kind, kind, nullable, None, None, None, "")


@pytest.mark.parametrize(
    ("change", "shared", "columns", "found"),
    [
        (PartitionId(1 << 44, 44), False, [column("id")], True),
        (PartitionId(1 << 44, 44), False, [column("id", nullable=True)], False),
        (PartitionId(1 << 44, 44), False, [column("id", "varchar")], False),
        (PartitionId(1 << 44, 44), False, [], False),
        (PartitionId(1 << 44, 44), True, [column("id")], False),
        (Affix("a_"), False, [column("id", "varchar")], False),
    ],
)
def test_mapped_ids_count_if_every_row_has_one(
    change: PartitionId | Affix, shared: bool, columns: list[Column], found: bool
) -> None:
    reshaping = Reshaping(mapped=(Mapped("rule", "id", "id", change, True, shared),))
    assert bool(rows_of(reshaping, TableSchema(tuple(columns), (), "")).ids) is found
