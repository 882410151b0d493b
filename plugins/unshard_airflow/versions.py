"""Names that have another place in Airflow 3.1 or 3.2 than in 3.3.

Airflow's package common.compat has the other names: exceptions and stats.
"""

from airflow.providers.common.compat.sdk import TaskDeferred

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

__all__ = ["AWAITING_INPUT", "AssetOrTimeSchedule", "CronTriggerTimetable"]
