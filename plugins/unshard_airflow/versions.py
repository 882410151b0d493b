"""Names that have another place in Airflow 3.1 or 3.2 than in 3.3.

Airflow's package common.compat has the other names: exceptions and stats.
"""

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
"""Whether threads of the triggerer may ask Airflow for a connection; their questions were mixed up before."""

__all__ = ["AWAITING_INPUT", "THREADS_MAY_ASK", "AssetOrTimeSchedule", "CronTriggerTimetable"]
