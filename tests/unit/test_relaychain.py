"""Which segments follow each other: laws over cuts of one binlog, and the cases with holes."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unshard.core.model import Location
from unshard.core.relaychain import chain, longest_run
from unshard.core.segment import Segment
from unshard.errors.relay import RelayGap


def segment(start: int, end: int, file: str = "b.000001", next_file: str = "") -> Segment:
    return Segment("s1", file, start, end, f"{file}.{start}-{end}.seg", "", 0, 0, (), None, next_file)


def at(position: int, file: str = "b.000001") -> Location:
    return Location(file, position)


def cut(borders: list[int]) -> list[Segment]:
    return [segment(start, end) for start, end in itertools.pairwise(borders)]


cuts = st.sets(st.integers(5, 60), min_size=1).map(lambda inner: cut([4, *sorted(inner)]))


@given(st.lists(cuts, min_size=1, max_size=4), st.randoms())
def test_any_pulls_give_the_longest_contiguous_run(pulls, random):
    stored = list({s.name: s for pull in pulls for s in pull}.values())
    random.shuffle(stored)
    run = longest_run(stored, at(4))
    assert run[0].begins == at(4)
    assert all(one.ends == other.begins for one, other in itertools.pairwise(run))
    assert run[-1].end == max(s.end for s in stored)


def test_the_run_that_reaches_further_wins():
    one, two = cut([4, 900]), cut([4, 500, 1000])
    assert longest_run(one + two, at(4)) == tuple(two)


def test_goes_on_in_the_next_file_also_without_bytes():
    first, bridge = segment(4, 90), segment(90, 90, next_file="b.000002")
    second = segment(4, 50, "b.000002")
    assert chain([second, bridge, first], at(4)) == (first, bridge, second)


def test_files_are_ordered_by_number():
    old, new = segment(4, 9, "b.999999", "b.1000000"), segment(4, 9, "b.1000000")
    assert chain([new, old], at(4, "b.999999")) == (old, new)


def test_nothing_stored_is_no_gap():
    assert chain([], at(4)) == ()
    assert chain(cut([4, 50]), at(50)) == ()


@pytest.mark.parametrize("start", [4, 20, 60])
def test_a_hole_is_an_error(start):
    stored = [segment(4, 60), segment(90, 100)]
    with pytest.raises(RelayGap) as caught:
        chain(stored, at(start))
    assert caught.value.following == "b.000001:90"
    assert longest_run(stored, at(start)) == tuple(stored[:1] if start == 4 else ())
