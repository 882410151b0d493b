"""Persisted values are read back equal, or reading raises an error."""

import dataclasses
from enum import StrEnum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unshard.core import codec
from unshard.core.ddl.queue import QueueEntry
from unshard.core.window.plan import Plan

PLANS = st.builds(Plan)


@pytest.mark.slow
@given(PLANS)
def test_a_plan_comes_back_equal(plan: Plan) -> None:
    assert codec.loads(Plan, codec.dumps(plan)) == plan


@given(st.builds(QueueEntry))
def test_a_queue_entry_comes_back_equal(entry: QueueEntry) -> None:
    assert codec.loads(QueueEntry, codec.dumps(entry)) == entry


class Colour(StrEnum):
    RED = "red"


@dataclasses.dataclass(frozen=True)
class Old:
    name: str
    colour: Colour


@dataclasses.dataclass(frozen=True)
class New:
    name: str
    colour: Colour
    pairs: tuple[tuple[str, int | None], ...] = ()


def test_a_value_of_before_a_field_existed_is_read() -> None:
    assert codec.loads(New, codec.dumps(Old("é", Colour.RED))) == New("é", Colour.RED)


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "a"}',
        '{"name": "a", "colour": "red", "more": 1}',
        '{"name": 1, "colour": "red"}',
        '{"name": null, "colour": "red"}',
        '{"name": "a", "colour": "blue"}',
        '{"name": "a", "colour": "red", "pairs": [["a", 1, 2]]}',
        '{"name": "a", "colour": "red", "pairs": [["a", true]]}',
        '{"name": "a", "colour": "red", "pairs": "ab"}',
        '["a", "red"]',
        "no JSON",
    ],
)
def test_what_does_not_fit_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        codec.loads(New, text)
