"""The part of a DDL's effect that its text does not show: it depends on the session, the server or the row.

Two DDLs agree only if their sessions have the same effect. A session decides in two ways. It decides on the structure:
the statement is tried in its own session and in one that no shard has, and the lines of SHOW CREATE TABLE are compared.
It decides on stored values, which a trial on an empty table does not show:

| values                                                       | the part of the session that decides           |
|--------------------------------------------------------------|------------------------------------------------|
| from TIMESTAMP to another type, or from one to TIMESTAMP     | time zone                                      |
| with fewer digits of a second, also from text and numbers    | sql_mode: rounded or cut                       |
| from TIME to a type with a date                              | the date of the statement                      |
| dates that do not exist, or with a month or day of 0         | sql_mode: kept or zero                         |
| of CHAR in another type                                      | PAD_CHAR_TO_FULL_LENGTH                        |
| of a column that gets AUTO_INCREMENT                         | NO_AUTO_VALUE_ON_ZERO                          |
| of a new column whose default is an expression with times    | time zone, language of dates                   |
| of a new binary column with a text as default                | character set                                  |

The result is a comment at the end of the fingerprint. Texts without such a comment have one effect in all sessions.
A strict mode decides nothing: it rejects what other modes change. So a lock executes its DDL in a strict mode only if
all of its shards have run it in one.

A new column may also get other values on each server: the rows of a shard get them from the shard, the rows of the
target from the target. It is unknown which row of the target belongs to which shard, so only a change on the shards can
correct the values (`filled_by_each`):

| the column                                        | values in existing rows                       |
|---------------------------------------------------|-----------------------------------------------|
| DEFAULT CURRENT_TIMESTAMP, UUID(), RAND(), …      | the time of the DDL, or a value for each row  |
| TIMESTAMP without a default, with                 | the time of the DDL                           |
| explicit_defaults_for_timestamp off               |                                               |
| changed to TIMESTAMP NOT NULL                     | the time of the DDL for NULL                  |
| AUTO_INCREMENT, SERIAL, DEFAULT NEXT VALUE FOR …  | numbers in the row order of the server        |
"""

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from unshard.core.ddl.lineage import ExecutedDdl, names_after, specs_of_alter
from unshard.core.ddl.statement import TokenCursor
from unshard.core.model import Column, TableSchema
from unshard.core.relay.segment import Statement
from unshard.core.sql.literals import BINARIES, INTEGERS
from unshard.core.sql.mode import ANSI_QUOTES, MARIADB_ROUNDS, NAMES, NO_BACKSLASH_ESCAPES, NO_ZERO_IN_DATE, STRICT
from unshard.core.sql.tokens import Token, outside
from unshard.core.sql.words import ADDS_NO_COLUMN, OWN_VALUES, TIME_FOR_NULL
from unshard.core.structures.parsedtable import items
from unshard.errors.ddl import DdlUnreadable

ENDS = frozenset({"ON", "CHECK", "CONSTRAINT"})
"""Words that end a default; the clauses after them may contain the same functions."""


def filled_by_each(ran: ExecutedDdl, explicit_timestamps: bool = True) -> tuple[str, ...]:
    """Return the columns that a statement adds and whose values in existing rows differ between servers."""
    try:
        return tuple(
            definition[0].name
            for spec in specs_of_alter(ran)
            for definition in added_columns(spec)
            if _is_own(definition[1:], explicit_timestamps)
        )
    except DdlUnreadable:
        return ()


def added_columns(spec: TokenCursor) -> Iterator[Sequence[Token]]:
    """Yield the column definitions of ADD COLUMN, one or several in parentheses; each begins with the name."""
    if not spec.eat("ADD"):
        return
    if not spec.eat("COLUMN") and spec.peek() in ADDS_NO_COLUMN:
        return
    spec.eat("IF", "NOT", "EXISTS")
    rest = spec.tokens[spec.position :]
    yield from (item for _, item in items(rest)) if spec.peek() == "(" else (rest,)


