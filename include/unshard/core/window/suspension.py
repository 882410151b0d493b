"""Suspended targets: the rows of one source for a target are held after an error, everything else goes on.

| event                                        | result                                                             |
|----------------------------------------------|--------------------------------------------------------------------|
| an error about one target, in a window       | the target's transaction rolls back, the suspension is recorded,   |
|                                              | and the same plan runs again: rows for that target are held        |
| the next windows of the source               | hold the target's rows too, in order; its DDL waits for them       |
| the target's structure changes               | the next window ends the suspension and releases the rows          |
| the key of a collision is free again         | the same                                                           |
| a referenced row has come, or no row         | the same                                                           |
| references the row any more                  |                                                                    |
| foreign keys connect it with a target that   | it is suspended with that one, and goes on with it: the rows of    |
| is suspended                                 | connected targets keep their order                                 |
| other rules of the task file come into force | the same                                                           |
| a command: `unshard retry` or `unshard run`  | the same                                                           |
| the cause is still there                     | the target is suspended again; nothing was written                 |

A correction of a row in its shard is held as well. When both are released they are compacted, so only the last value
must fit, and a key that another shard has given up in the meantime is free.

Errors about the source itself stop the source: its binlog, the relay, the decoder, the meta tables, a lost fence. A
collision in a window that is written in several transactions, some of which are done, also stops the source. Rows
released after such a suspension are written by REPLACE, which would replace the other shard's row too.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime

from unshard.core import codec
from unshard.core.model import Shard, TableId
from unshard.core.shown import one_line
from unshard.core.window.plan import Disposition, Plan
from unshard.errors import UnshardError, ddl, rows
from unshard.errors.checks import TargetNamesAlike
from unshard.errors.meta import MetaUnreadable

ABOUT_ONE_TARGET: tuple[type[UnshardError], ...] = (
    rows.NoTargetTable,
    rows.RowRefused,
    rows.ColumnNotInTarget,
    rows.ColumnTypesDiffer,
    rows.KeyColumnMissing,
    rows.Collision,
    rows.KeyOutOfOrder,
    rows.RowsMissing,
    rows.EngineNotTransactional,
    rows.StatementWarned,
    rows.WriteRefused,
    rows.ExtractedColumnMissing,
    rows.ExtractedColumnTaken,
    rows.ExtractedValueUnfit,
    rows.ExtractionNeedsTable,
    rows.MappedColumnMissing,
    rows.MappedColumnUnfit,
    rows.MappedNotKey,
    rows.RowsFiltered,
    rows.RowFilterFailed,
    rows.ColumnLeftOut,
    rows.ChangedRowMissing,
    rows.MovedRowUnknown,
    rows.ReferencedRowMissing,
    rows.RowReferenced,
    rows.ConnectedTargetWaits,
    ddl.TargetLacksColumns,
    TargetNamesAlike,
)
"""Errors of a window that concern one target only."""
KINDS = {kind.code: kind for kind in ABOUT_ONE_TARGET}


@dataclass(frozen=True, slots=True)
class TargetRefused:
    """A target refuses its rows of a window: it got none of them, and the other targets are not concerned."""

    target: TableId
    error: UnshardError


@dataclass(frozen=True, slots=True)
class Refusal:
    """The error for which a target is suspended."""

    target: TableId
    column: str
    key: str
    words: str
    code: str = rows.RowRefused.code
    parts: str = ""
    """The error's fields as JSON; empty: it is a rows.RowRefused that was recorded before there were others."""

    @property
    def error(self) -> UnshardError:
        if not self.parts:
            return rows.RowRefused(str(self.target), self.column, self.key, self.words)
        try:
            kind = KINDS[self.code]
            kind.make()
            return codec.loads(kind, self.parts)
        except (ValueError, KeyError, TypeError) as error:
            raise MetaUnreadable(f"the error that suspended {self.target} ({self.code})", repr(error)) from error

    @property
    def may_come_in_parts(self) -> bool:
        """Whether the target may be suspended after some of the window's transactions are done."""
        return self.code != rows.Collision.code


def refusal_of(target: TableId, error: UnshardError) -> Refusal:
    """Return the stored form of an error that concerns one target."""
    parts = {field.name: value for field in fields(error) if not isinstance(value := getattr(error, field.name), bytes)}
    column, key = str(parts.get("column", "")), str(parts.get("key", ""))
    return Refusal(target, column, key, str(parts.get("server_message", error.message)), error.code, json.dumps(parts))


@dataclass(frozen=True, slots=True)
class SuspendedTarget:
    """A target that takes no rows of a source at present."""

    source: str
    refusal: Refusal
    window: int
    structure: str
    """Digest of the target's structure at the error, empty without the table; after a change it is tried again."""
    times: int
    """How often it was suspended since rows of it were applied."""
    since: datetime
    is_partial: bool = False
    """Some of the window's rows are in the target: it was too large for one transaction."""

    @property
    def target(self) -> TableId:
        return self.refusal.target

    @property
    def brief(self) -> str:
        """The same without the message of the error."""
        return f"{self._about}: [{self.refusal.code}]"

    @property
    def _about(self) -> str:
        since = f"{self.since:%Y-%m-%d %H:%M:%S} UTC"
        return f"target {self.target} is suspended for source {self.source} since {since}"

    def __str__(self) -> str:
        return f"{self._about}: {self.refusal.error}"


def preview_retry(stop: SuspendedTarget) -> str:
    """Return a sentence about the effect of a retry."""
    about = stop.refusal.key or one_line(stop.refusal.words)
    return (
        f"{stop.target} goes on for {stop.source}: its next window releases the held rows, and suspends it again if "
        f"{stop.refusal.code} comes again ({about})"
    )


def held_behind(plan: Plan, last: Mapping[Shard, int]) -> Mapping[Shard, int]:
    """Return for each shard the number of the DDL after which its rows are held that the plan wants applied.

    `last` has the newest DDL of each shard before the window. DDL that the window itself queues comes after these rows.
    """
    first = {entry.shard: entry.seq for entry in sorted(plan.queued, key=lambda entry: -entry.seq)}
    return {**last, **{shard: seq - 1 for shard, seq in first.items()}}


def withheld(
    dispositions: Iterable[Disposition], stopped: Collection[TableId], behind: Mapping[Shard, int]
) -> tuple[Disposition, ...]:
    """Return the dispositions with the rows of suspended targets held."""
    return tuple(
        replace(d, hold=behind.get(d.shard, 0)) if d.hold is None and d.target in stopped else d for d in dispositions
    )
