"""`python -m tests.bench.memory`: the peak memory of a large window, and whether memory grows over many windows.

It sums the proportional set size (PSS) of the driver, the Python workers and the process that runs the task. One window
has a million changes of each kind, then a hundred small ones follow. At the end the target is compared with the union
of the shards.
"""

import dataclasses
import os
import statistics
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from tests.livetask import LiveTask, living
from tests.running import while_up
from unshard.adapters.spark import open_spark_session
from unshard.units.relay import pull
from unshard_demo import servers, sparkserver
from unshard_demo.processes import Program

CHANGES = int(os.environ.get("UNSHARD_CHANGES", "1000000"))
WINDOWS = int(os.environ.get("UNSHARD_WINDOWS", "100"))
LIMIT = 1.5 * 1024
COLUMNS = "id BIGINT PRIMARY KEY, v INT NOT NULL, note VARCHAR(40), at DATETIME(3) NOT NULL"
WINDOW_BYTES = 1 << 30
HEAP = "512m"
"""The value that docs/operations.md recommends for a server that runs windows only."""
EVERY_SECONDS = 0.1


def memory_of(program: Program) -> tuple[float, float]:
    """Return the MiB that the JVM and its Python workers use."""
    sizes = {pid: _pss(pid) for pid in program.members()}
    jvm = max(sizes.values(), default=0.0)
    return jvm, sum(sizes.values()) - jvm


def _pss(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


Peaks = tuple[float, float, float, float]
"""The largest MiB of the JVM, of its Python workers, of this process, and of all together."""


class Watch:
    """Samples the memory of Spark, if it runs, and of this process until the block ends."""

    def __init__(self, program: Program | None, every: float = EVERY_SECONDS) -> None:
        self._program, self._every, self._end = program, every, threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._lock = threading.Lock()
        self.peaks: Peaks = (0.0, 0.0, 0.0, 0.0)

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._end.wait(self._every):
            self._sample()

    def _sample(self) -> None:
        jvm, workers = memory_of(self._program) if self._program else (0.0, 0.0)
        mine = _pss(os.getpid())
        with self._lock:
            one, two, three, four = self.peaks
            self.peaks = max(one, jvm), max(two, workers), max(three, mine), max(four, jvm + workers + mine)

    def take(self) -> Peaks:
        """Return the peaks since the last call, this moment included."""
        self._sample()
        with self._lock:
            found, self.peaks = self.peaks, (0.0, 0.0, 0.0, 0.0)
        return found


def windows(task: LiveTask) -> Iterator[int]:
    """Pull and run windows until nothing is left; yield the rows of each."""
    work = task.work()
    pull.pull("s1", work.sources["s1"], work.store, task.checkpoint("s1"))
    while (report := task.window("s1")).moved:
        yield report.rows_applied


def large(task: LiveTask, program: Program, kind: str, *statements: str) -> None:
    task.sources["s1"].run(f"USE {task.name}", *statements)
    with Watch(program) as watch:
        rows = list(windows(task))
    jvm, workers, mine, all_ = watch.peaks
    verdict = "under" if all_ < LIMIT else "OVER"
    print(
        f"{kind}: windows of {rows} changes; peak MiB: JVM {jvm:.0f}, workers {workers:.0f}, task process {mine:.0f},"
        f" together {all_:.0f}, {verdict} {LIMIT:.0f}",
        flush=True,
    )
    compare(task)


def compare(task: LiveTask) -> None:
    """Compare by count and sum of hashes, because rows in this process would count in the next measurement."""
    sums = "SELECT COUNT(*), SUM(CRC32(CONCAT_WS(',', id, v, note, at))) FROM {}"
    shards = [task.sources[source].run(sums.format(name))[0] for source, name in task.shards["t"]]
    want = tuple(sum(int(str(value)) for value in values) for values in zip(*shards, strict=True))
    assert tuple(int(str(value)) for value in task.target.run(sums.format(task.table("t")))[0]) == want


def many(task: LiveTask, program: Program) -> None:
    sizes = []
    for number in range(WINDOWS):
        task.sources["s1"].run(f"UPDATE {task.name}.t_1 SET v = v + 1 WHERE id <= {1000 + number}")
        assert sum(windows(task)) > 0
        sizes.append(memory_of(program))
    for place, name in enumerate(("JVM", "workers")):
        first, last = (statistics.median(size[place] for size in some) for some in (sizes[5:15], sizes[-10:]))
        print(f"{WINDOWS} windows: {name} {first:.0f} MiB at the beginning, {last:.0f} MiB at the end", flush=True)
    compare(task)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="unshard-memory-") as name:
        folder = Path(name)
        (folder / "task").mkdir()
        numbers = {("s1", "t"): (1, 2)}
        with (
            while_up(servers.start_server(folder / "servers" / "s1", server_id=1)) as source,
            while_up(servers.start_server(folder / "servers" / "target")) as target,
            while_up(sparkserver.start_spark(folder / "spark", memory=HEAP)) as connect,
            living(
                "memory",
                folder / "task",
                (source, target),
                ("t",),
                columns={"t": COLUMNS},
                numbers=numbers,
                window_bytes=WINDOW_BYTES,
            ) as task,
        ):
            session = open_spark_session(connect.url)
            task._work = dataclasses.replace(task.work(), spark=lambda: session)
            fill = "INSERT INTO t_{0} SELECT seq * 2 + {0}, seq, MD5(seq), NOW(3) FROM mysql.seq_1_to_{1}"
            large(task, connect.program, "inserts", *(fill.format(n, CHANGES // 2) for n in (1, 2)))
            large(task, connect.program, "updates", *(f"UPDATE t_{n} SET v = v + 1, note = 'x'" for n in (1, 2)))
            large(task, connect.program, "key changes", *(f"UPDATE t_{n} SET id = -id" for n in (1, 2)))
            many(task, connect.program)


if __name__ == "__main__":
    sys.exit(main())
