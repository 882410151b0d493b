"""Part g: the relay compared with `mariadb-binlog --raw`; both pull the same binlog from the same server."""

import shutil
import subprocess
from pathlib import Path

from tests.bench.cpu import Spent, measure
from tests.bench.figures import Figure, ratio
from tests.bench.stand import SOURCE, Backlog, Stand, login, password
from tests.bench.workloads import Workload
from unshard.adapters.relayfiles import RelayStore
from unshard.units.relay import pull as relay

OURS, THEIRS = "fetch the binlog: unshard's relay, with index and checksums", "fetch the binlog: mariadb-binlog --raw"


def measure_fetch(stand: Stand, rounds: int, rows: int) -> list[Figure]:
    """Return MB per second of both, and the ratio of their CPU seconds."""
    backlog = stand.backlog(Workload("mixed", rows, rows))
    spent: dict[str, list[Spent]] = {OURS: [], THEIRS: []}
    for number in stand.rounds(rounds):
        pulls = [(OURS, _ours), (THEIRS, _theirs)]
        for name, pull in pulls if number % 2 == 0 else reversed(pulls):
            folder = stand.folder / "fetched"
            spent[name].append(pull(stand, backlog, folder))
            shutil.rmtree(folder)
    size = (backlog.ends.position - backlog.begins.position) / 1e6
    found = [
        Figure("g", name, "MB/s", tuple(size / run.wall for run in runs), _cpu(runs)) for name, runs in spent.items()
    ]
    clients = [Figure("g", name, "CPU s", tuple(run.cpu["client"] for run in runs)) for name, runs in spent.items()]
    return [*found, ratio("g", "fetch the binlog: CPU seconds, unshard to mariadb-binlog", *clients, goal="<= 1.3")]


def _cpu(runs: list[Spent]) -> dict[str, float]:
    return {place: sorted(run.cpu[place] for run in runs)[len(runs) // 2] for place in runs[0].cpu}


def _ours(stand: Stand, backlog: Backlog, folder: Path) -> Spent:
    store = RelayStore(folder)
    spent = measure(
        lambda: relay.pull(SOURCE, stand.source.server, store, backlog.begins, until=backlog.ends),
        {"server": stand.source.program},
    )
    if store.segments(SOURCE)[-1].ends != backlog.ends:
        raise SystemExit(f"the relay has not come to {backlog.ends}")
    return spent


def _theirs(stand: Stand, backlog: Backlog, folder: Path) -> Spent:
    folder.mkdir()
    file = backlog.ends.file
    command = [
        "mariadb-binlog",
        *login(stand.source),
        "--read-from-remote-server",
        "--raw",
        f"--result-file={folder}/",
        file,
    ]
    spent = measure(
        lambda: subprocess.run(command, check=True, env=password(stand.source)), {"server": stand.source.program}
    )
    if (folder / file).stat().st_size < backlog.ends.position:
        raise SystemExit("mariadb-binlog has not fetched the whole file")
    return spent
