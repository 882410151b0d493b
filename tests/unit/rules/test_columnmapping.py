"""Column mapping: DM's known values, the cases that DM does not handle, and rules that are rejected."""

import pyarrow as pa
import pytest

from unshard.core.ddl.queue import ShardState
from unshard.core.model import Column, Index, Shard, TableId, TableSchema
from unshard.core.rules.columnmapping import (
    Affix,
    MappingRule,
    Partition,
    PartitionId,
    mapped_by,
    overlaps,
    touched_mapping,
)
from unshard.core.rules.pattern import compile_pattern
from unshard.core.rules.reshaping import Reshaping, seen
from unshard.core.rules.routing import Routing
from unshard.core.window.rulechanges import revise
from unshard.errors import UnshardError
from unshard.units.rows.conversion import conversion, convert, with_bits

TARGET = TableId("shop", "orders")
FULL = Partition(1, "shop", "orders", "_")
BIG = 1 << 44


def table(name: str) -> TableId:
    return TableId(*name.split("."))


def column(name: str, kind: str, charset: str | None = None, nullable: bool = False, extra: str = "") -> Column:
    collation = f"{charset}_general_ci" if charset else None
    return Column(name, kind.partition("(")[0].partition(" ")[0], kind, nullable, charset, collation, None, extra)


def schema(*columns: Column, key: str = "id") -> TableSchema:
    return TableSchema(columns, (Index("PRIMARY", (key,), True),), "")


def rule(how: Partition | Affix, name: str = "r", patterns: str = "*.*", **others: object) -> MappingRule:
    in_schema, _, in_table = patterns.partition(".")
    compiled = compile_pattern(in_table, False, name) if in_table else None
    given = {"source": "id", "column": "id", "how": how, **others}
    found: MappingRule = MappingRule(name, compile_pattern(in_schema, False, name), compiled, **given)
    return found


def refusal(call: object) -> str:
    with pytest.raises(UnshardError) as caught:
        call()  # type: ignore[operator]
    return f"{caught.value.code} {caught.value}"


@pytest.mark.parametrize(
    ("arguments", "name", "high", "free"),
    [
        ((1, "schema_", "table_", ""), "schema_2.table_3", 1 << 59 | 2 << 52 | 3 << 44, 44),
        ((1, "schema", "table", "_"), "schema_2.table_3", 1 << 59 | 2 << 52 | 3 << 44, 44),
        ((1, None, "table_", ""), "schema_2.table_3", 1 << 59 | 3 << 51, 51),
        ((None, "schema_", "table_", ""), "schema_2.table_3", 2 << 56 | 3 << 48, 48),
        ((None, "schema_", None, ""), "schema_2.table_3", 2 << 56, 56),
        ((None, None, "table_", ""), "schema_2.table_3", 3 << 55, 55),
        ((1, None, None, ""), "schema_2.table_3", 1 << 59, 59),
        ((None, None, None, ""), "schema_2.table_3", 0, 63),
        ((15, "s", "t", "_"), "s_127.t_255", (1 << 63) - BIG, 44),
        ((0, "s", "t", "_"), "s.t", 0, 44),
        ((0, "s", "t", "_"), "s_0.t_000", 0, 44),
        ((2, "s", "t", "_"), "s_007.t_010", 2 << 59 | 7 << 52 | 10 << 44, 44),
    ],
)
def test_the_bits_are_those_of_dm(arguments: tuple[object, ...], name: str, high: int, free: int) -> None:
    found = Partition(*arguments).change("r", "s1", table(name))  # type: ignore[arg-type]
    assert found == PartitionId(high, free)


WRONG = ("s_128.t_1", "s_1.t_256", "s_1.t_x", "s_.t_1", "s_1.tt_1", "s1.t_1", "s_1.t_-1", "s_1.t_\u0661")


