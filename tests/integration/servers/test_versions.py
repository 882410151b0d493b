"""Real servers of other versions: as sources, all at once, as targets, with types and logs that only they have."""

import contextlib
from collections.abc import Iterator, Mapping

import pytest

from tests.binlogs import assert_equal_to_server, end_of, round_trip
from tests.lifetask import LifeTask, living
from tests.versions import MARIADB_NEW, MARIADB_OLD, MYSQL, VERSIONS, Version
from unshard.adapters import mysql
from unshard.adapters.relayfiles import RelayStore
from unshard.adapters.structures import keeps_pages
from unshard.config import load_task
from unshard.core.checks.items import Severity
from unshard.core.model import TableId
from unshard.units.checks.precheck import precheck
from unshard.units.relay.pull import compare_last, last_pulled, pull
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration
COLUMNS = (
    "id bigint NOT NULL PRIMARY KEY, a int unsigned, b varchar(50) CHARACTER SET utf8 COLLATE utf8_bin,"
    " c decimal(30,10), d datetime(6), e timestamp(3) NULL, f double, g float, h text, i blob, j enum('x','y','z'),"
    " k set('p','q'), l year, m time(2), n bit(9), o date, p tinyint(1), q char(7), r varbinary(20), s mediumint,"
    " t bigint unsigned, u binary(3), v timestamp NOT NULL DEFAULT '2020-01-01 00:00:01', w longtext, KEY (a)"
)
OPTIONS = "DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci"
GREAT = (
    "4294967295, 'é日', -12345678901234567890.0123456789, '2024-02-29 23:59:59.123456', '2024-01-01 00:00:00.5', 1e300,"
    " 1.5, repeat('ü', 1000), x'00ff0a5c', 'y', 'p,q', 2155, '-12:34:56.78', b'101010101', '9999-12-31', 1, 'ab',"
    " x'0001', -8388608, 18446744073709551615, x'ff', '2037-12-31 23:59:59', repeat('😀', 20000)"
)
SMALL = (
    "0, '', 0, '1000-01-01', '1970-01-01 00:00:01', -0e0, 0.1, '\\\\N', '', 'x', '', 1901, '838:59:59', 0,"
    " '1000-01-01', -128, '', '', 8388607, 0, '', '1970-01-01 00:00:01', '\\t\\n\\\\'"
)
EMPTY = ", ".join(["NULL"] * 21) + ", '2024-02-29', NULL"
COPIED = "a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, more"
LENIENT = "SET SESSION sql_mode = '', time_zone = '+00:00'"
ZERO = "(id, d, e, o, m) VALUES ({}, '2020-00-00', '0000-00-00', '0000-00-00', '-00:00:00.01')"


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, MariaDb]]:
    """All unpacked versions; the missing ones skip the tests that need them."""
    # The fixture is created again if tests with another target run in between.
    folder = tmp_path_factory.mktemp("versions")
    with contextlib.ExitStack() as stack:
        yield {
            version.name: stack.enter_context(version.running(folder / version.name))
            for version in VERSIONS
            if version.is_there
        }


def server_of(version: Version, others: Mapping[str, MariaDb]) -> MariaDb:
    version.need()
    return others[version.name]


def make_shard(task: LifeTask, source: str, number: int) -> str:
    """Create a shard with rows that differ from those of other numbers."""
    name = f"{task.name}.t_{number}"
    rows = enumerate((GREAT, SMALL, EMPTY))
    task.shards.setdefault(source, []).append(name)
    task.sources[source].run(
        LENIENT,
        f"CREATE TABLE {name} ({COLUMNS}) {OPTIONS}",
        *(f"INSERT INTO {name} VALUES ({100 * number + n}, {values})" for n, values in rows),
        f"INSERT INTO {name} {ZERO.format(100 * number + 3)}",
    )
    return name


