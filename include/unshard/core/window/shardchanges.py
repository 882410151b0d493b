"""Applies the effects of a statement on shards to the plan of a window (core.window.windowplanning), from values alone.

A DDL goes to the queue of its shard. A shard joins or leaves its group, gets another name, or loses its rows in the
target (core.ddl.onetoone for one-to-one targets, core.rules.shardrows for merged ones).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from unshard.core.ddl.effects import (
    Coordinated,
    Effect,
    Effects,
    Follows,
    IgnoredEffect,
    Joins,
    Leaves,
    Moves,
    Renamed,
    SchemaStatement,
    Together,
    Truncates,
    Undecided,
)
from unshard.core.ddl.names import without_strings
from unshard.core.ddl.onetoone import is_only, whole_entry
from unshard.core.ddl.online import Online, OnlineTables
from unshard.core.ddl.queue import EntryState, OperatorDecision, QueueEntry, ShardState, WholeChange, matching_shard
from unshard.core.ddl.reconcile import is_refusal
from unshard.core.ddl.renaming import name_of_dropped
from unshard.core.ddl.statementcommands import CommandKind, StatementCommand, replaced_entry
from unshard.core.model import Location, Shard, TableId, shape_of
from unshard.core.relay.segment import Segment, Statement
from unshard.core.rules.shardrows import ShardRows
from unshard.core.window.plan import (
    AppliedCommand,
    Contradiction,
    Deletion,
    Read,
    Rename,
    StructureChange,
    UnreadStatement,
    WindowLimits,
)
from unshard.errors.locks import MismatchedNewShard, RecreatedShard, UnknownShard

RowsOf = Callable[[ShardState, Sequence[Shard]], ShardRows | str]
"""Returns the values that name the rows of a shard in its target, or why they cannot be told from those of the group
(the second argument) and of shards that have left it."""
FILE_BY_FILE = WindowLimits(0, 0, 0)


@dataclass(frozen=True, slots=True)
class PlanRules:
    """The rules of the task for windows, and the functions that find the effect of a DDL."""

    target_of: Callable[[TableId], TableId | None]
    effects: Effects
    window_bytes: int
    """Largest size of a window, or of a section of a window that can have several."""
    sections: int = 1
    safe_until: Location | None = None
    """Windows that begin before it run in safe mode: the dump may have seen their rows."""
    force_safe: bool = False
    sequences: frozenset[TableId] = frozenset()
    commands: tuple[StatementCommand, ...] = ()
    """Commands about statements that no window has reached."""
    ordered: Effects | None = None
    """As `effects`, without the task's filters: a command overrides them."""
    history: str = ""
    stopped: frozenset[TableId] = frozenset()
    """Suspended targets of the source (core.window.suspension): all rows for them are held."""
    retried: tuple[TableId, ...] = ()
    together: WindowLimits = FILE_BY_FILE
    """How many of their held rows are released together, so that they are compacted with later corrections."""
    online_tables: OnlineTables = ()
    contradictions: tuple[Contradiction, ...] = ()
    """Rows without the structure of their shard, found by an attempt at this window."""
    online: Online | None = None
    """Follows the tables of online DDL tools; None: they are treated like other tables."""
    is_joined: bool = False
    """The targets follow the join of their shards: rows of one window under one name are those of one shard."""
    rows_of: RowsOf = lambda state, _: f"nothing tells the rows of {state.shard}"


def within_window(segments: Iterable[Segment], rules: PlanRules) -> tuple[Segment, ...]:
    """Return the first segments, as many as one window can read at most: planning looks at no others."""
    taken: list[Segment] = []
    size = 0
    for segment in segments:
        weight = weight_of(segment, rules)
        if taken and weight and size + weight > rules.window_bytes * rules.sections:
            break
        taken.append(segment)
        size += weight
    return tuple(taken)


def weight_of(segment: Segment, rules: PlanRules) -> int:
    """Return the bytes of the segment that must be decoded."""
    wanted = (r for r in segment.pieces if any(rules.target_of(table) for table, _ in r.tables))
    return sum(r.end - r.start for r in wanted)