@pytest.mark.parametrize("name", WRONG)
def test_a_name_without_a_number_that_fits_is_an_error(name: str) -> None:
    words = refusal(lambda: Partition(1, "s", "t", "_").change("ids", "s1 x", table(name)))
    assert words.startswith("US-1027") and "'ids'" in words


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("tinyint(4)", "127"),
        ("tinyint(3) unsigned", "255"),
        ("smallint(6)", "32767"),
        ("mediumint(8)", "8388607"),
        ("smallint(5) unsigned", "65535"),
        ("int(10) unsigned", "4294967295"),
        ("bigint(20)", "17592186044415"),
        ("bigint(20) unsigned", "0"),
        ("decimal(20,0)", "123"),
    ],
)
def test_every_integer_type_is_mapped(kind: str, value: str) -> None:
    assert mapped_ids(kind, [value]) == [str((1 << 59 | 2 << 52 | 3 << 44) + int(value))]


def mapped_ids(kind: str, values: list[str], wanted: str = "bigint(20)", charset: str | None = None) -> list[str]:
    own, there = column("id", kind, charset), column("id", wanted, "utf8mb4" if "char" in wanted else None)
    shard = Shard("s1", table("shop_2.orders_3"))
    reshaping = Reshaping((), mapped_by([rule(FULL)], "s1", shard.table))
    plan = conversion(shard, schema(own), TARGET, schema(there), (), reshaping)
    array = pa.array([value.encode() for value in values], pa.binary())
    return [value.decode() for value in convert(plan, [array])[0].to_pylist()]


def test_the_value_that_dm_documents() -> None:
    assert mapped_ids("int(11)", ["123"]) == [str(1 << 59 | 2 << 52 | 3 << 44 | 123)]
    assert mapped_ids("int(5) unsigned zerofill", ["00123", "00000"]) == [
        str(1 << 59 | 2 << 52 | 3 << 44 | 123),
        str(1 << 59 | 2 << 52 | 3 << 44),
    ]
    assert mapped_ids("varchar(20)", ["123"], "varchar(20)", "utf8mb4") == [str(1 << 59 | 2 << 52 | 3 << 44 | 123)]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("bigint(20)", "17592186044416"),
        ("bigint(20)", "-1"),
        ("bigint(20) unsigned", "18446744073709551615"),
        ("varchar(20)", "007"),
        ("varchar(20)", "7 "),
        ("varchar(20)", ""),
        ("varchar(20)", "x"),
    ],
)
def test_an_id_that_does_not_fit_is_refused_with_its_key(kind: str, value: str) -> None:
    target = "varchar(20)" if "char" in kind else "bigint(20)"
    words = refusal(lambda: mapped_ids(kind, ["5", value], target, "utf8mb4" if "char" in kind else None))
    assert words.startswith("US-6002") and f"id = {value}" in words and "from 0 to 17592186044415" in words


def test_ids_go_up_to_the_bits_that_are_free() -> None:
    last = str((1 << 55) - 1).encode()
    change = PartitionId(3 << 55, 55)
    changed, bad = with_bits(pa.array([last, None, b"0"], pa.binary()), change)
    assert bad is None and changed.to_pylist() == [str((4 << 55) - 1).encode(), None, str(3 << 55).encode()]
    assert with_bits(pa.array([b"1", str(1 << 55).encode()], pa.binary()), change)[1] == 1
    assert with_bits(pa.array([], pa.binary()), change)[1] is None
    everything = with_bits(pa.array([str((1 << 63) - 1).encode()], pa.binary()), PartitionId(0, 63))
    assert everything[1] is None
    assert with_bits(pa.array([str(1 << 63).encode()], pa.binary()), PartitionId(0, 63))[1] == 0


def test_text_gets_a_prefix_or_a_suffix_in_the_targets_character_set() -> None:
    for how, want in ((Affix(before="ä-"), "ä-ö"), (Affix(after="-ä"), "ö-ä")):
        own, there = column("id", "varchar(9)", "latin1"), column("id", "varchar(19)", "utf8mb4")
        plan = conversion(
            Shard("s1", table("a.b")),
            schema(own),
            TARGET,
            schema(there),
            (),
            Reshaping((), mapped_by([rule(how)], "s1", table("a.b"))),
        )
        assert convert(plan, [pa.array(["ö".encode("latin1")], pa.binary())])[0].to_pylist() == [want.encode()]


