"""A failure that lasts is told once: the task of a live run fails once, then it is skipped until it works again.

A live run starts about once a minute while a source fails. Each one would be red and alert people. An Airflow Variable
has the failure of which people know. It is in Airflow's database, because the target itself may be down.

| event | effect |
|---|---|
| the first failure, or one with another cause | the task fails, people are alerted, the Variable is set |
| the same failure in a later live run | the task is skipped with the error |
| success, also while the live run goes on | people are told, the Variable is deleted |
| the process dies between the alert and the Variable | people are alerted again |
| somebody deletes the Variable | the next failure is told again |
"""

import contextlib
import hashlib
import logging
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from airflow.providers.common.compat.sdk import AirflowSkipException
from airflow.sdk import Variable

from unshard.core.masking import refusal
from unshard.core.shown import visible
from unshard.errors import UnshardError
from unshard_airflow.alerts import notify

PREFIX = "unshard_failing__"
ABOUT = "{dag}, {task} {source}: the failure that was told last. Delete it to be told again."

log = logging.getLogger(__name__)


class ToldOnce:
    """A task of which a failure is told once; a base class of operators."""

    source: str = ""

    @property
    def is_told_elsewhere(self) -> bool:
        """Whether the present failure occurs once only, so that there is nothing to remember."""
        return False

    def known_causes(self, context: Mapping[str, Any]) -> frozenset[str]:
        """Return the causes of the failures of which people know; none if the task works."""
        return frozenset((_known(context) or {}).get("causes", ()))

    def causes(self, error: BaseException | None) -> frozenset[str]:
        """Return the causes of all present failures, of which `error` is raised."""
        return frozenset((cause(error),))

    @contextlib.contextmanager
    def told_once(self, context: Mapping[str, Any]) -> Iterator[None]:
        """Skip the task instead of a failure of which people know."""
        try:
            yield
        except AirflowSkipException:
            raise
        except Exception as error:
            known = None if self.is_told_elsewhere else _known(context)
            if known and self.causes(error).issubset(known["causes"]):
                told = refusal(str(error))
                raise AirflowSkipException(f"it still fails, as it does since {known['since']} UTC: {told}") from error
            raise


def cause(error: BaseException | None) -> str:
    """Return what stays the same while a failure lasts.

    A server that is down refuses connections, breaks them, or is full: these are one cause.
    """
    coded = error if isinstance(error, UnshardError) else getattr(error, "__cause__", None)
    if not isinstance(coded, UnshardError):
        return refusal(str(error))
    where = str(getattr(coded, "where", ""))
    return f"{where} is down" if where and coded.transient else f"{coded.code} {where}".rstrip()


def tell_people(context: Mapping[str, Any]) -> None:
    """Alert people of a failure, then remember it; `on_failure_callback` of every task."""
    notify(context)
    task = context["task"]
    if isinstance(task, ToldOnce) and not task.is_told_elsewhere:
        error = context.get("exception")
        told = task.causes(error) & task.known_causes(context) | {cause(error)}  # an alert is about one error
        value = {"causes": sorted(told), "since": f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}"}
        Variable.set(_key(context), value, description=ABOUT.format(**_names(context)), serialize_json=True)


def tell_recovery(context: Mapping[str, Any]) -> None:
    """Tell people that a task works again, then forget its failure; `on_success_callback` of every task."""
    if not isinstance(context["task"], ToldOnce) or not (known := _known(context)):
        return
    log.info("works again after failures since=%s UTC causes=%s", known["since"], visible(", ".join(known["causes"])))
    notify({**context, "failing_since": known["since"]})
    Variable.delete(_key(context))


def _known(context: Mapping[str, Any]) -> Mapping[str, Any] | None:
    found: Mapping[str, Any] | None = Variable.get(_key(context), default=None, deserialize_json=True)
    return found


def _key(context: Mapping[str, Any]) -> str:
    """Return the name of the Variable; names of tasks and sources may be longer than that of a Variable."""
    return PREFIX + hashlib.sha256(" ".join(_names(context).values()).encode()).hexdigest()[:16]


def _names(context: Mapping[str, Any]) -> dict[str, str]:
    return {"dag": context["ti"].dag_id, "task": context["ti"].task_id, "source": context["task"].source}
