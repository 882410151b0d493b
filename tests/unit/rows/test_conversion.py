"""Conversion from a shard's structure to the target's: by name, by charset, or an error with column and key."""

import contextlib
from dataclasses import replace

import pyarrow as pa
import pytest

from unshard.core.ddl.lineage import ExecutedDdl
from unshard.core.model import Column, Index, Shard, TableId, TableSchema
from unshard.core.rules.reshaping import Extracted, Reshaping
from unshard.errors.rows import (
    ColumnNotInTarget,
    ColumnTypesDiffer,
    ExtractedColumnMissing,
    ExtractedColumnTaken,
    ExtractedValueUnfit,
    KeyColumnMissing,
    RowRefused,
)
from unshard.units.rows.conversion import conversion, convert, transcode

SHARD = Shard("s1", TableId("db", "t_1"))
TARGET = TableId("db", "t")


def column(name: str, kind: str, charset: str | None = None, nullable: bool = True, extra: str = "") -> Column:
    return Column(name, kind.partition("(")[0].partition(" ")[0], kind, nullable, charset, None, None, extra)


def schema(*columns: Column, key: tuple[str, ...] = ("id",)) -> TableSchema:
    first = column("id", "int(11)", nullable=False)
    return TableSchema((first, *columns), (Index("PRIMARY", key, True),), "")


def converted(given: TableSchema, wanted: TableSchema, *rows: tuple[bytes | None, ...]) -> list[list[bytes | None]]:
    columns = [pa.array(list(values), pa.binary()) for values in zip(*rows, strict=True)]
    plan = conversion(SHARD, given, TARGET, wanted)
    return [array.to_pylist() for array in convert(plan, columns)]


def test_columns_are_matched_by_name_in_any_order_and_case():
    given = schema(column("A", "int(11)"), column("b", "int(11)"))
    wanted = schema(column("B", "int(11)"), column("extra", "int(11)"), column("a", "int(11)"))
    plan = conversion(SHARD, given, TARGET, wanted)
    assert [c.name for c in plan.destination.columns] == ["id", "B", "a"]
    assert converted(given, wanted, (b"1", b"2", b"3")) == [[b"1"], [b"3"], [b"2"]]


@pytest.mark.parametrize(
    ("given", "wanted", "value", "want"),
    [
        ("latin1", "utf8mb4", b"\xe4\x80\x81", "ä€\x81".encode()),
        ("utf8mb4", "latin1", "ä€\x81".encode(), b"\xe4\x80\x81"),
        ("utf8mb4", "ucs2", "ä".encode(), b"\0\xe4"),
        ("utf8mb3", "utf8mb4", "ä".encode(), "ä".encode()),
        ("ascii", "utf32", b"a", b"\0\0\0a"),
        ("cp932", "utf8mb4", "表".encode("cp932"), "表".encode()),
        ("latin1", "latin1", b"\x81\xff", b"\x81\xff"),
    ],
)
def test_text_is_transcoded_where_charsets_differ(given, wanted, value, want):
    rows = (b"1", value), (b"2", None), (b"3", value)
    result = converted(schema(column("v", "text", given)), schema(column("v", "text", wanted)), *rows)
    assert result[1] == [want, None, want]


@pytest.mark.parametrize(
    ("given", "wanted", "value"),
    [
        ("utf8mb4", "latin1", "ж".encode()),
        ("utf8mb4", "ucs2", "🐬".encode()),
        ("latin1", "ascii", b"\xe4"),
        ("utf8mb4", "latin1", b"\xff"),
        ("dec8", "utf8mb4", b"\xe4"),
    ],
)
def test_what_cannot_be_said_in_the_other_charset_is_refused_with_column_and_key(given, wanted, value):
    with pytest.raises(RowRefused) as raised:
        converted(schema(column("v", "text", given)), schema(column("v", "text", wanted)), (b"1", b"a"), (b"7", value))
    assert (raised.value.column, raised.value.key) == ("v", "id = 7")


def test_two_forms_of_one_character_become_one():
    assert transcode(b"\x87\x90", "cp932", "utf8mb4") == transcode(b"\x81\xe0", "cp932", "utf8mb4")


def test_fractions_of_a_second_may_go_only_if_they_are_zero():
    given, wanted = schema(column("v", "datetime(6)")), schema(column("v", "datetime(3)"))
    fits = (b"1", b"2020-01-01 00:00:00.123000")
    assert converted(given, wanted, fits, (b"2", None))[1] == [fits[1], None]
    with pytest.raises(RowRefused) as raised:
        converted(given, wanted, fits, (b"2", b"2020-01-01 00:00:00.000001"))
    assert (raised.value.column, raised.value.key) == ("v", "id = 2")


