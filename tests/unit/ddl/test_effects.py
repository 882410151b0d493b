"""The effects of binlog statements on shards, as the planner asks for them."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from unshard.core.ddl.effects import (
    Coordinated,
    Effect,
    Ignored,
    Joins,
    Leaves,
    Moves,
    Renamed,
    Together,
    Truncates,
    Undecided,
    UnreadIgnored,
)
from unshard.core.ddl.onetoone import Feeds
from unshard.core.model import Column, TableId, TableSchema
from unshard.core.relay.segment import Statement
from unshard.core.rules.filters import EventFilter
from unshard.core.rules.reshaping import AS_IT_IS, Extracted, Reshaping
from unshard.core.rules.routing import Routing
from unshard.errors.ddl import EffectRefused, StructureUnknown
from unshard.errors.source import ServerBusy
from unshard.units.ddl.effects import DdlEffects

T1, T2, T7, T9 = (TableId("shop_1", f"t_{number}") for number in (1, 2, 7, 9))
TARGETS = {"t": TableId("shop", "t"), "u": TableId("shop", "u")}


def structure(name: str) -> TableSchema:
    created = f"CREATE TABLE `t` (`{name}` int)"
    return TableSchema((Column(name, "int", "int", True, None, None, None, ""),), (), created)


class Memory:
    """A store of structures; the trial table's answer is a structure named after the statement."""

    def __init__(self) -> None:
        self.kept = {structure(name).digest: structure(name) for name in ("before", "like")}
        self.asked: list[tuple[str | None, TableId]] = []

    def put(self, schema: TableSchema) -> str:
        self.kept[schema.digest] = schema
        return schema.digest

    def get(self, digests: Iterable[str]) -> dict[str, TableSchema]:
        return {digest: self.kept[digest] for digest in digests}

    def effect(
        self, before: TableSchema | None, statement: Statement, table: TableId, target: TableId | None = None
    ) -> TableSchema:
        self.asked.append((before.names[0] if before else None, table))
        if before is None and "like" in statement.text:
            raise StructureUnknown(str(table), statement.text)
        if "defect" in statement.text:
            raise IndexError("tuple index out of range")
        if "busy" in statement.text:
            raise ServerBusy("target", "u@h:1", "deadlock")
        if "nosuchtype" in statement.text:
            raise EffectRefused(str(table), 4161, "Unknown data type", statement.text)
        return structure("after")


class Routes:
    """Routes by the first letter; a table whose name ends in `_named` fills a column of the target."""

    def target_of(self, table: TableId) -> TableId | None:
        return TARGETS.get(table.name.split("_")[0]) if table.schema != "x" else None

    events = EventFilter()

    def target_schema_of(self, schema: str) -> str | None:
        return "shop"

    def reshaping(self, table: TableId) -> Reshaping:
        return Reshaping((Extracted("c", "1"),)) if table.name.endswith("_named") else AS_IT_IS


BEFORE, LIKE, AFTER = structure("before").digest, structure("like").digest, structure("after").digest


def ask(
    text: str, memory: Memory | None = None, present: dict[TableId, str] | None = None, schema: str = "shop_1"
) -> tuple[Effect | UnreadIgnored, ...]:
    memory = memory or Memory()
    found = DdlEffects(memory, memory, Routes())
    return found(Statement(text, schema, 0, "utf8mb4", 1, "SYSTEM"), present or {T1: BEFORE, T2: LIKE})


@pytest.mark.parametrize("text", ["alter table t_1 add c int", "ALTER TABLE `shop_1`.`t_1`  ADD `c` INT"])
def test_alter_is_coordinated_with_what_the_target_says_it_does(text: str) -> None:
    memory = Memory()
    (effect,) = ask(text, memory)
    assert isinstance(effect, Coordinated)
    assert (effect.table, effect.after, effect.fingerprint) == (
        T1,
        AFTER,
        ask("alter table t_1 add c int")[0].fingerprint,
    )
    assert memory.asked == [("before", T1)] and AFTER in memory.kept


