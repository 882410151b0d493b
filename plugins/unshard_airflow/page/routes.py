"""The routes of the page. A GET changes nothing; a POST needs our own form and the right to change the task.

| route | effect |
|---|---|
| `/` | the tasks that the user may see |
| `/task/<task>` | sources, suspended targets, diverted rows, prechecks, locks, commands, history |
| `/task/<task>/shards` | structure, position and held rows of each shard, with a search |
| `/task/<task>/changes` | the matrix of shards and changes, and the rows that they hold |
| `/task/<task>/events` | the timeline |
| `/task/<task>/pause` | the effect of a pause or resume; POST executes it |
| `/task/<task>/retry` | the effect of a retry of suspended targets; POST executes it |
| `/task/<task>/lock/<lock>` | one lock, with a form for each command |
| `/task/<task>/lock/<lock>/preview` | POST: the dry run of a command, with a button that issues it |
| `/task/<task>/lock/<lock>/give` | POST: issues the command |
| `/api/…` | the JSON API (page.jsonapi), described by `/api/openapi.json` |
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import parse_qsl

from fastapi import Depends, FastAPI, HTTPException, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from fastapi.staticfiles import StaticFiles

from unshard import __version__
from unshard.errors import UnshardError
from unshard_airflow.page import guard, html
from unshard_airflow.page.jsonapi import add_api, failure_document
from unshard_airflow.page.pages import RETRIED, PageAnswer, Pages, Visit
from unshard_airflow.page.service import Service
from unshard_airflow.page.site import Site

LONGEST_FORM = 200_000


@dataclass(frozen=True, slots=True)
class Form:
    """The fields of a valid form from a user who may change the task."""

    visit: Visit
    fields: dict[str, str]


def application(site: Site, service: Service) -> FastAPI:
    """Make the page."""
    app = FastAPI(title="unshard", version=__version__, docs_url=None, redoc_url=None, openapi_url=None)
    pages = Pages(site, service)

    async def visit(request: Request, task: str, user: Annotated[Any, Depends(site.user_of)]) -> Visit:
        return await run_in_threadpool(pages.visit, request, task, user)

    async def form(visit: Annotated[Visit, Depends(visit)]) -> Form:
        return Form(visit, await _fields(site, visit))

    app.mount("/static", StaticFiles(directory=html.STATIC))

    @app.get("/", include_in_schema=False)
    async def overview(request: Request, user: Annotated[Any, Depends(site.user_of)]) -> Response:
        return _html(await run_in_threadpool(pages.overview, _root(request), user))

    _add_views(app, pages, visit)
    _add_commands(app, pages, form, site)
    add_api(app, site, service, pages, visit)
    _show_failures(app)
    return app


def _add_views(app: FastAPI, pages: Pages, visit: Callable[..., Any]) -> None:
    known = Annotated[Visit, Depends(visit)]

    @app.get("/task/{task}", include_in_schema=False)
    async def one_task(visit: known, told: str = "") -> Response:
        return _html(await run_in_threadpool(pages.task, visit, told), visit)

    @app.get("/task/{task}/shards", include_in_schema=False)
    async def shards(visit: known, search: str = "", first: Annotated[int, Query(ge=0)] = 0) -> Response:
        return _html(await run_in_threadpool(pages.shards, visit, search, first), visit)

    @app.get("/task/{task}/changes", include_in_schema=False)
    async def changes(visit: known, search: str = "") -> Response:
        return _html(await run_in_threadpool(pages.changes, visit, search), visit)

    @app.get("/task/{task}/events", include_in_schema=False)
    async def events(visit: known) -> Response:
        return _html(await run_in_threadpool(pages.events, visit), visit)

    @app.get("/task/{task}/lock/{lock}", include_in_schema=False)
    async def one_lock(visit: known, lock: str, told: str = "") -> Response:
        return _html(await run_in_threadpool(pages.lock, visit, lock, told), visit)

    @app.get("/task/{task}/pause", include_in_schema=False)
    async def ask_pause(visit: known) -> Response:
        return _html(await run_in_threadpool(pages.ask_pause, visit), visit)

    @app.get("/task/{task}/retry", include_in_schema=False)
    async def ask_retry(visit: known, stop: str = "") -> Response:
        return _html(await run_in_threadpool(pages.ask_retry, visit, {"stop": stop}), visit)

    # Airflow copies the iframe's address into its own and reloads it with a GET.
    @app.get("/task/{task}/lock/{lock}/preview", include_in_schema=False)
    @app.get("/task/{task}/lock/{lock}/give", include_in_schema=False)
    async def reloaded(visit: known, lock: str) -> Response:
        return RedirectResponse(visit.at_lock(lock), 303)


def _add_commands(app: FastAPI, pages: Pages, form: Callable[..., Any], site: Site) -> None:
    sent = Annotated[Form, Depends(form)]

    @app.post("/task/{task}/pause", include_in_schema=False)
    async def pause(form: sent) -> Response:
        answer = await run_in_threadpool(pages.set_paused, form.visit, form.fields)
        return _html(answer, form.visit) if answer is not None else RedirectResponse(form.visit.at, 303)

    @app.post("/task/{task}/retry", include_in_schema=False)
    async def retry(form: sent) -> Response:
        answer = await run_in_threadpool(pages.retry, form.visit, form.fields)
        if answer is not None:
            return _html(answer, form.visit)
        return RedirectResponse(f"{form.visit.at}?told={RETRIED}", 303)

    @app.post("/task/{task}/lock/{lock}/preview", include_in_schema=False)
    async def preview(form: sent, lock: str) -> Response:
        return _html(await run_in_threadpool(pages.preview, form.visit, lock, form.fields), form.visit)

    @app.post("/task/{task}/lock/{lock}/give", include_in_schema=False)
    async def give(form: sent, lock: str) -> Response:
        answer = await run_in_threadpool(pages.give, form.visit, lock, form.fields)
        if answer is not None:
            return _html(answer, form.visit)
        told = await site.wake(form.visit.request, form.visit.file.dag, lock)
        return RedirectResponse(f"{form.visit.at_lock(lock)}?told={told}", 303)


async def _fields(site: Site, visit: Visit) -> dict[str, str]:
    """Return the fields of a form; 403 if it is not ours or the user may not change the task."""
    request = visit.request
    visit.require_right()
    if not guard.is_from_us(request.headers, site.base_url):
        raise HTTPException(403, "the request does not come from a page of this Airflow")
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > LONGEST_FORM:
            raise HTTPException(413, f"a form may have at most {LONGEST_FORM} bytes")
    fields = dict(parse_qsl(body.decode(errors="replace"), keep_blank_values=True))
    session, given = request.cookies.get(guard.COOKIE, ""), fields.get(guard.FIELD, "")
    if not guard.is_token(site.secret, session, visit.user.get_id(), visit.task.name, given):
        raise HTTPException(403, "the form belongs to another session: open it again")
    return fields


def _html(answer: PageAnswer, visit: Visit | None = None) -> Response:
    response = HTMLResponse(html.html(answer.template, answer.values), answer.status, dict(html.HEADERS))
    if visit is not None and visit.may_act:
        guard.set_session(response, visit.request, visit.session, visit.root)
    return response


def _root(request: Request) -> str:
    """Return where the page is mounted."""
    return str(request.scope.get("root_path", ""))


def _show_failures(app: FastAPI) -> None:
    def failure(request: Request, status: int, error: UnshardError | str) -> Response:
        values = {"root": _root(request), "status": status, "text": str(error)}
        found = failure_document(request, status, error)
        return _html(PageAnswer("failure.html", values, status)) if found is None else found

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> Response:
        return failure(request, error.status_code, str(error.detail))

    @app.exception_handler(UnshardError)
    async def coded(request: Request, error: UnshardError) -> Response:
        return failure(request, 502, error)
