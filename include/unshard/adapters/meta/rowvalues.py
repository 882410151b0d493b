"""Conversions between rows of the meta tables and values of core."""

from collections.abc import Callable, Collection
from dataclasses import fields
from datetime import datetime
from enum import Enum
from types import NoneType
from typing import Any, Generic, TypeVar, cast, get_args, get_type_hints

from sqlalchemy import and_, false, or_
from sqlalchemy.sql import ColumnElement

from unshard.adapters.meta.gateway import AnyRow
from unshard.core import codec
from unshard.core.ddl.queue import HeldFile, OperatorDecision, QueueEntry, ShardState
from unshard.core.model import Location, Shard, TableId
from unshard.core.relay.segment import Statement
from unshard.errors.meta import MetaUnreadable

T = TypeVar("T")
SHARD_NAME = "source", "shard_schema", "shard_table"
TARGET_NAME = "target_schema", "target_table"


def shard_of(row: AnyRow) -> Shard:
    """Return the shard that the row is about."""
    return Shard(row.source, TableId(row.shard_schema, row.shard_table))


def target_of(row: AnyRow) -> TableId:
    """Return the target table that the row is about."""
    return TableId(row.target_schema, row.target_table)


def shard_name(table: Any) -> tuple[Any, ...]:
    """Return the columns of a table that name a shard."""
    return tuple(table.c[name] for name in SHARD_NAME)


def target_name(table: Any) -> tuple[Any, ...]:
    """Return the columns of a table that name a target table."""
    return tuple(table.c[name] for name in TARGET_NAME)


def are_same(one: Any, other: Any, *names: str) -> ColumnElement[bool]:
    """Return the condition that rows of two tables have the same task and the same values in these columns."""
    return and_(*(one.c[name] == other.c[name] for name in ("task", *names)))


def location_of(row: AnyRow, prefix: str = "") -> Location | None:
    """Return the location in the columns with that prefix; None if they are NULL."""
    file = getattr(row, f"{prefix}file")
    return None if file is None else Location(file, getattr(row, f"{prefix}position"))


def location_columns(location: Location | None, prefix: str = "") -> dict[str, Any]:
    """Return the columns of a location; None becomes NULL."""
    file, position = (location.file, location.position) if location else (None, None)
    return {f"{prefix}file": file, f"{prefix}position": position}


def earliest(*moments: datetime | float | None) -> float | None:
    """Return the earliest time in seconds since 1970; None without a time."""
    known = (each.timestamp() if isinstance(each, datetime) else float(each) for each in moments if each is not None)
    return min(known, default=None)


def is_one_of(table: Any, shards: Collection[Shard]) -> ColumnElement[bool]:
    """Return the condition that a row is about one of these shards; it can use the primary key."""
    named: dict[tuple[str, str], list[str]] = {}
    for shard in sorted(shards):
        named.setdefault((shard.source, shard.table.schema), []).append(shard.table.name)
    each = (
        and_(table.c.source == source, table.c.shard_schema == schema, table.c.shard_table.in_(names))
        for (source, schema), names in named.items()
    )
    return or_(false(), *each)


def read_stored(kind: type[T], text: str, what: str) -> T:
    """Decode a persisted value; raises MetaUnreadable for a text of another version."""
    try:
        return codec.loads(kind, text)
    except (ValueError, TypeError) as error:
        raise MetaUnreadable(what, str(error)) from error


def verdict_columns(verdict: OperatorDecision, replacement: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the columns of an operator's decision in `shard_ddl` and `ddl_lock`."""
    return {"decision": verdict, "replacement": codec.dumps(replacement) if replacement else ""}


def replacement_of(row: AnyRow, what: str, column: str = "replacement") -> tuple[str, ...]:
    """Return the replacement statements of a row."""
    text = getattr(row, column)
    return read_stored(tuple[str, ...], text, f"the replacement of {what}") if text else ()


class Persisted(Generic[T]):
    """A dataclass whose fields are columns with their names, unless `names` has others.

    A shard and a target are the columns that name them, a location the columns whose prefix is its name.
    """

    def __init__(self, kind: Callable[..., T], apart: str = "", **names: str) -> None:
        """`apart` are the fields that the caller converts."""
        hints, described, omitted = get_type_hints(kind), cast(Any, kind), apart.split()
        columns = {each.name: names.get(each.name, each.name) for each in fields(described) if each.name not in omitted}
        self._kind = kind
        self._fields = [(name, column, _reader(hints[name])) for name, column in columns.items()]

    def of(self, row: AnyRow, **apart: Any) -> T:
        """Return the value of a row."""
        return self._kind(**{name: read(row, column) for name, column, read in self._fields}, **apart)

    def columns(self, value: T) -> dict[str, Any]:
        """Return the columns of a value."""
        found: dict[str, Any] = {}
        for name, column, read in self._fields:
            own = getattr(value, name)
            found |= location_columns(own, column) if read is location_of else {column: own}
        return found


READERS: dict[Any, Callable[[AnyRow, str], Any]] = {
    Shard: lambda row, _: shard_of(row),
    TableId: lambda row, _: target_of(row),
    Location: location_of,
}
"""How a field of several columns is read; a column is the prefix of those of a location."""


def _reader(hint: Any) -> Callable[[AnyRow, str], Any]:
    """Return the function that reads a field of a type from a column."""
    kind, *_ = [each for each in get_args(hint) or (hint,) if each is not NoneType]

    def read(row: AnyRow, column: str) -> Any:
        found = getattr(row, column)
        return None if found is None else kind(found)

    is_converted = kind is bool or (isinstance(kind, type) and issubclass(kind, Enum))
    return READERS.get(kind) or (read if is_converted else getattr)


HELD_FILE = Persisted(HeldFile, rows="row_count", is_raw="raw")
ENTRY = Persisted(
    QueueEntry,
    "statement verdict replacement",
    location="",
    before="before_digest",
    after="after_digest",
    is_alone="alone",
    is_unnamed="unnamed",
)
SHARD_STATE = Persisted(ShardState, "queue held", structure="digest", start="start_", is_dropped="dropped")


def entry_columns(entry: QueueEntry) -> dict[str, Any]:
    """Return the columns of `shard_ddl` that come from the entry itself."""
    statement = {"statement": codec.dumps(entry.statement), "executed_at": entry.statement.timestamp}
    return {**ENTRY.columns(entry), **statement, **verdict_columns(entry.verdict, entry.replacement)}


def entry_of(row: AnyRow) -> QueueEntry:
    """Return the entry of a row of `shard_ddl`."""
    what = f"DDL {row.seq} of {shard_of(row)}"
    return ENTRY.of(
        row,
        statement=read_stored(Statement, row.statement, what),
        verdict=OperatorDecision(row.decision),
        replacement=replacement_of(row, what),
    )
