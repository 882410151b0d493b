"""Binlog event filters: the decisions of rules, and the effect of an ignored DDL on a shard."""

import re

import pyarrow as pa
import pytest

from tests.unit.ddl.test_effects import AFTER, BEFORE, T1, Memory, Routes
from unshard.core.ddl.effects import Coordinated, Effect, Follows, Ignored, Joins, Leaves, Undecided
from unshard.core.model import Shard, TableId
from unshard.core.relay.segment import Statement
from unshard.core.rows.compaction import Op
from unshard.core.rules.filters import DML, Action, Event, EventFilter, EventRule, Judged
from unshard.core.rules.pattern import compile_pattern
from unshard.core.rules.reshaping import Reshaping
from unshard.errors.ddl import DdlFiltered
from unshard.errors.rows import RowsFiltered
from unshard.units.ddl.effects import DdlEffects
from unshard.units.rows.batchruns import passing


def rule(action: Action, *events: str, sql: str = "", patterns: str = "*.*", name: str = "r") -> EventRule:
    schema, _, table = patterns.partition(".")
    return EventRule(
        name,
        compile_pattern(schema, False, name),
        compile_pattern(table, False, name) if table else None,
        events,
        (re.compile(sql, re.IGNORECASE),) if sql else (),
        action,
    )


ADD = Event(("alter table", "add column"), "ALTER TABLE t ADD c INT")
DROP = Event(("drop column", "alter table"), "ALTER TABLE t DROP c")
INSERT = Event(("insert",))
IGNORE, DO, ERROR = Action.IGNORE, Action.DO, Action.ERROR


@pytest.mark.parametrize(
    ("found", "event", "passes"),
    [
        (rule(IGNORE, "drop column"), DROP, False),
        (rule(IGNORE, "drop column"), ADD, True),
        (rule(IGNORE, "alter table"), DROP, False),
        (rule(IGNORE, "add column"), ADD, False),
        (rule(DO, "add column"), ADD, True),
        (rule(DO, "add column"), DROP, False),
        (rule(DO, "add column"), INSERT, False),
        (rule(IGNORE, "all"), INSERT, False),
        (rule(IGNORE, "none"), INSERT, True),
        (rule(DO, "none"), INSERT, False),
        (rule(IGNORE, "all dml"), INSERT, False),
        (rule(IGNORE, "all dml"), ADD, True),
        (rule(IGNORE, "all ddl"), INSERT, True),
        (rule(IGNORE, "all ddl"), ADD, False),
        (rule(IGNORE, "none ddl", "all"), ADD, True),
        (rule(IGNORE, "none ddl", "all"), INSERT, False),
        (rule(IGNORE, "insert", "none dml"), INSERT, False),
        (rule(IGNORE, "none dml", "insert"), INSERT, True),
        (rule(IGNORE, "incompatible ddl changes"), DROP, False),
        (rule(IGNORE, "incompatible ddl changes"), ADD, True),
        (rule(IGNORE, "incompatible ddl changes"), INSERT, True),
        (rule(IGNORE, "create schema"), Event(("create database",)), False),
        (rule(IGNORE, sql="add\\s+c"), ADD, False),
        (rule(IGNORE, sql="add\\s+c"), DROP, True),
        (rule(DO, sql="add\\s+c"), ADD, True),
        (rule(DO, sql="add\\s+c"), DROP, False),
        (rule(DO, sql="x"), INSERT, True),
        (rule(IGNORE, "drop column", sql="add"), ADD, False),
        (rule(IGNORE, "drop column", sql="add"), DROP, False),
        (rule(DO, "alter table", sql="add"), ADD, True),
        (rule(DO, "alter table", sql="add"), DROP, False),
        (rule(DO, "insert", sql="add"), INSERT, True),
        (rule(DO, "insert"), Event((), "gibberish"), True),
        (rule(IGNORE, "all", patterns="other.*"), ADD, True),
        (rule(IGNORE, "all", patterns="shop_*"), ADD, False),
    ],
)
def test_rules_are_judged_as_dm_judges_them(found: EventRule, event: Event, passes: bool) -> None:
    judged = EventFilter((found,)).judge(TableId("shop_1", "t_1"), event)
    assert (judged.action, judged.rule) == ((Judged().action, "") if passes else (IGNORE, "r"))


