"""A failed test names its programs, its folder and its command; the logs of its programs are kept."""

import os
import subprocess
import sys
from pathlib import Path

FAILING = """
from unshard_demo import processes


def test_it(tmp_path):
    log = tmp_path / "server.log"
    log.write_text("the server's last words")
    program = processes.start("a server", ["sleep", "600"], {}, log)
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
