"""Find who cleared the task `unlock` of a lock's run, in Airflow's audit log; workers do not know the user.

A clear gives the task instance a new id with a timestamp (a UUID of version 7). The same process, and so the same
clock, has logged the request just before. The person is therefore in the last matching entry between the id of the
previous try and that of the first try after the clear; retries keep `max_tries`, a clear raises it. Airflow logs a
request before it checks permissions: a rejected request in the instant between the entry and the clear of another
user would be mistaken for the latter.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from unshard.core.ddl.issuedcommands import Cleared

UNLOCK = "unlock"
EVENTS = ("post_clear_task_instances", "clear_dag_run", "clear_dag_runs", "cli_task_clear")
"""Names of the requests that clear tasks in the audit log: some tasks, a run, several runs, the command line's."""
ANY_DAG = "~"
BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
TICK = timedelta(milliseconds=1)
"""Precision of the timestamp in an id."""


@dataclass(frozen=True, slots=True)
class Note:
    """An entry of the audit log about a clear."""

    at: datetime
    event: str
    who: str
    run: str | None
    body: Mapping[str, Any]
    """The body of the request."""


@dataclass(frozen=True, slots=True)
class Try:
    """One try of the task."""

    id: str
    max_tries: int

    @property
    def made_at(self) -> datetime:
        """Time at which the try was created: by a clear, or by the failure of the previous try."""
        return BEGINNING + TICK * (UUID(self.id).int >> 80)


def who_cleared(dag: str, cleared: Cleared) -> str | None:
    """Return the user from Airflow's database; None if unknown or no longer stored."""
    from airflow.models import Log, TaskInstance
    from airflow.models.taskinstancehistory import TaskInstanceHistory as Past
    from airflow.utils.session import create_session

    def of_task(model: Any) -> tuple[Any, ...]:
        return model.dag_id == dag, model.run_id == cleared.run, model.task_id == UNLOCK

    with create_session() as session:
        tries = [
            *session.query(TaskInstance.id, TaskInstance.max_tries).filter(*of_task(TaskInstance)),
            *session.query(Past.task_instance_id, Past.max_tries).filter(*of_task(Past)),
        ]
        span = asked_between([Try(str(id_), most) for id_, most in tries], cleared.instance)
        if span is None:
            return None
        within = Log.dttm > span[0], Log.dttm < span[1], Log.dag_id.in_((dag, ANY_DAG)), Log.event.in_(EVENTS)
        rows: list[Any] = session.query(Log.dttm, Log.event, Log.owner, Log.run_id, Log.extra).filter(*within).all()
    return person([Note(at, event, who or "", run, _body(extra)) for at, event, who, run, extra in rows], cleared.run)


def asked_between(tries: Sequence[Try], instance: str) -> tuple[datetime, datetime] | None:
    """Return the interval in which the clear that led to a try was requested; None if Airflow has deleted the try."""
    most = next((one.max_tries for one in tries if one.id == instance), None)
    if most is None:
        return None
    before = (one.made_at for one in tries if one.max_tries < most)
    return max(before, default=BEGINNING), min(one.made_at for one in tries if one.max_tries == most) + TICK


def person(notes: Iterable[Note], run: str) -> str | None:
    """Return the user of the last request that clears `unlock` of the run."""
    last = max((note for note in notes if _clears(note, run)), key=lambda note: note.at, default=None)
    return (last.who or None) if last else None


def _clears(note: Note, run: str) -> bool:
    if note.run not in (None, run):
        return False
    match note.event:
        case "post_clear_task_instances":
            tasks = note.body.get("task_ids")
            names = [task if isinstance(task, str) else task[0] for task in tasks or ()]
            return tasks is None or UNLOCK in names or bool(note.body.get("include_upstream"))
        case "clear_dag_runs":
            runs = [one.get("dag_run_id") for one in note.body.get("dag_runs") or ()]
            return run in runs and not note.body.get("dry_run", True)
        case _:
            return True


def _body(extra: str | None) -> Mapping[str, Any]:
    body = json.loads(extra or "{}")
    return body if isinstance(body, dict) else {}
