"""The filter for the comparison of a target with its shards, derived from the condition of a dump."""

import pytest

from unshard.core.rules.filters import ALL_ROWS, ValidationFilter, look_through, refused


@pytest.mark.parametrize(
    ("conditions", "changed", "looked"),
    [
        ({"s1": "", "s2": ""}, {"a"}, ALL_ROWS),
        ({"s1": "a > 1", "s2": "a > 1"}, {"b"}, ValidationFilter("a > 1")),
        (
            {"s1": "a > 1", "s2": ""},
            set(),
            ValidationFilter(why_not="the sources have different conditions (s1: `a > 1`, s2: `TRUE`)"),
        ),
        (
            {"s1": "A > b"},
            {"a", "b", "c"},
            ValidationFilter(why_not="`A > b` names columns whose values differ in the target: a, b"),
        ),
    ],
)
def test_a_condition_is_looked_through_that_says_the_same_everywhere(
    conditions: dict[str, str], changed: set[str], looked: ValidationFilter
) -> None:
    assert look_through(conditions, changed) == looked


def test_a_place_that_cannot_tell_lets_all_rows_be_compared() -> None:
    looked = ValidationFilter("a > 1")
    assert refused(looked, {}) == looked
    assert refused(looked, {"target": "no a", "s1 d.t": "no b"}) == ValidationFilter(
        why_not="s1 d.t cannot evaluate `a > 1`: no b"
    )
    assert refused(ALL_ROWS, {"target": "no a"}) == ALL_ROWS
