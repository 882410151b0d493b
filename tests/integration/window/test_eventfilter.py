"""Binlog event filters on the binlog of a real server: each name stops exactly its statements, and rows go on."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.livetask import LiveTask
from tests.tidbsettings import is_tidb
from unshard.adapters import mysql
from unshard.adapters.structures import read_schemas
from unshard.adapters.targetddl import DdlTrialTables
from unshard.core.ddl.events import StructureChange, parts_of, view_of
from unshard.core.ddl.parsed import DdlKind
from unshard.core.ddl.statement import read
from unshard.core.model import TableId, TableSchema
from unshard.core.relay.segment import Statement, chain
from unshard.core.rules.filters import DDL, DML, GROUPS, Action, Event, EventFilter, EventRule
from unshard.core.rules.pattern import compile_pattern
from unshard.errors.ddl import EffectRefused
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration

IGNORE = Action.IGNORE
AT, AI = "alter table", "incompatible ddl changes"
COLUMNS = """id INT PRIMARY KEY AUTO_INCREMENT, a INT, b VARCHAR(20) DEFAULT 'x', d DECIMAL(10,3), u INT,
e ENUM('a','b'), ts DATETIME(3), UNIQUE KEY u_u (u), KEY k_a (a)"""
CASES: list[tuple[str, set[str] | list[set[str]]]] = [
    ("ALTER TABLE t ADD COLUMN c1 INT", {AT, "add column"}),
    (
        "ALTER TABLE t ADD c2 INT, DROP COLUMN c1",
        [{AT, "add column", "multi schema change"}, {AT, "drop column", "multi schema change", AI}],
    ),
    ("ALTER TABLE t DROP c2", {AT, "drop column", AI}),
    ("ALTER TABLE t MODIFY a BIGINT", {AT, "modify column", AI}),
    ("ALTER TABLE t MODIFY a INT", {AT, "modify column", "value range decrease", AI}),
    ("ALTER TABLE t MODIFY b VARCHAR(10) DEFAULT 'x'", {AT, "modify column", "value range decrease", AI}),
    ("ALTER TABLE t MODIFY d DECIMAL(10,2)", {AT, "modify column", "precision decrease", AI}),
    ("ALTER TABLE t MODIFY ts DATETIME", {AT, "modify column", "precision decrease", AI}),
    ("ALTER TABLE t MODIFY e ENUM('a')", {AT, "modify column", "value range decrease", AI}),
    ("ALTER TABLE t MODIFY b VARCHAR(10) DEFAULT 'y'", {AT, "modify default value", AI}),
    ("ALTER TABLE t MODIFY b VARCHAR(10) COLLATE utf8mb4_unicode_ci DEFAULT 'y'", {AT, "modify collation", AI}),
    (
        "ALTER TABLE t MODIFY b VARCHAR(10) CHARACTER SET latin1 DEFAULT 'y'",
        {AT, "modify charset", "modify collation", AI},
    ),
    (
        "ALTER TABLE t MODIFY b VARCHAR(10) CHARACTER SET latin1 COLLATE latin1_bin DEFAULT 'y'",
        {AT, "modify collation", AI},
    ),
    ("ALTER TABLE t MODIFY a INT FIRST", {AT, "modify columns order", AI}),
    ("ALTER TABLE t MODIFY a INT AFTER id", {AT, "modify columns order", AI}),
    ("ALTER TABLE t CHANGE a a2 INT", {AT, "rename column", AI}),
    ("ALTER TABLE t RENAME COLUMN a2 TO a", {AT, "rename column", AI}),
    ("ALTER TABLE t ALTER COLUMN a SET DEFAULT 5", {AT, "modify default value", "set default value", AI}),
    ("ALTER TABLE t ALTER a DROP DEFAULT", {AT, "modify default value", "set default value", AI}),
    ("ALTER TABLE t MODIFY id INT", {AT, "remove auto increment", AI}),
    ("ALTER TABLE t ADD INDEX k1 (u, a)", {AT, "modify constraint", "create index", AI}),
    ("ALTER TABLE t RENAME INDEX k1 TO k2", {AT, "rename index", AI}),
    ("ALTER TABLE t ALTER INDEX k2 IGNORED", {AT, "alter index visibility"}),
    ("ALTER TABLE t DROP INDEX k2", {AT, "drop index", AI}),
    ("CREATE UNIQUE INDEX k3 ON t (d)", {"create index"}),
    ("DROP INDEX k3 ON t", {"drop index", "drop unique key", AI}),
    ("ALTER TABLE t DROP KEY u_u", {AT, "drop index", "drop unique key", AI}),
    ("ALTER TABLE t ADD UNIQUE (u)", {AT, "modify constraint", "create index", AI}),
    (
        "ALTER TABLE t ADD CONSTRAINT f1 FOREIGN KEY (a) REFERENCES p (id)",
        {AT, "modify constraint", "add foreign key", AI},
    ),
    ("ALTER TABLE t DROP FOREIGN KEY f1", {AT, "drop foreign key", AI}),
    ("ALTER TABLE t ADD CONSTRAINT c CHECK (a < 10)", {AT, "modify constraint", AI}),
    ("ALTER TABLE t DROP CONSTRAINT c", {AT, "modify constraint", AI}),
    ("ALTER TABLE t DROP PRIMARY KEY", {AT, "drop primary key", AI}),
    ("ALTER TABLE t ADD PRIMARY KEY (id)", {AT, "modify constraint", "add primary key", AI}),
    ("ALTER TABLE t AUTO_INCREMENT = 100", {AT, "rebase auto id"}),
    ("ALTER TABLE t COMMENT = 'c'", {AT, "modify table comment"}),
    ("ALTER TABLE t ENGINE = InnoDB", {AT, "modify storage engine", AI}),
    ("ALTER TABLE t DEFAULT CHARSET = latin1", {AT, "modify charset", "modify table charset and collate", AI}),
    ("ALTER TABLE t COLLATE latin1_bin", {AT, "modify collation", "modify table charset and collate", AI}),
    (
        "ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4",
        {AT, "modify charset", "modify collation", "modify table charset and collate", AI},
    ),
    ("ALTER TABLE t ORDER BY a", {AT}),
    (
        "ALTER TABLE q PARTITION BY RANGE (id)"
        " (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (20))",
        {AT, "alter table partitioning"},
    ),
    (
        "ALTER TABLE q ADD PARTITION (PARTITION p2 VALUES LESS THAN (30), PARTITION p3 VALUES LESS THAN (40))",
        {AT, "add table partition"},
    ),
    ("ALTER TABLE q TRUNCATE PARTITION p2", {AT, "truncate table partition", AI}),
    ("ALTER TABLE q DROP PARTITION p2, p3", {AT, "drop table partition", AI}),
    ("ALTER TABLE q REBUILD PARTITION p1", {AT, "rebuild table partition", AI}),
    (
        "ALTER TABLE q REORGANIZE PARTITION p1 INTO"
        " (PARTITION p1 VALUES LESS THAN (15), PARTITION p2 VALUES LESS THAN (20))",
        {AT, "reorganize table partition", AI},
    ),
    ("ALTER TABLE q EXCHANGE PARTITION p1 WITH TABLE x", {AT, "exchange table partition", AI}),
    ("ALTER TABLE q REMOVE PARTITIONING", {AT, "remove table partitioning"}),
    ("ALTER TABLE q PARTITION BY HASH (id) PARTITIONS 4", {AT, "alter table partitioning"}),
    ("ALTER TABLE q COALESCE PARTITION 2", {AT, "coalesce table partition", AI}),
    ("CREATE TABLE n (id INT)", {"create table"}),
    ("ALTER TABLE n RENAME TO n2", {AT, "rename table", AI}),
    ("RENAME TABLE n2 TO n3", {"rename table", AI}),
    ("TRUNCATE TABLE n3", {"truncate table", AI}),
    ("DROP TABLE n3", {"drop table", AI}),
    ("CREATE VIEW v AS SELECT 1 AS a", {"create view"}),
    ("ALTER VIEW v AS SELECT 2 AS a", {"create view"}),
    ("DROP VIEW v", {"drop view"}),
    ("CREATE DATABASE {}_d", {"create database"}),
    ("ALTER DATABASE {}_d CHARACTER SET latin1", {"alter database", "modify schema charset and collate"}),
    ("DROP DATABASE {}_d", {"drop database", AI}),
]
UNKNOWN_ON_TIDB = {
    "ALTER TABLE t MODIFY b VARCHAR(10) CHARACTER SET latin1 DEFAULT 'y'",
    "ALTER TABLE t MODIFY b VARCHAR(10) CHARACTER SET latin1 COLLATE latin1_bin DEFAULT 'y'",
    "ALTER TABLE t MODIFY id INT",
}
"""TiDB refuses these statements, so only the changed kind (a column) is known, not the change."""


@pytest.fixture
def task(source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> Iterator[LiveTask]:
    found = LiveTask(unique, tmp_path, {"s1": source_1, "s2": source_2}, target, ["g"])
    try:
        yield found
    finally:
        found.drop()


def ignoring(*names: str) -> EventFilter:
    return EventFilter((EventRule("r", compile_pattern("*", False, "r"), None, names, (), IGNORE),))


def events(statement: Statement, shadow: DdlTrialTables, known: dict[TableId, TableSchema]) -> list[Event]:
    """Return the events of a statement; the structures before and after it are followed."""
    ddl = read(statement.text, statement.sql_mode, statement.schema)
    if found := view_of(ddl, statement.sql_mode, statement.schema):
        return [found[1]]
    change = StructureChange()
    if ddl.kind in (DdlKind.ALTER, DdlKind.INDEX) and (before := known.get(ddl.subjects[0])):
        with contextlib.suppress(EffectRefused):
            change = StructureChange(before, shadow.effect(before, statement, ddl.subjects[0]))
            assert change.after is not None
            known[ddl.subjects[0]] = change.after
    return [part.event for part in parts_of(ddl, statement.sql_mode, change)]


def test_every_name_stops_exactly_its_statements(task: LiveTask) -> None:
    task.make({"g": COLUMNS}, {("s1", "g"): [1], ("s2", "g"): [1]})
    source, name = task.sources["s1"], task.name
    made = [
        "CREATE TABLE p (id INT PRIMARY KEY)",
        f"CREATE TABLE t ({COLUMNS})",
        "CREATE TABLE q (id INT PRIMARY KEY)",
        "CREATE TABLE x (id INT PRIMARY KEY)",
    ]
    source.run(f"USE {name}", *made)
    with contextlib.closing(mysql.connect(task.work().sources["s1"])) as connection:
        known = read_schemas(connection, [TableId(name, "t"), TableId(name, "q")])
    source.run(f"USE {name}", *(text.format(name) for text, _ in CASES))
    task.pull("s1")
    segments = chain(task.work().store.segments("s1"), task.checkpoint("s1"))
    statements = [segment.statement for segment in segments if segment.statement is not None][len(made) :]
    shadow = DdlTrialTables(task.work().target, task.meta_schema)
    met = [
        (text, wanted, events(statement, shadow, known))
        for (text, wanted), statement in zip(CASES, statements, strict=True)
    ]
    every = {name: ignoring(name) for name in (*DDL, *GROUPS, *DML)}
    seen: set[str] = set()
    for text, wanted, found in met:
        assert found, text
        listed = wanted if isinstance(wanted, list) else [wanted]
        seen = seen.union(*listed)
        if text in UNKNOWN_ON_TIDB and is_tidb(task.target):
            listed = [{AT, "modify column", AI}]
        for names, event in zip(listed, found, strict=True):
            judged = {each: rule.judge(TableId(name, "t"), event).action for each, rule in every.items()}
            assert {each for each, action in judged.items() if action is IGNORE} == names | {"all", "all ddl"}, text
    assert set(DDL) == seen - {AI}, "a name of the list that no statement here has"


def with_filters(task: LiveTask, *rules: dict[str, object]) -> None:
    body = yaml.safe_load(task.path.read_text())
    body["filters"] = {f"f{n}": {"schema-pattern": task.name, **rule} for n, rule in enumerate(rules)}
    for instance in body["mysql-instances"]:
        instance["filter-rules"] = list(body["filters"])
    task.path.write_text(yaml.safe_dump(body))
    task.restart()


def test_ignored_ddl_is_followed_and_ignored_rows_do_not_come(task: LiveTask) -> None:
    task.make({"g": "id INT PRIMARY KEY, a INT, b INT"}, {("s1", "g"): [1], ("s2", "g"): [1]})
    with_filters(task, {"events": ["add column", "drop column", "delete"], "action": "Ignore"})
    s1, s2 = task.sources.values()
    s1.run(
        f"USE {task.name}",
        "INSERT INTO g_1 VALUES (1, 1, 1), (2, 2, 2)",
        "DELETE FROM g_1 WHERE id = 1",
        "ALTER TABLE g_1 ADD c INT FIRST",
        "INSERT INTO g_1 VALUES (9, 3, 3, 3)",
        "ALTER TABLE g_1 DROP b, ADD KEY (a)",
        "INSERT INTO g_1 VALUES (9, 1, 4)",
        "UPDATE g_1 SET a = 5 WHERE id = 2",
    )
    task.run()
    columns = f"SELECT id, a, b FROM {task.table('g')} ORDER BY id"
    assert task.target.run(columns) == [(1, 1, 1), (2, 2, 2), (3, 3, 3)], "rows behind the ALTER are held"
    s2.run(f"ALTER TABLE {task.name}.g_1 ADD KEY (a)", f"INSERT INTO {task.name}.g_1 VALUES (20, 0, 0)")
    task.run()
    assert task.target.run(columns) == [(1, 4, 1), (2, 5, 2), (3, 3, 3), (20, 0, 0)]
    assert task.executed("g") == [f"ALTER TABLE `{task.name}_to`.`g` ADD KEY (a)"]
    with_filters(task, {"events": ["truncate table"], "action": "Error"})
    s2.run(f"INSERT INTO {task.name}.g_1 VALUES (21, 0, 0)", f"TRUNCATE {task.name}.g_1")
    with pytest.raises(Exception, match=r"US-4009.*'f0'"):
        task.run()
    assert task.target.run(f"SELECT COUNT(*) FROM {task.table('g')} WHERE id = 21") == [(1,)]
