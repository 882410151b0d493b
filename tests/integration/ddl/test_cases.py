"""Shard DDL cases on real servers: the rows that the target must have at the end, with any restarts in between.

`ddl_cases.json` holds facts about shard DDL (statements in order, expected rows), most of them from how DM
tests itself. Each case runs in two ways: all steps in one process, through Spark, and with a restart
after each step, as if each step had its own process.

Where DM ends in an error because shards run different DDLs, the lock here is in conflict and shows each shard's DDL.
Where DM waits forever, the lock names the missing shards. In both cases the rows that can be applied are in the target.
"""

import contextlib
import json
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.localspark import LocalSpark
from tests.taskfile import endpoint, write_sources
from unshard.adapters import spark
from unshard.config import environment_connections, load_task
from unshard.core.ddl.lock import LockState
from unshard.errors.rows import Collision
from unshard.operate.command import Force, Skip
from unshard.operate.issuing import give
from unshard.units.ddl import coordinate
from unshard.units.ddl.scene import LockView
from unshard.units.task.run import RunOutcome, Until, run
from unshard.units.work import open_work
from unshard_demo.servers import MariaDb
from unshard_demo.sparkserver import SparkConnect

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow]

CASES = {case["id"]: case for case in json.loads((Path(__file__).parents[1] / "ddl_cases.json").read_text())}
TAKEN = ("schema", "information_schema", "mysql", "performance_schema", "metrics_schema", "sys", "test")
LATER = {
    "another server": lambda case: bool(case.get("needs")),
}
"""Cases that later releases support; they are kept until then."""
UNION = {"sddl3-079-p": [[1, "wer"], [2, None], [0, "wer"], [0, None]]}
"""Cases in which DM's target refuses a DDL that MariaDB accepts: all rows are applied."""
CHANGES_KEY = {
    "sddl3-079-p": "(a INT, b VARCHAR(10), PRIMARY KEY (a) NONCLUSTERED)",
    "sddl4_1-132-p": "(a INT, b INT, PRIMARY KEY (a) NONCLUSTERED)",
}
"""TiDB drops a primary key only if it is not clustered."""
COLLIDES = "sddl3-080-p"
"""DM loses rows here without a warning; unshard reports an error."""
PLAYS = (
    "pause-task",
    "resume-task",
    "kill and restart all workers",
    "kill workers after the downstream DDL, before the checkpoint; restart",
)
"""Actions of an operator that are only another run here."""
Session = Callable[[], Any]


def later(case: Mapping[str, Any]) -> str:
    return next((reason for reason, applies in LATER.items() if applies(case)), "")


TELLING = [
    "sddl3-079-p",
    "sddl3-080-p",
    "sddl3_1-118-p",
    "sddl4_1-132-p",
    "seq-sharding-ok-p",
    "sharding-drop-truncate-ignored-p",
    "sharding-new-shards-join-p",
    "sharding2-restart-p",
]
"""Cases in which TiDB differs from MariaDB: keys, statements in steps, new shards. They run on TiDB every time."""
NOW = [name for name, case in CASES.items() if not later(case)]


def test_all_cases_that_can_be_run_are() -> None:
    assert len(CASES) - len(NOW) <= 5, {name: later(case) for name, case in CASES.items() if later(case)}


@pytest.fixture(scope="module")
def session(shared_spark: SparkConnect) -> Iterator[Session]:
    """One Spark session for all cases."""
    with spark.session(shared_spark.url, environment_connections) as session:
        yield lambda: session


