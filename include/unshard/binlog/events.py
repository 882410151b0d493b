"""Binlog events: their common frame, their types, and the bodies that define where transactions end.

Every type that a supported server writes is listed, and all others are refused. Silently skipping a type would lose
rows (compressed events, transaction payloads).

**Session settings** that the meaning of DDL depends on are read from a QUERY event.
The event contains only the settings that the server's replicas would apply. The names are those of the SET statement.
Collations and the language of dates are numbers, which SET accepts too.

**Checksums**: the CRC32 of all events of a range are verified in one pass over its bytes.
Each event ends with its own CRC. So after each intact event the CRC register has the same value, whatever the event
contains. The effect of that value at the end of the range depends only on the number of bytes after it. Therefore the
CRC of the whole range can be computed in advance, and a damaged event changes it as reliably as its own CRC. A byte
changes the register by a linear map, which is stored as tables for one step of 4096 bytes.
"""

import re
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import NamedTuple
from zlib import crc32

import numpy as np
import numpy.typing as npt

from unshard.binlog.values import unzipped
from unshard.core.relay.segment import Statement
from unshard.core.sql.charsets import charset_of, decode
from unshard.core.sql.mode import from_mysql
from unshard.errors.relay import DamagedEvent, UnknownEvent, UnsupportedEvent

# --- session settings ---

FLAGS, CHARSETS, LANGUAGE, MICROSECONDS, TIMESTAMPS, DEFAULT_UTF8MB4 = 0, 4, 7, 13, 16, 18
FRACTION, COLLATIONS = 128, 131
NO_CHECKS, EXPLICIT, IF_EXISTS = 1 << 15, 1 << 24, 1 << 28
FLAGGED_SINCE = (10, 8, 4)
"""Since this version a MariaDB session can set explicit_defaults_for_timestamp, and the flags contain it."""


def session_of(variables: Mapping[int, bytes], server_version: str) -> tuple[tuple[str, int], ...]:
    """Return names and values of the session's variables; `variables` are the event's by code."""
    found: dict[str, int] = {}
    if collations := variables.get(CHARSETS):
        _, found["collation_connection"], found["collation_server"] = _numbers(collations)
    if language := variables.get(LANGUAGE):
        (found["lc_time_names"],) = _numbers(language)
    of_mariadb = is_mariadb(server_version)
    flags = int.from_bytes(variables.get(FLAGS, b""), "little")
    if of_mariadb and _version(server_version) >= FLAGGED_SINCE:
        found["explicit_defaults_for_timestamp"] = int(bool(flags & EXPLICIT))
    elif TIMESTAMPS in variables:
        found["explicit_defaults_for_timestamp"] = variables[TIMESTAMPS][0]
    if of_mariadb and flags & NO_CHECKS:
        found["check_constraint_checks"] = 0
    if of_mariadb and flags & IF_EXISTS:
        found["sql_if_exists"] = 1
    return tuple(sorted(found.items()))


def is_mariadb(server_version: str) -> bool:
    """Whether a server with this version string is a MariaDB."""
    return "mariadb" in server_version.lower()


def fraction_of(variables: Mapping[int, bytes]) -> int:
    """Return the microseconds of the statement's time, 0 if the event has none."""
    return int.from_bytes(variables.get(FRACTION, variables.get(MICROSECONDS, b"")), "little")


def collations_of(variables: Mapping[int, bytes]) -> tuple[int, ...]:
    """Return the numbers of `character_set_collations` (MariaDB 11.3) and `default_collation_for_utf8mb4` (MySQL 8).

    A character set that a statement names without a collation has one of them. MariaDB's event contains pairs of
    numbers: the default collation that is compiled into the server, and the collation that the session uses instead.
    """
    pairs = _numbers(variables.get(COLLATIONS, b"\0")[1:])
    return (*pairs[1::2], *_numbers(variables.get(DEFAULT_UTF8MB4, b"")))


def _numbers(data: bytes) -> tuple[int, ...]:
    return tuple(int.from_bytes(data[at : at + 2], "little") for at in range(0, len(data), 2))


