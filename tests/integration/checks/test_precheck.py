"""Prechecks on real servers: `check` finds, names and codes each problem that would stop a task."""

import contextlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import s3server
from tests.binlogs import end_of
from tests.running import while_up
from tests.tidbsettings import CHOSEN_KEY, is_tidb, settings_of
from unshard.adapters import mysql
from unshard.config import load_task
from unshard.core.checks.items import Item, Severity
from unshard.core.model import Column, Shard, TableId, TableSchema
from unshard.errors import UnshardError
from unshard.units.checks.precheck import check, precheck, raise_if_failed
from unshard.units.checks.targetitems import _unknown_collations
from unshard_demo import servers

pytestmark = pytest.mark.integration

TASK = """
name: {schema}
task-mode: {mode}
shard-mode: pessimistic
meta-schema: {schema}_meta
target-database: {{host: 127.0.0.1, port: {target}, user: {target_user}, password-env: UNSHARD_TARGET_PASSWORD}}
mysql-instances:
  - {{source-id: s1, route-rules: {rules}, block-allow-list: all{instance}}}
  - {{source-id: s2, route-rules: {rules}, block-allow-list: all{instance}}}
routes:
{routes}
block-allow-list:
  all: {{do-dbs: ["{schema}_*"]}}
unshard: {options}
{extra}
"""
ROUTE = (
    '  {name}: {{schema-pattern: "{schema}_*", table-pattern: "{pattern}", target-schema: {target}, target-table: t}}\n'
)
TABLE = "CREATE TABLE {} (id int PRIMARY KEY, v varchar(9))"


class World:
    """Two sources, a target, and a task file about one schema of each."""

    def __init__(self, source_1, source_2, target, schema: str, folder: Path) -> None:
        self.s1, self.s2, self.target, self.schema, self.folder = source_1, source_2, target, schema, folder
        self.routes = ROUTE.format(name="all", schema=schema, pattern="t_*", target=schema)
        self.rules = "[all]"
        self.mode, self.instance, self.extra = "all", "", ""
        self.options: dict[str, str] = dict(CHOSEN_KEY) if is_tidb(target) else {}
        self.target_user = "admin"
        self.sources = {"s1": (source_1.port, "admin"), "s2": (source_2.port, "admin")}
        for source in (source_1, source_2):
            source.run(f"CREATE DATABASE {schema}_1", TABLE.format(f"{schema}_1.t_1"), TABLE.format(f"{schema}_1.t_2"))

    def items(self) -> tuple[Item, ...]:
        (self.folder / "sources").mkdir(exist_ok=True)
        for name, (port, user) in self.sources.items():
            (self.folder / f"sources/{name}.yaml").write_text(
                f"source-id: {name}\n"
                f"from: {{host: 127.0.0.1, port: {port}, user: {user}, password-env: UNSHARD_{name.upper()}_PASSWORD}}"
                "\n"
            )
        path = self.folder / "task.yaml"
        path.write_text(
            TASK.format(
                schema=self.schema,
                target=self.target.port,
                target_user=self.target_user,
                rules=self.rules,
                routes=self.routes,
                mode=self.mode,
                instance=self.instance,
                extra=self.extra,
                options=json.dumps(self.options),
            )
        )
        return precheck(load_task(path))

    def problems(self) -> list[tuple[str, str, str]]:
        return [(item.code, item.severity, item.place) for item in self.items() if item.severity is not Severity.OK]


@pytest.fixture
def world(source_1, source_2, target, unique, tmp_path, monkeypatch) -> Iterator[World]:
    for name in ("TARGET", "S1", "S2"):
        monkeypatch.setenv(f"UNSHARD_{name}_PASSWORD", "unshard")
    with settings_of(source_1, target):
        yield World(source_1, source_2, target, unique, tmp_path)


@pytest.fixture
def account(unique, request):
    """Create accounts and drop them again."""
    made = []

    def create(server: servers.MariaDb, *grants: str) -> str:
        name = f"u_{unique[2:]}"
        server.run(f"CREATE USER {name} IDENTIFIED BY 'unshard'", *(f"GRANT {grant} TO {name}" for grant in grants))
        made.append((server, name))
        return name

    yield create
    for server, name in made:
        server.run(f"DROP USER {name}")


