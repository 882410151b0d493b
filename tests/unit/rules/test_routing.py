"""Patterns, routes and their conflicts."""

import pickle
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unshard.core.model import TableId
from unshard.core.rules.pattern import Pattern, compile_pattern
from unshard.core.rules.reshaping import Extractor, Origin, compile_extractor
from unshard.core.rules.routing import BlockAllowList, RouteRule, Routing, compile_rule, compile_tables, idle_rules
from unshard.errors.config import ExtractionNotFound, PatternInvalid, RouteAmbiguous


def rule(name: str, patterns: str, target: str, case_sensitive: bool = False):
    schema, _, table = patterns.partition(".")
    target_schema, _, target_table = target.partition(".")
    return compile_rule(name, (schema, table), (target_schema, target_table), case_sensitive)


def target(routing: Routing, schema: str, name: str) -> str | None:
    found = routing.target_of(TableId(schema, name))
    return None if found is None else str(found)


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("orders", "orders", True),
        ("orders", "orders_1", False),
        ("orders", "my_orders", False),
        ("orders", "ORDERS", True),
        ("orders_*", "orders_", True),
        ("orders_*", "orders_12", True),
        ("*_old", "orders_old", True),
        ("o*s_*", "orders_1", True),
        ("order?", "orders", True),
        ("order?", "order", False),
        ("t_[a-c]", "t_b", True),
        ("t_[a-c]", "t_d", False),
        ("t_[!a-c]", "t_d", True),
        ("t_[!a-c]", "t_b", False),
        ("t_[0-9a-f]", "t_e", True),
        ("t_[^x]", "t_^", True),
        ("t_[^x]", "t_y", False),
        ("t.1+", "t.1+", True),
        ("t.1+", "tx11", False),
        ("~^t_\\d+$", "t_63", True),
        ("~^t_\\d+$", "t_x", False),
        ("~_\\d", "a_1_b", True),
        ("~^T_", "t_1", True),
        ("~^\\w+$", "订单", False),
        ("订单_*", "订单_1", True),
        ("*", "any\nthing", True),
    ],
)
def test_pattern(pattern: str, name: str, matches: bool) -> None:
    assert compile_pattern(pattern, False, "r").matches(name) is matches


@pytest.mark.parametrize("pattern", ["Orders", "~^Orders$", "[A-O]rders"])
def test_case_matters_only_when_asked_for(pattern: str) -> None:
    assert compile_pattern(pattern, False, "r").matches("orders")
    assert not compile_pattern(pattern, True, "r").matches("orders")


@pytest.mark.parametrize(
    "pattern", ["", "~", "~(", "t_[a", "t_[]", "t_[!]", "t_[z-a]", "t_[0-63]", "t_[0-12]", "~[[:alpha:]]", "~\\pL"]
)
def test_pattern_that_cannot_be_meant_is_refused(pattern: str) -> None:
    with pytest.raises(PatternInvalid) as caught:
        compile_pattern(pattern, False, "route 'r'")
    assert "route 'r'" in str(caught.value) and f"'{pattern}'" in str(caught.value)


def test_two_ranges_of_digits_in_one_class_are_no_range_of_numbers() -> None:
    pattern = compile_pattern("t_[0-24-6]", False, "r")
    assert [pattern.matches(f"t_{digit}") for digit in range(8)] == [True] * 3 + [False] + [True] * 3 + [False]


@given(st.text(st.characters(exclude_characters="*?[~"), min_size=1))
def test_a_text_without_wildcards_matches_itself_and_nothing_longer(text: str) -> None:
    pattern = compile_pattern(text, True, "r")
    assert pattern.matches(text)
    assert not pattern.matches(text + "x") and not pattern.matches("x" + text)


@given(st.text(st.characters(exclude_characters="*?[~")), st.text(), st.text(st.characters(exclude_characters="*?[~")))
def test_star_matches_anything(before: str, middle: str, after: str) -> None:
    assert compile_pattern(f"{before}*{after}", True, "r").matches(before + middle + after)


