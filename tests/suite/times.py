"""Where the time of a test run goes: `make test-times` runs the tests with this plugin and prints its table.

Each process of the run writes the tests that it ran to `build/times`: seconds of set-up, call and tear-down, CPU
seconds, started programs by kind, and seconds of waiting by caller. `python -m tests.suite.times` adds them up.
"""

import concurrent.futures
import functools
import json
import multiprocessing.process
import os
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.suite.distribution import DURATIONS
from unshard_demo import processes

FOLDER = Path(__file__).resolve().parents[2] / "build" / "times"
KINDS = {
    "mariadb-install-db": "MariaDB data directory",
    "mariadbd": "MariaDB",
    "mysqld": "MySQL",
    "tidb-server": "TiDB",
    "spark-submit": "JVM (Spark)",
    "spark-class": "JVM (Spark)",
    "java": "JVM (Spark)",
    "airflow": "Airflow",
    "chromium": "Chromium",
    "python": "Python",
}
WAITS = (
    (time, "sleep"),
    (threading.Event, "wait"),
    (threading.Thread, "join"),
    (subprocess.Popen, "wait"),
    (subprocess.Popen, "communicate"),
    (multiprocessing.process.BaseProcess, "join"),
    (concurrent.futures.Future, "result"),
    (processes, "await_true"),
    (processes, "stop_program"),
    (processes, "kill"),
)
SHORTEST = 0.05
"""Seconds of the shortest test whose duration is stored."""
SLOWEST = 100
SLOWEST_FILES = 60
COLUMNS = ("wall", "cpu", "children")


def kind_of(command: Sequence[str]) -> str:
    """Name the kind of a started program; the first word of its command that has one decides, Airflow before Python."""
    words = [os.path.basename(os.fsdecode(word)) for word in command]
    if "airflow" in words:
        return KINDS["airflow"]
    found = (kind for word in words[:3] for name, kind in KINDS.items() if word.startswith(name))
    return next(found, words[0])


