"""Conversions between rows of the meta tables and values of core."""

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import and_, false, or_
from sqlalchemy.sql import ColumnElement

from unshard.adapters.meta.gateway import AnyRow
from unshard.core import codec
from unshard.core.ddl.queue import EntryState, HeldFile, OperatorDecision, QueueEntry, ShardState, WholeChange
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


def shard_columns(shard: Shard) -> dict[str, Any]:
    """Return the columns that name a shard."""
    return {"source": shard.source, "shard_schema": shard.table.schema, "shard_table": shard.table.name}


def target_columns(target: TableId) -> dict[str, Any]:
    """Return the columns that name a target table."""
    return {"target_schema": target.schema, "target_table": target.name}


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


def read(kind: type[T], text: str, what: str) -> T:
    """Decode a persisted value; raises MetaUnreadable for a text of another version."""
    try:
        return codec.loads(kind, text)
    except (ValueError, TypeError) as error:
        raise MetaUnreadable(what, str(error)) from error


def entry_columns(entry: QueueEntry) -> dict[str, Any]:
    """Return the columns of `shard_ddl` that come from the entry itself."""
    return {
        **shard_columns(entry.shard),
        "seq": entry.seq,
        **target_columns(entry.target),
        **location_columns(entry.location),
        "statement": codec.dumps(entry.statement),
        "executed_at": entry.statement.timestamp,
        "routed": entry.routed,
        "fingerprint": entry.fingerprint,
        "before_digest": entry.before,
        "after_digest": entry.after,
        "state": entry.state,
        "reason": entry.reason,
        "alone": entry.is_alone,
        "whole": entry.whole,
        **verdict_columns(entry.verdict, entry.replacement),
        "unnamed": entry.is_unnamed,
    }


def verdict_columns(verdict: OperatorDecision, replacement: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the columns of an operator's decision in `shard_ddl` and `ddl_lock`."""
    return {"decision": verdict, "replacement": codec.dumps(replacement) if replacement else ""}


def replacement_of(row: AnyRow, what: str, column: str = "replacement") -> tuple[str, ...]:
    """Return the replacement statements of a row."""
    text = getattr(row, column)
    return read(tuple[str, ...], text, f"the replacement of {what}") if text else ()


def entry_of(row: AnyRow) -> QueueEntry:
    """Return the entry of a row of `shard_ddl`."""
    shard = shard_of(row)
    statement = read(Statement, row.statement, f"DDL {row.seq} of {shard}")
    return QueueEntry(
        shard=shard,
        target=target_of(row),
        seq=row.seq,
        location=Location(row.file, row.position),
        statement=statement,
        routed=row.routed,
        fingerprint=row.fingerprint,
        before=row.before_digest,
        after=row.after_digest,
        state=EntryState(row.state),
        reason=row.reason,
        is_alone=bool(row.alone),
        whole=WholeChange(row.whole),
        verdict=OperatorDecision(row.decision),
        replacement=replacement_of(row, f"DDL {row.seq} of {shard}"),
        is_unnamed=bool(row.unnamed),
    )


def held_columns(file: HeldFile) -> dict[str, Any]:
    """Return the columns of `held_rows` that come from the file itself."""
    return {
        **shard_columns(file.shard),
        "seq": file.seq,
        "window": file.window,
        "part": file.part,
        "path": file.path,
        "row_count": file.rows,
        "bytes": file.bytes,
        "structure": file.structure,
        "safe": file.safe,
        "raw": file.is_raw,
        "first_time": file.first_time,
    }


def held_of(row: AnyRow) -> HeldFile:
    """Return the file of a row of `held_rows`."""
    return HeldFile(
        shard=shard_of(row),
        seq=row.seq,
        window=row.window,
        part=row.part,
        path=row.path,
        rows=row.row_count,
        bytes=row.bytes,
        structure=row.structure,
        safe=bool(row.safe),
        is_raw=bool(row.raw),
        first_time=row.first_time,
    )


def state_of(row: AnyRow, queue: Iterable[QueueEntry], held: Iterable[HeldFile]) -> ShardState:
    """Return the state of a row of `shard` with its queue and held files."""
    return ShardState(
        shard=shard_of(row),
        target=target_of(row),
        structure=row.digest,
        start=location_of(row, "start_"),
        queue=tuple(queue),
        last_seq=row.last_seq,
        held=tuple(held),
        has_left=bool(row.has_left),
        shard_uid=row.shard_uid,
        is_dropped=bool(row.dropped),
    )
