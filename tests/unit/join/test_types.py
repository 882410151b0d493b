"""The join of two types: its laws, and that it holds every value of both sides."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unshard.core.model import Column, TableSchema
from unshard.core.sql.charsets import MOST_BYTES
from unshard.core.structures.columntypes import (
    ColumnType,
    collation_of,
    has_incompatible_labels,
    join_types,
    meets,
    type_of,
    type_with_choices,
)
from unshard.core.structures.comparison import narrower

INTEGERS = ("tinyint", "smallint", "mediumint", "int", "bigint")
CHARSETS = {
    "utf8mb4": ("utf8mb4_general_ci", "utf8mb4_bin"),
    "utf8mb3": ("utf8mb3_general_ci", "utf8mb3_bin"),
    "ascii": ("ascii_bin",),
    "latin1": ("latin1_swedish_ci",),
    "ucs2": ("ucs2_bin",),
    "hp8": ("hp8_bin",),
}
LARGE = ("tiny", "", "medium", "long")


def column(text: str, charset: str | None = None, collation: str | None = None) -> Column:
    return Column("c", text.partition("(")[0].split()[0], text, True, charset, collation, None, "")


def is_too_long(each: Column) -> bool:
    """Whether no server has the type, because a row is shorter."""
    return each.column_type == "varchar(20000)" and MOST_BYTES.get(str(each.charset), 1) > 3


plain = st.sampled_from(
    [
        *(f"{name}(9){sign}" for name in INTEGERS for sign in ("", " unsigned", " unsigned zerofill")),
        *(f"decimal({p},{s}){sign}" for p, s in ((5, 2), (10, 0), (65, 30), (40, 1)) for sign in ("", " unsigned")),
        *(f"{name}{fraction}" for name in ("datetime", "timestamp", "time") for fraction in ("", "(3)", "(6)")),
        *(f"{name}({length})" for name in ("binary", "varbinary") for length in (1, 8, 255)),
        *(f"{size}blob" for size in LARGE),
        *("float", "double", "float(7,3)", "json", "bit(8)", "bit(1)", "year(4)", "date", "geometry", "uuid"),
    ]
).map(column)
words = st.sampled_from(
    [
        *(f"{name}({length})" for name in ("char", "varchar") for length in (1, 64, 255)),
        *("varchar(16000)", "varchar(20000)"),
        *(f"{size}text" for size in LARGE),
        *("enum('a','b')", "enum('b','a')", "enum('a','b','c')", "enum('a','d')", "set('a','b')", "set('a','''')"),
    ]
)
texts = st.sampled_from([(charset, name) for charset, names in CHARSETS.items() for name in names]).flatmap(
    lambda pair: words.map(lambda word: column(word, *pair))
)
columns = st.one_of(plain, texts).filter(lambda each: not is_too_long(each))
types = columns.map(type_of)


def joined(one: ColumnType | None, other: ColumnType | None) -> ColumnType | None:
    return None if one is None or other is None else join_types(one, other)


@given(types, types, types)
def test_the_laws(one: ColumnType, two: ColumnType, three: ColumnType) -> None:
    assert joined(one, one) == one
    assert joined(one, two) == joined(two, one)
    assert joined(joined(one, two), three) == joined(one, joined(two, three))
    both = joined(one, two)
    assert joined(both, one) == both


@given(columns, columns)
def test_it_holds_every_value_of_both(one: Column, two: Column) -> None:
    kind = joined(type_of(one), type_of(two))
    if kind is None or has_incompatible_labels(kind):
        return
    found = type_with_choices(kind, type_of(one))
    text = str(found)
    wanted = column(text, getattr(found, "charset", None), collation_of(found) or None)
    for each in (one, two):
        table = TableSchema((each,), (), "")
        assert not narrower(TableSchema((wanted,), (), ""), table)
        assert samples(each) <= samples(wanted) or each.data_type != wanted.data_type


def samples(each: Column) -> set[object]:
    """Return values at the limits of a type that `narrower` does not compare."""
    kind = type_of(each)
    labels = getattr(kind, "labels", ())
    scale = {Decimal(1).scaleb(-n) for n in range(getattr(kind, "scale", 0) + 1)}
    fraction = {f"{n} digits" for n in range(getattr(kind, "fraction", 0) + 1)}
    return {*labels} | scale | fraction


@given(types, st.one_of(st.none(), types))
def test_a_column_that_is_made_from_it_meets_it(kind: ColumnType, present: ColumnType | None) -> None:
    assert meets(type_with_choices(kind, present), kind)
    assert meets(kind, kind)


@given(columns)
def test_the_text_of_a_type_is_that_of_the_server(each: Column) -> None:
    kind = type_of(each)
    again = type_of(Column("c", each.data_type, str(kind), True, each.charset, each.collation, None, ""))
    assert again == kind


@pytest.mark.parametrize(
    "one, other, both",
    [
        ("int(11)", "bigint(20)", "bigint"),
        ("int(10) unsigned", "int(11)", "bigint"),
        ("tinyint(3) unsigned", "smallint(6)", "smallint"),
        ("bigint(20) unsigned", "tinyint(4)", None),
        ("decimal(5,2)", "decimal(7,4)", "decimal(7,4)"),
        ("decimal(7,0)", "decimal(5,4)", "decimal(11,4)"),
        ("decimal(65,0)", "decimal(5,4)", None),
        ("binary(4)", "binary(8)", "varbinary(8)"),
        ("varbinary(300)", "tinyblob", "blob"),
        ("datetime", "datetime(6)", "datetime(6)"),
        ("datetime", "timestamp", None),
        ("float", "double", None),
        ("int(11)", "varchar(5)", None),
    ],
)
def test_the_table(one: str, other: str, both: str | None) -> None:
    found = joined(type_of(column(one)), type_of(column(other)))
    assert (str(found) if found else None) == both


@pytest.mark.parametrize(
    "one, other, both",
    [
        (("char(5)", "utf8mb4"), ("varchar(3)", "utf8mb4"), "varchar(5) utf8mb4"),
        (("varchar(5)", "utf8mb3"), ("varchar(9)", "utf8mb4"), "varchar(9) utf8mb4"),
        (("varchar(5)", "ascii"), ("varchar(9)", "latin1"), "varchar(9) latin1"),
        (("varchar(5)", "latin1"), ("varchar(9)", "gbk"), "varchar(9) utf8mb4"),
        (("varchar(20000)", "utf8mb3"), ("varchar(9)", "utf8mb4"), "text utf8mb4"),
        (("varchar(100)", "utf8mb4"), ("tinytext", "utf8mb4"), "text utf8mb4"),
        (("text", "latin1"), ("text", "utf8mb4"), "mediumtext utf8mb4"),
        (("text", "ascii"), ("text", "utf8mb4"), "text utf8mb4"),
        (("text", "hp8"), ("text", "utf8mb4"), None),
        (("enum('a','b')", "utf8mb4"), ("enum('a','c')", "utf8mb4"), "enum('a','b','c') utf8mb4"),
        (("enum('a')", "utf8mb4"), ("enum('a','c','b')", "utf8mb4"), "enum('a','c','b') utf8mb4"),
        (("enum('a')", "utf8mb4"), ("set('a')", "utf8mb4"), None),
    ],
)
def test_the_table_of_texts(one: tuple[str, str], other: tuple[str, str], both: str | None) -> None:
    found = joined(*(type_of(column(text, charset, f"{charset}_bin")) for text, charset in (one, other)))
    assert (f"{found} {found.charset}" if found else None) == both


def test_the_order_of_labels_is_that_of_the_target_while_shards_differ() -> None:
    one, other, target = (
        type_of(column(text, "utf8mb4", "utf8mb4_bin"))
        for text in ("enum('a','x','y')", "enum('a','y','x')", "enum('a','y')")
    )
    both = joined(one, other)
    assert both is not None and str(type_with_choices(both, target)) == "enum('a','y','x')"


def test_labels_that_differ_in_case_only_have_no_join() -> None:
    one, other = (type_of(column(text, "utf8mb4", "utf8mb4_general_ci")) for text in ("enum('a')", "enum('A')"))
    both = joined(one, other)
    assert both is not None and has_incompatible_labels(both)
