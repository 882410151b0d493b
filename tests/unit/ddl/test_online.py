"""The statements of gh-ost and pt-online-schema-change: the tables of core.ddl.online and units.ddl.onlineddl."""

from dataclasses import replace

import pytest

from tests.unit.ddl.test_effects import LIKE, Memory, Routes, structure
from unshard.core.ddl.effects import Leaves, Undecided
from unshard.core.ddl.online import DEFAULT_RULES, OnlineRole, OnlineRules, OnlineTables, Swapped, name_rules
from unshard.core.model import TableId, TableSchema
from unshard.core.relay.segment import Statement
from unshard.units.ddl.onlineddl import OnlineDdl

T1, T2, U1 = (TableId("shop_1", name) for name in ("t_1", "t_2", "u_1"))
OWN = OnlineRules(name_rules(["^(.+)_shadow$"], are_own=True), name_rules(["^(.+)_gone$"], are_own=True))
GHC = "create /* gh-ost */ table _t_1_ghc (id int, last_update int, hint int, value int)"
TRIGGER = "create trigger x after delete on `shop_1`.`t_1` for each row delete from `shop_1`.`_t_1_new`"
PT = ["create table _t_1_new like t_1", "alter table _t_1_new add c int", TRIGGER]
OST = [GHC, "create /* gh-ost */ table `shop_1`.`_t_1_gho` like t_1", "alter /* gh-ost */ table _t_1_gho add c int"]
SWAP = "rename table t_1 to _t_1_old, _t_1_new to t_1"
ADDED = "SWAP t_1: ALTER TABLE `shop_1`.`t_1` add c int"
CASES = {
    # title: (statements, tables of tools after them, effects on shards)
    "pt-osc": ([*PT, SWAP, "drop table if exists _t_1_old"], "", [ADDED]),
    "pt-osc lists the columns": (
        ["create table `shop_1`.`_t_1_new` (copy int)", "alter table _t_1_new add c int", TRIGGER, SWAP],
        "_t_1_old trash",
        [ADDED],
    ),
    "the names of pt-osc exist already": (
        [text.replace("_t_1_new", "___t_1_new") for text in PT] + ["rename table t_1 to __t_1_old, ___t_1_new to t_1"],
        "__t_1_old trash",
        [ADDED],
    ),
    "pt-osc drops and renames": ([*PT, "drop table t_1", "rename table _t_1_new to t_1"], "", [ADDED]),
    "gh-ost": (
        [
            *OST,
            "alter /* gh-ost */ table _t_1_gho auto_increment=5",
            "create /* gh-ost */ table _t_1_del (id int) comment='ghost-cut-over-sentry'",
            "drop table _t_1_del",
            "rename /* gh-ost */ table t_1 to _t_1_del, _t_1_gho to t_1",
        ],
        "_t_1_del trash, _t_1_ghc trash",
        [ADDED],
    ),
    "gh-ost without comments": (
        [text.replace("/* gh-ost */", "") for text in OST]
        + ["rename table t_1 to _t_1_20260101120000_del, _t_1_gho to t_1"],
        "_t_1_20260101120000_del trash, _t_1_ghc trash",
        [ADDED],
    ),
    "gh-ost in two statements": (
        [*OST, "alter table t_1 rename _t_1_del", "alter table _t_1_gho rename t_1"],
        "_t_1_del trash, _t_1_ghc trash",
        [ADDED],
    ),
    "gh-ost undoes the first rename": (
        [*OST, "alter table t_1 rename _t_1_del", "alter table _t_1_del rename t_1", "drop table _t_1_gho, _t_1_ghc"],
        "",
        [],
    ),
    "several statements on the shadow": (
        [*PT, "create index k on _t_1_new (c)", SWAP],
        "_t_1_old trash",
        [f"{ADDED} | create index k on `shop_1`.`t_1` (c)"],
    ),
    "an unreadable statement on the shadow": (
        [*PT, "alter table _t_1_new florble", SWAP],
        "_t_1_old trash",
        [f"{ADDED} | alter table `shop_1`.`t_1` florble"],
    ),
    "aborted": ([*PT, "drop table if exists `shop_1`.`_t_1_new`"], "", []),
    "aborted and started again": (
        [*PT, "drop table _t_1_new", PT[0], "alter table _t_1_new add d int", TRIGGER, SWAP],
        "_t_1_old trash",
        ["SWAP t_1: ALTER TABLE `shop_1`.`t_1` add d int"],
    ),
    "aborted after the real table was dropped": ([*PT, "drop table t_1", "drop table _t_1_new"], "", ["Leaves t_1"]),
    "the real table is created again": (
        [*PT, "drop table t_1", "create table t_1 (copy int)"],
        "_t_1_new shadow",
        ["Leaves t_1", "create table t_1 (copy int)"],
    ),
    "both are dropped": ([*PT, "drop table t_1, _t_1_new"], "", ["drop table t_1, _t_1_new"]),
    "the schema is dropped": ([*PT, "drop database shop_1"], "", ["drop database shop_1"]),
    "the old table gets a name without a route": (
        [*PT, "rename table t_1 to x.t, _t_1_new to t_1"],
        "",
        [ADDED],
    ),
    "the old table becomes a shard": (
        [*PT, "rename table t_1 to t_9, _t_1_new to t_1"],
        "",
        ["rename table t_1 to t_9, _t_1_new to t_1", "Undecided t_1: a table of a tool gets the name of a shard"],
    ),
    "no sign of a tool": (
        [*PT[:2], SWAP],
        "",
        [SWAP, "Undecided t_1: a table that looks like the shadow table of a tool replaces it"],
    ),
    "the trigger of another shadow": (
        [*PT[:2], TRIGGER.replace("_t_1_new", "_t_2_new")],
        "_t_1_new unsure",
        ["trigger"],
    ),
    "a shadow by its name only": (["create table _t_1_new (other int)"], "", ["create table _t_1_new (other int)"]),
    "trash by its name only": (["create table _t_1_old like t_1"], "", ["create table _t_1_old like t_1"]),
    "a table that exists": (["create table t_2 (i int)"], "", ["create table t_2 (i int)"]),
    "the name belongs to no shard": (["create table _t_7_gho like t_7"], "", ["create table _t_7_gho like t_7"]),
    "trash is altered, emptied, dropped": (
        [*OST, "alter table _t_1_ghc add c int", "truncate table _t_1_ghc", "drop table _t_1_ghc"],
        "_t_1_gho shadow",
        ["truncate table _t_1_ghc"],
    ),
    "two shards at once": (
        [*PT, *(text.replace("t_1", "t_2") for text in PT), f"{SWAP}, t_2 to _t_2_old, _t_2_new to t_2"],
        "_t_1_old trash, _t_2_old trash",
        [ADDED, ADDED.replace("t_1", "t_2")],
    ),
    "next to another rename": (
        [*PT, f"{SWAP}, t_2 to t_3"],
        "_t_1_old trash",
        [f"{SWAP}, t_2 to t_3", ADDED],
    ),
}


