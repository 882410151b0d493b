"""Plans the next window of one source from values alone.

Segments are walked in order from the checkpoint. In each, every shard is either applied or held:

| the shard                                           | its rows                                           |
|-----------------------------------------------------|----------------------------------------------------|
| nothing pending, nothing held                       | are applied                                        |
| has a pending DDL, from before or from this window  | are held behind its newest DDL                     |
| has held rows that this window does not release     | are held behind its newest DDL (order is kept)     |
| all its held rows are released by this window       | are applied, after the released ones               |
| of transactions that end before its `start`         | are passed over: the dump has them                 |
| goes to a target that cannot take a row             | are held behind its newest DDL                     |
| was dropped by an operator                          | are passed over and counted, like its DDL          |
| has had a DDL that the task's filters ignore        | are applied or held as before, with their structure |

A DDL of a shard goes to the end of the shard's queue, never to the target; what it means is asked of the
caller, who may ask a server. A RENAME ends the window: all that it does stands under the old names, which the
commit changes last. A shard that is dropped while something of it waits is renamed too, so that its
name is free. Releases come first, the oldest rows before all, up to the size of a window. A
window that has anything to do moves on by at least one file or one segment, so a backlog always ends.

What nobody but an operator can say about a DDL stops nothing: it is queued with its reason, and as long as the
structure behind it is unknown, so is that of the rows and the DDL that follow; the rows are held raw.

| the statement                                               | is queued                                     |
|-------------------------------------------------------------|-----------------------------------------------|
| cannot be read, or changes rows that the binlog hides       | with a reason, structure unknown              |
| is refused by the target on an empty table                  | with the target's words, structure unknown    |
| stands behind one whose structure is unknown                | without a reason; settled with that one       |
| creates a shard unlike any of its group, or an unknown one  | with a reason, as a DDL of this shard alone   |
| has an order of an operator (core.ddlorders)                | not at all (skip), or as what the order says  |
| replaces a shard that waits by one unlike it (OR REPLACE)   | the same, behind what waits                   |
| is missing: later rows contradict the structure             | with a reason, structure unknown              |

A statement that cannot be read is put before an operator for the shards that it may concern; if it can concern none it
is passed over and written down. An error that is left (rows of a table that nobody knows) ends the window before its
place, so that everything before it is still applied; only when it stands first does it come out.

A SEQUENCE writes rows like a table and is none: they are passed over and counted, whatever it is called later. The
tables of gh-ost and pt-online-schema-change are none either; what is run on a shadow becomes the shard's DDL where the
shadow takes its place (core.online).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from unshard.core.contradictions import agreement_of, is_met, reason_of, text_of
from unshard.core.ddlnames import without_strings
from unshard.core.ddlorders import Kind, StatementOrder, counted, order_for, under
from unshard.core.effects import (
    Coordinated,
    Effect,
    Effects,
    Follows,
    Ignored,
    Joins,
    Leaves,
    PassedOver,
    Renamed,
    Undecided,
)
from unshard.core.model import Location, Shard, TableId, shape_of
from unshard.core.newcomers import likeness
from unshard.core.online import Ghost, Ghosts, Online, Step, Swapped
from unshard.core.pace import WindowLimits
from unshard.core.reads import Reading, reads
from unshard.core.relaychain import require_chain
from unshard.core.renaming import name_aside
from unshard.core.segment import Segment, Statement
from unshard.core.sequences import followed, is_about_sequence
from unshard.core.shardgroup import releases
from unshard.core.window import (
    Contradiction,
    Drop,
    HeldFile,
    Obeyed,
    Passed,
    Plan,
    QueueEntry,
    Read,
    Rename,
    ShardState,
    StructureChange,
)
from unshard.errors import UnshardError
from unshard.errors.shardddl import RecreatedShard, StrangeNewShard, UnknownShard

FILE_BY_FILE = WindowLimits(0, 0, 0)


@dataclass(frozen=True, slots=True)
class PlanRules:
    """What the task says about windows, and how the meaning of a DDL is found."""

    target_of: Callable[[TableId], TableId | None]
    effects: Effects
    window_bytes: int
    safe_until: Location | None = None
    """Windows that begin before it are safe: the dump may have seen their rows."""
    force_safe: bool = False
    sequences: frozenset[TableId] = frozenset()
    """What is a sequence on the source at the checkpoint."""
    orders: tuple[StatementOrder, ...] = ()
    """Orders about statements that no window has met."""
    ordered: Effects | None = None
    """As `effects`, without the task's filters: an order comes before them."""
    history: str = ""
    """The GTIDs up to the checkpoint."""
    stopped: frozenset[TableId] = frozenset()
    """Targets that cannot take a row of the source (core.stops): all rows for them are held."""
    retried: tuple[TableId, ...] = ()
    """Targets that go on after a stop."""
    together: WindowLimits = FILE_BY_FILE
    """How much of what those have missed is released together, to be netted with what has mended it."""
    ghosts: Ghosts = ()
    """The tables of tools that change shards online, at the checkpoint."""
    contradictions: tuple[Contradiction, ...] = ()
    """Rows that do not have the structure of their shard, as an attempt at this window has found out."""
    online: Online | None = None
    """How those are followed; None: they are tables like others."""


