"""Convert unshard's values to Airflow's: coded errors to retries or failures, reports to XCom."""

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from typing import Any

from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from unshard.core.masking import statement
from unshard.core.model import Location, Shard, TableId
from unshard.core.shown import visible
from unshard.errors import UnshardError
from unshard.errors.meta import TaskPaused

NOUNS = (Location, TableId, Shard, UnshardError)

log = logging.getLogger(__name__)


@contextlib.contextmanager
def failures_told() -> Iterator[None]:
    """Raise AirflowFailException for permanent errors; Airflow retries transient ones.

    A paused task is not a failure: the Airflow task is skipped with a message.
    """
    try:
        yield
    except TaskPaused as error:
        raise AirflowSkipException(str(error)) from error
    except UnshardError as error:
        if error.transient:
            raise
        raise AirflowFailException(visible(statement(str(error)))) from error


def as_json(value: Any) -> Any:
    """Return a report as JSON values for XCom; names of tables and positions become text."""
    if is_dataclass(value) and not isinstance(value, NOUNS):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    match value:
        case None | bool() | int() | float():
            return value
        case Mapping():
            return {str(key): as_json(item) for key, item in value.items()}
        case Sequence() | Set() if not isinstance(value, str | bytes):
            return [as_json(item) for item in value]
        case _:
            return str(value)


def tell_failure(context: Mapping[str, Any]) -> None:
    """Log the failure and the commands that help; `on_failure_callback` of every task."""
    task, instance = context["task"], context["ti"]
    log.error(
        "task failed dag=%s run=%s task=%s error=%s",
        instance.dag_id,
        instance.run_id,
        instance.task_id,
        visible(statement(str(context.get("exception")))),
    )
    for line in getattr(task, "remedies", lambda: ())():
        log.error("%s", visible(line))
