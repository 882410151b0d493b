"""The answer of each route: a template and its values, without HTTP, so that tests need no server.

A command applies to the state that its operator saw: the form of the dry run has a digest of that state. If the state
has changed meanwhile, the dry run is shown again instead.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast
from urllib.parse import quote

from fastapi import HTTPException, Request

from unshard.config import Task
from unshard.core.masking import statement
from unshard.core.shown import Word, compared
from unshard.core.window.suspension import SuspendedTarget, preview_retry
from unshard.errors import UnshardError
from unshard.operate.advice import choices
from unshard.operate.command import LockCommand, Unfit, form_fields, form_reason, read_form, shards_of
from unshard_airflow.graph import DDL, FULL, JOIN, SYNC
from unshard_airflow.page import guard
from unshard_airflow.page.service import SHOWN, TASK_SECONDS, Overview, Service, TaskFile
from unshard_airflow.page.site import Site, User, Woken

if TYPE_CHECKING:
    from unshard.units.ddl.scene import LockFacts

F = TypeVar("F", bound="LockFacts")

PAUSE_ACTIONS = ("pause", "resume")
RETRY_TARGET = "retry-target"
SEEN = "seen"
RETRIED = "retried"
AT_ONCE = 8
LOCKS_OF_TASK = 10
"""Number of a task's locks on the overview."""
TOLD = {
    Woken.RUNNING: "The command is issued; the run of this lock continues automatically.",
    Woken.CLEARED: "The command is issued; the run of this lock had ended, so its wait was cleared and it continues.",
    Woken.ABSENT: "The command is issued; the next live run starts the run of this lock.",
    Woken.REFUSED: "The command is issued, but the run of this lock has ended and could not be cleared: clear its task "
    "wait_for_shards.",
}
TOLD_OF_TASK = {
    RETRIED: "The command is issued: the next window of the source releases the held rows, and suspends the target "
    "again if the error recurs."
}


@dataclass(frozen=True, slots=True)
class PageAnswer:
    """A page to render."""

    template: str
    values: Mapping[str, Any]
    status: int = 200


@dataclass(frozen=True, slots=True)
class Given:
    """The effects of a command, and whether it was given."""

    lines: Sequence[str]
    seen: str
    """Digest of the state on which the operator decides."""
    is_given: bool = False
    has_changed: bool = False
    """It was not given, because the state is not the one that the operator saw."""


@dataclass(frozen=True, slots=True)
class Visit:
    """One request of one user to one task."""

    request: Request
    user: User
    file: TaskFile
    task: Task
    may_act: bool
    root: str
    """Path under which the page is mounted."""
    session: str
    """Session of the forms: the value of our cookie, or of a new cookie."""

    @property
    def at(self) -> str:
        """The address of the task."""
        return f"{self.root}/task/{quote(self.task.name, safe='')}"

    @property
    def airflow(self) -> str:
        """The address of Airflow, below which the page is mounted."""
        return self.root.rpartition("/")[0]

    def at_run(self, dag: str, run: str = "") -> str:
        """Return the address of a DAG or of one of its runs in Airflow."""
        at = f"{self.airflow}/dags/{quote(dag, safe='')}"
        return f"{at}/runs/{quote(run, safe='')}" if run else at

    def at_lock(self, lock: str) -> str:
        """Return the address of a lock."""
        return f"{self.at}/lock/{quote(lock, safe='')}"

    def require_right(self) -> None:
        """Raise 403 unless the user may change the task."""
        if not self.may_act:
            raise HTTPException(
                403,
                f"you may see {self.task.name}, but not change it: this needs the right to clear "
                f"task instances of {self.file.dag}",
            )


