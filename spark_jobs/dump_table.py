"""Dump the shards of one source: `spark-submit dump_table.py --task shop.yaml --source s1`."""

import dataclasses
import sys
from pathlib import Path
from typing import Any

from unshard.cli.submitted import submitted
from unshard.config import load_task
from unshard.units.checks.backups import refuse_older
from unshard.units.full.dump import DumpReport, dump
from unshard.units.work import open_work


def run(spark: Any, task: Path, source: str) -> DumpReport:
    """Dump in a live session."""
    with open_work(load_task(task)) as work:
        refuse_older(work)
        return dump(dataclasses.replace(work, bulk_spark=lambda: spark), source)


def line(spark: Any, task: Path, source: str) -> str:
    """Dump and return a line about the result."""
    report = run(spark, task, source)
    return f"source={report.source} chunks={report.chunks} rows={report.rows} bytes={report.bytes}"


if __name__ == "__main__":
    sys.exit(submitted(__doc__, line))
