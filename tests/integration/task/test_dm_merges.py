"""Scenarios of DM's test directories with sharding: at the end the target is the union of the shards.

docs/dm-tests.md lists the directories. The names of the tests are those of the directories; the statements are our own.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.dying import Died
from tests.lifetask import LifeTask, living
from tests.oracle import rows, union
from tests.taskfile import route
from unshard.core.checks.items import Severity
from unshard.core.sql.lastwrites import NAME
from unshard.units.checks.precheck import check
from unshard.units.window import sync
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration


@pytest.fixture
def empty(source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> Iterator[LifeTask]:
    """A task of two sources whose shards a test creates."""
    with living(unique, tmp_path, {"s1": source_1, "s2": source_2}, target) as task:
        yield task


def make(task: LifeTask, columns: str, *shards: tuple[str, str]) -> None:
    """Create shards of those sources and names."""
    for source, name in shards:
        task.sources[source].run(f"USE {task.name}", f"CREATE TABLE {name} ({columns})")
        task.shards.setdefault(source, []).append(f"{task.name}.{name}")


def up(task: LifeTask, source: str, *statements: str) -> None:
    task.sources[source].run(f"USE {task.name}", *statements)


def dying(step: Callable[..., object]) -> Callable[..., object]:
    """Return a step that dies when it is done."""

    def taken(*given: object) -> object:
        step(*given)
        raise Died

    return taken


def go_through_death(task: LifeTask, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in a process that dies after it has written rows, then in another one."""
    with monkeypatch.context() as patch:
        patch.setattr(sync, "_move", dying(sync._move))
        with pytest.raises(Died):
            task.run()
    task.go()


def errors(task: LifeTask) -> list[str]:
    return [str(item.message) for item in check(task.load()) if item.severity is Severity.ERROR]


def test_sharding(empty: LifeTask) -> None:
    """Sessions with different sql_mode, generated columns with keys, defaults of zero, shards of new schemas."""
    columns = "id BIGINT AUTO_INCREMENT PRIMARY KEY, uid INT, v VARCHAR(80), info VARCHAR(99), UNIQUE KEY (uid)"
    make(empty, columns, ("s1", "t_1"), ("s1", "t_2"), ("s2", "t_2"), ("s2", "t_3"))
    steps = (
        "INSERT INTO {0} (id, uid, v) VALUES ({1}1, {1}1, 'José'), ({1}2, {1}2, 'años')",
        "ALTER TABLE {0} ADD COLUMN age INT",
        """INSERT INTO {0} (id, uid, v, age, info) VALUES ({1}3, {1}3, 'Buendía', 301, '{{"age": 10}}')""",
        "ALTER TABLE {0} ADD COLUMN info_json JSON GENERATED ALWAYS AS (info) VIRTUAL",
        "UPDATE {0} SET v = 'solitude' WHERE v = 'años'",
        "ALTER TABLE {0} ADD COLUMN id_gen INT AS (uid + 1)",
        "ALTER TABLE {0} ADD UNIQUE (id_gen)",
        "INSERT INTO {0} (id, uid, v) VALUES ({1}4, {1}4, 'x')",
        "ALTER TABLE {0} ADD KEY several (uid, id_gen)",
        "ALTER TABLE {0} ADD COLUMN made DATETIME NOT NULL DEFAULT '0000-00-00 00:00:00'",
        "INSERT INTO {0} (id, uid, made) VALUES ({1}5, {1}5, '0000-00-00 00:00:01'), ({1}6, {1}6, NOW())",
        "DELETE FROM {0} WHERE id_gen = {1}1 + 1",
    )
    shards = (("s1", "t_1", 1), ("s1", "t_2", 2), ("s2", "t_2", 3), ("s2", "t_3", 4))
    modes = {"s1": "SET sql_mode = ''", "s2": "SET sql_mode = 'ANSI_QUOTES'"}
    for source, name, number in shards:
        up(empty, source, modes[source], steps[0].format(name, number))
    empty.go()
    assert empty.assert_union() == 8
    for source, name, number in shards:
        up(empty, source, modes[source], *(step.format(name, number) for step in steps[1:]))
        empty.go()
    assert empty.assert_union() == 20
    for source, number in (("s1", 7), ("s2", 8)):
        schema = f"{empty.name}_2"
        up(empty, source, f"CREATE DATABASE {schema}", f"CREATE TABLE {schema}.t_{number} LIKE t_2")
        up(empty, source, f"INSERT INTO {schema}.t_{number} (id, uid, info) VALUES ({number}0, {number}0, '[]')")
        empty.shards[source].append(f"{schema}.t_{number}")
    empty.go()
    assert empty.assert_union() == 22