@dataclass(frozen=True, slots=True)
class _Walk:
    """What has been planned up to some segment."""

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
    unread: tuple[Passed, ...] = ()
    sequences: frozenset[TableId] = frozenset()
    obeyed: tuple[Obeyed, ...] = ()
    ghosts: Ghosts = ()


def plan_window(source: str, number: int, checkpoint: Location, segments: Sequence[Segment],
                shards: Sequence[ShardState], rules: PlanRules) -> Plan:  # fmt: skip
    """Return the next window of a source; it is empty when there is neither a segment nor anything to release.

    `segments` follow on the checkpoint. `shards` are those of all sources: the others' tell what a new
    shard may look like.
    """
    require_chain(source, checkpoint, segments)
    own = [state for state in shards if state.shard.source == source]
    due = releases([s for s in own if s.target not in rules.stopped], rules.window_bytes,
                   rules.retried, rules.together)  # fmt: skip
    released = frozenset(file for release in due for file in release.files)
    peers = tuple(state for state in shards if state.shard.source != source and not state.is_dropped)
    start = _Walk({state.shard.table: _without(state, released) for state in own}, peers, sequences=rules.sequences,
                  ghosts=rules.ghosts)  # fmt: skip
    drops = tuple(Drop(state.shard, state.held) for state in own if state.is_dropped and (state.queue or state.held))
    walk = _walk(source, start, segments, rules, sum(file.bytes for file in released))
    safe = rules.force_safe or (rules.safe_until is not None and checkpoint < rules.safe_until)
    return Plan(
        source, number, checkpoint, ends=walk.passed[-1].ends if walk.passed else checkpoint,
        safe=safe or any(file.safe for file in released), releases=due, reads=walk.reads, queued=walk.queued,
        structures=walk.structures, gtid=walk.passed[-1].gtid if walk.passed else "",
        last_time=max((segment.last_time for segment in walk.passed), default=0), ignored=walk.ignored,
        renames=walk.renames, drops=drops, passed=walk.passed_rows, unread=walk.unread,
        sequences=tuple(sorted(walk.sequences)) if walk.sequences != rules.sequences else None,
        obeyed=walk.obeyed, orders=tuple(order.number for order in rules.orders),
        ghosts=walk.ghosts if walk.ghosts != rules.ghosts else None, contradictions=rules.contradictions,
    )  # fmt: skip


def within_window(segments: Iterable[Segment], rules: PlanRules) -> tuple[Segment, ...]:
    """Return the segments, from the first on, that one window can pass at most: all that planning looks at."""
    taken: list[Segment] = []
    size = 0
    for segment in segments:
        weight = _weight(segment, rules)
        if taken and weight and size + weight > rules.window_bytes:
            break
        taken.append(segment)
        size += weight
    return tuple(taken)


def _without(state: ShardState, released: frozenset[HeldFile]) -> ShardState:
    if state.is_dropped:
        return replace(state, queue=(), held=())
    return replace(state, held=tuple(file for file in state.held if file not in released))


