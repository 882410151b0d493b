"""Which columns of a target can hold every value of the shard's column."""

import pytest

from unshard.core.model import Column, TableSchema
from unshard.core.structures.comparison import narrower


def table(column_type: str, *, nullable: bool = True) -> TableSchema:
    kind = column_type.partition("(")[0].partition(" ")[0]
    return TableSchema((Column("v", kind, column_type, nullable, None, None, None, ""),), (), "")


@pytest.mark.parametrize(
    ("there", "given"),
    [
        ("varchar(9)", "varchar(10)"),
        ("char(9)", "varchar(10)"),
        ("binary(3)", "varbinary(4)"),
        ("bit(7)", "bit(8)"),
        ("int(11)", "bigint(20)"),
        ("int(10) unsigned", "int(11)"),
        ("int(11)", "int(10) unsigned"),
        ("text", "mediumtext"),
        ("tinyblob", "blob"),
        ("text", "longblob"),
        ("decimal(9,2)", "decimal(10,2)"),
        ("decimal(10,3)", "decimal(10,2)"),
    ],
)
def test_narrower_ones_are_named_with_both_types(there: str, given: str) -> None:
    assert narrower(table(there), table(given)) == (f"column v is {there} there and {given} in a shard",)
    assert narrower(table(there), table(given), {"v"}) == ()


@pytest.mark.parametrize(
    ("there", "given"),
    [
        ("varchar(10)", "varchar(10)"),
        ("varchar(10)", "char(9)"),
        ("bigint(20)", "int(10) unsigned"),
        ("int(3)", "int(11)"),
        ("mediumtext", "text"),
        ("decimal(10,2)", "decimal(9,2)"),
        ("double", "float"),
        ("text", "varchar(300)"),
        ("datetime(6)", "datetime"),
        ("enum('a')", "enum('a','b')"),
    ],
)
def test_others_are_not(there: str, given: str) -> None:
    assert narrower(table(there), table(given)) == ()


def test_null_has_no_place_in_not_null() -> None:
    assert narrower(table("int", nullable=False), table("int")) == (
        "column v is int NOT NULL there and int in a shard",
    )
    assert narrower(table("int"), table("int", nullable=False)) == ()
