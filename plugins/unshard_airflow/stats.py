"""Sends the metrics of a task (unshard.units.task.metrics) to Airflow's stats: StatsD, OpenTelemetry or Datadog.

| process | sends |
|---|---|
| a live run | counters and timers of its windows; with a schedule that is not continuous also the state |
| the watcher in the triggerer | the state of its task, also while no live run is at work |
| dump and load | their progress |
| a check | the proof of its table |
"""

import contextlib
from collections.abc import Iterable
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from airflow.configuration import conf
from airflow.providers.common.compat.sdk import Stats

from unshard.config.task import plain
from unshard_airflow.connections import airflow_connections
from unshard_airflow.options import task_with_options

if TYPE_CHECKING:
    from unshard.units.task.metrics import Measurement

SWITCHES = ("statsd_on", "statsd_datadog_enabled", "otel_on")
"""Options of Airflow's section [metrics]."""
STATE_SECONDS = 15.0
"""The state of a task is sent so often."""


def send(measurements: "Iterable[Measurement]") -> None:
    """Send measurements; StatsD would drop tags with special characters."""
    from unshard.units.task.metrics import MetricKind

    for each in measurements:
        name, tags = each.metric.in_airflow, {tag: plain(value) for tag, value in each.tags.items()}
        if each.metric.kind is MetricKind.GAUGE:
            Stats.gauge(name, float(each.value), tags=tags)
        elif each.metric.kind is MetricKind.TIMER:
            Stats.timing(name, timedelta(seconds=each.value), tags=tags)
        else:
            Stats.incr(name, int(each.value), tags=tags)


def is_on() -> bool:
    """Whether Airflow sends its stats anywhere; otherwise the state of a task need not be read."""
    return any(conf.getboolean("metrics", name, fallback=False) for name in SWITCHES)


def send_state(task_file: str) -> str:
    """Send the state of a task; return the error, or an empty text."""
    if not is_on():
        return ""
    from unshard.units.task.status import measured

    try:
        send(measured(task_with_options(Path(task_file)), airflow_connections))
    except Exception as error:
        return f"the metrics of {task_file} cannot be sent: {error}"
    return ""


@cache
def initialize_in_triggerer() -> None:
    """Configure the stats of this process, and create their client before threads use it.

    Airflow configures them in the parent process of the triggers only. Two threads that send first, at once, would
    create two clients of OpenTelemetry, and the first would export its old values for ever.
    """
    with contextlib.suppress(ImportError):  # Airflow 3.1 configures them at the first use
        from airflow.sdk.observability.metrics.stats_utils import get_stats_factory

        try:
            legacy = conf.getboolean("metrics", "legacy_names_on", fallback=False)
            Stats.initialize(factory=get_stats_factory(), export_legacy_names=legacy)
        except TypeError:  # Airflow 3.2
            Stats.initialize(factory=get_stats_factory(Stats))  # type: ignore[call-arg]
    Stats.timer()
