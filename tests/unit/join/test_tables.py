"""The join of structures: its laws, and that it holds the rows of every shard."""

import random

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.join.paper import PaperTable, create
from unshard.core.join.difference import Target, apply, difference, is_equal
from unshard.core.join.jointables import (
    NULL,
    Table,
    buildable,
    floored,
    is_met,
    join,
    join_all,
    join_definitions,
    table_with_ids,
)

COLUMNS = (
    ("id", ("INT PRIMARY KEY",)),
    ("a", ("INT", "BIGINT", "INT NOT NULL", "INT DEFAULT 3", "SMALLINT NOT NULL DEFAULT 0")),
    ("b", ("VARCHAR(9)", "VARCHAR(30) NOT NULL", "TEXT", "CHAR(3)", "VARCHAR(9) CHARACTER SET latin1")),
    ("c", ("DECIMAL(5,2)", "DECIMAL(7,4) NOT NULL", "VARCHAR(3)")),
    ("d", ("ENUM('x','y')", "ENUM('y','x')", "ENUM('x','y','z')", "SET('x')")),
    ("e", ("DATETIME", "DATETIME(3) NOT NULL", "TIMESTAMP NULL")),
    ("f", ("INT AS (id + 1) STORED", "INT AS (id + 2) STORED", "INT")),
)
KEYS = ("KEY k (a)", "KEY k2 (b)", "KEY k (b, a)", "UNIQUE KEY u (a)", "UNIQUE KEY u (a, id)", "KEY k3 (c)")
IDS = {name: number for number, (name, _) in enumerate(COLUMNS, 1)}
fills = st.dictionaries(st.sampled_from(sorted(IDS.values())), st.sampled_from([NULL, "0"]))


@st.composite
def papers(draw: st.DrawFn) -> PaperTable:
    chosen = [
        f"{name} {draw(st.sampled_from(kinds))}" for name, kinds in COLUMNS if name == "id" or draw(st.booleans())
    ]
    names = {text.split()[0] for text in chosen}
    keys = draw(st.lists(st.sampled_from(KEYS), unique_by=lambda key: key.partition("(")[0].split()[-1], max_size=3))
    usable = [key for key in keys if {*key[key.index("(") + 1 : -1].split(", ")} <= names]
    return create(f"CREATE TABLE t ({', '.join([*chosen, *usable])})")


tables = papers().map(lambda paper: table_with_ids(paper.structure, IDS))


@given(tables, tables, tables, fills)
def test_the_laws(one: Table, two: Table, three: Table, given_fills: dict[int, str]) -> None:
    assert join(one, one, given_fills) == one
    assert join(one, two, given_fills) == join(two, one, given_fills)
    left = join(join(one, two, given_fills), three, given_fills)
    assert left == join(one, join(two, three, given_fills), given_fills)


@given(st.lists(tables, min_size=1, max_size=5), fills, st.randoms())
def test_the_order_of_the_shards_does_not_matter(
    shards: list[Table], filled: dict[int, str], dice: random.Random
) -> None:
    mixed = [*shards]
    dice.shuffle(mixed)
    assert join_all(mixed, filled) == join_all(shards, filled)


@given(st.lists(tables, min_size=1, max_size=4), fills)
def test_every_shards_row_fits_the_join(shards: list[Table], filled: dict[int, str]) -> None:
    """A shard's definition adds nothing to the join, and no strict rule of the join is new to the shard."""
    both = buildable(join_all(shards, filled), shards)
    for shard in shards:
        for id, column in both.columns.items():
            if column is None:
                continue
            if id in shard.columns:
                own = shard.columns[id]
                again = join_definitions(column, own) if own is not None else None
                assert again is not None and is_met(again, column)
            else:
                assert column.nullable or column.is_generated or filled.get(id, NULL) != NULL
        assert {key for key in both.keys if key.is_strict} <= {*shard.keys}
        assert {*both.checks} <= {*shard.checks}


def named(table: Table) -> Target:
    names = {number: name for name, number in IDS.items()}
    return Target(table, {id: names[id] for id in table.columns})


@given(tables, st.lists(tables, min_size=1, max_size=4), fills)
def test_the_steps_lead_to_the_join(target: Table, shards: list[Table], filled: dict[int, str]) -> None:
    both = buildable(join_all(shards, filled), shards)
    if None in both.columns.values():
        return
    wanted = named(both)
    found = difference(named(target), wanted, filled)
    between = apply((*found.first, *found.expanding), named(target))
    for id, column in both.columns.items():
        present = between.table.columns[id]
        assert column is not None and present is not None
        again = join_definitions(present, column)
        assert (again is not None and is_met(present, again)) or is_met(present, column)
    after = apply(found.contracting, between)
    assert is_equal(after, wanted)
    rest = difference(after, wanted, filled)
    assert not rest.first and not rest.expanding and not rest.contracting


@given(tables, st.integers(1, 4), fills)
def test_equal_shards_have_their_own_structure(table: Table, count: int, filled: dict[int, str]) -> None:
    both = buildable(join_all([table] * count, filled), [table] * count)
    assert both == table
    assert not any((found := difference(named(table), named(both), filled)).expanding + found.contracting)


def test_a_floor_that_is_plain_keeps_a_generated_column_plain() -> None:
    """Someone has made it plain on the target; `difference` must not ask for a plain column that is STORED."""
    ids = {"id": 1, "f": 2}
    shard = table_with_ids(create("CREATE TABLE t (id INT PRIMARY KEY, f INT AS (id + 1) STORED)").structure, ids)
    floor = table_with_ids(create("CREATE TABLE t (id INT PRIMARY KEY, f INT)").structure, ids)
    joined = floored(shard, floor)
    names = {id: name for name, id in ids.items()}
    assert is_equal(Target(floor, names), Target(joined, names))
    assert is_equal(Target(shard, names), Target(floored(shard, shard), names))
