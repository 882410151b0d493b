"""Read GTIDs, find where transactions end, and which of their rows were rolled back.

A QUERY event is transaction control, a separate statement (DDL, or any statement that changes no rows), or rows changed
by a statement. unshard cannot follow the latter, so planning must know that it concerns no shard.

An XA transaction has two parts: the prepared rows, and a later COMMIT or ROLLBACK with its name. In between it locks
its rows and tables, so no event between the two affects them.

The prepared transactions are tracked across segments and pulls. Each segment's index contains the list at its end, so
no other state is needed: a pull that continues after a segment continues with its list.

Rows after a SAVEPOINT stay in the binlog if a table without transactions was changed too. Then ROLLBACK TO follows
them, and they must not be applied.

The GTIDs of MariaDB and MySQL are in the event before a transaction or a single statement.
"""

import re
import struct
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum, auto

from unshard.binlog.events import QUERIES, ROWS, Buffer, EventType, Frame, Opened, read_query
from unshard.binlog.values import uuid_text
from unshard.core.relay.gtidset import Interval
from unshard.core.relay.segment import Prepared, Segment
from unshard.errors.relay import DamagedEvent, PreparedUnseen, UnsupportedEvent

# --- GTIDs ---

E = EventType
GTIDS = frozenset((E.GTID, E.GTID_MYSQL, E.ANONYMOUS_GTID_MYSQL, E.GTID_TAGGED_MYSQL))
HISTORIES = frozenset((E.GTID_LIST, E.PREVIOUS_GTIDS_MYSQL))
_STANDALONE, _COMMIT_ID, _PREPARED, _COMPLETED = 1, 2, 0x40, 0x80
_XID = struct.Struct("<IBB")
_VOID = 2 | 8
"""START ALTER and ROLLBACK ALTER; COMMIT ALTER has the whole statement again."""
_MYSQL = struct.Struct("<B16sq")


@dataclass(frozen=True, slots=True)
class Gtid:
    """A transaction's GTID, and the flags of its event."""

    text: str
    """MariaDB's `domain-server-sequence`, MySQL's `uuid:number` or `uuid:tag:number`; empty: it is anonymous."""
    standalone: bool
    """Whether the transaction is a single statement; MySQL does not tell, and rows after a statement reopen the
    transaction."""
    prepares: bool
    """Whether it is the first part of an XA transaction; in MySQL a statement tells this."""
    is_void: bool
    """Whether the statement that follows changes nothing: the start of an ALTER in two phases, or its rollback."""


def read_gtid(body: Buffer, frame: Frame, place: str) -> Gtid:
    """Read the body of a GTID event, without its checksum."""
    try:
        match frame.type:
            case E.GTID:
                return _mariadb(body, frame)
            case E.GTID_TAGGED_MYSQL:
                return _tagged(bytes(body))
            case _:
                return _mysql(body, frame)
    except (struct.error, ValueError, IndexError) as error:
        raise DamagedEvent(place, f"unreadable GTID event: {error}") from error


def _mariadb(body: Buffer, frame: Frame) -> Gtid:
    """Read MariaDB's GTID; more flags follow the numbers of a group commit and of an XA transaction."""
    sequence, domain, flags = struct.unpack_from("<QIB", body)
    offset = 21 if flags & _COMMIT_ID else 13
    if flags & (_PREPARED | _COMPLETED):
        _, size, other = _XID.unpack_from(body, offset)
        offset += _XID.size + size + other
    extra = body[offset] if offset < len(body) else 0
    text = f"{domain}-{frame.server_id}-{sequence}"
    return Gtid(text, bool(flags & _STANDALONE), bool(flags & _PREPARED), bool(extra & _VOID))


def _mysql(body: Buffer, frame: Frame) -> Gtid:
    """Read MySQL's GTID; later fields (commit order, times, versions) vary from 5.6 to 9 and are not needed."""
    _, uuid, number = _MYSQL.unpack_from(body)
    if frame.type == E.ANONYMOUS_GTID_MYSQL:
        return Gtid("", True, False, False)
    if number <= 0:
        raise ValueError(f"transaction number {number}")
    return Gtid(f"{uuid_text(uuid).decode()}:{number}", True, False, False)


