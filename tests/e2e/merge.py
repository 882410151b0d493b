"""A small merge for the tests with Airflow: two sources with two shards each, one target, one task file."""

import contextlib
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pymysql
import yaml

from tests.oracle import assert_union
from unshard.core.sql.lastwrites import NAME
from unshard_demo.servers import MariaDb
from unshard_demo.sparkserver import SparkConnect

ROWS = 300
ID_SPACE = 1_000_000
COLUMNS = "(id INT PRIMARY KEY, name VARCHAR(30) NOT NULL, amount DECIMAL(10,2), at TIMESTAMP(3) NOT NULL)"
FILL = (
    "INSERT INTO {table} SELECT {first} + seq, CONCAT('row ', seq), seq / 7, '2026-01-01' + INTERVAL seq SECOND"
    " FROM {schema}.seq_1_to_{rows}"
)

NO_SUCH_TABLE = 1146

SUBMIT = "spark_bulk"
"""The connection of bulk work by spark-submit."""
LIVE = "live"
"""The connection of a Connect server, if one runs."""


@dataclass(frozen=True)
class Merge:
    """Servers, shards and task file of one test."""

    name: str
    folder: Path
    sources: dict[str, MariaDb]
    target: MariaDb
    password: str
    """Password of the task's account: a distinctive text, so that a leak is found."""
    spark: SparkConnect | None = None

    @property
    def servers(self) -> dict[str, MariaDb]:
        return {**self.sources, "target": self.target}

    @property
    def tasks(self) -> Path:
        return self.folder / "tasks"

    @property
    def table(self) -> str:
        return f"{self.name}.orders"

    @property
    def shards(self) -> dict[str, list[str]]:
        return {source: [f"{self.name}_a.orders_{n}" for n in (1, 2)] for source in self.sources}

    @property
    def connections(self) -> dict[str, dict[str, Any]]:
        """The Airflow connections of the servers and of Spark, and one whose type selects spark-submit."""
        login = {"login": f"{self.name}_user", "password": self.password}
        servers = {
            _conn_id(name): {"conn_type": "mysql", "host": "127.0.0.1", "port": server.port, **login}
            for name, server in self.servers.items()
        }
        live = {LIVE: self.spark.connection} if self.spark else {}
        return {**servers, **live, SUBMIT: {"conn_type": "spark", "host": "local[2]"}}

    def create(self, rows: int = ROWS) -> None:
        """Create and fill the shards."""
        for server in self.servers.values():
            server.run(
                f"CREATE USER '{self.name}_user'@'%' IDENTIFIED BY '{self.password}'",
                f"GRANT ALL ON *.* TO '{self.name}_user'@'%'",
            )
        first = 0
        for source, tables in self.shards.items():
            server = self.sources[source]
            server.run(f"CREATE DATABASE {self.name}_a")
            for table in tables:
                server.run(
                    f"CREATE TABLE {table} {COLUMNS}",
                    FILL.format(table=table, first=first, schema=f"{self.name}_a", rows=rows),
                )
                first += ID_SPACE

    def change(self, number: int) -> None:
        """Insert, update and delete in every shard; each number affects other rows."""
        first = 0
        for source, tables in self.shards.items():
            for table in tables:
                self.sources[source].run(
                    f"INSERT INTO {table} (id, name, amount, at)"
                    f" VALUES ({first + 5000 + number}, 'new {number}', 1.5, NOW(3))",
                    f"UPDATE {table} SET amount = amount + {number}, id = id + 10000 WHERE id = {first + number + 1}",
                    f"UPDATE {table} SET name = 'changed {number}' WHERE id < {first + 50}",
                    f"DELETE FROM {table} WHERE id = {first + 100 + number}",
                )
                first += ID_SPACE

    def write_task(self, shard_mode: str = "pessimistic", **options: Any) -> None:
        """Write task and source files; `options` are keys of the block `unshard`."""
        (self.tasks / "sources").mkdir(parents=True, exist_ok=True)
        given = {key.replace("_", "-"): value for key, value in options.items()}
        body = {
            "name": self.name,
            "task-mode": "all",
            "shard-mode": shard_mode,
            "meta-schema": f"{self.name}_meta",
            "target-database": {"conn-id": "target"},
            "mysql-instances": [
                {"source-id": source, "route-rules": ["orders"], "block-allow-list": "ours" if number else "all"}
                for number, source in enumerate(self.sources)
            ],
            "routes": {
                "orders": {
                    "schema-pattern": f"{self.name}_*",
                    "table-pattern": "orders_*",
                    "target-schema": self.name,
                    "target-table": "orders",
                }
            },
            "block-allow-list": {
                "all": {"do-dbs": [f"{self.name}_*"]},
                "ours": {"do-dbs": [f"{self.name}_a"]},
            },
            "unshard": {"storage-path": str(self.folder / "storage"), **given},
        }
        (self.tasks / f"{self.name}.yaml").write_text(yaml.safe_dump(body))
        for source in self.sources:
            source_file = {"source-id": source, "from": {"conn-id": _conn_id(source)}}
            (self.tasks / "sources" / f"{source}.yaml").write_text(yaml.safe_dump(source_file))

    def copies(self, server: MariaDb) -> dict[str, list[Any]] | None:
        """Return the tables of the schema that only the first source has, with their ids: one-to-one targets.

        None if a table is renamed or dropped meanwhile.
        """
        query = f"SELECT table_name FROM information_schema.tables WHERE table_schema = '{self.name}_copy'"
        names = [str(name) for (name,) in server.run(query) if name != NAME]
        try:
            return {name: sorted(server.run(f"SELECT * FROM {self.name}_copy.{name}")) for name in names}
        except pymysql.err.ProgrammingError as error:
            assert error.args[0] == NO_SUCH_TABLE, error
            return None

    def assert_equal(self) -> int:
        return assert_union(self.sources, self.shards, self.target, self.table)

    def drop(self) -> None:
        for server in self.servers.values():
            schemas = [f"DROP DATABASE IF EXISTS {self.name}_{end}" for end in ("a", "copy")]
            server.run(*schemas, f"DROP USER '{self.name}_user'@'%'")
        self.target.run(f"DROP DATABASE IF EXISTS {self.name}", f"DROP DATABASE IF EXISTS {self.name}_meta")


@contextlib.contextmanager
def merging(
    name: str, folder: Path, sources: dict[str, MariaDb], target: MariaDb, spark: SparkConnect | None = None
) -> Iterator[Merge]:
    """Create the shards for the block and drop everything afterwards."""
    merge = Merge(name, folder, sources, target, secrets.token_hex(16), spark)
    merge.create()
    try:
        yield merge
    finally:
        merge.drop()


def _conn_id(name: str) -> str:
    return name.replace("-", "_")