def test_table_rules_beat_schema_rules() -> None:
    routing = Routing((rule("schema", "shop_*", "shop"), rule("table", "shop_*.orders_*", "shop.orders")))
    assert target(routing, "shop_1", "orders_7") == "shop.orders"
    assert target(routing, "shop_1", "customers") == "shop.customers"
    assert target(routing, "other", "orders_7") == "other.orders_7"


def test_table_rule_without_target_table_keeps_the_name() -> None:
    assert target(Routing((rule("r", "shop_*.orders_*", "shop"),)), "shop_1", "orders_7") == "shop.orders_7"


@pytest.mark.parametrize("patterns", [("shop_*.orders_*", "*.orders_?"), ("shop_*", "*_1")])
def test_two_rules_of_one_level_with_different_targets_are_named(patterns: tuple[str, str]) -> None:
    routing = Routing((rule("one", patterns[0], "a"), rule("two", patterns[1], "b")))
    with pytest.raises(RouteAmbiguous) as caught:
        routing.target_of(TableId("shop_1", "orders_7"))
    assert "shop_1.orders_7" in str(caught.value)
    assert "'one' to a.orders_7" in str(caught.value) and "'two' to b.orders_7" in str(caught.value)


def test_two_rules_with_the_same_target_agree() -> None:
    routing = Routing((rule("one", "shop_*.orders_*", "shop.orders"), rule("two", "*.orders_1", "shop.orders")))
    assert target(routing, "shop_1", "orders_1") == "shop.orders"


def test_ambiguous_schema_rules_do_not_matter_where_a_table_rule_decides() -> None:
    routing = Routing((rule("one", "shop_*", "a"), rule("two", "*_1", "b"), rule("three", "shop_1.t", "c.t")))
    assert target(routing, "shop_1", "t") == "c.t"


def test_system_schemas_and_the_meta_schema_never_migrate() -> None:
    routing = Routing((rule("all", "*.*", "shop.all"),), BlockAllowList(), "unshard_meta")
    for schema in ("mysql", "SYS", "information_schema", "performance_schema", "Unshard_Meta"):
        assert target(routing, schema, "t") is None
        assert routing.target_schema_of(schema) is None
    assert target(routing, "mine", "t") == "shop.all"
    assert target(routing, "shop", "unshard_last_write") is None, "a source may be the target of another task"


def test_schema_of_a_database_ddl() -> None:
    routing = Routing((rule("schema", "shop_*", "shop"), rule("table", "*.orders", "x.orders")))
    assert routing.target_schema_of("shop_1") == "shop"
    assert routing.target_schema_of("other") == "other"
    both = Routing((rule("one", "shop_*", "a"), rule("two", "*_1", "b")))
    with pytest.raises(RouteAmbiguous, match="shop_1 matches route 'one' to a and route 'two' to b"):
        both.target_schema_of("shop_1")


def test_routing_is_a_value_that_travels() -> None:
    routing = Routing((rule("r", "shop_*.t_*", "shop.t"),), BlockAllowList(), "m")
    routing.target_of(TableId("shop_1", "t_1"))
    copy = pickle.loads(pickle.dumps(routing))
    assert copy == routing == Routing((rule("r", "shop_*.t_*", "shop.t"),), BlockAllowList(), "m")
    assert target(copy, "shop_1", "t_2") == "shop.t"


class Counting:
    """Replaces a compiled expression and counts its calls."""

    def __init__(self, text: str) -> None:
        self.expression, self.asked = re.compile(text), 0

    def search(self, name: str) -> re.Match[str] | None:
        self.asked += 1
        return self.expression.search(name)


