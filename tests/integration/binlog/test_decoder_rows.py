"""Row events and every case in which they must not be read, against a real server."""

from dataclasses import replace

import pytest

from tests.binlogs import changes, end_of, round_trip, schema_of, selected
from tests.running import while_up
from unshard.binlog.decoder import AFTER, BEFORE, DELETE, INSERT
from unshard.core.model import TableId
from unshard.errors.rows import ColumnCountDiffers, ColumnTypeDiffers, DamagedRow, DefaultUnknown, PartialRowImage
from unshard.units.rows.sparserows import has
from unshard_demo import servers

pytestmark = pytest.mark.integration


@pytest.fixture
def table(source_1, unique):
    source_1.run(f"CREATE DATABASE `{unique}`", f"CREATE TABLE `{unique}`.t(id int primary key, v varchar(20))")
    return TableId(unique, "t")


def run(server, table, *statements):
    server.run(f"USE `{table.schema}`", *statements)


def test_operations_in_their_order(source_1, table, tmp_path):
    begins, other = end_of(source_1), TableId(table.schema, "o")
    run(
        source_1,
        table,
        "CREATE TABLE o LIKE t",
        "INSERT INTO t VALUES (1,'a'),(2,'b')",
        "INSERT INTO o VALUES (9,NULL)",
        "UPDATE t SET id = id + 10",
        "DELETE FROM t WHERE id = 11",
    )
    schema = schema_of(source_1, table)
    assert changes(source_1, tmp_path, begins, {table: schema, other: schema}) == [
        (table, INSERT, (b"1", b"a")),
        (table, INSERT, (b"2", b"b")),
        (other, INSERT, (b"9", None)),
        (table, BEFORE, (b"1", b"a")),
        (table, AFTER, (b"11", b"a")),
        (table, BEFORE, (b"2", b"b")),
        (table, AFTER, (b"12", b"b")),
        (table, DELETE, (b"11", b"a")),
    ]
    assert {t for t, _, _ in changes(source_1, tmp_path, begins, {other: schema})} == {other}


def test_rows_of_transactions_before_a_start_are_passed_over(source_1, table, tmp_path):
    begins = end_of(source_1)
    run(source_1, table, "INSERT INTO t VALUES (1,'a')")
    start = end_of(source_1)
    run(source_1, table, "INSERT INTO t VALUES (2,'b')")
    schema = schema_of(source_1, table)
    rows = changes(source_1, tmp_path, begins, {table: schema}, {table: start.position})
    assert [values for _, _, values in rows] == [(b"2", b"b")]
    rows = changes(source_1, tmp_path, begins, {table: schema}, {table: start.position - 1})
    assert len(rows) == 2


HASHED = {
    "texts": "(id INT PRIMARY KEY, b TEXT, c BLOB, UNIQUE (b), v INT, UNIQUE (c, id) COMMENT 'USING HASH')",
    "asked for": "(id INT PRIMARY KEY, b INT, c INT COMMENT 'UNIQUE USING HASH', v INT, UNIQUE (b) USING HASH)",
    "versioned": "(id INT PRIMARY KEY, b TEXT, c INT, v INT, UNIQUE (b)) WITH SYSTEM VERSIONING",
    "named alike": "(id INT PRIMARY KEY, b TEXT UNIQUE, c INT AS (v) VIRTUAL INVISIBLE, v INT, db_row_hash_1 INT)",
    "in memory": "(id INT PRIMARY KEY, b INT, c INT, v INT, UNIQUE (b) USING HASH) ENGINE=MEMORY",
}


@pytest.mark.parametrize("metadata", ["NO_LOG", "FULL"])
@pytest.mark.parametrize("kind", HASHED)
def test_a_unique_key_by_hash_has_a_column_in_rows_that_nothing_shows(source_1, table, tmp_path, kind, metadata):
    source_1.run(f"SET GLOBAL binlog_row_metadata = {metadata}")
    try:
        run(source_1, table, f"CREATE TABLE u {HASHED[kind]}")
        begins, name = end_of(source_1), TableId(table.schema, "u")
        values = [f"({n}, {n}, {n})" for n in range(1, 60)]
        run(source_1, table, *(f"INSERT INTO u (id, b, v) VALUES {each}" for each in values), "UPDATE u SET b = NULL")
    finally:
        source_1.run("SET GLOBAL binlog_row_metadata = NO_LOG")
    schema = schema_of(source_1, name)
    found = changes(source_1, tmp_path, begins, {name: schema})
    assert [values for _, op, values in found if op == AFTER] == selected(source_1, name, schema)
    assert {len(values) for _, _, values in found} == {len(schema.written)}