class Pages:
    """The answers, built from the service and the user's rights in Airflow."""

    def __init__(self, site: Site, service: Service) -> None:
        self._site = site
        self._service = service

    def visit(self, request: Request, task: str, user: User) -> Visit:
        """Return the visit; 404 for a task that does not exist or that the user may not see."""
        for file in self._service.files():
            is_named = file.task is not None and task in (file.name, file.task.plain_name)
            if is_named and self._site.may(user, False, file.dag):
                may_act = self._site.may(user, True, file.dag)
                session = request.cookies.get(guard.COOKIE) or guard.new_session()
                root = str(request.scope.get("root_path", ""))
                return Visit(request, user, file, cast("Task", file.task), may_act, root, session)
        raise HTTPException(404, "there is no such task, or you may not see it")

    def tasks(self, user: User) -> tuple[list[tuple[TaskFile, Overview]], list[TaskFile]]:
        """Return the tasks that the user may see with their state, and the invalid files."""
        files = [file for file in self._service.files() if self._site.may(user, False, file.dag)]
        valid = [(file, file.task) for file in files if file.task is not None]
        with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
            told = pool.map(self._service.overview, (task for _, task in valid))
            return [*zip((file for file, _ in valid), told, strict=True)], [file for file in files if file.task is None]

    def overview(self, root: str, user: User) -> PageAnswer:
        """Return the page of the tasks that the user may see."""
        tasks, broken = self.tasks(user)
        values = {"root": root, "user": user.get_name(), "tasks": tasks, "broken": broken, "most": LOCKS_OF_TASK}
        return PageAnswer("overview.html", values)

    def task(self, visit: Visit, told: str = "", refused: str = "") -> PageAnswer:
        reading = self._service.reading(visit.task)
        locks, stops = reading.remarks.locks, reading.remarks.stops
        sources = self._service.sources(visit.task)
        return PageAnswer(
            "task.html",
            {
                **_frame(visit, Overview(tuple(sources), reading.remarks)),
                "told": TOLD_OF_TASK.get(told),
                "refused": refused,
                "sources": sources,
                "reading": reading,
                "remarks": reading.remarks,
                "stops": [(stop, stop.refusal.error, quote(_stop_name(stop), safe="")) for stop in stops[:SHOWN]],
                "open": [view for view in locks if view.is_open],
                "resolved": [view for view in reversed(locks) if not view.is_open],
            },
            422 if refused else 200,
        )

    def shards(self, visit: Visit, search: str, first: int) -> PageAnswer:
        """Return a part of the shards that a search finds."""
        found = self._service.shards(visit.task, search, first)
        return self._part(visit, "shards.html", found=found, search=search)

    def changes(self, visit: Visit, search: str) -> PageAnswer:
        """Return the matrix of shards and changes; a search leaves the rows of other shards out."""
        found = [matrix.searched(search) for matrix in self._service.matrices(visit.task)]
        return self._part(visit, "changes.html", matrices=found, search=search)

    def events(self, visit: Visit) -> PageAnswer:
        """Return the newest events of the task."""
        return self._part(visit, "events.html", events=self._service.events(visit.task))

    def _part(self, visit: Visit, template: str, **values: Any) -> PageAnswer:
        header = self._service.overview(visit.task, TASK_SECONDS)
        return PageAnswer(template, {**_frame(visit, header), **values})

    def ask_pause(self, visit: Visit) -> PageAnswer:
        """Return the effect of a pause or resume, with the form that executes it."""
        visit.require_right()
        is_paused = self._service.pause(visit.task) is None
        effects = self._pause_effects(visit, is_paused)
        return self._ask(visit, {"action": "pause" if is_paused else "resume"}, visit.task.name, effects)

    def set_paused(self, visit: Visit, fields: Mapping[str, str]) -> PageAnswer | None:
        """Pause or resume a task; return the page to show if the form is not valid."""
        try:
            is_paused, reason = _asks_pause(fields), form_reason(fields)
            self._service.set_paused(visit.task, is_paused, visit.user.get_name(), reason)
        except (Unfit, UnshardError) as error:
            return self.task(visit, refused=str(error))
        return None

    def ask_retry(self, visit: Visit, fields: Mapping[str, str]) -> PageAnswer:
        """Return the effect of a retry of suspended targets, with the form that executes it."""
        visit.require_right()
        try:
            return self._ask_retry(visit, _stops(self._service.stops(visit.task), fields), fields)
        except Unfit as error:
            return self.task(visit, refused=str(error))

    def retry(self, visit: Visit, fields: Mapping[str, str]) -> PageAnswer | None:
        """Continue suspended targets; return the page to show if others are suspended now or the form is rejected."""
        try:
            stops, reason = _stops(self._service.stops(visit.task), fields), form_reason(fields)
            if fields.get(SEEN) != seen_digest(map(_stop_name, stops)):
                return self._ask_retry(visit, stops, fields, has_changed=True)
            self._service.retry(visit.task, stops, visit.user.get_name(), reason)
        except (Unfit, UnshardError) as error:
            return self.task(visit, refused=str(error))
        return None

    def lock(self, visit: Visit, lock: str, told: str = "") -> PageAnswer:
        """Return the page of a lock, with forms if the user may change the task."""
        return self._lock(visit, lock, told=TOLD.get(Woken(told)) if told in set(Woken) else None)

    def preview(self, visit: Visit, lock: str, fields: Mapping[str, str]) -> PageAnswer:
        """Return the dry run of a command."""
        facts = existing(self._service.facts(visit.task, lock))
        try:
            command, reason = read_form(facts, fields), form_reason(fields)
            return self._confirm(visit, facts, command, reason)
        except (Unfit, UnshardError) as error:
            return self._lock(visit, lock, refused=str(error))

    def give(self, visit: Visit, lock: str, fields: Mapping[str, str]) -> PageAnswer | None:
        """Issue a command; return a page if the lock has changed since the dry run or the command is rejected."""
        facts = existing(self._service.facts(visit.task, lock))
        try:
            command, reason = read_form(facts, fields), form_reason(fields)
            if fields.get(SEEN) != lock_digest(facts):
                return self._confirm(visit, facts, command, reason, has_changed=True)
            self._service.give(visit.task, command, visit.user.get_name(), reason)
        except (Unfit, UnshardError) as error:
            return self._lock(visit, lock, refused=str(error))
        return None

    def command(self, visit: Visit, lock: str, fields: Mapping[str, str], *, dry_run: bool) -> Given:
        """Give a command of the API unless it is a dry run; raises Unfit and UnshardError."""
        reason, action = form_reason(fields), fields["action"]
        if action in PAUSE_ACTIONS:
            found, give = self._pausing(visit, action)
        elif action == RETRY_TARGET:
            stops = _stops(self._service.stops(visit.task), fields)
            found = Given([*map(preview_retry, stops)], seen_digest(map(_stop_name, stops)))
            give = partial(self._service.retry, visit.task, stops)
        else:
            facts = existing(self._service.facts(visit.task, lock))
            pinned, lines = self._service.preview(visit.task, read_form(facts, fields))
            found, give = Given(lines, lock_digest(facts)), partial(self._service.give, visit.task, pinned)
        if dry_run or fields.get(SEEN, found.seen) != found.seen:
            return replace(found, has_changed=not dry_run)
        give(visit.user.get_name(), reason)
        return replace(found, is_given=True)

    def _pausing(self, visit: Visit, action: str) -> tuple[Given, Callable[[str, str], None]]:
        is_paused = action == "pause"
        seen = seen_digest([self._service.pause(visit.task) is None])
        return Given(self._pause_effects(visit, is_paused), seen), partial(
            self._service.set_paused, visit.task, is_paused
        )

    def _pause_effects(self, visit: Visit, is_paused: bool) -> Sequence[str]:
        from unshard.units.task.lifecycle import GOES_ON

        name = visit.task.name
        if not is_paused:
            return [f"{name} continues: {GOES_ON}"]
        busy = [f"still active, ends normally: {each}" for each in self._service.at_work(visit.task)]
        return [f"no work of {name} begins until it is resumed", *busy]

    def _confirm(
        self, visit: Visit, lock: "LockFacts", command: LockCommand, reason: str, *, has_changed: bool = False
    ) -> PageAnswer:
        pinned, lines = self._service.preview(visit.task, command)
        fields = {**form_fields(pinned), "reason": reason, SEEN: lock_digest(lock)}
        at = visit.at_lock(lock.id)
        return PageAnswer(
            "confirm.html",
            {
                **self._form(visit),
                "lock": lock,
                "about": lock.target,
                "lines": lines,
                "fields": fields,
                "back": at,
                "to": f"{at}/give",
                "reason": reason,
                "asks_reason": False,
                "has_changed": has_changed,
            },
            409 if has_changed else 200,
        )

    def _ask_retry(
        self, visit: Visit, stops: Sequence[SuspendedTarget], fields: Mapping[str, str], *, has_changed: bool = False
    ) -> PageAnswer:
        lines, more = [*map(preview_retry, stops[:SHOWN])], len(stops) - SHOWN
        lines += [f"the same for {more:,} more"] if more > 0 else []
        asked = {"action": "retry", "stop": fields.get("stop", ""), SEEN: seen_digest(map(_stop_name, stops))}
        about = str(stops[0].target) if len(stops) == 1 else f"{len(stops):,} suspended targets"
        answer = self._ask(visit, asked, about, lines, fields.get("reason", ""))
        return replace(answer, values={**answer.values, "has_changed": True}, status=409) if has_changed else answer

    def _ask(
        self, visit: Visit, asked: Mapping[str, str], about: str, lines: Sequence[str], reason: str = ""
    ) -> PageAnswer:
        """Return the confirmation of a command to the task itself, with a field for the reason."""
        path = "pause" if asked["action"] in PAUSE_ACTIONS else asked["action"]
        return PageAnswer(
            "confirm.html",
            {
                **self._form(visit),
                "lock": None,
                "about": about,
                "lines": lines,
                "back": visit.at,
                "fields": asked,
                "to": f"{visit.at}/{path}",
                "reason": reason,
                "asks_reason": True,
                "has_changed": False,
            },
        )

    def _lock(self, visit: Visit, lock: str, *, refused: str = "", told: str | None = None) -> PageAnswer:
        view = existing(self._service.lock(visit.task, lock))
        wait = self._site.wait_of(visit.file.dag, view.id)
        ends = wait.ends(visit.task.options.lock_timeout) if wait else None
        return PageAnswer(
            "lock.html",
            {
                **self._form(visit),
                "lock": view,
                "conflicts": [
                    (shard, marked(statement(view.ddl), statement(ddl)), words)
                    for shard, ddl, words in zip(view.conflicts, view.conflicting, view.differences, strict=True)
                ],
                "refused": refused,
                "told": told,
                "shards": shards_of(view),
                "choices": choices(view),
                "history": self._service.history(visit.task, view.id),
                "arrivals": self._service.arrivals(visit.task, view.id),
                "wait": wait,
                "ends": ends,
            },
            422 if refused else 200,
        )

    def _form(self, visit: Visit) -> dict[str, Any]:
        made = guard.token(self._site.secret, visit.session, visit.user.get_id(), visit.task.name)
        return {**_frame(visit), "token_field": guard.FIELD, "token": made if visit.may_act else ""}


