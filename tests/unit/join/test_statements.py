"""Statements of one change each: together they do what the whole statement does, in an order in which each can run."""

from tests.unit.join.paper import alter, create
from unshard.core.join.difference import (
    AlterPart,
    Target,
    alter_parts,
    apply,
    difference,
    is_equal,
    single_parts,
    target_with_ids,
)
from unshard.core.join.jointables import CHECK, FULLTEXT, features
from unshard.core.model import TableId

TABLE = TableId("d", "t")
IDS = {"id": 1, "a": 2, "b": 3, "c": 4, "n": 5, "m": 6}
BEFORE = "CREATE TABLE t (id INT PRIMARY KEY, a INT, b VARCHAR(9), c INT, KEY k (a))"


def parts_to(text: str, ids: dict[str, int]) -> tuple[Target, tuple[AlterPart, ...]]:
    """Return the structure before, and the statements that lead to another one."""
    before = create(BEFORE).structure
    wanted = create(text).structure
    target = target_with_ids(before, {id: name for name, id in IDS.items() if name in before.names})
    names = {id: name for name, id in ids.items() if name in wanted.names}
    found = difference(target, target_with_ids(wanted, names), {})
    parts = list[AlterPart]()
    after = target
    for steps in (found.first, found.expanding, found.contracting):
        after = apply(steps, after)
        parts += alter_parts(TABLE, steps, after.names) if steps else ()
    return target, tuple(parts)


def texts(parts: tuple[AlterPart, ...]) -> list[str]:
    return [piece.text.removeprefix("ALTER TABLE `d`.`t` ") for part in parts for piece in single_parts(TABLE, part)]


def test_each_change_is_a_statement() -> None:
    _, parts = parts_to("CREATE TABLE t (id INT PRIMARY KEY, a BIGINT, b VARCHAR(9), c INT, n INT, KEY k (a, n))", IDS)
    assert texts(parts) == [
        "MODIFY COLUMN `a` bigint(20) NULL",
        "ADD COLUMN `n` int(11) NULL",
        "ADD KEY `k_2` (`a`, `n`)",
        "DROP KEY `k`",
        "RENAME KEY `k_2` TO `k`",
    ]


def test_a_new_column_has_the_place_that_its_shard_gives_it() -> None:
    text = "CREATE TABLE t (n INT, id INT PRIMARY KEY, a INT, m INT, new INT, b VARCHAR(9), c INT, last INT, KEY k (a))"
    _, parts = parts_to(text, {**IDS, "new": 7, "last": 8})
    assert texts(parts) == [
        "ADD COLUMN `n` int(11) NULL FIRST",
        "ADD COLUMN `m` int(11) NULL AFTER `a`",
        "ADD COLUMN `new` int(11) NULL AFTER `m`",
        "ADD COLUMN `last` int(11) NULL",
    ]


def test_a_new_column_follows_none_that_comes_later() -> None:
    text = (
        "CREATE TABLE t (id INT PRIMARY KEY, a INT, n INT AS (`m` + 1) STORED, m INT, b VARCHAR(9), c INT, KEY k (a))"
    )
    _, parts = parts_to(text, IDS)
    assert texts(parts) == [
        "ADD COLUMN `m` int(11) NULL AFTER `a`",
        "ADD COLUMN `n` int(11) GENERATED ALWAYS AS (`m` + 1) STORED AFTER `a`",
    ]


def test_generated_columns_come_after_those_that_they_may_name() -> None:
    text = "CREATE TABLE t (id INT PRIMARY KEY, a INT, b VARCHAR(9), n INT AS (`m` + 1) STORED, m INT, c INT)"
    _, parts = parts_to(text, IDS)
    found = texts(parts)
    assert [word for each in found for word in ("`m` int", "`n` int") if word in each] == ["`m` int", "`n` int"]


def test_swapped_names() -> None:
    swapped = {**IDS, "a": IDS["c"], "c": IDS["a"]}
    target, parts = parts_to("CREATE TABLE t (id INT PRIMARY KEY, a INT, b VARCHAR(9), c INT, KEY k (c))", swapped)
    assert texts(parts) == [
        "RENAME COLUMN `a` TO `_unshard_2`",
        "RENAME COLUMN `c` TO `a`",
        "RENAME COLUMN `_unshard_2` TO `c`",
    ]
    after = target
    for part in parts:
        for piece in single_parts(TABLE, part):
            after = apply(piece.steps, after)
    assert after.names == {1: "id", 2: "c", 3: "b", 4: "a"}


def test_the_single_statements_lead_to_the_same_table() -> None:
    text = "CREATE TABLE t (id INT PRIMARY KEY, a BIGINT, n INT, c INT, m INT AS (`n` + 1) STORED, KEY k2 (c))"
    target, parts = parts_to(text, IDS)
    table, after, whole = create(BEFORE), target, target
    for part in parts:
        whole = apply(part.steps, whole)
        for piece in single_parts(TABLE, part):
            after, table = apply(piece.steps, after), alter(table, piece.text)
    assert is_equal(after, whole)
    assert is_equal(target_with_ids(table.structure, whole.names), whole)


def test_features() -> None:
    assert features(create(BEFORE).structure.create_sql) == set()
    shown = "CREATE TABLE `t` (\n `a` int CHECK (`a` > 0),\n `b` text,\n FULLTEXT KEY `f` (`b`),\n KEY `k` (`a`)\n)"
    assert features(shown) == {FULLTEXT, CHECK}