@pytest.mark.on_tidb
def test_a_task_that_can_run_has_no_problem_and_changes_nothing(world: World) -> None:
    before = world.target.run("SHOW DATABASES")
    assert world.problems() == []
    assert world.target.run("SHOW DATABASES") == before
    raise_if_failed(world.items())


def test_keys_are_compared_whatever_the_names_hold(world: World) -> None:
    for source in (world.s1, world.s2):
        source.run(
            f"CREATE TABLE {world.schema}_1.`t_%s` (id int PRIMARY KEY, `%_100%%` int)",
            f"INSERT INTO {world.schema}_1.`t_%s` VALUES (1, 1)",
        )
    world.routes += ROUTE.format(name="odd", schema=world.schema, pattern="t_%*", target=f"{world.schema}_odd")
    world.routes = world.routes.replace("t_*", "t_[12]")
    world.rules = "[all, odd]"
    assert found(world) == [("key_overlap", "error", "US-2326")]


def test_all_problems_are_reported_not_only_the_first(world: World) -> None:
    world.sources["s1"] = (servers.free_port(), "admin")
    world.s2.run(f"DROP TABLE {world.schema}_1.t_1", f"DROP TABLE {world.schema}_1.t_2")
    world.target_user = "nobody"
    assert world.problems() == [
        ("US-2001", "error", "source s1"),
        ("US-2380", "warning", "source s2"),
        ("US-2002", "error", "target"),
    ]
    with pytest.raises(UnshardError, match=r"US-2311.*2 precheck"):
        raise_if_failed(world.items())


def test_wrong_password(world: World, monkeypatch) -> None:
    monkeypatch.setenv("UNSHARD_S2_PASSWORD", "wrong")
    (found,) = [item for item in world.items() if item.code]
    assert (found.code, found.place) == ("US-2002", "source s2")
    assert "wrong" not in found.message and found.remedy


def test_password_that_nowhere_is(world: World, monkeypatch) -> None:
    monkeypatch.delenv("UNSHARD_TARGET_PASSWORD")
    (found,) = [item for item in world.items() if item.code]
    assert (found.severity, found.place) == ("error", "target")


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--skip-log-bin"], ["US-2302"]),
        (["--binlog-format=STATEMENT", "--binlog-row-image=MINIMAL"], ["US-2303", "US-2341"]),
        (["--binlog-ignore-db={schema}_1"], ["US-2305"]),
        (["--binlog-do-db=other"], ["US-2305"]),
    ],
)
def test_binlog_settings(world: World, server_folder: Path, options: list[str], code: list[str]) -> None:
    given = [option.format(schema=world.schema) for option in options]
    with while_up(
        servers.start_server(server_folder / world.schema, *given, server_id=None if "--skip-log-bin" in given else 77)
    ) as wrong:
        wrong.run(f"CREATE DATABASE {world.schema}_1", TABLE.format(f"{world.schema}_1.t_1"))
        world.sources["s2"] = (wrong.port, "admin")
        severities = {each: "warning" if each == "US-2341" else "error" for each in code}
        assert world.problems() == [(each, severities[each], "source s2") for each in code]


def fine(world: World) -> dict[str, list[str]]:
    """The messages of the checks that are OK, by name."""
    found: dict[str, list[str]] = {}
    for item in world.items():
        if item.severity is Severity.OK:
            found.setdefault(item.name, []).append(item.message)
    return found


def test_nothing_is_fine_that_was_not_seen(world: World) -> None:
    whole = fine(world)
    assert whole["server_settings"][1] == "sql_mode is the same"
    world.sources["s2"] = (servers.free_port(), "admin")
    without_s2 = fine(world)
    assert without_s2["server_settings"][1] == "sql_mode is the same on target, s1; the others are not known"
    assert without_s2["server_settings"][-1].endswith("are +00:00 on s1; the others are not known")
    assert without_s2["schema_of_shard_tables"] == ["2 shards are alike; shards of s2 are not known"]
    assert without_s2["free_space"][0].endswith("on s1; the others are not known")
    assert "rules" not in without_s2 and without_s2["version"] == whole["version"][1:]
    world.target_user = "nobody"
    of_s1 = fine(world)
    assert [text for text in of_s1["server_settings"] if "sql_mode" in text] == []
    assert not {"local_infile", "target_tables", "write_path"} & of_s1.keys()
    world.sources["s1"] = (servers.free_port(), "admin")
    assert fine(world) == {}


