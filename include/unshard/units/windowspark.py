"""The Spark job of a window: read and net parts, bring the runs of a target together, apply them.

One target is one applier, and reading is less work than writing. So what one task can read while others would still
be handing their runs over is one task without a shuffle; several targets are read and written side by side. The
code needs nothing of pyspark's but the session, so it is the same for spark-submit, Connect and local.
"""

import pickle
from typing import Any

from unshard.adapters.spark import collect
from unshard.units.parcels import PARCELS_SPARK
from unshard.units.windowjob import WindowJob
from unshard.units.windowslices import ReadAndApply
from unshard.units.windowtasks import RESULTS_SPARK, ApplyTargets, ReadParts, Result

SMALL_BYTES = 4 << 20
"""The job's own cost is all there is."""
ALONE_BYTES = 64 << 20
"""The same for a single target: what the shuffle costs is more than what reading side by side gains (ADR 0006)."""
WORKER_BYTES = 4 << 20
MOST_WORKERS = 32
MOST_APPLIERS = 8


def run_job(spark: Any, job: WindowJob) -> tuple[Result, ...]:
    """Run the window on Spark; errors that are coded come back as results."""
    bodies = collect(lambda: _frame(spark, job)).column("body").to_pylist()
    return tuple(pickle.loads(body) for body in bodies)  # noqa: S301  written by our own executors


def _frame(spark: Any, job: WindowJob) -> Any:
    workers = workers_for(job)
    numbers = spark.range(0, workers, 1, workers)
    if workers == 1:
        return numbers.mapInArrow(ReadAndApply(job), RESULTS_SPARK)
    slots = min(max(len(job.targets), 1), MOST_APPLIERS)
    parcels = numbers.mapInArrow(ReadParts(job, workers, slots), PARCELS_SPARK).repartitionById(slots, "slot")
    return parcels.mapInArrow(ApplyTargets(job), RESULTS_SPARK)


def workers_for(job: WindowJob) -> int:
    """Return into how many tasks the reading is split."""
    if job.bytes <= (ALONE_BYTES if len(job.targets) == 1 else SMALL_BYTES):
        return 1
    return max(1, min(len(job.parts), -(-job.bytes // WORKER_BYTES), MOST_WORKERS))