def change(task: LifeTask, source: str, number: int) -> None:
    """Make every kind of change in a shard, add a column, and create a new shard."""
    name, first = f"{task.name}.t_{number}", 100 * number
    task.sources[source].run(
        LENIENT,
        *(f"INSERT INTO {name} VALUES ({first + 10 + n}, {v})" for n, v in enumerate((GREAT, SMALL, EMPTY))),
        f"INSERT INTO {name} {ZERO.format(first + 13)}",
        f"UPDATE {name} SET b = 'changed', c = c + 1, w = NULL WHERE id IN ({first}, {first + 11})",
        f"UPDATE {name} SET id = {first + 20} WHERE id = {first + 10}",
        f"DELETE FROM {name} WHERE id = {first + 1}",
        "BEGIN",
        f"INSERT INTO {name} {ZERO.format(first + 30)}",
        "ROLLBACK",
        "BEGIN",
        f"INSERT INTO {name} {ZERO.format(first + 31)}",
        "SAVEPOINT one",
        f"INSERT INTO {name} {ZERO.format(first + 32)}",
        "ROLLBACK TO one",
        f"INSERT INTO {name} {ZERO.format(first + 33)}",
        "COMMIT",
    )


def alter(task: LifeTask, source: str, number: int) -> None:
    name, first = f"{task.name}.t_{number}", 100 * number
    task.sources[source].run(
        LENIENT,
        f"ALTER TABLE {name} ADD COLUMN more varchar(20) NOT NULL DEFAULT 'dflt', ADD INDEX (b)",
        f"INSERT INTO {name} (id, more) VALUES ({first + 40}, 'neu')",
        f"DELETE FROM {name} WHERE id = {first + 13}",
        f"UPDATE {name} SET more = 'é' WHERE id = {first + 2}",
    )


def add_shard(task: LifeTask, source: str, number: int) -> None:
    name = f"{task.name}.t_{number}"
    old = task.shards[source][0]
    task.shards[source].append(name)
    task.sources[source].run(
        LENIENT,
        f"CREATE TABLE {name} LIKE {old}",
        f"INSERT INTO {name} {ZERO.format(100 * number)}",
        f"INSERT INTO {name} SELECT 100 * {number} + id % 10 + 1, {COPIED} FROM {old} WHERE id % 100 = 20",
    )


def assert_followed(task: LifeTask) -> None:
    """Check, load, and follow all changes of the sources; the target is their union, which `validate` confirms."""
    numbers = {source: number for number, source in enumerate(task.sources, 1)}
    for source, number in numbers.items():
        make_shard(task, source, number)
    items = precheck(load_task(task.path))
    assert not [item for item in items if item.severity is Severity.ERROR]
    assert not [item for item in items if item.name == "version" and item.severity is not Severity.OK]
    task.go()
    assert task.assert_union() == 4 * len(numbers)
    for source, number in numbers.items():
        change(task, source, number)
    task.go()
    assert task.assert_union() == 9 * len(numbers)
    for source, number in numbers.items():
        alter(task, source, number)
        task.go()
    for source, number in numbers.items():
        add_shard(task, source, number + 50)
    task.go()
    assert task.assert_union() == 11 * len(numbers)
    with task.work() as work:
        assert len([one for one in work.meta.locks.executions() if one.done_at]) == 1
    assert task.command("validate") == 0


def test_sources_of_all_versions_are_merged(others, source_1, target, unique, tmp_path):
    sources = {f"s{version.server_id}": server_of(version, others) for version in VERSIONS}
    with living(unique, tmp_path, {"s1": source_1, **sources}, target) as task:
        assert_followed(task)


@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.name)
def test_a_target_of_another_version(others, source_1, source_2, unique, tmp_path, version):
    with contextlib.closing(mysql.connect(server_of(version, others).server)) as connection:
        assert keeps_pages(connection)
    with living(unique, tmp_path, {"s1": source_1, "s2": source_2}, server_of(version, others)) as task:
        assert_followed(task)