@pytest.mark.parametrize(
    ("given", "wanted", "fits", "bent"),
    [
        ("varchar(9)", "char(9)", "a b", "a "),
        ("text", "char(9) ucs2", "a", " "),
        ("varbinary(3)", "binary(3)", "abc", "ab"),
        ("binary(3)", "binary(4)", "abcd", "abc"),
        ("int(11)", "year(4)", "1999", "99"),
        ("smallint(6)", "year(4)", "0000", "0"),
        ("int(11)", "enum('5','6')", "5", "1"),
        ("enum('a','b')", "enum('A','b')", "b", "a"),
        ("varchar(9)", "set('a','b')", "b,a", "3"),
        ("enum('a','b')", "set('b')", "", "a"),
    ],
)
def test_values_that_a_server_bends_in_silence_are_refused(given, wanted, fits, bent):
    kind, _, charset = wanted.partition(" ")
    there = charset or (None if "b" in kind[:1] else "utf8mb4")
    columns = schema(column("v", given, "utf8mb4")), schema(column("v", kind, there))
    good = [(b"1", fits.encode()), (b"2", None)]
    assert len(converted(*columns, *good)[1]) == 2
    with pytest.raises(RowRefused) as raised:
        converted(*columns, *good, (b"3", bent.encode()))
    assert (raised.value.column, raised.value.key) == ("v", "id = 3")
    behind = conversion(
        SHARD, columns[0], TARGET, columns[1], behind=(ExecutedDdl(f"ALTER TABLE t MODIFY v {kind}", 0),)
    )
    assert convert(behind, [pa.array([b"3"], pa.binary()), pa.array([bent.encode()], pa.binary())])


def test_values_of_the_same_type_are_as_the_server_keeps_them():
    kinds = column("c", "char(9)", "utf8mb4"), column("b", "binary(3)"), column("y", "year(4)")
    assert converted(schema(*kinds), schema(*kinds), (b"1", b"a ", b"a", b"0"))[1:] == [[b"a "], [b"a"], [b"0"]]


@pytest.mark.parametrize(
    ("given", "wanted", "loses"),
    [
        ("float", "float(7,2)", True),
        ("double", "double(9,3)", True),
        ("float(7,3)", "float(9,2)", True),
        ("float(7,2)", "double(9,2)", True),
        ("float(7,2)", "float(9,3)", False),
        ("double(9,2)", "double", False),
        ("int(11)", "double(9,2)", False),
    ],
)
def test_digits_that_a_column_does_not_keep(given, wanted, loses):
    with pytest.raises(ColumnTypesDiffer) if loses else contextlib.nullcontext():
        conversion(SHARD, schema(column("v", given)), TARGET, schema(column("v", wanted)))


def test_null_in_a_column_that_allows_none():
    with pytest.raises(RowRefused) as raised:
        converted(schema(column("v", "int(11)")), schema(column("v", "int(11)", nullable=False)), (b"4", None))
    assert (raised.value.column, raised.value.key) == ("v", "id = 4")


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("bit(8)", "int(11)"),
        ("datetime", "timestamp"),
        ("double", "float"),
        ("bigint(20)", "double"),
        ("time", "datetime"),
        ("point", "longblob"),
    ],
)
def test_types_whose_values_would_change_in_silence_are_refused(given, wanted):
    with pytest.raises(ColumnTypesDiffer):
        conversion(SHARD, schema(column("v", given)), TARGET, schema(column("v", wanted)))


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("int(11)", "bigint(20)"),
        ("float", "double"),
        ("char(3)", "text"),
        ("date", "datetime"),
        ("enum('a')", "varchar(9)"),
    ],
)
def test_types_that_the_server_checks_are_left_to_it(given, wanted):
    conversion(SHARD, schema(column("v", given)), TARGET, schema(column("v", wanted)))


def test_a_generated_column_is_never_written_and_never_a_source():
    computed = column("v", "int(11)", extra="stored generated")
    plan = conversion(SHARD, schema(computed), TARGET, schema(computed))
    assert [c.name for c in plan.destination.columns] == ["id"]
    with pytest.raises(ColumnTypesDiffer, match="generated"):
        conversion(SHARD, schema(computed), TARGET, schema(column("v", "int(11)")))


def test_a_column_that_the_target_lacks_is_an_error_unless_the_shard_misses_ddl():
    given, wanted = schema(column("old", "int(11)"), column("v", "int(11)")), schema(column("v", "int(11)"))
    with pytest.raises(ColumnNotInTarget, match="'old'"):
        conversion(SHARD, given, TARGET, wanted)
    plan = conversion(SHARD, given, TARGET, wanted, behind=(ExecutedDdl("ALTER TABLE t DROP old", 0),))
    assert [field.place for field in plan.fields] == [0, 2]


def test_the_targets_key_must_come_with_the_rows():
    with pytest.raises(KeyColumnMissing, match="'region'"):
        wanted = schema(column("region", "int(11)", nullable=False), key=("id", "region"))
        conversion(SHARD, schema(), TARGET, wanted)


EXTRACTED = (Extracted("C_TABLE", "1"), Extracted("number", "7"))
WIDER = schema(
    column("v", "int(11)"),
    column("number", "int(11)", nullable=False),
    column("c_table", "varchar(9)", "ucs2", nullable=False),
    key=("id", "c_table"),
)


