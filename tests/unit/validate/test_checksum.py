"""The SQL that makes rows comparable, and the description of differing rows."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unshard.core.model import Column, Index, TableSchema
from unshard.core.sql.keyrange import KeyRange, condition
from unshard.core.validate.checksum import (
    Comparison,
    LeftOut,
    Reason,
    compare_structures,
    row_digest,
    row_hash,
    row_text,
)
from unshard.core.validate.rowdifferences import DifferenceKind, explain
from unshard.errors.source import UnknownColumnType


def column(name: str, kind: str, nullable: bool = False, charset: str | None = None, extra: str = "") -> Column:
    data_type = kind.split("(", maxsplit=1)[0].split(maxsplit=1)[0]
    collation = f"{charset}_general_ci" if charset else None
    return Column(name, data_type, kind, nullable, charset, collation, None, extra)


def structure(*columns: Column, key: tuple[str, ...] = ("id",)) -> TableSchema:
    return TableSchema(columns, (Index("PRIMARY", key, True),) if key else (), "")


ID = column("id", "bigint(20)")


def compared(target: TableSchema, *shards: TableSchema) -> Comparison:
    return compare_structures({**{f"s{n}": shard for n, shard in enumerate(shards)}, "target": target})


FLOAT = (
    "CONCAT(SIGN(`c` + 0e0), TRIM(BOTH '0' FROM REPLACE(SUBSTRING_INDEX(ABS(`c` + 0e0), 'e', 1), '.', '')), 'e',"
    " IFNULL(ROUND(LOG10(SQRT(ABS(`c` + 0e0))) * 2 + 0.1234567) + 0, 0))"
)
CASES = [
    ("int(5) unsigned zerofill", None, "`c` + 0"),
    ("bit(9)", None, "`c` + 0"),
    ("float", None, FLOAT),
    ("double(10,3)", None, "CAST(`c` AS DECIMAL(65,3))"),
    ("datetime(3)", None, "`c`"),
    ("varchar(20)", "latin1", "CONCAT(LENGTH(CONVERT(`c` USING binary)), ':', CONVERT(`c` USING binary))"),
    ("text", "utf8mb4", "SHA2(CONVERT(`c` USING binary), 256)"),
    ("varbinary(2000)", None, "SHA2(CONVERT(`c` USING binary), 256)"),
]


@pytest.mark.parametrize(("kind", "charset", "want"), CASES, ids=[case[0] for case in CASES])
def test_reads_each_type_so_that_equal_values_print_equally(kind: str, charset: str | None, want: str) -> None:
    shape = structure(ID, column("c", kind, charset=charset))
    assert row_text(compared(shape, shape).forms, shape) == f"CONCAT_WS(',', `id` + 0, {want})"


def test_null_is_no_value() -> None:
    shape = structure(ID, column("c", "date", nullable=True))
    assert row_text(compared(shape, shape).forms, shape).endswith("IFNULL(`c`, 'n'))")


def test_text_of_two_charsets_is_compared_as_utf8mb4() -> None:
    old, new = (structure(ID, column("c", "varchar(9)", charset=charset)) for charset in ("latin1", "utf8mb4"))
    forms = compared(new, old).forms
    assert row_text(forms, old) == row_text(forms, new)
    assert "CONVERT(`c` USING utf8mb4)" in row_text(forms, old)


@pytest.mark.parametrize(
    ("old", "new", "want"),
    [
        ("decimal(10,2)", "decimal(12,4)", "CAST(`c` AS DECIMAL(65,4))"),
        ("int(11)", "decimal(12,4)", "CAST(`c` AS DECIMAL(65,4))"),
        ("datetime", "datetime(6)", "CAST(`c` AS DATETIME(6))"),
        ("time(3)", "time", "CAST(`c` AS TIME(3))"),
        ("tinyint(4)", "bigint(20)", "`c` + 0"),
    ],
)
def test_different_precision_is_compared_with_the_finer_one(old: str, new: str, want: str) -> None:
    before, after = structure(ID, column("c", old)), structure(ID, column("c", new))
    forms = compared(after, before).forms
    assert want in row_text(forms, before)
    assert row_text(forms, before) == row_text(forms, after)


def test_columns_are_matched_by_name_in_any_order_and_case() -> None:
    target = structure(ID, column("a", "int(11)"), column("B", "date"))
    shard = structure(column("b", "date"), ID, column("A", "int(11)"))
    forms = compared(target, shard).forms
    assert [form.column for form in forms] == ["id", "a", "B"]
    assert row_text(forms, shard) == "CONCAT_WS(',', `id` + 0, `A` + 0, `b`)"


def test_says_what_it_leaves_out() -> None:
    generated = column("g", "int(11)", extra="stored generated")
    target = structure(ID, generated, column("new", "int(11)"), column("j", "json"))
    shard = structure(ID, generated, column("old", "int(11)"), column("j", "longtext", charset="utf8mb4"))
    comparison = compared(target, shard)
    assert [form.column for form in comparison.forms] == ["id"]
    assert {each.column: (each.reason, each.places) for each in comparison.left_out} == {
        "g": (Reason.ROW_TIMES, ()),
        "new": (Reason.NOT_IN_SHARDS, ("s0",)),
        "old": (Reason.NOT_IN_TARGET, ("target",)),
        "j": (Reason.JSON, ()),
    }


def made_by(expression: str) -> TableSchema:
    text = (
        "CREATE TABLE `t` (\n  `id` bigint(20) NOT NULL,\n"
        f"  `g` int(11) GENERATED ALWAYS AS ({expression}) STORED COMMENT 'AS (x)'\n)"
    )
    return replace(structure(ID, column("g", "int(11)", extra="stored generated")), create_sql=text)


@pytest.mark.parametrize(
    ("target", "shard", "reason"),
    [
        ("`a` + 1", "`a` + 1", None),
        ("concat(`a`,'x')", "concat(`a`,'X')", None),
        ("`m` + 1", "1 + `m`", Reason.GENERATED_FROM_CHANGED),
        ("`m` + 1", "`m` + 1", Reason.GENERATED_FROM_CHANGED),
    ],
)
def test_a_generated_column_is_left_out_if_its_values_say_nothing(
    target: str, shard: str, reason: Reason | None
) -> None:
    found = compare_structures({"s": made_by(shard), "target": made_by(target)}, {"m"})
    assert [each.reason for each in found.left_out] == ([reason] if reason else [])
    assert [form.column for form in found.forms] == (["id"] if reason else ["id", "g"])


def test_a_row_has_a_second_hash_without_what_the_target_generates() -> None:
    shape = made_by("`a` + 1")
    forms = compared(shape, shape).forms
    written = row_hash(forms[:1], shape)
    assert row_digest(forms, shape) == f"CONCAT({row_hash(forms, shape)}, {written})" and "`g`" not in written
    assert row_digest(forms[:1], shape) == written


def test_a_table_without_a_key_is_compared_without_what_the_target_generates() -> None:
    shape = replace(made_by("`a` + 1"), indexes=())
    found = compared(shape, shape)
    assert [form.column for form in found.forms] == ["id"]
    assert found.left_out == (LeftOut("g", Reason.GENERATED),)


def test_refuses_a_type_that_it_cannot_read() -> None:
    shape = structure(ID, column("c", "hologram"))
    with pytest.raises(UnknownColumnType):
        compared(shape, shape)


KEYS = [
    ("bigint(20)", None, "int(11)", None, True),
    ("varchar(9)", "latin1", "varchar(9)", "latin1", True),
    ("varchar(9)", "latin1", "varchar(9)", "utf8mb4", False),
    ("datetime(3)", None, "datetime(3)", None, True),
    ("enum('a')", "latin1", "enum('a')", "latin1", False),
    ("varbinary(9)", None, "varbinary(9)", None, True),
]


@pytest.mark.parametrize(("target", "charset", "shard", "other", "ranged"), KEYS)
def test_is_divided_by_key_only_if_all_places_sort_it_alike(
    target: str, charset: str | None, shard: str, other: str | None, ranged: bool
) -> None:
    comparison = compared(
        structure(column("id", target, charset=charset)), structure(column("id", shard, charset=other))
    )
    assert (comparison.key, comparison.ranged) == (("id",), ranged)


def test_a_key_that_the_shards_lack_is_not_used() -> None:
    target = structure(ID, column("shard", "int(11)"), key=("shard", "id"))
    assert compared(target, structure(ID)).key == ("id",)
    assert compared(target, structure(ID, key=())).key == ()


def test_range_of_a_composite_key_uses_the_index() -> None:
    columns = [column("a", "int(11)"), column("b", "varchar(9)", charset="utf8mb4")]
    assert condition(columns, KeyRange((b"1", b"x"), (b"2", b"y"))) == (
        "(`a` >= 1 AND (`a` > 1 OR `b` > _utf8mb4 x'78')) AND (`a` <= 2 AND (`a` < 2 OR `b` <= _utf8mb4 x'79'))"
    )
    assert condition(columns, KeyRange()) == "TRUE"


def test_explains_each_kind_of_difference() -> None:
    target = Counter({(("1",), "a"): 1, (("2",), "b"): 1, (("3",), "c"): 1, (("5",), "e"): 1})
    shards = {
        "s1": Counter({(("1",), "a"): 1, (("2",), "B"): 1, (("4",), "d"): 1, (("5",), "e"): 1}),
        "s2": Counter({(("5",), "f"): 1}),
    }
    assert [(d.kind, d.key, d.shards) for d in explain(target, shards, keyed=True)] == [
        (DifferenceKind.DIFFERENT, ("2",), ("s1",)),
        (DifferenceKind.EXTRA, ("3",), ()),
        (DifferenceKind.MISSING, ("4",), ("s1",)),
        (DifferenceKind.COLLISION, ("5",), ("s1", "s2")),
    ]


def test_a_row_whose_written_values_are_equal_differs_only_in_what_is_generated() -> None:
    written, other = "1" * 64, "2" * 64
    target = Counter({(("1",), "a" * 64 + written): 1, (("2",), "b" * 64 + written): 1})
    shard = Counter({(("1",), "A" * 64 + written): 1, (("2",), "B" * 64 + other): 1})
    kinds = [each.kind for each in explain(target, {"s": shard}, keyed=True)]
    assert kinds == [DifferenceKind.GENERATED, DifferenceKind.DIFFERENT]


def test_counts_rows_of_a_table_without_a_key() -> None:
    target, shard = Counter({(("x",), "h"): 1}), Counter({(("x",), "h"): 3})
    (missing,) = explain(target, {"s": shard}, keyed=False)
    assert (missing.kind, missing.count) == (DifferenceKind.MISSING, 2)
    (extra,) = explain(shard, {"s": target}, keyed=False)
    assert (extra.kind, extra.count) == (DifferenceKind.EXTRA, 2)


ROWS = st.lists(st.tuples(st.tuples(st.sampled_from([None, "1", "-2", "10", "--5", "x"])), st.sampled_from("abc")))


@given(ROWS, ROWS, st.booleans())
def test_no_difference_exactly_if_target_is_the_sum_of_the_shards(first, second, keyed) -> None:
    shards = {"s1": Counter(first), "s2": Counter(second)}
    assert not list(explain(Counter(first + second), shards, keyed))
    extra = Counter([*first, *second, (("new",), "z")])
    assert [d.kind for d in explain(extra, shards, keyed)] == [DifferenceKind.EXTRA]


def test_text_that_the_target_keeps_as_utf8_is_compared_as_text_and_not_by_ranges() -> None:
    shard = structure(ID, column("c", "varchar(9)", charset="latin1"), key=("c",))
    there = replace(column("c", "varchar(9)", charset="latin1"), sent_as="utf8mb4")
    found = compared(structure(ID, there, key=("c",)), shard)
    assert found.forms[1].converted and not found.ranged
