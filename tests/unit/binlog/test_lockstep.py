"""The lockstep reader against the generated one: the same rows for intact events, no wrong rows for mangled ones."""

import struct
from random import Random

import pyarrow as pa
import pytest

from tests.binlogfiles import changes, event, head_of, structure, with_events
from tests.unit.binlog.test_fuzz import TABLE, TYPES, Rows, mangled
from unshard.binlog.decoder import AFTER, BEFORE, DELETE, INSERT, RangeOrigin, decode_range
from unshard.binlog.events import EventType
from unshard.binlog.lockstep import compile_lockstep, is_worth
from unshard.binlog.rowcode import compile_reader
from unshard.binlog.tablemap import read_table_map
from unshard.errors import UnshardError

E = EventType
ODD = (IndexError, ValueError, OverflowError, struct.error)
EVENTS = 30


def together(rows: Rows, events: list[bytes]):
    """Read all events with the lockstep reader; None if it finds them unusual."""
    fields = read_table_map(rows.table_map()).fields
    try:
        columns, counts = compile_lockstep(fields, rows.schema.columns, "t").read(events)
    except ODD:
        return None
    return list(zip(*(column.to_pylist() for column in columns), strict=True)), counts.tolist()


def one_by_one(rows: Rows, events: list[bytes]):
    reader = compile_reader(read_table_map(rows.table_map()).fields, rows.schema.columns, "t")
    cells, counts = [], []
    try:
        for images in events:
            before = len(cells)
            reader.read(images, 0, len(images), cells.append)
            counts.append(len(cells) - before)
        columns = zip(reader.finish, zip(*cells, strict=True), strict=True)
        columns = [finish(values).to_pylist() for finish, values in columns]
    except ODD:
        return None
    return list(zip(*columns, strict=True)), counts


@pytest.mark.parametrize("seed", range(40))
def test_whole_events(seed):
    random = Random(seed)
    rows = Rows(random)
    events = [b"".join(rows.image(rows.row()) for _ in range(random.choice((0, 1, 1, 2, 9)))) for _ in range(EVENTS)]
    found = together(rows, events)
    assert found == one_by_one(rows, events) and found is not None


@pytest.mark.parametrize("seed", range(40))
def test_mangled_events_are_read_alike_or_left_to_the_other(seed):
    random, alike = Random(seed), 0
    rows = Rows(random)
    events = [b"".join(rows.image(rows.row()) for _ in range(random.choice((1, 2)))) for _ in range(EVENTS)]
    for _ in range(25):
        place = random.randrange(EVENTS)
        changed = [*events[:place], mangled(random, events[place]), *events[place + 1 :]]
        found = together(rows, changed)
        assert found is None or found == one_by_one(rows, changed)
        alike += found is not None
    assert alike < 25


@pytest.mark.parametrize("kind", TYPES)
def test_each_type_alone_with_and_without_null(kind):
    random = Random(1)
    rows = Rows(random, (kind,))
    events = [rows.image(rows.row()) * random.choice((1, 3)) for _ in range(EVENTS)]
    assert together(rows, events) == one_by_one(rows, events)


def decoded(rows: Rows, bodies: list[tuple[EventType, bytes]]):
    data = b"".join(event(E.TABLE_MAP, rows.table_map()) + event(*body) for body in bodies) + event(E.XID, bytes(8))
    batches = [batch for _, batch in decode_range(data, False, {TABLE: rows.schema}, {}, RangeOrigin("s1", "f", 4))]
    return pa.Table.from_batches(batches).to_pydict()


def test_operations_and_order_across_events():
    random = Random(3)
    rows = Rows(random)
    wanted, bodies = [], []
    for _ in range(200):
        kind, ops = random.choice(
            (
                (E.WRITE_ROWS_V2, (INSERT,)),
                (E.DELETE_ROWS_V2, (DELETE, DELETE, DELETE)),
                (E.UPDATE_ROWS_V2, (BEFORE, AFTER, BEFORE, AFTER)),
            )
        )
        images = [rows.row() for _ in ops]
        wanted += [(op, *row) for op, row in zip(ops, images, strict=True)]
        bodies.append((kind, rows.rows_event(kind, b"".join(map(rows.image, images)))))
    found = decoded(rows, bodies)
    assert list(zip(found["_op"], *list(found.values())[2:], strict=True)) == wanted
    assert found["_seq"] == sorted(set(found["_seq"]))


def test_the_error_of_the_generated_reader_is_what_is_shown():
    rows = Rows(Random(5), ("int",))
    bodies = [(E.WRITE_ROWS_V2, rows.rows_event(E.WRITE_ROWS_V2, rows.image(rows.row()))) for _ in range(EVENTS)]
    bodies[7] = (E.WRITE_ROWS_V2, bodies[7][1][:-1])
    with pytest.raises(UnshardError, match=r"US-3021.*f:\d+"):
        decoded(rows, bodies)
    bodies[7] = (E.UPDATE_ROWS_V2, rows.rows_event(E.UPDATE_ROWS_V2, rows.image(rows.row())))
    with pytest.raises(UnshardError, match="lacks its last AFTER"):
        decoded(rows, bodies)


def test_generated_columns_and_json_are_read_too():
    schema = structure("id! int", "g int; ; virtual generated", "j json")
    head = b"\7\0\0\0\0\0\1\0\1d\0\1t\0\3\3\3\xf5\1\4\6"
    bodies = [
        (E.WRITE_ROWS_V2, b"\7\0\0\0\0\0\1\0\2\0\3\xff\0" + struct.pack("<iiI", n, -n, 3) + b"\5\7\0")
        for n in range(EVENTS)
    ]
    data = with_events(head_of("types_my97_FULL.binlog"), (E.TABLE_MAP, head), *bodies, (E.XID, bytes(8)))
    assert changes(data, "d.t", schema) == [(INSERT, (b"%d" % n, b"7")) for n in range(EVENTS)]


def test_few_or_uneven_events_are_not_worth_it():
    assert is_worth([100] * 30) and not is_worth([100] * 10) and not is_worth([10] * 40 + [100_000])
