"""Rows held without a known structure: the extract of a range gives the same rows as the range."""

import struct
from collections.abc import Iterable
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.binlogfiles import event, structure
from unshard.binlog import rawrows
from unshard.binlog.decoder import decode_range
from unshard.binlog.events import EventType as E
from unshard.core.model import TableId, TableSchema
from unshard.errors.relay import DamagedEvent
from unshard.errors.rows import ColumnCountDiffers, RowsWithoutTable

TABLES = TableId("d", "t"), TableId("d", "o")
SCHEMA = structure("id! int", "a int")
Event = tuple[E, bytes]


def table_map(number: int, table: TableId) -> Event:
    """TABLE_MAP with two INT columns, the second nullable."""
    names = b"\1" + table.schema.encode() + b"\0\1" + table.name.encode() + b"\0"
    return E.TABLE_MAP, number.to_bytes(6, "little") + b"\1\0" + names + b"\2\3\3\0\2"


def rows(number: int, kind: E, *values: int) -> Event:
    update = kind is E.UPDATE_ROWS_V1
    images = b"".join(b"\0" + struct.pack("<ii", value, value) for value in values for _ in range(1 + update))
    return kind, number.to_bytes(6, "little") + b"\1\0\2\xff" + b"\xff" * update + images


def query(text: str) -> Event:
    return E.QUERY, struct.pack("<IIBHH", 1, 0, 1, 0, 0) + b"d\0" + text.encode()


def flat(parts: Iterable[list[Event]]) -> list[Event]:
    return [event for part in parts for event in part]


XID = E.XID, bytes(8)
STATEMENTS = st.builds(
    lambda number, table, kind, values: [table_map(number, table), *(rows(number, kind, *some) for some in values)],
    st.sampled_from((7, 8)),
    st.sampled_from(TABLES),
    st.sampled_from((E.WRITE_ROWS_V1, E.UPDATE_ROWS_V1, E.DELETE_ROWS_V1)),
    st.lists(st.lists(st.integers(0, 99), min_size=1, max_size=3), min_size=1, max_size=3),
)
UNDONE = st.lists(STATEMENTS, max_size=2).map(lambda many: [query("SAVEPOINT s"), *flat(many), query("ROLLBACK TO s")])
TRANSACTIONS = st.lists(STATEMENTS | UNDONE, max_size=4).map(lambda parts: [query("BEGIN"), *flat(parts), XID])


def binlog(events: list[Event]) -> bytes:
    data = b""
    for kind, body in events:
        data += event(kind, body, 4 + len(data))
    return data


def values_of(batches) -> list[tuple[object, ...]]:
    return [
        (op, *rest) for batch in batches for op, _, *rest in zip(*(c.to_pylist() for c in batch.columns), strict=True)
    ]


def both(data: bytes, table: TableId, start: int, size: int, schema: TableSchema = SCHEMA):
    decoded = decode_range(data, True, {table: schema}, {table: start})
    held = rawrows.extract(data, True, table, rawrows.RowSpan(start), piece_bytes=size)
    return values_of(batch for _, batch in decoded), values_of(rawrows.decode_extract(held, schema, "s1"))


@given(st.lists(TRANSACTIONS, max_size=5), st.sampled_from(TABLES), st.integers(1, 300), st.integers(0, 20))
def test_the_extract_gives_the_rows_of_the_range(transactions, table, size, before) -> None:
    data = binlog(flat(transactions))
    start = 4 + len(binlog(flat(islice(transactions, before))))
    for position in (-1, start, start - 1):
        decoded, held = both(data, table, position, size)
        assert held == decoded
        spans = rawrows.RowSpan(until=position), rawrows.RowSpan(position)
        parts = [rawrows.decode_extract(rawrows.extract(data, True, table, span), SCHEMA, "s1") for span in spans]
        assert [row for part in parts for row in values_of(part)] == both(data, table, -1, size)[0]


def test_a_contradiction_begins_at_the_end_of_the_last_transaction_before_it() -> None:
    wide = (E.TABLE_MAP, table_map(8, TABLES[0])[1][:-5] + b"\3\3\3\3\0\2")
    fits = [query("BEGIN"), table_map(7, TABLES[0]), rows(7, E.WRITE_ROWS_V1, 1), XID]
    differs = [query("BEGIN"), table_map(9, TABLES[1]), wide, rows(9, E.WRITE_ROWS_V1, 1), rows(8, E.WRITE_ROWS_V1, 1)]
    undone = [query("BEGIN"), wide, query("SAVEPOINT s"), rows(8, E.WRITE_ROWS_V1, 1), query("ROLLBACK TO s"), XID]
    wanted = dict.fromkeys(TABLES, SCHEMA)
    for contradicts in ([*differs, XID], undone):
        data, border = binlog([*fits, *fits, *contradicts, *differs, XID]), 4 + len(binlog([*fits, *fits]))
        (found,) = rawrows.misfits(data, True, wanted, {})
        assert (found.table, found.position) == (TABLES[0], border)
        assert found.columns == "LONG, LONG, LONG" and "have 3 columns" in found.words
        assert [*rawrows.misfits(data, True, wanted, {TABLES[0]: 4 + len(data)})] == []
        (found,) = rawrows.misfits(binlog(contradicts), True, wanted, {})
        assert found.position == 4


def test_pieces_are_small_and_stand_alone() -> None:
    many = [table_map(7, TABLES[0]), *(rows(7, E.WRITE_ROWS_V1, n) for n in range(100))]
    data = binlog([query("BEGIN"), *many, XID])
    pieces = list(rawrows.extract(data, True, TABLES[0], piece_bytes=200))
    assert len(pieces) >= 20 and sum(piece["count"][0].as_py() for piece in pieces) == 100
    (last,) = values_of(rawrows.decode_extract(pieces[-1:], SCHEMA, "s1"))[-1:]
    assert last == (0, b"99", b"99")
    assert list(rawrows.extract(data, True, TABLES[1])) == []


def test_a_structure_that_the_rows_cannot_have_is_found_without_reading_them() -> None:
    data = binlog([query("BEGIN"), table_map(7, TABLES[0]), rows(7, E.WRITE_ROWS_V1, 1), XID])
    pieces = [piece.drop_columns(["events"]) for piece in rawrows.extract(data, True, TABLES[0])]
    assert pieces[0].schema.names == list(rawrows.WITHOUT_EVENTS)
    assert rawrows.misfit(pieces, SCHEMA, "s1") == ""
    assert "2" in rawrows.misfit(pieces, structure("id! int"), "s1")
    assert "a" in rawrows.misfit(pieces, structure("id! int", "a varchar(9); latin1"), "s1")
    with pytest.raises(ColumnCountDiffers):
        both(data, TABLES[0], -1, 1, structure("id! int"))


@pytest.mark.parametrize(
    ("events", "error"),
    [([rows(7, E.WRITE_ROWS_V1, 1)], RowsWithoutTable), ([(E.TABLE_MAP, b"\7\0\0\0\0\0\1\0\1")], DamagedEvent)],
)
def test_what_contradicts_itself_is_not_held(events: list[Event], error: type[Exception]) -> None:
    with pytest.raises(error):
        list(rawrows.extract(binlog([query("BEGIN"), *events, XID]), True, TABLES[0]))