def _version(text: str) -> tuple[int, ...]:
    # MariaDB may report 5.5.5-10.11.6-MariaDB, for compatibility with old replicas.
    numbers = re.findall(r"(\d+)\.(\d+)\.(\d+)", text)
    return tuple(map(int, numbers[-1])) if numbers else ()


# --- events ---

MAGIC = b"\xfebin"
HEADER = 19
CHECKSUM = 4
ARTIFICIAL = 0x20
MOST_BYTES = (1 << 30) + (1 << 20)
"""No event is larger, also not decompressed: max_allowed_packet of a server and its replicas is at most 1 GiB."""
_FRAME = struct.Struct("<IBIIIH")
_QUERY = struct.Struct("<IIBHH")
_LOAD_FIELDS = 13
"""Bytes of EXECUTE_LOAD_QUERY about its file, after those that it has in common with QUERY."""
SCHEMAS = 12
"""Status variable: MySQL lists the schemas of all tables that a statement uses."""
UNREADABLE = "\ufffd"
_FILE = re.compile(r"[^/\0\ufffd]+\.[0-9]{1,18}", re.ASCII)
"""Names of binlog files. They are a part of the names of segments."""
Buffer = bytes | memoryview
MARIADB_COMMENT = "/*M!"


class EventType(IntEnum):
    """Type numbers in the frame; compressed types belong to MariaDB's log_bin_compress."""

    START_V3 = 1
    QUERY = 2
    STOP = 3
    ROTATE = 4
    INTVAR = 5
    APPEND_BLOCK = 9
    DELETE_FILE = 11
    RAND = 13
    USER_VAR = 14
    FORMAT_DESCRIPTION = 15
    XID = 16
    BEGIN_LOAD_QUERY = 17
    EXECUTE_LOAD_QUERY = 18
    TABLE_MAP = 19
    WRITE_ROWS_V1 = 23
    UPDATE_ROWS_V1 = 24
    DELETE_ROWS_V1 = 25
    INCIDENT = 26
    HEARTBEAT = 27
    ROWS_QUERY = 29
    WRITE_ROWS_V2 = 30
    UPDATE_ROWS_V2 = 31
    DELETE_ROWS_V2 = 32
    GTID_MYSQL = 33
    ANONYMOUS_GTID_MYSQL = 34
    PREVIOUS_GTIDS_MYSQL = 35
    VIEW_CHANGE = 37
    XA_PREPARE = 38
    PARTIAL_UPDATE_ROWS = 39
    TRANSACTION_PAYLOAD = 40
    HEARTBEAT_V2 = 41
    GTID_TAGGED_MYSQL = 42
    ANNOTATE_ROWS = 160
    BINLOG_CHECKPOINT = 161
    GTID = 162
    GTID_LIST = 163
    START_ENCRYPTION = 164
    QUERY_COMPRESSED = 165
    WRITE_ROWS_COMPRESSED_V1 = 166
    UPDATE_ROWS_COMPRESSED_V1 = 167
    DELETE_ROWS_COMPRESSED_V1 = 168
    WRITE_ROWS_COMPRESSED = 169
    UPDATE_ROWS_COMPRESSED = 170
    DELETE_ROWS_COMPRESSED = 171
    PARTIAL_ROW_DATA = 172