def _is_own(definition: Sequence[Token], explicit_timestamps: bool) -> bool:
    words = [token.word for token in definition]
    clauses = {words[at]: at for at in reversed([*outside(definition)])}
    if {"AUTO_INCREMENT", "SERIAL"} & clauses.keys():
        return True
    if "DEFAULT" not in clauses:
        is_plain = "NULL" not in clauses or "NOT" in clauses
        return not explicit_timestamps and words[:1] == ["TIMESTAMP"] and is_plain
    begin = clauses["DEFAULT"]
    ends = (position for position in range(begin, len(words)) if words[position] in ENDS)
    return bool(OWN_VALUES & set(words[begin : next(ends, None)]))


# --- the effect of a session


NO_ZONE = "-12:34"
"""A time zone that no session has: the same text means something else in it than in every session."""
NO_MOMENT = 86_400
"""A time of no statement."""
STRUCTURE = re.compile(
    r"['\"]|\|\||\b(DEFAULT|TIMESTAMP|REAL|AS|CHECK|PARTITION|DATE|BLOB|CLOB|RAW|NUMBER|VARCHAR2)\b", re.IGNORECASE
)
"""A statement without any of these makes the same structure in every session."""
DATED = re.compile(r"\bTIME\s*['\"]", re.IGNORECASE)
"""A literal that gets the date of the statement as the default of a type with a date."""
TIMELY = re.compile(r"date|time|day|month|year|hour|minute|unix|format|cast|convert|week", re.IGNORECASE)
TEMPORAL = frozenset({"timestamp", "datetime", "time", "date"})
ALWAYS_VALID = frozenset({"timestamp", "time", "year"})
PADS, KEEPS_ZERO = 1 << NAMES.index("PAD_CHAR_TO_FULL_LENGTH"), 1 << NAMES.index("NO_AUTO_VALUE_ON_ZERO")
KEEPS_DATES = 1 << NAMES.index("ALLOW_INVALID_DATES")
NOTE = re.compile(r" /\* in its session: (.*) \*/\Z", re.DOTALL)


def elsewhere(statement: Statement) -> Statement | None:
    """Return the statement in a session that no shard has; None if it makes the same structure in every session."""
    if not STRUCTURE.search(statement.text):
        return None
    session = tuple((name, 1) for name, _ in statement.session if name == "explicit_defaults_for_timestamp")
    mode = statement.sql_mode & (ANSI_QUOTES | NO_BACKSLASH_ESCAPES)
    moment = NO_MOMENT if DATED.search(statement.text) else statement.timestamp
    return replace(statement, time_zone=NO_ZONE, sql_mode=mode, charset="utf8mb4", session=session, timestamp=moment)


def session_note(
    before: TableSchema, after: TableSchema, other: TableSchema | None, statement: Statement, *, is_tried: bool
) -> str:
    """Return the comment for the fingerprint of a DDL, empty if its session decides nothing.

    `other` is the structure after the statement `elsewhere`, None if that was refused. `is_tried`: it was tried.
    """
    given = (other or before) if is_tried else after
    lines = {line.strip().rstrip(",") for line in after.create_sql.splitlines()}
    lines -= {line.strip().rstrip(",") for line in given.create_sql.splitlines()}
    with contextlib.suppress(DdlUnreadable):
        lines.update(_values(before, after, statement))
    found = sorted(lines)
    text = "; ".join(found).replace("*/", "* /").replace("/*", "/ *")
    return f" /* in its session: {text} */" if text else ""


def without_note(fingerprint: str) -> str:
    """Return the fingerprint of the text alone."""
    return NOTE.sub("", fingerprint)


def note_of(fingerprint: str) -> str:
    """Return the comment of a fingerprint; empty if it has none."""
    return fingerprint[len(without_note(fingerprint)) :]


def noted_columns(fingerprint: str, how: str = "") -> tuple[str, ...]:
    """Return the columns whose values or definition the session of a DDL has decided, in this way or in any."""
    found = NOTE.search(fingerprint)
    parts = [part for part in found[1].split("; ") if how in part] if found else []
    names = (re.match(r"`((?:[^`]|``)+)`", part) for part in parts)
    return tuple(dict.fromkeys(name[1].replace("``", "`") for name in names if name))