@pytest.mark.test_all("scenarios in memory and a part of DM's cases take the same paths")
def test_sharding2(empty: LifeTask, monkeypatch: pytest.MonkeyPatch) -> None:
    """The task begins before the schemas exist; binlogs rotate, and a process dies after a DDL."""
    for server in empty.sources.values():
        server.run(f"DROP DATABASE {empty.name}")
    assert not errors(empty)
    empty.go()
    columns = "id INT PRIMARY KEY, v VARCHAR(9)"
    for server in empty.sources.values():
        server.run(f"CREATE DATABASE {empty.name}")
    make(empty, columns, ("s1", "t_1"), ("s1", "t_2"), ("s2", "t_1"))
    shards = (("s1", "t_1", 1), ("s1", "t_2", 2), ("s2", "t_1", 3))
    for spec in ("ADD COLUMN c INT", "ADD INDEX (v)", "ADD COLUMN d INT DEFAULT 5", "DROP COLUMN c"):
        for source, name, number in shards:
            up(empty, source, f"INSERT INTO {name} (id, v) SELECT 100 * {number} + COUNT(*), 'a' FROM {name}")
            up(empty, source, "FLUSH BINARY LOGS", f"ALTER TABLE {name} {spec}")
            up(empty, source, f"INSERT INTO {name} (id, v) SELECT 100 * {number} + COUNT(*), 'b' FROM {name}")
        go_through_death(empty, monkeypatch)
        empty.assert_union()
    assert empty.assert_union() == 24


def test_dm_023(empty: LifeTask) -> None:
    """Two pairs in one RENAME, which DM rejects; the second source has no table."""
    make(empty, "id INT PRIMARY KEY", ("s1", "t_1"), ("s1", "t_2"))
    up(empty, "s1", "INSERT INTO t_1 VALUES (1)", "INSERT INTO t_2 VALUES (2)")
    assert not errors(empty)
    empty.go()
    up(empty, "s1", "RENAME TABLE t_1 TO t_3, t_2 TO t_4", "INSERT INTO t_3 VALUES (3)", "INSERT INTO t_4 VALUES (4)")
    empty.shards["s1"] = [f"{empty.name}.t_3", f"{empty.name}.t_4"]
    assert not empty.go().locks
    assert empty.assert_union() == 4


def test_ddl_without_a_shard_mode(empty: LifeTask) -> None:
    """DM_001: without a shard mode each table runs the same DDL; DM ignores that the target has the column already."""
    make(empty, "id INT PRIMARY KEY", ("s1", "t_1"), ("s1", "t_2"))
    empty.go()
    for name, number in (("t_1", 1), ("t_2", 2)):
        up(empty, "s1", f"ALTER TABLE {name} ADD COLUMN n INT", f"INSERT INTO {name} VALUES ({number}, {number})")
    assert not empty.go().locks
    assert empty.assert_union() == 2


