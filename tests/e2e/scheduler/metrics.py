"""A receiver of OpenTelemetry metrics over HTTP, which remembers the newest value of each gauge."""

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

Tags = frozenset[tuple[str, str]]


class Metrics:
    """The gauges that Airflow's processes have sent, by name and tags."""

    def __init__(self) -> None:
        self.gauges: dict[tuple[str, Tags], float] = {}
        self.settings: dict[str, str] = {}

    def receive(self, body: bytes) -> None:
        request = ExportMetricsServiceRequest.FromString(body)
        for resource in request.resource_metrics:
            for metric in (each for scope in resource.scope_metrics for each in scope.metrics):
                for point in metric.gauge.data_points:
                    tags = frozenset((each.key, each.value.string_value) for each in point.attributes)
                    self.gauges[metric.name, tags] = point.as_double or point.as_int

    def of(self, name: str, **tags: str) -> float | None:
        """Return the newest value of a gauge."""
        return self.gauges.get((name, frozenset(tags.items())))


@contextlib.contextmanager
def receiving() -> Iterator[Metrics]:
    """Receive metrics; `settings` are the environment of an Airflow that sends them here."""
    metrics = Metrics()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            metrics.receive(self.rfile.read(int(self.headers["Content-Length"])))
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