def _walk(source: str, walk: _Walk, segments: Iterable[Segment], rules: PlanRules, size: int) -> _Walk:
    """Pass segments until the window is full; `size` bytes are taken by releases."""
    for segment in segments:
        weight = _weight(segment, rules)
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


def _weight(segment: Segment, rules: PlanRules) -> int:
    """Bytes that must be decoded to pass the segment."""
    wanted = (r for r in segment.pieces if any(rules.target_of(table) for table, _ in r.tables))
    return sum(r.end - r.start for r in wanted)


def _pass(source: str, walk: _Walk, segment: Segment, rules: PlanRules) -> _Walk:
    order = order_for(rules.orders, segment, walk.passed[-1].gtid if walk.passed else rules.history)
    walk = replace(walk, passed=(*walk.passed, segment))
    if segment.statement is None:
        walk = replace(walk, passed_rows=walk.passed_rows + _passed_rows(walk, segment, rules))
        for ghost in walk.ghosts:
            walk = _show(source, walk, ghost, segment, rules)
        return _read(source, walk, segment, rules)
    statement, present = segment.statement, _present(walk)
    before, after = walk.sequences, followed(walk.sequences, statement, present)
    step = rules.online.step(statement, present, walk.ghosts) if rules.online else Step((), (statement,))
    walk = replace(walk, sequences=after, ghosts=step.ghosts)
    if order is not None:
        obeyed = Obeyed(order.number, segment.begins, without_strings(statement.text))
        walk = replace(walk, obeyed=(*walk.obeyed, obeyed))

    def is_apart(effect: Effect) -> bool:
        return effect.table in step.apart or is_about_sequence(effect, before, after)

    if not step.happens:
        under(order, (), statement.text)
    meeting = _Meeting(source, segment, rules, order, is_apart)
    for each in step.happens:
        walk = _happen(walk, each, meeting)
    return walk


@dataclass(frozen=True, slots=True)
class _Meeting:
    """Where a statement is met, and which of its effects are none on shards."""

    source: str
    segment: Segment
    rules: PlanRules
    order: StatementOrder | None
    is_apart: Callable[[Effect], bool]


def _present(walk: _Walk) -> dict[TableId, str]:
    return {table: state.structure for table, state in walk.shards.items() if not state.has_left}


def _happen(walk: _Walk, what: Statement | Effect | Swapped, met: _Meeting) -> _Walk:
    match what:
        case Statement():
            ask = (met.order and met.rules.ordered) or met.rules.effects
            for effect in under(met.order, ask(what, _present(walk)), what.text):
                if isinstance(effect, PassedOver):
                    unread = Passed(Location(met.segment.file, met.segment.end), without_strings(what.text))
                    walk = replace(walk, unread=(*walk.unread, unread))
                elif not met.is_apart(effect):
                    walk = _effect(walk, effect, what, met)
        case Swapped():
            walk = _swap(walk, what, met)
        case _:
            assert met.segment.statement is not None
            walk = _effect(walk, what, met.segment.statement, met)
    return walk


def _effect(walk: _Walk, effect: Effect, statement: Statement, met: _Meeting) -> _Walk:
    target = met.rules.target_of(effect.table)
    if target is None:
        return walk
    return _apply(walk, effect, _Site(Shard(met.source, effect.table), target, met.segment, statement, met.order))


def _swap(walk: _Walk, swapped: Swapped, met: _Meeting) -> _Walk:
    """What was run on the shadow happens to the shard; if that is not how the shadow looks, an operator is asked.

    An order about the statement is one about all of it: the first takes what it says, the others nothing.
    """
    met = replace(met, is_apart=lambda _: False)
    for statement in swapped.ghost.statements:
        walk = _happen(walk, statement, met)
        met = replace(met, order=replace(met.order, kind=Kind.SKIP) if met.order else None)
    assert met.rules.online is not None
    arrived = met.rules.online.arrival(swapped, _present(walk).get(swapped.ghost.real, ""))
    return _effect(walk, arrived, swapped.statement, replace(met, order=None)) if arrived else walk


