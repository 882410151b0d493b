"""Load the dumped rows of one source: `spark-submit load_table.py --task shop.yaml --source s1`."""

import dataclasses
import sys
from pathlib import Path
from typing import Any

from unshard.cli.submitted import submitted
from unshard.config import load_task
from unshard.units.checks.backups import refuse_older
from unshard.units.full.load import LoadReport, load
from unshard.units.work import open_work


def run(spark: Any, task: Path, source: str) -> LoadReport:
    """Load in a live session."""
    with open_work(load_task(task)) as work:
        refuse_older(work)
        return load(dataclasses.replace(work, bulk_spark=lambda: spark), source)


def line(spark: Any, task: Path, source: str) -> str:
    """Load and return a line about the result."""
    report = run(spark, task, source)
    return f"source={report.source} chunks={report.chunks} rows={report.rows}"


if __name__ == "__main__":
    sys.exit(submitted(__doc__, line))
