"""The demo's servers: two MariaDB sources, a target (MariaDB or TiDB), Spark Connect and Airflow, in one folder.

Each started program is recorded in a file at once, so `down` can find and end it even after a crash.
"""

import contextlib
import json
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import yaml

from unshard.config import ShardMode, Task, load_task
from unshard_demo import airflow, processes, servers, shop, sparkserver
from unshard_demo.airflow import Airflow
from unshard_demo.processes import Program
from unshard_demo.servers import MariaDb

TASK = "orders"
TARGET_TABLE = "shop.orders"
TARGETS: Mapping[str, Callable[..., MariaDb]] = {"mariadb": servers.start_server, "tidb": servers.start_tidb}
"""How to start the target server, by product."""
MODES = tuple(mode.value for mode in ShardMode if mode)
"""The values of `shard-mode`."""
PROGRAMS = "programs.jsonl"
TASK_FILE = {
    "name": TASK,
    "task-mode": "all",
    "target-database": {"conn-id": "warehouse"},
    "mysql-instances": [
        {"source-id": source, "route-rules": ["orders"], "block-allow-list": "shops"} for source in shop.SOURCES
    ],
    "routes": {
        "orders": {
            "schema-pattern": "shop_*",
            "table-pattern": "orders_*",
            "target-schema": "shop",
            "target-table": "orders",
        }
    },
    "block-allow-list": {"shops": {"do-dbs": ["shop_*"]}},
}


@dataclass(frozen=True)
class StageOptions:
    """The size, the target and the mode of a demo, and further environment variables of Airflow."""

    rows_per_shard: int = shop.ROWS_PER_SHARD
    target: str = "mariadb"
    mode: str = ShardMode.PESSIMISTIC.value
    airflow: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class DemoStage:
    """All running servers, and how to reach them."""

    folder: Path
    sources: Mapping[str, MariaDb]
    target: MariaDb
    airflow: Airflow
    connections: Mapping[str, Mapping[str, Any]]

    @property
    def task(self) -> Task:
        return load_task(self.folder / "tasks" / f"{TASK}.yaml")

    def connection(self, conn_id: str) -> Mapping[str, Any]:
        """Look up a connection as Airflow does."""
        return self.connections[conn_id]


def set_up(folder: Path, options: StageOptions) -> DemoStage:
    """Recreate the folder and start all servers of the demo; after an error, end those that have started."""
    down(folder)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700, parents=True)
    try:
        return _start(folder, options)
    except BaseException:
        down(folder)
        raise


def down(folder: Path) -> int:
    """End all programs of that folder, last started first; return how many were running."""
    record = folder / PROGRAMS
    if not record.exists():
        return 0
    programs = [Program(**json.loads(line)) for line in record.read_text().splitlines()]
    alive = [program for program in programs if program.members()]
    if alive:
        processes.stop_all(alive)
    record.unlink()
    return len(alive)


@contextlib.contextmanager
def running_stage(folder: Path, options: StageOptions) -> Iterator[DemoStage]:
    """Set up the stage for the block and take it down afterwards."""
    try:
        yield set_up(folder, options)
    finally:
        down(folder)


def note_program(folder: Path, program: Program) -> None:
    """Record a running program."""
    with (folder / PROGRAMS).open("a") as record:
        record.write(json.dumps(asdict(program)) + "\n")


def _start(folder: Path, options: StageOptions) -> DemoStage:
    password = secrets.token_urlsafe(12)
    sources: dict[str, MariaDb] = {}
    for number, name in enumerate(shop.SOURCES, 1):
        sources[name] = servers.start_server(folder / "servers" / name, server_id=number, password=password)
        note_program(folder, sources[name].program)
    target = TARGETS[options.target](folder / "servers" / "target", password=password)
    note_program(folder, target.program)
    with ThreadPoolExecutor(2) as pool:
        filled = pool.submit(shop.create_shards, sources, options.rows_per_shard)
        connect = sparkserver.start_spark(folder / "spark")
        note_program(folder, connect.program)
        filled.result()
    connections = {name.replace("-", "_"): connection_of(server) for name, server in sources.items()}
    connections |= {"warehouse": connection_of(target), "spark_windows": connect.connection}
    write_tasks(folder, options.mode)
    running = airflow.start_airflow(folder / "airflow", folder / "tasks", connections, options.airflow)
    for program in running.programs:
        note_program(folder, program)
    return DemoStage(folder, sources, target, running, connections)


def connection_of(server: MariaDb) -> dict[str, Any]:
    """Return the Airflow connection to a server."""
    login = {"login": server.server.user, "password": server.password}
    return {"conn_type": "mysql", "host": "127.0.0.1", "port": server.port, **login}


def write_tasks(folder: Path, mode: str) -> None:
    """Write the files of the task and its sources."""
    tasks = folder / "tasks"
    (tasks / "sources").mkdir(parents=True)
    options = {
        "schedule": "* * * * *",
        "lock-timeout": "10m",
        "lock-deadline": "5m",
        "lag-deadline": "5m",
        "storage-path": str(folder.resolve() / "storage"),
        "spark-connection": "spark_windows",
    }
    (tasks / f"{TASK}.yaml").write_text(
        yaml.safe_dump(TASK_FILE | {"shard-mode": mode, "unshard": options}, sort_keys=False)
    )
    for source in shop.SOURCES:
        body = {"source-id": source, "from": {"conn-id": source.replace("-", "_")}}
        (tasks / "sources" / f"{source}.yaml").write_text(yaml.safe_dump(body, sort_keys=False))
