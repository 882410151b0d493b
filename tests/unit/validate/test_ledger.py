"""Which ranges a validation compares."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from unshard.core.sql.keyrange import KeyRange
from unshard.core.validate.ledger import JudgedRange, RangeFound, RangeVerdict, chosen

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
BOUNDS = [None, *((bytes([number]),) for number in range(1, 9)), None]


@st.composite
def ledgers(draw) -> list[JudgedRange]:
    """Ranges that follow one another, of which some are missing and some were divided in part."""
    cuts = sorted(draw(st.sets(st.integers(1, 8))))
    spans = [span for span in pairwise((0, *cuts, 9)) if draw(st.integers(0, 9))]
    if spans and draw(st.booleans()):
        spans.append((spans[0][0], 9))  # a range that was divided later
    by_lower = dict(spans)
    return [
        JudgedRange(
            KeyRange(BOUNDS[lower], BOUNDS[upper]),
            RangeFound(10, draw(st.sampled_from(RangeVerdict))),
            draw(st.integers(1, 2)),
            BEGAN + timedelta(minutes=draw(st.integers(0, 99))),
        )
        for lower, upper in by_lower.items()
    ]


@given(ledgers())
def test_every_key_is_compared_or_proven_exactly_once(known: list[JudgedRange]) -> None:
    found = chosen(known, lambda each: each.round == 2)
    spans = [*found.due, *(each.span for each in found.left_out)]
    for key in range(1, 11):
        value = (bytes([key]),)
        holding = [
            each for each in spans if (each.lower or (b"",)) < value and (each.upper is None or value <= each.upper)
        ]
        assert len(holding) == 1, (key, spans)
    assert all(each.round == 2 and each.found.verdict is RangeVerdict.EQUAL for each in found.left_out)
    assert {each.span for each in known} == {each.span for each in (*found.stale, *found.left_out)} | (
        {*found.due} & {each.span for each in known}
    )


def test_nothing_known_is_compared_whole_and_the_oldest_first() -> None:
    assert chosen([], lambda _: True).due == (KeyRange(),)
    middle = (b"5",)
    young = JudgedRange(KeyRange(None, middle), RangeFound(1, RangeVerdict.PENDING), 1, BEGAN + timedelta(hours=1))
    old = JudgedRange(KeyRange(middle, None), RangeFound(1, RangeVerdict.EQUAL), 1, BEGAN)
    assert chosen([young, old], lambda _: False).due == (old.span, young.span)
    assert chosen([young], lambda _: False).due == (KeyRange(middle), young.span), "what is not known comes first"
