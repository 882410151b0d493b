"""Structures that may be merged although servers describe them differently."""

import pytest

from unshard.core.model import Column, TableSchema
from unshard.core.structures.comparison import decision_differences, structure_differences


def schema(column_type: str, collation: str | None = None) -> TableSchema:
    charset = collation.partition("_")[0] if collation else None
    column = Column("c", column_type.partition("(")[0], column_type, True, charset, collation, None, "")
    return TableSchema((column,), (), "")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("int(11)", "int"),
        ("bigint(20) unsigned", "bigint unsigned"),
        ("tinyint(1)", "tinyint(4)"),
        ("year(4)", "year"),
    ],
)
def test_widths_that_are_for_display_are_no_difference(one: str, other: str) -> None:
    assert structure_differences(schema(one), schema(other)) == ()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("int(11)", "int(11) unsigned"),
        ("int(11)", "bigint(11)"),
        ("varchar(11)", "varchar(12)"),
        ("decimal(9,2)", "decimal(9,3)"),
        ("bit(1)", "bit(2)"),
        ("datetime(3)", "datetime(6)"),
    ],
)
def test_what_changes_values_is_one(one: str, other: str) -> None:
    (words,) = structure_differences(schema(one), schema(other))
    assert words.startswith("column c is ")


def test_collations_that_have_another_name_since_are_the_same() -> None:
    old, new = schema("varchar(9)", "utf8_bin"), schema("varchar(9)", "utf8mb3_bin")
    assert structure_differences(old, new) == ()
    assert structure_differences(old, schema("varchar(9)", "utf8mb4_bin")) != ()


@pytest.mark.parametrize(
    ("decided", "shown", "is_fitting"),
    [
        ("", "stored generated", True),
        ("", "virtual generated", False),
        ("stored generated", "", False),
        ("", "", True),
    ],
)
def test_a_stored_column_may_be_decided_as_a_plain_one(decided: str, shown: str, is_fitting: bool) -> None:
    """Its values are in the rows; those of a virtual column are not."""
    one, other = (
        TableSchema((Column("g", "int", "int(11)", True, None, None, None, extra),), (), "")
        for extra in (decided, shown)
    )
    assert (decision_differences(one, other) == "") is is_fitting
