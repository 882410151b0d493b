"""One-to-one targets by their routes, and the order of statements about them."""

from dataclasses import replace

import pytest

from unshard.core.ddl.lock import opening
from unshard.core.ddl.onetoone import Feeds, is_only, waiting, whole_entry
from unshard.core.ddl.queue import QueueEntry, ShardState, WholeChange
from unshard.core.model import Location, Shard, TableId
from unshard.core.relay.segment import Statement
from unshard.core.rules.pattern import compile_pattern, compile_regex
from unshard.core.rules.reshaping import Extractor, Origin
from unshard.core.rules.routing import BlockAllowList, RouteRule, Routing, compile_rule, compile_tables

T = TableId("shop", "t")


def rule(schema: str, table: str, target_schema: str, target_table: str = "", extracts: bool = False) -> RouteRule:
    extractor = Extractor(Origin.TABLE, compile_regex("(.*)", True, "r"), "c")
    extractors = (extractor,) if extracts else ()
    return compile_rule("r", (schema, table), (target_schema, target_table), False, extractors=extractors)


def routing(*rules: RouteRule, allowed: BlockAllowList | None = None) -> Routing:
    return Routing(rules, allowed or BlockAllowList())


ONLY_TABLE = BlockAllowList(do_tables=compile_tables((("shop", "t"),), False, "ours"))
OTHER_SCHEMA = BlockAllowList(do_dbs=(compile_pattern("other", False, "ours"),))


@pytest.mark.parametrize(
    ("name", "routings", "sharded", "unsharded"),
    [
        ("no routes", [routing()], True, True),
        ("a list that allows it", [routing(allowed=ONLY_TABLE)], True, True),
        ("a list that does not", [routing(allowed=OTHER_SCHEMA)], False, False),
        ("no routes, two sources", [routing(), routing()], False, True),
        ("two sources, one of which has it", [routing(), routing(allowed=OTHER_SCHEMA)], True, True),
        ("one table", [routing(rule("shop_1", "t_1", "shop", "t"), allowed=OTHER_SCHEMA)], False, False),
        ("one table, and the target's own name", [routing(rule("shop_1", "t_1", "shop", "t"))], False, False),
        (
            "a table that moves away leaves its name to another",
            [routing(rule("shop_1", "t_1", "shop", "t"), rule("shop", "t", "shop", "u"))],
            True,
            True,
        ),
        ("a schema", [routing(rule("shop", "", "x"), rule("shop_1", "", "shop"))], True, True),
        ("its own name", [routing(rule("Shop", "T", "shop", "t"))], True, True),
        ("a pattern of tables", [routing(rule("shop", "t_*", "shop", "t"))], False, False),
        ("a pattern of schemas", [routing(rule("shop_*", "t", "shop", "t"))], False, False),
        ("a schema pattern", [routing(rule("shop_*", "", "shop"))], False, False),
        ("an expression", [routing(rule("~^shop$", "t", "shop", "t"))], False, False),
        ("all tables of a schema", [routing(rule("shop", "", "shop", "t"))], False, False),
        ("a pattern for another target", [routing(rule("a", "u_*", "shop", "u"))], True, True),
        ("an extracted column", [routing(rule("shop", "t", "shop", "t", extracts=True))], False, False),
    ],
)
def test_routes(name: str, routings: list[Routing], sharded: bool, unsharded: bool) -> None:
    assert (Feeds(routings, True).is_single(T), Feeds(routings, False).is_single(T)) == (sharded, unsharded), name


def entry(shard: str, whole: WholeChange, at: int, to: str = "") -> QueueEntry:
    state = ShardState(Shard("s1", TableId("shop", shard)), TableId("shop", shard), "x", None, (), 0, ())
    statement = Statement("x", "shop", 0, "utf8mb4", 1, "SYSTEM")
    kind = WholeChange.TRUNCATE if whole is WholeChange.CREATE else whole
    made = whole_entry(kind, state, Location("b.1", at), statement, TableId("shop", to) if to else None)
    return replace(made, whole=whole, is_alone=whole is WholeChange.CREATE)


def state(shard: str, *queue: QueueEntry, left: bool = False) -> ShardState:
    target = TableId("shop", shard.split(" ", maxsplit=1)[0])
    return ShardState(Shard("s1", TableId("shop", shard)), target, "x", None, queue, len(queue), (), left)


