"""Whole runs by accounts that have the grants of docs/operations.md and no others."""

import dataclasses
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml

from tests.integration.task.test_lock_page import browse
from tests.openlocks import open_locks
from tests.oracle import assert_union
from tests.suite.portions import portion
from tests.taskfile import TaskFile, endpoint, route, task_body, write_source
from tests.tidbsettings import CHOSEN_KEY, is_tidb, settings_of
from unshard.config import load_task
from unshard.core.checks.items import ALIASES, Severity
from unshard.core.ddl.lock import LockState
from unshard.core.sql.lastwrites import NAME
from unshard.errors import UnshardError
from unshard.operate.command import Retry
from unshard.operate.issuing import give
from unshard.units.checks.precheck import precheck
from unshard.units.checks.sourceitems import REPLICATION
from unshard.units.checks.targetitems import PRIVILEGES
from unshard.units.task.status import status
from unshard.units.validate.validate import validate
from unshard.units.work import open_work
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration

PAGE = Path(__file__).parents[3] / "docs/operations.md"
PASSWORD = "secret"
GH_OST = (
    "create /* gh-ost */ table _{0}_ghc (id bigint auto_increment primary key, hint varchar(64), value varchar(4096))",
    "create /* gh-ost */ table _{0}_gho like {0}",
    "alter /* gh-ost */ table _{0}_gho add column n int",
    "insert /* gh-ost */ ignore into _{0}_gho (id, v) select id, v from {0}",
    "rename /* gh-ost */ table {0} to _{0}_del, _{0}_gho to {0}",
    "drop /* gh-ost */ table _{0}_ghc",
    "drop /* gh-ost */ table _{0}_del",
)
ORDERS = "(id INT PRIMARY KEY, v VARCHAR(20), KEY (v))"


def documented(account: str, names: Mapping[str, str]) -> list[str]:
    """Return the page's statements that create the account, with other names."""
    blocks = re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (block,) = [block for block in blocks if f"CREATE USER '{account}'" in block]
    for old, new in names.items():
        block = block.replace(old, new)
    return [statement for statement in block.split(";\n") if statement.strip()]


@dataclasses.dataclass
class World(TaskFile):
    """Two sources with two shards each, a target, and a task that connects with the documented accounts."""

    sources: dict[str, MariaDb]
    target: MariaDb
    schema: str
    path: Path

    @property
    def names(self) -> dict[str, str]:
        """Return the replacements for the names that the page uses."""
        pattern = self.schema.replace("_", r"\_")
        return {
            "unshard_source": f"s{self.schema}",
            "unshard_target": f"t{self.schema}",
            "…": PASSWORD,
            "unshard_page": f"p{self.schema}",
            "unshard_lag": f"l{self.schema}",
            r"`shop\_%`": f"`{pattern}\\_%`",
            "`shop`": f"`{pattern}`",
            "`unshard_meta`": f"`{pattern}x`",
        }

    def refusals(self) -> list[str]:
        """Run; return the errors that end the run, and those of DDL that the target refuses."""
        try:
            outcome = self.run()
        except UnshardError as error:
            return [str(error)]
        refused = [text for lock in outcome.locks for text in (lock.error, lock.reason) if text]
        return [str(trouble.error) for trouble in outcome.errors] + refused

    def retry(self) -> None:
        """Run until no DDL is undecided; each one is tried again."""
        while self.run():
            with open_work(load_task(self.path)) as work:
                undecided = [lock.id for lock in open_locks(work.meta) if lock.state is LockState.UNDECIDED]
                for lock in undecided:
                    give(work.meta, Retry(lock), "operator", "test", "the privilege is granted")
            if not undecided:
                return

    def change(self, consistency: str, online: bool) -> None:
        """Write the task with these settings."""
        body = yaml.safe_load(self.path.read_text())
        for instance in body["mysql-instances"]:
            instance["mydumper"] = {"consistency": consistency}
        self.path.write_text(yaml.safe_dump({**body, "online-ddl": online}))

    def everywhere(self, *statements: str) -> None:
        for source in self.sources.values():
            source.run(f"USE {self.schema}_1", *statements)

    def compare(self, table: str, *shards: str) -> int:
        named = {source: [f"{self.schema}_1.{shard}" for shard in shards] for source in self.sources}
        return assert_union(self.sources, named, self.target, f"{self.schema}.{table}")


