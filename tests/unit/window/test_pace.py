"""The size of windows: the decision for every kind of past windows; a backlog always ends."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from unshard.core.window.plan import REMEMBERED, SECTIONS, Pace, WindowLimits, next_bytes, next_sections, remembered

MIB = 1 << 20
LIMITS = WindowLimits(64 * MIB, 1_000_000, 30_000)
PACES = st.builds(Pace, st.integers(0, 1 << 40), st.integers(0, 1 << 40), st.integers(0, 1 << 40))


def after(*paces: Pace, limits: WindowLimits = LIMITS) -> int:
    return next_bytes(paces, limits)


def test_the_table() -> None:
    assert after() == 16 * MIB, "nothing is known"
    assert after(Pace(16 * MIB, 1000, 60_000)) == 8 * MIB, "it took twice the wanted time"
    assert after(Pace(16 * MIB, 1000, 15_000)) == 32 * MIB, "it took half of it"
    assert after(Pace(2 * MIB, 1000, 100)) == 8 * MIB, "not more than four times as much as was tried"
    assert after(Pace(16 * MIB, 1000, 100)) == 64 * MIB, "nor than is allowed"
    assert after(Pace(1 * MIB, 10, 3_600_000)) == 4 * MIB, "a start that costs more than the wanted time"
    assert after(Pace(16 * MIB, 4_000_000, 1000)) == 4 * MIB, "more rows than are allowed"
    assert after(Pace(1 * MIB, 100_000_000, 1000)) == MIB // 100, "rows beat the least size: they must fit into memory"


def test_several_windows_count_together() -> None:
    slow, fast = Pace(8 * MIB, 10, 50_000), Pace(8 * MIB, 10, 10_000)
    assert after(slow, fast) == 8 * MIB
    assert after(fast, slow) == 8 * MIB


def test_small_windows_are_not_remembered() -> None:
    known = (Pace(8 * MIB, 10, 30_000),)
    assert remembered(known, Pace(1000, 10, 500), LIMITS) == known
    telling = Pace(1 * MIB, 10, 500)
    assert remembered(known, telling, LIMITS) == (*known, telling)
    compressed = Pace(1000, 1_000_000, 500)
    assert remembered(known, compressed, LIMITS) == (*known, compressed)
    assert len(remembered((telling,) * REMEMBERED, compressed, LIMITS)) == REMEMBERED


def test_a_steady_speed_is_reached_and_kept() -> None:
    """Whatever a byte takes: windows end at the wanted time or at a limit, and stay there."""
    for speed in (1, 20, 1000, 1 << 20):  # bytes in a millisecond, after a start of one second
        last: tuple[Pace, ...] = ()
        sizes = []
        for _ in range(20):
            size = next_bytes(last, LIMITS)
            sizes.append(size)
            last = remembered(last, Pace(size, size // 100, 1000 + size // speed), LIMITS)
        wanted = min(max(29_000 * speed, LIMITS.bytes // 16), LIMITS.bytes)
        assert all(abs(size - wanted) <= wanted // 5 for size in sizes[-8:]), speed


@given(st.lists(PACES, max_size=REMEMBERED), PACES)
def test_a_size_is_always_within_its_bounds(last: list[Pace], new: Pace) -> None:
    for limits in (LIMITS, WindowLimits(1, 1, 1), replace(LIMITS, rows=1)):
        assert 1 <= next_bytes(remembered(last, new, limits), limits) <= limits.bytes


def test_sections_fill_the_wanted_time() -> None:
    def sections(*paces: Pace, limits: WindowLimits = LIMITS) -> int:
        return next_sections(paces, limits)

    assert sections() == 1, "nothing is known"
    assert sections(Pace(64 * MIB, 1000, 1000)) == 4, "not more than four times as much as was tried"
    assert sections(Pace(256 * MIB, 1000, 4000)) == SECTIONS
    assert sections(Pace(256 * MIB, 1000, 40_000)) == 3, "3 * 64 MiB take the wanted time"
    assert sections(Pace(64 * MIB, 1000, 60_000)) == 1, "a section of half the size takes it"
    assert sections(Pace(64 * MIB, 8_000_000, 1000)) == SECTIONS, "sections are small if a byte brings many rows"


@given(st.lists(PACES, max_size=REMEMBERED))
def test_sections_are_within_their_bounds(last: list[Pace]) -> None:
    assert 1 <= next_sections(last, LIMITS) <= SECTIONS
