"""`unshard run --follow --metrics-port`: the metrics of the task in the format of Prometheus, over HTTP."""

import threading
import time
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from unshard.config import Task
from unshard.errors.config import UsageWrong
from unshard.units.task.metrics import METRICS, Measurement, Metric, MetricKind
from unshard.units.task.status import measured

KEPT_SECONDS = 5.0
"""A request that comes so soon after another one gets the same gauges."""
ANSWER_SECONDS = 3.0
"""A request waits at most so long for new gauges: a source that does not answer delays no other."""
BUCKETS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100)
"""Upper bounds of the durations of stages, in seconds; the StatsD mapping has the same."""
COMMAND = "unshard run"


class Exposition:
    """Counters and timers as they are added, gauges as they are when they are asked for."""

    def __init__(self, task: Task) -> None:
        try:
            import prometheus_client
        except ImportError as error:
            raise UsageWrong("--metrics-port needs prometheus-client, the extra `metrics`", COMMAND) from error
        self.task = task
        self._client: Any = prometheus_client
        self._registry: Any = prometheus_client.CollectorRegistry()
        self._added = {metric.name: self._made(metric) for metric in METRICS.values() if _is_added(metric)}
        self._asking = threading.Lock()
        self._pool = ThreadPoolExecutor(1, "metrics")
        self._reading: Future[list[Measurement]] | None = None
        self._began = 0.0
        self._gauges: list[Measurement] = []
        self._registry.register(self)

    def serve(self, address: str, port: int) -> None:
        """Answer requests until the process ends."""
        try:
            self._client.start_http_server(port, address, self._registry)
        except (OSError, OverflowError) as error:
            raise UsageWrong(f"--metrics-port: cannot listen on {address}:{port}: {error}", COMMAND) from error

    def add(self, measurements: Iterable[Measurement]) -> None:
        """Add to counters and timers."""
        for each in measurements:
            child = self._added[each.metric.name].labels(**each.tags)
            if each.metric.kind is MetricKind.TIMER:
                child.observe(each.value)
            else:
                child.inc(each.value)

    def collect(self) -> Iterable[Any]:
        """Return the gauges; the registry calls it for each request."""
        from prometheus_client.core import GaugeMetricFamily

        families = {
            metric.name: GaugeMetricFamily(metric.in_prometheus, metric.about, labels=metric.tags)
            for metric in METRICS.values()
            if not _is_added(metric)
        }
        for each in self._state():
            families[each.metric.name].add_metric([each.tags[tag] for tag in each.metric.tags], each.value)
        return families.values()

    def _state(self) -> list[Measurement]:
        """Return the newest gauges; begin to read them if those of the last request are old."""
        with self._asking:
            is_over = self._reading is None or self._reading.done()
            if self._reading is None or (is_over and time.monotonic() - self._began >= KEPT_SECONDS):
                self._reading, self._began = self._pool.submit(measured, self.task), time.monotonic()
            with suppress(TimeoutError):
                self._gauges = self._reading.result(ANSWER_SECONDS)
            return self._gauges

    def _made(self, metric: Metric) -> Any:
        about = {"name": metric.in_prometheus, "documentation": metric.about, "labelnames": metric.tags}
        if metric.kind is MetricKind.TIMER:
            return self._client.Histogram(**about, registry=self._registry, buckets=BUCKETS)
        return self._client.Counter(**about, registry=self._registry)


def _is_added(metric: Metric) -> bool:
    return metric.kind is not MetricKind.GAUGE