def _show(source: str, walk: _Walk, ghost: Ghost, segment: Segment, rules: PlanRules) -> _Walk:
    """Rows in a table that only its name makes a shadow show that it is one of its own."""
    target = rules.target_of(ghost.table)
    if ghost.seen or ghost.table not in segment.tables or target is None or ghost.create is None:
        return walk
    walk = replace(walk, ghosts=tuple(other for other in walk.ghosts if other != ghost))
    site = _Site(Shard(source, ghost.table), target, replace(segment, end=segment.start), ghost.create)
    if ghost.structure:
        return _join(walk, Joins(ghost.table, ghost.structure), site)
    strange = StrangeNewShard(str(site.shard), str(target), ghost.create.text, "its structure is not known")
    return _enter_alone(walk, "", str(strange), "", site)


def _passed_rows(walk: _Walk, segment: Segment, rules: PlanRules) -> int:
    """Count the row events of dropped shards and of the sequences that lists and routes would take."""
    dropped = {table for table, state in walk.shards.items() if state.is_dropped}
    counts = (count for piece in segment.pieces for count in piece.tables) if dropped or walk.sequences else ()
    return sum(rows for table, rows in counts
               if table in dropped or (table in walk.sequences and rules.target_of(table) is not None))  # fmt: skip


def _read(source: str, walk: _Walk, segment: Segment, rules: PlanRules) -> _Walk:
    """Say what happens to the rows of a segment, also of shards whose rows contradict their structure from here on."""
    found, contradicted = walk, {}
    for each in rules.contradictions:
        state = found.shards.get(each.shard.table)
        if is_met(each, segment) and state is not None and state.structure and not state.is_dropped:
            found = _coordinate(found, *_unlogged(each, state.target, segment))
            contradicted[each.shard.table] = each, found.shards[each.shard.table]
    reading = Reading(source, rules.target_of, walk.sequences | {ghost.table for ghost in walk.ghosts}, rules.stopped)
    return replace(found, reads=(*walk.reads, *reads(reading, segment, walk.shards, contradicted)))


def _unlogged(found: Contradiction, target: TableId, segment: Segment) -> "tuple[Undecided, _Site]":
    """Return the change that is missing in the binlog, and where it is taken to have happened."""
    table, end = found.shard.table, segment.start if found.committed else found.location.position
    change = Undecided(table, reason_of(found), text_of(found, target), agreement_of(found, target))
    statement = Statement(text_of(found, table), table.schema, 0, "utf8mb4", segment.first_time, "SYSTEM")
    return change, _Site(found.shard, target, replace(segment, end=end), statement)


@dataclass(frozen=True, slots=True)
class _Site:
    """Where a statement meets a shard."""

    shard: Shard
    target: TableId
    segment: Segment
    statement: Statement
    order: StatementOrder | None = None

    @property
    def location(self) -> Location:
        return Location(self.segment.file, self.segment.end)


def _apply(walk: _Walk, effect: Effect, site: _Site) -> _Walk:
    state = walk.shards.get(site.shard.table)
    if state is not None and state.is_dropped and not state.has_left and not isinstance(effect, Leaves | Renamed):
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
        case Leaves():
            found = _leave(walk, site)
        case Renamed():
            found = _rename(walk, effect, site)
        case Ignored():
            found = _ignore(walk)
        case _:
            assert_never(effect)
    return found


def _ignore(walk: _Walk) -> _Walk:
    return replace(walk, ignored=walk.ignored + 1)


def _coordinate(walk: _Walk, effect: Coordinated | Undecided, site: _Site) -> _Walk:
    state = walk.shards.get(site.shard.table)
    if state is None or state.has_left:
        raise UnknownShard(str(site.shard), str(site.target), str(site.segment.begins))
    entry = QueueEntry(site.shard, site.target, state.last_seq + 1, site.location, site.statement, effect.routed,
                       effect.agreement, state.structure, effect.after,
                       reason=effect.reason if isinstance(effect, Undecided) else "")  # fmt: skip
    if site.order is not None and site.order.kind is not Kind.SKIP:
        group = [other.shard.table for other in (*walk.shards.values(), *walk.peers) if other.target == site.target]
        entry = counted(site.order, entry, group)
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
    aside = Rename(site.shard, name_aside(site.shard.table, site.location), site.location)
    return replace(walk, renames=(*walk.renames, aside))


