"""A target that cannot take what a source brings: its rows of that source are held, everything else goes on.

| comes                                        | what happens                                                       |
|----------------------------------------------|--------------------------------------------------------------------|
| an error about one target, in a window       | the target's transaction rolls back; the stop is recorded, and the |
|                                              | same plan runs again: rows for that target are held, not applied   |
| the next windows of the source               | hold the target's rows, too, in order; its DDL waits behind them   |
| the target's structure changes               | the next window lifts the stop and releases the rows               |
| the key of a collision is free again         | the same                                                           |
| other rules of the task file come into force | the same                                                           |
| an order (`unshard retry`), or `unshard run` | the same                                                           |
| the cause is still there                     | the target stops again; nothing was written                        |

A correction of a row in its shard is held as well: when both are released they are netted, so only the last value
must fit, and a key that another shard has given up in between is free.

What is about the source itself stops the source: its binlog, the relay, the decoder, the meta tables, a lost fence. So
does a collision in a window that is written in several transactions, some of which are done: what is released behind
such a stop replaces, and would replace the other shard's row, too.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime

from unshard.core import codec
from unshard.core.model import Shard, TableId
from unshard.core.window import Disposition, Plan
from unshard.errors import UnshardError
from unshard.errors.leftout import ChangedRowMissing, ColumnLeftOut, MovedRowUnknown
from unshard.errors.meta import MetaUnreadable
from unshard.errors.target import (
    Collision,
    ColumnNotInTarget,
    ColumnTypesDiffer,
    EngineNotTransactional,
    ExtractedColumnMissing,
    ExtractedColumnTaken,
    ExtractedValueUnfit,
    ExtractionNeedsTable,
    KeyColumnMissing,
    KeyOutOfOrder,
    MappedColumnMissing,
    MappedColumnUnfit,
    MappedNotKey,
    NoTargetTable,
    RowFilterFailed,
    RowRefused,
    RowsFiltered,
    RowsMissing,
)
from unshard.errors.writing import StatementWarned, WriteRefused

ABOUT_ONE_TARGET: tuple[type[UnshardError], ...] = (
    NoTargetTable, RowRefused, ColumnNotInTarget, ColumnTypesDiffer, KeyColumnMissing, Collision, KeyOutOfOrder,
    RowsMissing, EngineNotTransactional, StatementWarned, WriteRefused, ExtractedColumnMissing, ExtractedColumnTaken,
    ExtractedValueUnfit, ExtractionNeedsTable, MappedColumnMissing, MappedColumnUnfit, MappedNotKey, RowsFiltered,
    RowFilterFailed, ColumnLeftOut, ChangedRowMissing, MovedRowUnknown,
)  # fmt: skip
"""Errors of a window that say nothing about its other targets."""
KINDS = {kind.code: kind for kind in ABOUT_ONE_TARGET}


@dataclass(frozen=True, slots=True)
class TargetRefused:
    """A target cannot take a window: it has got nothing, the others are not concerned."""

    target: TableId
    error: UnshardError


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a target takes no rows of a source."""

    target: TableId
    column: str
    key: str
    words: str
    code: str = RowRefused.code
    parts: str = ""
    """The error's fields as JSON; empty: it is a RowRefused that was recorded before there were others."""

    @property
    def error(self) -> UnshardError:
        """The error that was met."""
        if not self.parts:
            return RowRefused(str(self.target), self.column, self.key, self.words)
        try:
            return codec.loads(KINDS[self.code], self.parts)
        except (ValueError, KeyError, TypeError) as error:
            raise MetaUnreadable(f"what has stopped {self.target} ({self.code})", repr(error)) from error

    @property
    def may_come_in_parts(self) -> bool:
        """Whether the target may stop where some of the window's transactions are done."""
        return self.code != Collision.code


def refusal_of(target: TableId, error: UnshardError) -> Refusal:
    """Return what is kept of an error that is about one target."""
    parts = {field.name: value for field in fields(error) if not isinstance(value := getattr(error, field.name), bytes)}
    column, key = str(parts.get("column", "")), str(parts.get("key", ""))
    return Refusal(target, column, key, str(parts.get("words", error.message)), error.code, json.dumps(parts))


@dataclass(frozen=True, slots=True)
class Stop:
    """A target that takes no rows of a source for now."""

    source: str
    refusal: Refusal
    window: int
    """In which the error came."""
    structure: str
    """Digest of the target's structure then, empty without the table; another one is worth a try."""
    times: int
    """How often it has stopped since rows of it were applied."""
    since: datetime
    is_partial: bool = False
    """Some of the window's rows are in the target: it was too large for one transaction."""

    @property
    def target(self) -> TableId:
        return self.refusal.target

    def __str__(self) -> str:
        since = f"{self.since:%Y-%m-%d %H:%M:%S} UTC"
        return f"target {self.target} is stopped for source {self.source} since {since}: {self.refusal.error}"


def preview_retry(stop: Stop) -> str:
    """Say what a retry does."""
    about = stop.refusal.key or " ".join(stop.refusal.words.split())
    return (f"{stop.target} goes on for {stop.source}: its next window releases what is held, and stops it again if "
            f"{stop.refusal.code} comes again ({about})")  # fmt: skip


def held_behind(plan: Plan, last: Mapping[Shard, int]) -> Mapping[Shard, int]:
    """Return behind which DDL of its queue each shard's rows stand that the plan wants applied.

    `last` has the newest DDL of each shard before the window; what the window itself queues comes behind these rows.
    """
    first = {entry.shard: entry.seq for entry in sorted(plan.queued, key=lambda entry: -entry.seq)}
    return {**last, **{shard: seq - 1 for shard, seq in first.items()}}


def withheld(dispositions: Iterable[Disposition], stopped: Collection[TableId],
             behind: Mapping[Shard, int]) -> tuple[Disposition, ...]:  # fmt: skip
    """Hold the rows of targets that are stopped."""
    return tuple(
        replace(d, hold=behind.get(d.shard, 0)) if d.hold is None and d.target in stopped else d for d in dispositions
    )