def _tagged(body: bytes) -> Gtid:
    """Read MySQL's serialized message: numbered fields, of which only the first ones are needed."""
    offset = 0
    for _ in range(3):  # version, size, last field that must be known
        _, offset = _number(body, offset)
    _, offset = _field(body, offset, 0)
    server = bytearray()
    _, offset = _field(body, offset, 1, value=False)
    for _ in range(16):
        byte, offset = _number(body, offset)
        server.append(byte)
    number, offset = _field(body, offset, 2)
    size, offset = _field(body, offset, 3)
    tag = body[offset : offset + size].decode("ascii")
    # The lowest bit of a signed number is its sign.
    if number & 1 or not number or len(tag) != size:
        raise ValueError(f"transaction number {number}, tag {tag!r}")
    return Gtid(f"{uuid_text(bytes(server)).decode()}:{tag}{':' if tag else ''}{number >> 1}", True, False, False)


def _field(body: bytes, offset: int, wanted: int, value: bool = True) -> tuple[int, int]:
    found, offset = _number(body, offset)
    if found != wanted:
        raise ValueError(f"found field {found} instead of {wanted}")
    return _number(body, offset) if value else (0, offset)


def _number(body: bytes, offset: int) -> tuple[int, int]:
    """Read an integer of variable length:

    the number of one bits at the low end of the first byte is the number of bytes after it.
    """
    first = body[offset]
    more = (~first & (first + 1)).bit_length() - 1
    whole = body[offset : offset + 1 + more]
    if len(whole) != 1 + more:
        raise ValueError("a number is cut off")
    return int.from_bytes(whole, "little") >> min(more + 1, 8), offset + 1 + more


def read_history(body: Buffer, frame: Frame, place: str) -> list[str] | dict[str, list[Interval]]:
    """Read the GTIDs of all earlier transactions from the head of a file."""
    try:
        return _list(bytes(body)) if frame.type == E.GTID_LIST else _previous(bytes(body))
    except (struct.error, ValueError, IndexError) as error:
        raise DamagedEvent(place, f"unreadable {E(frame.type).name}: {error}") from error


def _list(body: bytes) -> list[str]:
    (count,) = struct.unpack_from("<I", body)
    found = (struct.unpack_from("<IIQ", body, 4 + 16 * number) for number in range(count & 0x0FFFFFFF))
    return [f"{domain}-{server}-{sequence}" for domain, server, sequence in found]


def _previous(body: bytes) -> dict[str, list[Interval]]:
    """Read MySQL's set of GTIDs; the highest and lowest byte of the first number are 1 if there are tags."""
    (count,) = struct.unpack_from("<Q", body)
    has_tags, offset = count >> 56 == 1, 8
    found: dict[str, list[Interval]] = {}
    for _ in range(count >> 8 & (1 << 48) - 1 if has_tags else count):
        name, offset = uuid_text(body[offset : offset + 16]).decode(), offset + 16
        if has_tags:
            size, offset = _number(body, offset)
            name += f":{body[offset : offset + size].decode('ascii')}" if size else ""
            offset += size
        (intervals,) = struct.unpack_from("<Q", body, offset)
        pairs = (struct.unpack_from("<QQ", body, offset + 8 + 16 * number) for number in range(intervals))
        found[name] = [(first, end - 1) for first, end in pairs]
        offset += 8 + 16 * intervals
    return found


# --- ends of transactions ---

_LEADING = re.compile(rb"(?:\s+|/\*(?![!M]).*?\*/|/\*M?!\d*|--[ \t][^\n]*\n|#[^\n]*\n|\()*", re.DOTALL)
_WORDS = re.compile(rb"([A-Za-z]+)(?:\s+([A-Za-z]+))?")
_DML = frozenset((b"INSERT", b"UPDATE", b"DELETE", b"REPLACE", b"LOAD", b"WITH", b"SELECT", b"DO", b"CALL"))
_SET_FOR = re.compile(rb"SET\s+STATEMENT\s.*?\bFOR\s+([A-Z]+)", re.IGNORECASE | re.DOTALL)
"""MariaDB's prefix with variables for one statement."""
_TEMPORARY = re.compile(rb"(?:CREATE(?:\s+OR\s+REPLACE)?|DROP)\s+(?:/\*!\d*\s*)?TEMPORARY\b", re.IGNORECASE)
"""Such a statement does not end its transaction, which may be rolled back."""
_SAVEPOINT = re.compile(rb"(SAVEPOINT|ROLLBACK\s+(?:WORK\s+)?TO(?:\s+SAVEPOINT)?)\s+(.+)", re.IGNORECASE | re.DOTALL)


STATEMENT_ENDS = 1
"""Flag of the last row event of a statement."""
WITHIN = QUERIES | ROWS | {EventType.TABLE_MAP, EventType.PARTIAL_ROW_DATA}
"""Types that may follow a row event inside its statement; a trigger may set a savepoint."""


