"""The rate limit: readers that wait as told never read more than the rate allows, in any order of readers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unshard.core.full.fullprogress import BURST_SECONDS, take

RATE = 1000


@pytest.mark.parametrize(
    ("paid", "now", "size", "want"),
    [
        (0, 100, 500, (99.5, 0)),
        (0, 100, 1000, (100, 0)),
        (0, 100, 3000, (102, 2)),
        (102, 100, 1000, (103, 3)),
        (99.9, 100, 1000, (100.9, 0.9)),
    ],
)
def test_take(paid: float, now: float, size: int, want: tuple[float, float]) -> None:
    assert take(paid, now, size, RATE) == pytest.approx(want)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5000), st.floats(0, 3)), min_size=1, max_size=60))
def test_readers_together_stay_within_the_rate(steps: list[tuple[int, int, float]]) -> None:
    paid, ready, reads = 0.0, [1e6] * 4, []
    for reader, size, idle in steps:
        # The reader that is free first is the next to ask: the clock of the server only goes forward.
        reader = min(range(4), key=lambda each: ready[each])  # noqa: PLW2901
        now = max(ready[reader] + idle, reads[-1][0] if reads else 0)
        paid, wait = take(paid, now, size, RATE)
        ready[reader] = now + wait
        reads.append((now, size))
    began = reads[0][0]
    largest = max(size for _, size in reads)
    for number, (now, _) in enumerate(reads):
        allowed = RATE * (now - began + BURST_SECONDS) + 4 * largest
        assert sum(size for _, size in reads[: number + 1]) <= allowed + 1e-3
