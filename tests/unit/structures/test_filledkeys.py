"""Which keys of a target find the rows of its shards, and which keys two shards may share."""

import pytest

from unshard.core.ddl.lineage import ExecutedDdl, filled_names
from unshard.core.full.chunks import finds_alike
from unshard.core.model import Column, Index, Shard, TableId, TableSchema
from unshard.core.structures.comparison import unfit_reasons
from unshard.core.structures.tablekeys import SharedKey, as_filled, finding_index, may_share_key, shared_keys


def table(columns: str, *keys: str) -> TableSchema:
    """A structure: `pk+` counts up, `v?` is nullable; a key `=a,b` is unique, `a,b` is not."""
    made = tuple(
        Column(
            name.strip("+?"), "int", "int(11)", name.endswith("?"), None, None, None, "auto_increment" * ("+" in name)
        )
        for name in columns.split()
    )
    indexes = tuple(Index(f"k{n}", tuple(key.strip("=").split(",")), key[0] == "=") for n, key in enumerate(keys))
    return TableSchema(made, indexes, "")


SHARD = table("id v", "=id")


@pytest.mark.parametrize(
    ("target", "key", "index"),
    [
        (table("id v", "=id"), ("id",), "k0"),
        (table("pk+ id v", "=pk"), (), None),
        (table("pk+ id v", "=pk", "id"), (), "k1"),
        (table("pk+ id v", "=pk", "v,id"), (), "k1"),
        (table("pk+ id v", "=pk", "pk,id"), (), None),
        (table("pk+ id v", "=pk", "=id"), ("id",), "k1"),
        (table("pk+ id v", "=pk", "=ID,v"), ("ID", "v"), "k1"),
        (table("id v"), (), None),
        (table("id v", "id,v"), (), "k0"),
        (table("id v?", "=v"), (), None),
    ],
    ids=str,
)
def test_a_row_is_found_by_a_key_that_the_shards_fill_or_by_an_index(
    target: TableSchema, key: tuple[str, ...], index: str | None
) -> None:
    found = as_filled(target, {"id", "v"})
    assert found.key == key
    assert found == target and found.digest == target.digest and "own" not in found.to_json()
    by = finding_index(target, SHARD.key, {"id", "v"})
    assert (by.name if by else None) == index
    assert bool(unfit_reasons(target, SHARD)) is (not key and index is None)


def test_an_extracted_column_may_begin_the_index() -> None:
    target = table("pk+ id v shard", "=pk", "shard,id")
    assert unfit_reasons(target, SHARD, {"shard"}) == ()
    assert len(unfit_reasons(target, SHARD)) == 2, "nothing fills the column, and no index is left"


@pytest.mark.parametrize(
    ("shard", "target", "alike"),
    [
        (SHARD, table("id v", "=id"), True),
        (SHARD, table("id v", "=id,v"), True),
        (SHARD, table("id v", "=id", "=v"), False),
        (SHARD, table("id v", "=v"), False),
        (SHARD, table("id v", "id"), False),
        (SHARD, table("pk+ id v", "=pk", "=id"), True),
        (SHARD, table("pk+ id v", "=pk", "id"), False),
        (table("id v", "=id,v"), table("id v", "=v,id"), True),
        (table("id v", "=id,v"), table("id v", "=id"), False),
    ],
    ids=str,
)
def test_chunks_are_read_at_different_times_only_if_the_target_finds_rows_alike(
    shard: TableSchema, target: TableSchema, alike: bool
) -> None:
    assert finds_alike(shard, as_filled(target, {"id", "v"})) is alike


def test_a_column_that_executed_ddl_adds_is_filled() -> None:
    ran = [ExecutedDdl("ALTER TABLE t ADD (`x` INT DEFAULT 1), DROP COLUMN v, CHANGE w y INT", 0)]
    filled = filled_names(("id", "v", "W"), ran)
    assert {"id", "x", "y"} <= filled and "pk" not in filled


ONE, TWO, THREE = (Shard("s", TableId("d", f"t_{n}")) for n in (1, 2, 3))
ALL = {ONE: SHARD, TWO: SHARD, THREE: SHARD}


@pytest.mark.parametrize(
    ("target", "constants", "mapped", "found"),
    [
        (table("id v", "=id"), {}, (), [("id",)]),
        (table("id v", "=id,v"), {}, (), [("id", "v")]),
        (table("id v", "=id", "=v"), {}, (), [("id",)]),  # no index of the shards finds v
        (table("pk+ id v", "=pk", "id"), {}, (), []),
        (table("id v", "=id"), {}, ("id",), []),
        (table("id v s", "=id,s"), {ONE: {"s": "1"}, TWO: {"s": "2"}, THREE: {"s": "3"}}, (), []),
        (table("id v s", "=id,s"), {ONE: {"s": "1"}, TWO: {"s": "1"}, THREE: {"s": "3"}}, (), [("id",)]),
        (table("id v s", "=id"), {ONE: {"s": "1"}, TWO: {"s": "2"}, THREE: {"s": "3"}}, (), [("id",)]),
    ],
    ids=str,
)
def test_the_keys_that_shards_may_share(target, constants, mapped, found) -> None:
    keys = shared_keys(target, ALL, constants, mapped)
    assert [key.columns for key in keys] == found


def test_only_shards_with_equal_extracted_values_are_compared() -> None:
    constants = {ONE: {"s": "1"}, TWO: {"s": "1"}, THREE: {"s": "3"}}
    assert shared_keys(table("id v s", "=id,s"), ALL, constants, ()) == (SharedKey(("id",), (ONE, TWO)),)


def test_a_key_with_a_column_outside_the_shards_key_separates_shards() -> None:
    assert may_share_key(table("id v", "=id"), ("ID",))
    assert not may_share_key(table("id v", "=id,v"), ("id",))
    assert not may_share_key(table("id v", "id"), ("id",))
