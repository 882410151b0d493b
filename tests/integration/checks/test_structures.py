"""Structures read from a real server."""

import contextlib

import pytest

from unshard.adapters.mysql import connect, query, table_name
from unshard.adapters.structures import keeps_pages, read_schema, read_schemas, server_dialect
from unshard.core.model import Index, Server, TableId, TableSchema, shape_of
from unshard.core.structures.createtext import create_text
from unshard.core.structures.hiddencolumns import as_in_rows, unversioned
from unshard.errors.source import TableMissing, TableUnsupported
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration

ORDERS = """CREATE TABLE {name} (
    id INT UNSIGNED NOT NULL AUTO_INCREMENT,
    `select` VARCHAR(20) CHARACTER SET latin1 COLLATE latin1_bin DEFAULT 'it''s',
    `näme` TEXT, total DECIMAL(10,2) NOT NULL DEFAULT 0.00,
    double_total DECIMAL(12,2) AS (total * 2) STORED, virt INT AS (id + 1) VIRTUAL,
    hidden INT NOT NULL DEFAULT 5 INVISIBLE, body JSON,
    at TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3) ON UPDATE CURRENT_TIMESTAMP(3),
    state ENUM('a','b''c') COMMENT 'AUTO_INCREMENT=5, FOREIGN KEY (x)', parent INT UNSIGNED,
    bytes VARBINARY(8) DEFAULT x'00FF80275C',
    PRIMARY KEY (id), UNIQUE KEY u (`select`, state), KEY p (`näme`(7)), KEY parent (parent),
    CONSTRAINT fk FOREIGN KEY (parent) REFERENCES {name} (id) ON DELETE SET NULL, CONSTRAINT c CHECK (total >= 0)
) AUTO_INCREMENT=77 COMMENT='x AUTO_INCREMENT=9'"""


@pytest.fixture
def schema(target: MariaDb, unique: str):
    target.run(f"CREATE DATABASE {unique} CHARACTER SET utf8mb4")
    yield unique
    target.run(f"DROP DATABASE {unique}")


@pytest.fixture
def connection(target: MariaDb):
    with contextlib.closing(connect(target.server, "target")) as opened:
        yield opened


def created(connection, schema: str, sql: str, name: str = "orders") -> TableSchema:
    table = TableId(schema, name)
    query(connection, sql.format(name=table_name(table)))
    return read_schema(connection, table)


@pytest.mark.mariadb_only("the table has an INVISIBLE column, which TiDB lacks")
def test_all_that_information_schema_tells(connection, schema: str) -> None:
    orders = created(connection, schema, ORDERS)
    assert orders.names == (
        "id",
        "select",
        "näme",
        "total",
        "double_total",
        "virt",
        "hidden",
        "body",
        "at",
        "state",
        "parent",
        "bytes",
    )
    assert [column.name for column in orders.columns if column.is_generated] == ["double_total", "virt"]
    number, text = orders.column("ID"), orders.column("select")
    assert (number.data_type, number.is_unsigned, number.nullable) == ("int", True, False)
    assert number.extra == "auto_increment"
    assert (text.charset, text.collation, text.default) == ("latin1", "latin1_bin", "'it''s'")
    assert orders.column("hidden").extra == "invisible"
    assert (orders.column("body").data_type, orders.column("body").charset) == ("longtext", "utf8mb4")
    assert orders.column("at").column_type == "timestamp(3)"
    assert orders.column("state").column_type == "enum('a','b''c')"
    assert orders.indexes == (
        Index("PRIMARY", ("id",), True),
        Index("p", ("näme",), False, True),
        Index("parent", ("parent",), False),
        Index("u", ("select", "state"), True),
    )
    assert orders.key == ("id",)
    assert orders.collation == "utf8mb4_general_ci"


@pytest.mark.mariadb_only("the table has an INVISIBLE column, which TiDB lacks")
def test_text_is_the_shape_alone(connection, schema: str) -> None:
    text = created(connection, schema, ORDERS).create_sql
    assert text.startswith("CREATE TABLE `t` (")
    assert "REFERENCES" not in text
    assert text.count("AUTO_INCREMENT=") == 2, "those in comments stay"
    assert "COMMENT='x AUTO_INCREMENT=9'" in text
    assert "CONSTRAINT `c` CHECK (`total` >= 0)" in text


@pytest.mark.mariadb_only("the table has an INVISIBLE column, which TiDB lacks")
def test_text_makes_the_same_table(connection, schema: str) -> None:
    orders = created(connection, schema, ORDERS)
    copy = TableId(schema, "ta`ble ä")
    query(connection, create_text(orders.create_sql, copy, if_not_exists=True))
    query(connection, create_text(orders.create_sql, copy, if_not_exists=True))
    assert read_schema(connection, copy) == orders
    assert query(connection, f"SELECT DISTINCT HEX(DEFAULT(bytes)) FROM {table_name(copy)}") == []
    query(connection, f"INSERT INTO {table_name(copy)} (id) VALUES (1)")
    assert query(connection, f"SELECT HEX(bytes) FROM {table_name(copy)}") == [("00FF80275C",)]


@pytest.mark.mariadb_only("the table has an INVISIBLE column, which TiDB lacks")
def test_json_keeps_what_it_holds(connection, schema: str) -> None:
    orders = created(connection, schema, ORDERS)
    assert TableSchema.from_json(orders.to_json()) == orders
    assert TableSchema.from_json(orders.to_json()).digest == orders.digest


