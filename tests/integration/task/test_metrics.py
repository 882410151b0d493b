"""The metrics of one known run on real servers, as Prometheus, StatsD and OpenTelemetry get them."""

import asyncio
import atexit
import json
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import Engine, event

from tests.integration.task.test_follow import known
from tests.lifetask import LifeTask, task
from tests.received import Metrics, receiving, receiving_statsd
from unshard.cli import main
from unshard.cli.prometheus import Exposition
from unshard.units.task.metrics import METRICS, Measurement, MetricKind
from unshard.units.task.status import measured
from unshard_demo.processes import await_true
from unshard_demo.servers import free_port

__all__ = ["known", "task"]

pytestmark = [pytest.mark.integration, pytest.mark.mariadb_only("metrics do not depend on the target")]
SECONDS = 100
RECEIVERS = {"otel": receiving, "statsd": receiving_statsd}


def known_run(task: LifeTask) -> dict[str, float]:
    """Load, validate, then write rows and a DDL that no window has read; return the values after the next run.

    In s1 a row is applied, then the DDL opens a lock, and two rows are held at it. s2 has no change.
    """
    task.go()
    assert task.command("validate") == 0
    shard = f"{task.name}.t_1"
    task.insert("s1", shard, 10)
    task.sources["s1"].run(f"ALTER TABLE {shard} ADD x INT", f"INSERT INTO {shard} VALUES (11, 'a', 1), (12, 'b', 2)")
    target = f"{task.name}_to.t"
    known = {
        **dict.fromkeys(("target_reachable", "source_reachable s1", "source_reachable s2", "live_runs s1"), 1),
        **dict.fromkeys(("dump_percent s1", "load_percent s2", f"proven_percent {target}"), 100),
        **{"dump_rows s1": 2, "load_rows s1": 2, "dump_rows s2": 1, "rows_applied s1": 1, "rows_held s1": 2},
        **{"held_rows s1": 2, "held_rows s2": 0, "lag_seconds s2": 0, f"open_locks {target}": 1},
    }
    zero = "paused", "errors s1", "binlog_bytes_behind s1", "suspended_targets s1", "open_collisions s1"
    zero += "rows_filtered s1", "rows_skipped s1", "rows_diverted s1", "rows_released s1"
    zero += f"missing_rows {target}", f"differing_ranges {target}"
    return known | dict.fromkeys(zero, 0)


def lag_in_status(task: LifeTask, capsys: pytest.CaptureFixture[str]) -> int:
    capsys.readouterr()
    assert main(["status", str(task.path), "--json"]) == 0
    return int(json.loads(capsys.readouterr().out)["sources"][0]["lag_seconds"])


