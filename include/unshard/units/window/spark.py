"""The Spark job of a window, as the driver starts it: read parts, shuffle their runs by target, apply them.

Each target has one applier, and reading is less work than writing. So a small window runs as one task without a
shuffle, because a shuffle would take longer than the reading. Several targets are read and written in parallel. The
code uses only the session of pyspark, so it is the same for spark-submit, Connect and local.

With a `local` master the executor is on this machine. Then a small window needs no Spark: the driver calls the function
of its single task itself, which takes milliseconds, while the start of a JVM takes seconds.
"""

import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from unshard.adapters.spark import collect, columns, numbers
from unshard.adapters.target.targetrows import LineForm
from unshard.units.lazyspark import LazySpark
from unshard.units.limits import LIMITS, Limits
from unshard.units.rows.shuffle import PAYLOADS
from unshard.units.rows.windowjob import WindowJob
from unshard.units.window.slices import ReadAndApply
from unshard.units.window.tasks import RESULTS, ApplyTargets, NeedsText, ReadParts, Result

MOST_APPLIERS = 8


def run_job(opened: Callable[[], Any], job: WindowJob, limits: Limits = LIMITS) -> tuple[Result, ...]:
    """Run the window and return its results; coded errors are returned as results. `opened` returns the session."""
    workers = workers_for(job, limits)
    if workers == 1 and job.bytes <= limits.small_bytes and isinstance(opened, LazySpark) and opened.is_local:
        return tuple(ReadAndApply(job).results())
    spark = opened()
    if workers == 1:
        return _results(spark, lambda: numbers(spark, 1).mapInArrow(ReadAndApply(job), columns(RESULTS)))
    results = _results(spark, lambda: _two_stages(spark, replace(job, form=job.writer.form), workers))
    if any(isinstance(result, NeedsText) for result in results):
        return _results(spark, lambda: _two_stages(spark, replace(job, form=LineForm.TEXT), workers))
    return results


def _results(spark: Any, frame: Callable[[], Any]) -> tuple[Result, ...]:
    bodies = collect(spark, frame).column("body").to_pylist()
    return tuple(pickle.loads(body) for body in bodies)  # noqa: S301  written by our own executors


def _two_stages(spark: Any, job: WindowJob, workers: int) -> Any:
    tasks = numbers(spark, workers)
    slots = min(max(len(job.targets), 1), MOST_APPLIERS)
    payloads = tasks.mapInArrow(ReadParts(job, workers, slots), columns(PAYLOADS)).repartitionById(slots, "slot")
    return payloads.mapInArrow(ApplyTargets(job), columns(RESULTS))


def workers_for(job: WindowJob, limits: Limits) -> int:
    """Return the number of tasks that read."""
    if len(job.targets) == 1 and job.plan.borders:
        return 1
    if job.bytes <= (limits.alone_bytes if len(job.targets) == 1 else limits.small_bytes):
        return 1
    return max(1, min(len(job.parts), -(-job.bytes // limits.worker_bytes), limits.most_workers))