@pytest.mark.mariadb_only("the table has an INVISIBLE column, which TiDB lacks")
@pytest.mark.parametrize("mode", ["ANSI_QUOTES", "ANSI_QUOTES,NO_BACKSLASH_ESCAPES", "ORACLE", ""])
def test_session_mode_changes_nothing(target: MariaDb, connection, schema: str, mode: str) -> None:
    orders = created(connection, schema, ORDERS)
    plain = target.server
    server = Server(plain.host, plain.port, plain.user, plain.password, (("sql_mode", mode),))
    with contextlib.closing(connect(server)) as other:
        before = query(other, "SELECT @@sql_mode")
        assert read_schema(other, TableId(schema, "orders")) == orders
        assert query(other, "SELECT @@sql_mode") == before


@pytest.mark.mariadb_only("the table has an INVISIBLE column, which TiDB lacks")
def test_many_tables(connection, schema: str) -> None:
    orders = created(connection, schema, ORDERS)
    small = created(connection, schema, "CREATE TABLE {name} (a INT)", "small")
    query(connection, f"CREATE VIEW {schema}.v AS SELECT 1")
    query(connection, f"CREATE DATABASE {schema}_2")
    other = created(connection, f"{schema}_2", "CREATE TABLE {name} (a INT)", "small")
    names = [
        TableId(schema, "orders"),
        TableId(schema, "small"),
        TableId(f"{schema}_2", "small"),
        TableId(schema, "v"),
        TableId(schema, "SMALL"),
        TableId("nowhere", "x"),
    ]
    assert read_schemas(connection, names) == dict(zip(names[:3], [orders, small, other], strict=True))
    query(connection, f"DROP DATABASE {schema}_2")


def test_missing_table(connection, schema: str) -> None:
    with pytest.raises(TableMissing, match="nothing"):
        read_schema(connection, TableId(schema, "nothing"))


VERSIONED = {
    "hidden": "a INT DEFAULT 1, b INT, PRIMARY KEY (b)) WITH SYSTEM VERSIONING",
    "shown": "a INT DEFAULT 1, rs TIMESTAMP(6) GENERATED ALWAYS AS ROW START, b INT, re TIMESTAMP(6) GENERATED ALWAYS"
    " AS ROW END INVISIBLE, PRIMARY KEY (b), PERIOD FOR SYSTEM_TIME (rs, re)) WITH SYSTEM VERSIONING",
    "parts": "a INT DEFAULT 1 WITHOUT SYSTEM VERSIONING, b INT, PRIMARY KEY (b)) WITH SYSTEM VERSIONING PARTITION BY"
    " SYSTEM_TIME (PARTITION p0 HISTORY, PARTITION pn CURRENT)",
}


@pytest.mark.mariadb_only("only MariaDB keeps the history of a table")
@pytest.mark.parametrize("kind", VERSIONED)
def test_system_versioned_table(connection, schema: str, kind: str) -> None:
    """It has the columns and keys of an unversioned table, and the target is created like that table."""
    plain = created(connection, schema, "CREATE TABLE {name} (a INT DEFAULT 1, b INT, PRIMARY KEY (b))", "plain")
    versioned = created(connection, schema, f"CREATE TABLE {{name}} ({VERSIONED[kind]}", "versioned")
    assert versioned.shape == plain.shape and versioned.key == ("b",)
    assert unversioned(versioned.create_sql) == plain.create_sql
    rows, period_end = as_in_rows(versioned, 4)
    names = ["a", "rs", "b", "re"] if kind == "shown" else ["a", "b", "row_start", "row_end"]
    assert ([column.name for column in rows.columns], period_end) == (names, 2)


@pytest.mark.mariadb_only("only MariaDB keeps the history of a table")
def test_a_table_whose_history_is_kept_by_transactions_is_refused(connection, schema: str) -> None:
    period = "BIGINT UNSIGNED GENERATED ALWAYS AS ROW"
    columns = f"a INT, s {period} START, e {period} END, PERIOD FOR SYSTEM_TIME (s, e)"
    with pytest.raises(TableUnsupported, match="transactions"):
        created(connection, schema, f"CREATE TABLE {{name}} ({columns}) WITH SYSTEM VERSIONING")


def test_digest_ignores_the_name_and_tells_charsets_apart(connection, schema: str) -> None:
    one = created(connection, schema, "CREATE TABLE {name} (a INT) CHARSET latin1", "one")
    two = created(connection, schema, "CREATE TABLE {name} (a INT) CHARSET latin1", "two")
    three = created(connection, schema, "CREATE TABLE {name} (a INT) CHARSET utf8mb4", "three")
    assert one == two
    assert one.digest != three.digest


@pytest.mark.mariadb_only("TiDB leaves out CHECK constraints unless it is told otherwise")
def test_digest_tells_apart_what_only_the_text_shows(connection, schema: str) -> None:
    plain = created(connection, schema, "CREATE TABLE {name} (a INT)", "plain")
    for number, more in enumerate(("(a INT COMMENT 'x')", "(a INT, CHECK (a > 0))", "(a INT) PARTITION BY HASH (a)")):
        other = created(connection, schema, f"CREATE TABLE {{name}} {more}", f"other_{number}")
        assert (other.shape, other.digest == plain.digest) == (plain.shape, False)
        assert shape_of(other.digest) == other.shape


@pytest.mark.mariadb_only("it is about the dialect of MariaDB")
def test_dialect(connection) -> None:
    dialect = server_dialect(connection)
    assert dialect.mariadb
    assert 100000 < dialect.version < 200000


@pytest.mark.parametrize(("name", "found"), [("mariadb_target", True), ("tidb_target", False)])
def test_pages_are_asked_for_and_not_the_name_of_the_server(
    name: str, found: bool, request: pytest.FixtureRequest
) -> None:
    server: MariaDb = request.getfixturevalue(name)
    for version in ("8.0.11-TiDB-v7.5.5", "11.8.2-MariaDB"):
        with contextlib.closing(connect(server.server, "target")) as connection:
            connection.server_version = version
            assert keeps_pages(connection) is found
