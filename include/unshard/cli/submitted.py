"""Shared by the jobs of spark_jobs/ under spark-submit: arguments, session, exit code."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from unshard.adapters import tracebacks
from unshard.adapters.spark import submitted_session
from unshard.cli.console import on_terminal
from unshard.errors import UnshardError

Job = Callable[[Any, Path, str], str]
"""Runs for one source on a live session; returns its result as one line."""


def submitted(doc: str | None, job: Job, argv: Sequence[str] | None = None) -> int:
    """Run a job on the session that spark-submit started; exit code 75: it may succeed if it is repeated."""
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("--task", type=Path, required=True, help="task file")
    parser.add_argument("--source", required=True, help="id of the source")
    arguments = parser.parse_args(argv)
    try:
        line = job(submitted_session(), arguments.task, arguments.source)
    except UnshardError as error:
        sys.stderr.write(f"{on_terminal(str(error))}\n")
        return os.EX_TEMPFAIL if error.transient else 1
    except Exception as error:
        sys.stderr.write(f"{on_terminal(str(tracebacks.coded(error)))}\n")
        return os.EX_TEMPFAIL
    sys.stdout.write(f"{on_terminal(line)}\n")
    return 0