class StatementEnds:
    """Checks that no statement lacks its last row event. A row event with another type would be skipped otherwise."""

    def __init__(self) -> None:
        self.is_open = False
        """Whether more rows must follow."""

    def see(self, kind: int, body: Buffer, place: str) -> None:
        if kind in ROWS:
            self.is_open = not int.from_bytes(body[6:8], "little") & STATEMENT_ENDS
        elif kind == EventType.TABLE_MAP:
            self.is_open = True
        elif kind not in WITHIN:
            self.require(place)

    def require(self, place: str) -> None:
        if self.is_open:
            raise DamagedEvent(place, "the last rows of a statement are missing before it")


class QueryKind(Enum):
    """The role of a QUERY event in a transaction."""

    BEGIN = auto()
    COMMIT = auto()
    ROLLBACK = auto()
    SAVEPOINT = auto()
    ROLLBACK_TO = auto()
    XA_BEGIN = auto()
    XA_END = auto()
    XA_PREPARE = auto()
    XA_COMMIT = auto()
    XA_ROLLBACK = auto()
    XA = auto()
    """Any other statement that begins with XA."""
    DML = auto()
    """A change of rows without row events, or of a temporary table: a part of its transaction."""
    STATEMENT = auto()


_XA = re.compile(rb"XA\s+(START|BEGIN|END|COMMIT|ROLLBACK)\s+X'([0-9a-f]*)',X'([0-9a-f]*)',(\d+)\s*", re.IGNORECASE)
_XA_KINDS = {
    b"START": QueryKind.XA_BEGIN,
    b"BEGIN": QueryKind.XA_BEGIN,
    b"END": QueryKind.XA_END,
    b"COMMIT": QueryKind.XA_COMMIT,
    b"ROLLBACK": QueryKind.XA_ROLLBACK,
}
_PREPARE = struct.Struct("<?iII")
ENDS = frozenset(
    (QueryKind.COMMIT, QueryKind.ROLLBACK, QueryKind.XA_PREPARE, QueryKind.XA_COMMIT, QueryKind.XA_ROLLBACK)
)
"""Kinds that end a group of events."""


def classify(text: bytes) -> tuple[QueryKind, str]:
    """Return the kind of a query, and the name of its savepoint or XA transaction."""
    start = _LEADING.match(text)
    words = _WORDS.match(text, start.end() if start else 0)
    first = words[1].upper() if words else b""
    if first == b"SET" and (found := _SET_FOR.match(text, words.start() if words else 0)):
        first = found[1].upper()
    if first in _DML or (words and _TEMPORARY.match(text, words.start())):
        return QueryKind.DML, ""
    match first:
        case b"BEGIN" | b"COMMIT":
            return QueryKind[first.decode()], ""
        case b"SAVEPOINT" | b"ROLLBACK":
            return _savepoint(text)
        case b"XA":
            return _xa(text)
        case _:
            return QueryKind.STATEMENT, ""


def _savepoint(text: bytes) -> tuple[QueryKind, str]:
    found = _SAVEPOINT.match(text.strip())
    if not found:
        return QueryKind.ROLLBACK, ""
    name = found[2].strip().strip(b"`").decode("utf-8", "replace").casefold()
    return (QueryKind.SAVEPOINT if found[1].upper() == b"SAVEPOINT" else QueryKind.ROLLBACK_TO), name


def _xa(text: bytes) -> tuple[QueryKind, str]:
    """Parse an XA statement; servers write the identifier in only one form, whatever a client has sent."""
    found = _XA.fullmatch(text)
    if not found:
        return QueryKind.XA, ""
    gtrid, bqual, number = (part.decode().lower() for part in found.groups()[1:])
    return _XA_KINDS[found[1].upper()], _xid(gtrid, bqual, int(number))


def _xid(gtrid: str, bqual: str, number: int) -> str:
    return f"X'{gtrid}',X'{bqual}',{number}"


def read_prepare(body: Buffer, place: str) -> tuple[QueryKind, str]:
    """Read an XA_PREPARE event, which also ends a transaction that is committed in one phase."""
    try:
        one_phase, number, size, other = _PREPARE.unpack_from(body)
    except struct.error as error:
        raise DamagedEvent(place, f"unreadable XA_PREPARE: {error}") from error
    name = bytes(body[_PREPARE.size : _PREPARE.size + size + other])
    if len(name) != size + other:
        raise DamagedEvent(place, "the identifier of an XA transaction is cut off")
    return (QueryKind.COMMIT if one_phase else QueryKind.XA_PREPARE), _xid(name[:size].hex(), name[size:].hex(), number)