E = EventType
QUERIES = frozenset((E.QUERY, E.QUERY_COMPRESSED, E.EXECUTE_LOAD_QUERY))
INSERTS = frozenset((E.WRITE_ROWS_V1, E.WRITE_ROWS_V2, E.WRITE_ROWS_COMPRESSED_V1, E.WRITE_ROWS_COMPRESSED))
UPDATES = frozenset(
    (E.UPDATE_ROWS_V1, E.UPDATE_ROWS_V2, E.UPDATE_ROWS_COMPRESSED_V1, E.UPDATE_ROWS_COMPRESSED, E.PARTIAL_UPDATE_ROWS)
)
DELETES = frozenset((E.DELETE_ROWS_V1, E.DELETE_ROWS_V2, E.DELETE_ROWS_COMPRESSED_V1, E.DELETE_ROWS_COMPRESSED))
ROWS = INSERTS | UPDATES | DELETES
COMPRESSED_ROWS = frozenset(range(E.WRITE_ROWS_COMPRESSED_V1, E.DELETE_ROWS_COMPRESSED + 1))
EXTRA_ROWS = frozenset(
    (
        E.WRITE_ROWS_V2,
        E.UPDATE_ROWS_V2,
        E.DELETE_ROWS_V2,
        E.WRITE_ROWS_COMPRESSED,
        E.UPDATE_ROWS_COMPRESSED,
        E.DELETE_ROWS_COMPRESSED,
        E.PARTIAL_UPDATE_ROWS,
    )
)
"""Row events of version 2: their post header contains a block of extra bytes."""
STATEMENT_CONTEXT = frozenset((E.INTVAR, E.RAND, E.USER_VAR, E.BEGIN_LOAD_QUERY, E.APPEND_BLOCK, E.DELETE_FILE))
"""Values, and the file of LOAD DATA, that a change of rows uses that was logged as a statement."""
COMMENTS = frozenset((E.ANNOTATE_ROWS, E.ROWS_QUERY, E.VIEW_CHANGE))
"""Events inside transactions without information about rows: the text of a statement, a new member of a group."""
BETWEEN = frozenset((E.FORMAT_DESCRIPTION, E.GTID_LIST, E.PREVIOUS_GTIDS_MYSQL, E.BINLOG_CHECKPOINT, E.STOP, E.ROTATE))
"""Control events between transactions."""
REFUSED = {
    E.START_V3: "a binlog of MySQL before 5.0",
    E.INCIDENT: "an incident (the source lost events)",
    E.START_ENCRYPTION: "encrypted events",
    E.HEARTBEAT: "a heartbeat among its events",
    E.HEARTBEAT_V2: "a heartbeat among its events",
}
"""Known types that unshard cannot follow, with their names for messages."""

# Post-header lengths that this package relies on; a server with other lengths is refused. MySQL 8.4 announces length 0
# for version 1 row events, because it no longer writes them.
POST_HEADERS = {
    E.QUERY: (13,),
    E.TABLE_MAP: (8,),
    E.WRITE_ROWS_V1: (0, 8),
    E.UPDATE_ROWS_V1: (0, 8),
    E.DELETE_ROWS_V1: (0, 8),
    E.WRITE_ROWS_V2: (0, 10),
    E.UPDATE_ROWS_V2: (0, 10),
    E.DELETE_ROWS_V2: (0, 10),
    E.PARTIAL_UPDATE_ROWS: (0, 10),
}


class Frame(NamedTuple):
    """The 19-byte header of every event."""

    time: int
    type: int
    server_id: int
    size: int
    end: int
    """Position in the binlog file after the event. 0 for events that are not in a file, and since MariaDB 11.7 for
    events inside a transaction (`binlog_legacy_event_pos` is off there); the next event with a position covers them."""
    flags: int


ADMITTED = frozenset(set(EventType) - REFUSED.keys())
"""Types of events that unshard can follow."""
WRONG_CHECKSUM = "its checksum is wrong"
Opened = tuple[Frame, Buffer, int]
"""A decoded event: frame, body without checksum, and the position in the binlog file after it."""


@dataclass(frozen=True, slots=True)
class Format:
    """The content of a FORMAT_DESCRIPTION event about its file."""

    server_version: str
    created: int
    """Time stamp of the event; with the server id it distinguishes two files of the same name."""
    server_id: int
    checksum: bool

    @property
    def fingerprint(self) -> str:
        """Return a text that distinguishes two binlog files of the same name."""
        return f"server_id={self.server_id} created={self.created} version={self.server_version}"


