"""A failed test names its programs, its folder and its command; the logs of its programs are kept."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FAILING = """
from unshard_demo import processes


def test_it(tmp_path):
    log = tmp_path / "server.log"
    log.write_text("the server's last words")
    program = processes.start_program("a server", ["sleep", "600"], {}, log)
    try:
        assert not program.is_running
    finally:
        processes.kill(program)
"""


def test_what_a_failed_test_names(tmp_path: Path) -> None:
    (tmp_path / "test_failing.py").write_text(FAILING)
    kept = tmp_path / "kept"
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.suite.failures", "-p", "no:cacheprovider", "test_failing.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "UNSHARD_FAILED_TESTS": str(kept)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 1, run.stdout + run.stderr
    told = run.stdout.partition("to look at")[2]
    assert "python -m pytest test_failing.py::test_it\n" in told
    assert "program: a server, process" in told and "folder: " in told
    (log,) = kept.rglob("*server.log")
    assert str(log.parent) in told and log.read_text() == "the server's last words"


DYING = """
import os
import time
from pathlib import Path

import pytest


@pytest.mark.parametrize("number", range(4))
def test_it(number):
    if {dies} and number == 2:
        if {lingers} and not os.fork():
            os.close(3)  # xdist writes to this pipe. The other one stays open: xdist does not hear of the death yet.
            Path("dead").touch()
            time.sleep(2)
        os._exit(1)
"""
SLOW_TO_HEAR = """
import time
from pathlib import Path


def pytest_runtest_logreport(report):
    if hasattr(report, "node") and report.nodeid == "test_1.py::test_it[1]":
        while not Path("dead").exists():
            time.sleep(0.02)
"""
"""The run gives the process its next tests when that process is dead already."""


@pytest.mark.slow
@pytest.mark.parametrize(("files", "conftest"), [(8, ""), (8, SLOW_TO_HEAR), (4, "")], ids=["", "unheard", "one left"])
def test_a_process_that_dies_costs_one_test(tmp_path: Path, files: int, conftest: str) -> None:
    (tmp_path / "conftest.py").write_text(conftest)
    for file in range(files):
        (tmp_path / f"test_{file}.py").write_text(DYING.format(dies=file == 1, lingers=bool(conftest)))
    options = ["--numprocesses", "2", "-p", "tests.suite.distribution", "-p", "no:cacheprovider", "-q"]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *options],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert "crashed while running 'test_1.py::test_it[2]'" in run.stdout
    assert f"1 failed, {files * 4 - 1} passed" in run.stdout