def test_rows_behind_a_savepoint_that_was_rolled_back(source_1, table, tmp_path):
    """They are in the binlog if a table without transactions was changed in between."""
    begins = end_of(source_1)
    run(
        source_1,
        table,
        "CREATE TABLE m(id int primary key, v varchar(20)) ENGINE=MyISAM",
        "BEGIN",
        "INSERT INTO t VALUES (1,'a')",
        "SAVEPOINT one",
        "INSERT INTO t VALUES (2,'b')",
        "SAVEPOINT `Two`",
        "INSERT INTO m VALUES (5,'m')",
        "INSERT INTO t VALUES (3,'c')",
        "ROLLBACK TO two",
        "INSERT INTO t VALUES (4,'d')",
        "COMMIT",
        "BEGIN",
        "INSERT INTO t VALUES (6,'x')",
        "INSERT INTO m VALUES (6,'m')",
        "ROLLBACK",
    )
    schema, other = schema_of(source_1, table), TableId(table.schema, "m")
    rows = changes(source_1, tmp_path, begins, {table: schema, other: schema})
    assert [values for t, _, values in rows if t == table] == selected(source_1, table, schema)
    assert [values for t, _, values in rows if t == other] == [(b"5", b"m"), (b"6", b"m")]


def test_generated_columns_are_left_out(source_1, unique, tmp_path):
    source_1.run(f"CREATE DATABASE `{unique}`")
    decoded, shown = round_trip(
        source_1,
        tmp_path,
        TableId(unique, "t"),
        [
            "CREATE TABLE t(g int as (v * 2) virtual, id int primary key, s varchar(20) as (concat(v, 'x')) stored,"
            "v int,"
            "inv int invisible default 7, u int unsigned as (id) virtual)",
            "INSERT INTO t(id, v) VALUES (1, 5), (2, NULL)",
        ],
    )
    assert decoded == shown == [(b"1", b"5", b"7"), (b"2", None, b"7")]


def test_temporal_types_of_before_mysql_5_6(source_1, unique, tmp_path):
    source_1.run(f"CREATE DATABASE `{unique}`", "SET GLOBAL mysql56_temporal_format=OFF")
    try:
        decoded, shown = round_trip(
            source_1,
            tmp_path,
            TableId(unique, "t"),
            [
                "SET SESSION sql_mode='', time_zone='+00:00'",
                "CREATE TABLE t(id int primary key, a time, b datetime, c timestamp null)",
                "INSERT INTO t VALUES (1,'-838:59:59','0000-00-00','0000-00-00'),(2,'00:00:01','9999-12-31 23:59:59',"
                "'2038-01-19 03:14:07'),(3,'-00:00:01','2024-00-10 01:02:03','1970-01-01 00:00:01'),(4,NULL,NULL,NULL)",
            ],
        )
        assert decoded == shown
        digits = range(1, 7)
        columns = ",".join(f"t{n} time({n}), d{n} datetime({n}), s{n} timestamp({n}) null" for n in digits)
        moments = (
            ("-838:59:59.123456", "2024-02-10 01:02:03.654321", "2024-02-10 01:02:03.654321"),
            ("838:59:59.999999", "0000-00-00", "0000-00-00"),
            ("-00:00:00.1", "9999-12-31 23:59:59.999999", "1970-01-01 00:00:01.000001"),
            ("00:00:00.000001", "2024-00-10 01:02:03.09", "2038-01-19 03:14:07.999999"),
            ("12:34:56.5", "0001-12-31 00:00:00.000001", "2000-02-29 12:00:00.01"),
        )
        made = [",".join(f"'{text}'" for text in texts) for texts in moments]
        rows = ",".join(f"({n},{','.join([row] * len(digits))})" for n, row in enumerate(made))
        decoded, shown = round_trip(
            source_1,
            tmp_path / "f",
            TableId(unique, "f"),
            [
                "SET SESSION sql_mode='', time_zone='+00:00'",
                f"CREATE TABLE f(id int primary key, {columns})",
                f"INSERT INTO f VALUES {rows}, (9{',NULL' * 3 * len(digits)})",
            ],
        )
        assert decoded == shown and len(shown) == len(moments) + 1
    finally:
        source_1.run("SET GLOBAL mysql56_temporal_format=ON")