def test_the_first_rule_that_does_not_let_through_decides() -> None:
    rules = EventFilter((rule(IGNORE, "delete", name="a"), rule(ERROR, "all dml", name="b", patterns="shop_1.t_1")))
    assert dict(rules.rows(TableId("shop_1", "t_1"))) == {
        "insert": Judged(ERROR, "b", "insert"),
        "update": Judged(ERROR, "b", "update"),
        "delete": Judged(IGNORE, "a", "delete"),
    }
    assert dict(rules.rows(TableId("shop_1", "t_2"))) == {"delete": Judged(IGNORE, "a", "delete")}


def ask(text: str, *rules: EventRule, present: dict[TableId, str] | None = None) -> tuple[Effect, ...]:
    memory, routes = Memory(), Routes()
    routes.events = EventFilter(rules)
    statement = Statement(text, "shop_1", 0, 33, 100, "SYSTEM")
    return DdlEffects(memory, memory, routes)(statement, {T1: BEFORE} if present is None else present)


def test_an_ignored_ddl_enters_no_queue_and_its_structure_is_followed() -> None:
    assert ask("ALTER TABLE t_1 ADD x INT", rule(IGNORE, "add column")) == (Follows(T1, AFTER),)
    assert ask("CREATE INDEX i ON t_1 (a)", rule(IGNORE, "create index")) == (Follows(T1, AFTER),)
    assert isinstance(ask("ALTER TABLE t_1 ADD x INT", rule(IGNORE, "drop column"))[0], Coordinated)


@pytest.mark.parametrize(
    ("text", "events", "rest"),
    [
        ("ALTER TABLE t_1 ADD x INT, DROP y", ("drop column",), "ALTER TABLE `shop`.`t` ADD x INT"),
        ("ALTER TABLE t_1 DROP y, ADD x INT", ("drop column",), "ALTER TABLE `shop`.`t` ADD x INT"),
        (
            "ALTER TABLE t_1 DROP y, ADD x INT, DROP z, ALGORITHM=COPY",
            ("drop column",),
            "ALTER TABLE `shop`.`t` ADD x INT, ALGORITHM=COPY",
        ),
        (
            "ALTER TABLE t_1 WAIT 5 DROP y, ADD x INT, RENAME TO t_2",
            ("drop column",),
            "ALTER TABLE `shop`.`t`  ADD x INT",
        ),
        ("ALTER TABLE t_1 DROP FOREIGN KEY f, ADD x INT", ("drop foreign key",), "ALTER TABLE `shop`.`t` ADD x INT"),
        ("ALTER TABLE t_1 DROP FOREIGN KEY f, ADD x INT", ("add column",), "ALTER TABLE `shop`.`t` ALGORITHM=DEFAULT"),
        (
            "ALTER TABLE t_1 ADD x INT DEFAULT (1, 2), DROP PARTITION p, q",
            ("add column",),
            "ALTER TABLE `shop`.`t` DROP PARTITION p, q",
        ),
    ],
)
def test_of_several_specifications_only_those_that_pass_are_coordinated(
    text: str, events: tuple[str, ...], rest: str
) -> None:
    found = ask(text, rule(IGNORE, *events))[0]
    assert isinstance(found, Coordinated) and (found.routed, found.after) == (rest, AFTER)


def test_everything_but_a_rename_may_be_ignored() -> None:
    found = ask("ALTER TABLE t_1 ADD x INT, DROP y, RENAME TO t_2", rule(IGNORE, "alter table", "rename table"))
    assert found[0] == Follows(T1, AFTER) and len(found) == 2
    assert isinstance(ask("ALTER TABLE t_1 ADD x INT, DROP y", rule(IGNORE, "multi schema change"))[0], Follows)
    assert isinstance(ask("ALTER TABLE t_1 ADD x INT, LOCK=NONE", rule(IGNORE, "multi schema change"))[0], Coordinated)


def test_what_is_never_executed_is_followed_all_the_same() -> None:
    everything = rule(IGNORE, "all")
    assert ask("DROP TABLE t_1", everything) == (Leaves(T1),)
    assert ask("TRUNCATE t_1", everything) == (Ignored(T1),)
    (found,) = ask("CREATE TABLE t_2 (a INT)", everything)
    assert isinstance(found, Joins) and not found.makes_target
    (found,) = ask("CREATE TABLE t_2 (a INT)", rule(IGNORE, "drop table"))
    assert isinstance(found, Joins) and found.makes_target


