"""Through which condition of a dump a target is compared with its shards."""

import pytest

from unshard.core.dumpcondition import ALL_ROWS, LookedThrough, look_through, refused


@pytest.mark.parametrize(("conditions", "changed", "looked"), [
    ({"s1": "", "s2": ""}, {"a"}, ALL_ROWS),
    ({"s1": "a > 1", "s2": "a > 1"}, {"b"}, LookedThrough("a > 1")),
    ({"s1": "a > 1", "s2": ""}, set(), LookedThrough(
        why_not="its sources have different ones (s1: `a > 1`, s2: `TRUE`)")),
    ({"s1": "A > b"}, {"a", "b", "c"}, LookedThrough(why_not="`A > b` names what the target has otherwise: a, b")),
])  # fmt: skip
def test_a_condition_is_looked_through_that_says_the_same_everywhere(
    conditions: dict[str, str], changed: set[str], looked: LookedThrough
) -> None:
    assert look_through(conditions, changed) == looked


def test_a_place_that_cannot_tell_lets_all_rows_be_compared() -> None:
    looked = LookedThrough("a > 1")
    assert refused(looked, {}) == looked
    assert refused(looked, {"target": "no a", "s1 d.t": "no b"}) == LookedThrough(
        why_not="s1 d.t cannot evaluate `a > 1`: no b"
    )
    assert refused(ALL_ROWS, {"target": "no a"}) == ALL_ROWS