@pytest.mark.parametrize("count", [9, 64, 300])
def test_many_columns(source_1, unique, tmp_path, count):
    source_1.run(f"CREATE DATABASE `{unique}`")
    columns = ",".join(f"c{n} int{' not null' if n % 3 else ''}" for n in range(count))
    values = ",".join("NULL" if n % 3 == 0 and n % 2 else str(n) for n in range(count))
    decoded, shown = round_trip(
        source_1,
        tmp_path,
        TableId(unique, "t"),
        [f"CREATE TABLE t(id int primary key,{columns})", f"INSERT INTO t VALUES (1,{values})"],
    )
    assert decoded == shown


@pytest.mark.parametrize("metadata", ["FULL", "MINIMAL"])
def test_metadata_of_the_server_is_compared(source_1, table, tmp_path, metadata):
    begins = end_of(source_1)
    source_1.run(f"SET GLOBAL binlog_row_metadata={metadata}")
    try:
        run(
            source_1,
            table,
            "CREATE TABLE n(id int unsigned primary key, y year, d decimal(5,2) unsigned, e enum('ü','漢') charset"
            " ucs2, f float, b bigint, g bit(3), s set('x','ü') charset latin1, c varchar(9) charset latin1,"
            " l longtext, p point, i inet6, k varchar(9) charset gbk compressed, v varbinary(9), j json,"
            "u smallint unsigned)",
            "INSERT INTO n(id) VALUES (1)",
        )
    finally:
        source_1.run("SET GLOBAL binlog_row_metadata=NO_LOG")
    number = TableId(table.schema, "n")
    schema = schema_of(source_1, number)
    assert len(changes(source_1, tmp_path, begins, {number: schema})) == 1
    signed = replace(schema.columns[-1], column_type="smallint(6)")
    with pytest.raises(ColumnTypeDiffers, match="unsigned"):
        changes(source_1, tmp_path, begins, {number: replace(schema, columns=(*schema.columns[:-1], signed))})
    latin2 = replace(schema.columns[8], charset="latin2")
    with pytest.raises(ColumnTypeDiffers, match="character set latin1"):
        changes(source_1, tmp_path, begins, {number: replace(schema, columns=_with(schema, 8, latin2))})
    if metadata == "FULL":
        labels = replace(schema.columns[7], column_type="set('x','y')")
        with pytest.raises(ColumnTypeDiffers, match="SET of x"):
            changes(source_1, tmp_path, begins, {number: replace(schema, columns=_with(schema, 7, labels))})
        renamed = replace(schema.columns[-1], name="w")
        with pytest.raises(ColumnTypeDiffers, match="called u"):
            changes(source_1, tmp_path, begins, {number: replace(schema, columns=(*schema.columns[:-1], renamed))})


def _with(schema, place, column):
    return (*schema.columns[:place], column, *schema.columns[place + 1 :])


def test_a_structure_that_does_not_fit(source_1, table, tmp_path):
    begins = end_of(source_1)
    run(source_1, table, "INSERT INTO t VALUES (1,NULL)")
    schema = schema_of(source_1, table)
    one = replace(schema, columns=schema.columns[:1])
    with pytest.raises(ColumnCountDiffers) as caught:
        changes(source_1, tmp_path, begins, {table: one})
    assert (caught.value.found, caught.value.tracked) == (2, 1)
    assert str(table) in str(caught.value) and begins.file in str(caught.value)
    big = replace(schema.columns[0], data_type="bigint", column_type="bigint(20)")
    with pytest.raises(ColumnTypeDiffers, match="LONG"):
        changes(source_1, tmp_path, begins, {table: replace(schema, columns=(big, schema.columns[1]))})
    filled = replace(schema.columns[1], nullable=False)
    with pytest.raises(DamagedRow, match="NULL"):
        changes(source_1, tmp_path, begins, {table: replace(schema, columns=(schema.columns[0], filled))})


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("decimal(10,2)", "decimal(11,2)"),
        ("datetime", "datetime(3)"),
        ("blob", "mediumblob"),
        ("bit(8)", "bit(9)"),
        ("binary(4)", "binary(5)"),
        ("float", "double"),
        ("char(4)", "varchar(4)"),
        ("date", "year"),
        ("enum('a')", "set('a')"),
        ("time(1)", "timestamp(1) null"),
        ("int", "mediumint"),
        ("inet6", "inet4"),
        ("point", "longblob"),
        ("varbinary(3)", "varbinary(4)"),
        ("varchar(3)", "varchar(4)"),
        ("char(3) charset latin1", "char(3) charset gbk"),
        ("text", "varchar(100)"),
    ],
)
def test_a_missed_ddl_is_never_read_wrongly(source_1, table, tmp_path, before, after):
    begins = end_of(source_1)
    run(
        source_1,
        table,
        f"CREATE TABLE a(id int primary key, c {before})",
        f"CREATE TABLE b(id int primary key, c {after})",
        "INSERT INTO a VALUES (1,NULL)",
        "INSERT INTO b VALUES (1,NULL)",
    )
    a, b = TableId(table.schema, "a"), TableId(table.schema, "b")
    assert len(changes(source_1, tmp_path, begins, {a: schema_of(source_1, a), b: schema_of(source_1, b)})) == 2
    for one, other in ((a, b), (b, a)):
        with pytest.raises(ColumnTypeDiffers):
            changes(source_1, tmp_path, begins, {one: schema_of(source_1, other)})


