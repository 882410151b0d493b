"""What each route answers: a template with its values. No HTTP beyond that, so it is tried without a server.

An order is given for what its operator saw: the form of the dry run carries a digest of what the decision rests on,
and if that has changed meanwhile, the dry run is shown again instead.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from fastapi import HTTPException, Request

from unshard.config import Task
from unshard.core.orders import Order
from unshard.core.stops import Stop, preview_retry
from unshard.errors import UnshardError
from unshard_airflow import forms
from unshard_airflow.masking import statement
from unshard_airflow.page import guard
from unshard_airflow.page.desk import SHOWN, Desk, TaskFile
from unshard_airflow.page.marks import marked
from unshard_airflow.page.site import Site, User, Woken

if TYPE_CHECKING:
    from unshard.units.coordinate import LockView

SEEN = "seen"
RETRIED = "retried"
AT_ONCE = 8
LOCKS_OF_TASK = 10
"""How many locks of a task the overview shows."""
TOLD = {
    Woken.RUNNING: "The order is given; the run of this lock goes on by itself.",
    Woken.CLEARED: "The order is given; the run of this lock had ended, so its wait was cleared and it goes on.",
    Woken.ABSENT: "The order is given; the next window starts the run of this lock.",
    Woken.REFUSED: "The order is given, but the run of this lock has ended and could not be cleared: clear its task "
                   "wait_for_shards.",
}  # fmt: skip
TOLD_OF_TASK = {
    RETRIED: "The order is given: the next window of the source releases what is held, and stops the target again if "
             "the same comes again.",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Answer:
    """A page that is to be shown."""

    template: str
    values: Mapping[str, Any]
    status: int = 200


@dataclass(frozen=True, slots=True)
class Visit:
    """One request of one user to one task."""

    request: Request
    user: User
    file: TaskFile
    task: Task
    may_act: bool
    root: str
    """Where the page is mounted."""
    session: str
    """What forms are bound to: the value of our cookie, or of the one that is set now."""

    @property
    def at(self) -> str:
        """The address of the task."""
        return f"{self.root}/task/{quote(self.task.name, safe='')}"

    def at_lock(self, lock: str) -> str:
        """Return the address of a lock."""
        return f"{self.at}/lock/{quote(lock, safe='')}"

    def require_right(self) -> None:
        """Raise 403 unless the user may change the task."""
        if not self.may_act:
            raise HTTPException(403, f"you may look at {self.task.name}, not change it: that takes the right to clear "
                                     f"task instances of {self.file.dag}")  # fmt: skip


class Pages:
    """The answers, made from the desk by the rights that Airflow gives."""

    def __init__(self, site: Site, desk: Desk) -> None:
        self._site = site
        self._desk = desk

    def visit(self, request: Request, task: str, user: User) -> Visit:
        """Return the visit; 404 for a task that the user may not see, as for one that is not there."""
        for file in self._desk.files():
            if file.task is not None and file.name == task and self._site.may(user, False, file.dag):
                may_act = self._site.may(user, True, file.dag)
                session = request.cookies.get(guard.COOKIE) or guard.new_session()
                root = str(request.scope.get("root_path", ""))
                return Visit(request, user, file, file.task, may_act, root, session)
        raise HTTPException(404, "there is no such task, or you may not see it")

    def overview(self, root: str, user: User) -> Answer:
        """Return all tasks that the user may see."""
        files = [file for file in self._desk.files() if self._site.may(user, False, file.dag)]
        tasks = [file.task for file in files if file.task is not None]
        with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
            told = [*zip(tasks, pool.map(self._desk.overview, tasks), strict=True)]
        broken = [file for file in files if file.task is None]
        return Answer("overview.html", {"root": root, "user": user.get_name(), "tasks": told, "broken": broken,
                                        "most": LOCKS_OF_TASK})  # fmt: skip

    def task(self, visit: Visit, told: str = "", refused: str = "") -> Answer:
        """Return all that is known of a task."""
        reading = self._desk.reading(visit.task)
        locks, stops = reading.remarks.locks, reading.remarks.stops
        return Answer("task.html", {
            **_frame(visit), "told": TOLD_OF_TASK.get(told), "refused": refused, "most": SHOWN,
            "sources": self._desk.sources(visit.task), "reading": reading, "remarks": reading.remarks,
            "stops": [*map(_shown_stop, stops[:SHOWN])],
            "open": [view for view in locks if view.is_open],
            "resolved": [view for view in reversed(locks) if not view.is_open],
        }, 422 if refused else 200)  # fmt: skip

    def ask_halt(self, visit: Visit) -> Answer:
        """Return what pausing the task, or letting it go on, would do, with the form that does it."""
        from unshard.units.life import GOES_ON

        visit.require_right()
        name = visit.task.name
        if self._desk.halt(visit.task) is not None:
            return self._ask(visit, {"action": "resume"}, name, [f"{name} goes on: {GOES_ON}"])
        busy = [f"still going on, ends by itself: {each}" for each in self._desk.at_work(visit.task)]
        lines = [f"nothing of {name} begins until somebody resumes it", *busy]
        return self._ask(visit, {"action": "pause"}, name, lines)

    def set_halted(self, visit: Visit, fields: Mapping[str, str]) -> Answer | None:
        """Pause a task or let it go on; what to show instead if the form cannot be taken."""
        try:
            is_halted, reason = forms.halt(fields), forms.reason(fields)
            self._desk.set_halted(visit.task, is_halted, visit.user.get_name(), reason)
        except (forms.Unfit, UnshardError) as error:
            return self.task(visit, refused=str(error))
        return None

    def ask_retry(self, visit: Visit, fields: Mapping[str, str]) -> Answer:
        """Return what a retry of targets that are stopped would do, with the form that does it."""
        visit.require_right()
        try:
            return self._ask_retry(visit, forms.stops(self._desk.stops(visit.task), fields), fields)
        except forms.Unfit as error:
            return self.task(visit, refused=str(error))

    def retry(self, visit: Visit, fields: Mapping[str, str]) -> Answer | None:
        """Let targets that are stopped go on; what to show instead if others are stopped now, or it is refused."""
        try:
            stops, reason = forms.stops(self._desk.stops(visit.task), fields), forms.reason(fields)
            if fields.get(SEEN) != digest_of(map(forms.stop_name, stops)):
                return self._ask_retry(visit, stops, fields, has_changed=True)
            self._desk.retry(visit.task, stops, visit.user.get_name(), reason)
        except (forms.Unfit, UnshardError) as error:
            return self.task(visit, refused=str(error))
        return None

    def lock(self, visit: Visit, lock: str, told: str = "") -> Answer:
        """Return a lock with everything that waits for it, and the forms for whoever may use them."""
        return self._lock(visit, self._view(visit, lock), told=TOLD.get(Woken(told)) if told in set(Woken) else None)

    def preview(self, visit: Visit, lock: str, fields: Mapping[str, str]) -> Answer:
        """Return the dry run of an order."""
        view = self._view(visit, lock)
        try:
            order, reason = forms.order(view, fields), forms.reason(fields)
            return self._confirm(visit, view, order, reason)
        except (forms.Unfit, UnshardError) as error:
            return self._lock(visit, view, refused=str(error))

    def give(self, visit: Visit, lock: str, fields: Mapping[str, str]) -> Answer | None:
        """Carry an order out; what to show instead if the lock has changed since the dry run, or it is refused."""
        view = self._view(visit, lock)
        try:
            order, reason = forms.order(view, fields), forms.reason(fields)
            if fields.get(SEEN) != state_of(view):
                return self._confirm(visit, view, order, reason, has_changed=True)
            self._desk.give(visit.task, order, visit.user.get_name(), reason)
        except (forms.Unfit, UnshardError) as error:
            return self._lock(visit, view, refused=str(error))
        return None

    def _confirm(self, visit: Visit, view: "LockView", order: Order, reason: str, *,
                 has_changed: bool = False) -> Answer:  # fmt: skip
        pinned, lines = self._desk.preview(visit.task, order)
        fields = {**forms.fields(pinned), "reason": reason, SEEN: state_of(view)}
        at = visit.at_lock(view.id)
        return Answer("confirm.html", {
            **self._form(visit), "lock": view, "about": view.target, "lines": lines, "fields": fields, "back": at,
            "to": f"{at}/give", "reason": reason, "asks_reason": False, "has_changed": has_changed,
        }, 409 if has_changed else 200)  # fmt: skip

    def _ask_retry(self, visit: Visit, stops: Sequence[Stop], fields: Mapping[str, str], *,
                   has_changed: bool = False) -> Answer:  # fmt: skip
        lines, more = [*map(preview_retry, stops[:SHOWN])], len(stops) - SHOWN
        lines += [f"the same for {more:,} more"] if more > 0 else []
        asked = {"action": "retry", "stop": fields.get("stop", ""), SEEN: digest_of(map(forms.stop_name, stops))}
        about = str(stops[0].target) if len(stops) == 1 else f"{len(stops):,} stopped targets"
        answer = self._ask(visit, asked, about, lines, fields.get("reason", ""))
        return replace(answer, values={**answer.values, "has_changed": True}, status=409) if has_changed else answer

    def _ask(self, visit: Visit, asked: Mapping[str, str], about: str, lines: Sequence[str],
             reason: str = "") -> Answer:  # fmt: skip
        """Return the question whether an order to the task itself is meant, with a field for the reason."""
        path = "halt" if asked["action"] in forms.HALTS else asked["action"]
        return Answer("confirm.html", {
            **self._form(visit), "lock": None, "about": about, "lines": lines, "back": visit.at, "fields": asked,
            "to": f"{visit.at}/{path}", "reason": reason, "asks_reason": True, "has_changed": False,
        })  # fmt: skip

    def _lock(self, visit: Visit, view: "LockView", *, refused: str = "", told: str | None = None) -> Answer:
        return Answer("lock.html", {
            **self._form(visit), "lock": view, "conflicts": _conflicts(view), "refused": refused, "told": told,
            "shards": forms.shards_of(view), "history": self._desk.history(visit.task, view.id), "most": SHOWN,
        }, 422 if refused else 200)  # fmt: skip

    def _form(self, visit: Visit) -> dict[str, Any]:
        """Return what a page with a form needs; whoever may not act gets no token."""
        made = guard.token(self._site.secret, visit.session, visit.user.get_id(), visit.task.name)
        return {**_frame(visit), "token_field": guard.FIELD, "token": made if visit.may_act else ""}

    def _view(self, visit: Visit, lock: str) -> "LockView":
        for view in self._desk.locks(visit.task):
            if view.id == lock:
                return view
        raise HTTPException(404, "the task has no such lock, or it was resolved long ago")


def state_of(view: "LockView") -> str:
    """Return a digest of what an operator decides by: not of counts that grow all the time."""
    seen = (view.id, view.state, view.ddl, view.owner, view.is_forced, view.ready, view.missing, view.conflicts,
            view.conflicting, view.verdict, view.statements, view.excused)  # fmt: skip
    return digest_of(seen)


def digest_of(seen: Iterable[Any]) -> str:
    """Return a digest of what an operator has seen."""
    return hashlib.sha256(repr([*seen]).encode()).hexdigest()[:32]


def _frame(visit: Visit) -> dict[str, Any]:
    return {"root": visit.root, "at": visit.at, "at_lock": visit.at_lock, "user": visit.user.get_name(),
            "task": visit.task, "dag": visit.file.dag, "may_act": visit.may_act}  # fmt: skip


def _shown_stop(stop: Stop) -> tuple[Stop, UnshardError, str]:
    """Return a target that is stopped with what has stopped it and its name in forms."""
    return stop, stop.refusal.error, quote(forms.stop_name(stop), safe="")


def _conflicts(view: "LockView") -> Sequence[Any]:
    """Return each shard in conflict with the lock's statement and its own, the differences marked and in words."""
    shards = zip(view.conflicts, view.conflicting, view.differences, strict=True)
    return [(shard, marked(statement(view.ddl), statement(ddl)), words) for shard, ddl, words in shards]
