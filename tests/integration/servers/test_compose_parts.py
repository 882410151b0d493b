"""The parts of docker-compose.yaml that need no container engine, each tested on real servers.

The sources run with the options and sample shards of the file, the program of the service `tidb-init` runs on TiDB, and
the task connects with the accounts and passwords of the file.
"""

import contextlib
import dataclasses
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.localspark import LocalSpark
from tests.oracle import assert_union
from tests.running import while_up
from tests.versions import MYSQL
from unshard.config import load_task
from unshard.core.checks.items import Severity
from unshard.units.checks.precheck import precheck
from unshard.units.task.run import run
from unshard.units.validate.validate import validate
from unshard.units.work import Work, open_work
from unshard_demo import servers
from unshard_demo.servers import MariaDb

pytestmark = [
    pytest.mark.integration,
    pytest.mark.tidb,
    pytest.mark.test_all("starts two MySQL and a TiDB; tests/unit/config/test_compose.py reads the file"),
]
ROOT = Path(__file__).parents[3]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yaml").read_text())
SERVICES = COMPOSE["services"]
SECRETS = {"SOURCE_ROOT_PASSWORD": "root1", "SOURCE_PASSWORD": "source2", "TARGET_PASSWORD": "target3"}
DDL = "ALTER TABLE {} ADD COLUMN channel VARCHAR(20) NOT NULL DEFAULT 'web' AFTER amount"


def with_secrets(text: str) -> str:
    """Replace the secrets as Compose does."""
    return re.sub(r"\$\{(\w+)[^}]*\}", lambda found: SECRETS[found[1]], text)


def statements(name: str) -> list[str]:
    """Return the statements of a file of include/compose, without its comments."""
    text = re.sub(r"^--.*\n", "", (ROOT / "include/compose" / name).read_text(), flags=re.MULTILINE)
    return [one.strip() for one in text.split(";") if one.strip()]


@contextlib.contextmanager
def source(folder: Path, service: str) -> Iterator[MariaDb]:
    """Start a source with the options, the account and the shards from the file."""
    body = SERVICES[service]
    given = {key: with_secrets(value) for key, value in body["environment"].items()}
    with MYSQL.running(folder, *body["command"]) as server:
        mounted = [volume.split(":")[0] for volume in body["volumes"] if "initdb" in volume]
        account = f"CREATE USER '{given['MYSQL_USER']}'@'%' IDENTIFIED BY '{given['MYSQL_PASSWORD']}'"
        server.run(account, *(one for path in mounted for one in statements(Path(path).name)))
        yield server


@contextlib.contextmanager
def target(folder: Path) -> Iterator[MariaDb]:
    """Start TiDB and run the program of `tidb-init` there."""
    service = SERVICES["tidb-init"]
    program = ROOT / service["entrypoint"][1].removeprefix("/opt/unshard/")
    with while_up(servers.start_tidb(folder)) as server:
        given = {key: with_secrets(value) for key, value in service["environment"].items()}
        given |= {"TIDB_HOST": "127.0.0.1", "TIDB_PORT": str(server.port), "TIDB_ROOT_PASSWORD": server.password}
        for _ in range(2):  # the service runs at every `docker compose up`
            subprocess.run([sys.executable, program], env=os.environ | given, check=True)
        yield server


@dataclasses.dataclass(frozen=True)
class Deployment:
    """The servers, and the task of include/compose as Airflow opens it."""

    sources: Mapping[str, MariaDb]
    target: MariaDb
    path: Path

    def connection(self, conn_id: str) -> Mapping[str, Any]:
        """Return the connection of the file, at the real port of the server."""
        given = COMPOSE["x-airflow"]["environment"][f"AIRFLOW_CONN_{conn_id.upper()}"]
        ports = {
            "source-1": self.sources["shop-1"].port,
            "source-2": self.sources["shop-2"].port,
            "tidb": self.target.port,
        }
        found: dict[str, Any] = json.loads(with_secrets(given))
        return found | {"host": "127.0.0.1", "port": ports[found["host"]]}

    @contextlib.contextmanager
    def work(self) -> Iterator[Work]:
        with open_work(load_task(self.path), self.connection) as work:
            yield dataclasses.replace(work, spark=LocalSpark, bulk_spark=LocalSpark)

    def go(self) -> None:
        with self.work() as work:
            outcome = run(work, connections=self.connection)
        assert not outcome.errors, [str(trouble.error) for trouble in outcome.errors]

    def shards(self) -> dict[str, list[str]]:
        query = (
            "SELECT CONCAT(table_schema, '.', table_name) FROM information_schema.tables"
            " WHERE table_schema LIKE 'shop%'"
        )
        return {name: sorted(str(row[0]) for row in server.run(query)) for name, server in self.sources.items()}


@pytest.fixture(scope="module")
def deployment(server_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    MYSQL.need()
    if not servers.is_tidb_built():
        pytest.skip(servers.TIDB_NOT_BUILT)
    folder = tmp_path_factory.mktemp("compose")
    given = ROOT / "include/compose/tasks"
    (folder / "sources").mkdir()
    for path in (given / "sources").iterdir():
        (folder / "sources" / path.name).write_text(path.read_text())
    body = yaml.safe_load((given / "orders_merge.yaml").read_text())
    body["unshard"] = {"storage-path": str(folder / "storage")}
    (folder / "orders_merge.yaml").write_text(yaml.safe_dump(body))
    with (
        source(server_folder / "compose-1", "source-1") as first,
        source(server_folder / "compose-2", "source-2") as second,
        target(server_folder / "compose-tidb") as into,
    ):
        yield Deployment({"shop-1": first, "shop-2": second}, into, folder / "orders_merge.yaml")


def test_check_finds_nothing_to_object_to(deployment: Deployment) -> None:
    items = precheck(load_task(deployment.path), deployment.connection)
    assert [item for item in items if item.severity is Severity.ERROR] == []


def test_sample_shards_are_merged_through_a_shard_ddl(deployment: Deployment) -> None:
    deployment.go()
    shards = deployment.shards()
    assert assert_union(deployment.sources, shards, deployment.target, "shop.orders") == 16
    for name, server in deployment.sources.items():
        for shard in shards[name]:
            server.run(DDL.format(shard), f"UPDATE {shard} SET channel = 'app' LIMIT 1")
    deployment.go()
    assert assert_union(deployment.sources, shards, deployment.target, "shop.orders") == 16
    with deployment.work() as work:
        assert [(str(verdict.target), verdict.equal) for verdict in validate(work)] == [("shop.orders", True)]