VECTOR = "VEC_FromText('[1, -0.5, 3e-5]')"
OWN_TYPES = {
    MARIADB_OLD: (
        "a INET6, b VARCHAR(900) COMPRESSED, c BLOB COMPRESSED",
        [
            "'2001:db8::ff00:42:8329', REPEAT('ü', 900), x'00ff'",
            "'::', '', ''",
            "'::ffff:1.2.3.4', 'a', REPEAT('b', 999)",
            "NULL, NULL, NULL",
        ],
    ),
    MARIADB_NEW: (
        "a VECTOR(3) NOT NULL, b UUID, c INET4, d INET6, e TEXT COMPRESSED, VECTOR INDEX (a)",
        [
            f"{VECTOR}, '6ccd780c-baba-1026-9564-5b8c656024db', '255.0.0.1', '::1', REPEAT('é', 999)",
            "x'000000000000000000000080', '00000000-0000-0000-0000-000000000000', '0.0.0.0', '::', ''",
            f"{VECTOR}, 'ffffffff-ffff-7fff-8000-ffffffffffff', NULL, NULL, NULL",
        ],
    ),
    MYSQL: (
        "a VECTOR(3), b JSON, c VECTOR, d JSON NOT NULL",
        [
            'STRING_TO_VECTOR(\'[1, -0.5, 3e-5]\'), \'{"b": [1, 2.5, null, true, "é😀"], "a": {}}\','
            " STRING_TO_VECTOR('[0]'), '[]'",
            "NULL, NULL, NULL, CAST(18446744073709551615 AS JSON)",
            "NULL, JSON_ARRAY(REPEAT('long', 20000), -9223372036854775808, 1e300), NULL, '\"\\\\u0001\"'",
        ],
    ),
}
COMPRESSED = {MARIADB_OLD: "log_bin_compress", MARIADB_NEW: "log_bin_compress", MYSQL: "binlog_transaction_compression"}


@contextlib.contextmanager
def set_globally(server: MariaDb, settings: Mapping[str, str]) -> Iterator[None]:
    """Let new sessions begin with other values of variables."""
    before = {name: server.run(f"SELECT @@GLOBAL.{name}")[0][0] for name in settings}
    server.run("DO 1", *(f"SET GLOBAL {name} = {value}" for name, value in settings.items()))
    try:
        yield
    finally:
        server.run(
            "DO 1",
            *(
                f"SET GLOBAL {name} = '{old}'" if isinstance(old, str) else f"SET GLOBAL {name} = {old}"
                for name, old in reversed(before.items())
            ),
        )


@pytest.mark.parametrize("is_compressed", [False, True], ids=["plain", "compressed"])
@pytest.mark.parametrize("version", OWN_TYPES, ids=lambda version: version.name)
def test_types_of_their_own_are_read(others, unique, tmp_path, version, is_compressed):
    """The relay has the server's own bytes, and decoded rows are those that the server prints."""
    server = server_of(version, others)
    columns, rows = OWN_TYPES[version]
    server.run(f"CREATE DATABASE {unique}", f"CREATE TABLE {unique}.t (id INT PRIMARY KEY, {columns})")
    with set_globally(server, {COMPRESSED[version]: str(int(is_compressed))}):
        begins = end_of(server)
        inserts = [f"INSERT INTO t VALUES ({number}, {values})" for number, values in enumerate(rows)]
        found, shown = round_trip(server, tmp_path, TableId(unique, "t"), inserts)
    assert found == shown and len(found) == len(rows)
    assert_equal_to_server(server, RelayStore(tmp_path), begins)
    server.run(f"DROP DATABASE {unique}")


LOGS = [
    (MARIADB_NEW, {"log_bin_compress": "1", "log_bin_compress_min_len": "10"}),
    (MARIADB_NEW, {"binlog_checksum": "NONE"}),
    (MARIADB_NEW, {"binlog_legacy_event_pos": "1"}),
    (MARIADB_NEW, {"binlog_row_metadata": "FULL", "binlog_row_image": "MINIMAL"}),
    (MARIADB_OLD, {"binlog_checksum": "CRC32", "binlog_row_image": "NOBLOB"}),
    (MYSQL, {"binlog_row_value_options": "PARTIAL_JSON"}),
    (MYSQL, {"binlog_row_value_options": "PARTIAL_JSON", "binlog_transaction_compression": "1"}),
    (MYSQL, {"binlog_row_metadata": "FULL", "binlog_row_image": "MINIMAL"}),
    (MYSQL, {"binlog_checksum": "NONE", "binlog_row_image": "NOBLOB"}),
]