class Copies(Memory):
    """Tables that are created with the column `copy` have the structure of the shards; gh-ost's log has its columns."""

    def effect(
        self, before: TableSchema | None, statement: Statement, table: TableId, target: TableId | None = None
    ) -> TableSchema:
        if "last_update" in statement.text:
            names = ("id", "last_update", "hint", "value")
            return TableSchema(tuple(replace(structure("x").columns[0], name=name) for name in names), (), "log")
        if "copy" in statement.text or "like" in statement.text:
            return structure("like")
        return structure("other") if before is None else structure("after")


def play(statements: list[str], rules: OnlineRules = DEFAULT_RULES) -> tuple[OnlineTables, list[str], OnlineDdl]:
    memory = Copies()
    online = OnlineDdl(rules, memory, memory, Routes())
    online_tables: OnlineTables = ()
    happened: list[str] = []
    for text in statements:
        statement = Statement(text, "shop_1", 0, "utf8mb4", 1, "SYSTEM")
        step = online.step(statement, {T1: LIKE, T2: LIKE, U1: LIKE}, online_tables)
        online_tables = step.online_tables
        happened += map(
            told,
            (each for each in step.happens if each != statement or "trigger" not in text or statements[-1] == text),
        )
    return online_tables, happened, online


def told(what: object) -> str:
    match what:
        case Statement():
            return "trigger" if "trigger" in what.text else what.text
        case Swapped():
            return f"SWAP {what.online_table.real.name}: " + " | ".join(
                " ".join(each.text.split()) for each in what.online_table.statements
            )
        case Leaves():
            return f"Leaves {what.table.name}"
        case Undecided():
            why = what.reason.rpartition("`: ")[2].partition(" (")[0]
            return f"Undecided {what.table.name}: {why.partition(', and')[0]}"
    raise AssertionError(what)


@pytest.mark.parametrize("case", CASES)
def test_what_statements_of_tools_mean(case: str) -> None:
    statements, online_tables, happens = CASES[case]
    found, happened, _ = play(statements)
    shown = sorted(
        f"{online_table.table.name} {online_table.role.value if online_table.seen else 'unsure'}"
        for online_table in found
    )
    assert (", ".join(shown), [each.lower() for each in happened]) == (
        online_tables,
        [each.lower() for each in happens],
    )


def test_rules_of_the_task_are_taken_at_their_word() -> None:
    statements = ["create table t_1_shadow like t_1", "create table t_1_gone (x int)", "create table _t_1_new like t_1"]
    found, happened, _ = play(statements, OWN)
    assert [(online_table.table.name, online_table.role, bool(online_table.seen)) for online_table in found] == [
        ("t_1_shadow", OnlineRole.SHADOW, True),
        ("t_1_gone", OnlineRole.TRASH, True),
    ]
    assert happened == ["create table _t_1_new like t_1"]


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_shadow_that_is_not_what_its_statements_make_waits_for_an_operator(is_whole: bool) -> None:
    online_tables, _, online = play(PT)
    swapped = Swapped(
        replace(online_tables[0], is_whole=is_whole), Statement(SWAP, "shop_1", 0, "utf8mb4", 1, "SYSTEM")
    )
    assert online.arrival(swapped, structure("after").digest) is None
    assert online.arrival(swapped, "") is None, "the structure is unknown yet"
    asked = online.arrival(swapped, LIKE)
    assert asked and asked.after == structure("after").digest and asked.table == T1
    assert "only the first has column like; only the second has column after" in asked.reason
    assert ("before the task existed" in asked.reason) == (not is_whole)
