"""`make demo` as a user runs it, with fewer rows: exit code 0, the comparison in the output, no process left."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from unshard_demo import servers

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.integration]

ROOT = Path(__file__).parents[2]
SECONDS = 7200


def demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"PYTHONPATH": os.pathsep.join(str(ROOT / part) for part in ("include", "plugins", ""))}
    return subprocess.run(
        [sys.executable, "-m", "unshard_demo", *arguments],
        env=env,
        cwd=ROOT,
        text=True,
        capture_output=True,
        timeout=SECONDS,
        check=False,
    )


def processes_of(folder: Path) -> list[str]:
    """Return the command lines of all processes that mention the demo's folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                text = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
            except OSError:
                continue
            if str(folder).encode() in text:
                found.append(entry.name)
    return found


@pytest.mark.parametrize(
    ("target", "mode"),
    [
        pytest.param("mariadb", "pessimistic", marks=pytest.mark.test_all("its mode has tests with a scheduler")),
        pytest.param("mariadb", "optimistic", marks=pytest.mark.test_all(".ci/run runs this demo after make test")),
        pytest.param(
            "tidb", "pessimistic", marks=[pytest.mark.tidb, pytest.mark.test_all("the same on another target")]
        ),
    ],
)
def test_demo_proves_the_union_and_leaves_nothing_running(tmp_path: Path, target: str, mode: str) -> None:
    if target == "tidb" and not servers.is_tidb_built():
        pytest.skip(servers.TIDB_NOT_BUILT)
    folder = tmp_path / "demo"
    result = demo("run", "--folder", str(folder), "--rows", "1000", "--target", target, "--mode", mode)
    assert result.returncode == 0, result.stdout + result.stderr
    assert ("column channel: open (4 of 8 shards)" in result.stdout) == (mode == "optimistic")
    assert ("TiDB" in result.stdout) == (target == "tidb")
    assert "equal: shop.orders holds exactly the union of its 8 shards" in result.stdout
    compared = re.search(r"rows compared +([\d,]+)", result.stdout)
    assert compared and int(compared[1].replace(",", "")) > 8 * 1000 * 0.9
    assert processes_of(folder) == []
    assert [path.name for path in tmp_path.iterdir()] == ["demo"]


def test_down_says_that_nothing_runs(tmp_path: Path) -> None:
    result = demo("down", "--folder", str(tmp_path / "never"))
    assert result.returncode == 0
    assert result.stdout.startswith("stopped 0 programs")