def test_two_shards_agree_whatever_they_are_called() -> None:
    (one,), (other,) = ask("create index i on t_1 (a)"), ask("create index i on shop_1.t_2 (a)")
    assert one.fingerprint == other.fingerprint and "`shop`.`t`" in one.routed


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("drop table t_1, x, t_2", (Leaves(T1), Leaves(T2))),
        ("drop database shop_1", (Leaves(T1), Leaves(T2))),
        ("drop database other", ()),
        ("create or replace database shop_1", (Leaves(T1), Leaves(T2))),
        ("truncate table t_1", (Ignored(T1),)),
        ("create table if not exists t_1 (a int)", (Ignored(T1),)),
        ("create table t_3 (a int)", (Joins(TableId("shop_1", "t_3"), AFTER, "create table `shop`.`t` (a int)"),)),
        ("create table x (a int)", ()),
        ("alter table x add c int", ()),
        ("rename table x to y", ()),
        ("rename table t_1 to t_9", (Renamed(T1, T9),)),
        ("rename table if exists t_8 to t_9, t_1 to t_7", (Renamed(T1, T7), Ignored(TableId("shop_1", "t_8")))),
        ("rename table t_1 to x, t_2 to t_1, x to t_2", (Renamed(T1, T2), Renamed(T2, T1))),
        ("rename table t_1 to x, x to t_1", ()),
        ("rename table t_1 to t_7, t_7 to t_9, t_2 to t_1", (Renamed(T1, T9), Renamed(T2, T1))),
        ("rename table t_1 to x.t_1_gone, t_2 to t_1", (Leaves(T1), Renamed(T2, T1))),
        ("alter table t_1 rename x, algorithm = copy", (Leaves(T1),)),
        ("alter table t_1 add c int, rename to x", (Leaves(T1),)),
        ("alter table t_1 rename to t_1", ()),
        (
            "create or replace table t_1 (a int)",
            (Leaves(T1), Joins(T1, AFTER, "create or replace table `shop`.`t` (a int)")),
        ),
        ("create view v as select 1", ()),
        ("create database shop_9", ()),
        ("grant select on *.* to u", ()),
    ],
)
def test_effect(text: str, want: tuple[Effect, ...]) -> None:
    assert ask(text) == want


def test_a_swap_of_one_to_one_targets_is_a_chain_of_renames_with_a_free_name_each() -> None:
    memory, routing = Memory(), Routing()
    effects = DdlEffects(memory, memory, routing, feeds=Feeds((routing,), is_sharded=True))
    text = "rename table t_1 to x, t_2 to t_1, x to t_2"
    (found,) = effects(Statement(text, "shop_1", 0, "utf8mb4", 1, "SYSTEM"), {T1: BEFORE, T2: LIKE})
    assert isinstance(found, Together)
    (away, _), *others = found.steps
    assert away.table == T1 and away.to.name.startswith("_unshard_") and away.to == away.to_target
    assert [(step.table, step.to, target) for step, target in others] == [(T2, T1, T2), (away.to, T2, away.to)]
    assert [(type(each).__name__, each.table) for each, _ in found.otherwise] == [
        ("Leaves", T1),
        ("Leaves", T2),
        ("Undecided", T2),
        ("Undecided", T1),
    ]


def test_a_change_with_a_rename_of_a_one_to_one_target_is_both() -> None:
    memory, routing = Memory(), Routing()
    effects = DdlEffects(memory, memory, routing, feeds=Feeds((routing,), is_sharded=True))
    statement = Statement("alter table t_1 add c int, rename to t_9", "shop_1", 0, "utf8mb4", 1, "SYSTEM")
    (found,) = effects(statement, {T1: BEFORE})
    assert isinstance(found, Together)
    (changed, target), (moved, _) = found.steps
    assert isinstance(changed, Coordinated) and (changed.table, changed.after, target) == (T1, AFTER, T1)
    assert isinstance(moved, Moves) and (moved.table, moved.to, moved.to_target) == (T1, T9, T9)
    assert [type(each).__name__ for each, _ in found.otherwise] == ["Leaves", "Undecided"]


def test_rows_of_a_dropped_shard_are_deleted_if_the_task_says_so() -> None:
    memory = Memory()
    effects = DdlEffects(memory, memory, Routes(), feeds=Feeds((), is_sharded=True, removes_rows=True))

    def found(text: str) -> tuple[Effect | UnreadIgnored, ...]:
        return effects(Statement(text, "shop_1", 0, "utf8mb4", 1, "SYSTEM"), {T1: BEFORE, T2: LIKE})

    assert found("drop table t_1") == (Leaves(T1, removes_rows=True),)
    assert found("drop database shop_1") == (Leaves(T1, removes_rows=True), Leaves(T2, removes_rows=True))
    assert found("truncate t_2") == (Truncates(T2, is_whole=False, removes_rows=True),)
    assert found("create or replace table t_1 (a int)")[0] == Leaves(T1, removes_rows=True)
    assert found("rename table t_1 to x") == (Leaves(T1),), "its rows exist under another name"


