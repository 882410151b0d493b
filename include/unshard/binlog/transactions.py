"""Where transactions end, and what inside them was rolled back.

A QUERY event is transaction control, a statement of its own (DDL, or anything that moves no rows), or
rows changed by a statement, which cannot be followed. An XA transaction has two ends: what is prepared is in the
binlog, and what is committed or rolled back later names it. Until then it holds the locks of its rows and tables, so
nothing between the two concerns them. Rows behind a SAVEPOINT stay in the binlog when a
table without transactions was changed too: ROLLBACK TO then follows them, and they must not be applied.
"""

import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto

from unshard.binlog.events import QUERIES, Buffer, EventType, Frame, Opened, read_query
from unshard.binlog.gtids import GTIDS
from unshard.errors.relay import DamagedEvent, UnsupportedEvent

_LEADING = re.compile(rb"(?:\s+|/\*(?![!M]).*?\*/|/\*M?!\d*|--[ \t][^\n]*\n|#[^\n]*\n|\()*", re.DOTALL)
_WORDS = re.compile(rb"([A-Za-z]+)(?:\s+([A-Za-z]+))?")
_DML = frozenset((b"INSERT", b"UPDATE", b"DELETE", b"REPLACE", b"LOAD", b"WITH"))
_SAVEPOINT = re.compile(rb"(SAVEPOINT|ROLLBACK\s+(?:WORK\s+)?TO(?:\s+SAVEPOINT)?)\s+(.+)", re.IGNORECASE | re.DOTALL)


class Kind(Enum):
    """What a QUERY event is to a transaction."""

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
    """Anything else that begins with this word."""
    DML = auto()
    STATEMENT = auto()


_XA = re.compile(rb"XA\s+(START|BEGIN|END|COMMIT|ROLLBACK)\s+X'([0-9a-f]*)',X'([0-9a-f]*)',(\d+)\s*", re.IGNORECASE)
_XA_KINDS = {b"START": Kind.XA_BEGIN, b"BEGIN": Kind.XA_BEGIN, b"END": Kind.XA_END, b"COMMIT": Kind.XA_COMMIT,
             b"ROLLBACK": Kind.XA_ROLLBACK}  # fmt: skip
_PREPARE = struct.Struct("<?iII")
ENDS = frozenset((Kind.COMMIT, Kind.ROLLBACK, Kind.XA_PREPARE, Kind.XA_COMMIT, Kind.XA_ROLLBACK))
"""What ends a group of events."""


def classify(text: bytes) -> tuple[Kind, str]:
    """Return what a query is, and the name of the savepoint or XA transaction that it is about."""
    start = _LEADING.match(text)
    words = _WORDS.match(text, start.end() if start else 0)
    first = words[1].upper() if words else b""
    if first in _DML:
        return Kind.DML, ""
    match first:
        case b"BEGIN" | b"COMMIT":
            return Kind[first.decode()], ""
        case b"SAVEPOINT" | b"ROLLBACK":
            return _savepoint(text)
        case b"XA":
            return _xa(text)
        case _:
            return Kind.STATEMENT, ""


def _savepoint(text: bytes) -> tuple[Kind, str]:
    found = _SAVEPOINT.match(text.strip())
    if not found:
        return Kind.ROLLBACK, ""
    name = found[2].strip().strip(b"`").decode("utf-8", "replace").casefold()
    return (Kind.SAVEPOINT if found[1].upper() == b"SAVEPOINT" else Kind.ROLLBACK_TO), name


def _xa(text: bytes) -> tuple[Kind, str]:
    """Servers write the identifier in one form only, whatever a client has sent."""
    found = _XA.fullmatch(text)
    if not found:
        return Kind.XA, ""
    gtrid, bqual, number = (part.decode().lower() for part in found.groups()[1:])
    return _XA_KINDS[found[1].upper()], _xid(gtrid, bqual, int(number))


def _xid(gtrid: str, bqual: str, number: int) -> str:
    return f"X'{gtrid}',X'{bqual}',{number}"


def read_prepare(body: Buffer, place: str) -> tuple[Kind, str]:
    """Read an XA_PREPARE event, which also ends a transaction that is committed in one phase."""
    try:
        one_phase, number, size, other = _PREPARE.unpack_from(body)
    except struct.error as error:
        raise DamagedEvent(place, f"unreadable XA_PREPARE: {error}") from error
    name = bytes(body[_PREPARE.size : _PREPARE.size + size + other])
    if len(name) != size + other:
        raise DamagedEvent(place, "the identifier of an XA transaction is cut off")
    return (Kind.COMMIT if one_phase else Kind.XA_PREPARE), _xid(name[:size].hex(), name[size:].hex(), number)


@dataclass(frozen=True, slots=True)
class Survey:
    """What a range's transactions mean for its events, by event number."""

    undone: frozenset[int]
    """Events whose rows were rolled back."""
    ends: tuple[int, ...]
    """Position in the binlog file behind the transaction of each event."""


@dataclass(frozen=True, slots=True)
class _Groups:
    """What has been found up to some event; the transaction that is not ended yet begins behind `ends`."""

    undone: set[int]
    ends: list[int]
    savepoints: dict[str, int]
    prepared: dict[str, list[int]]
    """Events of XA transactions that were prepared in the range, but for those that were undone before."""

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
    """Find the transactions of a range; a transaction that is cut by the range's end ends with it.

    Of an XA transaction the rows count if it is `committed` elsewhere, or in the same range.
    """
    groups = _Groups(set(), [], {}, {})
    number = position = -1
    for number, (frame, body, end) in enumerate(events):
        position = end
        if frame.type in GTIDS:
            groups.savepoints.clear()
        kind, name = _control(body, frame, file)
        match kind:
            case Kind.SAVEPOINT:
                groups.savepoints[name] = number
            case Kind.ROLLBACK_TO:
                groups.roll_back_to(name, number, f"{file}:{end}")
            case Kind.ROLLBACK:
                groups.undone.update(range(len(groups.ends), number))
            case Kind.XA_PREPARE if not committed:
                groups.prepare(name, number)
            case Kind.XA_COMMIT:
                groups.commit(name, position)
            case Kind.XA_ROLLBACK:
                groups.prepared.pop(name, None)
        if kind in ENDS:
            groups.end(number, position)
    groups.end(number, position)
    return Survey(frozenset(groups.undone), tuple(groups.ends))


def _control(body: Buffer, frame: Frame, file: str) -> tuple[Kind | None, str]:
    if frame.type == EventType.XID:
        return Kind.COMMIT, ""
    if frame.type == EventType.XA_PREPARE:
        return read_prepare(body, f"{file}:{frame.end}")
    if frame.type not in QUERIES:
        return None, ""
    return classify(read_query(body, frame, f"{file}:{frame.end}").text)
