"""Damaged bytes result in rows or in a coded error, never in another exception or an endless loop."""

import zlib
from random import Random

import pytest

from tests.binlogs import SOURCE, end_of, schema_of
from tests.suite.portions import portion
from unshard.adapters.relayfiles import RelayStore
from unshard.binlog.decoder import RangeOrigin, decode_range
from unshard.binlog.events import CHECKSUM, HEADER, ROWS, EventType, read_frame
from unshard.binlog.transactions import STATEMENT_ENDS
from unshard.core.model import TableId
from unshard.errors import UnshardError
from unshard.units.relay.pull import pull

pytestmark = pytest.mark.integration
COLUMNS = """id int primary key, a bigint unsigned, b decimal(20,5) not null, c float, d double, e char(10),
    f varchar(300), g binary(5), h mediumblob, i date, j datetime(6), k timestamp(3) null, l time(2), m year,
    n enum('a','b'), o set('x','y'), p bit(11), q text charset latin1, r uuid, s inet6, t mediumint, u geometry,
    v int zerofill, w int as (a + 1) virtual"""
VALUES = """7, 1.5, 1.5, 2.5, 'e', 'ffff', 'g', 'h', '2024-05-06', '2024-05-06 07:08:09.123456',
    '2024-05-06 07:08:09.123', '-1:2:3.4', 2024, 'b', 'x,y', 5, 'ü', uuid(), '::1', -5, point(1, 2), 12"""
TRIALS = portion(0, 500, 20_000)
NAMES = "id,a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q,r,s,t,u,v"


@pytest.fixture(scope="module")
def damaged(source_1, tmp_path_factory):
    """Rows of many types, and the bytes of the range that holds them."""
    begins, table = end_of(source_1), TableId("damage", "t")
    source_1.run(
        "CREATE DATABASE damage",
        f"CREATE TABLE damage.t({COLUMNS})",
        *(f"INSERT INTO damage.t({NAMES}) VALUES ({n}, {VALUES})" for n in range(4)),
        "UPDATE damage.t SET f=NULL",
        "DELETE FROM damage.t WHERE id=2",
    )
    store = RelayStore(tmp_path_factory.mktemp("relay"))
    pull(SOURCE, source_1.server, store, begins)
    segment = store.segments(SOURCE)[-1]
    part = segment.ranges[0]
    found = store.read(SOURCE, segment.name, part.start, part.end)
    return bytes(found.data), {table: schema_of(source_1, table)}


def with_checksums(data: bytearray) -> bytes:
    """Correct every event's checksum, as far as the events can still be separated."""
    offset = 0
    while offset + 19 < len(data):
        size = read_frame(data, offset).size
        if size < 23 or offset + size > len(data):
            break
        crc = zlib.crc32(data[offset : offset + size - CHECKSUM])
        data[offset + size - CHECKSUM : offset + size] = crc.to_bytes(4, "little")
        offset += size
    return bytes(data)


def rows_of(data: bytes, wanted) -> list[dict]:
    return [
        row
        for _, batch in decode_range(data, True, wanted, {}, RangeOrigin(SOURCE, "f", 4))
        for row in batch.to_pylist()
    ]


def test_flipped_bytes(damaged):
    data, wanted = damaged
    whole = rows_of(data, wanted)
    assert len(whole) == 4 + 8 + 1
    random, errors = Random(11), 0
    for _ in range(TRIALS):
        mangled = bytearray(data)
        for _ in range(random.choice((1, 1, 1, 2, 8))):
            mangled[random.randrange(len(data))] = random.randrange(256)
        try:
            rows_of(with_checksums(mangled), wanted)
        except UnshardError as error:
            assert str(error).startswith("[US-3")
            errors += 1
    assert TRIALS / 4 < errors < TRIALS


def test_without_a_right_checksum_nothing_passes(damaged):
    data, wanted = damaged
    random = Random(12)
    for _ in range(300):
        mangled = bytearray(data)
        mangled[random.randrange(len(data))] ^= 1 << random.randrange(8)
        with pytest.raises(UnshardError):
            rows_of(bytes(mangled), wanted)


def test_cut_off_bytes(damaged):
    data, wanted = damaged
    borders, is_open, offset = {0}, False, 0
    while offset < len(data):
        frame = read_frame(data, offset)
        if frame.type in ROWS:
            is_open = not data[offset + HEADER + 6] & STATEMENT_ENDS
        elif frame.type == EventType.TABLE_MAP:
            is_open = True
        offset += frame.size
        borders |= set() if is_open else {offset}
    for end in range(len(data)):
        if end in borders:
            rows_of(data[:end], wanted)
        else:
            with pytest.raises(UnshardError):
                rows_of(data[:end], wanted)
