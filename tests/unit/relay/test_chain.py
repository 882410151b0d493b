"""Which segments follow each other: properties for any division of one binlog, and the cases with gaps."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.binlogfiles import links_of
from unshard.core.model import Location
from unshard.core.relay.segment import Segment, chain, longest_run
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


FILES = ("b.000001", "b.000002", "b@1.000001")
REACHES = (30, 20, 40)


def one_pull(random: Random) -> list[Segment]:
    """Divide three binlog files, from any position in the first to any in the last; some end in an empty segment."""
    found: list[Segment] = []
    begin, last = random.randint(4, REACHES[0]), random.choice((0, 1, 2, 2))
    for number, (file, reach) in enumerate(zip(FILES[: last + 1], REACHES, strict=False)):
        first = begin if not number else 4
        end = random.randint(first, reach) if number == last else reach
        borders = sorted({first, *(random.randint(first, end) for _ in range(5)), end})
        found += [segment(one, other, file) for one, other in itertools.pairwise(borders)]
        if number < last and found and found[-1].file == file and random.random() < 0.5:
            found[-1] = replace(found[-1], next_file=FILES[number + 1])
        elif number < last:
            found.append(segment(end, end, file, FILES[number + 1]))
    return found


@given(st.integers(0, 1 << 32), st.booleans())
def test_names_and_few_indexes_tell_what_all_indexes_do(seed, has_holes):
    random = Random(seed)
    stored = list({s.name: s for _ in range(random.randint(1, 4)) for s in one_pull(random)}.values())
    if has_holes:
        stored = [one for one in stored if random.random() < 0.8]
    for start in {at(4), *(s.begins for s in stored), *(s.ends for s in stored)}:
        links = links_of(stored)
        run = list(links.run(start))
        assert all(one.ends == other.begins for one, other in itertools.pairwise(run))
        assert not run or run[0].begins == start
        expected = longest_run(stored, start)
        assert (run[-1].ends if run else start) == links.end(start) == (expected[-1].ends if expected else start)
        assert passes(lambda start=start: chain(stored, start)) == passes(
            lambda links=links, start=start: list(links.following(start))
        )
        if not any(s.begins > start for s in stored) or expected:
            assert links.has_more(start) == bool(expected)
        found = links.ending_at(start)
        assert bool(found) == any(s.ends == start for s in stored) and (not found or found.ends == start)
        assert {link.name for link in links.unneeded(start)} == {s.name for s in stored if s.ends <= start}


def passes(work: Callable[[], object]) -> bool:
    try:
        work()
    except RelayGap:
        return False
    return True


def test_a_large_backlog_is_passed_with_few_indexes():
    stored = cut(list(range(4, 3000, 10)))
    asked: list[str] = []
    links = links_of(stored, asked)
    taken = list(itertools.islice(links.following(at(1004)), 3))
    assert [one.name for one in taken] == asked == [one.name for one in stored[100:103]]
    asked.clear()
    assert links.has_more(at(1004)) and not asked
    assert links.end(at(1004)) == stored[-1].ends and set(asked) == {stored[-1].name}
    asked.clear()
    assert links.ending_at(at(1004)) == stored[99] and asked == [stored[99].name]
    asked.clear()
    assert [link.name for link in links.unneeded(at(1004))] == [one.name for one in stored[:100]]
    assert set(asked) == {one.name for one in stored[99:101]}