def test_compressed_columns(source_1, unique, tmp_path):
    """A column takes one more byte than declared, so 254 and 255 differ in the size of their length."""
    source_1.run(f"CREATE DATABASE `{unique}`")
    texts = ["''", "'a'", "repeat('x', 99)", "repeat('ab', 127)", "x'00'", "NULL", "repeat(x'ff00', 100)"]
    decoded, shown = round_trip(
        source_1,
        tmp_path,
        TableId(unique, "t"),
        [
            "CREATE TABLE t(id int primary key, a varchar(200) compressed, b varbinary(254) compressed,"
            " c varbinary(255) compressed, d tinytext compressed, e text compressed, f mediumblob compressed,"
            " g longblob compressed, h varbinary(256) compressed) CHARSET latin1",
            *(
                f"INSERT INTO t SELECT {n}, left(v,200), v, v, left(v,200), v, v, repeat(v, 1000), v"
                f" FROM (SELECT {text} v) s"
                for n, text in enumerate(texts)
            ),
        ],
    )
    assert decoded == shown and len(shown) == len(texts)


def test_system_versioned_tables(source_1, table, tmp_path):
    begins = end_of(source_1)
    schema = schema_of(source_1, table)
    run(
        source_1,
        table,
        "ALTER TABLE t ADD SYSTEM VERSIONING",
        "INSERT INTO t VALUES (1,'a'),(2,'b'),(3,'c')",
        "UPDATE t SET v='d' WHERE id=1",
        "DELETE FROM t WHERE id=2",
        "REPLACE INTO t VALUES (1,'e'),(4,'f')",
        "UPDATE t SET id=30 WHERE id=3",
        "DELETE HISTORY FROM t",
        "BEGIN",
        "DELETE FROM t WHERE id=4",
        "INSERT INTO t VALUES (4,'g')",
        "COMMIT",
    )
    with pytest.raises(ColumnCountDiffers):
        changes(source_1, tmp_path / "a", begins, {table: schema})
    versioned = schema_of(source_1, table)
    rows, found = {}, changes(source_1, tmp_path / "b", begins, {table: versioned})
    ops = [op for _, op, _ in found]
    assert [ops[n + 1] for n, op in enumerate(ops) if op == BEFORE] == [AFTER] * ops.count(AFTER)
    for _, op, values in found:
        if op in (DELETE, BEFORE):
            assert rows.pop(values[0]) == values
        else:
            assert values[0] not in rows
            rows[values[0]] = values
    assert sorted(rows.values()) == sorted(selected(source_1, table, versioned))
    begins = end_of(source_1)
    run(source_1, table, "SET SESSION binlog_row_image=MINIMAL", "UPDATE t SET v='x'")
    with pytest.raises(PartialRowImage, match="system-versioned"):
        changes(source_1, tmp_path / "c", begins, {table: versioned})


DEFAULTS = (
    "id int auto_increment primary key, a int, b varchar(9) not null default 'b''\\\\d', c timestamp not null"
    " default current_timestamp on update current_timestamp, e int default (1+1), u char(36) default (uuid()),"
    " t text, bl blob default 'dd', g int as (a*2) stored, nn int not null, d decimal(9,3) default 1.5, f float"
    " default 0.1, dd double default 1e20, dt datetime(3) default '2020-01-01 01:02:03.5', da date default"
    " '2020-01-01', ti time(2) default '-01:02:03', y year default 2001, en enum('x','ü') charset latin1"
    " default 'ü', se set('a','b') not null default 'a,b', bi bit(10) default b'1000000001', bn binary(4)"
    " default 'ab', vb varbinary(9) default 'q', z int(5) zerofill default 42, inv int invisible default 7, big"
    " bigint unsigned not null default 18446744073709551615, ch char(9) charset ucs2 default 'é', eno"
    " enum('p','q') not null, tz time(2) not null, bz bit(9) not null, tn varchar(3) not null, fn float not"
    " null, dn decimal(5,2) not null, tsn timestamp(2) not null default '0000-00-00'"
)