def test_no_check_of_a_source_is_fine_without_shards_or_privileges(world: World, account) -> None:
    world.s1.run(f"DROP TABLE {world.schema}_1.t_1", f"DROP TABLE {world.schema}_1.t_2")
    of_s1 = {item.name for item in world.items() if (item.place, item.severity) == ("source s1", Severity.OK)}
    assert not {"dump_privilege", "routes", "binlog_db", "online_ddl", "table_schema"} & of_s1
    assert {"binlog_format", "replication_privilege"} <= of_s1
    world.sources["s2"] = (world.s2.port, account(world.s2, f"SELECT ON `{world.schema}\\_1`.*"))
    of_s2 = {item.name for item in world.items() if (item.place, item.severity) == ("source s2", Severity.OK)}
    assert "binlog_db" not in of_s2 and "dump_privilege" in of_s2


def test_missing_privileges_of_a_source(world: World, account) -> None:
    user = account(
        world.s1, f"SELECT ON {world.schema}_1.t_1", f"INSERT ON {world.schema}_1.t_2", "BINLOG MONITOR ON *.*"
    )
    world.sources["s1"] = (world.s1.port, user)
    found = [item for item in world.items() if item.code]
    assert [(item.code, item.name) for item in found] == [
        ("US-2306", "replication_privilege"),
        ("US-2003", "dump_privilege"),
    ]
    assert "REPLICATION SLAVE" in found[0].message and "CLIENT" not in found[0].message
    assert "t_2" in found[1].message


def test_least_privileges_are_enough(world: World, account) -> None:
    schema = world.schema
    source = account(world.s1, f"SELECT ON `{schema}\\_1`.*", "REPLICATION SLAVE, BINLOG MONITOR ON *.*")
    world.sources["s1"] = (world.s1.port, source)
    needed = "SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, DROP, INDEX"
    world.target_user = account(world.target, f"{needed} ON {schema}.*", f"{needed} ON {schema}_meta.*")
    assert world.problems() == []
    world.instance = ", mydumper: {consistency: lock}"
    (found,) = [item for item in world.items() if item.code]
    assert (found.code, found.name) == ("US-2306", "dump_privilege") and "LOCK TABLES" in found.message
    world.s1.run(f"GRANT LOCK TABLES ON `{schema}\\_1`.* TO {source}")
    assert world.problems() == []


@pytest.mark.on_tidb
def test_missing_privileges_on_the_target(world: World, account) -> None:
    world.target_user = account(world.target, f"ALL ON {world.schema}_meta.*", f"SELECT, INSERT ON {world.schema}.*")
    (found,) = [item for item in world.items() if item.code]
    assert (found.code, found.name) == ("US-2306", "target_privilege")
    assert "UPDATE, DELETE, CREATE, ALTER, DROP, INDEX" in found.message


def test_shards_of_different_structure(world: World) -> None:
    world.s2.run(f"ALTER TABLE {world.schema}_1.t_2 MODIFY v varchar(10), ADD COLUMN more int")
    (found,) = [item for item in world.items() if item.code]
    assert (found.code, found.place) == ("US-2307", f"target {world.schema}.t")
    assert "s1" in found.message and "varchar(10)" in found.message and "more" in found.message


def test_order_of_columns_and_other_indexes_do_not_matter(world: World) -> None:
    world.s2.run(f"ALTER TABLE {world.schema}_1.t_2 MODIFY v varchar(9) DEFAULT 'x' COMMENT 'y' FIRST, ADD KEY (v)")
    assert world.problems() == []


