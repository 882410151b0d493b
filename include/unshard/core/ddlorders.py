"""Orders about single statements of a source's binlog, by position or GTID, mostly before a window comes there.

| order   | the statement                                     | its shard's structure behind it                  |
|---------|---------------------------------------------------|--------------------------------------------------|
| skip    | is executed nowhere, no other shard is waited for | what it made of it; if nobody knows, as before   |
| replace | counts as others, its group must agree on these   | the same; if nobody knows, what these make of it |
| inject  | counts as others and then itself                  | as of replace                                    |

So `skip` does what a filter does that ignores the statement, `replace` what `unshard replace --shard` does at once; an
order comes before the task's event filters. Statements by which nothing is executed on the target (DROP, RENAME,
TRUNCATE) are followed anyhow: which tables a source has, its rows say. The CREATE TABLE of a shard that is skipped
makes no target table.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from unshard.core.effects import Coordinated, Effect, Follows, Ignored, Joins, PassedOver, Undecided
from unshard.core.gtidset import contains, last_of_domains
from unshard.core.model import Location, TableId
from unshard.core.replacing import replacing
from unshard.core.segment import Segment
from unshard.core.window import QueueEntry, Verdict
from unshard.errors.ddlorders import HistoryUnknown, OrderAtNoStatement, OrderUnfit
from unshard.errors.orders import ReplacementRefused

UNKNOWN = "it is to be skipped, and what the shard's rows look like before it is not known yet"


class Kind(StrEnum):
    """What is to become of the statement."""

    SKIP = "skip"
    REPLACE = "replace"
    INJECT = "inject"


@dataclass(frozen=True, slots=True)
class Place:
    """One statement of a source's binlog; either `at` or `gtid`."""

    source: str
    at: Location | None = None
    """Anything from where its GTID event begins up to where its last event begins."""
    gtid: str = ""

    def __str__(self) -> str:
        return f"{self.at or self.gtid} of {self.source}"

    def is_in(self, segment: Segment, history: str) -> bool:
        """Whether a segment that follows on a history holds the place."""
        if self.at is not None:
            return segment.begins <= self.at < Location(segment.file, segment.end)
        return is_between(self.gtid, history, segment.gtid)

    def is_before(self, location: Location, history: str) -> bool:
        """Whether the place lies before a location that has this history."""
        return self.at < location if self.at is not None else has(history, self.gtid)


@dataclass(frozen=True, slots=True)
class StatementOrder:
    """An order that waits for its statement."""

    number: int
    kind: Kind
    place: Place
    statements: tuple[str, ...] = ()
    """What replaces the statement, or comes before it."""

    def __str__(self) -> str:
        return f"order {self.number} ({self.kind} {self.place})"


def has(history: str, gtid: str) -> bool:
    """Whether a transaction is in a history; False when that is not known."""
    if not history or (":" in gtid) != (":" in history):
        return False
    if ":" in gtid:
        return contains(history, gtid)
    last = last_of_domains(history.split(",")).get(gtid.partition("-")[0])
    return last is not None and _sequence(gtid) <= _sequence(last)


def is_between(gtid: str, before: str, after: str) -> bool:
    """Whether a transaction is in the history `after` and not in `before`."""
    return bool(before) and has(after, gtid) and not has(before, gtid)


def _sequence(gtid: str) -> int:
    return int(gtid.rpartition("-")[2])


def order_for(orders: Iterable[StatementOrder], segment: Segment, history: str) -> StatementOrder | None:
    """Return the order about a segment's statement; raises OrderAtNoStatement if it has none.

    Raises HistoryUnknown where nobody can tell whether the statement of a GTID was passed.
    """
    for order in orders:
        if order.place.gtid and (not segment.gtid or (not history and has(segment.gtid, order.place.gtid))):
            raise HistoryUnknown(str(order.place), order.number, str(segment.begins))
    found = next((order for order in orders if order.place.is_in(segment, history)), None)
    if found is not None and segment.statement is None:
        raise OrderAtNoStatement(str(found.place), found.number)
    return found


def skipped(effects: Iterable[Effect | PassedOver]) -> tuple[Effect | PassedOver, ...]:
    """Return what is left of a statement that is skipped."""
    return tuple(map(_skipped, effects))


def _skipped(effect: Effect | PassedOver) -> Effect | PassedOver:
    match effect:
        case Undecided(is_new=True):
            return effect
        case Coordinated() | Undecided() if effect.after:
            return Follows(effect.table, effect.after)
        case Coordinated():
            return Undecided(effect.table, UNKNOWN, effect.routed, effect.agreement)
        case Undecided():
            return Ignored(effect.table)
        case Joins():
            return replace(effect, makes_target=False)
        case _:
            return effect


def require_changes(order: StatementOrder, effects: Sequence[Effect | PassedOver], text: str) -> None:
    """Raise OrderUnfit unless the statement changes the structure of a shard."""
    if not any(isinstance(effect, Coordinated) or (isinstance(effect, Undecided) and not effect.is_new)
               for effect in effects):  # fmt: skip
        raise OrderUnfit(order.number, str(order.place), " ".join(text.split()), "it changes no shard's structure")


def under(order: StatementOrder | None, effects: Sequence[Effect | PassedOver],
          text: str) -> Sequence[Effect | PassedOver]:  # fmt: skip
    """Return what a statement does under an order; raises OrderUnfit if it does nothing that could be replaced."""
    if order is not None and order.kind is Kind.SKIP:
        return skipped(effects)
    if order is not None:
        require_changes(order, effects, text)
    return effects


def counted(order: StatementOrder, entry: QueueEntry, shards: Collection[TableId]) -> QueueEntry:
    """Return the entry that counts as what an order says; raises OrderUnfit if that cannot be."""
    texts = order.statements if order.kind is Kind.REPLACE else (*order.statements, entry.routed)
    # A name without a schema is one of the shard's: the statements stand in its source's binlog.
    names = (*shards, *(TableId(entry.target.schema, table.name) for table in shards))
    try:
        routed, agreement = replacing(str(order.number), texts, entry.target, names, entry)
    except ReplacementRefused as error:
        raise OrderUnfit(order.number, str(order.place), error.text, error.why) from error
    return replace(entry, routed="; ".join(routed), agreement=agreement, replacement=routed, verdict=Verdict.REPLACE,
                   reason="")  # fmt: skip
