"""Where transactions end, and what inside them was rolled back.

A QUERY event is transaction control, a statement of its own (DDL, or anything that moves no rows), or
rows changed by a statement, which cannot be followed. Rows behind a SAVEPOINT stay in the binlog when a
table without transactions was changed too: ROLLBACK TO then follows them, and they must not be applied.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto

from unshard.binlog.events import QUERIES, Buffer, EventType, Frame, Opened, read_query
from unshard.binlog.gtids import GTIDS
from unshard.errors.relay import UnsupportedEvent

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
    XA = auto()
    DML = auto()
    STATEMENT = auto()


def classify(text: bytes) -> tuple[Kind, str]:
    """Return what a query is, and the savepoint's name if it is about one."""
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
            return Kind.XA, ""
        case _:
            return Kind.STATEMENT, ""


def _savepoint(text: bytes) -> tuple[Kind, str]:
    found = _SAVEPOINT.match(text.strip())
    if not found:
        return Kind.ROLLBACK, ""
    name = found[2].strip().strip(b"`").decode("utf-8", "replace").casefold()
    return (Kind.SAVEPOINT if found[1].upper() == b"SAVEPOINT" else Kind.ROLLBACK_TO), name


@dataclass(frozen=True, slots=True)
class Survey:
    """What a range's transactions mean for its events, by event number."""

    undone: frozenset[int]
    """Events whose rows were rolled back."""
    ends: tuple[int, ...]
    """Position in the binlog file behind the transaction of each event."""


def survey(events: Iterable[Opened], file: str) -> Survey:
    """Find the transactions of a range; a transaction that is cut by the range's end ends with it."""
    undone: set[int] = set()
    ends: list[int] = []
    savepoints: dict[str, int] = {}
    number = position = -1
    for number, (frame, body, end) in enumerate(events):
        position = end
        if frame.type in GTIDS:
            savepoints.clear()
        kind, name = _control(body, frame, file)
        match kind:
            case Kind.SAVEPOINT:
                savepoints[name] = number
            case Kind.ROLLBACK_TO:
                if name not in savepoints:
                    raise UnsupportedEvent(f"{file}:{end}", f"a rollback to savepoint {name} before a statement")
                undone.update(range(savepoints[name], number))
            case Kind.ROLLBACK:
                undone.update(range(len(ends), number))
        if kind in (Kind.COMMIT, Kind.ROLLBACK):
            ends += [position] * (number + 1 - len(ends))
    ends += [position] * (number + 1 - len(ends))
    return Survey(frozenset(undone), tuple(ends))


def _control(body: Buffer, frame: Frame, file: str) -> tuple[Kind | None, str]:
    if frame.type == EventType.XID:
        return Kind.COMMIT, ""
    if frame.type not in QUERIES:
        return None, ""
    return classify(read_query(body, frame, f"{file}:{frame.end}").text)