def test_table_that_two_routes_match(world: World) -> None:
    world.routes += ROUTE.format(name="second", schema=world.schema, pattern="t_2", target="elsewhere")
    world.rules = "[all, second]"
    found = [item for item in world.items() if item.code]
    assert [(item.code, item.place) for item in found] == [("US-1021", "source s1"), ("US-1021", "source s2")]
    assert "all" in found[0].message and "second" in found[0].message and "t_2" in found[0].message


def test_table_without_a_key_is_a_warning(world: World) -> None:
    for source in (world.s1, world.s2):
        source.run(*(f"ALTER TABLE {world.schema}_1.{table} DROP PRIMARY KEY" for table in ("t_1", "t_2")))
    world.s2.run(f"ALTER TABLE {world.schema}_1.t_2 ENGINE=MyISAM")
    world.instance = ", mydumper: {consistency: lock}"
    assert [code for code, *_ in world.problems()].count("US-2309") == 0
    world.instance = ""
    found = world.problems()
    assert [code for code, _, _ in found] == ["US-2308"] * 4 + ["US-2309"]
    assert {severity for _, severity, _ in found} == {"warning"}
    raise_if_failed(world.items())


@pytest.mark.parametrize(
    ("definition", "words"),
    [
        ("(id int PRIMARY KEY)", "lacks column v"),
        ("(id int PRIMARY KEY, v varchar(9), must int NOT NULL)", "must"),
        ("(id int, v varchar(9))", "neither a key"),
        ("(id int PRIMARY KEY, v varchar(9) AS (id))", "generated"),
    ],
)
def test_target_table_that_does_not_fit(world: World, definition: str, words: str) -> None:
    world.target.run(f"CREATE DATABASE {world.schema}", f"CREATE TABLE {world.schema}.t {definition}")
    (found,) = [item for item in world.items() if item.code]
    assert (found.code, found.severity) == ("US-6802", "error") and words in found.message


def test_target_column_that_does_not_hold_every_value_is_a_warning(world: World) -> None:
    world.target.run(
        f"CREATE DATABASE {world.schema}", f"CREATE TABLE {world.schema}.t (id int PRIMARY KEY, v char(8))"
    )
    (found,) = [item for item in world.items() if item.code]
    assert (found.code, found.severity) == ("US-2343", "warning")
    assert "column v is char(8) there and varchar(9) in a shard" in found.message
    world.s1.run(f"ALTER TABLE {world.schema}_1.t_2 MODIFY v varchar(10)")
    (found,) = [item for item in world.items() if item.code == "US-2343"]
    assert all(f"column v is char(8) there and varchar({n}) in a shard" in found.message for n in (9, 10))


def test_rows_of_others_in_a_target_are_found_before_the_load_begins(world: World) -> None:
    table = f"{world.schema}.t"
    world.target.run(
        f"CREATE DATABASE {world.schema}",
        f"CREATE TABLE {table} (id int PRIMARY KEY, v varchar(9))",
        f"INSERT INTO {table} VALUES (77, 'other')",
    )
    world.items()
    task = load_task(world.folder / "task.yaml")
    assert [(item.code, item.severity) for item in check(task) if item.code] == [("US-6401", "error")]
    world.target.run(f"DELETE FROM {table}")
    assert not [item for item in check(task) if item.code]


def test_local_infile_off_is_a_warning(world: World) -> None:
    world.target.run("SET GLOBAL local_infile = OFF")
    try:
        assert world.problems() == [("US-6801", "warning", "target")]
    finally:
        world.target.run("SET GLOBAL local_infile = ON")


def test_flavor_that_is_another(world: World) -> None:
    world.items()
    path = world.folder / "sources/s1.yaml"
    path.write_text(f"{path.read_text()}flavor: mysql\n")
    found = [item for item in precheck(load_task(world.folder / "task.yaml")) if item.code]
    assert [(item.code, item.place) for item in found] == [("US-2310", "source s1")]


def test_two_routes_that_disagree_about_a_table_are_both_named(world: World) -> None:
    world.routes += ROUTE.format(name="ones", schema=world.schema, pattern="*_1", target=f"{world.schema}_x")
    world.rules = "[all, ones]"
    found = [item for item in world.items() if item.code]
    assert [(item.code, item.name, item.place) for item in found] == [
        ("US-1021", "routes", "source s1"),
        ("US-1021", "routes", "source s2"),
    ]
    assert "route 'all'" in found[0].message and "route 'ones'" in found[0].message