# --- the effects of a statement on the plan of a window


TARGET_IS_DROPPED = "a filter ignores its CREATE TABLE, and the target table is dropped by the statement before it"


@dataclass(frozen=True, slots=True)
class Walk:
    """The plan up to some segment or statement."""

    shards: Mapping[TableId, ShardState]
    peers: tuple[ShardState, ...]
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
    deletions: tuple[Deletion, ...] = ()


@dataclass(frozen=True, slots=True)
class StatementSite:
    """A statement, the shard that it concerns, and its segment."""

    shard: Shard
    target: TableId
    segment: Segment
    statement: Statement
    command: StatementCommand | None = None
    rows_of: RowsOf | None = None

    @property
    def location(self) -> Location:
        return Location(self.segment.file, self.segment.end)


def apply_effect(walk: Walk, effect: Effect, site: StatementSite) -> Walk:
    """Apply one effect of a statement to a shard."""
    state = walk.shards.get(site.shard.table)
    if (
        state is not None
        and state.is_dropped
        and not state.has_left
        and not isinstance(effect, Leaves | Renamed | Moves | Together)
    ):
        return replace(walk, ignored=walk.ignored + 1)
    match effect:
        case Undecided() if effect.is_new:
            found = enter_alone(walk, effect.after, effect.reason, effect.routed, site)
        case Coordinated() | Undecided():
            found = coordinate(walk, effect, site)
        case Joins():
            found = join_group(walk, effect, site)
        case Follows():
            found = _follow(walk, effect, site)
        case Leaves() | Truncates() | Moves() | Together():
            found = _lose(walk, effect, site)
        case Renamed():
            found = _rename(walk, effect, site)
        case IgnoredEffect():
            found = _ignore(walk)
        case _:
            assert_never(effect)
    return found


def _lose(walk: Walk, effect: Leaves | Truncates | Moves | Together, site: StatementSite) -> Walk:
    match effect:
        case Leaves():
            found = _remove(walk, effect.whole, site)
            return _leave(_delete(walk, site) if found is walk and effect.removes_rows else found, site)
        case Truncates():
            return _truncate(walk, effect, site)
        case Moves():
            return _moved(walk, effect, site) or apply_effect(
                _leave(walk, site), effect.undecided, _renamed_site(effect, site)
            )
        case Together():
            return _together(walk, effect, site)


def _truncate(walk: Walk, effect: Truncates, site: StatementSite) -> Walk:
    state = walk.shards.get(site.shard.table)
    if state is None or (state.start is not None and site.location <= state.start):
        return _ignore(walk)  # the second: the dump has the rows that were written after it
    found = _remove(walk, WholeChange.TRUNCATE, site) if effect.is_whole else walk
    found = _delete(walk, site) if found is walk and effect.removes_rows else found
    return _ignore(walk) if found is walk else found


def _delete(walk: Walk, site: StatementSite) -> Walk:
    """Delete the rows of a shard from a merged target; if they cannot be told from those of others, ask an operator."""
    state = walk.shards.get(site.shard.table)
    if state is None or state.has_left or state.is_dropped or site.rows_of is None:
        return walk
    rows = site.rows_of(state, [other.shard for other in _group(walk, site)])
    if isinstance(rows, str):
        own = f"{site.shard} at {site.location}: {site.statement.text}"
        return coordinate(walk, Undecided(site.shard.table, rows, site.statement.text, own, state.structure), site)
    deletion = Deletion(site.shard, site.target, site.location, without_strings(site.statement.text), rows)
    shards = {**walk.shards, site.shard.table: replace(state, held=())}
    return replace(walk, shards=shards, deletions=(*walk.deletions, deletion))


def _moved(walk: Walk, effect: Moves, site: StatementSite) -> Walk | None:
    """Queue a RENAME of the target if both targets are one-to-one; the new shard waits for it. None if they are not."""
    new, state = _renamed_site(effect, site), walk.shards.get(effect.table)
    is_free = not any(other for other in _group(walk, new) if not other.has_left)
    found = _remove(walk, WholeChange.RENAME, site, effect.to_target) if effect.routed and is_free else walk
    if found is walk or state is None:
        return None
    found = _leave(found, site)
    return enter_alone(found, state.structure, "", effect.routed, new, WholeChange.CREATE)


