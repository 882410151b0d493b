"""Plans the next window of one source from values alone.

Segments are walked in order from the checkpoint. In each, every shard is either applied or held:

| the shard                                           | its rows                                           |
|-----------------------------------------------------|----------------------------------------------------|
| has nothing pending and nothing held                | are applied                                        |
| has a pending DDL, from before or from this window  | are held after its newest DDL                      |
| has held rows that this window does not release     | are held after its newest DDL (order is kept)      |
| all its held rows are released by this window       | are applied, after the released ones               |
| of transactions that end before its `start`         | are skipped: the dump has them                     |
| goes to a suspended target                          | are held after its newest DDL                      |
| was dropped by an operator                          | are skipped and counted, like its DDL              |
| has a DDL that the task's filters ignore            | are applied or held as before, with their structure |

A DDL of a shard goes to the end of the shard's queue, never directly to the target. The caller finds its effect, and
may ask a server for that. A RENAME ends the window: the window uses the old names, and the commit changes them last. A
shard that is dropped while rows or DDL of it wait is renamed too, so that its name becomes free. Releases come first,
starting with the oldest rows, up to the size of a window. A window that has anything to do moves on by at least one
file or one segment, so a backlog always ends.

A DDL that only an operator can decide does not stop the window. It is queued with its reason. As long as the structure
after it is unknown, the structure of the later rows and DDL is unknown too; the rows are held raw.

TRUNCATE and DROP TABLE of the only shard of a target are DDLs too (core.ddl.onetoone): the rows after them wait.

| the statement                                               | is queued                                     |
|-------------------------------------------------------------|-----------------------------------------------|
| cannot be read, or changes rows that the binlog hides       | with a reason, structure unknown              |
| is refused by the target on an empty table                  | with the server message, structure unknown    |
| follows one whose structure is unknown                      | without a reason; reconciled with that one    |
| creates a mismatched shard, or one of unknown structure     | with a reason, as a DDL of this shard alone   |
| has a command of an operator (core.ddl.statementcommands)   | not at all (skip), or as the command says     |
| replaces a waiting shard by a mismatched one (OR REPLACE)   | the same, after the entries that wait         |
| is missing: later rows contradict the structure             | with a reason, structure unknown              |

If a statement cannot be read, an operator decides about it for each shard that it may concern. If it can concern no
shard, it is skipped and recorded. Any other error (rows of an unknown table) ends the window before the segment that
causes it, so that everything before it is still applied. The error is raised only if that segment is the first.

A SEQUENCE writes rows like a table, but it is not a shard: its rows are skipped and counted, under every later name.
The tables of gh-ost and pt-online-schema-change are not shards either. Statements that a tool runs on its online-DDL
shadow table become DDL of the shard where the shadow table takes the shard's place (core.ddl.online).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from unshard.core.ddl.effects import (
    Coordinated,
    Effect,
    Follows,
    Ignored,
    Joins,
    Leaves,
    Moves,
    Renamed,
    SchemaStatement,
    Truncates,
    Undecided,
    UnreadIgnored,
)
from unshard.core.ddl.names import without_strings
from unshard.core.ddl.newshards import matching_shard
from unshard.core.ddl.onetoone import is_only, whole_entry
from unshard.core.ddl.online import OnlineTable, OnlineTables, Step, Swapped
from unshard.core.ddl.queue import HeldFile, QueueEntry, ShardState, WholeChange
from unshard.core.ddl.renaming import name_of_dropped
from unshard.core.ddl.sequences import followed, is_about_sequence
from unshard.core.ddl.statementcommands import CommandKind, StatementCommand, command_for, counted, under
from unshard.core.model import Location, Shard, TableId, shape_of
from unshard.core.relay.chain import require_chain
from unshard.core.relay.segment import Segment, Statement
from unshard.core.window.contradictions import fingerprint_of, is_met, reason_of, text_of
from unshard.core.window.plan import (
    AppliedCommand,
    Contradiction,
    Drop,
    Plan,
    Read,
    Rename,
    StructureChange,
    UnreadStatement,
)
from unshard.core.window.planrules import PlanRules, weight_of
from unshard.core.window.reads import Reading, reads
from unshard.core.window.releases import releases
from unshard.errors import UnshardError
from unshard.errors.locks import MismatchedNewShard, RecreatedShard, UnknownShard

TARGET_IS_DROPPED = "a filter ignores its CREATE TABLE, and the target table is dropped by the statement before it"


@dataclass(frozen=True, slots=True)
class _Walk:
    """The plan up to some segment."""

    shards: Mapping[TableId, ShardState]
    peers: tuple[ShardState, ...]
    """Shards of other sources."""
    reads: tuple[Read, ...] = ()
    queued: tuple[QueueEntry, ...] = ()
    structures: tuple[StructureChange, ...] = ()
    ignored: int = 0
    renames: tuple[Rename, ...] = ()
    passed_rows: int = 0
    """Row events of dropped shards and of sequences."""
    passed: tuple[Segment, ...] = ()
    unread: tuple[UnreadStatement, ...] = ()
    sequences: frozenset[TableId] = frozenset()
    applied_commands: tuple[AppliedCommand, ...] = ()
    online_tables: OnlineTables = ()
    schemas: tuple[SchemaStatement, ...] = ()


def plan_window(
    source: str,
    number: int,
    checkpoint: Location,
    segments: Sequence[Segment],
    shards: Sequence[ShardState],
    rules: PlanRules,
) -> Plan:
    """Return the next window of a source; it is empty if there is no segment and nothing to release.

    `segments` begin at the checkpoint. `shards` are those of all sources: a new shard is compared with all of them.
    """
    require_chain(source, checkpoint, segments)
    own = [state for state in shards if state.shard.source == source]
    due = releases([s for s in own if s.target not in rules.stopped], rules.window_bytes, rules.retried, rules.together)
    released = frozenset(file for release in due for file in release.files)
    peers = tuple(state for state in shards if state.shard.source != source and not state.is_dropped)
    start = _Walk(
        {state.shard.table: _without(state, released) for state in own},
        peers,
        sequences=rules.sequences,
        online_tables=rules.online_tables,
    )
    drops = tuple(Drop(state.shard, state.held) for state in own if state.is_dropped and (state.queue or state.held))
    walk = _walk(source, start, segments, rules, sum(file.bytes for file in released))
    safe = rules.force_safe or (rules.safe_until is not None and checkpoint < rules.safe_until)
    return Plan(
        source,
        number,
        checkpoint,
        ends=walk.passed[-1].ends if walk.passed else checkpoint,
        safe=safe or any(file.safe for file in released),
        releases=due,
        reads=walk.reads,
        queued=walk.queued,
        structures=walk.structures,
        gtid=walk.passed[-1].gtid if walk.passed else "",
        last_time=max((segment.last_time for segment in walk.passed), default=0),
        ignored=walk.ignored,
        renames=walk.renames,
        drops=drops,
        passed=walk.passed_rows,
        unread=walk.unread,
        sequences=tuple(sorted(walk.sequences)) if walk.sequences != rules.sequences else None,
        applied_commands=walk.applied_commands,
        orders=tuple(command.number for command in rules.orders),
        online_tables=walk.online_tables if walk.online_tables != rules.online_tables else None,
        schemas=walk.schemas,
        contradictions=rules.contradictions,
    )


def _without(state: ShardState, released: frozenset[HeldFile]) -> ShardState:
    if state.is_dropped:
        return replace(state, queue=(), held=())
    return replace(state, held=tuple(file for file in state.held if file not in released))


def _walk(source: str, walk: _Walk, segments: Iterable[Segment], rules: PlanRules, size: int) -> _Walk:
    """Read segments until the window is full; `size` bytes are taken by releases."""
    for segment in segments:
        weight = weight_of(segment, rules)
        if walk.renames or (walk.passed and weight and size + weight > rules.window_bytes):
            break
        try:
            walk = _pass(source, walk, segment, rules)
        except UnshardError:
            if not walk.passed and not size:
                raise
            break
        size += weight
    return walk


def _pass(source: str, walk: _Walk, segment: Segment, rules: PlanRules) -> _Walk:
    command = command_for(rules.orders, segment, walk.passed[-1].gtid if walk.passed else rules.history)
    walk = replace(walk, passed=(*walk.passed, segment))
    if segment.statement is None:
        walk = replace(walk, passed_rows=walk.passed_rows + _passed_rows(walk, segment, rules))
        for online_table in walk.online_tables:
            walk = _show(source, walk, online_table, segment, rules)
        return _read(source, walk, segment, rules)
    statement, present = segment.statement, _present(walk)
    before, after = walk.sequences, followed(walk.sequences, statement, present)
    step = rules.online.step(statement, present, walk.online_tables) if rules.online else Step((), (statement,))
    walk = replace(walk, sequences=after, online_tables=step.online_tables)
    if command is not None:
        applied_commands = AppliedCommand(command.number, segment.begins, without_strings(statement.text))
        walk = replace(walk, applied_commands=(*walk.applied_commands, applied_commands))

    def is_apart(effect: Effect) -> bool:
        return effect.table in step.apart or is_about_sequence(effect, before, after)

    if not step.happens:
        under(command, (), statement.text)
    context = _StatementContext(source, segment, rules, command, is_apart)
    for each in step.happens:
        walk = _happen(walk, each, context)
    return walk


@dataclass(frozen=True, slots=True)
class _StatementContext:
    """The segment of a statement, and which of its effects are not on shards."""

    source: str
    segment: Segment
    rules: PlanRules
    command: StatementCommand | None
    is_apart: Callable[[Effect], bool]


def _present(walk: _Walk) -> dict[TableId, str]:
    """Return the structures of the shards; that of a shard whose DDL is ignored is unknown."""
    return {
        table: "" if state.is_dropped else state.structure for table, state in walk.shards.items() if not state.has_left
    }


def _happen(walk: _Walk, what: Statement | Effect | Swapped, context: _StatementContext) -> _Walk:
    match what:
        case Statement():
            ask = (context.command and context.rules.ordered) or context.rules.effects
            for effect in under(context.command, ask(what, _present(walk)), what.text):
                if isinstance(effect, SchemaStatement):
                    walk = replace(walk, schemas=(*walk.schemas, effect))
                elif isinstance(effect, UnreadIgnored):
                    unread = UnreadStatement(
                        Location(context.segment.file, context.segment.end), without_strings(what.text)
                    )
                    walk = replace(walk, unread=(*walk.unread, unread))
                elif not context.is_apart(effect):
                    walk = _effect(walk, effect, what, context)
        case Swapped():
            walk = _swap(walk, what, context)
        case _:
            assert context.segment.statement is not None
            walk = _effect(walk, what, context.segment.statement, context)
    return walk


def _effect(walk: _Walk, effect: Effect, statement: Statement, context: _StatementContext) -> _Walk:
    target = context.rules.target_of(effect.table)
    if target is None:
        return walk
    return _apply(
        walk, effect, _Site(Shard(context.source, effect.table), target, context.segment, statement, context.command)
    )


def _swap(walk: _Walk, swapped: Swapped, context: _StatementContext) -> _Walk:
    """Apply the statements of the shadow table to the shard; if they do not lead to its structure, ask an operator.

    A command about the swap is used for the first of these statements; the others are skipped.
    """
    context = replace(context, is_apart=lambda _: False)
    for statement in swapped.online_table.statements:
        walk = _happen(walk, statement, context)
        context = replace(context, command=replace(context.command, kind=CommandKind.SKIP) if context.command else None)
    assert context.rules.online is not None
    arrived = context.rules.online.arrival(swapped, _present(walk).get(swapped.online_table.real, ""))
    return _effect(walk, arrived, swapped.statement, replace(context, command=None)) if arrived else walk


def _show(source: str, walk: _Walk, online_table: OnlineTable, segment: Segment, rules: PlanRules) -> _Walk:
    """Turn a table into a shard: it has rows, but only its name says that it is a shadow table."""
    target = rules.target_of(online_table.table)
    if online_table.seen or online_table.table not in segment.tables or target is None or online_table.create is None:
        return walk
    walk = replace(walk, online_tables=tuple(other for other in walk.online_tables if other != online_table))
    site = _Site(Shard(source, online_table.table), target, replace(segment, end=segment.start), online_table.create)
    if online_table.structure:
        return _join(walk, Joins(online_table.table, online_table.structure), site)
    mismatched = MismatchedNewShard(
        str(site.shard), str(target), online_table.create.text, "its structure is not known"
    )
    return _enter_alone(walk, "", str(mismatched), "", site)


def _passed_rows(walk: _Walk, segment: Segment, rules: PlanRules) -> int:
    """Count the row events of dropped shards and of the sequences that lists and routes would take."""
    dropped = {table for table, state in walk.shards.items() if state.is_dropped}
    counts = (count for piece in segment.pieces for count in piece.tables) if dropped or walk.sequences else ()
    return sum(
        rows
        for table, rows in counts
        if table in dropped or (table in walk.sequences and rules.target_of(table) is not None)
    )


def _read(source: str, walk: _Walk, segment: Segment, rules: PlanRules) -> _Walk:
    """Decide about the rows of a segment, including shards whose rows contradict their structure from here on."""
    found, contradicted = walk, {}
    for each in rules.contradictions:
        state = found.shards.get(each.shard.table)
        if is_met(each, segment) and state is not None and state.structure and not state.is_dropped:
            found = _coordinate(found, *_unlogged(each, state.target, segment))
            contradicted[each.shard.table] = each, found.shards[each.shard.table]
    reading = Reading(
        source,
        rules.target_of,
        walk.sequences | {online_table.table for online_table in walk.online_tables},
        rules.stopped,
    )
    return replace(found, reads=(*walk.reads, *reads(reading, segment, walk.shards, contradicted)))


def _unlogged(found: Contradiction, target: TableId, segment: Segment) -> "tuple[Undecided, _Site]":
    """Return the change that is missing in the binlog, and the location where it is assumed."""
    table, end = found.shard.table, segment.start if found.committed else found.location.position
    change = Undecided(table, reason_of(found), text_of(found, target), fingerprint_of(found, target))
    statement = Statement(text_of(found, table), table.schema, 0, "utf8mb4", segment.first_time, "SYSTEM")
    return change, _Site(found.shard, target, replace(segment, end=end), statement)


@dataclass(frozen=True, slots=True)
class _Site:
    """A statement, the shard that it concerns, and its segment."""

    shard: Shard
    target: TableId
    segment: Segment
    statement: Statement
    command: StatementCommand | None = None

    @property
    def location(self) -> Location:
        return Location(self.segment.file, self.segment.end)


def _apply(walk: _Walk, effect: Effect, site: _Site) -> _Walk:
    state = walk.shards.get(site.shard.table)
    if (
        state is not None
        and state.is_dropped
        and not state.has_left
        and not isinstance(effect, Leaves | Renamed | Moves)
    ):
        return replace(walk, ignored=walk.ignored + 1)
    match effect:
        case Undecided() if effect.is_new:
            found = _enter_alone(walk, effect.after, effect.reason, effect.routed, site)
        case Coordinated() | Undecided():
            found = _coordinate(walk, effect, site)
        case Joins():
            found = _join(walk, effect, site)
        case Follows():
            found = _follow(walk, effect, site)
        case Leaves() | Truncates() | Moves():
            found = _lose(walk, effect, site)
        case Renamed():
            found = _rename(walk, effect, site)
        case Ignored():
            found = _ignore(walk)
        case _:
            assert_never(effect)
    return found


def _lose(walk: _Walk, effect: Leaves | Truncates | Moves, site: _Site) -> _Walk:
    """Apply a statement after which the target lacks rows of a shard, or the shard has another target."""
    match effect:
        case Leaves():
            return _leave(_remove(walk, effect.whole, site), site)
        case Truncates():
            return _truncate(walk, site)
        case Moves():
            return _move(walk, effect, site)


def _truncate(walk: _Walk, site: _Site) -> _Walk:
    state = walk.shards.get(site.shard.table)
    if state is None or (state.start is not None and site.location <= state.start):
        return _ignore(walk)  # the second: the dump has the rows that were written after it
    found = _remove(walk, WholeChange.TRUNCATE, site)
    return _ignore(walk) if found is walk else found


def _move(walk: _Walk, effect: Moves, site: _Site) -> _Walk:
    """Queue a RENAME of the target if both targets are one-to-one; the new shard waits for it."""
    new = replace(site, shard=Shard(site.shard.source, effect.to), target=effect.to_target)
    state = walk.shards.get(effect.table)
    is_free = not any(other for other in _group(walk, new) if not other.has_left)
    found = _remove(walk, WholeChange.RENAME, site, effect.to_target) if effect.routed and is_free else walk
    if found is walk or state is None:
        return _apply(_leave(walk, site), effect.undecided, new)
    found = _leave(found, site)
    return _enter_alone(found, state.structure, "", effect.routed, new, WholeChange.CREATE)


def _remove(walk: _Walk, change: WholeChange, site: _Site, to: TableId | None = None) -> _Walk:
    """Queue a statement about the whole target table if the shard is its only one; else the rows stay."""
    state = walk.shards.get(site.shard.table)
    if change is WholeChange.NONE or state is None or not is_only(state, _group(walk, site)):
        return walk
    entry = whole_entry(change, state, site.location, site.statement, to)
    shards = {**walk.shards, state.shard.table: _queue(state, (entry,), state.structure)}
    return replace(walk, shards=shards, queued=(*walk.queued, entry))


def _group(walk: _Walk, site: _Site) -> list[ShardState]:
    return [state for state in (*walk.shards.values(), *walk.peers) if state.target == site.target]


def _ignore(walk: _Walk) -> _Walk:
    return replace(walk, ignored=walk.ignored + 1)


def _coordinate(walk: _Walk, effect: Coordinated | Undecided, site: _Site) -> _Walk:
    state = walk.shards.get(site.shard.table)
    if state is None or state.has_left:
        raise UnknownShard(str(site.shard), str(site.target), str(site.segment.begins))
    entry = QueueEntry(
        site.shard,
        site.target,
        state.last_seq + 1,
        site.location,
        site.statement,
        effect.routed,
        effect.fingerprint,
        state.structure,
        effect.after,
        reason=effect.reason if isinstance(effect, Undecided) else "",
    )
    if site.command is not None and site.command.kind is not CommandKind.SKIP:
        group = [other.shard.table for other in (*walk.shards.values(), *walk.peers) if other.target == site.target]
        entry = counted(site.command, entry, group)
    change = StructureChange(site.shard, site.target, site.location, effect.after)
    return _set(walk, _queue(state, (entry,), effect.after), (entry,), change)


def _follow(walk: _Walk, effect: Follows, site: _Site) -> _Walk:
    state = walk.shards.get(site.shard.table)
    if state is None or state.has_left:
        raise UnknownShard(str(site.shard), str(site.target), str(site.segment.begins))
    change = StructureChange(site.shard, site.target, site.location, effect.after)
    return _ignore(_set(walk, replace(state, structure=effect.after), (), change))


def _leave(walk: _Walk, site: _Site) -> _Walk:
    state = walk.shards.get(site.shard.table)
    if state is None or state.has_left:
        return walk
    walk = _set(walk, replace(state, has_left=True), (), StructureChange(site.shard, site.target, site.location, None))
    if not (state.queue or state.held):
        return walk
    renamed = Rename(site.shard, name_of_dropped(site.shard.table, site.location), site.location)
    return replace(walk, renames=(*walk.renames, renamed))


def _rename(walk: _Walk, effect: Renamed, site: _Site) -> _Walk:
    state = walk.shards.get(site.shard.table)
    if state is None or state.has_left:
        raise UnknownShard(str(site.shard), str(site.target), str(site.segment.begins))
    return replace(walk, renames=(*walk.renames, Rename(site.shard, effect.to, site.location)))


def _join(walk: _Walk, effect: Joins, site: _Site) -> _Walk:
    structure = effect.structure
    state = walk.shards.get(site.shard.table)
    if state is not None and not state.has_left:
        # CREATE TABLE IF NOT EXISTS of an existing table, or a CREATE TABLE that the snapshot has seen already.
        return _ignore(walk)
    group = [other for other in _group(walk, site) if not other.is_dropped]
    if any(entry.whole.removes for other in group for entry in other.queue):
        reason = "" if effect.makes_target else TARGET_IS_DROPPED
        return _enter_alone(walk, structure, reason, effect.routed, site, WholeChange.CREATE)
    if state is not None and (state.queue or state.held):
        # Only CREATE OR REPLACE: after a DROP by another statement the name is free. Here it stays in use.
        if shape_of(structure) != shape_of(state.structure):
            recreated = RecreatedShard(str(site.shard), str(site.target), site.statement.text)
            return _enter_alone(walk, structure, str(recreated), effect.routed, site)
        walk = replace(walk, renames=tuple(rename for rename in walk.renames if rename.shard != site.shard))
        change = StructureChange(site.shard, site.target, site.location, structure)
        return _set(walk, replace(state, has_left=False), (), change)
    group = [other for other in _group(walk, site) if not other.is_dropped]
    peer, position = matching_shard(group, structure, site.shard.source)
    present = [state.shard for state in group if not state.has_left]
    if present and peer is None:
        mismatched = MismatchedNewShard(str(site.shard), str(site.target), site.statement.text, str(min(present)))
        return _enter_alone(walk, structure, str(mismatched), effect.routed, site)
    pending = peer.queue if peer else ()
    entries = tuple(
        replace(entry, shard=site.shard, target=site.target, seq=number, location=site.location)
        for number, entry in enumerate(pending[:position], 1)
    )
    change = StructureChange(
        site.shard,
        site.target,
        site.location,
        structure,
        True,
        peer.shard if peer else None,
        peer.shard_uid if peer else "",
        tuple(entry.seq for entry in pending),
        makes_target=effect.makes_target,
    )
    fresh = ShardState(site.shard, site.target, structure, None, (), 0, ())
    return _set(walk, _queue(fresh, entries, structure), entries, change)


def _enter_alone(
    walk: _Walk, structure: str, reason: str, routed: str, site: _Site, whole: WholeChange = WholeChange.NONE
) -> _Walk:
    """Make the table a shard whose rows wait for an operator, under a name that is free now or after the commit.

    With `whole` they wait until the former target table is dropped.
    """
    state = walk.shards.get(site.shard.table)
    if state is not None and not state.has_left and any(rename.shard == site.shard for rename in walk.renames):
        before = Shard(site.shard.source, name_of_dropped(site.shard.table, site.location))
        walk = _enter_alone(walk, structure, reason, routed, replace(site, shard=before), whole)
        return replace(walk, renames=(*walk.renames, Rename(before, site.shard.table, site.location)))
    if state is not None and not state.has_left:
        return _ignore(walk)
    walk = replace(walk, renames=tuple(rename for rename in walk.renames if rename.shard != site.shard))
    waits = state is not None and bool(state.queue or state.held)
    if state is None or not waits:
        state = ShardState(site.shard, site.target, structure, None, (), 0, ())
    place = f" at {site.location}" if whole is not WholeChange.NONE else ""
    own = f"{site.shard}{place}: {site.statement.text}"
    entry = QueueEntry(
        site.shard,
        site.target,
        state.last_seq + 1,
        site.location,
        site.statement,
        routed or site.statement.text,
        own,
        state.structure,
        structure,
        reason=reason,
        is_alone=True,
        whole=whole,
    )
    change = StructureChange(
        site.shard,
        site.target,
        site.location,
        structure,
        joins=not waits,
        is_mismatched=True,
        forgets_start=whole is not WholeChange.NONE,
    )
    # The dump of the former table goes with its target table, so the rows of the new one come from the binlog.
    start = None if change.forgets_start else state.start
    return _set(walk, replace(_queue(state, (entry,), structure), has_left=False, start=start), (entry,), change)


def _queue(state: ShardState, entries: Sequence[QueueEntry], structure: str) -> ShardState:
    last = entries[-1].seq if entries else state.last_seq
    return replace(state, queue=(*state.queue, *entries), structure=structure, last_seq=last)


def _set(walk: _Walk, state: ShardState, entries: Sequence[QueueEntry], change: StructureChange) -> _Walk:
    shards = {**walk.shards, state.shard.table: state}
    return replace(walk, shards=shards, queued=(*walk.queued, *entries), structures=(*walk.structures, change))
