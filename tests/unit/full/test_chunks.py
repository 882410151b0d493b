"""Chunks have no gaps and no overlaps, for any key."""

import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unshard.core.full.chunks import (
    is_chunked,
    may_leave_rows,
    next_bound,
    pack_key,
    ranges_between,
    unpack_key,
    walked_columns,
)
from unshard.core.model import Column, Index, TableId, TableSchema
from unshard.core.sql.keyrange import KeyRange, condition
from unshard.core.structures.parsedtable import index_parts

INT = {"data_type": "int", "column_type": "int(11)"}
TEXT = {"data_type": "varchar", "column_type": "varchar(9)", "charset": "utf8mb4", "collation": "utf8mb4_bin"}
ENUM = {**TEXT, "data_type": "enum", "column_type": "enum('a')"}


def column(name: str, **kind: str) -> Column:
    return Column(
        **{"name": name, "nullable": False, "charset": None, "collation": None, "default": None, "extra": "", **kind}
    )


def schema(*columns: Column, key: tuple[str, ...] = (), other: tuple[Index, ...] = ()) -> TableSchema:
    primary = (Index("PRIMARY", key, True),) if key else ()
    return TableSchema(columns, (*primary, *other), "")


A, B, E = column("a", **INT), column("b", **INT), column("e", **ENUM)


@pytest.mark.parametrize(
    ("table", "want"),
    [
        (schema(A), ()),
        (schema(A, key=("a",)), ("a",)),
        (schema(A, B, key=("b", "a")), ("b", "a")),
        (schema(A, B, key=("a",), other=(Index("b", ("b",), False),)), ("a",)),
        (schema(A, B, key=("a",), other=(Index("b", ("b",), True),)), ("a",)),
        (schema(A, E, key=("a", "e")), ("a",)),
        (schema(A, E, key=("e", "a")), ()),
    ],
)
def test_what_is_walked(table: TableSchema, want: tuple[str, ...]) -> None:
    assert tuple(c.name for c in walked_columns(table)) == want


def test_a_key_that_begins_with_an_enum_is_one_chunk_but_repaired_by_key() -> None:
    assert is_chunked(schema(A, E, key=("e", "a")))
    assert not is_chunked(schema(A))


def unique(name: str, *columns: str, prefixed: bool = False) -> Index:
    return Index(name, columns, True, prefixed)


def prefixed(column: Column, length: int) -> TableSchema:
    made = schema(A, column, key=("a",), other=(unique("u", column.name, prefixed=True),))
    text = f"CREATE TABLE `t` (\n  PRIMARY KEY (`a`),\n  UNIQUE KEY `u` (`{column.name}`({length}))\n)"
    return TableSchema(made.columns, made.indexes, text)


def functional(*columns: Column, parts: str) -> TableSchema:
    """Return a structure whose second key has these parts, as MySQL describes it."""
    text = f"CREATE TABLE `t` (\n  PRIMARY KEY (`a`),\n  UNIQUE KEY `u` ({parts})\n)"
    made = tuple(part.text for part in index_parts(text, "u"))
    return TableSchema(columns, (Index("PRIMARY", ("a",), True), unique("u", *made, prefixed=True)), text)


T, NOCASE = column("w", **TEXT), column("W", **{**TEXT, "collation": "utf8mb4_general_ci"})
F, SHORT = column("f", data_type="float", column_type="float"), column("a", data_type="smallint", column_type="")
BIG = column("A", data_type="bigint", column_type="bigint(20)")
MADE, EXTRA = column("w", **{**TEXT, "extra": "stored generated"}), column("shard", **TEXT)
MAIL = schema(A, T, key=("a",), other=(unique("w", "w"),))