def existing(found: "F | None") -> "F":
    """Return the lock; 404 without one."""
    if found is None:
        raise HTTPException(404, "the task has no such lock, or it was resolved long ago")
    return found


def lock_digest(lock: "LockFacts") -> str:
    """Return a digest of the state on which an operator decides, without counts that grow all the time."""
    seen = (
        lock.id,
        lock.state,
        lock.ddl,
        lock.owner,
        lock.is_forced,
        lock.ready,
        lock.missing,
        lock.conflicts,
        lock.conflicting,
        lock.verdict,
        lock.statements,
        lock.exempted,
    )
    return seen_digest(seen)


def seen_digest(seen: Iterable[Any]) -> str:
    """Return a digest of the values that an operator has seen."""
    return hashlib.sha256(repr([*seen]).encode()).hexdigest()[:32]


def _frame(visit: Visit, header: Overview | None = None) -> dict[str, Any]:
    name = visit.task.plain_name
    return {
        "root": visit.root,
        "at": visit.at,
        "at_lock": visit.at_lock,
        "at_run": visit.at_run,
        "user": visit.user.get_name(),
        "task": visit.task,
        "dag": visit.file.dag,
        "dags": {"load": FULL + name, "live runs": SYNC + name, "locks": DDL + name},
        "joins": JOIN + name,
        "may_act": visit.may_act,
        "header": header,
        "most": SHOWN,
    }