def make_documents(task: LifeTask, *numbers: int) -> None:
    for number in numbers:
        name = f"{task.name}.t_{number}"
        task.shards.setdefault("s1", []).append(name)
        task.sources["s1"].run(
            f"CREATE TABLE {name} (id INT PRIMARY KEY, doc JSON, v VARCHAR(900), b LONGTEXT)",
            f"INSERT INTO {name} VALUES ({number}, '[1]', 'a', REPEAT('x', 9000))",
            f"INSERT INTO {name} VALUES ({10 + number}, '{{\"a\": 1}}', 'b', NULL)",
        )


def change_documents(task: LifeTask, turn: int) -> None:
    """Add two rows to each shard; change parts of documents, other columns, keys."""
    document = '{"a": "' + "x" * 500 + '", "b": [1, 2, {"c": null}], "d": 1.5}'
    for number, name in enumerate(task.shards["s1"], 1):
        first = 100 * turn + number
        task.sources["s1"].run(
            f"INSERT INTO {name} VALUES ({first}, '{document}', REPEAT('é', 900), 'text')",
            f"INSERT INTO {name} VALUES ({first + 10}, '[1, 2]', NULL, NULL), ({first + 20}, NULL, '', '')",
            f"UPDATE {name} SET doc = JSON_SET(doc, '$.a', 'y', '$.d', 2) WHERE id = {first}",
            f"UPDATE {name} SET doc = JSON_REMOVE(doc, '$.b[0]'), v = 'v' WHERE id = {first}",
            f"UPDATE {name} SET doc = JSON_REPLACE(doc, '$.b[1].c', 'é') WHERE id = {first}",
            f"UPDATE {name} SET v = CONCAT(IFNULL(v, ''), '!') WHERE id >= {first}",
            f"UPDATE {name} SET id = id + 5 WHERE id = {first + 10}",
            f"DELETE FROM {name} WHERE id = {first + 20}",
        )


@pytest.mark.parametrize(("version", "settings"), LOGS, ids=lambda one: getattr(one, "name", None) or "+".join(one))
def test_logs_of_their_own_are_followed(others, target, unique, tmp_path, version, settings):
    server = server_of(version, others)
    with set_globally(server, settings), living(unique, tmp_path, {"s1": server}, target) as task:
        make_documents(task, 1, 2)
        task.go()
        for turn in (1, 2):
            change_documents(task, turn)
            task.go()
            assert task.assert_union() == 4 + 4 * turn


@pytest.mark.parametrize(("version", "settings"), LOGS, ids=lambda one: getattr(one, "name", None) or "+".join(one))
def test_last_transaction_is_found_in_the_binlog(others, target, unique, tmp_path, version, settings):
    """A failover compares it; here the new server is the former one, so the transaction is the same."""
    server = server_of(version, others)
    with set_globally(server, settings), living(unique, tmp_path, {"s1": server}, target) as task:
        make_documents(task, 1, 2)
        store, begins = RelayStore(tmp_path / "last"), end_of(server)
        change_documents(task, 1)
        for statement in (f"UPDATE {unique}.t_1 SET id = id + 1000", f"ALTER TABLE {unique}.t_2 ADD COLUMN z INT"):
            server.run(statement)
            end = pull("s1", server.server, store, begins).ends
            last = last_pulled(store, "s1", end)
            assert last is not None and last.content.rows.keys() | {*last.content.statements}
            assert compare_last(server.server, "s1", last, end, ("the same", 77)) == last.place


@pytest.mark.mariadb_only("TiDB has neither latin1_general_ci nor MariaDB's default collations since 11.5")
def test_character_sets_have_the_collations_of_the_source_session(others, target, unique, tmp_path):
    """MariaDB logs `character_set_collations` with a statement that names a character set without a collation."""
    server = server_of(MARIADB_NEW, others)
    with living(unique, tmp_path, {"s1": server}, target) as task:
        server.run(
            f"CREATE TABLE {task.name}.t_1 (id INT PRIMARY KEY) CHARSET utf8mb4",
            f"INSERT INTO {task.name}.t_1 VALUES (1)",
        )
        task.shards["s1"] = [f"{task.name}.t_1"]
        task.go()
        server.run(
            f"CREATE DATABASE {task.name}_other CHARACTER SET utf8mb4",
            f"DROP DATABASE {task.name}_other",
            "SET character_set_collations = 'utf8mb4=utf8mb4_unicode_ci,latin1=latin1_general_ci'",
            f"ALTER TABLE {task.name}.t_1 ADD a VARCHAR(9) CHARACTER SET utf8mb4, ADD b VARCHAR(9) CHARSET latin1",
            f"INSERT INTO {task.name}.t_1 VALUES (2, 'é', 'é')",
        )
        task.go()
        assert task.assert_union() == 2
        columns = target.run(
            "SELECT COLUMN_NAME, COLLATION_NAME FROM information_schema.COLUMNS"
            f" WHERE TABLE_SCHEMA = '{task.name}_to' AND COLUMN_NAME IN ('a', 'b') ORDER BY 1"
        )
    assert [*columns] == [("a", "utf8mb4_unicode_ci"), ("b", "latin1_general_ci")]


