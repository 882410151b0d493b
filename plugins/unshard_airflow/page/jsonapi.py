"""The JSON API: the documents of the command line and of the page, with the page's permissions.

Status, locks, differences and commands are documents that `unshard status --json` and `unshard locks --json` print, but
values of rows and secrets of statements are masked, as on the page. A POST needs the right to change the task and

    Authorization: Bearer <token of Airflow>     a browser never sends this header by itself
    X-Unshard-Token: <token>                     for the login cookie; `GET /api/tasks/<task>/token` returns it
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Depends, FastAPI, HTTPException, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, Response

from unshard.core.masking import refusal
from unshard.core.shown import as_document
from unshard.core.task.history import Charts, TaskEvent
from unshard.errors import UnshardError
from unshard.operate.command import Unfit
from unshard.operate.documents import (
    CommandDocument,
    DifferenceDocument,
    ErrorDocument,
    LockDocument,
    command_document,
    difference_document,
    error_document,
    lock_document,
)
from unshard.operate.statusdocument import StatusDocument, status_document
from unshard_airflow.page import guard
from unshard_airflow.page.pages import Given, Pages, Visit, existing
from unshard_airflow.page.service import SHOWN, Overview, Service, ShardList, TaskFile
from unshard_airflow.page.site import Site

if TYPE_CHECKING:
    from unshard.adapters.meta.shardrecords import ListedShard

TOKEN = "X-Unshard-Token"  # noqa: S105
PATH = "/tasks/{task}"


@dataclass(frozen=True, slots=True)
class TaskDocument:
    """A task in a list."""

    task: str
    dag: str
    """The DAG whose permissions apply to the task."""
    state: str
    lag_seconds: int | None
    lag_is_least: bool
    rows_per_second: float
    rows_held: int
    open_locks: int
    next_step: str
    error: ErrorDocument | None
    """Why the target does not answer."""


@dataclass(frozen=True, slots=True)
class LockSummaryDocument:
    """A lock in a list."""

    id: str
    target: str
    ddl: str
    state: str
    opened_at: str
    resolved_at: str | None
    owner: str | None
    ready: int
    missing: int
    held_rows: int
    held_bytes: int
    held_since: str | None


@dataclass(frozen=True, slots=True)
class ArrivalDocument:
    """A shard that has reached the DDL of a lock."""

    shard: str
    executed_at: int
    """When the source has executed it, in seconds since 1970."""
    seen_at: str


@dataclass(frozen=True, slots=True)
class LockPageDocument:
    """A lock with its DAG run, the shards that have reached it, and the commands."""

    lock: LockDocument
    dag: str
    run: str
    wait: str | None
    """State of the task `wait_for_shards`; null without a run."""
    times_out_at: str | None
    arrivals: list[ArrivalDocument]
    commands: list[CommandDocument]


@dataclass(frozen=True, slots=True)
class ShardDocument:
    """A shard of a task."""

    shard: str
    target: str
    structure: str
    """Digest; empty: unknown."""
    columns: dict[str, str]
    """The type of each column."""
    is_dropped: bool
    position: str | None
    """The checkpoint of its source, or the end of the first DDL at which its rows wait."""
    queued: int
    held_rows: int
    held_bytes: int
    held_since: str | None


@dataclass(frozen=True, slots=True)
class ShardListDocument:
    """A part of the shards that a search has found."""

    count: int
    first: int
    shards: list[ShardDocument]


@dataclass(frozen=True, slots=True)
class EventDocument:
    """Something that has happened to a task."""

    at: str
    kind: str
    text: str
    target: str | None
    lock: str
    by: str
    shards: list[str]


@dataclass(frozen=True, slots=True)
class TokenDocument:
    """The token that a POST with the login cookie needs."""

    header: str
    token: str


@dataclass(frozen=True, slots=True)
class CommandRequest:
    """A command. The fields are those of the page's forms; `stop` is `window source target`."""

    action: Literal["unlock", "skip", "replace", "drop-shard", "retry", "pause", "resume", "retry-target"]
    lock: str = ""
    owner: str = ""
    shard: str = ""
    statements: str = ""
    stop: str = ""
    reason: str = ""
    seen: str = ""
    """`seen` of the dry run: the command is rejected if the state has changed since. Empty: it is not compared."""
    dry_run: bool = True


