"""Run windows of one source: `spark-submit apply_window.py --task shop.yaml --source s1`."""

import dataclasses
import sys
from pathlib import Path
from typing import Any

from unshard.cli.submitted import submitted
from unshard.config import load_task
from unshard.units.checks.backups import refuse_older
from unshard.units.window.sync import WindowReport, run_window
from unshard.units.work import open_work


def run(spark: Any, task: Path, source: str) -> WindowReport:
    """Run one window in a live session."""
    with open_work(load_task(task)) as work:
        refuse_older(work)
        return run_window(dataclasses.replace(work, spark=lambda: spark), source)


def lines(spark: Any, task: Path, source: str) -> str:
    """Run windows until none can proceed; prints each when it is done and returns the line of the last one."""
    while (report := run(spark, task, source)).more:
        sys.stdout.write(f"{_line(report)}\n")
    return _line(report)


def _line(report: WindowReport) -> str:
    return f"window={report.window} ends={report.ends} applied={report.rows_applied}"


if __name__ == "__main__":
    sys.exit(submitted(__doc__, lines))
