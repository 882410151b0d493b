"""DDL of MariaDB's shards on a target that describes, checks and executes it differently from MariaDB."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.livetask import LiveTask, living
from unshard.adapters.mysql import assume_session, connect, create_as_shown, query, table_name
from unshard.adapters.structures import read_schema
from unshard.adapters.targetddl import DdlTrialTables
from unshard.core.ddl.lock import LockState
from unshard.core.model import TableId
from unshard.core.relay.segment import Statement
from unshard.core.structures.createtext import create_text
from unshard.errors.ddl import EffectRefused
from unshard.units.ddl import coordinate
from unshard_demo.servers import MariaDb

pytestmark = [pytest.mark.integration, pytest.mark.on_tidb]

COLUMNS = [
    "INT",
    "INT NOT NULL",
    "INT UNSIGNED NOT NULL DEFAULT 7",
    "INT(5) ZEROFILL",
    "TINYINT(1) DEFAULT 1",
    "BIGINT",
    "VARCHAR(30) NOT NULL DEFAULT ''",
    "VARCHAR(30) DEFAULT 'it''s'",
    "VARCHAR(30) DEFAULT 'NULL'",
    "VARCHAR(10) DEFAULT '\\\\'",
    "VARCHAR(9) CHARACTER SET utf8",
    "VARCHAR(9) CHARACTER SET latin1 COLLATE latin1_bin DEFAULT 'é'",
    "NATIONAL VARCHAR(10)",
    "JSON",
    "TEXT",
    "DECIMAL(12,3) DEFAULT 1.5",
    "DECIMAL(10,2) NOT NULL DEFAULT 0",
    "DOUBLE DEFAULT 1e15",
    "FLOAT DEFAULT 0.1",
    "FLOAT(7,3)",
    "BIT(9) DEFAULT b'101'",
    "YEAR DEFAULT 2020",
    "DATE DEFAULT '2020-01-01'",
    "DATETIME DEFAULT CURRENT_TIMESTAMP",
    "TIMESTAMP NULL",
    "DATETIME(6) DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6)",
    "TIME(2) DEFAULT '01:02:03'",
    "TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP",
    "ENUM('a','b,c','d''e') DEFAULT 'b,c'",
    "SET('x','y') CHARACTER SET ascii COLLATE ascii_bin",
    "BINARY(4) DEFAULT 'ab'",
    "VARBINARY(10)",
    "BLOB",
    "INT AS (id + 1) VIRTUAL",
    "VARCHAR(10) AS (concat(id, 'x')) STORED",
    "VARCHAR(9) COMMENT 'x''y'",
]


@pytest.fixture
def schema(source_1: MariaDb, target: MariaDb, unique: str) -> Iterator[str]:
    for server in (source_1, target):
        server.run(f"CREATE DATABASE {unique}")
    yield unique
    source_1.run(f"DROP DATABASE {unique}")
    target.run(f"DROP DATABASE {unique}", f"DROP DATABASE IF EXISTS {unique}_meta")


def test_a_structure_reads_the_same_on_source_and_target(source_1: MariaDb, target: MariaDb, schema: str) -> None:
    table = TableId(schema, "t")
    listed = ", ".join(f"c{number} {column}" for number, column in enumerate(COLUMNS))
    source_1.run(f"CREATE TABLE {table_name(table)} (id INT PRIMARY KEY, {listed}, KEY k (c1, c6), UNIQUE u (c2))")
    with contextlib.closing(connect(source_1.server)) as connection:
        there = read_schema(connection, table)
    with contextlib.closing(connect(target.server)) as connection:
        create_as_shown(connection, create_text(there.create_sql, table))
        here = read_schema(connection, table)
    assert here.columns == there.columns
    assert here.shape == there.shape


def statement(text: str, schema: str, **changes: object) -> Statement:
    fields = {"sql_mode": 0, "charset": "utf8mb4", "timestamp": 1_700_000_000, "time_zone": "+00:00", **changes}
    return Statement(text=text, schema=schema, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("number", [45, 224, 33])
def test_collations_go_by_their_numbers(target: MariaDb, schema: str, number: int) -> None:
    session = (("collation_connection", number), ("collation_server", number))
    with contextlib.closing(connect(target.server)) as connection:
        assume_session(connection, statement("ALTER TABLE t ADD a INT", schema, session=session))
        found = query(connection, "SELECT @@collation_connection, @@collation_server")
        known = query(connection, "SELECT COLLATION_NAME FROM information_schema.COLLATIONS WHERE ID = %s", (number,))
    assert found == [known[0] * 2]
    shadows = DdlTrialTables(target.server, f"{schema}_meta")
    assert (shadows.server_default(number).collation,) == known[0]


@pytest.mark.parametrize("text", ["ALTER TABLE t ADD a INT", "ALTER TABLE t ADD a TIMESTAMP NULL"])
def test_timestamp_defaults_matter_only_where_there_is_a_timestamp(target: MariaDb, schema: str, text: str) -> None:
    """An old source has explicit_defaults_for_timestamp = 0; TiDB cannot have it."""
    session = (("explicit_defaults_for_timestamp", 0),)
    target.run(f"CREATE TABLE {schema}.t (id INT)")
    with contextlib.closing(connect(target.server)) as connection:
        before = read_schema(connection, TableId(schema, "t"))
    shadows = DdlTrialTables(target.server, f"{schema}_meta")
    is_refused = "TIMESTAMP" in text and "TiDB" in str(target.run("SELECT VERSION()"))
    with pytest.raises(EffectRefused) if is_refused else contextlib.nullcontext():
        shadows.effect(before, statement(text, schema, session=session), TableId(schema, "t"))


@pytest.mark.parametrize("clustering", ["CLUSTERED", "NONCLUSTERED"])
def test_a_trial_table_is_clustered_as_its_target(target: MariaDb, schema: str, clustering: str) -> None:
    table, shard = TableId(schema, "t"), TableId("shard", "t")
    target.run(f"CREATE TABLE {table_name(table)} (id INT, v INT, PRIMARY KEY (id) /*T! {clustering} */)")
    with contextlib.closing(connect(target.server)) as connection:
        before = read_schema(connection, table)
    shadows = DdlTrialTables(target.server, f"{schema}_meta")
    drop = statement("ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (id, v)", "shard")
    if clustering == "CLUSTERED" and "TiDB" in str(target.run("SELECT VERSION()")):
        with pytest.raises(EffectRefused, match="clustered index"):
            shadows.effect(before, drop, shard, table)
    else:
        assert shadows.effect(before, drop, shard, table).key == ("id", "v")


def test_a_default_that_the_target_would_change_is_refused(target: MariaDb, schema: str) -> None:
    target.run(f"CREATE TABLE {schema}.t (id INT)")
    with contextlib.closing(connect(target.server)) as connection:
        before = read_schema(connection, TableId(schema, "t"))
    shadows = DdlTrialTables(target.server, f"{schema}_meta")
    event = statement("ALTER TABLE t ADD b VARBINARY(9) DEFAULT x'00FF'", schema)
    if "TiDB" in str(target.run("SELECT VERSION()")):
        with pytest.raises(EffectRefused, match="b is stored as other bytes"):
            shadows.effect(before, event, TableId(schema, "t"))
    else:
        assert shadows.effect(before, event, TableId(schema, "t")).names == ("id", "b")


BASE = "id INT PRIMARY KEY, v VARCHAR(20) NOT NULL DEFAULT 'x', price DECIMAL(9,2) DEFAULT 1.5, u CHAR(3) CHARSET utf8"
MADE = ", ".join(
    [
        "ADD c0 BIGINT UNSIGNED DEFAULT 18446744073709551615",
        "ADD c1 JSON",
        "ADD c2 NATIONAL VARCHAR(9)",
        "ADD c3 ENUM('ä','b,c')",
        "ADD c4 SET('x','y') CHARACTER SET utf8mb4",
        "ADD c5 BIT(9)",
        "ADD c6 DATETIME(3)",
        "ADD c7 TIMESTAMP(6) NULL",
        "ADD c8 TIME(2)",
        "ADD c9 YEAR",
        "ADD c10 DECIMAL(20,6)",
        "ADD c11 FLOAT",
        "ADD c12 VARBINARY(9)",
        "ADD c13 BINARY(4)",
        "ADD c14 MEDIUMTEXT CHARACTER SET utf8",
        "ADD c15 TINYINT(3) UNSIGNED",
        "ADD c16 MEDIUMINT",
        "ADD c17 LONGBLOB",
        "ADD c18 INT AS (id + 1) VIRTUAL",
        "ADD c19 DOUBLE",
        "ADD c20 SMALLINT UNSIGNED ZEROFILL",
        "ADD c21 DATE",
        "ADD c22 VARCHAR(300) CHARACTER SET ascii COLLATE ascii_bin",
        "ADD KEY k (c0, c2)",
    ]
)
VALUES = (
    "18446744073709551615, '{\"a\": [1, \"ü\"]}', 'naïve', 'b,c', 'x,y', b'101010101', '2020-02-02 02:02:02.123',"
    " '2020-02-02 02:02:02.123456', '-12:34:56.78', 2024, 12345.678901, 1.5, x'00FF80', 'ab', '列', 255, -8388608,"
    " x'FFFE', 1e300, 42, '2020-02-29', 'plain'"
)
NAMES = ", ".join(f"c{number}" for number in range(23) if number != 18)


@pytest.fixture
def task(source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> Iterator[LiveTask]:
    numbers = {("s1", "orders"): [1, 2], ("s2", "orders"): [3]}
    with living(
        unique, tmp_path, [source_1, source_2, target], ["orders"], columns={"orders": BASE}, numbers=numbers
    ) as task:
        yield task


def test_rows_of_all_types_across_a_ddl_and_in_new_shards(task: LiveTask) -> None:
    """Shards that are late, have the DDL, or are created before and after it."""
    for source, name in task.shards["orders"]:
        number = int(name[-1])
        task.sources[source].run(f"INSERT INTO {name} (id, u) VALUES ({number}0, 'é')")
        task.sources[source].run(f"ALTER TABLE {name} {MADE}")
        task.sources[source].run(f"INSERT INTO {name} (id, {NAMES}) VALUES ({number}1, {VALUES})")
        task.run()
        if number == 1:
            task.sources["s2"].run(
                f"USE {task.name}",
                f"CREATE TABLE orders_4 ({BASE})",
                "INSERT INTO orders_4 (id) VALUES (40)",
                f"ALTER TABLE orders_4 {MADE}",
                f"INSERT INTO orders_4 (id, {NAMES}) VALUES (41, {VALUES})",
            )
    after = f"{BASE}, {MADE.replace('ADD ', '')}"
    task.sources["s1"].run(
        f"USE {task.name}",
        f"CREATE TABLE orders_5 ({after})",
        f"INSERT INTO orders_5 (id, {NAMES}) VALUES (51, {VALUES})",
        "CREATE TABLE orders_6 LIKE orders_1",
        "INSERT INTO orders_6 (id, c1) VALUES (60, '[]')",
    )
    task.run()
    task.shards["orders"] += [
        ("s2", f"{task.name}.orders_4"),
        ("s1", f"{task.name}.orders_5"),
        ("s1", f"{task.name}.orders_6"),
    ]
    task.assert_settled()
    assert task.target.run(f"SELECT COUNT(*) FROM {task.table('orders')}") == [(10,)]


def test_names_are_swapped(task: LiveTask) -> None:
    """TiDB takes it in three steps."""
    for source, name in task.shards["orders"]:
        number = int(name[-1])
        task.sources[source].run(
            f"INSERT INTO {name} (id, v, u) VALUES ({number}0, 'v', 'u')",
            f"ALTER TABLE {name} CHANGE v u VARCHAR(20), CHANGE u v CHAR(3) CHARSET utf8",
            f"INSERT INTO {name} (id, v, u) VALUES ({number}1, 'v2', 'u2')",
        )
        task.run()
    task.assert_settled()


def test_what_the_target_cannot_do_waits_with_its_words(task: LiveTask) -> None:
    """TiDB cannot add a STORED column; MariaDB as target can."""
    for source, name in task.shards["orders"]:
        task.sources[source].run(f"ALTER TABLE {name} ADD g INT AS (id + 1) STORED")
    task.run()
    if "TiDB" not in str(task.target.run("SELECT VERSION()")):
        task.assert_settled()
        return
    (view,) = coordinate.views(task.work().meta)
    assert view.state is LockState.UNDECIDED
    assert "'Adding generated stored column through ALTER TABLE' is not supported" in view.reason