def _renamed_site(effect: Moves, site: StatementSite) -> StatementSite:
    return replace(site, shard=Shard(site.shard.source, effect.to), target=effect.to_target)


def _together(walk: Walk, effect: Together, site: StatementSite) -> Walk:
    """Apply all effects, or the other ones if a rename is not one of one-to-one targets."""
    found: Walk | None = walk if effect.steps else None
    for each, target in effect.steps:
        at = replace(site, shard=Shard(site.shard.source, each.table), target=target)
        if found is not None:
            found = _moved(found, each, at) if isinstance(each, Moves) else coordinate(found, each, at)
    if found is not None:
        return found
    for other, target in effect.otherwise:
        walk = apply_effect(walk, other, replace(site, shard=Shard(site.shard.source, other.table), target=target))
    return walk


def _remove(walk: Walk, change: WholeChange, site: StatementSite, to: TableId | None = None) -> Walk:
    """Queue a statement about the whole target table if the shard is its only one; else the rows stay."""
    state = walk.shards.get(site.shard.table)
    if change is WholeChange.NONE or state is None or not is_only(state, _group(walk, site)):
        return walk
    entry = whole_entry(change, state, site.location, site.statement, to)
    shards = {**walk.shards, state.shard.table: _queue(state, (entry,), state.structure)}
    return replace(walk, shards=shards, queued=(*walk.queued, entry))


def _group(walk: Walk, site: StatementSite) -> list[ShardState]:
    return [state for state in (*walk.shards.values(), *walk.peers) if state.target == site.target]


def _ignore(walk: Walk) -> Walk:
    return replace(walk, ignored=walk.ignored + 1)


def coordinate(walk: Walk, effect: Coordinated | Undecided, site: StatementSite) -> Walk:
    """Queue a DDL of a shard; its later rows have the structure after it."""
    state = walk.shards.get(site.shard.table)
    if state is None or state.has_left:
        return _unknown(walk, effect.routed, site)
    effect = _known_by_peer(effect, state, _group(walk, site))
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
    if site.command is not None and site.command.kind is CommandKind.SKIP:
        # Its rows are held in this window; the next one begins with their structure.
        entry = replace(entry, state=EntryState.RESOLVED, verdict=OperatorDecision.SKIP)
    elif site.command is not None:
        group = [other.shard.table for other in (*walk.shards.values(), *walk.peers) if other.target == site.target]
        entry = replaced_entry(site.command, entry, group)
    change = StructureChange(site.shard, site.target, site.location, effect.after)
    return _set(walk, _queue(state, (entry,), effect.after), (entry,), change)


def _known_by_peer(
    effect: Coordinated | Undecided, state: ShardState, group: Sequence[ShardState]
) -> Coordinated | Undecided:
    """Return a DDL that the target refuses as one of known effect, if another shard has it with its effect.

    An operator has altered the target by hand and asked again for that shard.
    """
    if isinstance(effect, Coordinated) or effect.after or not is_refusal(effect.reason):
        return effect
    for entry in (entry for other in group for entry in other.queue):
        is_same = (entry.fingerprint, entry.before) == (effect.fingerprint, state.structure)
        if is_same and entry.after and not entry.reason and entry.verdict is OperatorDecision.NONE:
            return Coordinated(effect.table, effect.routed, effect.fingerprint, entry.after)
    return effect


def _follow(walk: Walk, effect: Follows, site: StatementSite) -> Walk:
    state = walk.shards.get(site.shard.table)
    if state is None or state.has_left:
        return _unknown(walk, "", site)
    change = StructureChange(site.shard, site.target, site.location, effect.after)
    return _ignore(_set(walk, replace(state, structure=effect.after), (), change))


def _unknown(walk: Walk, routed: str, site: StatementSite) -> Walk:
    """Let a table whose CREATE TABLE was never seen wait for an operator; a command that skips its DDL ignores it."""
    if site.command is not None and site.command.kind is CommandKind.SKIP:
        return _ignore(walk)
    return enter_alone(walk, "", str(UnknownShard(str(site.shard), str(site.target), str(site.location))), routed, site)