def _rename(walk: _Walk, effect: Renamed, site: _Site) -> _Walk:
    state = walk.shards.get(site.shard.table)
    if state is None or state.has_left:
        raise UnknownShard(str(site.shard), str(site.target), str(site.segment.begins))
    return replace(walk, renames=(*walk.renames, Rename(site.shard, effect.to, site.location)))


def _join(walk: _Walk, effect: Joins, site: _Site) -> _Walk:
    structure = effect.structure
    state = walk.shards.get(site.shard.table)
    if state is not None and not state.has_left:
        # CREATE TABLE IF NOT EXISTS of a table that is there, or one that the snapshot has seen already.
        return _ignore(walk)
    if state is not None and (state.queue or state.held):
        # Only CREATE OR REPLACE: a name that another statement has dropped is free. Here it stays taken.
        if shape_of(structure) != shape_of(state.structure):
            recreated = RecreatedShard(str(site.shard), str(site.target), site.statement.text)
            return _enter_alone(walk, structure, str(recreated), effect.routed, site)
        walk = replace(walk, renames=tuple(rename for rename in walk.renames if rename.shard != site.shard))
        change = StructureChange(site.shard, site.target, site.location, structure)
        return _set(walk, replace(state, has_left=False), (), change)
    group = [state for state in (*walk.shards.values(), *walk.peers)
             if state.target == site.target and not state.is_dropped]  # fmt: skip
    peer, position = likeness(group, structure, site.shard.source)
    present = [state.shard for state in group if not state.has_left]
    if present and peer is None:
        strange = StrangeNewShard(str(site.shard), str(site.target), site.statement.text, str(min(present)))
        return _enter_alone(walk, structure, str(strange), effect.routed, site)
    pending = peer.queue if peer else ()
    entries = tuple(
        replace(entry, shard=site.shard, target=site.target, seq=number, location=site.location)
        for number, entry in enumerate(pending[:position], 1)
    )
    change = StructureChange(site.shard, site.target, site.location, structure, True, peer.shard if peer else None,
                             peer.born if peer else "", tuple(entry.seq for entry in pending),
                             makes_target=effect.makes_target)  # fmt: skip
    fresh = ShardState(site.shard, site.target, structure, None, (), 0, ())
    return _set(walk, _queue(fresh, entries, structure), entries, change)


def _enter_alone(walk: _Walk, structure: str, reason: str, routed: str, site: _Site) -> _Walk:
    """Let a table become a shard whose rows wait for an operator, under a name that is free, now or with the commit."""
    state = walk.shards.get(site.shard.table)
    if state is not None and not state.has_left and any(rename.shard == site.shard for rename in walk.renames):
        before = Shard(site.shard.source, name_aside(site.shard.table, site.location))
        walk = _enter_alone(walk, structure, reason, routed, replace(site, shard=before))
        return replace(walk, renames=(*walk.renames, Rename(before, site.shard.table, site.location)))
    if state is not None and not state.has_left:
        return _ignore(walk)
    walk = replace(walk, renames=tuple(rename for rename in walk.renames if rename.shard != site.shard))
    waits = state is not None and bool(state.queue or state.held)
    if state is None or not waits:
        state = ShardState(site.shard, site.target, structure, None, (), 0, ())
    own = f"{site.shard}: {site.statement.text}"
    entry = QueueEntry(site.shard, site.target, state.last_seq + 1, site.location, site.statement,
                       routed or site.statement.text, own, state.structure, structure, reason=reason,
                       is_alone=True)  # fmt: skip
    change = StructureChange(site.shard, site.target, site.location, structure, joins=not waits, is_strange=True)
    return _set(walk, replace(_queue(state, (entry,), structure), has_left=False), (entry,), change)


def _queue(state: ShardState, entries: Sequence[QueueEntry], structure: str) -> ShardState:
    last = entries[-1].seq if entries else state.last_seq
    return replace(state, queue=(*state.queue, *entries), structure=structure, last_seq=last)


def _set(walk: _Walk, state: ShardState, entries: Sequence[QueueEntry], change: StructureChange) -> _Walk:
    shards = {**walk.shards, state.shard.table: state}
    return replace(walk, shards=shards, queued=(*walk.queued, *entries), structures=(*walk.structures, change))
