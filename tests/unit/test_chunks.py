"""Chunks: without a gap, without an overlap, whatever the key."""

import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unshard.core.checksum import KeyRange, condition
from unshard.core.chunks import (
    is_chunked,
    next_bound,
    pack_key,
    ranges,
    unpack_key,
    walked_columns,
)
from unshard.core.model import Column, Index, TableId, TableSchema

INT = {"data_type": "int", "column_type": "int(11)"}
TEXT = {"data_type": "varchar", "column_type": "varchar(9)", "charset": "utf8mb4", "collation": "utf8mb4_bin"}
ENUM = {**TEXT, "data_type": "enum", "column_type": "enum('a')"}


def column(name: str, **kind: str) -> Column:
    return Column(**{"name": name, "nullable": False, "charset": None, "collation": None, "default": None,
                     "extra": "", **kind})  # fmt: skip


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
        (schema(A, B, key=("a",), other=(Index("b", ("b",), True),)), ()),
        (schema(A, E, key=("a", "e")), ("a",)),
        (schema(A, E, key=("e", "a")), ()),
    ],
)
def test_what_is_walked(table: TableSchema, want: tuple[str, ...]) -> None:
    assert tuple(c.name for c in walked_columns(table)) == want


def test_a_key_that_begins_with_an_enum_is_one_chunk_but_repaired_by_key() -> None:
    assert is_chunked(schema(A, E, key=("e", "a")))
    assert not is_chunked(schema(A))


keys = st.tuples(st.integers(-3, 3), st.integers(-3, 3))


@given(st.sets(keys), st.sets(keys))
def test_every_row_is_in_exactly_one_chunk(rows: set[tuple[int, int]], cuts: set[tuple[int, int]]) -> None:
    """The conditions are run by a database: they are SQL, so a database says what they mean."""
    spans = ranges([tuple(str(v).encode() for v in cut) for cut in sorted(cuts)])
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
    assert ranges([]) == (KeyRange(),)
    assert ranges([(b"1",)]) == (KeyRange(None, (b"1",)), KeyRange((b"1",), None))
    assert unpack_key(pack_key(None)) is None


def test_the_walk_names_index_order_and_place() -> None:
    text = column("w`x", **TEXT)
    statement = next_bound(TableId("s", "t"), schema(text, key=("w`x",)), (b"o'r",), 100)
    assert statement == (
        "SELECT `w``x` FROM `s`.`t` FORCE INDEX (`PRIMARY`) WHERE `w``x` > _utf8mb4 x'6f2772'"
        " ORDER BY `w``x` LIMIT 1 OFFSET 99"
    )