def test_a_rename_waits_for_its_new_name_and_the_new_name_for_the_rename() -> None:
    """RENAME t TO old, new TO t; the first must come first, and nothing is created before its rename."""
    rename = WholeChange.RENAME
    states = (
        state("t (dropped)", entry("t", rename, 9, "old"), left=True),
        state("old", entry("old", WholeChange.CREATE, 9)),
        state("new (dropped)", entry("new", rename, 9, "t"), left=True),
        state("t", entry("t", WholeChange.CREATE, 9)),
    )
    assert waiting(states) == {(states[n].shard, states[n].queue[0].seq) for n in (1, 2, 3)}
    assert waiting(states[1:]) == {(states[3].shard, 1)}
    assert waiting((states[1], states[3])) == frozenset()


def test_a_rename_waits_for_the_drop_of_its_new_name_but_not_for_a_later_one() -> None:
    rename = state("t (dropped)", entry("t", WholeChange.RENAME, 9, "u"), left=True)
    for at, waits in ((5, True), (12, False)):
        drop = state("u (dropped)", entry("u", WholeChange.DROP, at), left=True)
        assert waiting((rename, drop)) == (frozenset({(rename.shard, 1)}) if waits else frozenset())


def test_tables_that_are_dropped_and_created_twice_are_followed_in_order() -> None:
    create, drop = WholeChange.CREATE, WholeChange.DROP
    first = state("t (dropped at 1)", entry("t", create, 2), entry("t", drop, 3), left=True)
    second = state("t", entry("t", create, 4))
    found = opening((first, second), {})
    assert found is not None and found.location.position == 2
    last = replace(first, queue=first.queue[1:])
    found = opening((last, second), {})
    assert found is not None and (found.whole, found.location.position) == (drop, 3)


def test_only_the_only_shard_counts() -> None:
    one, other = state("t"), state("t (dropped)", left=True)
    assert is_only(one, (one, other))
    assert not is_only(one, (one, replace(other, has_left=False)))
    assert not is_only(replace(one, structure=""), (replace(one, structure=""),))
    assert not is_only(replace(one, is_dropped=True), (replace(one, is_dropped=True),))


def test_schemas() -> None:
    same, moved = routing(), routing(rule("a", "", "shop"))
    assert Feeds((same,), True).is_single_schema("shop", strictly=True)
    assert not Feeds((same, same), True).is_single_schema("shop", strictly=False)
    assert Feeds((same, same), False).is_single_schema("shop", strictly=False)
    assert not Feeds((same, same), False).is_single_schema("shop", strictly=True)
    assert not Feeds((moved,), True).is_single_schema("shop", strictly=False)
    assert not Feeds((routing(rule("a_*", "", "shop")),), False).is_single_schema("shop", strictly=False)


def test_schemas_that_are_copied_as_a_whole() -> None:
    """A schema with a route for its tables is none of them, even if it has no table: nothing comes to that name."""
    whole, merged, moved = routing(), routing(rule("shop*", "t_*", "to", "t")), routing(rule("shop", "", "to"))
    names = ("shop", "other", "mysql")
    assert [Feeds((whole,), False).copied_schema(whole, name) for name in names] == ["shop", "other", None]
    assert [Feeds((merged,), False).copied_schema(merged, name) for name in names] == [None, "other", None]
    assert Feeds((moved,), False).copied_schema(moved, "shop") is None, "the schema `to` of the source may come too"
    listed = replace(moved, allowed=BlockAllowList(do_dbs=(compile_pattern("shop", False, "x"),)))
    assert Feeds((listed,), False).copied_schema(listed, "shop") == "to"
    tables = compile_tables((("shop", "t"),), False, "x")
    chosen = replace(whole, allowed=BlockAllowList(do_tables=tables))
    assert [Feeds((chosen,), False).copied_schema(chosen, name) for name in names] == ["shop", None, None]
    assert Feeds((whole, whole), True).copied_schema(whole, "shop") is None
    twice = routing(rule("shop", "", "to"), rule("sho?", "", "too"))
    assert Feeds((twice,), False).copied_schema(twice, "shop") is None
