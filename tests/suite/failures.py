"""What helps after a failed test: its servers, its folder, kept logs, and the command that runs it alone.

The logs of the programs that ran during the test are copied to `build/failed/<test>`.
"""

import os
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.suite.portions import ALL, RUN
from unshard_demo import processes

KEPT = Path(os.environ.get("UNSHARD_FAILED_TESTS", Path(__file__).resolve().parents[2] / "build" / "failed"))
LONGEST_NAME = 120


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report: pytest.TestReport = yield  # type: ignore[misc]
    if report.failed:
        report.sections.append(("to look at", "\n".join(_told(item))))
    return report  # type: ignore[return-value]


def _told(item: pytest.Item) -> Iterator[str]:
    yield f"alone:   {_command(item)}"
    folder = getattr(item, "funcargs", {}).get("tmp_path")
    if folder is not None:
        yield f"folder:  {folder}"
    programs = [program for program in processes.STARTED if program.is_running or _is_inside(program.log, folder)]
    kept = KEPT / re.sub(r"[^\w.\[\]-]+", "_", item.nodeid)[-LONGEST_NAME:]
    for program in programs:
        yield f"program: {program.name}, process {program.pid}{'' if program.is_running else ' (ended)'}"
    for log in {program.log for program in programs if Path(program.log).is_file()}:
        kept.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(log, kept / "-".join(Path(log).parts[-2:]))
    if kept.is_dir():
        yield f"logs:    {kept}"


def _command(item: pytest.Item) -> str:
    portion = "" if RUN == ALL else f"UNSHARD_TESTS={RUN} "
    return f"{portion}PYTHONPATH=include:plugins:. .venv/bin/python -m pytest {shlex.quote(item.nodeid)}"


def _is_inside(log: str, folder: Path | None) -> bool:
    return folder is not None and Path(log).is_relative_to(folder)
