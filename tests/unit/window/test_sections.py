"""Sections of a window: which windows have more than one, where they end, and what is left if one of them fails."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from tests.unit.window.test_planning import OTHER, SIZE, T1, T2, TARGET, at, ddl, entry, held, plan, rows, state
from unshard.core.model import TableId
from unshard.core.relay.segment import Commit, Prepared, Segment
from unshard.core.window.plan import Plan
from unshard.core.window.windowplanning import MOST_DISPOSITIONS

SEVERAL = {"size": 2 * SIZE, "sections": 3}
SHARDS = [state(T1), state(T2)]
BACKLOG = [rows(number, T1, T2) for number in range(10)]


def borders(made: Plan) -> list[tuple[int, str, int]]:
    return [(border.reads, border.gtid, border.last_time) for border in made.borders]


def test_a_backlog_of_rows_has_sections_of_the_size_of_a_window() -> None:
    made = plan(BACKLOG, SHARDS, **SEVERAL)
    assert borders(made) == [(2, "g1", 11), (4, "g3", 13)]
    assert [border.ends for border in made.borders] == [at(2), at(4)]
    assert (made.ends, made.number, made.last_number) == (at(6), 5, 7)
    without = plan(BACKLOG, SHARDS, size=2 * SIZE)
    assert not without.borders and without.last_number == without.number


def test_what_is_left_before_a_border_is_the_plan_of_fewer_sections() -> None:
    made = plan(BACKLOG, SHARDS, **SEVERAL)
    for sections in (1, 2):
        assert made.until(sections) == plan(BACKLOG, SHARDS, **{**SEVERAL, "sections": sections})


def test_the_end_of_the_backlog_ends_the_last_section() -> None:
    assert not plan(BACKLOG[:2], SHARDS, **SEVERAL).borders
    three = plan(BACKLOG[:3], SHARDS, **SEVERAL)
    assert (borders(three), three.ends) == ([(2, "g1", 11)], at(3))


def test_segments_without_rows_of_the_task_take_no_room() -> None:
    given = [rows(0, T1), rows(1, OTHER), rows(2, T1), rows(3, OTHER), rows(4, T1), rows(5, OTHER)]
    made = plan(given, SHARDS, **SEVERAL)
    assert borders(made) == [(2, "g3", 13)], "the border is as late as possible"
    assert made.ends == at(6)


@pytest.mark.parametrize("number", range(7))
def test_a_window_with_a_ddl_has_one_section(number: int) -> None:
    """A DDL in the first section is part of the window; one after it begins the next window."""
    given = [ddl(n, "alter t_1 B") if n == number else rows(n, T2) for n in range(7)]
    made = plan(given, SHARDS, **SEVERAL)
    if number < 3:
        assert made.queued and not made.borders
        assert made.ends == at(3)
    else:
        assert not made.queued and made.ends == at(min(number, 6)) and made.borders


def test_a_statement_without_effect_is_no_reason_to_end() -> None:
    given = [*(rows(n, T1) for n in range(3)), ddl(3, "alter x B"), rows(4, T1), rows(5, T1)]
    made = plan(given, SHARDS, **SEVERAL)
    assert borders(made) == [(2, "g1", 11), (4, "g4", 14)] and made.ends == at(6)


def test_rows_of_a_second_target_end_the_window() -> None:
    second = TableId("shop_1", "u")
    given = [*(rows(n, T1) for n in range(4)), rows(4, T1, second), rows(5, T1)]
    shards = [*SHARDS, replace(state(second), target=TableId("shop", "u"))]
    targets = {T1: TARGET, T2: TARGET, second: TableId("shop", "u")}
    made = plan(given, shards, **SEVERAL, target_of=targets.get)
    assert made.ends == at(4) and len(made.borders) == 1
    both = plan(list(reversed_numbers(given)), shards, **SEVERAL, target_of=targets.get)
    assert both.ends == at(2) and not both.borders


def reversed_numbers(segments: Sequence[Segment]) -> list[Segment]:
    """Return the ranges of the segments in the opposite order."""
    pairs = zip(segments, reversed(segments), strict=True)
    return [replace(segment, ranges=other.ranges) for segment, other in pairs]


def test_a_prepared_transaction_ends_the_window() -> None:
    prepared = Prepared("xid", "seg-0", "b.000001", 10, 20, ((T1, 1),))
    given = list(BACKLOG[:6])
    given[3] = replace(given[3], commits=(Commit(prepared, at(3).position + 50),))
    made = plan(given, SHARDS, **SEVERAL)
    assert made.ends == at(3) and len(made.borders) == 1


@pytest.mark.parametrize(
    "rules",
    [
        {"force_safe": True},
        {"safe_until": at(9)},
        {"stopped": frozenset({TARGET})},
    ],
    ids=["safe mode", "rows that the dump may have", "a suspended target"],
)
def test_other_rules_allow_one_section(rules: Mapping[str, object]) -> None:
    made = plan(BACKLOG, SHARDS, **SEVERAL, **rules)
    assert not made.borders and made.ends == at(2)


@pytest.mark.parametrize(
    "shards",
    [
        [state(T1, held=(held(T1, 1),), last_seq=1), state(T2)],
        [state(T1, queue=(entry(T1, 1),), last_seq=1), state(T2)],
        [state(T1, is_dropped=True, queue=(entry(T1, 1),)), state(T2)],
        [state(T1, ""), state(T2)],
    ],
    ids=["held rows are released", "a DDL is pending", "a dropped shard", "an unknown structure"],
)
def test_other_shards_allow_one_section(shards) -> None:
    made = plan(BACKLOG, shards, **SEVERAL)
    assert not made.borders and made.ends <= at(2)


def test_a_plan_does_not_become_too_large_for_a_row_of_the_meta_tables() -> None:
    tables = [TableId("shop_1", f"t_{number}") for number in range(MOST_DISPOSITIONS // 3 + 1)]
    given = [rows(number, *tables) for number in range(6)]
    made = plan(given, [state(table) for table in tables], SIZE, sections=6, target_of=lambda _: TARGET)
    assert made.ends == at(2) and len(made.borders) == 1


def test_work_that_is_due_every_so_many_sections_is_not_missed() -> None:
    made = plan(BACKLOG, SHARDS, **SEVERAL)
    assert (made.number, made.last_number) == (5, 7)
    assert [every for every in range(1, 10) if made.reaches_multiple(every)] == [1, 2, 3, 5, 6, 7]
