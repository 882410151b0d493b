"""The metrics of a task: their names, and how each follows from a window, a source, a lock or a proof. Pure.

Two shells send the measurements: Airflow's stats (unshard_airflow/stats.py), and `unshard run --follow --metrics-port`
(cli/prometheus.py). The dashboard, the StatsD mapping and the alert rules in `include/observability` use these names,
and docs/metrics.md lists them; tests compare all of them with METRICS.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING

from unshard.core.full.fullprogress import Progress
from unshard.core.model import TableId
from unshard.core.rows.rowerrors import CollisionState
from unshard.core.validate.ledger import PROOF_HOURS, Proof

if TYPE_CHECKING:
    from unshard.units.task.status import SourceStatus, TaskFigures
    from unshard.units.window.sync import WindowReport


class MetricKind(StrEnum):
    """How values of a metric are combined: the last one counts, they are added, or they are durations in seconds."""

    GAUGE = "gauge"
    COUNTER = "counter"
    TIMER = "timer"


SUFFIXES = {MetricKind.GAUGE: "", MetricKind.COUNTER: "_total", MetricKind.TIMER: "_seconds"}
OF_TASK = ("task",)
OF_SOURCE = ("task", "source")
OF_TARGET = ("task", "target")
OF_STAGE = ("task", "source", "stage")


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric; every measurement of it has exactly these tags."""

    name: str
    kind: MetricKind
    tags: tuple[str, ...]
    about: str

    @property
    def in_airflow(self) -> str:
        """The name in Airflow's stats, without Airflow's own prefix."""
        return f"unshard.{self.name}"

    @property
    def in_prometheus(self) -> str:
        return f"unshard_{self.name}{SUFFIXES[self.kind]}"


@dataclass(frozen=True, slots=True)
class Measurement:
    """A value of a metric; a counter has the increase, a timer seconds."""

    metric: Metric
    value: float
    tags: Mapping[str, str]


def _listed(kind: MetricKind, tags: tuple[str, ...], **about: str) -> Iterator[Metric]:
    return (Metric(name, kind, tags, text) for name, text in about.items())


METRICS: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        *_listed(
            MetricKind.GAUGE,
            OF_SOURCE,
            lag_seconds="the lag of `unshard status`; the least value if it may be longer, none if it is unknown",
            binlog_bytes_behind="bytes of binlog after the checkpoint; none if the source does not answer",
            source_reachable="1 if the source answers, else 0",
            held_rows="rows that are held now",
            suspended_targets="targets that take no rows of the source now",
            open_collisions="keys that two shards have, and that the load or the windows wait for",
            dump_percent="the part of the dump that is done; none without a dump",
            dump_rows="dumped rows",
            load_percent="the part of the load that is done; none without a load",
            load_rows="loaded rows",
        ),
        *_listed(
            MetricKind.GAUGE,
            OF_TASK,
            target_reachable="1 if the meta tables can be read, else 0; then the other gauges are not sent",
            paused="1 if the task is paused or stopped, else 0",
        ),
        *_listed(
            MetricKind.GAUGE,
            OF_TARGET,
            open_locks="open DDL locks",
            oldest_lock_seconds="time since the first shard ran the DDL of the open lock; 0 without one",
            missing_rows="diverted rows that the target lacks",
            proven_percent=f"rows of the target that validation has found equal within {PROOF_HOURS} h",
            oldest_proof_seconds="time since the range was compared that was compared longest ago",
            differing_ranges="ranges of the key in which validation has found a difference",
        ),
        *_listed(
            MetricKind.COUNTER,
            OF_SOURCE,
            windows="committed windows",
            window_bytes="bytes of binlog and of held rows that windows have read",
            rows_applied="row changes that windows have applied",
            rows_filtered="row changes that filters have left out",
            rows_skipped="rows that were left out because another shard owns their key",
            rows_diverted="rows that were diverted because the target refused them",
            rows_held="row changes that windows have held",
            rows_released="held row changes that windows have applied or filtered",
            live_runs="begun live runs; with `--follow` also after a pause and after a changed task file",
            errors="errors of the source in live runs, each try of a repeated one",
        ),
        *_listed(
            MetricKind.TIMER,
            OF_STAGE,
            window_duration="duration of a stage of a window: `plan`, `begin`, `create-targets`, `move`, `commit`, …",
        ),
    )
}
ROWS = tuple(name for name in METRICS if name.startswith("rows_"))
"""The counters that are fields of a window's report."""


