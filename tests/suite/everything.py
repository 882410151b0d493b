"""`make test-all`: every test on every target, in parts, one line each. It takes hours.

`python -m tests.suite.everything [parts]` runs the named parts. The output of each part is in `build/test-all`. A part
ends when its tests end, and the next ones run whatever its result is.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "test-all"
SUMMARY = re.compile(r"^=* ?((?:\d+ \w+,? ?)+) in [\d.]+s", re.MULTILINE)
INTEGRATION = ROOT / "tests" / "integration"
KILLS = "tests/e2e/test_kill.py"


@dataclass(frozen=True)
class Part:
    """Some tests, with the variables that change them."""

    tests: str
    environment: Mapping[str, str] = field(default_factory=dict)


PARTS = {
    "unit": Part("tests/unit"),
    "scenario": Part("tests/scenario"),
    **{folder.name: Part(str(folder.relative_to(ROOT))) for folder in sorted(INTEGRATION.iterdir()) if folder.is_dir()},
    "e2e": Part("tests/e2e"),
    "new random examples": Part("tests/unit", {"UNSHARD_EXAMPLES": "2000"}),
    "kills, one unique key": Part(KILLS, {"UNSHARD_SEED": "7", "UNSHARD_KILLS": "20"}),
    "kills, minimal row images": Part(KILLS, {"UNSHARD_KILLS_IMAGE": "MINIMAL", "UNSHARD_SEED": "9"}),
    "kills, row images without blobs": Part(KILLS, {"UNSHARD_KILLS_IMAGE": "NOBLOB", "UNSHARD_SEED": "11"}),
    "kills, windows in slices": Part(KILLS, {"UNSHARD_KILLS_CUT": "slices", "UNSHARD_KILLS_TARGET": "mariadb"}),
    "kills, windows in steps": Part(KILLS, {"UNSHARD_KILLS_CUT": "steps", "UNSHARD_KILLS_TARGET": "mariadb"}),
    "kills, object store": Part(KILLS, {"UNSHARD_KILLS_STORE": "s3", "UNSHARD_KILLS_TARGET": "mariadb"}),
    "kills, TiDB": Part(KILLS, {"UNSHARD_KILLS_TARGET": "tidb"}),
}


def run(name: str, part: Part, processes: str) -> bool:
    """Run a part and print its line; return whether it passed."""
    log = FOLDER / f"{re.sub(r'[^a-z0-9]+', '-', name.lower())}.log"
    command = [sys.executable, "-m", "pytest", part.tests, "--numprocesses", processes]
    began = time.monotonic()
    with log.open("wb") as output:
        environment = {**os.environ, "UNSHARD_TESTS": "all", **part.environment}
        code = subprocess.run(command, cwd=ROOT, env=environment, stdout=output, stderr=output, check=False).returncode
    found = SUMMARY.findall(log.read_text(errors="replace"))
    counts = found[-1] if found else f"ended with {code}"
    print(f"{name + ':':34} {counts}, {(time.monotonic() - began) / 60:.1f} min   {log.relative_to(ROOT)}", flush=True)
    return code == 0


def main(names: Sequence[str]) -> int:
    """Run the named parts, or all; return the exit code."""
    if unknown := set(names) - set(PARTS):
        print(f"no such part: {', '.join(sorted(unknown))}; there are: {', '.join(PARTS)}", file=sys.stderr)
        return 2
    FOLDER.mkdir(parents=True, exist_ok=True)
    processes = str((os.cpu_count() or 1) + 1)
    failed = [name for name in names or PARTS if not run(name, PARTS[name], processes)]
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
