"""Progress of the full load: it never decreases, for any order of chunks, and the speed is correct."""

from collections.abc import Sequence
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unshard.core.full.fullprogress import (
    RECENT,
    Finished,
    FinishedChunk,
    Progress,
    Tally,
    UnderWay,
    progress_of,
    weights,
)
from unshard.core.shown import amount


class Chunk(NamedTuple):
    """A chunk, finished or not."""

    weight: int
    finished: Finished | None = None


def progress(chunks: Sequence[Chunk]) -> Progress:
    """Return the sums over all chunks and the last finished ones, as a store of chunks does."""
    done = [FinishedChunk(each.weight, each.finished) for each in chunks if each.finished]
    tally = Tally(
        len(chunks),
        sum(each.weight for each in chunks),
        len(done),
        sum(part.weight for part in done),
        sum(part.finished.rows for part in done),
        sum(part.finished.bytes for part in done),
    )
    return progress_of(tally, sorted(done, key=lambda part: part.finished.ended)[-RECENT:])


TABLE = [
    ("no chunks yet", [], Progress()),
    ("nothing done", [Chunk(5), Chunk(5)], Progress(chunks=2)),
    ("one of two at a time", [Chunk(30, Finished(10, 100, 7, 2)), Chunk(60)], Progress(2, 1, 10, 100, 33.3, 5, 50, 4)),
    (
        "two side by side",
        [Chunk(10, Finished(10, 100, 7, 2)), Chunk(10, Finished(10, 100, 7, 2)), Chunk(20)],
        Progress(3, 2, 20, 200, 50, 10, 100, 2),
    ),
    (
        "a night between two",
        [Chunk(10, Finished(10, 0, 2, 2)), Chunk(10, Finished(10, 0, 90_000, 2)), Chunk(20)],
        Progress(3, 2, 20, 0, 50, 5, 0, 4),
    ),
    ("an older version timed nothing", [Chunk(1, Finished(10, 100)), Chunk(1)], Progress(2, 1, 10, 100, 50)),
    ("a little is missing", [Chunk(100_000, Finished(1, 1, 1, 1)), Chunk(1)], Progress(2, 1, 1, 1, 99.9, 1, 1, 1)),
    ("all done", [Chunk(3, Finished(4, 8, 1, 1)), Chunk(1, Finished(0, 0, 2, 1))], Progress(2, 2, 4, 8, 100, 2, 4, 0)),
]


@pytest.mark.parametrize(("parts", "want"), [case[1:] for case in TABLE], ids=[case[0] for case in TABLE])
def test_progress(parts: list[Chunk], want: Progress) -> None:
    assert progress(parts) == want


chunk = st.tuples(st.integers(1, 10**12), st.integers(0, 10**9), st.floats(0.001, 1e5), st.floats(0, 1e5))


@given(st.lists(chunk, min_size=1, max_size=30), st.randoms(use_true_random=False))
def test_percent_never_falls_for_any_order_of_chunks(chunks: list[tuple[int, int, float, float]], dice) -> None:
    """Chunks have other sizes than their weights, because tables change during the dump; pauses are restarts."""
    parts, now, before = [Chunk(weight) for weight, *_ in chunks], 0.0, Progress()
    for place in dice.sample(range(len(chunks)), len(chunks)):
        weight, rows, seconds, pause = chunks[place]
        now += seconds + pause
        parts[place] = Chunk(weight, Finished(rows, rows * 7, now, seconds))
        after = progress(parts)
        assert after.percent >= before.percent
        assert (after.rows, after.bytes, after.done) >= (before.rows, before.bytes, before.done)
        assert (after.percent == 100) == (after.done == after.chunks) == (after.seconds_left == 0)
        before = after


@given(st.lists(st.integers(1, 10**6), min_size=2, max_size=2 * RECENT), st.floats(0, 1e6))
def test_the_remaining_time_only_decreases_at_constant_speed_despite_pauses(weight: list[int], pause: float) -> None:
    parts, now, left = [Chunk(each) for each in weight], 0.0, None
    for place, each in enumerate(weight):
        now += each / 1000 + (pause if place % 3 == 2 else 0)
        parts[place] = Chunk(each, Finished(each, each, now, each / 1000))
        found = progress(parts)
        assert left is None or found.seconds_left <= left + 1, "rounding up apart"
        left = found.seconds_left


def test_speed_is_that_of_the_last_chunks() -> None:
    slow = [Chunk(1, Finished(1, 1, end, 1)) for end in range(1, 100)]
    fast = [Chunk(1, Finished(9, 9, 99 + end, 1)) for end in range(1, RECENT + 1)]
    assert progress([*fast, *slow]).rows_per_second == 9


@given(st.integers(0, 10**15), st.integers(1, 5000))
def test_weights_share_a_table_out(size: int, chunks: int) -> None:
    found = weights(size, chunks)
    assert len(found) == chunks and min(found) >= 1
    assert abs(sum(found) - size) <= 2 * chunks


def test_for_people() -> None:
    assert str(progress(TABLE[2][1])) == "33.3 %, 10 rows, 100 B, 5 rows/s, 50 B/s, 4 s left"
    assert str(Progress(2, 2, 3, 2048, 100, 1, 2, 0)) == "100 %, 3 rows, 2.0 KiB, 1 rows/s, 2 B/s"
    assert str(Progress(2)) == "0 %, 0 rows, 0 B"


HALF = UnderWay(60, 100, 50)


@pytest.mark.parametrize(
    ("name", "done", "under_way", "percent", "rows", "left"),
    [
        ("half of the only chunk", 0, [HALF], 50.0, 50, None),
        ("more than was dumped", 0, [UnderWay(60, 100, 150)], 99.9, 100, None),
        ("two at a time", 0, [HALF, UnderWay(60, 10, 1)], 30.0, 51, None),
        ("an empty chunk", 0, [UnderWay(60, 0, 0)], 0, 0, None),
        ("one done, one half", 1, [HALF], 75.0, 50, 1),
        ("all done, an old row is left", 2, [HALF], 100.0, 0, 0),
    ],
)
def test_rows_of_unfinished_chunks_count(name: str, done: int, under_way, percent, rows, left) -> None:
    chunks = max(2 if done else 1, len(under_way))
    recent = [FinishedChunk(60, Finished(100, 1000, 10 + each, 2)) for each in range(done)]
    found = progress_of(Tally(chunks, 60 * chunks, done, 60 * done, 100 * done), recent, under_way)
    assert (found.percent, found.rows_under_way, found.rows, found.seconds_left) == (percent, rows, 100 * done, left)
    assert (f"{amount(100 * done)} rows and {rows} under way" in str(found)) == bool(rows)
