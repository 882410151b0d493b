"""CPU seconds of processes, from /proc: unlike wall time, they are reliable on a busy machine."""

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from unshard_demo.processes import Program

TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Spent:
    """Wall seconds of some work, and its CPU seconds by process group."""

    wall: float
    cpu: Mapping[str, float]


def measure(work: Callable[[], object], programs: Mapping[str, Program]) -> Spent:
    """Run the work; this process and its ended children count as `client`."""
    before = _spent(programs)
    began = time.monotonic()
    work()
    wall = time.monotonic() - began
    after = _spent(programs)
    return Spent(wall, {place: after[place] - before[place] for place in after})


def _spent(programs: Mapping[str, Program]) -> dict[str, float]:
    own = os.times()
    client = own.user + own.system + own.children_user + own.children_system
    return {"client": client} | {place: seconds(program.members()) for place, program in programs.items()}


def seconds(pids: Iterable[int]) -> float:
    """Return the CPU seconds of these processes and of their ended children."""
    return sum(_ticks(pid) for pid in pids) / TICKS


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


def _ticks(pid: int) -> int:
    return sum(map(int, _status(pid)[11:15]))


def _status(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the name; none if the process has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