COLLATIONS = (
    "SELECT TABLE_NAME, COLUMN_NAME, REPLACE(COLLATION_NAME, 'utf8_', 'utf8mb3_') FROM information_schema.COLUMNS"
    " WHERE TABLE_SCHEMA = '{}' AND TABLE_NAME NOT LIKE 'unshard%' AND COLLATION_NAME IS NOT NULL ORDER BY COLUMN_NAME"
)


@pytest.mark.test_all("starts a MySQL; the old mode of MariaDB shows how a session chooses")
def test_a_session_of_mysql_chooses_the_collation_of_utf8mb4(others, unique, tmp_path):
    server, name = server_of(MYSQL, others), f"{unique}.t_1"
    with (
        MYSQL.running(tmp_path / "mysql") as target,
        living(unique, tmp_path, {"s1": server}, target) as task,
    ):
        server.run(f"CREATE TABLE {name} (id INT PRIMARY KEY) CHARSET utf8mb4", f"INSERT INTO {name} VALUES (1)")
        task.shards["s1"] = [name]
        task.go()
        server.run(
            "SET default_collation_for_utf8mb4 = utf8mb4_general_ci",
            f"ALTER TABLE {name} ADD a VARCHAR(9) CHARACTER SET utf8mb4, ADD at DATETIME(6) DEFAULT NOW(6)",
            f"ALTER TABLE {name} ADD b VARCHAR(9), DEFAULT CHARSET=utf8mb4, ADD UNIQUE (a)",
            f"ALTER TABLE {name} ADD c VARCHAR(9)",
        )
        server.run(
            f"ALTER TABLE {name} ADD d VARCHAR(9) CHARSET 'utf8mb4'",
            f"INSERT INTO {name} (id, a, d) VALUES (2, 'é', 'é'), (3, 'ß', 'ß')",
        )
        task.go()
        assert task.assert_union() == 3
        wanted, found = server.run(COLLATIONS.format(unique)), target.run(COLLATIONS.format(f"{unique}_to"))
        assert [row[1:] for row in found] == [row[1:] for row in wanted]
        assert {str(row[2]) for row in found} == {"utf8mb4_general_ci", "utf8mb4_0900_ai_ci"}


@pytest.mark.parametrize("mode", ["", "UTF8_IS_UTF8MB3"])
def test_old_mode_of_mariadb_says_what_utf8_is(others, source_1, unique, tmp_path, mode):
    server, name = server_of(MARIADB_NEW, others), f"{unique}.t_1"
    opposite = "" if mode else "UTF8_IS_UTF8MB3"
    ((own,),), ((before,),) = (each.run("SELECT @@GLOBAL.old_mode") for each in (server, source_1))
    with living(unique, tmp_path, {"s1": server}, source_1) as task:
        try:
            server.run(f"SET GLOBAL old_mode = '{mode}'")
            source_1.run(f"SET GLOBAL old_mode = '{opposite}'")
            server.run(f"CREATE TABLE {name} (id INT PRIMARY KEY, z TEXT)", f"INSERT INTO {name} VALUES (1, 'é')")
            task.shards["s1"] = [name]
            task.go()
            server.run(
                f"ALTER TABLE {name} ADD a VARCHAR(9) CHARACTER SET utf8, ADD b TEXT CHARSET utf8 COLLATE utf8_bin",
                f"ALTER TABLE {name} ADD c VARCHAR(9) COLLATE utf8_general_ci, ADD utf8 INT",
                f"ALTER TABLE {name} CONVERT TO CHARACTER SET utf8",
                f"ALTER TABLE {name} ADD d TEXT CHARSET utf8mb4 DEFAULT (_utf8'{'日' if mode else '😀'}')",
                f"INSERT INTO {name} (id, z, a, b, c) VALUES (2, '日', '日', '日', '日')",
            )
            task.go()
            assert task.assert_union() == 2
            wanted, found = server.run(COLLATIONS.format(unique)), source_1.run(COLLATIONS.format(f"{unique}_to"))
            assert [row[1:] for row in found] == [row[1:] for row in wanted]
        finally:
            server.run(f"SET GLOBAL old_mode = '{own}'")
            source_1.run(f"SET GLOBAL old_mode = '{before}'")