def test_patterns_are_compiled_when_rules_are_read_and_never_again(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    real = re.compile
    monkeypatch.setattr(re, "compile", lambda text, *flags: compiled.append(text) or real(text, *flags))
    routing = Routing(tuple(rule(f"r{n}", f"shop_{n}.orders_*", f"shop.orders_{n}") for n in range(10)))
    assert len(compiled) == 20
    tables = [TableId(f"shop_{n % 10}", f"orders_{n}") for n in range(10_000)]
    assert len({routing.target_of(table) for table in tables}) == 10
    assert len(compiled) == 20


@pytest.mark.parametrize("tables", [10, 10_000])
def test_a_name_is_matched_once_whatever_the_number_of_tables(tables: int) -> None:
    schemas = [Counting(f"^shop_{n}$") for n in range(10)]
    names = [Counting("^orders_") for _ in range(10)]
    rules = (
        RouteRule(f"r{n}", Pattern("s", schema), Pattern("t", name), "shop", f"orders_{n}")
        for n, (schema, name) in enumerate(zip(schemas, names, strict=True))
    )
    allowed = Counting("^shop_")
    routing = Routing(tuple(rules), BlockAllowList(do_dbs=(Pattern("d", allowed),)))
    for _ in range(3):
        for n in range(tables):
            assert routing.target_of(TableId(f"shop_{n % 10}", f"orders_{n}"))
    assert allowed.asked == 10, "the list is asked once per schema"
    assert [schema.asked for schema in schemas] == [10] * 10, "every rule is asked once per schema"
    assert sum(name.asked for name in names) == tables, "only the rules of its schema are asked about a table"


def extractor(origin: Origin, expression: str, column: str) -> Extractor:
    return compile_extractor(origin, expression, column, False, "route 'r'")


def extracting(name: str, patterns: tuple[str, str], *extractors: Extractor) -> RouteRule:
    return compile_rule(name, patterns, ("shop", "orders"), False, extractors=extractors)


def test_what_names_say_is_extracted_group_by_group() -> None:
    rules = extracting(
        "r",
        ("shop_*", "orders_*"),
        extractor(Origin.TABLE, "orders_(.*)", "c_table"),
        extractor(Origin.SCHEMA, "(.*)", "c_schema"),
        extractor(Origin.SOURCE, "mysql-(.*)-([0-9]+)", "c_source"),
        extractor(Origin.TABLE, "(x)?orders", "c_none"),
    )
    routing = Routing((rules,), source="mysql-replica-01")
    assert [(each.column, each.value) for each in routing.reshaping(TableId("Shop_1", "Orders_7a")).extracted] == [
        ("c_table", "7a"),
        ("c_schema", "Shop_1"),
        ("c_source", "replica01"),
        ("c_none", ""),
    ]
    assert routing.reshaping(TableId("other", "t")).extracted == ()


def test_an_expression_that_is_not_found_is_an_error_not_an_empty_text() -> None:
    routing = Routing((extracting("r", ("shop_*", "*"), extractor(Origin.TABLE, r"_(\d+)$", "c")),), source="s1")
    assert target(routing, "shop_1", "orders_7") == "shop.orders"
    with pytest.raises(ExtractionNotFound, match="route 'r' finds nothing to extract from the table 'log' of s1"):
        routing.target_of(TableId("shop_1", "log"))


def test_rules_that_extract_differently_send_to_different_places() -> None:
    plain = extracting("one", ("shop_*", "t_*"))
    other = extracting("two", ("shop_*", "*_1"), extractor(Origin.TABLE, "_(.*)", "c"))
    with pytest.raises(RouteAmbiguous, match=r"'one' to shop\.orders and route 'two' to shop\.orders with c from"):
        Routing((plain, other)).target_of(TableId("shop_1", "t_1"))
    schemas = tuple(replace(each, table=None) for each in (plain, other))
    assert Routing(schemas).target_schema_of("shop_1") == "shop"


def test_rules_and_entries_that_match_nothing() -> None:
    lists = BlockAllowList(
        (compile_pattern("shop_*", False, "l"), compile_pattern("shpo_1", False, "l")),
        (),
        compile_tables((("shop_1", "t_*"), ("shop_1", "tt"), ("crm", "t_1")), False, "l"),
        compile_tables((("*", "log"),), False, "l"),
    )
    rules = (
        rule("used", "shop_*.t_?", "a"),
        rule("schema", "shop_*", "a"),
        rule("lost", "shop_*.x", "a"),
        rule("away", "crm", "a"),
    )
    tables = [TableId("shop_1", "t_1"), TableId("shop_2", "log")]
    assert {name for name, idle in idle_rules(Routing(rules, lists), tables).items() if idle} == {
        "route 'lost'",
        "route 'away'",
        "'shpo_1' of do-dbs",
        "'shop_1'.'tt' of do-tables",
        "'crm'.'t_1' of do-tables",
    }
    assert set(idle_rules(Routing(rules, lists), []).values()) == {True}
