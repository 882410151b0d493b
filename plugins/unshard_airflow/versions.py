"""Airflow 3.1 and 3.2 differ here from 3.3, above all in the places of names.

Airflow's package common.compat has the other names: exceptions and stats.
"""

import functools
import threading
from collections.abc import Callable
from typing import Any

from airflow.providers.common.compat.sdk import TaskDeferred

from airflow import __version__

try:
    from airflow.sdk import AssetOrTimeSchedule, CronTriggerTimetable
except ImportError:
    from airflow.timetables.assets import AssetOrTimeSchedule  # type: ignore[assignment]
    from airflow.timetables.trigger import CronTriggerTimetable  # type: ignore[assignment]
try:
    from airflow.sdk.exceptions import TaskAwaitingInput

    AWAITING_INPUT: tuple[type[BaseException], ...] = (TaskAwaitingInput,)
except ImportError:
    AWAITING_INPUT = (TaskDeferred,)
"""What an operator raises that asks a person; its `kwargs` come back with the answer."""

THREADS_MAY_ASK = tuple(map(int, __version__.split(".")[:2])) >= (3, 3)
"""Whether threads may ask Airflow for a connection; their questions and answers were mixed up before."""


def one_at_a_time(send: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function for several threads: each waits until the answer of the one before it has come."""
    lock = threading.RLock()

    @functools.wraps(send)
    def sent(*arguments: Any, **named: Any) -> Any:
        with lock:
            return send(*arguments, **named)

    return sent


if not THREADS_MAY_ASK:
    from airflow.sdk.execution_time.comms import CommsDecoder

    # A task whose thread has got the answer of another one waits for its own for ever.
    CommsDecoder.send = one_at_a_time(CommsDecoder.send)  # type: ignore[method-assign]

__all__ = ["AWAITING_INPUT", "THREADS_MAY_ASK", "AssetOrTimeSchedule", "CronTriggerTimetable", "one_at_a_time"]
