"""Rows of a late shard: the target converts them as the shard's own ALTER will."""

import contextlib
from collections.abc import Iterator

import pyarrow as pa
import pytest

from unshard.adapters.mysql import connect, connect_raw, query
from unshard.adapters.structures import read_schema
from unshard.adapters.target import Mode, open_session, tried_writer
from unshard.adapters.target.rendering import lines_of
from unshard.adapters.target.sending import blank_rows, load_rendered
from unshard.core.ddl.lineage import ExecutedDdl
from unshard.core.model import Shard, TableId
from unshard.errors import UnshardError
from unshard.errors.rows import ColumnNotInTarget, ColumnTypesDiffer, KeyColumnMissing, RowRefused
from unshard.units.rows.conversion import conversion, convert
from unshard_demo.servers import MariaDb

pytestmark = [pytest.mark.integration, pytest.mark.writes_rows]

OLD = "id INT PRIMARY KEY, a INT, b VARCHAR(20) CHARACTER SET utf8mb4, c DATETIME(3), d BIGINT NOT NULL DEFAULT 7"
FITS = "(1, 100, 'ä', '2020-01-02 03:04:05.000', 5), (2, NULL, NULL, NULL, 6), (3, -1, '', '1999-12-31', 9)"


class Field:
    """A late shard, and a target that has executed DDL before it."""

    def __init__(self, server: MariaDb, name: str) -> None:
        self.writer = tried_writer(server.server, name)
        self.server, self.shard, self.target = server, TableId(name, "late"), TableId(name, "merged")

    def begin(self, columns: str, values: str, *specs: str) -> None:
        both = self.shard, self.target
        self.server.run(*(f"DROP TABLE IF EXISTS {table}" for table in both))
        self.server.run(
            *(f"CREATE TABLE {table} ({columns})" for table in both),
            *(f"ALTER TABLE {self.target} {each}" for each in specs),
            f"INSERT INTO {self.shard} VALUES {values}",
        )
        self.ran = tuple(ExecutedDdl(f"ALTER TABLE {self.target} {each}", 0) for each in specs)

    def write(self) -> None:
        """Write the shard's rows into the target as a window does."""
        with contextlib.closing(connect(self.server.server)) as connection:
            given, wanted = read_schema(connection, self.shard), read_schema(connection, self.target)
        plan = conversion(Shard("s2", self.shard), given, self.target, wanted, self.ran)
        names = ", ".join(f"`{column.name}`" for column in given.written)
        with contextlib.closing(connect_raw(self.server.server)) as raw:
            rows = query(raw, f"SELECT {names} FROM {self.shard} ORDER BY 1")
        values = convert(plan, [pa.array(list(column), pa.binary()) for column in zip(*rows, strict=True)])
        with contextlib.closing(open_session(self.writer)) as session:
            session.begin()
            loaded = load_rendered(
                session, plan.destination, lines_of(values), blank_rows(plan.destination.columns, values), Mode.PLAIN
            )
            assert loaded.sent - loaded.skipped == len(rows)
            session.commit()

    def catch_up(self, *specs: str) -> None:
        """Let the shard finally run its own DDL."""
        self.server.run("SET sql_mode = ''", *(f"ALTER TABLE {self.shard} {each}" for each in specs))

    def rows(self, table: TableId) -> list[tuple[object, ...]]:
        with contextlib.closing(connect(self.server.server)) as connection:
            names = ", ".join(f"`{name}`" for name in sorted(read_schema(connection, self.shard).names))
        return self.server.run(f"SELECT {names} FROM {table} ORDER BY 1, 2")


@pytest.fixture
def field(target: MariaDb, unique: str) -> Iterator[Field]:
    target.run(f"CREATE DATABASE {unique} CHARACTER SET utf8mb4")
    yield Field(target, unique)
    target.run(f"DROP DATABASE {unique}")