def extract(world: World, expression: str) -> None:
    world.routes = world.routes.replace(
        "target-table: t", f"target-table: t, extract-table: {{table-regexp: '{expression}', target-column: c_table}}"
    )


def test_extracted_columns_need_a_table_that_has_them(world: World) -> None:
    extract(world, "t_(.*)")
    assert world.problems() == [("US-6017", "error", f"target {world.schema}.t")]
    world.target.run(f"CREATE DATABASE {world.schema}", TABLE.format(f"{world.schema}.t"))
    assert world.problems() == [("US-6014", "error", f"target {world.schema}.t")]
    world.target.run(f"ALTER TABLE {world.schema}.t ADD c_table varchar(9) NOT NULL, ADD other int NOT NULL")
    assert world.problems() == [("US-6802", "error", f"target {world.schema}.t")]
    world.target.run(
        f"DROP TABLE {world.schema}.t",
        f"CREATE TABLE {world.schema}.t (id int, v varchar(9), c_table varchar(9) NOT NULL, PRIMARY KEY (id, c_table))",
    )
    assert world.problems() == []
    world.target.run(
        f"DROP TABLE {world.schema}.t",
        f"CREATE TABLE {world.schema}.t (id int, v varchar(9), c_table varbinary(9), PRIMARY KEY (id, c_table))",
    )
    assert world.problems() == [("US-6016", "error", f"target {world.schema}.t")]


def test_an_expression_that_misses_a_shard_is_found(world: World) -> None:
    extract(world, "t_(1)")
    problems = [item for item in world.items() if item.code == "US-1023"]
    assert [item.place for item in problems] == ["source s1", "source s2"]
    assert f"s1 {world.schema}_1.t_2" in problems[0].message


def test_rules_that_match_nothing_are_named_once_for_all_sources(world: World) -> None:
    world.routes += ROUTE.format(name="lost", schema=world.schema, pattern="tt_*", target=world.schema)
    world.routes += ROUTE.format(name="one", schema=world.schema, pattern="?_9", target=world.schema)
    world.rules = "[all, lost, one]"
    world.s2.run(TABLE.format(f"{world.schema}_1.t_9"))
    found = [item for item in world.items() if item.code]
    assert [(item.code, item.severity, item.place) for item in found] == [("US-2312", "warning", "task")]
    assert "route 'lost' matches no table of s1, s2" in found[0].message


def test_sequence_that_would_be_a_shard_is_left_out_with_a_warning(world: World) -> None:
    world.s1.run(f"CREATE SEQUENCE {world.schema}_1.t_9")
    assert world.problems() == [("US-2313", "warning", "source s1")]


def found(world: World) -> list[tuple[str, str, str]]:
    return [(item.name, item.severity, item.code) for item in world.items() if item.code]


def test_a_key_that_two_shards_have_is_found_before_the_load(world: World) -> None:
    world.s1.run(f"INSERT INTO {world.schema}_1.t_1 VALUES (1, 'a'), (7, 'b')")
    world.s2.run(f"INSERT INTO {world.schema}_1.t_2 SELECT seq, seq FROM mysql.seq_7_to_90")
    assert found(world) == [("key_overlap", "error", "US-2326")]
    (item,) = [item for item in world.items() if item.code]
    assert f"s1 {world.schema}_1.t_1 and s2 {world.schema}_1.t_2" in item.message and "the key id = 7" in item.message
    world.extra = "ignore-checking-items: [key_overlap]"
    assert found(world) == [("key_overlap", "ignored", "US-2326")]
    raise_if_failed(world.items())


def test_shards_that_number_their_rows_are_a_warning(world: World) -> None:
    for source in (world.s1, world.s2):
        for table in ("t_1", "t_2"):
            source.run(f"ALTER TABLE {world.schema}_1.{table} MODIFY id int AUTO_INCREMENT")
    assert found(world) == [("auto_increment_ID", "warning", "US-2325")]


