"""Distributes the tests to the processes of a run: the longest first, by the seconds in `durations.json`.

Tests of a file stay together while they are short or share a fixture of their file. Tests with TiDB go to one process,
so that one TiDB is started. `make test-times` measures the seconds again.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from xdist.scheduler import LoadScopeScheduling

DURATIONS = Path(__file__).with_name("durations.json")
UNKNOWN_SECONDS = 0.02
"""Assumed for a test without a measurement."""
LONGEST_UNIT = 20.0
TIDB = " on TiDB"
WITHOUT_SERVERS = "tests/unit"
TOGETHER = ("tests/e2e/scheduler",)
"""Folders whose files share fixtures."""


class ByDuration(LoadScopeScheduling):
    """Give each process that becomes free the longest unit that is left."""

    def __init__(self, config: Any, log: Any) -> None:
        super().__init__(config, log)
        self._units: dict[str, str] = {}

    def _split_scope(self, nodeid: str) -> str:
        return self._units[nodeid]

    def schedule(self) -> None:
        if self.collection is None:
            collection = next(iter(self.registered_collections.values()))
            measured = json.loads(DURATIONS.read_text())
            self._units = units(collection, measured["tests"], set(measured["whole"]))
            self.config.option.loadscopereorder = False
            seconds: dict[str, float] = defaultdict(float)
            for nodeid in collection:
                seconds[self._units[nodeid]] += seconds_of(nodeid, measured["tests"])
            self._longest_first = sorted(seconds, key=lambda unit: -seconds[unit])
        super().schedule()
        super().schedule()  # A process begins a test when it has the next one: a new one needs two units.

    def remove_node(self, node: Any) -> str | None:
        """Remove a process. If it died, its other tests run elsewhere; the one that it died in is not repeated.

        xdist would also give away what is done already, and then wait for ever for results.
        """
        work = self.assigned_work[node]
        died_in = next(((unit, test) for unit in work.values() for test, is_done in unit.items() if not is_done), None)
        if died_in is not None:
            died_in[0][died_in[1]] = True
        self.assigned_work[node] = {scope: unit for scope, unit in work.items() if not all(unit.values())}
        super().remove_node(node)
        return died_in[1] if died_in else None

    def _assign_work_unit(self, node: Any) -> None:
        has_tidb = node is next(iter(self.assigned_work))
        left = [unit for unit in self._longest_first if unit in self.workqueue]
        chosen = next((unit for unit in left if unit.endswith(TIDB) == has_tidb), left[0])
        self.workqueue.move_to_end(chosen, last=False)
        with suppress(OSError):  # The process has died: remove_node gives its tests to another one.
            super()._assign_work_unit(node)


def pytest_xdist_make_scheduler(config: Any, log: Any) -> ByDuration:
    return ByDuration(config, log)


def seconds_of(nodeid: str, measured: Mapping[str, float]) -> float:
    """Return the measured seconds of a test: the mean over the parameters of its function."""
    return measured.get(nodeid.partition("[")[0], UNKNOWN_SECONDS)


def units(collection: Sequence[str], measured: Mapping[str, float], whole: Iterable[str]) -> dict[str, str]:
    """Return the unit of each test: a folder of TOGETHER, a file, or a part of it of about LONGEST_UNIT seconds."""
    found, filled, number, whole = {}, defaultdict(float), defaultdict(int), {*whole, *TOGETHER}
    for nodeid in collection:
        file = nodeid.partition("::")[0]
        folder = file.rpartition("/")[0]
        place = folder if folder in TOGETHER else file
        scope = f"{place}{TIDB}" if "tidb" in nodeid and not file.startswith(WITHOUT_SERVERS) else place
        if place not in whole and filled[scope] > LONGEST_UNIT:
            filled[scope], number[scope] = 0.0, number[scope] + 1
        filled[scope] += seconds_of(nodeid, measured)
        found[nodeid] = f"{number[scope]} {scope}"
    return found