def test_what_cannot_be_followed_may_be_ignored() -> None:
    assert ask("ALTER TABLE t_1 EXCHANGE PARTITION p WITH TABLE x.t", rule(IGNORE, "exchange table partition")) == (
        Ignored(T1),
    )
    assert ask("ALTER IGNORE TABLE t_1 ADD UNIQUE (a)", rule(IGNORE, "create index")) == (Follows(T1, AFTER),)
    assert ask("GIBBERISH ON t_1", rule(IGNORE, sql="^gibberish")) == (Ignored(T1),)
    assert isinstance(ask("GIBBERISH ON t_1", rule(IGNORE, sql="^gibberish", patterns="other.*"))[0], Undecided)
    with pytest.raises(DdlFiltered):
        ask("GIBBERISH", rule(ERROR, sql="^gibberish"))
    found = ask("ALTER TABLE t_1 ADD x INT", rule(IGNORE, "all ddl"), present={T1: ""})[0]
    assert isinstance(found, Undecided) and "a filter ignores it" in found.reason


@pytest.mark.parametrize(
    ("text", "event"),
    [
        ("ALTER TABLE t_1 ADD x INT, DROP y", "drop column"),
        ("ALTER TABLE t_1 RENAME TO t_9", "rename table"),
        ("DROP TABLE t_2, t_1", "drop table"),
        ("TRUNCATE t_1", "truncate table"),
        ("CREATE TABLE t_3 (a INT)", "create table"),
        ("CREATE DATABASE d", "create database"),
        ("ALTER DATABASE d COLLATE utf8mb4_bin", "modify schema charset and collate"),
        ("DROP DATABASE d", "drop schema"),
        ("CREATE OR REPLACE VIEW t_v AS SELECT 1", "create view"),
        ("DROP VIEW IF EXISTS shop_1.t_v", "drop view"),
        ("RENAME TABLE t_1 TO t_2", "rename table"),
        ("ALTER TABLE t_1 EXCHANGE PARTITION p WITH TABLE x.t", "exchange table partition"),
        ("DROP INDEX i ON t_1", "drop index"),
    ],
)
def test_error_stops_at_the_statement(text: str, event: str) -> None:
    with pytest.raises(DdlFiltered, match="filter 'r' stops"):
        ask(text, rule(ERROR, event))
    assert ask(text, rule(ERROR, "precision decrease")) == ask(text)
    assert ask(text.replace("t_", "v_"), rule(ERROR, event, patterns="x.*")) is not None


def test_new_columns_are_left_out_only_where_add_column_is_ignored() -> None:
    table = TableId("shop_1", "t_1")
    assert [
        EventFilter((rule(*each),)).passes_columns(table)
        for each in (
            (IGNORE, "add column"),
            (IGNORE, "alter table"),
            (DO, "insert"),
            (IGNORE, "drop column"),
            (ERROR, "add column"),
        )
    ] == [False, False, False, True, True]


def batch(*ops: Op) -> pa.RecordBatch:
    values = [pa.array([op.value for op in ops], pa.int8()), pa.array(range(len(ops)), pa.int64())]
    return pa.RecordBatch.from_arrays(values, ["_op", "_seq"])


def test_rows_pass_by_their_kind_and_updates_as_pairs() -> None:
    given = batch(Op.INSERT, Op.BEFORE, Op.AFTER, Op.DELETE)
    for kind, left in (("insert", [1, 2, 3]), ("update", [0, 3]), ("delete", [0, 1, 2])):
        reshaping = Reshaping(events=((kind, Judged(IGNORE, "r")),))
        assert passing(reshaping, Shard("s", T1), given)["_seq"].to_pylist() == left
        with pytest.raises(RowsFiltered, match=f"the {kind} of 1 rows in shard s shop_1.t_1"):
            passing(Reshaping(events=((kind, Judged(ERROR, "r")),)), Shard("s", T1), given)
    assert [Reshaping(events=((kind, Judged(IGNORE)),)).filters_changes for kind in DML] == [False, True, True]