@pytest.mark.parametrize("image", ["MINIMAL", "NOBLOB", "FULL"])
def test_row_images_that_leave_columns_out(source_1, unique, tmp_path, image):
    """The images, applied to the earlier rows, give the rows that the server shows, including defaults."""
    source_1.run(f"CREATE DATABASE `{unique}`", "SET sql_mode=''", f"CREATE TABLE `{unique}`.t({DEFAULTS})")
    begins, table = end_of(source_1), TableId(unique, "t")
    run(
        source_1,
        table,
        "SET time_zone='+00:00', sql_mode=''",
        f"SET SESSION binlog_row_image={image}",
        "INSERT INTO t(a) VALUES (1)",
        "INSERT INTO t() VALUES (),()",
        "INSERT INTO t(t,e) VALUES ('x',NULL)",
        "UPDATE t SET a=7 WHERE id>1",
        "UPDATE t SET bl=NULL, e=5 WHERE id=2",
        "UPDATE t SET id=20 WHERE id=2",
        "INSERT INTO t(id, a) VALUES (3, 9) ON DUPLICATE KEY UPDATE b='y'",
        "DELETE FROM t WHERE id=1",
        "INSERT INTO t(id) VALUES (1)",
    )
    schema = schema_of(source_1, table)
    rows, key = {}, None
    for _, op, values in changes(source_1, tmp_path, begins, {table: schema}):
        width = len(schema.written)
        mask = values[width] if len(values) > width else None
        if op == INSERT:
            assert mask is None
        if op in (DELETE, BEFORE):
            key, old = values[0], rows.pop(values[0])
            assert all(
                mine == theirs for n, (mine, theirs) in enumerate(zip(values, old, strict=False)) if has(mask, n)
            )
        else:
            rows[values[0]] = [values[n] if has(mask, n) else old[n] for n in range(width)]
    assert key is not None
    assert sorted(map(tuple, rows.values())) == sorted(selected(source_1, table, schema)) and len(rows) == 4


def test_rows_whose_left_out_columns_nobody_knows(source_1, table, tmp_path):
    """A REPLACE is logged as an UPDATE; a default is shown in the time zone of the reading session."""
    run(
        source_1,
        table,
        "CREATE TABLE d(id int primary key, v timestamp not null default '2020-01-01')",
        "INSERT INTO t VALUES (1, 'a')",
    )
    cases = (
        ("REPLACE INTO t(id) VALUES (1)", "t", PartialRowImage),
        ("INSERT INTO d(id) VALUES (1)", "d", DefaultUnknown),
    )
    for number, (statement, name, error) in enumerate(cases):
        begins, chosen = end_of(source_1), TableId(table.schema, name)
        run(source_1, table, "SET SESSION binlog_row_image=MINIMAL", statement)
        with pytest.raises(error):
            changes(source_1, tmp_path / str(number), begins, {chosen: schema_of(source_1, chosen)})


def test_compressed_events(server_folder, tmp_path):
    with while_up(
        servers.start_server(
            server_folder / tmp_path.name, "--log-bin-compress=ON", "--log-bin-compress-min-len=10", server_id=401
        )
    ) as server:
        server.run("CREATE DATABASE d")
        begins, table = end_of(server), TableId("d", "t")
        server.run(
            "USE d",
            f"CREATE TABLE t(id int primary key, v varchar(200)) COMMENT='{'x' * 300}'",
            "INSERT INTO t SELECT seq, REPEAT('a', 100) FROM seq_1_to_2000",
            "UPDATE t SET v=REPEAT('b', 150) WHERE id<=500",
            "DELETE FROM t WHERE id > 1900",
        )
        rows = changes(server, tmp_path, begins, {table: schema_of(server, table)})
        assert [op for _, op, _ in rows] == [INSERT] * 2000 + [BEFORE, AFTER] * 500 + [DELETE] * 100
        assert rows[2001] == (table, AFTER, (b"1", b"b" * 150))


def test_without_checksums(server_folder, tmp_path):
    with while_up(
        servers.start_server(server_folder / tmp_path.name, "--binlog-checksum=NONE", server_id=402)
    ) as server:
        server.run("CREATE DATABASE d")
        table = TableId("d", "t")
        decoded, shown = round_trip(
            server,
            tmp_path,
            table,
            [
                "CREATE TABLE t(id int primary key, v text)",
                "INSERT INTO t SELECT seq, REPEAT('a', seq) FROM seq_1_to_300",
            ],
        )
        assert decoded == shown and len(shown) == 300