def scraped(port: int) -> dict[str, float]:
    """Return the samples by name and tags, without that of the task; of timers the number of each stage."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=SECONDS) as answer:
            families = [*text_string_to_metric_families(answer.read().decode())]
    except OSError:
        return {}
    samples = (each for family in families for each in family.samples if not each.name.endswith(("_created", "_sum")))
    return {
        " ".join((each.name, *(value for tag, value in each.labels.items() if tag not in ("task", "le")))): each.value
        for each in samples
    }


def test_prometheus_reads_a_run_that_follows(task: LifeTask, capsys: pytest.CaptureFixture[str]) -> None:
    wanted, port, found = known_run(task), free_port(), dict[str, float]()
    command = "-m", "unshard.cli", "run", str(task.path), "--follow", "--metrics-port", str(port)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen([sys.executable, *command], **pipes, text=True) as process:
        try:

            def is_held() -> bool:
                found.clear()
                found.update(scraped(port))
                assert process.poll() is None
                return found.get("unshard_held_rows s1") == found.get("unshard_rows_held_total s1") == 2

            await_true(is_held, SECONDS, [], "held rows")
            lag = lag_in_status(task, capsys)
            assert task.command("pause", "--reason", "a test") == 0
            await_true(lambda: scraped(port)["unshard_paused"] == 1, SECONDS, [], "a pause")
            assert task.command("resume") == 0
            await_true(lambda: scraped(port)["unshard_live_runs_total s1"] == 2, SECONDS, [], "a second live run")
        finally:
            process.send_signal(signal.SIGTERM)
            told, _ = process.communicate(timeout=SECONDS)
        assert process.returncode in (3, 143), told  # 143: it was about to listen to signals again
    for name, value in wanted.items():
        metric, *tags = name.split()
        assert found[" ".join((METRICS[metric].in_prometheus, *tags))] == value, name
    assert 1 <= found["unshard_lag_seconds s1"] <= lag
    assert found["unshard_windows_total s1"] == found["unshard_window_duration_seconds_count s1 commit"] > 0
    assert found["unshard_window_bytes_total s1"] > 0 and "unshard_windows_total s2" not in found
    emitted = {name.split()[0] for name in found}
    suffix = {MetricKind.TIMER: "_count"}
    assert {each.in_prometheus + suffix.get(each.kind, "") for each in METRICS.values()} <= emitted


@pytest.fixture(params=RECEIVERS)
def received(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, known: dict[str, str]
) -> Iterator[Metrics]:
    """Airflow's stats of this process, which go to a receiver."""
    from airflow.sdk._shared.observability.metrics import stats
    from airflow.sdk._shared.observability.metrics.base_stats_logger import NoStatsLogger
    from airflow.sdk._shared.observability.metrics.otel_logger import flush_otel_metrics

    from unshard_airflow.stats import initialize_in_triggerer

    with RECEIVERS[request.param]() as metrics:
        for name, value in metrics.settings.items():
            monkeypatch.setenv(name, value)
        initialize_in_triggerer.cache_clear()
        initialize_in_triggerer()
        yield metrics
        backend = stats._get_backend()
        stats.initialize(factory=NoStatsLogger, export_legacy_names=False)
        backend.statsd.close() if hasattr(backend, "statsd") else backend.otel.shutdown()
        atexit.unregister(flush_otel_metrics)


def flush() -> None:
    """Let OpenTelemetry send what it has collected, as it does from time to time."""
    from opentelemetry.metrics import get_meter_provider

    if hasattr(provider := get_meter_provider(), "force_flush"):
        provider.force_flush()


@pytest.mark.sample("the receivers differ")
def test_airflow_sends_a_live_run(task: LifeTask, received: Metrics, capsys: pytest.CaptureFixture[str]) -> None:
    from unshard_airflow.follow import Follow

    wanted = known_run(task)
    follow = Follow(
        task_id="follow", task_file=str(task.path), sources=["s1", "s2"], is_continuous=False, dag_of_locks="locks"
    )
    calls = {"xcom_push": lambda **_: None, "get_dr_count": lambda *_, **__: 1}
    instance = SimpleNamespace(dag_id="sync", task_id="follow", **calls)
    follow.execute({"ti": instance, "task": follow})  # type: ignore[arg-type]

    def value(name: str) -> float | None:
        metric, *values = name.split()
        tags = dict(zip(METRICS[metric].tags, ("life", *values), strict=True))
        return received.of(f"airflow.{METRICS[metric].in_airflow}", **tags)

    def all_came() -> bool:
        flush()
        return {f"airflow.{each.in_airflow}" for each in METRICS.values()} <= received.names

    await_true(all_came, SECONDS, [], "all metrics")
    assert {name: value(name) for name in wanted} == wanted
    assert 1 <= (value("lag_seconds s1") or 0) <= lag_in_status(task, capsys)
    assert value("windows s1") == value("window_duration s1 commit") and value("windows s2") is None
    assert b"password" not in repr(vars(received)).encode()


@pytest.mark.sample("the receivers differ")
def test_an_operator_of_the_public_api_sends_the_same(task: LifeTask, received: Metrics) -> None:
    from unshard_airflow.api import UnshardFollow

    task.go()
    task.insert("s2", f"{task.name}.t_2", 10)
    UnshardFollow(task_id="follow", task_file=str(task.path)).execute({})  # type: ignore[typeddict-item]
    flush()
    tags = {"task": "life", "source": "s2"}

    def is_sent() -> bool:
        return received.of("airflow.unshard.rows_applied", **tags) == 1

    await_true(is_sent, SECONDS, [], "the row")
    assert (received.of("airflow.unshard.lag_seconds", **tags), received.of("airflow.unshard.live_runs", **tags)) == (
        0,
        1,
    )