@dataclass
class Play:
    """One case, played."""

    case: Mapping[str, Any]
    servers: Mapping[str, MariaDb]
    target: MariaDb
    path: Path
    session: Session
    is_stopped: bool = False

    def run(self, until: Until = Until.CAUGHT_UP) -> RunOutcome | None:
        """Run as a new process would: only with the state in the meta tables."""
        if self.is_stopped:
            return None
        with open_work(load_task(self.path)) as work:
            return run(replace(work, spark=self.session, bulk_spark=self.session), until)

    def step(self, number: int, then_run: bool) -> None:
        step = self.case["steps"][number - 1]
        self.servers[step["source"]].run(step["sql"])
        ops = [op for op in self.case.get("ops") or [] if op["after_step"] == number]
        if then_run or ops:
            self.check_errors(self.run())
        for op in ops:
            self.order(op["op"], op.get("sql", ""))

    def order(self, what: str, sql: str) -> None:
        match what:
            case "downstream_sql":
                self.target.run(sql)
            case "stop-task":
                self.is_stopped = True
            case "start-task":
                # With --remove-meta: start again from the beginning.
                self.is_stopped = False
                self.target.run("DROP DATABASE unshard_meta")
                shutil.rmtree(self.path.parent / "storage")
                self.check_errors(self.run(Until.FULL))
            case "shard-ddl-lock unlock":
                self.is_stopped = False
                with open_work(load_task(self.path)) as work:
                    (view,) = coordinate.views(work.meta)
                    scene = give(work.meta, Force(view.id), "operator", "test", "")
                    assert coordinate.view(work.meta, view.id, scene).state is LockState.FORCED
            case "binlog skip":
                with open_work(load_task(self.path)) as work:
                    (view,) = coordinate.views(work.meta)
                    assert (view.state, "Duplicate entry" in str(view.error)) == (LockState.FAILED, True)
                    give(work.meta, Skip(view.id), "operator", "test", "")
            case _:
                assert what in PLAYS, what
                self.check_errors(self.run())

    def check_errors(self, outcome: RunOutcome | None) -> None:
        if outcome is None:
            return
        found = [trouble.error for trouble in outcome.errors]
        allowed = Collision if self.case["id"] == COLLIDES else ()
        assert all(isinstance(error, allowed) for error in found), [str(error) for error in found]


