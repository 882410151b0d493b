"""Extracted columns from the first dumped row to `validate`: load, windows, held rows, DDL, dropped shards."""

import dataclasses
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.ddl.test_cases import assert_rows, create_shards
from tests.taskfile import TaskFile, task_body, tidied, write_sources
from tests.tidbsettings import CHOSEN_KEY, is_tidb, settings_of
from unshard.config import load_task
from unshard.errors.full import LoadCollision
from unshard.units.checks.precheck import precheck
from unshard.units.validate.validate import validate
from unshard.units.work import open_work
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration

CASES = {case["id"]: case for case in json.loads((Path(__file__).parents[1] / "ddl_cases.json").read_text())}
Route = Mapping[str, Any]


@dataclasses.dataclass
class World(TaskFile):
    """Two sources, a target, and a task with extractors."""

    servers: dict[str, MariaDb]
    """Servers by source id; "target" is the target."""
    path: Path
    meta: str

    def write(self, *routes: Route) -> None:
        sources = {name: server for name, server in self.servers.items() if name != "target"}
        write_sources(self.path.parent, sources)
        named = {f"r{number}": dict(route) for number, route in enumerate(routes)}
        body = task_body(
            "",
            sources,
            self.servers["target"],
            named,
            **{
                "name": "extract",
                "meta-schema": self.meta,
                "block-allow-list": {"ours": {"do-dbs": [route["schema-pattern"] for route in routes]}},
                "unshard": dict(CHOSEN_KEY) if is_tidb(self.servers["target"]) else {},
            },
        )
        self.write_body(body)

    def validate(self) -> list[tuple[str, bool]]:
        with open_work(load_task(self.path)) as work:
            return [(verdict.target.name, verdict.equal) for verdict in validate(work)]


@pytest.fixture
def world(source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> Iterator[World]:
    servers = {"mysql-replica-01": source_1, "mysql-replica-02": source_2, "target": target}
    with tidied(*servers.values()), settings_of(source_1, target):
        yield World(servers, tmp_path / "task.yaml", f"{unique}_meta")


def test_the_case_of_dm_ends_as_it_does_there(world: World) -> None:
    case = CASES["extend-column-n"]
    ids = {alias: body["source_id"] for alias, body in case["sources"].items()}
    servers = {alias: world.servers[source] for alias, source in ids.items()}
    create_shards(case, servers)
    world.write(*map(dashed, case["route"]))
    problems = {item.code for item in precheck(load_task(world.path)) if item.code}
    assert problems == {"US-6017"}, "the target tables are not there yet"
    world.servers["target"].run(*case["downstream_prepare"])
    world.go()
    for count, step in enumerate(case["steps"], 1):
        servers[step["source"]].run(step["sql"])
        if count % 3 == 0:
            world.go()
    world.go()
    assert_rows(case["expect"], world.servers["target"])
    assert_rows(case["expect"]["also"], world.servers["target"])
    assert world.validate() == [("t", True), ("y", True)]


def dashed(route: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key.replace("_", "-"): dashed(value) if isinstance(value, Mapping) else value for key, value in route.items()
    }


def test_rows_of_one_key_live_side_by_side_through_ddl_and_drop(world: World, unique: str) -> None:
    s1, s2, target = world.servers.values()
    for source in (s1, s2):
        source.run(
            f"CREATE DATABASE {unique}",
            *(
                f"CREATE TABLE {unique}.t_{n} (id INT PRIMARY KEY, v VARCHAR(9)) SELECT {id} AS id, 'old' AS v"
                for n in (1, 2)
                for id in (1,)
            ),
        )
    columns = "id INT, v VARCHAR(9), shard SMALLINT, source VARCHAR(9) COLLATE utf8mb4_general_ci"
    target.run(f"CREATE DATABASE {unique}", f"CREATE TABLE {unique}.t ({columns}, PRIMARY KEY (source, id, shard))")
    world.write(
        {
            "schema-pattern": unique,
            "table-pattern": "t_*",
            "target-schema": unique,
            "target-table": "t",
            "extract-table": {"table-regexp": r"_(\d+)$", "target-column": "shard"},
            "extract-source": {"source-regexp": "-(0.)$", "target-column": "SOURCE"},
        }
    )
    world.go()
    assert world.validate() == [("t", True)]
    s1.run(
        f"USE {unique}",
        "UPDATE t_1 SET v = 'moved', id = 2",
        "ALTER TABLE t_1 ADD n INT",
        "INSERT INTO t_1 VALUES (1, 'held', 5)",
        "DELETE FROM t_2",
        "ALTER TABLE t_2 ADD n INT",
        "INSERT INTO t_2 VALUES (1, 'gone', 6)",
        "DROP TABLE t_2",
    )
    outcome = world.go()
    assert [lock.missing for lock in outcome.locks] != []
    assert target.run(f"SELECT source, shard, id, v FROM {unique}.t ORDER BY 1, 2, 3") == [
        ("01", 1, 2, "moved"),
        ("02", 1, 1, "old"),
        ("02", 2, 1, "old"),
    ]
    s2.run(f"USE {unique}", "ALTER TABLE t_1 ADD n INT", "ALTER TABLE t_2 ADD n INT", "UPDATE t_2 SET n = 7")
    assert world.go().locks == ()
    assert target.run(f"SELECT source, shard, id, v, n FROM {unique}.t ORDER BY 1, 2, 3") == [
        ("01", 1, 1, "held", 5),
        ("01", 1, 2, "moved", None),
        ("01", 2, 1, "gone", 6),
        ("02", 1, 1, "old", None),
        ("02", 2, 1, "old", 7),
    ]


def test_a_key_that_two_shards_share_names_its_owner(world: World, unique: str) -> None:
    s1, s2, target = world.servers.values()
    for source in (s1, s2):
        source.run(
            f"CREATE DATABASE {unique}",
            f"CREATE TABLE {unique}.t_1 (id INT PRIMARY KEY)",
            f"INSERT INTO {unique}.t_1 VALUES (1)",
        )
    target.run(
        f"CREATE DATABASE {unique}", f"CREATE TABLE {unique}.t (id INT, shard VARCHAR(9), PRIMARY KEY (shard, id))"
    )
    world.write(
        {
            "schema-pattern": unique,
            "table-pattern": "t_*",
            "target-schema": unique,
            "target-table": "t",
            "extract-table": {"table-regexp": r"_(\d+)$", "target-column": "shard"},
        }
    )
    assert "id = 1" in world.checked()["US-2326"], "the extracted part of the key is the same for both"
    world.write_body(yaml.safe_load(world.path.read_text()) | {"ignore-checking-items": ["key_overlap"]})
    (trouble,) = world.run().errors
    assert isinstance(trouble.error, LoadCollision)
    assert trouble.error.owner in {f"shard {source} {unique}.t_1" for source in world.servers}
    assert "shard" in trouble.error.key and "id = 1" in trouble.error.key