KEPT: list[tuple[str, ...]] = [
    ("DROP a",),
    ("DROP COLUMN b, DROP c",),
    ("ADD n INT",),
    ("ADD n INT DEFAULT 5 FIRST",),
    ("ADD n VARCHAR(9) NOT NULL DEFAULT 'ü'",),
    ("ADD n INT NOT NULL",),
    ("ADD n VARCHAR(9) NOT NULL",),
    ("ADD n ENUM('x','y') CHARACTER SET ucs2 NOT NULL",),
    ("ADD n DECIMAL(9,2) NOT NULL, ADD m DOUBLE NOT NULL, ADD o SET('x') NOT NULL, ADD p YEAR NOT NULL",),
    ("ADD n BINARY(3) NOT NULL, ADD m BLOB NOT NULL, ADD o TEXT NOT NULL, ADD p TIME(2) NOT NULL",),
    ("ADD n INT AS (id + 1) STORED",),
    ("RENAME COLUMN a TO n",),
    ("CHANGE b n VARCHAR(40)",),
    ("RENAME COLUMN a TO d, RENAME COLUMN d TO a",),
    ("RENAME COLUMN id TO n",),
    ("MODIFY a SMALLINT",),
    ("MODIFY b VARCHAR(1)",),
    ("MODIFY c DATETIME",),
    ("MODIFY d TINYINT NOT NULL",),
    ("MODIFY a BIGINT",),
    ("MODIFY b TEXT",),
    ("MODIFY c DATETIME(6)",),
    ("MODIFY a VARCHAR(20)",),
    ("MODIFY b VARCHAR(20) CHARACTER SET latin1",),
    ("CONVERT TO CHARACTER SET latin1",),
    ("MODIFY b VARCHAR(20) CHARACTER SET utf16",),
    ("MODIFY b VARCHAR(20) COLLATE utf8mb4_bin",),
    ("DROP a, ADD a VARCHAR(9) DEFAULT 'other'",),
    ("DROP a", "ADD a VARCHAR(9) DEFAULT 'other'"),
    ("DROP a, ADD a INT NOT NULL",),
    ("RENAME COLUMN a TO x", "ADD a INT DEFAULT 3"),
    ("ADD n INT NOT NULL DEFAULT 4, DROP PRIMARY KEY, ADD PRIMARY KEY (id, n)",),
    ("ADD n VARCHAR(9) NOT NULL DEFAULT 'it''s', DROP PRIMARY KEY, ADD PRIMARY KEY (n, id)",),
    ("ADD n INT NOT NULL, DROP PRIMARY KEY, ADD PRIMARY KEY (id, n)",),
    ("DROP PRIMARY KEY, ADD PRIMARY KEY (id, d)",),
    ("DROP PRIMARY KEY",),
]


@pytest.mark.mariadb_only("a column is of the character set ucs2, which TiDB lacks")
def test_rows_become_what_the_shards_own_ddl_makes_of_them(field: Field) -> None:
    for specs in KEPT:
        field.begin(OLD, FITS, *specs)
        field.write()
        field.catch_up(*specs)
        assert field.rows(field.target) == field.rows(field.shard), specs


LOST: list[tuple[str, str, type[UnshardError]]] = [
    ("MODIFY a TINYINT", "(1, 1000, '', NULL, 5)", RowRefused),
    ("MODIFY b VARCHAR(3)", "(1, 1, 'four', NULL, 5)", RowRefused),
    ("MODIFY b CHAR(3)", "(1, 1, 'abcd', NULL, 5)", RowRefused),
    ("MODIFY b INT", "(1, 1, 'x', NULL, 5)", RowRefused),
    ("MODIFY b ENUM('x')", "(1, 1, 'y', NULL, 5)", RowRefused),
    ("MODIFY c DATETIME", "(1, 1, '', '2020-01-01 00:00:00.001', 5)", RowRefused),
    ("MODIFY c DATE", "(1, 1, '', '2020-01-01 00:00:00.001', 5)", RowRefused),
    ("MODIFY d INT UNSIGNED NOT NULL", "(1, 1, '', NULL, -5)", RowRefused),
    ("MODIFY a INT NOT NULL", "(1, NULL, '', NULL, 5)", RowRefused),
    ("MODIFY b VARCHAR(20) CHARACTER SET latin1", "(1, 1, '列', NULL, 5)", RowRefused),
    ("MODIFY c TIMESTAMP NULL", "(1, 1, '', NULL, 5)", ColumnTypesDiffer),
    ("MODIFY d DOUBLE", "(1, 1, '', NULL, 5)", ColumnTypesDiffer),
    (
        "ADD n DATETIME DEFAULT CURRENT_TIMESTAMP, DROP PRIMARY KEY, ADD PRIMARY KEY (id, n)",
        "(1, 1, '', NULL, 5)",
        KeyColumnMissing,
    ),
]


@pytest.mark.mariadb_only("TiDB cannot change the character set of a column to latin1")
def test_a_value_that_would_be_lost_is_an_error(field: Field) -> None:
    for specs, values, error in LOST:
        field.begin(OLD, values, specs)
        with pytest.raises(UnshardError) as caught:
            field.write()
        assert isinstance(caught.value, error), (specs, caught.value)
        assert not field.server.run(f"SELECT * FROM {field.target}"), specs


@pytest.mark.mariadb_only("TiDB cannot drop a clustered primary key")
def test_key_column_that_is_dropped_collides_where_rows_are_one(field: Field) -> None:
    columns, spec = (
        "id INT, region CHAR(2), v INT, PRIMARY KEY (id, region)",
        "DROP PRIMARY KEY, DROP region, ADD PRIMARY KEY (id)",
    )
    field.begin(columns, "(1, 'eu', 10), (2, 'us', 20)", spec)
    field.write()
    field.catch_up(spec)
    assert field.rows(field.target) == field.rows(field.shard) == [(1, 10), (2, 20)]
    field.begin(columns, "(1, 'eu', 10), (1, 'us', 20)", spec)
    with pytest.raises(AssertionError):
        field.write()


def test_a_column_that_no_ddl_has_dropped_is_an_error(field: Field) -> None:
    field.begin(OLD, FITS, "DROP a", "DROP b")
    field.ran = field.ran[:1]
    with pytest.raises(ColumnNotInTarget, match="'b'"):
        field.write()
