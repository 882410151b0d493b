"""Commands about single statements of a source's binlog, by position or GTID, usually before a window reaches them.

| command | the statement                                    | its shard's structure after it                    |
|---------|--------------------------------------------------|---------------------------------------------------|
| skip    | is not executed; no other shard is waited for    | its effect; if unknown, as after `unshard skip`   |
|         |                                                  | (core.ddl.reconcile)                              |
| replace | is treated as the given ones, on which its group | its effect; if unknown, that of the given ones    |
|         | must agree                                       |                                                   |
| inject  | is treated as the given ones followed by itself  | as for replace                                    |

`skip` has the effect of an event filter that ignores the statement. `replace` has the effect of `unshard replace
--shard`. A command takes precedence over the task's event filters. DROP, RENAME and TRUNCATE, which execute nothing on
the target, take effect on the shards even if they are skipped, because the later rows of the source depend on them. A
skipped CREATE TABLE of a shard creates no target table.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from unshard.core.ddl.effects import (
    Coordinated,
    Effect,
    Follows,
    Ignored,
    Joins,
    Leaves,
    Moves,
    SchemaStatement,
    ShardlessEffect,
    Together,
    Truncates,
    Undecided,
)
from unshard.core.ddl.queue import OperatorDecision, QueueEntry
from unshard.core.model import Location, TableId
from unshard.core.relay.gtidset import contains, last_of_domains
from unshard.core.relay.segment import Segment
from unshard.errors.locks import CommandAtNoStatement, CommandUnfit, HistoryUnknown, ReplacementRefused


class CommandKind(StrEnum):
    """The three ways to treat the statement."""

    SKIP = "skip"
    REPLACE = "replace"
    INJECT = "inject"


@dataclass(frozen=True, slots=True)
class StatementPlace:
    """One statement of a source's binlog, identified by either `at` or `gtid`."""

    source: str
    at: Location | None = None
    """A location from the beginning of its GTID event to the beginning of its last event."""
    gtid: str = ""

    def __str__(self) -> str:
        return f"{self.at or self.gtid} of {self.source}"

    def is_in(self, segment: Segment, history: str) -> bool:
        """Whether a segment contains the statement; `history` are the transactions before the segment."""
        if self.at is not None:
            return segment.begins <= self.at < Location(segment.file, segment.end)
        return is_between(self.gtid, history, segment.gtid)

    def is_before(self, location: Location, history: str) -> bool:
        """Whether the statement precedes a location; `history` are the transactions before the location."""
        return self.at < location if self.at is not None else has(history, self.gtid)


@dataclass(frozen=True, slots=True)
class StatementCommand:
    """A command that waits for its statement."""

    number: int
    kind: CommandKind
    place: StatementPlace
    statements: tuple[str, ...] = ()
    """The statements that replace it, or precede it for inject."""

    def __str__(self) -> str:
        return f"command {self.number} ({self.kind} {self.place})"


def has(history: str, gtid: str) -> bool:
    """Whether a transaction is in a history; False if that is unknown."""
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


def command_for(commands: Iterable[StatementCommand], segment: Segment, history: str) -> StatementCommand | None:
    """Return the command about a segment's statement; raises CommandAtNoStatement if the segment has no statement.

    Raises HistoryUnknown if it is unknown whether the statement of a GTID precedes the segment.
    """
    for command in commands:
        if command.place.gtid and (not segment.gtid or (not history and has(segment.gtid, command.place.gtid))):
            raise HistoryUnknown(str(command.place), command.number, str(segment.begins))
    found = next((command for command in commands if command.place.is_in(segment, history)), None)
    if found is not None and segment.statement is None:
        raise CommandAtNoStatement(str(found.place), found.number)
    return found


def _skipped(effect: Effect | ShardlessEffect) -> Effect | ShardlessEffect:
    found = effect
    match effect:
        case Coordinated() | Undecided(is_new=False) if effect.after:
            found = Follows(effect.table, effect.after)
        case Coordinated() | Undecided():
            pass  # core.window.shardchanges queues it as resolved, so that its effect is found as for `unshard skip`
        case Truncates():
            found = Ignored(effect.table)
        case Joins():
            found = replace(effect, makes_target=False)
        case Leaves():
            found = Leaves(effect.table)
        case Moves():
            found = replace(effect, routed="")
        case Together():
            found = replace(effect, steps=())
    return found


def under(
    command: StatementCommand | None, effects: Sequence[Effect | ShardlessEffect], text: str
) -> Sequence[Effect | ShardlessEffect]:
    """Return the effects of a statement under a command; raises CommandUnfit if there is nothing to replace."""
    if command is not None and command.kind is CommandKind.SKIP:
        return tuple(_skipped(effect) for effect in effects if not isinstance(effect, SchemaStatement))
    changes = (each for each in effects if isinstance(each, Coordinated | Undecided))
    if command is not None and all(isinstance(each, Undecided) and each.is_new for each in changes):
        why = "it changes no shard's structure"
        raise CommandUnfit(command.number, str(command.place), " ".join(text.split()), why)
    return effects


def counted(command: StatementCommand, entry: QueueEntry, shards: Collection[TableId]) -> QueueEntry:
    """Return the entry with the statements of a command in its place; raises CommandUnfit if they cannot replace it."""
    from unshard.core.ddl.replacement import replacing  # brings the grammar, which few commands need

    texts = command.statements if command.kind is CommandKind.REPLACE else (*command.statements, entry.routed)
    # A name without a schema may be the shard's: the statements replace one in the binlog of the shard's source.
    names = (*shards, *(TableId(entry.target.schema, table.name) for table in shards))
    try:
        routed, fingerprint = replacing(str(command.number), texts, entry.target, names, entry)
    except ReplacementRefused as error:
        raise CommandUnfit(command.number, str(command.place), error.text, error.why) from error
    return replace(
        entry,
        routed="; ".join(routed),
        fingerprint=fingerprint,
        replacement=routed,
        verdict=OperatorDecision.REPLACE,
        reason="",
        is_unnamed=bool(entry.before and entry.after),
    )