@pytest.mark.sample(reason="a sixteenth of cases and ways; all of them take ten minutes", every=16)
@pytest.mark.parametrize("each", [False, True], ids=["at once", "restarted after each step"])
@pytest.mark.parametrize("name", [name for name in NOW if name not in TELLING])
def test_case_ends_as_it_should(
    name: str,
    each: bool,
    source_1: MariaDb,
    source_2: MariaDb,
    target: MariaDb,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    play_case(name, (source_1, source_2, target), tmp_path, LocalSpark if each else request.getfixturevalue("session"))


@pytest.mark.on_tidb
@pytest.mark.parametrize("name", TELLING)
def test_telling_case(
    name: str, source_1: MariaDb, source_2: MariaDb, target: MariaDb, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    play_case(name, (source_1, source_2, target), tmp_path, request.getfixturevalue("session"))


@pytest.mark.test_all("they run without restarts, and a part of the other cases with them")
@pytest.mark.parametrize("name", TELLING)
def test_telling_case_restarted(
    name: str, source_1: MariaDb, source_2: MariaDb, target: MariaDb, tmp_path: Path
) -> None:
    play_case(name, (source_1, source_2, target), tmp_path, LocalSpark)


def play_case(name: str, found: tuple[MariaDb, MariaDb, MariaDb], tmp_path: Path, session: Session) -> None:
    each = session is LocalSpark
    source_1, source_2, target = found
    case = CASES[name]
    servers = dict(zip(sorted(case["sources"]), (source_1, source_2), strict=False))
    for server in (source_1, source_2, target):
        drop_schemas(server)
    create_shards(case, servers)
    prepare_target(case, target)
    play = Play(case, servers, target, write_task(case, servers, target, tmp_path), session)
    play.check_errors(play.run(Until.FULL))
    for number in range(1, len(case["steps"]) + 1):
        play.step(number, each)
    outcome = play.run()
    assert outcome is not None
    play.check_errors(outcome)
    check_end(case, outcome, target)


def prepare_target(case: Mapping[str, Any], target: MariaDb) -> None:
    """Run the case's statements on the target; a MariaDB target is created like its shards."""
    is_tidb = "TiDB" in str(target.run("SELECT VERSION()"))
    if is_tidb and case["id"] in CHANGES_KEY:
        target.run("CREATE DATABASE merged", f"CREATE TABLE merged.tb {CHANGES_KEY[case['id']]}")
        return
    for statement in case.get("downstream_prepare") or []:
        if "nonclustered" not in statement:
            target.run(statement)


def check_end(case: Mapping[str, Any], outcome: RunOutcome, target: MariaDb) -> None:
    """Compare the end with the case's expectation, in our terms."""
    expect, ops = case["expect"], [op["op"] for op in case.get("ops") or []]
    if case["id"] == COLLIDES:
        assert [type(trouble.error) for trouble in outcome.errors] == [Collision] * len(outcome.errors) != []
        return
    if case["id"] in UNION or expect["kind"] == "rows" or "shard-ddl-lock unlock" in ops:
        assert outcome.exit_code == 0, [f"{lock.id}: {lock.state}, missing {lock.missing}" for lock in outcome.locks]
    else:
        assert outcome.exit_code == 3
        (lock,) = outcome.locks
        check_lock(case, lock)
    for one in (expect, *filter(None, [expect.get("also")])):
        if one.get("rows") is not None:
            assert_rows({**one, "rows": UNION.get(case["id"], one["rows"])}, target)
    for check in case.get("checks") or []:
        if check["kind"] == "columns_include":
            found = {row[0] for row in target.run(f"SHOW COLUMNS FROM {expect['downstream']}")}
            assert (found >= set(check["columns"])) is check["expect"] is not found.isdisjoint(check["columns"])


def check_lock(case: Mapping[str, Any], lock: LockView) -> None:
    """Check that an open lock names the missing shards, or the differing DDL of each shard."""
    specs = {step["sql"].partition("ALTER TABLE ")[2].partition(" ")[2] for step in case["steps"]}
    ours = lock.ddl.partition("` ")[2]
    assert ours in specs
    if case["expect"]["kind"] == "locked":
        assert lock.state is LockState.WAITING
        assert {shard.source for shard in lock.missing} == set(case["expect"]["lock"]["unsynced"])
    else:
        assert lock.state is LockState.CONFLICT
        theirs = {text.partition("` ")[2] for text in lock.conflicting}
        assert theirs <= specs - {ours}
        assert theirs
        assert len(lock.conflicting) == len(lock.conflicts)


def assert_rows(expect: Mapping[str, Any], target: MariaDb) -> None:
    columns = ", ".join(f"`{column}`" for column in expect["columns"])
    got = Counter(tuple(map(plain, row)) for row in target.run(f"SELECT {columns} FROM {expect['downstream']}"))
    assert got == Counter(tuple(map(plain, row)) for row in expect["rows"])


def plain(value: object) -> object:
    """Return values that JSON and the driver print differently (decimals, dates, bytes) as text."""
    if isinstance(value, bytes):
        return value.decode()
    return value if value is None else str(value)


def drop_schemas(server: MariaDb) -> None:
    for (schema,) in server.run("SHOW DATABASES"):
        if schema.lower() not in TAKEN:
            server.run(f"DROP DATABASE `{schema}`")


def create_shards(case: Mapping[str, Any], servers: Mapping[str, MariaDb]) -> None:
    overrides = case.get("create_overrides") or {}
    for step in case["steps"]:
        if created := re.match(r"CREATE TABLE (\w+)\.", step["sql"]):
            servers[step["source"]].run(f"CREATE DATABASE IF NOT EXISTS `{created[1]}`")
    for source, body in case["sources"].items():
        for schema, tables in body["schemas"].items():
            servers[source].run(f"CREATE DATABASE IF NOT EXISTS `{schema}`")
            for table in tables:
                text = overrides.get(f"{source}.{schema}.{table}") or case["create"]
                with contextlib.closing(servers[source].connect(database=schema)) as connection:
                    connection.cursor().execute(text.replace("{schema}", schema).replace("{table}", table))
    for step in case.get("init_sql") or []:
        servers[step["source"]].run(step["sql"])


def write_task(case: Mapping[str, Any], servers: Mapping[str, MariaDb], target: MariaDb, folder: Path) -> Path:
    given = case["route"] if isinstance(case["route"], list) else [case["route"]]
    routes = {f"r{number}": dashed(route) for number, route in enumerate([*given, *(case.get("route_extra") or [])])}
    schemas = sorted({schema for body in case["sources"].values() for schema in body["schemas"]})
    ids = {source: case["sources"][source].get("source_id", source) for source in servers}
    body = {
        "name": "scenario",
        "task-mode": "all",
        "shard-mode": "pessimistic",
        "target-database": endpoint(target),
        "mysql-instances": [
            {"source-id": ids[source], "route-rules": list(routes), "block-allow-list": "ours"} for source in servers
        ],
        "routes": routes,
        "block-allow-list": {"ours": {"do-dbs": [*(route["schema_pattern"] for route in given), *schemas]}},
        "unshard": {"storage-path": str(folder / "storage")},
    }
    write_sources(folder, {ids[source]: server for source, server in servers.items()})
    path = folder / "task.yaml"
    path.write_text(yaml.safe_dump(body))
    return path


def dashed(value: Any) -> Any:
    """Return keys as they are in task files."""
    if isinstance(value, dict):
        return {key.replace("_", "-"): dashed(one) for key, one in value.items()}
    return value