@dataclass(frozen=True, slots=True)
class Survey:
    """Results about the transactions of a range, by event number."""

    undone: frozenset[int]
    """Events whose rows were rolled back."""
    ends: tuple[int, ...]
    """For each event, the position in the binlog file after its transaction."""


@dataclass(frozen=True, slots=True)
class _Groups:
    """The state after some events; the current transaction begins after `ends`."""

    undone: set[int]
    ends: list[int]
    savepoints: dict[str, int]
    prepared: dict[str, list[int]]
    """Events of XA transactions that were prepared in the range, without those that were undone before."""

    def prepare(self, xid: str, number: int) -> None:
        self.prepared[xid] = [event for event in range(len(self.ends), number) if event not in self.undone]
        self.undone.update(self.prepared[xid])

    def commit(self, xid: str, position: int) -> None:
        for event in self.prepared.pop(xid, ()):
            self.undone.discard(event)
            self.ends[event] = position

    def roll_back_to(self, name: str, number: int, place: str) -> None:
        if name not in self.savepoints:
            raise UnsupportedEvent(place, f"a rollback to savepoint {name} before a statement")
        self.undone.update(range(self.savepoints[name], number))

    def end(self, number: int, position: int) -> None:
        self.ends.extend([position] * (number + 1 - len(self.ends)))


def survey(events: Iterable[Opened], file: str, committed: bool = False) -> Survey:
    """Find the transactions of a range; a transaction that is incomplete at the range's end ends there.

    The rows of an XA transaction count if it is `committed` elsewhere, or committed in the same range.
    """
    groups = _Groups(set(), [], {}, {})
    number = position = -1
    for number, (frame, body, end) in enumerate(events):
        position = end
        if frame.type in GTIDS:
            groups.savepoints.clear()
        kind, name = _control(body, frame, file)
        match kind:
            case QueryKind.SAVEPOINT:
                groups.savepoints[name] = number
            case QueryKind.ROLLBACK_TO:
                groups.roll_back_to(name, number, f"{file}:{end}")
            case QueryKind.ROLLBACK:
                groups.undone.update(range(len(groups.ends), number))
            case QueryKind.XA_PREPARE if not committed:
                groups.prepare(name, number)
            case QueryKind.XA_COMMIT:
                groups.commit(name, position)
            case QueryKind.XA_ROLLBACK:
                groups.prepared.pop(name, None)
        if kind in ENDS:
            groups.end(number, position)
    groups.end(number, position)
    return Survey(frozenset(groups.undone), tuple(groups.ends))


def _control(body: Buffer, frame: Frame, file: str) -> tuple[QueryKind | None, str]:
    if frame.type == EventType.XID:
        return QueryKind.COMMIT, ""
    if frame.type == EventType.XA_PREPARE:
        return read_prepare(body, f"{file}:{frame.end}")
    if frame.type not in QUERIES:
        return None, ""
    return classify(read_query(body, frame, f"{file}:{frame.end}").text)


REMEMBERED = 64
"""A server that was killed during XA COMMIT may have logged it and ask for it again."""


class PreparedTransactions:
    """The prepared transactions at the current point of a stream; `before` is the segment that ends at its start."""

    def __init__(self, before: Segment | None) -> None:
        # A repeated name belongs to a new transaction, because a crash rolled back the old one.
        self.open = {prepared.xid: prepared for prepared in before.open} if before else {}
        self._finished = deque(before.finished if before else (), REMEMBERED)

    @property
    def finished(self) -> tuple[str, ...]:
        return tuple(self._finished)

    def finish(self, xid: str, commits: bool, source: str, place: str) -> Prepared | None:
        """Remove a transaction from the list; None if its rows do not count, or were counted already."""
        if commits and xid not in self.open and xid not in self._finished:
            raise PreparedUnseen(source, xid, place)
        self._finished.append(xid)
        prepared = self.open.pop(xid, None)
        return prepared if commits and prepared and prepared.tables else None

    def name_segment(self, segment: str) -> None:
        """Set the segment's name, now known, in the transactions that were prepared in it."""
        self.open = {xid: named(one, segment) for xid, one in self.open.items()}


def named(prepared: Prepared, segment: str) -> Prepared:
    """Return the transaction with the segment's name, if it had none."""
    return prepared if prepared.segment else replace(prepared, segment=segment)