class Clock:
    """The measurements of one process."""

    def __init__(self) -> None:
        self.tests: dict[str, dict[str, Any]] = {}
        self.begun = time.monotonic()
        self.node = "(import and collection)"
        self.started: dict[str, Counter[str]] = defaultdict(Counter)
        self.waited: Counter[str] = Counter()
        self.is_waiting = False
        self.lock = threading.Lock()

    def hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Count an audit event of the interpreter."""
        if event == "subprocess.Popen":
            command = arguments[1]
            with self.lock:
                self.started[self.node][kind_of([command] if isinstance(command, str | bytes) else command)] += 1

    def watch(self, holder: Any, name: str) -> None:
        """Add up the time that the main thread spends in a function that waits, by its caller."""
        function = getattr(holder, name)

        @functools.wraps(function)
        def measured(*given: Any, **named: Any) -> Any:
            if threading.current_thread() is not threading.main_thread() or self.is_waiting:
                return function(*given, **named)
            code = sys._getframe(1).f_code
            self.is_waiting, begun = True, time.monotonic()
            try:
                return function(*given, **named)
            finally:
                self.is_waiting = False
                self.waited[f"{name} in {Path(code.co_filename).stem}.{code.co_qualname}"] += time.monotonic() - begun

        setattr(holder, name, measured)

    def save(self, worker: str) -> None:
        """Write the file of this process."""
        times = os.times()
        FOLDER.mkdir(parents=True, exist_ok=True)
        body = {
            "wall": time.monotonic() - self.begun,
            "cpu": times.user + times.system,
            "children": times.children_user + times.children_system,
            "tests": self.tests,
            "started": self.started,
            "waited": self.waited,
        }
        (FOLDER / f"{worker}-{os.getpid()}.json").write_text(json.dumps(body))


_clock = Clock()


def pytest_configure(config: pytest.Config) -> None:
    sys.addaudithook(_clock.hear)
    for holder, name in WAITS:
        _clock.watch(holder, name)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    _clock.node = item.nodeid
    before = time.monotonic(), time.process_time(), os.times()
    try:
        return (yield)
    finally:
        spent = _clock.tests.setdefault(item.nodeid, {})
        spent["wall"] = time.monotonic() - before[0]
        spent["cpu"] = time.process_time() - before[1]
        after = os.times()
        spent["children"] = sum(after[2:4]) - sum(before[2][2:4])
        fixtures = item._fixtureinfo.name2fixturedefs.values()  # type: ignore[attr-defined]
        spent["shares"] = any(found[-1].scope in ("package", "module", "class") for found in fixtures)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if "PYTEST_XDIST_WORKER" in os.environ or not hasattr(report, "node"):
        _clock.tests.setdefault(report.nodeid, {})[report.when] = report.duration


def pytest_sessionfinish() -> None:
    if _clock.tests:
        _clock.save(os.environ.get("PYTEST_XDIST_WORKER", "alone"))


def total(found: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the lines of the table."""
    tests = {name: each for one in found for name, each in one["tests"].items()}
    phase = {when: sum(each.get(when, 0) for each in tests.values()) for when in ("setup", "call", "teardown")}
    yield f"{len(tests)} tests in {len(found)} processes"
    for one in found:
        busy = sum(each["wall"] for each in one["tests"].values())
        yield (
            f"process: {one['wall']:6.0f} s, of these {busy:6.0f} s in {len(one['tests'])} tests,"
            f" {one['cpu']:5.0f} CPU s of its own and {one['children']:5.0f} of ended child processes"
        )
    yield "set-up {setup:.0f} s, calls {call:.0f} s, tear-down {teardown:.0f} s".format(**phase)
    started = sum((Counter(each) for one in found for each in one["started"].values()), Counter())
    yield "started: " + ", ".join(f"{count} {kind}" for kind, count in started.most_common(15))
    waited = sum((Counter(one["waited"]) for one in found), Counter())
    yield f"waited in the main thread, without answers of servers: {sum(waited.values()):.0f} s, by function and caller"
    yield from (f"  {seconds:7.1f} {where}" for where, seconds in waited.most_common(30))
    files: dict[str, Counter[str]] = defaultdict(Counter)
    for name, each in tests.items():
        files[name.partition("::")[0]].update({**{key: each.get(key, 0) for key in COLUMNS}, "tests": 1})
    yield f"files, then the {SLOWEST} slowest tests: seconds, CPU seconds of the process and of ended children"
    for name, each in sorted(files.items(), key=lambda item: -item[1]["cpu"] - item[1]["children"])[:SLOWEST_FILES]:
        yield _line(f"{name} ({each['tests']} tests)", each)
    for name, each in sorted(tests.items(), key=lambda item: -item[1]["wall"])[:SLOWEST]:
        yield _line(name, each)


def _line(name: str, spent: Mapping[str, float]) -> str:
    return "  " + " ".join(f"{spent.get(key, 0):7.1f}" for key in COLUMNS) + f" {name}"


def durations(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what `distribution.py` reads: seconds of a test of each function, and files that share a fixture."""
    seconds: dict[str, list[float]] = defaultdict(list)
    whole = set()
    for name, each in ((name, each) for one in found for name, each in one["tests"].items()):
        seconds[name.partition("[")[0]].append(each["wall"])
        if each["shares"]:
            whole.add(name.partition("::")[0])
    means = {name: round(sum(some) / len(some), 2) for name, some in sorted(seconds.items())}
    return {"tests": {name: mean for name, mean in means.items() if mean >= SHORTEST}, "whole": sorted(whole)}


def main() -> None:
    """Print the table of the last run, and store the durations."""
    found = [json.loads(file.read_text()) for file in sorted(FOLDER.glob("*.json"))]
    for line in total(found):
        print(line)
    DURATIONS.write_text(json.dumps(durations(found), indent=0) + "\n")


if __name__ == "__main__":
    main()
