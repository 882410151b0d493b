"""CPU seconds of processes, from /proc: unlike wall time, they are reliable on a busy machine."""

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from unshard_demo.processes import Program

TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Spent:
    """Wall seconds of some work, and its CPU seconds by process group."""

    wall: float
    cpu: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Times:
    """CPU seconds of a process, those of its ended children, and its parent."""

    own: float
    ended: float
    parent: int


def measure(work: Callable[[], object], programs: Mapping[str, Program]) -> Spent:
    """Run the work; this process and its ended children count as `client`."""
    before = _times(programs)
    began, client = time.monotonic(), _client()
    work()
    wall, client = time.monotonic() - began, _client() - client
    after = _times(programs)
    return Spent(wall, {"client": client} | {place: seconds(before[place], after[place]) for place in after})


def _times(programs: Mapping[str, Program]) -> dict[str, Mapping[int, Times]]:
    return {place: times(program.members()) for place, program in programs.items()}


def _client() -> float:
    own = os.times()
    return own.user + own.system + own.children_user + own.children_system


def times(pids: Iterable[int]) -> Mapping[int, Times]:
    """Return the times of the processes that have not ended."""
    statuses = {pid: _status(pid) for pid in pids}
    return {pid: _times_of(fields) for pid, fields in statuses.items() if fields}


def _times_of(fields: Sequence[str]) -> Times:
    user, system, ended_user, ended_system = (int(ticks) / TICKS for ticks in fields[11:15])
    return Times(user + system, ended_user + ended_system, int(fields[1]))


def seconds(before: Mapping[int, Times], after: Mapping[int, Times]) -> float:
    """Return the CPU seconds of some processes and of their ended children between two moments.

    What a child had used before is not counted again when it ends. The time of other ended processes is lost.
    """
    nothing = Times(0.0, 0.0, 0)
    had = defaultdict[int, float](float)
    for pid, each in before.items():
        if pid not in after:
            had[each.parent] += each.own + each.ended
    return sum(
        now.own - before.get(pid, nothing).own + max(0.0, now.ended - before.get(pid, nothing).ended - had[pid])
        for pid, now in after.items()
    )


def parent(pid: int) -> int:
    """Return the parent of a process; 0 if the process has ended."""
    _, found, *_ = _status(pid) or ["", "0"]
    return int(found)


def family(pid: int) -> list[int]:
    """Return a process and all its descendants, whatever sessions they are in."""
    children = defaultdict[int, list[int]](list)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            children[parent(int(entry.name))].append(int(entry.name))
    found = [pid]
    for each in found:
        found += children[each]
    return found


def _status(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the name; none if the process has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
