"""What people are told when a task has failed, and through what: a notifier of their own choice.

`UNSHARD_NOTIFIER` names a class, `package.module.Class`; an instance made without arguments is called with Airflow's
context when a task of unshard has failed for good. A subclass of `FailureNotifier` gets an `Alert` instead, which has
the lock, the shards that are missing and the commands that help. A notifier that fails is logged and changes nothing.
"""

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseNotifier

from unshard_airflow.masking import refusal, statement

if TYPE_CHECKING:
    from airflow.sdk import Context

    from unshard.units.coordinate import LockView

VARIABLE = "UNSHARD_NOTIFIER"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Alert:
    """A failure, fit to be sent to people: without secrets and values of rows."""

    dag: str
    run: str
    task: str
    error: str
    lock: str = ""
    ddl: str = ""
    missing: tuple[str, ...] = ()
    remedies: tuple[str, ...] = ()
    """What has come of it so far and what helps, a sentence or a command each."""

    @property
    def title(self) -> str:
        """One line."""
        about = f"DDL lock {self.lock}" if self.lock else f"{self.dag}, run {self.run}"
        return f"unshard: {about}: {self.task} failed"

    @property
    def text(self) -> str:
        """All of it, in lines."""
        return "\n".join((self.title, *filter(None, (self.error,)), *self.remedies))


class FailureNotifier(BaseNotifier):
    """Turns a failure into an alert; `send` logs it until a subclass does something better."""

    def notify(self, context: "Context") -> None:
        """Tell people about the failure that the context is about."""
        self.send(alert_of(context))

    def send(self, alert: Alert) -> None:
        """Send the alert."""
        self.log.error("%s", alert.text)


def alert_of(context: Mapping[str, Any]) -> Alert:
    """Return what the context of a failed task says; a task that knows its lock says more."""
    task, instance = context["task"], context["ti"]
    view: LockView | None = getattr(task, "seen", None)
    alert = Alert(
        instance.dag_id, instance.run_id, instance.task_id, refusal(str(context.get("exception") or "")),
        remedies=tuple(map(refusal, getattr(task, "remedies", lambda: ())())),
    )  # fmt: skip
    if view is None:
        return alert
    return replace(alert, lock=view.id, ddl=statement(view.ddl), missing=tuple(map(str, view.missing)))


def notify(context: Mapping[str, Any]) -> None:
    """Call the notifier that the environment names; `on_failure_callback` of every task."""
    if name := os.environ.get(VARIABLE):
        notifier_named(name)()(context)


def notifier_named(name: str) -> Callable[[], Callable[[Mapping[str, Any]], None]]:
    """Return the class of that name; an error says which variable names it."""
    module, _, attribute = name.rpartition(".")
    try:
        found: Callable[[], Callable[[Mapping[str, Any]], None]] = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ImportError(f"{VARIABLE} is {name!r}, which cannot be imported: {error}") from error
    return found
