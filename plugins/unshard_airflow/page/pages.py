"""What each route answers: a template with its values. No HTTP beyond that, so it is tried without a server.

An order is given for the lock as its operator saw it: the form of the dry run carries a digest of what the
decision rests on, and if that has changed meanwhile, the dry run is shown again instead.
"""

import hashlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from fastapi import HTTPException, Request

from unshard.config import Task
from unshard.core.orders import Order
from unshard.errors import UnshardError
from unshard_airflow import forms
from unshard_airflow.masking import statement
from unshard_airflow.page import guard
from unshard_airflow.page.desk import Desk, TaskFile
from unshard_airflow.page.marks import marked
from unshard_airflow.page.site import Site, User, Woken

if TYPE_CHECKING:
    from unshard.units.coordinate import LockView

SEEN = "seen"
AT_ONCE = 8
TOLD = {
    Woken.RUNNING: "The order is given; the run of this lock goes on by itself.",
    Woken.CLEARED: "The order is given; the run of this lock had ended, so its wait was cleared and it goes on.",
    Woken.ABSENT: "The order is given; the next window starts the run of this lock.",
    Woken.REFUSED: "The order is given, but the run of this lock has ended and could not be cleared: clear its task "
                   "wait_for_shards.",
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
        return Answer("overview.html", {"root": root, "user": user.get_name(), "tasks": told, "broken": broken})

    def task(self, visit: Visit, refused: str = "") -> Answer:
        """Return sources, locks and history of a task."""
        locks = self._desk.locks(visit.task)
        return Answer("task.html", {
            **self._form(visit), "halt": self._desk.halt(visit.task), "refused": refused,
            "sources": self._desk.sources(visit.task),
            "open": [view for view in locks if view.is_open],
            "resolved": [view for view in reversed(locks) if not view.is_open],
            "history": self._desk.history(visit.task), "prechecks": self._desk.prechecks(visit.task),
        }, 422 if refused else 200)  # fmt: skip

    def set_halted(self, visit: Visit, fields: Mapping[str, str]) -> Answer | None:
        """Pause a task or let it go on; what to show instead if the form cannot be taken."""
        try:
            is_halted, reason = forms.halt(fields), forms.reason(fields)
            self._desk.set_halted(visit.task, is_halted, visit.user.get_name(), reason)
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
        return Answer("confirm.html", {
            **self._form(visit), "lock": view, "lines": lines, "fields": fields, "has_changed": has_changed,
        }, 409 if has_changed else 200)  # fmt: skip

    def _lock(self, visit: Visit, view: "LockView", *, refused: str = "", told: str | None = None) -> Answer:
        return Answer("lock.html", {
            **self._form(visit), "lock": view, "conflicts": _conflicts(view), "refused": refused, "told": told,
            "shards": forms.shards_of(view), "history": self._desk.history(visit.task, view.id),
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
    return hashlib.sha256(repr(seen).encode()).hexdigest()[:32]


def _frame(visit: Visit) -> dict[str, Any]:
    return {"root": visit.root, "at": visit.at, "at_lock": visit.at_lock, "user": visit.user.get_name(),
            "task": visit.task, "dag": visit.file.dag, "may_act": visit.may_act}  # fmt: skip


def _conflicts(view: "LockView") -> Sequence[Any]:
    """Return each shard in conflict with the lock's statement and its own, the differences marked and in words."""
    shards = zip(view.conflicts, view.conflicting, view.differences, strict=True)
    return [(shard, marked(statement(view.ddl), statement(ddl)), words) for shard, ddl, words in shards]
