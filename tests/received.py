"""Receivers of metrics: OTLP over HTTP, and StatsD over UDP with the tags of InfluxDB."""

import contextlib
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

Tags = frozenset[tuple[str, str]]
Key = tuple[str, Tags]


class Metrics:
    """The metrics that processes have sent, by name and tags."""

    def __init__(self) -> None:
        self.gauges: dict[Key, float] = {}
        """The newest value of each."""
        self.counters: Counter[Key] = Counter()
        self.timers: Counter[Key] = Counter()
        """How many durations were sent."""
        self.settings: dict[str, str] = {}
        """The environment of an Airflow that sends them here."""

    def of(self, name: str, **tags: str) -> float | None:
        """Return the value of a metric; of a timer the number of durations."""
        key = name, frozenset(tags.items())
        return next((kind[key] for kind in (self.gauges, self.counters, self.timers) if key in kind), None)

    @property
    def names(self) -> set[str]:
        return {name for name, _ in (*self.gauges, *self.counters, *self.timers)}

    def receive_otlp(self, body: bytes) -> None:
        """Keep the values of one process: its counters are sums since its start."""
        request = ExportMetricsServiceRequest.FromString(body)
        for resource in request.resource_metrics:
            for metric in (each for scope in resource.scope_metrics for each in scope.metrics):
                for point in metric.gauge.data_points:
                    self.gauges[_key(metric.name, point)] = point.as_double or point.as_int
                for point in metric.sum.data_points:
                    self.counters[_key(metric.name, point)] = int(point.as_double or point.as_int)
                for point in metric.exponential_histogram.data_points:
                    self.timers[_key(metric.name, point)] = point.count

    def receive_statsd(self, line: str) -> None:
        """Keep a value such as `airflow.unshard.windows,task=shop,source=s1:1|c`."""
        place, _, text = line.rpartition(":")
        name, *tags = place.split(",")
        key = name, frozenset((tag, value) for tag, _, value in (each.partition("=") for each in tags))
        value, kind, *_ = text.split("|")
        match kind:
            case "g":
                self.gauges[key] = float(value)
            case "c":
                self.counters[key] += int(value)
            case "ms":
                self.timers[key] += 1


def _key(name: str, point: object) -> Key:
    return name, frozenset((each.key, each.value.string_value) for each in point.attributes)  # type: ignore[attr-defined]


@contextlib.contextmanager
def receiving() -> Iterator[Metrics]:
    """Receive metrics of OpenTelemetry."""
    metrics = Metrics()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            metrics.receive_otlp(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        metrics.settings = {
            "AIRFLOW__METRICS__OTEL_ON": "True",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{server.server_port}",
            "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": f"http://127.0.0.1:{server.server_port}/v1/metrics",
        }
        yield metrics
        server.shutdown()


@contextlib.contextmanager
def receiving_statsd() -> Iterator[Metrics]:
    """Receive metrics of StatsD."""
    metrics = Metrics()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)

        def receive() -> None:
            while line := server.recv(65536):
                metrics.receive_statsd(line.decode())

        thread = threading.Thread(target=receive, daemon=True)
        thread.start()
        port = server.getsockname()[1]
        metrics.settings = {
            "AIRFLOW__METRICS__STATSD_ON": "True",
            "AIRFLOW__METRICS__STATSD_INFLUXDB_ENABLED": "True",
            "AIRFLOW__METRICS__STATSD_HOST": "127.0.0.1",
            "AIRFLOW__METRICS__STATSD_PORT": str(port),
        }
        yield metrics
        server.sendto(b"", ("127.0.0.1", port))
        thread.join()