def test_a_target_that_was_altered_by_hand(empty: LifeTask) -> None:
    """DM_4215 (handle_error_2): the operator has run the DDL on the target, which has all that the shards have."""
    make(empty, "id INT PRIMARY KEY", ("s1", "t_1"), ("s2", "t_1"))
    empty.go()
    empty.target.run(f"ALTER TABLE {empty.name}_to.t ADD COLUMN c INT", f"ALTER TABLE {empty.name}_to.t ADD UNIQUE (c)")
    for source, number in (("s1", 1), ("s2", 2)):
        up(empty, source, "ALTER TABLE t_1 ADD COLUMN c INT UNIQUE", f"INSERT INTO t_1 VALUES ({number}, {number})")
    assert not empty.run().locks
    for source, number in (("s1", 3), ("s2", 4)):
        up(empty, source, f"INSERT INTO t_1 VALUES ({number}, {number})")
    assert not empty.go().locks
    assert empty.assert_union() == 4


@pytest.mark.test_all("scenarios in memory and a part of DM's cases take the same paths")
def test_sequence_safe_mode(empty: LifeTask, monkeypatch: pytest.MonkeyPatch) -> None:
    """Safe mode, equal ids that extracted columns keep apart, a unique key over all shards, and deaths at DDLs."""
    rule = {
        **route(f"{empty.name}*", "t_*", f"{empty.name}_to", "t"),
        "extract-table": {"table-regexp": "t_(.*)", "target-column": "c_table"},
        "extract-source": {"source-regexp": "s(.*)", "target-column": "c_source"},
    }
    empty.body |= {"routes": {"all": rule}, "syncers": {"safe": {"safe-mode": True}}}
    for instance in empty.body["mysql-instances"]:
        instance["syncer-config-name"] = "safe"
    empty.write()
    own = "id BIGINT AUTO_INCREMENT, uid INT, v VARCHAR(9)"
    shards = (("s1", "t_1", 1), ("s1", "t_2", 2), ("s2", "t_2", 3), ("s2", "t_3", 4))
    make(empty, f"{own}, PRIMARY KEY (id), UNIQUE KEY (uid)", *(shard[:2] for shard in shards))
    empty.target.run(
        f"CREATE DATABASE {empty.name}_to",
        f"CREATE TABLE {empty.name}_to.t ({own}, c_table VARCHAR(99), c_source VARCHAR(99),"
        " PRIMARY KEY (id, c_table, c_source), UNIQUE KEY (uid))",
    )
    for source, name, number in shards:
        up(empty, source, f"INSERT INTO {name} (uid, v) VALUES ({number}01, 'a'), ({number}02, 'b'), ({number}03, 'c')")
    assert not errors(empty)
    empty.go()
    assert_columns(empty, "id", "uid", "v")
    for spec in ("ADD COLUMN age INT", "ADD INDEX (age)", "DROP COLUMN v"):
        for source, name, number in shards:
            up(empty, source, f"UPDATE {name} SET uid = uid + 10 WHERE id = 1", f"DELETE FROM {name} WHERE id = 2")
            up(empty, source, f"ALTER TABLE {name} {spec}", f"INSERT INTO {name} (id, uid) VALUES (2, {number}02)")
            up(empty, source, f"UPDATE {name} SET age = {number} WHERE id = 3")
        go_through_death(empty, monkeypatch)
        assert_columns(empty, "id", "uid", "age")
    found = empty.target.run(f"SELECT COUNT(*), COUNT(DISTINCT c_source, c_table) FROM {empty.name}_to.t")
    assert found == [(12, 4)]


def assert_columns(task: LifeTask, *columns: str) -> None:
    """Assert that these columns of the target are the union of the shards."""
    assert rows(task.target, f"{task.name}_to.t", columns) == union(task.sources, task.shards, columns)


