"""The start time of a task, from the command line or Airflow."""

from dataclasses import replace
from datetime import datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

from unshard.config.checks import OFFSET
from unshard.config.model import Task, TaskMode
from unshard.errors.config import BadValue
from unshard.errors.meta import StartNotNew


def starting_at(task: Task, text: str) -> Task:
    """Return the task with this start time; without an offset it is in the task's time zone."""
    if task.task_mode is not TaskMode.INCREMENTAL:
        raise StartNotNew(task.name, f"its task-mode is {task.task_mode}, so windows begin where the dump ends")
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        raise BadValue("start time", text, "a time like 2026-01-31T23:59:59, with or without an offset") from None
    moment = found if found.tzinfo else found.replace(tzinfo=zone_of(task.timezone))
    instances = tuple(replace(instance, start_time=moment) for instance in task.instances)
    return replace(task, instances=instances)


def zone_of(name: str) -> tzinfo:
    """Return the time zone of the task's `timezone`."""
    offset = OFFSET.fullmatch(name)
    if not offset:
        return ZoneInfo(name)
    minutes = int(offset[2]) * 60 + int(offset[3])
    return timezone(timedelta(minutes=-minutes if offset[1] == "-" else minutes))