def _asks_pause(values: Mapping[str, str]) -> bool:
    """Return whether a form asks to pause the task (or to resume it)."""
    action = values.get("action", "")
    if action not in PAUSE_ACTIONS:
        raise Unfit(f"there is no action {action!r}")
    return action == "pause"


def _stop_name(stop: SuspendedTarget) -> str:
    """Return the name of a suspension in forms; a later suspension of the same target has another name."""
    return f"{stop.window} {stop.source} {stop.target}"


def _stops(known: Iterable[SuspendedTarget], values: Mapping[str, str]) -> tuple[SuspendedTarget, ...]:
    """Return the suspensions to lift: the one in the form, or all if it names none."""
    wanted = values.get("stop", "")
    found = tuple(stop for stop in known if wanted in ("", _stop_name(stop)))
    if not found:
        raise Unfit("that target continues already, or is suspended again" if wanted else "no target is suspended")
    return found


class Piece(NamedTuple):
    """A part of a statement that both statements have, or in which they differ."""

    text: str
    differs: bool


def marked(one: str, other: str) -> tuple[tuple[Piece, ...], tuple[Piece, ...]]:
    """Split both statements into pieces that are equal or differ."""
    parts = [*compared(one, other)]
    left = [piece for part in parts for piece in _pieces(part.ours, part.differs)]
    right = [piece for part in parts for piece in _pieces(part.theirs, part.differs)]
    return tuple(left), tuple(right)


def _pieces(words: Sequence[Word], differs: bool) -> Iterator[Piece]:
    """Yield the space before the first word without a mark."""
    if words:
        first, *rest = words
        yield Piece(first.space, False)
        yield Piece(first.text + "".join(space + text for space, text in rest), differs)
