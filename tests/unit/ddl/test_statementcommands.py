"""Commands about statements: their effect on a plan, and the statement that a position or GTID identifies."""

from dataclasses import replace

import pytest

from tests.unit.window.test_planning import T1, T2, at, ddl, effects, entry, holds, plan, rows, state
from unshard.core.ddl.effects import Coordinated, Undecided
from unshard.core.ddl.queue import EntryState, OperatorDecision
from unshard.core.ddl.statementcommands import CommandKind, StatementCommand, StatementPlace, is_between
from unshard.core.model import Location, TableId
from unshard.core.window.plan import Plan
from unshard.errors.locks import CommandAtNoStatement, CommandUnfit, HistoryUnknown

FILE = at(0).file
REPLACED = "alter table t_1 add c int"
ROUTED = "alter table `shop`.`t` add c int"


def order(kind: CommandKind, number: int, *statements: str, byte: int = 0) -> StatementCommand:
    """Return the command about the statement of a segment."""
    return StatementCommand(1, kind, StatementPlace("s1", Location(FILE, at(number).position + byte)), statements)


def made(text: str, one: StatementCommand, **state_parts: object) -> Plan:
    segments = [rows(0, T1), ddl(1, text), rows(2, T1)]
    return plan(segments, [state(T1, **state_parts), state(T2)], commands=(one,))  # type: ignore[arg-type]


@pytest.mark.parametrize("byte", [0, 1, 99])
def test_a_skipped_ddl_is_not_queued_and_its_rows_go_on_with_their_structure(byte: int) -> None:
    found = made("alter t_1 B", order(CommandKind.SKIP, 1, byte=byte))
    assert holds(found) == [("seg-0", "t_1", "A", None), ("seg-2", "t_1", "B", None)]
    assert found.queued == () and [change.structure for change in found.structures] == ["B"]
    assert [(one.number, one.location) for one in found.applied_commands] == [(1, at(1))] and found.orders == (1,)


def test_a_command_applies_only_to_its_statement() -> None:
    segments = [ddl(0, "alter t_1 B"), ddl(1, "alter t_2 B")]
    found = plan(segments, [state(T1), state(T2)], commands=(order(CommandKind.SKIP, 1),))
    assert [one.shard.table for one in found.queued] == [T1]
    elsewhere = StatementCommand(1, CommandKind.SKIP, StatementPlace("s1", Location("b.000002", at(1).position)))
    found = plan(segments, [state(T1), state(T2)], commands=(elsewhere,))
    assert len(found.queued) == 2 and found.applied_commands == () and found.orders == (1,)


@pytest.mark.parametrize(
    ("text", "structures", "makes"),
    [
        ("odd t_1", [""], []),
        ("odd-new t_9", [""], []),
        ("create t_9 A", ["A"], [False]),
        ("drop t_1", [None], []),
        ("truncate t_1", [], []),
    ],
)
def test_what_is_left_of_a_skipped_statement(text: str, structures: list, makes: list) -> None:
    found = plan([ddl(0, text)], [state(T1)], commands=(order(CommandKind.SKIP, 0),), target_of=TARGET_OF)
    assert [change.structure for change in found.structures] == structures
    assert [change.makes_target for change in found.structures if change.joins and not change.is_mismatched] == makes
    assert len(found.queued) == text.startswith("odd")


TARGET_OF = {TableId("shop_1", f"t_{number}"): TableId("shop", "t") for number in (1, 2, 9)}.get


@pytest.mark.parametrize(("text", "is_asked"), [("odd t_1", True), ("alter t_1 B", False)])
def test_rows_after_a_skipped_ddl_of_unknown_effect_wait_for_their_structure(text: str, is_asked: bool) -> None:
    waits = {} if is_asked else {"structure": "", "queue": (entry(T1, 1, after=""),), "last_seq": 1}
    found = made(text, order(CommandKind.SKIP, 1), **waits)
    (queued,) = found.queued
    assert (queued.state, queued.verdict, queued.after) == (EntryState.RESOLVED, OperatorDecision.SKIP, "")
    assert bool(queued.reason) == is_asked and holds(found)[-1] == ("seg-2", "t_1", "", queued.seq)


@pytest.mark.parametrize(("text", "after"), [("alter t_1 B", "B"), ("odd t_1", "")])
def test_a_replaced_ddl_counts_as_the_statements(text: str, after: str) -> None:
    found = made(text, order(CommandKind.REPLACE, 1, REPLACED, "drop index i on shop.t"))
    (queued,) = found.queued
    assert queued.replacement == (ROUTED, "drop index i on `shop`.`t`") and queued.verdict is OperatorDecision.REPLACE
    assert (queued.reason, queued.before, queued.after, queued.statement.text) == ("", "A", after, text)
    assert holds(found)[1] == ("seg-2", "t_1", after, 1)


