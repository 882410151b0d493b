"""The interface of the page to Airflow. This is the only module that knows Airflow's internals.

The login dependency and the auth manager are internal to Airflow and may change with a release. The REST API, which
wakes a waiting run, is public. Tests use their own `Site`.
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Protocol
from urllib.parse import quote

import httpx
from fastapi import Request

log = logging.getLogger(__name__)

WAIT = "wait_for_shards"
FINISHED = ("failed", "success")


class Woken(StrEnum):
    """Result of waking the run of a lock after a command."""

    RUNNING = "running"
    """Nothing was done: the run checks the lock itself."""
    CLEARED = "cleared"
    """The run had ended, so its wait was cleared."""
    ABSENT = "absent"
    """Nothing was done: the next live run starts the run."""
    REFUSED = "refused"
    """Airflow rejected the clear of its wait."""


class User(Protocol):
    """The logged-in user."""

    def get_id(self) -> str:
        """Return the permanent id."""

    def get_name(self) -> str:
        """Return the name that is shown and recorded."""


@dataclass(frozen=True, slots=True)
class Wait:
    """The task `wait_for_shards` of a lock's run."""

    state: str
    began_at: datetime | None
    """The time-out of the lock is counted from here; None: it has not begun."""

    def ends(self, timeout: timedelta) -> datetime | None:
        """Return when the time-out of the lock is over."""
        return self.began_at + timeout if self.began_at else None


@dataclass(frozen=True, slots=True)
class Site:
    """Airflow, as the page sees it."""

    user_of: Callable[..., Any]
    """A FastAPI dependency: the user, or 401."""
    may: Callable[[User, bool, str], bool]
    """Whether the user may see (False) or change (True) the runs of a DAG."""
    wake: Callable[[Request, str, str], Awaitable[Woken]]
    """Clear the wait of a lock's run that has ended, as this user."""
    secret: bytes = field(repr=False)
    base_url: str = ""
    wait_of: Callable[[str, str], Wait | None] = lambda dag, run: None
    """The wait of a lock's run; None without a run."""


def airflow_site() -> Site:
    """Return the Airflow of this API server."""
    from airflow.api_fastapi.core_api.security import get_user
    from airflow.configuration import conf

    return Site(
        user_of=get_user,
        may=_may,
        wake=_wake,
        secret=conf.get_mandatory_value("api", "secret_key").encode(),
        base_url=conf.get("api", "base_url", fallback=""),
        wait_of=_wait_of,
    )


def _may(user: Any, change: bool, dag: str) -> bool:
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
    from airflow.models.dag import DagModel

    return get_auth_manager().is_authorized_dag(
        method="PUT" if change else "GET",
        access_entity=DagAccessEntity.TASK_INSTANCE,
        details=DagDetails(id=dag, team_name=DagModel.get_team_name(dag)),
        user=user,
    )


def _wait_of(dag: str, run: str) -> Wait | None:
    from airflow.models import TaskInstance
    from airflow.utils.session import create_session

    with create_session() as session:
        mine = TaskInstance.dag_id == dag, TaskInstance.run_id == run, TaskInstance.task_id == WAIT
        found: Any = session.query(TaskInstance.state, TaskInstance.start_date).filter(*mine).first()
    return None if found is None else Wait(str(found.state or "not begun"), found.start_date)


async def _wake(request: Request, dag: str, run: str) -> Woken:
    """Clear the wait of a finished run through Airflow's REST API, inside this process.

    So Airflow checks the user's rights once more, and its audit log has the user.
    """
    from airflow.api_fastapi.main import app

    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    login = {name: request.headers[name] for name in ("cookie", "authorization") if name in request.headers}
    async with httpx.AsyncClient(transport=transport, base_url="http://airflow", headers=login) as api:
        return await woken(api, dag, run)


async def woken(api: httpx.AsyncClient, dag: str, run: str) -> Woken:
    """Clear the wait of the run if it has ended."""
    at = f"/api/v2/dags/{quote(dag, safe='')}"
    found = await api.get(f"{at}/dagRuns/{quote(run, safe='')}")
    if found.status_code == httpx.codes.NOT_FOUND:
        return Woken.ABSENT
    if found.is_success and found.json()["state"] not in FINISHED:
        return Woken.RUNNING
    body = {
        "dag_run_id": run,
        "task_ids": [WAIT],
        "include_downstream": True,
        "only_failed": False,
        "reset_dag_runs": True,
        "dry_run": False,
    }
    cleared = await api.post(f"{at}/clearTaskInstances", json=body)
    if cleared.is_success:
        return Woken.CLEARED
    log.error(
        "the command is issued, but its run cannot be woken dag=%s run=%s status=%s", dag, run, cleared.status_code
    )
    return Woken.REFUSED
