"""Progress of the full load: never backwards, whatever ends in which order, and honest about speed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unshard.core.fullload import RECENT, Finished, Part, Progress, progress_of, weights

TABLE = [
    ("no chunks yet", [], Progress()),
    ("nothing done", [Part(5), Part(5)], Progress(chunks=2)),
    ("one of two at a time", [Part(30, Finished(10, 100, 7, 2)), Part(60)],
     Progress(2, 1, 10, 100, 33.3, 5, 50, 4)),
    ("two side by side", [Part(10, Finished(10, 100, 7, 2)), Part(10, Finished(10, 100, 7, 2)), Part(20)],
     Progress(3, 2, 20, 200, 50, 10, 100, 2)),
    ("a night between two", [Part(10, Finished(10, 0, 2, 2)), Part(10, Finished(10, 0, 90_000, 2)), Part(20)],
     Progress(3, 2, 20, 0, 50, 5, 0, 4)),
    ("an older version timed nothing", [Part(1, Finished(10, 100)), Part(1)], Progress(2, 1, 10, 100, 50)),
    ("a little is missing", [Part(100_000, Finished(1, 1, 1, 1)), Part(1)],
     Progress(2, 1, 1, 1, 99.9, 1, 1, 1)),
    ("all done", [Part(3, Finished(4, 8, 1, 1)), Part(1, Finished(0, 0, 2, 1))],
     Progress(2, 2, 4, 8, 100, 2, 4, 0)),
]  # fmt: skip


@pytest.mark.parametrize(("parts", "want"), [case[1:] for case in TABLE], ids=[case[0] for case in TABLE])
def test_progress(parts: list[Part], want: Progress) -> None:
    assert progress_of(parts) == want


chunk = st.tuples(st.integers(1, 10**12), st.integers(0, 10**9), st.floats(0.001, 1e5), st.floats(0, 1e5))


@given(st.lists(chunk, min_size=1, max_size=30), st.randoms(use_true_random=False))
def test_percent_never_falls_in_whatever_order_chunks_end(chunks: list[tuple[int, int, float, float]], dice) -> None:
    """Chunks bring other amounts than they weigh: tables grow and shrink under the dump; pauses are restarts."""
    parts, now, before = [Part(weight) for weight, *_ in chunks], 0.0, Progress()
    for place in dice.sample(range(len(chunks)), len(chunks)):
        weight, rows, seconds, pause = chunks[place]
        now += seconds + pause
        parts[place] = Part(weight, Finished(rows, rows * 7, now, seconds))
        after = progress_of(parts)
        assert after.percent >= before.percent
        assert (after.rows, after.bytes, after.done) >= (before.rows, before.bytes, before.done)
        assert (after.percent == 100) == (after.done == after.chunks) == (after.seconds_left == 0)
        before = after


@given(st.lists(st.integers(1, 10**6), min_size=2, max_size=2 * RECENT), st.floats(0, 1e6))
def test_what_is_left_only_shrinks_at_one_speed_however_long_nobody_works(weight: list[int], pause: float) -> None:
    parts, now, left = [Part(each) for each in weight], 0.0, None
    for place, each in enumerate(weight):
        now += each / 1000 + (pause if place % 3 == 2 else 0)
        parts[place] = Part(each, Finished(each, each, now, each / 1000))
        found = progress_of(parts)
        assert left is None or found.seconds_left <= left + 1, "rounding up apart"
        left = found.seconds_left


def test_speed_is_that_of_the_last_chunks() -> None:
    slow = [Part(1, Finished(1, 1, end, 1)) for end in range(1, 100)]
    fast = [Part(1, Finished(9, 9, 99 + end, 1)) for end in range(1, RECENT + 1)]
    assert progress_of([*fast, *slow]).rows_per_second == 9


@given(st.integers(0, 10**15), st.integers(1, 5000))
def test_weights_share_a_table_out(size: int, chunks: int) -> None:
    found = weights(size, chunks)
    assert len(found) == chunks and min(found) >= 1
    assert abs(sum(found) - size) <= 2 * chunks


def test_for_people() -> None:
    assert str(progress_of(TABLE[2][1])) == "33.3 %, 10 rows, 100 B, 5 rows/s, 50 B/s, 4 s left"
    assert str(Progress(2, 2, 3, 2048, 100, 1, 2, 0)) == "100 %, 3 rows, 2.0 KiB, 1 rows/s, 2 B/s"
    assert str(Progress(2)) == "0 %, 0 rows, 0 B"
