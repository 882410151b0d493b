"""Who cleared `unlock`: read from Airflow's notes of requests and the ids of the task's tries."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from unshard_airflow.page.audit import BEGINNING, TICK, Note, Try, asked_between, person

START = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
CLEAR, RUN, RUNS = "post_clear_task_instances", "clear_dag_run", "clear_dag_runs"


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def attempt(seconds: float, max_tries: int) -> Try:
    """A try whose id was made so long after the start."""
    milliseconds = (at(seconds) - BEGINNING) // TICK
    return Try(str(UUID(int=milliseconds << 80 | 7 << 76 | 0x1234)), max_tries)


def note(seconds: float, who: str, event: str = CLEAR, run: str | None = "l", **said: Any) -> Note:
    return Note(at(seconds), event, who, run, {"task_ids": ["unlock"]} | said if event == CLEAR else said)


def within(notes: list[Note], span: tuple[datetime, datetime] | None) -> str | None:
    assert span is not None
    return person([note for note in notes if span[0] < note.at < span[1]], "l")


FIRST, CLEARED, RETRY, AGAIN = attempt(0, 2), attempt(10, 3), attempt(20, 3), attempt(30, 5)
TRIES = [AGAIN, FIRST, RETRY, CLEARED]


def test_moment_of_a_try_is_in_its_id() -> None:
    assert attempt(1.5, 2).made_at == at(1.5)


def test_clear_lies_between_the_try_before_and_the_first_one_behind_it() -> None:
    assert asked_between(TRIES, CLEARED.id) == (FIRST.made_at, CLEARED.made_at + TICK)
    assert asked_between(TRIES, RETRY.id) == (FIRST.made_at, CLEARED.made_at + TICK), "a retry is of the same clear"
    assert asked_between(TRIES, AGAIN.id) == (RETRY.made_at, AGAIN.made_at + TICK)
    assert asked_between(TRIES, attempt(40, 5).id) is None, "the run was deleted and made anew"


def test_each_of_several_clears_has_its_own_person() -> None:
    notes = [note(9.9, "ann"), note(15, "viewer"), note(29.9, "bob"), note(31, "viewer")]
    assert [within(notes, asked_between(TRIES, one.id)) for one in (CLEARED, RETRY, AGAIN)] == ["ann", "ann", "bob"]


def test_refused_request_before_the_clear_is_nobodys() -> None:
    assert within([note(5, "viewer"), note(9.9, "ann")], asked_between(TRIES, CLEARED.id)) == "ann"


NOTES = [
    ([note(1, "ann", task_ids=["wait_for_shards"])], None),
    ([note(1, "ann", task_ids=["wait_for_shards"], include_upstream=True)], "ann"),
    ([note(1, "ann", task_ids=[["unlock", -1]])], "ann"),
    ([note(1, "ann", task_ids=None)], "ann"),
    ([note(1, "ann", run="another")], None),
    ([note(1, "ann"), note(2, "bob", task_ids=["wait_for_shards"])], "ann"),
    ([note(1, "ann", RUN)], "ann"),
    ([note(1, "ann", RUN, "another")], None),
    ([note(1, "ann", RUNS, None, dry_run=False, dag_runs=[{"dag_run_id": "l"}])], "ann"),
    ([note(1, "ann", RUNS, None, dry_run=True, dag_runs=[{"dag_run_id": "l"}])], None),
    ([note(1, "ann", RUNS, None, dry_run=False, dag_runs=[{"dag_run_id": "x"}])], None),
    ([note(1, "ann", "cli_task_clear", None)], "ann"),
    ([note(2, "bob"), note(1, "ann")], "bob"),
    ([], None),
]


@pytest.mark.parametrize(("notes", "who"), NOTES)
def test_only_requests_that_clear_unlock_count(notes: list[Note], who: str | None) -> None:
    assert person(notes, "l") == who
