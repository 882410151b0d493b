"""The Spark job of a window: read and net parts, bring the runs of a target together, apply them.

A small window is one Spark task without a shuffle, because then the job's own cost is all there is. The
code needs nothing of pyspark's but the session, so it is the same for spark-submit, Connect and local.
"""

import pickle
from typing import Any

from unshard.adapters.spark import collect
from unshard.units.parcels import PARCELS_SPARK
from unshard.units.windowjob import WindowJob
from unshard.units.windowtasks import RESULTS_SPARK, ApplyTargets, ReadParts, Result

SMALL_BYTES = 2 << 20
WORKER_BYTES = 4 << 20
MOST_WORKERS = 32
MOST_APPLIERS = 8


def run_job(spark: Any, job: WindowJob) -> tuple[Result, ...]:
    """Run the window on Spark; errors that are coded come back as results."""
    workers = workers_for(job)
    slots = min(max(len(job.targets), 1), MOST_APPLIERS) if workers > 1 else 1
    read = ReadParts(job, workers, slots)
    parcels = spark.range(0, workers, 1, workers).mapInArrow(read, PARCELS_SPARK)
    if workers > 1:
        parcels = parcels.repartitionById(slots, "slot")
    bodies = collect(parcels.mapInArrow(ApplyTargets(job), RESULTS_SPARK)).column("body").to_pylist()
    return tuple(pickle.loads(body) for body in bodies)  # noqa: S301  written by our own executors


def workers_for(job: WindowJob) -> int:
    """Return into how many tasks the reading is split."""
    if job.bytes <= SMALL_BYTES:
        return 1
    return max(1, min(len(job.parts), -(-job.bytes // WORKER_BYTES), MOST_WORKERS))