@pytest.fixture
def world(source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> Iterator[World]:
    world = World({"s1": source_1, "s2": source_2}, target, unique, tmp_path / "task.yaml")
    for number, (name, source) in enumerate(world.sources.items(), 1):
        source.run(
            *documented("unshard_source", world.names),
            f"CREATE DATABASE {unique}_1",
            f"USE {unique}_1",
            *(f"CREATE TABLE orders_{shard} {ORDERS}" for shard in (1, 2)),
            *(f"INSERT INTO orders_{shard} VALUES ({number}{shard}, 'a')" for shard in (1, 2)),
        )
        write_source(tmp_path, name, endpoint(source, f"s{unique}", PASSWORD))
    target.run(*documented("unshard_target", world.names))
    body = task_body(
        unique,
        world.sources,
        target,
        {
            "orders": route(f"{unique}_*", "orders_*", unique, "orders"),
            "others": {"schema-pattern": f"{unique}_*", "target-schema": unique},
        },
        **{
            "name": "accounts",
            "meta-schema": f"{unique}x",
            "target-database": endpoint(target, f"t{unique}", PASSWORD),
            "unshard": dict(CHOSEN_KEY) if is_tidb(target) else {},
        },
    )
    for instance in body["mysql-instances"]:
        del instance["block-allow-list"]
    del body["block-allow-list"]
    world.write_body(body)
    with settings_of(source_1, target):
        yield world
    for source in world.sources.values():
        source.run(f"DROP USER s{unique}", f"DROP DATABASE {unique}_1")
    target.run(f"DROP USER t{unique}", *(f"DROP DATABASE IF EXISTS {unique}{end}" for end in ("", "x")))


@pytest.mark.on_tidb
def test_a_whole_run_needs_no_more_than_the_documented_grants(world: World) -> None:
    assert [item for item in precheck(load_task(world.path)) if item.severity is not Severity.OK] == []
    world.go()
    assert world.compare("orders", "orders_1", "orders_2") == 4
    world.everywhere(
        "ALTER TABLE orders_1 ADD COLUMN n INT, DROP KEY v",
        "UPDATE orders_1 SET n = id",
        "ALTER TABLE orders_2 ADD COLUMN n INT, DROP KEY v",
        "DELETE FROM orders_2",
        "CREATE INDEX i ON orders_1 (n)",
        "CREATE INDEX i ON orders_2 (n)",
        "DROP INDEX i ON orders_1",
        "DROP INDEX i ON orders_2",
        "INSERT INTO orders_2 SELECT id + 100, v, n FROM orders_1",
    )
    world.sources["s1"].run(f"CREATE TABLE {world.schema}_1.extra {ORDERS}")
    world.sources["s1"].run(f"INSERT INTO {world.schema}_1.extra VALUES (1, 'x')")
    outcome = world.go()
    assert outcome.exit_code == 0
    assert world.compare("orders", "orders_1", "orders_2") == 4
    assert world.target.run(f"SELECT COUNT(*) FROM {world.schema}.extra") == [(1,)]
    assert [(each.error, each.lag_bytes) for each in status(load_task(world.path))] == [(None, 0)] * 2
    with open_work(load_task(world.path)) as work:
        stored = work.meta.prechecks.last()
        assert stored and {item.place for item in stored.items} >= {"source s1", "source s2", "target"}
        assert [verdict.equal for verdict in validate(work)] == [True, True]


@pytest.mark.parametrize("consistency", ["none", "flush", "lock"])
def test_every_consistency_and_online_ddl(world: World, consistency: str) -> None:
    world.change(consistency, online=True)
    for name, source in world.sources.items():
        source.run(
            f"CREATE TABLE {world.schema}_1.plain_{name} (v INT)",
            f"INSERT INTO {world.schema}_1.plain_{name} VALUES (1), (1)",
        )
    if consistency == "lock":
        lacking = [item for item in precheck(load_task(world.path)) if item.severity is Severity.ERROR]
        assert {item.code for item in lacking} == {"US-2306"} and all("LOCK TABLES" in i.message for i in lacking)
        scope = world.names[r"`shop\_%`"]
        for source in world.sources.values():
            source.run(f"GRANT LOCK TABLES ON {scope}.* TO s{world.schema}")
    world.go()
    for shard in ("orders_1", "orders_2"):
        world.everywhere(
            *(statement.format(shard) for statement in GH_OST),
            f"INSERT INTO {shard} VALUES (7{shard[-1]} + 100 * @@server_id, 'new', 5)",
        )
    assert world.go().exit_code == 0
    assert world.compare("orders", "orders_1", "orders_2") == 8
    made = world.target.run(f"SHOW TABLES FROM {world.schema}")
    assert sorted(str(name) for (name,) in made) == ["orders", "plain_s1", "plain_s2", NAME], "no table of the tool"
    with open_work(load_task(world.path)) as work:
        assert all(verdict.equal for verdict in validate(work))


def test_a_grant_that_is_taken_away_is_named_where_it_is_missed(world: World) -> None:
    world.go()
    merged, meta = world.names["`shop`"], world.names["`unshard_meta`"]
    cases = [(world.target, f"{merged}.*", each) for each in ("INSERT", "DELETE", "CREATE", "ALTER", "INDEX")]
    cases += [(world.target, f"{meta}.*", each) for each in PRIVILEGES]
    cases += [(world.sources["s1"], "*.*", each) for each in REPLICATION]
    for number, (server, scope, privilege) in enumerate(cases[:: portion(2, 2, 1)]):
        account = f"{'t' if server is world.target else 's'}{world.schema}"
        world.everywhere(
            f"INSERT INTO orders_1 (id) VALUES ({number} + 1000 * @@server_id)",
            "DELETE FROM orders_2",
            f"INSERT INTO orders_2 (id) VALUES ({number} + 1000000 * @@server_id)",
        )
        if privilege in ("CREATE", "ALTER", "DROP", "INDEX"):
            world.everywhere(
                *(f"ALTER TABLE orders_{n} ADD COLUMN c{number} INT" for n in (1, 2)),
                *(f"CREATE INDEX i{number} ON orders_{n} (v)" for n in (1, 2)),
            )
        if privilege == "CREATE":
            world.sources["s1"].run(f"CREATE TABLE {world.schema}_1.extra_{number} {ORDERS}")
        server.run(f"REVOKE {privilege} ON {scope} FROM {account}")
        said = world.refusals()
        server.run(f"GRANT {privilege} ON {scope} TO {account}")
        if any("US-4003" in words for words in said):
            world.retry()
        assert said and all(words.startswith("[US-") for words in said), (scope, privilege)
        # For SELECT … FOR UPDATE, TiDB names only the table whose rows it would lock.
        names = {privilege, *ALIASES.get(privilege, ()), *(["for table 'structure'"] if privilege == "UPDATE" else [])}
        assert any(name in words for words in said for name in names), (scope, privilege, said)
    assert world.go().exit_code == 0
    world.compare("orders", "orders_1", "orders_2")


def test_validation_names_shards_that_the_account_does_not_see(world: World) -> None:
    world.go()
    scope = world.names[r"`shop\_%`"]
    world.sources["s1"].run(
        f"REVOKE SELECT ON {scope}.* FROM s{world.schema}",
        f"GRANT SELECT ON {world.schema}_1.orders_1 TO s{world.schema}",
    )
    with open_work(load_task(world.path)) as work:
        (verdict,) = validate(work)
    assert (verdict.equal, verdict.unseen) == (False, (f"s1 {world.schema}_1.orders_2",))
    for source in world.sources.values():
        source.run(f"REVOKE ALL PRIVILEGES, GRANT OPTION FROM s{world.schema}")
    with open_work(load_task(world.path)) as work:
        (verdict,) = validate(work)
    assert (verdict.equal, verdict.shards, len(verdict.unseen), verdict.rows_target) == (False, 0, 4, 4)


@pytest.mark.on_tidb
def test_every_documented_grant_of_the_target_is_asked_for(world: World) -> None:
    scope, account = world.names["`shop`"], f"t{world.schema}"
    task = load_task(world.path)
    for privilege in PRIVILEGES:
        world.target.run(f"REVOKE {privilege} ON {scope}.* FROM {account}")
        found = [item for item in precheck(task) if item.code]
        assert [(item.code, item.name) for item in found] == [("US-2306", "target_privilege")]
        assert f" {privilege} " in found[0].remedy + found[0].message
        world.target.run(f"GRANT {privilege} ON {scope}.* TO {account}")


def test_the_page_grants_what_is_asked_for_and_no_more() -> None:
    granted = {
        account: {
            name.strip()
            for line in documented(account, {})
            if line.startswith("GRANT")
            for name in line.removeprefix("GRANT").partition(" ON ")[0].split(",")
        }
        for account in ("unshard_source", "unshard_target")
    }
    assert granted == {"unshard_source": {"SELECT", *REPLICATION}, "unshard_target": set(PRIVILEGES)}


@pytest.fixture
def watched(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A task with a waiting lock and a suspended target, opened with the accounts of the page in Airflow."""
    if "airflow" not in sys.modules:
        monkeypatch.setenv("AIRFLOW_HOME", str(world.path.parent))
    monkeypatch.setenv("UNSHARD_TASKS", str(world.path.parent))
    world.go()
    world.target.run(f"ALTER TABLE {world.schema}.orders MODIFY v VARCHAR(1)", *documented("unshard_page", world.names))
    world.everywhere("INSERT INTO orders_1 VALUES (1000 * @@server_id, 'too long')", "ALTER TABLE orders_1 ADD n INT")
    assert {words[:9] for words in world.refusals()} == {"[US-6002]"}
    for name, source in world.sources.items():
        source.run(*documented("unshard_lag", world.names))
        path = world.path.parent / f"sources/{name}.yaml"
        path.write_text(path.read_text().replace(f"user: s{world.schema}", f"user: l{world.schema}"))
    world.path.write_text(world.path.read_text().replace(f"user: t{world.schema}", f"user: p{world.schema}"))
    yield world
    for source in world.sources.values():
        source.run(f"DROP USER l{world.schema}")
    world.target.run(f"DROP USER p{world.schema}")


def test_the_page_in_airflow_needs_no_more_than_the_documented_grants(watched: World) -> None:
    task, schema = "/task/accounts", watched.schema
    lock, retry, pause = f"{task}/lock/accounts-{schema}.orders-1", f"{task}/retry", f"{task}/pause"
    missing = [f"{source} {schema}_1.orders_2" for source in watched.sources]
    shown = browse(("GET", "/", {}), ("GET", task, {}), ("GET", lock, {}))
    assert "2 targets suspended" in shown[0] and missing[0] in shown[2]
    assert len(re.findall(r"<td>\d+ s</td><td>\d+", shown[1])) == 2 and not any("US-2" in page for page in shown)
    ways: list[tuple[str, tuple[tuple[str, str, dict[str, str]], ...]]] = [
        ("INSERT", (("GET", pause, {}), ("POST", pause, {}))),
        ("DELETE", (("GET", pause, {}), ("POST", pause, {}))),
        ("UPDATE", (("GET", retry, {}), ("POST", retry, {}))),
        *(
            ("UPDATE", (("GET", lock, {}), ("POST", f"{lock}/preview", order), ("POST", f"{lock}/give", {})))
            for order in (
                {"action": "replace", "statements": f"ALTER TABLE {schema}.orders ADD n BIGINT;", "shard": ""},
                {"action": "skip", "shard": missing[0]},
                {"action": "drop-shard", "shard": missing[1]},
                {"action": "unlock"},
            )
        ),
    ]
    scope = watched.names["`unshard_meta`"]
    for privilege, steps in ways:
        watched.target.run(f"REVOKE {privilege} ON {scope}.* FROM p{schema}")
        with pytest.raises(AssertionError, match=f"(?i)US-2003.*{privilege}"):
            browse(*steps)
        watched.target.run(f"GRANT {privilege} ON {scope}.* TO p{schema}")
        browse(*steps)
    given = watched.target.run(f"SELECT action, who FROM {schema}x.operator_action ORDER BY id")
    assert [action for action, who in given if who == "olga"] == [
        "pause",
        "resume",
        "retry",
        "retry",
        "replace",
        "skip",
        "drop-shard",
        "unlock",
    ]
