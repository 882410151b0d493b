"""Long-running programs of the demo; each leads its own session, so that all its processes can be ended.

They end when the process that started them ends, also if it is killed (see `programguard`), unless it leaves them
running. Another process than the one that started a program may stop it. So a program is identified by its process id
and its start time; a process id that has been reused is left alone.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

POLL_SECONDS = 0.02
TAIL_LINES = 15
OTHERS_SECONDS = 5.0
"""Airflow's triggerer waits ten seconds for itself; nothing is lost if it is killed."""
LEAVE = "leave"
INCLUDE = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class Program:
    """A started program: the leader of a session with all processes that it started."""

    name: str
    pid: int
    started: int
    """Clock ticks since boot, from /proc."""
    log: str

    @property
    def is_running(self) -> bool:
        """Whether the leader itself exists and is not a zombie."""
        _reap(self.pid)
        return _started(self.pid) == self.started

    def members(self) -> list[int]:
        """Return all processes of the session, including those in other process groups."""
        _reap(self.pid)
        if _started(self.pid) not in (self.started, None):
            return []
        return [pid for pid, session in _sessions() if session == self.pid]

    def tail(self) -> str:
        with contextlib.suppress(OSError):
            return "\n".join(Path(self.log).read_text(errors="replace").splitlines()[-TAIL_LINES:])
        return ""


STARTED: list[Program] = []
"""The programs that this process has started."""


def start(name: str, command: Sequence[str], env: Mapping[str, str], log: Path, folder: Path | None = None) -> Program:
    """Start a program with its output in `log` and an empty standard input."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            env=dict(env),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    process.returncode = 0  # it may outlive us, and _reap() collects it: no warning, no second wait
    program = Program(name, process.pid, _started(process.pid) or 0, str(log))
    STARTED.append(program)
    _guard.tell(json.dumps(asdict(program)))
    return program


def leave_running() -> None:
    """Let the started programs outlive this process."""
    _guard.tell(LEAVE)


def stop(program: Program, seconds: float = 15.0) -> None:
    """Ask the program to end, then kill the rest of its session."""
    _signal([-program.pid] if program.members() else [], signal.SIGTERM)
    deadline = time.monotonic() + seconds
    while program.members() and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    kill(program)


def stop_all(programs: Sequence[Program], seconds: float = 15.0) -> None:
    """Stop the last program, which uses the others, then the others side by side."""
    *others, last = programs
    stop(last, seconds)
    with ThreadPoolExecutor(max(1, len(others))) as pool:
        list(pool.map(stop, others, [min(seconds, OTHERS_SECONDS)] * len(others)))


def kill(program: Program) -> None:
    """Kill the program and its session at once, like a power failure."""
    while members := program.members():
        _signal(members, signal.SIGKILL)
        time.sleep(POLL_SECONDS)


def await_true(
    condition: Callable[[], bool], seconds: float, programs: Sequence[Program], what: str, pause: float = POLL_SECONDS
) -> None:
    """Wait until the condition is true; raises with the end of the log if a program ends before.

    `pause` are the seconds between two looks.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        for program in programs:
            if not program.is_running:
                raise RuntimeError(f"{program.name} has ended, see {program.log}:\n{program.tail()}")
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {seconds:.0f} s; see {', '.join(p.log for p in programs)}")
        time.sleep(pause)


def listens(port: int) -> bool:
    """Whether a loopback port accepts connections."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


class _Guard:
    """A process that ends our programs when its input ends, which is when this process ends."""

    def __init__(self) -> None:
        self._input: int | None = None
        self._lock = threading.Lock()

    def tell(self, line: str) -> None:
        with self._lock:
            if self._input is None:
                self._input = self._start()
            os.write(self._input, f"{line}\n".encode())
            if line == LEAVE:
                os.close(self._input)
                self._input = None

    def _start(self) -> int:
        read, write = os.pipe()
        command = [sys.executable, "-m", "unshard_demo.programguard"]
        process = subprocess.Popen(
            command,
            env={**os.environ, "PYTHONPATH": str(INCLUDE)},
            cwd="/",
            stdin=read,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        process.returncode = 0  # it outlives us
        os.close(read)
        return write


_guard = _Guard()


def _signal(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _reap(pid: int) -> None:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def _sessions() -> Iterator[tuple[int, int]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))) is not None:
            yield int(entry.name), int(fields[3])


def _started(pid: int) -> int | None:
    fields = _stat(pid)
    return int(fields[19]) if fields else None


def _stat(pid: int) -> list[str] | None:
    """Return the fields of /proc/<pid>/stat from the state on; None when the process has ended.

    A zombie whose other threads still run (a JVM that is shutting down) has not ended: it may still use its port.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" and int(fields[17]) <= 1 else fields
