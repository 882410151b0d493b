"""Part s: how long the sources are read-only in a cutover, and how long their rows are proven before.

Two sources take 200 one-row transactions per second while `unshard cutover run` proves their rows. When it waits for
read-only sources, the writers stop and the sources become read-only.
"""

import json
import subprocess
import tempfile
import time
from pathlib import Path

from tests.bench.figures import Figure
from tests.bench.livemerge import LiveMerge, await_true, merging
from tests.bench.size import Size
from tests.bench.stand import Stand
from tests.bench.ways import COMMAND, environment

ROWS = 2_000_000
SHARDS = 8
PER_SECOND = 200
WAITS = b"waits until these sources are read-only"
SECONDS = 900.0
POLL_SECONDS = 0.02
GOAL = "<= 10"


def measure_cutover(stand: Stand, size: Size) -> list[Figure]:
    """Return the seconds of the proof beside writers, and those with read-only sources."""
    proven, read_only = list[float](), list[float]()
    for _ in stand.rounds(size.rounds):
        with tempfile.TemporaryDirectory(dir=stand.folder) as name:
            with merging(Path(name), 2, SHARDS, ROWS, stand.settings.target) as merge:
                merge.write_task()
                subprocess.run([*COMMAND, "run", str(merge.task)], env=environment(), check=True, capture_output=True)
                seconds, certificate = _cut_over(merge)
                merge.compare()
        proven.append(seconds)
        read_only.append(float(certificate["read_only_seconds"]))
    stand.conditions.append(f"{SHARDS} shards with {ROWS:,} rows, {PER_SECOND} one-row transactions per second")
    return [
        Figure("s", "cutover: from its start until all rows are proven beside writers", "s", tuple(proven)),
        Figure("s", "cutover: sources are read-only", "s", tuple(read_only), goal=GOAL),
    ]


def _cut_over(merge: LiveMerge) -> tuple[float, dict[str, str]]:
    began, log = time.monotonic(), merge.folder / "cutover.log"
    command = [*COMMAND, "cutover", "run", str(merge.task), "--yes", "--reason", "bench"]
    with open(log, "wb") as file, subprocess.Popen(command, env=environment(), stdout=file, stderr=file) as program:

        def check() -> None:
            if program.poll() is not None:
                raise SystemExit(log.read_text())

        with merge.load(PER_SECOND):
            await_true(lambda: WAITS in log.read_bytes(), SECONDS, "all rows are proven", check, POLL_SECONDS)
            proven = time.monotonic() - began
        for server in merge.sources.values():
            server.run("SET GLOBAL read_only = ON")
        if program.wait():
            raise SystemExit(log.read_text())
    shown = [*COMMAND, "cutover", "plan", str(merge.task), "--json"]
    printed = subprocess.run(shown, env=environment(), check=True, capture_output=True).stdout
    return proven, json.loads(printed)["cutover"]["certificate"]