@dataclass(frozen=True, slots=True)
class Query:
    """A QUERY event whose text has not been decoded yet."""

    text: bytes
    schema: str
    charset: str
    sql_mode: int
    time_zone: str
    time: int
    variables: Mapping[int, bytes]
    """All status variables by code."""

    def statement(self, place: str, server_version: str = "") -> Statement:
        """Return the statement in the form that planning and DDL use."""
        try:
            text = self._decoded()
        except UnicodeDecodeError as error:
            raise DamagedEvent(place, f"the statement is not valid {self.charset}: {error}") from error
        charset = self.charset or "utf8mb4"
        session = session_of(self.variables, server_version)
        mode = self._mode(server_version)
        is_mysql = server_version != "" and not is_mariadb(server_version)
        if is_mysql and MARIADB_COMMENT in text:
            # MySQL did not run it. Imported here, because executors import this module and need no tokenizer.
            from unshard.core.sql.tokens import Dialect, expand_comments

            text = expand_comments(text, mode, Dialect(mariadb=False))
        return Statement(
            text,
            self.schema,
            mode,
            charset,
            self.time,
            self.time_zone,
            fraction_of(self.variables),
            session,
            collations=collations_of(self.variables),
        )

    def change(self, server_version: str = "") -> Statement:
        """Return a change of rows without its values: only its names matter, and equal changes are equal."""
        # Imported here, because executors import this module and need no tokenizer.
        from unshard.core.sql.tokens import Dialect, without_values

        try:
            text = self._decoded()
        except UnicodeDecodeError:
            # Binary values are no text. In other character sets a part of a character may look like a quote.
            is_plain = self.charset.startswith(("utf8", "latin", "binary")) or not self.charset
            text = self.text.decode("utf-8", "replace") if is_plain else UNREADABLE
        mode = self._mode(server_version)
        dialect = Dialect(mariadb=not server_version or is_mariadb(server_version))
        used = self.variables.get(SCHEMAS, b"")
        return Statement(
            without_values(text, mode, dialect),
            self.schema,
            mode,
            self.charset or "utf8mb4",
            0,
            "",
            uses=tuple(name.decode("utf-8", "replace") for name in used[1:].split(b"\0")[:-1]),
        )

    def _decoded(self) -> str:
        # With SET NAMES binary, which loaders use, names and comments are read as UTF-8.
        return decode(self.text, "utf8mb4" if self.charset in ("", "binary") else self.charset)

    def _mode(self, server_version: str) -> int:
        return self.sql_mode if not server_version or is_mariadb(server_version) else from_mysql(self.sql_mode)


def read_frame(data: Buffer, offset: int = 0) -> Frame:
    """Read the frame at `offset`; struct.error if it is cut off."""
    return Frame._make(_FRAME.unpack_from(data, offset))


def is_artificial(frame: Frame) -> bool:
    """Whether the server created the event for its reader, so that it is not in a file."""
    if frame.flags & ARTIFICIAL or (frame.type == E.ROTATE and frame.time == 0):
        return True
    return frame.end == 0 and frame.type in BETWEEN


def write_frame(frame: Frame, body: Buffer, end: int) -> bytes:
    """Return the frame of an event without checksum that ends at this position of its file."""
    return _FRAME.pack(frame.time, frame.type, frame.server_id, HEADER + len(body), end & 0xFFFFFFFF, frame.flags)


def walk(data: Buffer, checksum: bool, place: str) -> Iterator[tuple[int, Frame]]:
    """Yield (offset, frame) of all events of a buffer; raises if they do not fill it exactly or are damaged."""
    offset, length = 0, len(data)
    shortest = HEADER + (CHECKSUM if checksum else 0)
    while offset < length:
        if length - offset < shortest:
            raise DamagedEvent(place, f"{length - offset} bytes are left at offset {offset}, too few for an event")
        frame = read_frame(data, offset)
        if not shortest <= frame.size <= length - offset:
            raise DamagedEvent(f"{place}:{frame.end}", f"size {frame.size} at offset {offset} of {length}")
        if checksum and not is_whole(data[offset : offset + frame.size]):
            raise DamagedEvent(f"{place}:{frame.end}", WRONG_CHECKSUM)
        yield offset, frame
        offset += frame.size


def is_whole(event: Buffer) -> bool:
    """Whether the CRC32 at the end of an event is correct."""
    return zlib.crc32(event[:-CHECKSUM]) == int.from_bytes(event[-CHECKSUM:], "little")


def verify(event: Buffer, place: str) -> None:
    """Verify the CRC32 at the end of an event."""
    if not is_whole(event):
        raise DamagedEvent(place, WRONG_CHECKSUM)


