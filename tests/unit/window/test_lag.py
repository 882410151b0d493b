"""The lag: the age of the oldest change that a target lacks, 0 only if it lacks none."""

import pytest

from unshard.core.task.lag import Lag, OldestMissing, Unread, lag_of, longest, may_lack
from unshard.core.task.state import Phase, task_phase

CASES = [
    ("nothing is missing", OldestMissing(), Lag(0), "0 s"),
    ("unread binlog", OldestMissing(unread=12.7), Lag(12), "12 s"),
    ("it has just been written", OldestMissing(unread=0.0), Lag(1), "1 s"),
    ("its clock is ahead", OldestMissing(unread=-5.0), Lag(1), "1 s"),
    ("idle, and a row is held", OldestMissing(held=3700.0), Lag(3700), "1 h 1 min"),
    ("a DDL waits without rows", OldestMissing(ddl=60.0), Lag(60), "1 min 0 s"),
    ("the oldest counts", OldestMissing(unread=5.0, ddl=60.0, held=50.0, rows=7.0), Lag(60), "1 min 0 s"),
    ("diverted rows", OldestMissing(rows=9.0), Lag(9), "9 s"),
    ("the full load", OldestMissing(load=35.0), Lag(35, is_least=True), "at least 35 s"),
    ("the full load has just begun", OldestMissing(load=0.2), Lag(1, is_least=True), "at least 1 s"),
    ("the source is down", OldestMissing(unread=Unread.UNKNOWN), Lag(None, is_least=True), "unknown"),
    ("it is down, and a row is held", OldestMissing(Unread.UNKNOWN, held=8.0), Lag(8, is_least=True), "at least 8 s"),
]


@pytest.mark.parametrize(("missing", "want", "text"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_lag(missing: OldestMissing, want: Lag, text: str) -> None:
    assert (lag_of(missing), str(want)) == (want, text)


@pytest.mark.parametrize(
    ("lag", "lacks"),
    [
        (Lag(0), False),
        (Lag(38), False),
        (Lag(39), True),
        (Lag(40), True),
        (Lag(1, is_least=True), True),
        (Lag(None), True),
    ],
)
def test_changes_from_before_a_moment_that_targets_may_lack(lag: Lag, lacks: bool) -> None:
    assert may_lack(lag, moment=1000.0, now=1039.5) is lacks


def test_the_lag_of_a_task_is_the_longest() -> None:
    assert longest([Lag(3), Lag(0)]) == Lag(3)
    assert longest([Lag(3), Lag(None)]) == Lag(3, is_least=True)
    assert longest([Lag(3), Lag(1, is_least=True)]) == Lag(3, is_least=True)
    assert longest([Lag(None)]).seconds is None


@pytest.mark.parametrize(
    ("phases", "want"),
    [
        ("new new", "new"),
        ("new snapshot", "full load"),
        ("new sync", "full load"),
        ("dumped loaded", "full load"),
        ("loaded sync", "loaded"),
        ("sync sync", "sync"),
    ],
)
def test_the_state_of_a_task(phases: str, want: str) -> None:
    assert task_phase([Phase(each) for each in phases.split()]) == want