OWN = schema(
    column("id", "int(11)"),
    column("ref", "int(11)", nullable=True),
    column("f", "double"),
    column("g", "int(11)", extra="stored generated"),
)


@pytest.mark.parametrize(
    ("change", "wanted", "words"),
    [
        ({"source": "nope"}, "bigint(20)", "US-6018"),
        ({"column": "nope"}, "bigint(20)", "US-6018"),
        ({"source": "ref", "column": "ref"}, "bigint(20)", "US-6020"),
        ({"references": ("f",)}, "bigint(20)", "US-6019"),
        ({"references": ("g",)}, "bigint(20)", "US-6019"),
        ({}, "int(11)", "US-6019"),
        ({}, "double", "US-6019"),
        ({}, "decimal(18,0)", "US-6019"),
        ({}, "decimal(20,2)", "US-6019"),
        ({}, "varchar(18)", "US-6019"),
        ({"how": Affix("x")}, "bigint(20)", "US-6019"),
    ],
)
def test_what_can_be_known_is_refused_before_any_row(change: dict[str, object], wanted: str, words: str) -> None:
    charset = "utf8mb4" if "char" in wanted else None
    there = schema(column("id", wanted, charset), *OWN.columns[1:])
    mapped = mapped_by([rule(change.pop("how", FULL), **change)], "s1", table("shop_1.orders_1"))  # type: ignore[arg-type]
    shard = Shard("s1", table("shop_1.orders_1"))
    assert refusal(lambda: conversion(shard, OWN, TARGET, there, (), Reshaping((), mapped))).startswith(words)


def test_columns_that_refer_to_mapped_ids_are_mapped_alike_and_null_stays() -> None:
    there = schema(column("id", "bigint(20)"), column("ref", "bigint(20)", nullable=True), *OWN.columns[2:])
    mapped = mapped_by([rule(FULL, references=("ref",))], "s1", table("shop.orders_1"))
    plan = conversion(Shard("s1", table("shop.orders_1")), OWN, TARGET, there, (), Reshaping((), mapped))
    arrays = [pa.array(values, pa.binary()) for values in ([b"1", b"2"], [None, b"1"], [b"0", b"0"])]
    high = 1 << 59 | 1 << 44
    assert convert(plan, arrays)[1].to_pylist() == [None, str(high + 1).encode()]


def test_rules_with_a_table_pattern_win_column_by_column_and_two_of_one_level_are_refused() -> None:
    schema_level = rule(Partition(2, None, None), "wide", "shop_*")
    exact = rule(Partition(3, None, None), "exact", "shop_*.orders_*")
    other = rule(Partition(4, None, None), "other", "shop_*", source="ref", column="ref", references=("ref",))
    found = mapped_by([schema_level, exact, other], "s1", table("shop_1.orders_1"))
    assert {each.column: each.rule for each in found} == {"id": "exact", "ref": "other"}
    twin = rule(Partition(4, None, None), "twin", "*.*_1")
    words = refusal(lambda: mapped_by([exact, twin], "s1", table("shop_1.orders_1")))
    assert words.startswith("US-1028") and "'exact'" in words and "'twin'" in words


def of(how: Partition, name: str, **others: object) -> tuple[TableSchema, tuple[object, ...]]:
    return OWN, mapped_by([rule(how, **others)], "s1", table(name))