def test_a_key_of_several_shards_in_the_target(empty: LifeTask) -> None:
    """As in DM's many_tables: a key of the target separates rows that have the same key in their shards."""
    make(empty, "i INT, j INT UNIQUE", ("s1", "t_1"), ("s1", "t_2"), ("s2", "t_3"))
    shards = (("s1", "t_1", 1), ("s1", "t_2", 2), ("s2", "t_3", 3))
    for source, name, number in shards:
        up(empty, source, f"INSERT INTO {name} VALUES ({number}, 1), ({number}, 2), ({number}, 3)")
    empty.target.run(
        f"CREATE DATABASE {empty.name}_to", f"CREATE TABLE {empty.name}_to.t (i INT, j INT, UNIQUE (i, j))"
    )
    assert not errors(empty)
    empty.go()
    assert empty.assert_union() == 9
    for source, name, number in shards:
        up(empty, source, f"UPDATE {name} SET j = 9 WHERE j = 2", f"DELETE FROM {name} WHERE j = 1")
        up(empty, source, f"INSERT INTO {name} VALUES ({number}, NULL), ({number}, NULL)")
    empty.go()
    assert empty.assert_union() == 12


def test_routes_of_all_mode(empty: LifeTask) -> None:
    """Routes and lists that are regular expressions, and targets whose own index finds the rows."""
    name = empty.name
    empty.body["routes"] = {"all": route(f"~{name}_[0-9]?[animal|human]", "~tbl.*[cat|dog]+", f"{name}_to", "t")}
    empty.body["block-allow-list"] = {"ours": {"do-dbs": [f"~{name}_[0-9]?[animal|human]"]}}
    empty.write()
    for source, schema, table in (("s1", "2animal", "tbl_animal_dogcat"), ("s2", "human", "tbl_cat")):
        full = f"{name}_{schema}.{table}"
        up(empty, source, f"CREATE DATABASE {name}_{schema}", f"CREATE TABLE {full} (a INT PRIMARY KEY, b INT)")
        up(empty, source, f"INSERT INTO {full} VALUES ({source[1]}1, 1), ({source[1]}2, 2)")
        empty.shards[source] = [full]
    empty.target.run(f"CREATE DATABASE {name}_to", f"CREATE TABLE {name}_to.t (a INT, b INT, KEY (a))")
    assert not errors(empty)
    empty.go()
    assert empty.assert_union() == 4
    for source, (shard,) in empty.shards.items():
        up(empty, source, f"UPDATE {shard} SET b = 7 WHERE b = 1", f"DELETE FROM {shard} WHERE b = 2")
    empty.go()
    assert empty.assert_union() == 2


SKIPPED = {
    "even_c": {"table": "t2", "insert-value-expr": "c % 2 = 0"},
    "future": {"table": "t3", "insert-value-expr": "ts > NOW()"},
    "right_angle": {"table": "t4", "insert-value-expr": "a*a + b*b = c*c"},
    "old": {"table": "t5", "update-old-value-expr": "c > 100"},
    "new": {"table": "t5", "update-new-value-expr": "c > 100"},
    "both": {"table": "t5", "update-old-value-expr": "c = 1", "update-new-value-expr": "c = 2"},
    "only": {"table": "t6", "insert-value-expr": "name != 'Müller'"},
    "letter": {"table": "t7", "update-new-value-expr": "r = 'a'"},
}


