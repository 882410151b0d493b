"""Shared by the jobs of spark_jobs/ under spark-submit: arguments, session, exit code."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from unshard.adapters import tracebacks
from unshard.adapters.spark import submitted_session
from unshard.cli.console import on_terminal
from unshard.config import load_task
from unshard.errors import UnshardError
from unshard.units.checks.backups import refuse_older
from unshard.units.work import Work, open_work

Job = Callable[[Work, str], object]
"""Runs for one source and returns its report."""


def submitted(doc: str | None, job: Job, shown: str, argv: Sequence[str] | None = None) -> int:
    """Run a job on the session that spark-submit started, and print the fields `shown` of its report.

    Exit code 75: it may succeed if it is repeated.
    """
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("--task", type=Path, required=True, help="task file")
    parser.add_argument("--source", required=True, help="id of the source")
    arguments = parser.parse_args(argv)
    try:
        spark = submitted_session()
        with open_work(load_task(arguments.task)) as work:
            refuse_older(work)
            report = job(replace(work, bulk_spark=lambda: spark), arguments.source)
    except UnshardError as error:
        sys.stderr.write(f"{on_terminal(str(error))}\n")
        return os.EX_TEMPFAIL if error.transient else 1
    except Exception as error:
        sys.stderr.write(f"{on_terminal(str(tracebacks.coded(error)))}\n")
        return os.EX_TEMPFAIL
    line = " ".join(f"{name}={getattr(report, name)}" for name in shown.split())
    sys.stdout.write(f"{on_terminal(line)}\n")
    return 0