def test_extracted_columns_have_one_value_in_all_rows_in_the_key_too():
    plan = conversion(SHARD, schema(column("v", "int(11)")), TARGET, WIDER, reshaping=Reshaping(EXTRACTED))
    columns = [pa.array(values, pa.binary()) for values in ([b"4", b"5"], [None, b"6"])]
    assert [c.name for c in plan.destination.columns] == ["id", "v", "number", "c_table"]
    assert [array.to_pylist() for array in convert(plan, columns)] == [
        [b"4", b"5"],
        [None, b"6"],
        [b"7", b"7"],
        [b"\x001", b"\x001"],
    ]
    assert plan.key == (0, 3)
    assert [array.to_pylist() for array in convert(plan, [column.slice(0, 0) for column in columns])] == [[]] * 4


def test_a_refused_row_is_named_by_its_extracted_key_too():
    given = schema(column("v", "int(11)"))
    wanted = replace(WIDER, columns=(*WIDER.columns[:1], column("v", "int(11)", nullable=False), *WIDER.columns[2:]))
    plan = conversion(SHARD, given, TARGET, wanted, reshaping=Reshaping(EXTRACTED))
    with pytest.raises(RowRefused) as raised:
        convert(plan, [pa.array(values, pa.binary()) for values in ([b"4", b"5"], [b"1", None])])
    assert (raised.value.column, raised.value.key.split(",")[0]) == ("v", "id = 5")


def test_a_shard_that_misses_ddl_keeps_its_extracted_columns():
    given = schema(column("old", "int(11)"), column("v", "int(11)"))
    plan = conversion(
        SHARD, given, TARGET, WIDER, behind=(ExecutedDdl("ALTER TABLE t DROP old", 0),), reshaping=Reshaping(EXTRACTED)
    )
    assert [(field.column.name, field.place, field.constant) for field in plan.fields] == [
        ("id", 0, None),
        ("v", 2, None),
        ("number", -1, b"7"),
        ("c_table", -1, b"\x001"),
    ]


@pytest.mark.parametrize(
    ("kind", "charset", "value"),
    [
        ("varchar(3)", "utf8mb4", "abcd"),
        ("varchar(9)", "latin1", "ж"),
        ("char(9)", "utf8mb4", "a "),
        ("int(11)", None, "07"),
        ("int(11)", None, "a"),
        ("tinyint(4)", None, "128"),
        ("int(10) unsigned", None, "-1"),
        ("enum('a')", "utf8mb4", "a"),
        ("datetime", None, "2020"),
        ("varbinary(9)", None, "a"),
    ],
)
def test_a_value_that_its_column_cannot_hold_is_refused_before_any_row(kind, charset, value):
    wanted, reshaping = schema(column("c", kind, charset)), Reshaping((Extracted("c", value),))
    with pytest.raises(ExtractedValueUnfit, match="column 'c'"):
        conversion(SHARD, schema(), TARGET, wanted, reshaping=reshaping)


@pytest.mark.parametrize(
    ("kind", "charset", "value", "want"),
    [
        ("varchar(4)", "utf8mb4", "äbcd", "äbcd".encode()),
        ("text", "utf16", "a", b"\0a"),
        ("int(11)", None, "-7", b"-7"),
        ("tinyint(3) unsigned", None, "255", b"255"),
        ("bigint(20)", None, "0", b"0"),
        ("char(2)", "ascii", "", b""),
    ],
)
def test_a_value_that_its_column_holds(kind, charset, value, want):
    wanted = schema(column("c", kind, charset))
    plan = conversion(SHARD, schema(), TARGET, wanted, reshaping=Reshaping((Extracted("c", value),)))
    assert plan.fields[1].constant == want


def test_an_extracted_column_must_be_the_targets_and_no_shards():
    with pytest.raises(ExtractedColumnMissing, match="'number'"):
        conversion(SHARD, schema(), TARGET, schema(), reshaping=Reshaping(EXTRACTED[1:]))
    with pytest.raises(ExtractedColumnTaken, match="'number'"):
        conversion(SHARD, WIDER, TARGET, WIDER, reshaping=Reshaping(EXTRACTED[1:]))
    computed = schema(column("number", "int(11)", extra="stored generated"))
    with pytest.raises(ExtractedValueUnfit):
        conversion(SHARD, schema(), TARGET, computed, reshaping=Reshaping(EXTRACTED[1:]))


def test_two_columns_of_a_shard_never_share_one_of_the_target() -> None:
    given, wanted = schema(column("a", "int(11)"), column("r", "int(11)")), schema(column("r", "int(11)"))
    with pytest.raises(ColumnNotInTarget, match="'a'"):
        conversion(SHARD, given, TARGET, wanted, behind=(ExecutedDdl("ALTER TABLE t CHANGE a r INT", 0),))
    both = schema(column("q", "int(11)"), column("r", "int(11)"))
    moved = (ExecutedDdl("ALTER TABLE t CHANGE r q INT, CHANGE a r INT", 0),)
    assert [field.place for field in conversion(SHARD, given, TARGET, both, behind=moved).fields] == [0, 2, 1]
