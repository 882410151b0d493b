"""The size of ranges, and the rests between them."""

import pytest

from unshard.core.model import Location
from unshard.core.validate.pace import (
    MOST_WAITING,
    MOVES_SECONDS,
    RESTS,
    Rest,
    SeenSource,
    SeenWindows,
    rest,
    rows_of_next_range,
)

BOUNDS = (1_000, 50_000)
FIRST, LATER = Location("log.000001", 4), Location("log.000001", 900)


@pytest.mark.parametrize(
    ("rows", "compared", "seconds", "wanted"),
    [
        (10_000, 10_000, 0.5, 10_000),
        (10_000, 10_000, 0.8, 6_250),
        (10_000, 10_000, 60.0, 5_000),
        (10_000, 20_000, 1.6, 6_250),
        (10_000, 10_000, 0.01, 20_000),
        (10_000, 0, 0.0, 5_000),
        (40_000, 40_000, 0.01, 50_000),
        (1_200, 1_200, 9.0, 1_000),
    ],
)
def test_a_range_takes_half_a_second(rows: int, compared: int, seconds: float, wanted: int) -> None:
    assert rows_of_next_range(rows, compared, seconds, BOUNDS) == wanted


def seen(*looks: tuple[float, Location, float], at_work: bool = False) -> SeenWindows:
    found = SeenWindows({}, {})
    for now, checkpoint, lag in looks:
        found = found.after({"s1": SeenSource(checkpoint, lag, at_work)}, now)
    return found


def test_no_rest_for_windows_that_do_not_run() -> None:
    assert rest(seen(), 0, 1.0, RESTS) == Rest(0.0)
    assert rest(seen((0, FIRST, 0.0), (1, FIRST, 60.0)), 1, 1.0, RESTS) == Rest(0.0)
    assert rest(seen((0, FIRST, 0.0), (1, LATER, 60.0)), 2 + MOVES_SECONDS, 1.0, RESTS) == Rest(0.0), (
        "they have stopped"
    )


def test_windows_that_run_have_most_of_the_time() -> None:
    assert rest(seen((0, FIRST, 3.0), (1, LATER, 5.0)), 1, 0.2, RESTS) == Rest(0.2 * RESTS, is_beside=True)
    assert rest(seen((0, FIRST, 3.0), at_work=True), 1, 0.2, RESTS) == Rest(0.2 * RESTS, is_beside=True), (
        "one is at work"
    )


def test_a_comparison_with_a_rate_rests_for_no_window() -> None:
    assert rest(seen((0, FIRST, 3.0), (1, LATER, 5.0)), 1, 0.2, RESTS, has_rate=True) == Rest(0.0)


def test_windows_whose_lag_has_grown_are_waited_for() -> None:
    looks = [(0, FIRST, 3.0), (1, LATER, 9.0)]
    assert rest(seen(*looks), 1, 0.2, RESTS) == Rest(0.2 * RESTS * 2, ("s1",), is_beside=True)
    assert rest(seen(*looks), 1, 0.2, RESTS, has_rate=True) == Rest(0.2 * RESTS * 2, ("s1",))
    assert rest(seen(*looks), 1, 0.01, RESTS).seconds == 0.01 * RESTS * 2
    assert rest(seen(*looks), 1, 9.0, RESTS, has_rate=True).seconds == MOST_WAITING
    assert rest(seen(*looks), 1, 9.0, 0.0).seconds == 0
    assert rest(seen(*looks, (2, LATER, 4.0)), 2, 0.2, RESTS) == Rest(0.2 * RESTS, is_beside=True), "it has fallen"