@dataclass(frozen=True, slots=True)
class CommandAnswer:
    """The effects of a command."""

    effects: list[str]
    seen: str
    is_given: bool
    run: str | None
    """Of a command about a lock: whether its DAG run continues (running, cleared, absent or refused)."""


class MaskedResponse(JSONResponse):
    """JSON without values of rows and secrets of statements."""

    def render(self, content: Any) -> bytes:
        return super().render(_masked(content))


def _masked(value: Any) -> Any:
    match value:
        case str():
            return refusal(value)
        case dict():
            return {key: _masked(one) for key, one in value.items()}
        case list():
            return [*map(_masked, value)]
        case _:
            return value


def add_api(app: FastAPI, site: Site, service: Service, pages: Pages, visit: Callable[..., Any]) -> None:
    """Add the routes of the API."""
    user = Annotated[Any, Depends(site.user_of)]

    api = APIRouter(prefix="/api", default_response_class=MaskedResponse)

    @api.get("/openapi.json", include_in_schema=False)
    async def openapi(user: user) -> Response:
        return JSONResponse(app.openapi())

    @api.get("/tasks", response_model=list[TaskDocument])
    async def tasks(user: user) -> Any:
        """Return the tasks that the user may see."""
        known, _ = await run_in_threadpool(pages.tasks, user)
        return [_task_document(*each) for each in known]

    _add_reads(api, service, visit)
    _add_locks(api, site, service, visit)
    _add_commands(api, site, pages, visit)
    app.include_router(api)


def _add_reads(api: APIRouter, service: Service, visit: Callable[..., Any]) -> None:
    known = Annotated[Visit, Depends(visit)]

    @api.get(PATH, response_model=StatusDocument)
    def status(visit: known) -> Any:
        """Return the status of a task."""
        reading = service.reading(visit.task)
        return status_document(visit.task, service.sources(visit.task), reading.remarks, reading.differences)

    @api.get(f"{PATH}/differences", response_model=list[DifferenceDocument])
    def differences(visit: known) -> Any:
        """Return the open differences of targets in optimistic mode."""
        return [difference_document(each) for each in service.differences(visit.task)]

    @api.get(f"{PATH}/shards", response_model=ShardListDocument)
    def shards(
        visit: known,
        search: str = "",
        first: Annotated[int, Query(ge=0)] = 0,
        most: Annotated[int, Query(ge=1, le=SHOWN)] = SHOWN,
    ) -> Any:
        """Return shards with structure, position and held rows; `search` is a part of their names."""
        return _shard_list(service.shards(visit.task, search, first, most))

    @api.get(f"{PATH}/history")
    def history(visit: known, hours: Literal["1", "24"] = "1") -> Charts:
        """Return lag and throughput of the last hour in minutes, or of the last day in parts of ten minutes."""
        return service.charts(visit.task, int(hours))

    @api.get(f"{PATH}/events", response_model=list[EventDocument])
    def events(visit: known) -> Any:
        """Return the newest events, newest first."""
        return [event_document(each) for each in service.events(visit.task)]

    @api.get(f"{PATH}/commands", response_model=list[CommandDocument])
    def commands(visit: known) -> Any:
        """Return the newest commands of operators, newest first."""
        return [command_document(each) for each in service.history(visit.task, None).actions]


def _add_locks(api: APIRouter, site: Site, service: Service, visit: Callable[..., Any]) -> None:
    known = Annotated[Visit, Depends(visit)]

    @api.get(f"{PATH}/locks", response_model=list[LockSummaryDocument])
    def locks(visit: known) -> Any:
        """Return the newest resolved and the open locks, oldest first."""
        return [
            {**as_document(each, LockSummaryDocument), "ready": len(each.ready), "missing": len(each.missing)}
            for each in service.locks(visit.task)
        ]

    @api.get(f"{PATH}/locks/{{lock}}", response_model=LockPageDocument)
    def lock(visit: known, lock: str) -> Any:
        """Return a lock."""
        view = existing(service.lock(visit.task, lock))
        wait = site.wait_of(visit.file.dag, view.id)
        ends = wait.ends(visit.task.options.lock_timeout) if wait else None
        return {
            "lock": lock_document(view),
            "dag": visit.file.dag,
            "run": view.id,
            "wait": wait.state if wait else None,
            "times_out_at": ends.isoformat() if ends else None,
            "arrivals": [as_document(each, ArrivalDocument) for each in service.arrivals(visit.task, lock)],
            "commands": [command_document(each) for each in service.history(visit.task, view.id).actions],
        }