@pytest.mark.sample("the receivers differ")
def test_the_triggerer_sends_the_state_of_a_task(task: LifeTask, received: Metrics) -> None:
    from unshard_airflow.watch import BinlogTrigger

    task.go()
    task.sources["s1"].run(f"INSERT INTO {task.name}.t_1 VALUES (10, 'a')")

    async def fire() -> None:
        events = BinlogTrigger(task_file=str(task.path)).run()
        await anext(events)
        while not any("lag_seconds" in name for name in received.names):
            await asyncio.to_thread(flush)
        await events.aclose()

    asyncio.run(asyncio.wait_for(fire(), SECONDS))
    assert (received.of("airflow.unshard.lag_seconds", task="life", source="s1") or 0) >= 1
    assert received.of("airflow.unshard.binlog_bytes_behind", task="life", source="s2") == 0


def test_servers_that_do_not_answer(task: LifeTask) -> None:
    task.go()
    task.write_source("s1", **{"from": {"host": "127.0.0.1", "port": 1, "user": "x", "password": "secret"}})

    def found() -> dict[str, float]:
        return {" ".join((each.metric.name, each.tags.get("source", ""))): each.value for each in measured(task.load())}

    assert (found()["source_reachable s1"], found()["source_reachable s2"]) == (0, 1)
    assert "lag_seconds s1" not in found() and found()["lag_seconds s2"] == 0
    task.body["target-database"]["port"] = 1
    task.write()
    assert found() == {"target_reachable ": 0}


def test_a_source_that_is_silent_delays_no_answer(task: LifeTask) -> None:
    task.go()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        task.write_source("s1", **{"from": {"host": "127.0.0.1", "port": port, "user": "x", "password": "secret"}})
        exposition = Exposition(task.load())
        families = {each.name: each.samples for each in exposition.collect()}
        assert families["unshard_source_reachable"] == [], "the first answer does not wait for it"

    def reachable() -> list[float]:
        families = {each.name: each.samples for each in exposition.collect()}
        return [each.value for each in families["unshard_source_reachable"]]

    await_true(lambda: reachable() == [0, 1], SECONDS, [], "the other source")


def test_the_state_of_a_larger_task_takes_no_more_statements(task: LifeTask) -> None:
    def statements() -> int:
        sent: list[str] = []

        def note(_: object, __: object, statement: str, *___: object) -> None:
            sent.append(statement)

        event.listen(Engine, "before_cursor_execute", note)
        try:
            assert len(measured(task.load())) > len(task.sources)
        finally:
            event.remove(Engine, "before_cursor_execute", note)
        return len(sent)

    task.go()
    few = statements()
    for number in range(20, 30):
        task.make_shard("s1", number, number)
        task.go()
    task.sources["s1"].run(
        f"ALTER TABLE {task.name}.t_20 ADD x INT", f"INSERT INTO {task.name}.t_20 VALUES (50, 'a', 1)"
    )
    task.run()
    assert statements() == few <= 10 + 25 * len(task.sources)


def test_a_port_that_cannot_be_used_is_told(task: LifeTask, capsys: pytest.CaptureFixture[str]) -> None:
    assert task.command("run", "--follow", "--metrics-port", str(task.target.port)) == 1
    assert "US-1901" in (told := capsys.readouterr().err) and f"127.0.0.1:{task.target.port}" in told
    assert task.command("run", "--metrics-port", "1") == 1


def test_threads_that_send_at_once_share_a_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each client of OpenTelemetry exports its values again and again, also when another one has newer values."""
    from airflow.sdk._shared.observability.metrics.base_stats_logger import NoStatsLogger
    from airflow.sdk.observability.metrics import stats_utils

    from unshard_airflow.stats import Stats, initialize_in_triggerer, send

    created = list[NoStatsLogger]()

    def create() -> NoStatsLogger:
        time.sleep(0.1)
        created.append(NoStatsLogger())
        return created[-1]

    monkeypatch.setattr(stats_utils, "get_stats_factory", lambda: create)
    initialize_in_triggerer.cache_clear()
    initialize_in_triggerer()
    lags = [[Measurement(METRICS["lag_seconds"], lag, {"task": "t", "source": "s"})] for lag in range(4)]
    with ThreadPoolExecutor(len(lags)) as pool:
        assert [*pool.map(send, lags)] == [None] * len(lags)
    Stats.initialize(factory=NoStatsLogger, export_legacy_names=False)
    assert len(created) == 1