def test_an_online_ddl_under_way_and_foreign_keys_are_warnings(world: World) -> None:
    world.s1.run(
        TABLE.format(f"{world.schema}_1._t_1_gho"),
        f"ALTER TABLE {world.schema}_1.t_2 ADD FOREIGN KEY (id) REFERENCES {world.schema}_1.t_1 (id)",
    )
    assert found(world) == [("online_ddl", "warning", "US-2335"), ("table_schema", "warning", "US-2327")]
    world.s1.run(f"CREATE TABLE {world.schema}_1._t_1_ghc (id INT, last_update INT, hint INT, value INT)")
    assert [code for name, _, code in found(world) if name == "online_ddl"] == ["US-2322", "US-2322"]


def test_more_connections_than_the_server_gives(world: World) -> None:
    world.extra = "mydumpers: {global: {threads: 100000}}\nloaders: {global: {pool-size: 100000}}"
    world.instance = ", mydumper-config-name: global, loader-config-name: global"
    limited = 2 if is_tidb(world.target) else 3  # TiDB has no limit by default
    assert found(world) == [("conn_number", "warning", "US-2328")] * limited


def test_a_start_whose_binlog_is_gone(world: World) -> None:
    world.mode, world.instance = "incremental", ", meta: {binlog-name: mysql-bin.999999, binlog-pos: 4}"
    assert found(world) == [("meta_position", "error", "US-2329")] * 2
    for source in (world.s1, world.s2):
        source.run("FLUSH BINARY LOGS")
    ((file, size, *_),) = world.s1.run("SHOW MASTER STATUS")
    world.instance = f", meta: {{binlog-name: {file}, binlog-pos: {size + 9_000_000}}}"
    assert ("meta_position", "error", "US-2342") in found(world)


def test_a_start_within_a_transaction(world: World) -> None:
    begins = end_of(world.s1)
    world.s1.run(f"INSERT INTO {world.schema}_1.t_1 VALUES (1, 'a')")
    events = world.s1.run(f"SHOW BINLOG EVENTS IN '{begins.file}' FROM {begins.position}")
    borders = {4, events[0][1], events[-1][4]}
    for place in (4, *(each[1] for each in events), events[0][1] + 1, events[-1][4]):
        world.mode, world.instance = "incremental", f", meta: {{binlog-name: {begins.file}, binlog-pos: {place}}}"
        codes = {item.code for item in world.items() if (item.name, item.place) == ("meta_position", "source s1")}
        assert codes == {"" if place in borders else "US-2344"}, place


def test_clocks_of_another_zone_than_the_task_says(world: World) -> None:
    world.extra = "timezone: Asia/Shanghai"
    assert found(world) == [("server_settings", "warning", "US-2345")] * 2
    world.mode = "full"
    assert found(world) == []


def test_global_time_zones_of_sources(world: World) -> None:
    world.s1.run("SET GLOBAL time_zone = '+08:00'")
    try:
        (item,) = [item for item in world.items() if item.code == "US-2345"]
        assert "source s1" in item.message and "UTC+08:00" in item.message
    finally:
        world.s1.run("SET GLOBAL time_zone = 'SYSTEM'")


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        ("sql_mode", "ANSI_QUOTES", "ANSI_QUOTES only on s2"),
        ("sql_mode", "", "STRICT_TRANS_TABLES only on target, s1"),
        ("collation_server", "latin1_german1_ci", "latin1_german1_ci (s2)"),
    ],
)
def test_settings_that_a_server_has_otherwise(world: World, variable: str, value: str, told: str) -> None:
    ((before,),) = world.s2.run(f"SELECT @@GLOBAL.{variable}")
    world.s2.run(f"SET GLOBAL {variable} = '{value}'")
    try:
        (item,) = [item for item in world.items() if item.code]
    finally:
        world.s2.run(f"SET GLOBAL {variable} = '{before}'")
    assert (item.name, item.severity) == ("server_settings", "warning")
    assert told in item.message
    assert found(world) == []