@pytest.mark.parametrize(
    "text", ["add c int, rename to t_9", "rename t_9, add c int", "rename t_8, rename t_9, add c int"]
)
def test_a_change_is_coordinated_before_the_shard_is_renamed(text: str) -> None:
    (changed, renamed), (alone,) = ask(f"alter table t_1 {text}"), ask("alter table t_2 add c int")
    assert changed == replace(alone, table=T1) and renamed == Renamed(T1, T9)


@pytest.mark.parametrize(
    "text",
    [
        "alter table x convert partition p to table t_9",
        "rename table x to t_9",
        "alter table x rename to t_9",
        "rename table t_1 to u_1",
        "rename table t_1 to x, y to t_1",
        "rename table t_1 to t_1_named",
        "alter table t_1 add c int, rename u_1",
    ],
)
def test_a_table_that_gets_the_name_of_a_shard_waits_for_an_operator(text: str) -> None:
    *others, last = ask(text)
    assert isinstance(last, Undecided) and last.is_new and last.reason.startswith("[US-5001]")
    assert all(isinstance(effect, Leaves) for effect in others)


UNDECIDED = [
    ("alter table t_1 exchange partition p with table x", "[US-5001]", "", False),
    ("alter table x exchange partition p with table t_1", "[US-5001]", "", False),
    ("alter ignore table t_1 add unique (a)", "[US-5001]", "", False),
    ("alter table t_1 add c nosuchtype", "[US-4003]", "", False),
    ("create or replace table t_1 (a nosuchtype)", "[US-4003]", "", True),
    ("create table t_9 (a nosuchtype)", "[US-4003]", "", True),
    ("create table t_9 select * from y", "[US-5001]", "", True),
    ("alter table t_1 add defect int", "[US-4011]", "", False),
    ("create table t_9 (defect int)", "[US-4011]", "", True),
    ("florble the table t_1 quickly", "[US-4001]", "", False),
    ("florble table `shop_1`.`t_1` 'never ended", "[US-4001]", "", False),
]


@pytest.mark.parametrize(("text", "code", "after", "is_new"), UNDECIDED, ids=[case[0] for case in UNDECIDED])
def test_what_only_an_operator_can_tell(text: str, code: str, after: str, is_new: bool) -> None:
    *_, effect = ask(text)
    assert isinstance(effect, Undecided)
    assert (effect.reason[:9], effect.after, effect.is_new) == (code, after, is_new)
    assert "`shop`.`t`" in effect.routed and "t_1" not in effect.routed and effect.fingerprint


def test_trouble_with_the_target_is_no_decision_about_a_statement() -> None:
    with pytest.raises(ServerBusy):
        ask("alter table t_1 add busy int")


@pytest.mark.parametrize(
    ("reach", "want"),
    [
        (None, {T1: BEFORE, T2: LIKE}),
        (frozenset(), {}),
        (frozenset({TableId("other", "x")}), {}),
        (frozenset({TableId("SHOP_1", "T_2"), TableId("other", "x")}), {T2: LIKE}),
        (frozenset({T9}), {T9: ""}),
    ],
)
def test_a_change_of_rows_without_row_events_holds_the_shards_that_it_may_have_changed(
    reach: frozenset[TableId] | None, want: dict[TableId, str]
) -> None:
    memory = Memory()
    effects = DdlEffects(memory, memory, Routes(), changed=lambda *_: reach)
    statement = Statement("update x set a = 0", "other", 0, "utf8mb4", 1, "")
    found = effects(statement, {T1: BEFORE, T2: LIKE})
    assert {effect.table: effect.after for effect in found if isinstance(effect, Undecided)} == want
    assert all(isinstance(effect, Undecided) and "[US-3013]" in effect.reason for effect in found)


def test_statements_that_cannot_be_read_agree_whatever_the_shards_are_called() -> None:
    one, other = (ask(f"florble {name} 'x'")[0] for name in ("t_1", "shop_1 . `t_2`"))
    assert one.fingerprint == other.fingerprint and (one.table, other.table) == (T1, T2)
    assert {effect.table for effect in ask("florble t_1, t_2, t_3, other.t_1 now")} == {T1, T2}