def admit(frame: Frame, place: str) -> EventType:
    """Return the type of an event that unshard can follow; raises for all others."""
    try:
        kind = EventType(frame.type)
    except ValueError:
        raise UnknownEvent(place, frame.type) from None
    if kind in REFUSED:
        raise UnsupportedEvent(place, REFUSED[kind])
    return kind


def read_format(event: Buffer, place: str) -> Format:
    """Read a whole FORMAT_DESCRIPTION event (with frame), which always contains a checksum algorithm byte."""
    frame = read_frame(event)
    body = bytes(event[HEADER:])
    if frame.type != E.FORMAT_DESCRIPTION or len(body) < 57 + E.TABLE_MAP + 5 or body[:2] != b"\x04\x00":
        raise DamagedEvent(place, "no FORMAT_DESCRIPTION event of binlog version 4")
    lengths = body[57:-5]
    for kind, allowed in POST_HEADERS.items():
        found = lengths[kind - 1] if kind <= len(lengths) else 0
        if found not in allowed:
            raise UnsupportedEvent(place, f"post headers of {found} bytes for {kind.name}")
    version = body[2:52].split(b"\0")[0].decode("ascii", "replace")
    return Format(version, frame.time, frame.server_id, body[-5] == 1)


def read_rotate(body: Buffer, place: str) -> tuple[str, int]:
    """Return the file and position that a ROTATE event names."""
    name = bytes(body[8:]).decode("utf-8", "replace")
    if not _FILE.fullmatch(name):
        raise DamagedEvent(place, f"a ROTATE event names the file {name!a}")
    return name, int.from_bytes(body[:8], "little")


def read_query(body: Buffer, frame: Frame, place: str) -> Query:
    """Read a QUERY, QUERY_COMPRESSED or EXECUTE_LOAD_QUERY event."""
    try:
        return _read_query(bytes(body), frame, place)
    except (struct.error, LookupError, ValueError) as error:
        raise DamagedEvent(place, f"unreadable QUERY event: {error!r}") from error


def _read_query(body: bytes, frame: Frame, place: str) -> Query:
    if frame.type == E.EXECUTE_LOAD_QUERY:
        body = body[: _QUERY.size] + body[_QUERY.size + _LOAD_FIELDS :]
    _, _, schema_size, _, variables_size = _QUERY.unpack_from(body)
    start = _QUERY.size + variables_size
    variables = _status_variables(body[_QUERY.size : start], place)
    end = start + schema_size
    if end >= len(body) or body[end]:
        raise DamagedEvent(place, "the schema of a QUERY event is cut off")
    text = body[end + 1 :]
    if frame.type == E.QUERY_COMPRESSED:
        text = inflate(text, place)
    client = variables.get(4, b"")
    charset = charset_of(int.from_bytes(client[:2], "little")) if client else ""
    zone = variables.get(5, b"")[1:].decode("ascii")
    mode = int.from_bytes(variables.get(1, b""), "little")
    return Query(text, body[start:end].decode(), charset, mode, zone, frame.time, variables)


# Sizes of status variables by code: a number of bytes, or how to determine it.
_COUNTED = -1  # one byte with the length, then that many bytes
_VARIABLES = {
    0: 4,
    1: 8,
    3: 4,
    4: 6,
    5: _COUNTED,
    6: _COUNTED,
    7: 2,
    8: 2,
    9: 8,
    10: 4,
    13: 3,
    16: 1,
    17: 8,
    18: 2,
    19: 1,
    20: 1,
    21: 1,
    128: 3,
    129: 8,
}


def _status_variables(data: bytes, place: str) -> dict[int, bytes]:
    found, offset = {}, 0
    while offset < len(data):
        code = data[offset]
        size = _variable_size(data, offset + 1, code, place)
        if offset + 1 + size > len(data):
            raise DamagedEvent(place, f"status variable {code} of a QUERY event is cut off")
        found[code] = data[offset + 1 : offset + 1 + size]
        offset += 1 + size
    return found


