"""Sends the metrics of a task (unshard.units.task.metrics) to Airflow's stats: StatsD, OpenTelemetry or Datadog.

| process | sends |
|---|---|
| a live run | counters and timers of its windows; with a schedule that is not continuous also the state |
| the watcher in the triggerer | the state of its task, also while no live run is at work |
| dump and load | their progress |
| a check | the proof of its table |
"""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from airflow.sdk.configuration import conf
from airflow.sdk.observability import stats

from unshard.config import load_task
from unshard.config.task import plain
from unshard_airflow.connections import airflow_connections

if TYPE_CHECKING:
    from unshard.units.task.metrics import Measurement

STATE_SECONDS = 15.0
"""The state of a task is sent so often."""

log = logging.getLogger(__name__)


def send(measurements: "Iterable[Measurement]") -> None:
    """Send measurements; StatsD would drop tags with special characters."""
    from unshard.units.task.metrics import MetricKind

    for each in measurements:
        name, tags = each.metric.in_airflow, {tag: plain(value) for tag, value in each.tags.items()}
        if each.metric.kind is MetricKind.GAUGE:
            stats.gauge(name, float(each.value), tags=tags)
        elif each.metric.kind is MetricKind.TIMER:
            stats.timing(name, timedelta(seconds=each.value), tags=tags)
        else:
            stats.incr(name, int(each.value), tags=tags)


def send_state(task_file: str) -> None:
    """Send the state of a task."""
    from unshard.units.task.status import measured

    try:
        send(measured(load_task(Path(task_file)), airflow_connections))
    except Exception as error:
        log.warning("the metrics of a task cannot be sent task=%s error=%s", task_file, error)


@cache
def initialize_in_triggerer() -> None:
    """Configure the stats of this process: Airflow configures them in the parent process of the triggers only."""
    from airflow.sdk.observability.metrics.stats_utils import get_stats_factory

    stats.initialize(
        factory=get_stats_factory(), export_legacy_names=conf.getboolean("metrics", "legacy_names_on", fallback=False)
    )


@contextlib.contextmanager
def in_background(step: Callable[[], None], seconds: float) -> Iterator[None]:
    """Call a function in a thread again and again while the block runs, and at its end."""
    ended = threading.Event()

    def repeat() -> None:
        is_over = False
        while not is_over:
            is_over = ended.wait(seconds)
            step()

    thread = threading.Thread(target=repeat, name="background", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(seconds)
