"""Convert coded errors to retries or failures of Airflow, and tell them."""

import contextlib
import logging
from collections.abc import Iterator, Mapping
from typing import Any

from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from unshard.core.masking import statement
from unshard.core.shown import visible
from unshard.errors import UnshardError
from unshard.errors.meta import TaskPaused

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
