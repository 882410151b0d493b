"""How a target's structure differs from those of its shards."""

import pytest

from unshard.core.model import Column, Index, TableId, TableSchema
from unshard.core.structures.comparison import ROWS_OF_TARGET, number_differences, target_differences

TARGET = TableId("d", "t")


def made_by(expression: str) -> TableSchema:
    text = f"CREATE TABLE `t` (\n  `id` int NOT NULL,\n  `g` int GENERATED ALWAYS AS ({expression}) STORED\n)"
    columns = (
        Column("id", "int", "int", False, None, None, None, ""),
        Column("g", "int", "int", True, None, None, None, "stored generated"),
    )
    return TableSchema(columns, (Index("PRIMARY", ("id",), True),), text)


@pytest.mark.parametrize(
    ("target", "shard", "is_equal"),
    [
        ("`a` + 1", "(`A`+1)", True),
        ("(`a` + `b`) + 1", "`a` + `b` + 1", True),
        ("concat(`a`,'x')", "CONCAT(`a`,_utf8mb4'x')", True),
        ("concat(`a`,'x')", "concat(`a`,'X')", False),
        ("`a` + 1", "`a` + 2", False),
    ],
)
def test_expressions_are_compared_without_what_only_some_servers_print(target: str, shard: str, is_equal: bool) -> None:
    found = target_differences(made_by(target), {"s1 d.t_1": made_by(shard)})
    assert bool(found) is not is_equal


MENDED = "ALTER TABLE `d`.`t` AUTO_INCREMENT = "


@pytest.mark.parametrize(
    ("number", "following", "wanted"),
    [
        (8, {"s1 d.t_1": 8, ROWS_OF_TARGET: 5}, ()),
        (7, {"s1 d.t_1": 8, "s2 d.t_2": 9}, (f"AUTO_INCREMENT is 7, too small for s2 d.t_2: {MENDED}9",)),
        (7, {"s1 d.t_1": 7, ROWS_OF_TARGET: 12}, (f"AUTO_INCREMENT is 7, too small for its own rows: {MENDED}12",)),
        (1, {}, ()),
    ],
)
def test_the_next_number_is_above_all_others(number: int, following: dict[str, int], wanted: tuple[str, ...]) -> None:
    assert number_differences(TARGET, number, following) == wanted