def _variable_size(data: bytes, offset: int, code: int, place: str) -> int:
    match code:
        case 131:  # pairs of numbers, counted
            return 1 + 4 * data[offset]
        case 2:  # catalog of MySQL 5.0: counted, and a zero byte
            return data[offset] + 2
        case 11:  # invoker: user and host
            user = data[offset]
            return user + data[offset + 1 + user] + 2
        case 12:  # names of schemas, each ended by a zero byte; 254 means too many names to list
            end = offset + 1
            for _ in range(data[offset] if data[offset] != 254 else 0):
                end = data.index(0, end) + 1
            return end - offset
        case 130:  # MariaDB's flags of a two-phase ALTER, and its sequence number
            return 9 if data[offset] & 0x0C else 1
        case _ if code in _VARIABLES:
            size = _VARIABLES[code]
            return data[offset] + 1 if size == _COUNTED else size
        case _:
            raise DamagedEvent(place, f"unknown status variable {code} of a QUERY event")


def inflate(data: bytes, place: str) -> bytes:
    """Decompress the compressed part of an event of MariaDB's log_bin_compress."""
    count = data[0] & 7 if data else 0
    if not data or data[0] & 0x70 or not 1 <= count <= 4:
        raise DamagedEvent(place, "unknown compression")
    size = int.from_bytes(data[1 : 1 + count], "big")
    if size > MOST_BYTES:
        raise DamagedEvent(place, f"it would have {size} bytes, {MOST_BYTES} are allowed")
    try:
        return unzipped(data[1 + count :], size)
    except ValueError as error:
        raise DamagedEvent(place, str(error)) from error


# --- checksums of a range ---

Words = npt.NDArray[np.uint32]
RESIDUE = crc32(bytes(4) + crc32(bytes(4)).to_bytes(4, "little"))
"""The CRC32 of any bytes that are followed by their own CRC32."""
STEP_BITS = 12
STEP = 1 << STEP_BITS


def are_whole(data: bytes | memoryview, ends: npt.NDArray[np.int64]) -> bool:
    """Whether the CRC32 at the end of every event is correct; `ends` are the offsets after the events."""
    return crc32(data) == _expected(ends)


def _expected(ends: npt.NDArray[np.int64]) -> int:
    remaining = ends[-1] - ends[:-1]
    if not len(remaining):
        return RESIDUE
    moved, (first, second, third, fourth) = _moved(), _step()
    steps = remaining >> STEP_BITS
    borders = np.append(True, steps[1:] != steps[:-1]).nonzero()[0]
    sums = np.bitwise_xor.reduceat(moved[remaining & (STEP - 1)], borders).tolist()
    register, at = 0, int(steps[0])
    for step, part in zip(steps[borders].tolist(), sums, strict=True):
        for _ in range(at - step):
            register = (
                first[register & 255]
                ^ second[register >> 8 & 255]
                ^ third[register >> 16 & 255]
                ^ fourth[register >> 24]
            )
        register, at = register ^ part, step
    for _ in range(at):
        register = (
            first[register & 255] ^ second[register >> 8 & 255] ^ third[register >> 16 & 255] ^ fourth[register >> 24]
        )
    return RESIDUE ^ register


@cache
def _byte() -> Words:
    """Return the effect of one zero byte on a register, by the register's lowest byte."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, table >> 1 ^ np.uint32(0xEDB88320), table >> 1).astype(np.uint32)
    return table


@cache
def _moved() -> Words:
    """Return, for 0 to 4095 further bytes, the difference between a fresh register and one after an intact event."""
    found, table = [RESIDUE], _byte().tolist()
    for _ in range(STEP - 1):
        found.append(found[-1] >> 8 ^ table[found[-1] & 255])
    return np.array(found, np.uint32)


@cache
def _step() -> tuple[list[int], ...]:
    """Return the tables of the map for 4096 bytes, one per byte of the register: the one-byte map squared 12 times."""
    digits = np.arange(256, dtype=np.uint32)
    tables = np.stack([digits << np.uint32(8 * place) for place in range(4)])
    tables = tables >> np.uint32(8) ^ _byte()[tables & 255]
    for _ in range(STEP_BITS):
        tables = (
            tables[0][tables & 255]
            ^ tables[1][tables >> 8 & 255]
            ^ tables[2][tables >> 16 & 255]
            ^ tables[3][tables >> 24]
        )
    return tuple(table.tolist() for table in tables)