def _add_commands(api: APIRouter, site: Site, pages: Pages, visit: Callable[..., Any]) -> None:
    known = Annotated[Visit, Depends(visit)]

    @api.get(f"{PATH}/token", response_model=TokenDocument)
    def token(visit: known) -> Response:
        """Return the token for commands of this user, session and task."""
        visit.require_right()
        made = guard.token(site.secret, visit.session, visit.user.get_id(), visit.task.name)
        answer = JSONResponse({"header": TOKEN, "token": made}, headers={"Cache-Control": "no-store"})
        guard.set_session(answer, visit.request, visit.session, visit.root)
        return answer

    @api.post(f"{PATH}/commands", response_model=CommandAnswer)
    async def command(visit: known, asked: CommandRequest) -> Any:
        """Give a command, or show its effects: `dry_run` is true unless the request says otherwise."""
        visit.require_right()
        _refuse_forged(site, visit)
        fields = {name: value for name, value in _fields(asked).items() if value}
        try:
            found: Given = await run_in_threadpool(pages.command, visit, asked.lock, fields, dry_run=asked.dry_run)
        except (Unfit, UnshardError) as error:
            raise HTTPException(422, str(error)) from error
        if found.has_changed:
            raise HTTPException(409, "the state has changed since the dry run")
        is_of_lock = found.is_given and asked.lock
        run = await site.wake(visit.request, visit.file.dag, asked.lock) if is_of_lock else None
        return {"effects": [*found.lines], "seen": found.seen, "is_given": found.is_given, "run": run}


def _fields(asked: CommandRequest) -> Mapping[str, str]:
    names = "action", "owner", "shard", "statements", "stop", "reason", "seen"
    return {name: str(getattr(asked, name)) for name in names}


def _refuse_forged(site: Site, visit: Visit) -> None:
    """Raise 403 for a request that another site may have made with the user's cookie."""
    request = visit.request
    if request.headers.get("authorization", "").lower().startswith("bearer "):
        return
    session, given = request.cookies.get(guard.COOKIE, ""), request.headers.get(TOKEN, "")
    is_ours = guard.is_token(site.secret, session, visit.user.get_id(), visit.task.name, given)
    if not is_ours or not guard.is_from_us(request.headers, site.base_url):
        raise HTTPException(403, f"send the token of {visit.at}/token as {TOKEN}, or Airflow's token as Authorization")


def failure_document(request: Request, status: int, error: UnshardError | str) -> Response | None:
    """Return an error of the API; None if the request is one to the page."""
    if not request.scope["path"].removeprefix(str(request.scope.get("root_path", ""))).startswith("/api/"):
        return None
    told = error_document(error) if isinstance(error, UnshardError) else {"code": "", "message": error, "hint": ""}
    return MaskedResponse({"error": told}, status)


def event_document(event: TaskEvent) -> dict[str, Any]:
    """Return an event as JSON."""
    return as_document(event, EventDocument)


def _task_document(file: TaskFile, told: Overview) -> dict[str, Any]:
    return {
        "task": file.name,
        "dag": file.dag,
        "state": "unknown" if told.error else told.state,
        "lag_seconds": told.lag.seconds,
        "lag_is_least": told.lag.is_least,
        "rows_per_second": told.rows_per_second,
        "rows_held": told.rows_held,
        "open_locks": len(told.open_locks),
        "next_step": str(told.step),
        "error": error_document(told.error) if told.error else None,
    }


def _shard_list(found: ShardList) -> dict[str, Any]:
    return {
        "count": found.count,
        "first": found.first,
        "shards": [_shard_document(each, found) for each in found.shards],
    }


def _shard_document(each: "ListedShard", found: ShardList) -> dict[str, Any]:
    position, schema = found.position(each), found.structures.get(each.structure)
    columns = {column.name: column.column_type for column in schema.columns} if schema else {}
    return {**as_document(each, ShardDocument), "columns": columns, "position": str(position) if position else None}