@pytest.mark.parametrize(
    ("table", "target", "want"),
    [
        (MAIL, MAIL, True),
        (MAIL, schema(BIG, column("W", **TEXT), key=("A",), other=(unique("other", "W"),)), True),
        (MAIL, schema(A, T, key=("w",)), True),
        (MAIL, schema(A, T, EXTRA, key=("a", "shard"), other=(unique("w", "w", "shard"),)), True),
        (MAIL, schema(A, T), False),
        (MAIL, schema(A, NOCASE, key=("a",), other=(unique("w", "W"),)), False),
        (MAIL, schema(A, T, B, key=("a",), other=(unique("b", "b"),)), False),
        (MAIL, schema(A, MADE, key=("a",), other=(unique("w", "w"),)), False),
        (MAIL, prefixed(T, 5), False),
        (prefixed(T, 5), MAIL, True),
        (prefixed(T, 5), prefixed(T, 7), True),
        (prefixed(T, 5), prefixed(T, 4), False),
        (schema(A, T, key=("a", "w")), schema(A, T, key=("a",)), False),
        (
            schema(A, F, key=("a",), other=(unique("f", "f"),)),
            schema(A, F, key=("a",), other=(unique("f", "f"),)),
            False,
        ),
        (schema(A, key=("a",)), schema(SHORT, key=("a",)), True),
        (functional(A, T, parts="(lower(`w`))"), functional(A, T, parts="(lower(`w`))"), True),
        (functional(A, T, parts="(lower(`w`))"), functional(A, NOCASE, parts="(lower(`w`))"), False),
        (functional(A, T, parts="(lower(`w`))"), functional(A, T, parts="(upper(`w`))"), False),
        (functional(A, T, parts="(lower(`w`))"), MAIL, False),
        (MAIL, functional(A, T, parts="`w`,(`a` + 1)"), True),
        (functional(A, MADE, parts="(lower(`w`))"), functional(A, MADE, parts="(lower(`w`))"), False),
        (schema(T, key=("w",)), schema(column("w", **INT), key=("w",)), False),
    ],
)
def test_whose_rows_may_be_left_to_the_binlog(table: TableSchema, target: TableSchema, want: bool) -> None:
    """Every unique key of the target must also be a unique key of the shard that distinguishes the same rows."""
    assert may_leave_rows(table, target) is want


keys = st.tuples(st.integers(-3, 3), st.integers(-3, 3))


@given(st.sets(keys), st.sets(keys))
def test_every_row_is_in_exactly_one_chunk(rows: set[tuple[int, int]], cuts: set[tuple[int, int]]) -> None:
    """A database evaluates the conditions, because they are SQL."""
    spans = ranges_between([tuple(str(v).encode() for v in cut) for cut in sorted(cuts)])
    with sqlite3.connect(":memory:") as database:
        database.execute("CREATE TABLE t (a INT, b INT)")
        database.executemany("INSERT INTO t VALUES (?, ?)", rows)
        found = [
            row for span in spans for row in database.execute(f"SELECT a, b FROM t WHERE {condition((A, B), span)}")
        ]
    assert sorted(found) == sorted(rows)


@given(st.lists(st.tuples(st.binary(), st.binary())))
def test_bounds_survive_their_way(bounds: list[tuple[bytes, bytes]]) -> None:
    assert [unpack_key(pack_key(bound)) for bound in bounds] == bounds


def test_open_ends() -> None:
    assert ranges_between([]) == (KeyRange(),)
    assert ranges_between([(b"1",)]) == (KeyRange(None, (b"1",)), KeyRange((b"1",), None))
    assert unpack_key(pack_key(None)) is None


def test_the_walk_names_index_order_and_place() -> None:
    text = column("w`x", **TEXT)
    statement = next_bound(TableId("s", "t"), schema(text, key=("w`x",)), (b"o'r",), 100)
    assert statement == (
        "SELECT `w``x` FROM `s`.`t` FORCE INDEX (`PRIMARY`) WHERE `w``x` > _utf8mb4 x'6f2772'"
        " ORDER BY `w``x` LIMIT 1 OFFSET 99"
    )