def test_expression_filter(source_1: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> None:
    """Filters of tables that come later, of a column that goes and comes back, and of texts in latin1."""
    with living(unique, tmp_path, {"s1": source_1}, target) as task:
        task.body["routes"] = {"all": {"schema-pattern": unique, "target-schema": f"{unique}_to"}}
        task.body["expression-filter"] = {name: {"schema": unique, **rule} for name, rule in SKIPPED.items()}
        task.body["mysql-instances"][0]["expression-filters"] = [*SKIPPED]
        task.write()
        up(
            task,
            "s1",
            "CREATE TABLE t2 (id INT PRIMARY KEY, skipped INT, c INT, gen INT AS (id + 1))",
            "CREATE TABLE t6 (id INT PRIMARY KEY, name VARCHAR(20), msg TEXT) CHARACTER SET latin1 COLLATE latin1_bin",
            "INSERT INTO t6 VALUES (0, 'Müller', 'Müller…')",
        )
        assert not errors(task)
        task.go()
        up(
            task,
            "s1",
            "INSERT INTO t2 (id, skipped, c) VALUES (1, 0, 1), (2, 1, 2)",
            "ALTER TABLE t2 ADD COLUMN d INT",
            "INSERT INTO t2 (id, skipped, c) VALUES (3, 0, 3), (4, 1, 4)",
            "CREATE TABLE t3 (id INT PRIMARY KEY, skipped INT, ts DATETIME)",
            "INSERT INTO t3 VALUES (1, 0, '1999-01-01'), (2, 1, '2099-01-01')",
            "CREATE TABLE t4 (id INT PRIMARY KEY, skipped INT, a DOUBLE, b DOUBLE, c DOUBLE)",
            "INSERT INTO t4 VALUES (1, 0, 1, 2, 3), (2, 1, 3, 4, 5)",
            "CREATE TABLE t5 (id INT PRIMARY KEY, skipped INT, c INT)",
            "INSERT INTO t5 VALUES (1, 0, 99), (2, 0, 101), (3, 0, 1)",
            "UPDATE t5 SET skipped = 1, c = 110 WHERE id = 1",
            "UPDATE t5 SET skipped = 1, c = 20 WHERE id = 2",
            "UPDATE t5 SET skipped = 1, c = 2 WHERE c = 1",
            "INSERT INTO t5 VALUES (4, 1, 1)",
            "UPDATE t5 SET skipped = 0, c = 3 WHERE c = 1",
            "INSERT INTO t6 VALUES (1, 'Müller', 'Müller'), (2, 'X Æ A-12', 'X Æ A-12')",
            "ALTER TABLE t6 ADD COLUMN name2 VARCHAR(20) CHARACTER SET latin1 DEFAULT 'Müller'",
            "CREATE TABLE t7 (a INT PRIMARY KEY, r VARCHAR(9), s INT)",
            "INSERT INTO t7 VALUES (1, 'a', 2)",
            "UPDATE t7 SET s = s + 1 WHERE a = 1",
        )
        task.go()
        to = f"{unique}_to"
        for table, count in (("t2", 2), ("t3", 1), ("t4", 1), ("t5", 4)):
            assert target.run(f"SELECT COUNT(*), SUM(skipped) FROM {to}.{table}") == [(count, 0)], table
        assert target.run(f"SELECT name, msg, name2 FROM {to}.t6 ORDER BY id") == [
            ("Müller", "Müller…", "Müller"),
            ("Müller", "Müller", "Müller"),
        ]
        assert target.run(f"SELECT a, r, s FROM {to}.t7") == [(1, "a", 2)]
        up(task, "s1", "ALTER TABLE t2 DROP COLUMN c", "INSERT INTO t2 (id, skipped) VALUES (5, 0), (6, 0)")
        assert task.run().errors
        task.body["mysql-instances"][0]["expression-filters"].remove("even_c")
        del task.body["expression-filter"]["even_c"]
        task.write()
        task.go()
        assert target.run(f"SELECT COUNT(*), SUM(skipped) FROM {to}.t2") == [(4, 0)]


COPIED_BY_HAND = (
    "CREATE TABLE _{0}_{1} LIKE {0}",
    "ALTER TABLE _{0}_{1} ADD COLUMN c INT COMMENT '1  2\n3😊4'",
    "INSERT INTO _{0}_{1} (id, v) SELECT id, v FROM {0}",
    "RENAME /* a comment */ TABLE {0} TO _{0}_{2}, _{0}_{1} TO {0}",
)


def test_online_ddl(empty: LifeTask) -> None:
    """A list that names only the real tables, a comment of several lines, and an index that a filter leaves out."""
    empty.body |= {
        "online-ddl": True,
        "block-allow-list": {"ours": {"do-tables": [{"db-name": empty.name, "tbl-name": "~^t_[1-3]$"}]}},
        "filters": {
            "no_index": {
                "schema-pattern": "*",
                "table-pattern": "*",
                "events": ["create index", "drop index"],
                "sql-pattern": [r"ALTER\s.*TABLE[\s\S]*ADD\s+KEY\s+V"],
                "action": "Ignore",
            }
        },
    }
    for instance in empty.body["mysql-instances"]:
        instance["filter-rules"] = ["no_index"]
    empty.write()
    make(empty, "id INT PRIMARY KEY, v VARCHAR(9)", ("s1", "t_1"), ("s1", "t_2"), ("s2", "t_2"))
    up(empty, "s1", "CREATE TABLE t_ignore (c INT)", "CREATE TABLE _t_ignore_gho (c INT)")
    shards = (("s1", "t_1", 1, "gho", "del"), ("s1", "t_2", 2, "new", "old"), ("s2", "t_2", 3, "gho", "del"))
    for source, name, number, *_ in shards:
        up(empty, source, f"INSERT INTO {name} VALUES ({number}, 'a')")
    empty.go()
    up(empty, "s1", "RENAME /* gh-ost */ TABLE t_ignore TO _t_ignore_del, _t_ignore_gho TO t_ignore")
    up(empty, "s1", "INSERT INTO t_ignore VALUES (1)")
    for source, name, number, shadow, trash in shards:
        up(empty, source, *(statement.format(name, shadow, trash) for statement in COPIED_BY_HAND))
        up(empty, source, f"INSERT INTO {name} VALUES ({number}0, 'b', {number})", f"ALTER TABLE {name} ADD KEY v (v)")
        up(empty, source, f"INSERT INTO {name} VALUES ({number}1, 'c', {number})")
    assert not empty.go().locks
    assert empty.assert_union() == 9
    assert "KEY `v`" not in str(empty.target.run(f"SHOW CREATE TABLE {empty.name}_to.t")[0][1])
    schemas = f"'{empty.name}', '{empty.name}_to'"
    tables = f"SELECT table_name FROM information_schema.tables WHERE table_schema IN ({schemas}) ORDER BY 1"
    assert empty.target.run(tables) == [("t",), (NAME,)]


def test_downstream_more_column_and_an_incremental_task(empty: LifeTask) -> None:
    """A second task continues a loaded target that has more columns than the shards; DM stops at their number."""
    make(empty, "c1 INT PRIMARY KEY, c2 INT, c3 INT", ("s1", "t_1"), ("s2", "t_1"))
    to = f"{empty.name}_to.t"
    empty.target.run(
        f"CREATE DATABASE {empty.name}_to",
        f"CREATE TABLE {to} (c INT AUTO_INCREMENT PRIMARY KEY, c1 INT, c2 INT, c3 INT, more INT DEFAULT 5, KEY (c1))",
    )
    empty.body["task-mode"] = "full"
    empty.write()
    for source, number in (("s1", 1), ("s2", 2)):
        up(empty, source, f"INSERT INTO t_1 VALUES ({number}, 1, 1), ({number}0, 2, 2)")
    empty.go()
    assert_columns(empty, "c1", "c2", "c3")
    empty.body |= {"task-mode": "incremental", "name": "continued", "meta-schema": f"{empty.name}_meta"}
    for instance in empty.body["mysql-instances"]:
        file, position, *_ = empty.sources[instance["source-id"]].run("SHOW MASTER STATUS")[0]
        instance["meta"] = {"binlog-name": file, "binlog-pos": position}
    empty.write()
    for source, number in (("s1", 1), ("s2", 2)):
        up(empty, source, f"INSERT INTO t_1 VALUES ({number}00, 3, 3)", f"DELETE FROM t_1 WHERE c1 = {number}0")
        up(empty, source, f"UPDATE t_1 SET c1 = {number}5 WHERE c1 = {number}")
    assert not errors(empty)
    empty.go()
    assert_columns(empty, "c1", "c2", "c3")
    assert empty.target.run(f"SELECT COUNT(*), SUM(more) FROM {to}") == [(4, 20)]