def _leave(walk: Walk, site: StatementSite) -> Walk:
    state = walk.shards.get(site.shard.table)
    if state is None or state.has_left:
        return walk
    walk = _set(walk, replace(state, has_left=True), (), StructureChange(site.shard, site.target, site.location, None))
    if not (state.queue or state.held):
        return walk
    renamed = Rename(site.shard, name_of_dropped(site.shard.table, site.location), site.location)
    return replace(walk, renames=(*walk.renames, renamed))


def _rename(walk: Walk, effect: Renamed, site: StatementSite) -> Walk:
    state = walk.shards.get(site.shard.table)
    if state is None or state.has_left:
        raise UnknownShard(str(site.shard), str(site.target), str(site.segment.begins))
    return replace(walk, renames=(*walk.renames, Rename(site.shard, effect.to, site.location)))


def join_group(walk: Walk, effect: Joins, site: StatementSite) -> Walk:
    """Make a table a shard of its group."""
    structure = effect.structure
    state = walk.shards.get(site.shard.table)
    if state is not None and not state.has_left:
        # CREATE TABLE IF NOT EXISTS of an existing table, or a CREATE TABLE that the snapshot has seen already.
        return _ignore(walk)
    group = [other for other in _group(walk, site) if not other.is_dropped]
    if any(entry.whole.removes for other in group for entry in other.queue):
        reason = "" if effect.makes_target else TARGET_IS_DROPPED
        return enter_alone(walk, structure, reason, effect.routed, site, WholeChange.CREATE)
    if state is not None and (state.queue or state.held):
        # Only CREATE OR REPLACE: after a DROP by another statement the name is free. Here it stays in use.
        if shape_of(structure) != shape_of(state.structure):
            recreated = RecreatedShard(str(site.shard), str(site.target), site.statement.text)
            return enter_alone(walk, structure, str(recreated), effect.routed, site)
        walk = replace(walk, renames=tuple(rename for rename in walk.renames if rename.shard != site.shard))
        change = StructureChange(site.shard, site.target, site.location, structure)
        return _set(walk, replace(state, has_left=False), (), change)
    group = [other for other in _group(walk, site) if not other.is_dropped]
    peer, position = matching_shard(group, structure, site.shard.source)
    present = [state.shard for state in group if not state.has_left]
    if present and peer is None:
        mismatched = MismatchedNewShard(str(site.shard), str(site.target), site.statement.text, str(min(present)))
        return enter_alone(walk, structure, str(mismatched), effect.routed, site)
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


def enter_alone(
    walk: Walk, structure: str, reason: str, routed: str, site: StatementSite, whole: WholeChange = WholeChange.NONE
) -> Walk:
    """Make the table a shard whose rows wait for an operator, under a name that is free now or after the commit.

    With `whole` they wait until the former target table is dropped.
    """
    state = walk.shards.get(site.shard.table)
    if state is not None and not state.has_left and any(rename.shard == site.shard for rename in walk.renames):
        before = Shard(site.shard.source, name_of_dropped(site.shard.table, site.location))
        walk = enter_alone(walk, structure, reason, routed, replace(site, shard=before), whole)
        return replace(walk, renames=(*walk.renames, Rename(before, site.shard.table, site.location)))
    if state is not None and not state.has_left:
        return _ignore(walk)
    walk = replace(walk, renames=tuple(rename for rename in walk.renames if rename.shard != site.shard))
    waits = state is not None and bool(state.queue or state.held)
    former = state.structure if state is not None else ""
    if state is None or not waits:
        state = ShardState(site.shard, site.target, structure, None, (), 0, ())
    if whole is not WholeChange.NONE or not structure:
        former = state.structure
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
        former,
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


def _set(walk: Walk, state: ShardState, entries: Sequence[QueueEntry], change: StructureChange) -> Walk:
    shards = {**walk.shards, state.shard.table: state}
    return replace(walk, shards=shards, queued=(*walk.queued, *entries), structures=(*walk.structures, change))