def _values(before: TableSchema, after: TableSchema, statement: Statement) -> Iterator[str]:
    ran = ExecutedDdl(statement.text, statement.sql_mode, statement.time_zone, statement.timestamp)
    names = names_after(before.names, [ran])
    for old, new in names.items():
        if new in {name.lower() for name in after.names}:
            column = after.column(new)
            if how := converted_in(before.column(old), column, ran):
                yield f"`{column.name}` converted {how}"
    yield from _new_values(after, statement, ran)


def _new_values(after: TableSchema, statement: Statement, ran: ExecutedDdl) -> Iterator[str]:
    """Yield how the session decides on the values of new columns, if the structure does not show it."""
    own = {name.lower() for name in filled_by_each(ran)}
    defined = (d for spec in specs_of_alter(ran) for d in added_columns(spec) if d)
    for definition in defined:
        name = definition[0].name.lower()
        column = next((each for each in after.columns if each.name.lower() == name), None)
        if column is None or column.is_generated or name in own or column.default is None:
            continue
        text = "".join(token.raw for token in definition)
        if column.data_type in BINARIES and not text.isascii():
            yield f"`{column.name}` filled in '{statement.charset}'"
        words = dict(statement.session)
        if column.default[:1] not in "'-0123456789" and TIMELY.search(column.default):
            yield f"`{column.name}` filled in '{fixed(ran.time_zone)}' {words.get('lc_time_names', 0)}"


def converted_in(old: Column, new: Column, ran: ExecutedDdl) -> str:
    """Return which part of the session has decided how stored values of a column were converted; empty for none."""
    found = list[str]()
    if old.is_generated or new.is_generated:
        return ""
    if (old.data_type == "timestamp") != (new.data_type == "timestamp"):
        found += [f"in '{fixed(ran.time_zone)}'"] if ran.time_zone else []
    if new.data_type == "timestamp" and old.nullable and not new.nullable:
        found.append(TIME_FOR_NULL)
    if old.data_type == "time" and new.data_type in TEMPORAL - {"time"}:
        found.append(f"on '{datetime.fromtimestamp(ran.timestamp, _zone(ran.time_zone)):%Y-%m-%d}'")
    if _has_fewer_digits(old, new) and ran.sql_mode & MARIADB_ROUNDS:
        found.append("rounded")
    if new.data_type in ("date", "datetime") and old.data_type not in ALWAYS_VALID:
        found += ["with invalid dates"] if ran.sql_mode & KEEPS_DATES else []
        found += ["without zeros in dates"] if ran.sql_mode & NO_ZERO_IN_DATE and not ran.sql_mode & STRICT else []
    if old.data_type == "char" and old.column_type != new.column_type and ran.sql_mode & PADS:
        found.append("padded")
    if "auto_increment" in new.extra and "auto_increment" not in old.extra and ran.sql_mode & KEEPS_ZERO:
        found.append("with 0")
    return " ".join(found)


def _has_fewer_digits(old: Column, new: Column) -> bool:
    """Whether a conversion to a type of times may remove digits of a second."""
    if old.data_type in TEMPORAL:
        return new.data_type in TEMPORAL and (*new.numbers, 0)[0] < (*old.numbers, 0)[0]
    return new.data_type in TEMPORAL and old.data_type not in INTEGERS


def _zone(name: str) -> tzinfo:
    with contextlib.suppress(ValueError):
        return datetime.strptime(fixed(name), "%z").tzinfo or UTC
    with contextlib.suppress(ZoneInfoNotFoundError, ValueError, OSError):
        return ZoneInfo(name)
    return UTC


def fixed(zone: str) -> str:
    """Return a time zone as its offset if it has always had the same one."""
    if match := re.fullmatch(r"([+-])(\d{1,2}):(\d\d)", zone):
        return f"{match[1]}{int(match[2]):02}:{match[3]}".replace("-00:00", "+00:00")
    try:
        known = ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return zone
    moments = (datetime(year, month, 1, tzinfo=UTC) for year in range(1970, 2039) for month in range(1, 13))
    offsets = {moment.astimezone(known).isoformat()[-6:] for moment in moments}
    return offsets.pop() if len(offsets) == 1 else zone