@pytest.mark.parametrize(
    ("shards", "pair"),
    [
        ({"a": of(FULL, "shop_1.orders_1"), "b": of(FULL, "shop_1.orders_2")}, None),
        ({"a": of(FULL, "shop_1.orders_1"), "b": of(FULL, "shop_1.orders_01")}, ("a", "b")),
        ({"a": of(FULL, "shop.orders_1"), "b": of(FULL, "shop_0.orders_1")}, ("a", "b")),
        (
            {"a": of(Partition(None, "shop", None, "_"), "shop_8.t"), "b": of(Partition(1, None, None), "x.t")},
            ("b", "a"),
        ),
        ({"a": of(FULL, "shop_1.orders_1"), "b": (OWN, ())}, None),
        ({"a": of(Partition(0, "shop", "orders", "_"), "shop.orders"), "b": (OWN, ())}, ("a", "b")),
        ({"a": of(FULL, "shop_1.orders_1"), "b": (schema(column("id", "bigint(20)")), ())}, ("b", "a")),
        (
            {
                "a": of(Partition(1, None, None), "s.t_1", is_shared=True),
                "b": of(Partition(1, None, None), "s.t_2", is_shared=True),
            },
            None,
        ),
    ],
)
def test_shards_with_equal_bits_are_found(shards: dict[str, object], pair: tuple[str, str] | None) -> None:
    found = overlaps(shards)  # type: ignore[arg-type]
    assert [{each.first, each.second} for each in found.values()] == ([set(pair)] if pair else [])


def test_a_ddl_that_touches_a_mapped_column_is_seen() -> None:
    mapped = mapped_by([rule(FULL)], "s1", table("shop_1.orders_1"))
    first, *rest = OWN.columns
    assert touched_mapping(mapped, OWN, schema(first, column("new", "int(11)"), *rest)) == ""
    assert "which it removes" in touched_mapping(mapped, OWN, schema(column("nr", "int(11)"), *rest, key="nr"))
    assert "whose type" in touched_mapping(mapped, OWN, schema(column("id", "bigint(20)"), *rest))
    assert "from the key" in touched_mapping(mapped, OWN, schema(first, *rest, key="f"))
    assert touched_mapping((), OWN, schema(*rest, key="f")) == ""


def test_the_rows_that_are_compared_are_mapped_too() -> None:
    mapped = mapped_by([rule(FULL, references=("ref",))], "s1", table("shop_1.orders_1"))
    there = schema(column("id", "bigint(20)"), column("ref", "varchar(20)", "utf8mb4"), *OWN.columns[2:])
    found = seen("s1", table("shop_1.orders_1"), OWN, TARGET, there, Reshaping((), mapped))
    high = 1 << 59 | 1 << 52 | 1 << 44
    assert found.rows.startswith(f"(SELECT (CAST(`id` AS DECIMAL(65,0)) + {high}) AS `id`, CONVERT(CAST(")
    assert [c.column_type for c in found.structure.columns[:2]] == ["bigint(20)", "varchar(20)"]
    assert found.structure.column("ref").nullable


@pytest.mark.parametrize(
    ("other", "columns", "spoils"),
    [
        (rule(FULL, source="nr", column="nr"), ("id", "v"), False),
        (rule(FULL, source="nr", column="nr"), ("nr", "v"), False),
        (rule(FULL, source="nr", column="nr"), ("id", "nr"), True),
        (rule(FULL, source="id", column="v"), ("id", "v"), True),
        (rule(Partition(2, "shop", "orders", "_"), source="nr", column="nr"), ("nr", "v"), True),
        (rule(FULL, name="called_otherwise"), ("id", "v"), False),
    ],
)
def test_rows_stay_what_they_are_only_if_a_rule_follows_a_rename(
    other: MappingRule, columns: tuple[str, ...], spoils: bool
) -> None:
    shard = Shard("s1", table("shop_1.orders_1"))
    structure = schema(*(column(name, "int(11)") for name in columns), key=columns[0])
    state = ShardState(shard, shard.table, structure.digest, None, (), 0, ())
    old, new = (Routing(source="s1", mappings=(mapping,)) for mapping in (rule(FULL), other))
    assert bool(revise(old, new, [state], {structure.digest: structure}).spoiled) is spoils