def test_rows_are_never_moved_to_find_out_what_a_statement_does() -> None:
    memory = Memory()
    for text, *_ in UNDECIDED[:3]:
        ask(text, memory)
    assert memory.asked == []


def test_after_an_unknown_structure_the_target_is_not_asked() -> None:
    memory = Memory()
    (effect,) = ask("alter table t_1 add c int", memory, {T1: ""})
    assert isinstance(effect, Coordinated) and (effect.after, memory.asked) == ("", [])
    (effect,) = ask("create table t_3 like t_1", memory, {T1: ""})
    assert isinstance(effect, Undecided) and effect.is_new


def test_like_takes_the_structure_of_the_shard_that_is_named() -> None:
    memory = Memory()
    ask("create table t_3 like t_2", memory)
    assert memory.asked == [("like", TableId("shop_1", "t_3"))]


MAY_CONCERN = [
    # (statement, default schema, shards that wait for an operator)
    ("florble the table t_7", "shop_1", []),
    ("florble the table `t_1", "elsewhere", []),
    ("florble gizmo.x 'shop'", "shop_1", []),
    ("florble other.t_1", "elsewhere", []),
    ("florble other.t_1", "shop_1", [T1]),
    ("florble t_17", "shop_1", [T1]),
    ("florble gizmo_t_1_end", "shop_1", [T1]),
    ("florble SHOP_1.T_1", "", [T1]),
    ("florble `Shop_1`.`t_2`", "", [T2]),
    ("florble `Shop_1`.`t_2", "", [T1, T2]),
    ('florble "shop_1"', "", [T1, T2]),
    ("florble shop_1.x", "", [T1, T2]),
    ("florble 'the schema shop_1, or not'", "", [T1, T2]),
    ("create gizmo g on #mysql50#x", "", [T1, T2]),
    ("call p()", "", [T1, T2]),
    ("/* a */ set statement max_statement_time=1 for do f(1)", "", [T1, T2]),
]


@pytest.mark.parametrize(("text", "schema", "want"), MAY_CONCERN, ids=[case[0] for case in MAY_CONCERN])
def test_what_cannot_be_read_stops_the_shards_that_it_may_concern(text: str, schema: str, want: list[TableId]) -> None:
    effects = ask(text, schema=schema)
    waiting = [effect for effect in effects if isinstance(effect, Undecided) and effect.routed]
    assert [effect.table for effect in waiting] == want
    assert effects == (tuple(waiting) or (UnreadIgnored(),))


@pytest.mark.parametrize("name", ["a`b", 'a"b', "ä ö", "a.b"])
@pytest.mark.parametrize("quote", ["`", '"'])
def test_a_name_is_found_however_it_is_quoted(name: str, quote: str) -> None:
    shard = TableId("x`y", f"t_{name}")
    schema, table = (quote + part.replace(quote, quote * 2) + quote for part in (shard.schema, shard.name))
    for text in (f"florble {schema}.{table}", f"florble {schema}.{table} 'never ended", f"florble {table.upper()}"):
        (effect,) = ask(text, present={shard: BEFORE}, schema="X`Y")
        assert isinstance(effect, Undecided) and effect.table == shard
    assert ask(f"florble {table}", present={shard: BEFORE}, schema="other") == (UnreadIgnored(),)


def test_a_shard_that_an_unreadable_statement_makes_waits_for_an_operator() -> None:
    for text in ("create table t_9 (a int) 'what", "CREATE OR REPLACE TABLE shop_1.t_9 (a int); drop table y"):
        effects = ask(text)
        assert [(effect.table, effect.is_new) for effect in effects if isinstance(effect, Undecided)][-1] == (T9, True)
    assert ask("create table elsewhere.x (a int) 'what", schema="elsewhere") == (UnreadIgnored(),)


def test_statements_about_sequences_do_nothing_to_shards() -> None:
    for text in (
        "create sequence t_9",
        "create table t_9 (a int) sequence = 1",
        "drop sequence if exists t_1",
        "alter sequence t_9 restart",
        "create sequence if not exists t_1",
    ):
        assert ask(text) == ()
    assert ask("create or replace sequence t_1") == (Leaves(T1),)
    (effect,) = ask("alter table t_1 sequence 1")
    assert isinstance(effect, Undecided) and "[US-5001]" in effect.reason
