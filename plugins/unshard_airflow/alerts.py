"""Notify people about failed tasks, and about tasks that work again, through a notifier of their choice.

`[unshard] notifier` names a class, `package.module.Class`. When a task of unshard has failed finally, Airflow's
context is passed to an instance that is made without arguments. A subclass of `FailureNotifier` receives an `Alert`
instead, with the lock, the missing shards and the commands that help. When a task of a window that has failed works
again, the context has the key `failing_since`. A missed deadline has no task: the context has the alert itself under
the key `alert`. A failure of the notifier is logged and has no effect.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from airflow.sdk import BaseNotifier

from unshard.core.masking import refusal, statement
from unshard_airflow.options import option_value
from unshard_airflow.provider import NOTIFIER

if TYPE_CHECKING:
    from airflow.sdk import Context

    from unshard.units.ddl.scene import LockView

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Alert:
    """A failure, its end, or a missed deadline, as sent to people: without secrets and values of rows."""

    dag: str
    run: str
    task: str
    error: str
    source: str = ""
    """The source of a task that works for one source."""
    failing_since: str = ""
    """Set if the task works again: the time of its first failure, in UTC."""
    missed: str = ""
    """Set if a deadline is missed: what lasts for too long. Then `task` is empty."""
    lock: str = ""
    ddl: str = ""
    missing: tuple[str, ...] = ()
    remedies: tuple[str, ...] = ()
    """The present state and the commands that help, one sentence or command each."""

    @property
    def title(self) -> str:
        """The alert in one line."""
        about = f"DDL lock {self.lock}" if self.lock else f"{self.dag}, run {self.run}"
        if self.missed:
            return f"unshard: {about}: {self.missed}"
        task = f"{self.task} of source {self.source}" if self.source else self.task
        outcome = f"works again; it has not worked since {self.failing_since} UTC" if self.failing_since else "failed"
        return f"unshard: {about}: {task} {outcome}"

    @property
    def text(self) -> str:
        """The whole alert, in lines."""
        return "\n".join((self.title, *filter(None, (self.error,)), *self.remedies))

    def about(self, view: "LockView") -> "Alert":
        """Return the alert with the facts of a lock."""
        return replace(self, lock=view.id, ddl=statement(view.ddl), missing=tuple(map(str, view.missing)))


class FailureNotifier(BaseNotifier):
    """Turns Airflow's context into an alert. `send` logs it; override `send` in a subclass."""

    def notify(self, context: "Context") -> None:
        """Send an alert about what Airflow's context describes."""
        self.send(alert_of(context))

    def send(self, alert: Alert) -> None:
        self.log.error("%s", alert.text)


def alert_of(context: Mapping[str, Any]) -> Alert:
    """Return the alert for a failed task, with its lock if it has one, for one that works again, or for a deadline."""
    if missed := context.get("alert"):
        return cast("Alert", missed)
    task, instance = context["task"], context["ti"]
    view: LockView | None = getattr(task, "seen", None)
    alert = Alert(
        instance.dag_id,
        instance.run_id,
        instance.task_id,
        refusal(str(context.get("exception") or "")),
        getattr(task, "source", ""),
        context.get("failing_since", ""),
        remedies=tuple(map(refusal, getattr(task, "remedies", lambda: ())())),
    )
    return alert if view is None else alert.about(view)


def notify(context: Mapping[str, Any]) -> None:
    """Call the notifier that the option names."""
    if name := option_value(NOTIFIER):
        notifier_named(name)()(context)


def notifier_named(name: str) -> Callable[[], Callable[[Mapping[str, Any]], None]]:
    """Return the class with this name; the error message names the option."""
    module, _, attribute = name.rpartition(".")
    try:
        found: Callable[[], Callable[[Mapping[str, Any]], None]] = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ImportError(f"[unshard] notifier is {name!r}, which cannot be imported: {error}") from error
    return found