def test_gtids_are_turned_off_and_on_under_a_task(others, target, unique, tmp_path):
    server, back = server_of(MYSQL, others), ("OFF_PERMISSIVE", "ON_PERMISSIVE", "ON")
    assert server.run("SELECT @@gtid_mode") == [("ON",)], "the other tests follow a source with GTIDs"
    with living(unique, tmp_path, {"s1": server}, target) as task:
        server.run(*(f"SET GLOBAL gtid_mode = {mode}" for mode in ("ON_PERMISSIVE", "OFF_PERMISSIVE", "OFF")))
        try:
            make_documents(task, 1, 2)
            task.go()
            change_documents(task, 1)
            task.go()
            assert task.assert_union() == 8
        finally:
            for mode in back:  # like any replica: each step after the earlier one has been read
                server.run(f"SET GLOBAL gtid_mode = {mode}")
                change_documents(task, 2 + back.index(mode))
                task.go()
        assert task.assert_union() == 20


def test_a_task_begins_before_the_first_transaction(others, target, unique, tmp_path):
    server = server_of(MYSQL, others)
    with living(unique, tmp_path, {"s1": server}, target, **{"task-mode": "incremental"}) as task:
        shard = task.make_shard("s1", 1)
        ((uuid,),) = server.run("SELECT @@server_uuid")
        server.run("RESET BINARY LOGS AND GTIDS", f"INSERT INTO {shard} VALUES (1, 'a'), (2, 'b')")
        server.run(f"DELETE FROM {shard} WHERE id = 1")
        task.body["mysql-instances"][0]["meta"] = {"binlog-gtid": f"{uuid}:0"}
        task.write()
        assert not [item for item in precheck(load_task(task.path)) if item.severity is Severity.ERROR]
        task.go()
        assert task.assert_union() == 1


@pytest.mark.test_all("the types of each version are read in another test")
@pytest.mark.parametrize(
    ("source", "target", "made"),
    [
        (MYSQL, MARIADB_NEW, "STRING_TO_VECTOR"),
        (MARIADB_NEW, MYSQL, "VEC_FromText"),
    ],
    ids=["to MariaDB", "to MySQL"],
)
def test_vectors_go_from_one_make_to_the_other(others, unique, tmp_path, source, target, made):
    server, other, name = server_of(source, others), server_of(target, others), f"{unique}.t_1"
    with living(unique, tmp_path, {"s1": server}, other) as task:
        server.run(
            f"CREATE TABLE {name} (id INT PRIMARY KEY, a VECTOR(3))",
            f"INSERT INTO {name} VALUES (1, {made}('[1, 2, -3e-5]')), (2, NULL)",
        )
        task.go()
        server.run(
            f"INSERT INTO {name} VALUES (3, {made}('[1, 2, 3.5]'))",
            f"UPDATE {name} SET a = {made}('[0, 0, -1]') WHERE id = 2",
            f"ALTER TABLE {name} ADD b VECTOR(2)",
            f"INSERT INTO {name} VALUES (4, {made}('[1, 2, 3.5]'), {made}('[1, 2]'))",
        )
        task.go()
        shown = "SELECT id, HEX(a), HEX(b) FROM {} ORDER BY id"
        assert other.run(shown.format(f"{unique}_to.t")) == server.run(shown.format(name))
        assert task.command("validate") == 0