def of_live_run(task: str, sources: Iterable[str]) -> Iterator[Measurement]:
    """Yield the begin of a live run."""
    for source in sources:
        yield _measured("live_runs", 1, task=task, source=source)
        yield _measured("errors", 0, task=task, source=source)


def of_error(task: str, source: str) -> Measurement:
    """Return an error of a source."""
    return _measured("errors", 1, task=task, source=source)


def of_window(task: str, report: "WindowReport") -> Iterator[Measurement]:
    """Yield what a committed window tells."""
    tags = {"task": task, "source": report.source}
    yield _measured("windows", 1, **tags)
    yield _measured("window_bytes", report.bytes, **tags)
    for name in ROWS:
        yield _measured(name, getattr(report, name), **tags)
    for stage, seconds in report.stages.items():
        yield _measured("window_duration", seconds, **tags, stage=stage)


def of_unreadable(task: str) -> Measurement:
    """Return that the state of a task cannot be read."""
    return _measured("target_reachable", 0, task=task)


def of_task(
    task: str, sources: "Iterable[SourceStatus]", figures: "TaskFigures | None", now: datetime
) -> Iterator[Measurement]:
    """Yield the present state of a task; `figures` are None before it has begun."""
    yield _measured("target_reachable", 1, task=task)
    for each in sources:
        yield from _of_source(task, each, figures)
    if figures is None:
        return
    yield _measured("paused", figures.pause is not None, task=task)
    proofs = {proof.target: proof for proof in figures.proofs}
    for target in sorted({*figures.targets, *proofs}):
        yield from _of_target(task, target, figures, now)
        if target in proofs:
            yield from of_proof(task, proofs[target])


def of_proof(task: str, proof: Proof) -> Iterator[Measurement]:
    """Yield how much of a target table is proven."""
    tags = {"task": task, "target": str(proof.target)}
    yield _measured("proven_percent", proof.percent, **tags)
    yield _measured("oldest_proof_seconds", round(proof.age.total_seconds()), **tags)
    yield _measured("differing_ranges", proof.different, **tags)


def of_load(task: str, source: str, dump: Progress, load: Progress) -> Iterator[Measurement]:
    """Yield the progress of the full load of a source."""
    for name, progress in (("dump", dump), ("load", load)):
        if progress.chunks:
            yield _measured(f"{name}_percent", progress.percent, task=task, source=source)
            yield _measured(f"{name}_rows", progress.rows + progress.rows_under_way, task=task, source=source)


def _of_source(task: str, each: "SourceStatus", figures: "TaskFigures | None") -> Iterator[Measurement]:
    stops = figures.stops if figures else ()
    values = {
        "lag_seconds": each.lag_seconds,
        "binlog_bytes_behind": each.lag_bytes,
        "source_reachable": each.error is None,
        "held_rows": each.rows_held,
        "suspended_targets": sum(stop.source == each.source for stop in stops),
        "open_collisions": each.collisions.get(CollisionState.OPEN, 0),
    }
    for name, value in values.items():
        if value is not None:
            yield _measured(name, value, task=task, source=each.source)
    yield from of_load(task, each.source, each.dump, each.load)


def _of_target(task: str, target: TableId, figures: "TaskFigures", now: datetime) -> Iterator[Measurement]:
    tags = {"task": task, "target": str(target)}
    ages = [(now - lock.opened_at).total_seconds() for lock in figures.locks if lock.target == target]
    yield _measured("open_locks", len(ages), **tags)
    yield _measured("oldest_lock_seconds", max(0, round(max(ages, default=0))), **tags)
    yield _measured("missing_rows", figures.diverted.get(str(target), 0), **tags)


def _measured(name: str, value: float, **tags: str) -> Measurement:
    return Measurement(METRICS[name], value, tags)