def test_injected_statements_come_before_the_ddl_itself() -> None:
    real = "alter table t_1 add d int"

    def known(statement, present):
        return [Coordinated(T1, "alter table `shop`.`t` add d int", "add d int", "B")]

    found = plan([ddl(0, real)], [state(T1)], commands=(order(CommandKind.INJECT, 0, REPLACED),), effects=known)
    assert found.queued[0].replacement == (ROUTED, "alter table `shop`.`t` add d int")


@pytest.mark.parametrize(
    ("text", "statement", "why"),
    [
        ("drop t_1", REPLACED, "no shard's structure"),
        ("create t_9 A", REPLACED, "no shard's structure"),
        ("alter t_1 B", "delete from t_1", "change of rows"),
        ("alter t_1 B", "alter table x add c int", "neither"),
    ],
)
def test_a_replacement_that_does_not_fit_stops_before_the_statement(text: str, statement: str, why: str) -> None:
    one = order(CommandKind.REPLACE, 1, statement)
    found = plan([rows(0, T1), ddl(1, text)], [state(T1)], commands=(one,), target_of=TARGET_OF)
    assert found.ends == at(1)
    with pytest.raises(CommandUnfit, match=why):
        plan([ddl(1, text)], [state(T1)], commands=(one,), target_of=TARGET_OF)


def test_rows_where_a_statement_is_expected_stop_the_window_before_them() -> None:
    one = order(CommandKind.SKIP, 1)
    assert plan([rows(0, T1), rows(1, T1)], [state(T1)], commands=(one,)).ends == at(1)
    with pytest.raises(CommandAtNoStatement, match="command 1"):
        plan([rows(1, T1)], [state(T1)], commands=(one,))


def test_a_command_takes_precedence_over_the_filters() -> None:
    def filtered(statement, present):
        raise CommandUnfit(0, "", "", "a filter's error")

    found = plan(
        [ddl(0, "alter t_1 B")], [state(T1)], commands=(order(CommandKind.SKIP, 0),), effects=filtered, ordered=effects
    )
    assert found.queued == () and found.ends == at(1)


def test_a_gtid_in_a_history_that_is_not_known_stops_the_window() -> None:
    one = StatementCommand(1, CommandKind.SKIP, StatementPlace("s1", gtid="0-1-5"))
    with pytest.raises(HistoryUnknown):
        plan([ddl(0, "alter t_1 B")], [state(T1)], commands=(one,), history="0-1-4")
    known = replace(ddl(0, "alter t_1 B"), gtid="0-1-5")
    with pytest.raises(HistoryUnknown):
        plan([known], [state(T1)], commands=(one,))
    assert plan([known], [state(T1)], commands=(one,), history="0-1-4").queued == ()


MYSQL = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


@pytest.mark.parametrize(
    ("gtid", "before", "after", "is_in"),
    [
        ("0-1-5", "0-1-4", "0-1-5", True),
        ("0-1-5", "0-1-5", "0-1-6", False),
        ("0-1-5", "0-1-3", "0-1-4", False),
        ("0-2-5", "0-1-4,1-1-9", "0-2-5,1-1-9", True),
        ("1-1-5", "0-1-4", "0-1-5", False),
        ("0-1-5", "", "0-1-5", False),
        ("1-1-1", "0-1-4", "0-1-4,1-1-1", True),
        (f"{MYSQL}:5", f"{MYSQL}:1-4", f"{MYSQL}:1-5", True),
        (f"{MYSQL}:5", f"{MYSQL}:1-5", f"{MYSQL}:1-6", False),
        ("0-1-5", f"{MYSQL}:1-4", f"{MYSQL}:1-5", False),
    ],
)
def test_where_a_gtid_is(gtid: str, before: str, after: str, is_in: bool) -> None:
    assert is_between(gtid, before, after) == is_in


def test_an_undecided_ddl_whose_structure_is_known_is_followed() -> None:
    def mapped(statement, present):
        return [Undecided(T1, "touches a mapped column", "r", "a", after="B")]

    found = plan([ddl(0, "x"), rows(1, T1)], [state(T1)], commands=(order(CommandKind.SKIP, 0),), effects=mapped)
    assert holds(found) == [("seg-1", "t_1", "B", None)]