@pytest.mark.mariadb_only("TiDB does not know latin1_swedish_ci, the default collation of latin1")
def test_default_collations_that_differ_although_all_columns_are_alike(world: World) -> None:
    world.s1.run(f"ALTER DATABASE {world.schema}_1 DEFAULT CHARACTER SET latin1")
    assert found(world) == [("collation", "warning", "US-2347")]
    world.s1.run(f"ALTER DATABASE {world.schema}_1 DEFAULT CHARACTER SET utf8mb4")
    assert found(world) == []
    world.s1.run(f"ALTER TABLE {world.schema}_1.t_2 DEFAULT CHARACTER SET latin1")
    (item,) = [item for item in world.items() if item.code]
    assert (item.place, item.severity) == (f"target {world.schema}.t", "warning")
    assert f"latin1_swedish_ci (s1 {world.schema}_1.t_2)" in item.message
    world.s1.run(f"ALTER TABLE {world.schema}_1.t_2 DEFAULT CHARACTER SET utf8mb4")
    world.target.run(f"CREATE DATABASE {world.schema}", TABLE.format(f"{world.schema}.t") + " CHARACTER SET latin1")
    assert found(world) == [("collation", "warning", "US-2347")]


@pytest.mark.parametrize(
    ("gtids", "why"),
    [
        ("0-7-999999999", "which is not in the master's binlog"),
        ("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5", "mariadb has no GTIDs that look like these"),
    ],
)
def test_a_start_behind_gtids_that_the_source_has_not(world: World, gtids: str, why: str) -> None:
    world.mode, world.instance = "incremental", f", meta: {{binlog-gtid: '{gtids}'}}"
    problems = [item for item in world.items() if item.code]
    assert [(item.name, item.severity, item.code) for item in problems] == [("meta_position", "error", "US-3025")] * 2
    assert why in problems[0].message


def test_a_disk_that_is_too_small(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10, 10, 0))
    assert found(world) == [("free_space", "warning", "US-2331")]


def test_a_bucket_that_refuses(world: World, s3: s3server.S3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_STORE", s3.connection)
    world.options |= {"storage-path": f"s3://{s3server.BUCKET}/x", "storage-conn-id": "store"}
    assert found(world) == [] and s3.requests["PUT"]
    assert [data for data in s3.objects.values() if data] == [], "nothing of it stays"
    for operation in ("PUT", "LIST", "HEAD", "DELETE_MANY"):
        s3.trouble = lambda asked, key, operation=operation: 403 if asked == operation else None
        assert found(world) == [("object_store", "error", "US-7101")], operation


def test_a_short_retention_and_a_server_id_that_is_there_twice(world: World, server_folder: Path) -> None:
    options = ("--expire-logs-days=0.5", "--log-bin=mysql-bin")
    ((own,),) = world.s1.run("SELECT @@server_id")
    with while_up(servers.start_server(server_folder / world.schema, *options, server_id=int(own))) as other:
        other.run(f"CREATE DATABASE {world.schema}_1", TABLE.format(f"{world.schema}_1.t_1"))
        world.sources["s2"] = (other.port, "admin")
        assert found(world) == [("binlog_retention", "warning", "US-2321"), ("server_id", "warning", "US-2323")]


def test_a_collation_that_the_target_does_not_know(target) -> None:
    with contextlib.closing(mysql.connect(target.server)) as connection:
        known = TableSchema((column("latin1", "latin1_bin"), column("utf8mb4", "utf8mb4_0900_xx_ci")), (), "")
        (error,) = _unknown_collations(connection, {TableId("a", "b"): {Shard("s", TableId("c", "d")): known}})
    assert error.code == "US-2330" and "utf8mb4_0900_xx_ci" in error.message


def test_a_default_collation_that_the_target_does_not_know(target) -> None:
    with contextlib.closing(mysql.connect(target.server)) as connection:
        shard = TableSchema((), (), "", collation="utf8mb4_0900_xx_ci")
        (error,) = _unknown_collations(connection, {TableId("a", "b"): {Shard("s", TableId("c", "d")): shard}})
    assert error.code == "US-2330" and "its own default" in error.message


def column(charset: str, collation: str) -> Column:
    return Column("c", "varchar", "varchar(9)", True, charset, collation, None, "")
