"""Decides what one DDL of a shard leads to, and when the target may lose what no shard needs any more.

| the DDL                                                    | decision                                             |
|------------------------------------------------------------|------------------------------------------------------|
| leaves the join as it is                                   | `NOTHING`: its rows continue                         |
| makes the join larger                                      | `EXPAND`: its rows continue after these steps        |
| gives a column or a name that has no join with the others  | `CONFLICT`: the rows after it are held, of this      |
|                                                            | shard only                                           |
| changes the primary key, the key of the rows, partitions,  | `BARRIER`: this statement is coordinated as in       |
| the engine, a mapped column; converts to a smaller         | pessimistic mode                                     |
| character set; cannot be read                              |                                                      |

A decision is a function of the accepted structures and the target. After each accepted DDL the DDLs in conflict are
decided again. DDLs that have no join with the other shards can be accepted together with others:

| DDLs that are accepted together                              | example                                  |
|--------------------------------------------------------------|------------------------------------------|
| several of one shard that lead back to a join, or to the     | a canary that drops its wrong column, or |
| target as it is                                              | renames it back                          |
| the next one of several shards, or all that they have queued | all shards change INT to VARCHAR         |
| those of a new shard that lead to a join                     | a shard created like one that had not    |
|                                                              | changed INT to VARCHAR yet               |

The rows between DDLs of one shard are written with the mapping of that time. Values that have no place in the join are
left out, and the column is read again.

A target that exists can begin to follow the join of its shards:

| the target's column                   | the shards'                | the target                                      |
|---------------------------------------|----------------------------|-------------------------------------------------|
| has a join with it                    | any                        | gets what it lacks, keeps what it has more      |
| has no join: another type, expression | any                        | US-6004: a conversion could change its values   |
| is plain                              | generated                  | US-6004: the server would not compute it        |
| any                                   | plain in some, generated   | US-6004 if rows are dumped: the dump lacks the  |
|                                       | in others                  | values                                          |
| NOT NULL without a default            | no such column             | US-6802: no row has a value                     |
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache

from unshard.core.ddl.lineage import ExecutedDdl, names_after
from unshard.core.ddl.queue import ShardState
from unshard.core.join.difference import (
    AddCheck,
    ChangeColumn,
    Difference,
    DropColumn,
    Step,
    Target,
    described,
    difference,
    target_with_ids,
)
from unshard.core.join.group import (
    ColumnToReload,
    Group,
    Member,
    ReloadReason,
    conversion_text,
    conversions,
    converted,
    joined_by,
    moved,
    names_of,
    unmade_reloads,
    unread_names,
    without,
)
from unshard.core.join.joined import Accepted
from unshard.core.join.jointables import Definition, Key, Table, buildable, join_definitions, table_with_ids
from unshard.core.model import Location, Shard, TableId, TableSchema
from unshard.core.sql.charsets import common_charset
from unshard.core.sql.mode import STRICT
from unshard.core.structures.columntypes import LabelType, TextType, join_types, meets
from unshard.core.structures.comparison import foreign_reasons
from unshard.core.structures.parsedtable import PartKind, create_parts
from unshard.errors.ddl import DdlUnreadable
from unshard.errors.rows import ColumnTypesDiffer

SHOWN_BY_SOME = re.compile(r"ENGINE *= *\w+|[\s()]")
"""Engines, blanks and parentheses: TiDB and MariaDB show the same partitions with others of them."""


class Decision(StrEnum):
    """What a DDL leads to."""

    NOTHING = "nothing to do"
    EXPAND = "expand"
    CONFLICT = "conflict"
    BARRIER = "barrier"


ACCEPTED = frozenset({Decision.NOTHING, Decision.EXPAND})
Queues = Mapping[Shard, Sequence["Change"]]


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two sides of a dimension that cannot be joined, with the shards of each side."""

    subject: str
    dimension: str
    sides: tuple[tuple[str, tuple[Shard, ...]], ...]

    def __str__(self) -> str:
        sides = " and ".join(f"{text} ({', '.join(map(str, shards))})" for text, shards in self.sides)
        return f"{self.dimension} of {self.subject}: {sides}"


@dataclass(frozen=True, slots=True)
class Decided:
    """The decision about one DDL, with the group and the steps that it leads to."""

    decision: Decision
    group: Group
    """The group after the DDL; unchanged if the DDL is not accepted."""
    steps: tuple[Step, ...] = ()
    first: tuple[Step, ...] = ()
    """Contracting steps that must come before; they wait for `hindering` shards."""
    conflicts: tuple[Conflict, ...] = ()
    reason: str = ""
    after: Group | None = field(default=None, repr=False)
    """The group after the DDL, also if it is in conflict; None if the DDL has no effect on ids."""
    accepted: Mapping[Shard, tuple[Member, ...]] = field(default_factory=dict)
    """If DDLs are accepted together (`decide_waiting`): each shard as it was after its DDLs, except the last one."""

    def __str__(self) -> str:
        details = [*map(str, self.first), *map(str, self.steps), *map(str, self.conflicts), self.reason]
        return ": ".join(filter(None, (str(self.decision), "; ".join(filter(None, details)))))


@dataclass(frozen=True, slots=True)
class Change:
    """A DDL of a shard; several statements for one change of an online DDL tool."""

    statements: tuple[ExecutedDdl, ...]
    after: TableSchema


@dataclass(frozen=True, slots=True)
class ShardProgress:
    """How far the rows of a shard are in the target."""

    applied: Location
    """All rows before it are written or held."""
    changed: Location | None = None
    """The end of the shard's last accepted DDL; None if it had none."""
    has_older_rows: bool = False
    """Whether rows from before that DDL are held, deferred or in an open window."""


def decide_change(group: Group, target: Target, shard: Shard, change: Change, mapped: Collection[str] = ()) -> Decided:
    """Return the decision; `mapped` are the columns of column mappings, in lower case."""
    member = group.members[shard]
    try:
        unread = unread_names(group, shard, change.statements, change.after)
    except DdlUnreadable as error:
        return Decided(Decision.BARRIER, group, reason=str(error))
    if unread:
        return Decided(Decision.BARRIER, group, reason=f"its effect on column {', '.join(unread)} is unknown")
    after, name_conflicts = moved(group, shard, change.statements, change.after)
    if name_conflicts:
        pairs = ((one, ((one.name, (shard,)), (one.other, one.shards))) for one in name_conflicts)
        conflicts = tuple(Conflict(f"column {one.other}", "new name", sides) for one, sides in pairs)
        return Decided(Decision.CONFLICT, group, conflicts=conflicts)
    if reason := _barrier(member, after.members[shard], mapped):
        return Decided(Decision.BARRIER, group, reason=reason)
    return decide_group(group, after, target)


def decide_group(group: Group, after: Group, target: Target) -> Decided:
    """Return the decision about another group: with a shard that was created or dropped, or after a DDL."""
    if conflicts := conflicts_of(after):
        return Decided(Decision.CONFLICT, group, conflicts=conflicts, after=after)
    found = steps_to_join(after, target)
    is_needed = bool(found.expanding or found.first)
    return Decided(Decision.EXPAND if is_needed else Decision.NOTHING, after, found.expanding, found.first, after=after)


def group_after(group: Group, steps: Iterable[Step]) -> Group:
    """Return the group after the target has executed steps: it forgets dropped columns and conversions made by all."""
    steps = tuple(steps)
    changed = {step.id: conversion_text(step.after) for step in steps if isinstance(step, ChangeColumn)}
    dropped = [step.id for step in steps if isinstance(step, DropColumn) and not group.holders(step.id)]
    return without(converted(group, changed), dropped)


def wanted(group: Group) -> Target:
    """Return the structure that the target should have; the group must have no conflicts.

    A unique key of columns that must be read again is missing in it: until then the target may have equal values.
    """
    shards = [member.table for _, member in sorted(group.members.items())]
    shards += [group.floor.table] if group.floor is not None else []
    names, _ = names_of(group, group.held)
    table = buildable(group.table, shards)
    keys = {key: name for key, name in table.keys.items() if not awaits_reload(group, key)}
    return Target(replace(table, keys=keys), names)


def awaits_reload(group: Group, key: Key) -> bool:
    """Whether values of a unique key must be read again; never for the key that identifies rows."""
    members = group.members.values()
    if not key.is_strict or not any(reload.column in key.columns for member in members for reload in member.reloads):
        return False
    return all(key.columns != _row_key(member) for member in members)


def steps_to_join(group: Group, target: Target) -> Difference:
    """Return the steps from the target to the join of its shards."""
    return difference(target, wanted(group), group.fills)


def contracting(group: Group, target: Target) -> tuple[Step, ...]:
    """Return the contracting steps that no reload delays: NOT NULL and CHECK need all values of their columns."""
    found = steps_to_join(group, target)
    return () if found.expanding or found.first else tuple(s for s in found.contracting if not _is_early(group, s))


def _is_early(group: Group, step: Step) -> bool:
    """Whether values of the step's columns must be read again before it; a conversion needs no reload for itself."""
    members = group.members.values()
    if isinstance(step, ChangeColumn):
        return any(unmade_reloads(member, step.id, conversion_text(step.after)) for member in members)
    if not isinstance(step, AddCheck):
        return False
    columns = frozenset(word for word in step.expression if isinstance(word, int))
    return any(reload.column in columns for member in members for reload in member.reloads)


def conflicts_of(group: Group) -> tuple[Conflict, ...]:
    """Return everything in the group that has no join."""
    table = group.table
    found = [_of_column(group, id) for id, column in table.columns.items() if column is None]
    if not table.is_keyed:
        found.append(_of_keys(group))
    found += [_of_identity(group, id) for id in names_of(group, group.held)[1]]
    return tuple(found)


def hindering(progress: Mapping[Shard, ShardProgress]) -> tuple[Shard, ...]:
    """Return the shards whose rows may still need what contracting steps remove; empty: the steps may be executed."""
    return tuple(
        shard
        for shard, each in sorted(progress.items())
        if each.has_older_rows or (each.changed is not None and each.applied < each.changed)
    )


def decide_waiting(group: Group, target: Target, queues: Queues, mapped: Collection[str] = ()) -> Decided | None:
    """Return the decision about queued DDLs that can be accepted together; None without such DDLs.

    `accepted` of the result names the shards, each with one more DDL than members.
    """
    return _first_accepted(group, target, _candidates(group, target, queues, mapped), mapped)


def decide_back(
    group: Group, target: Target, shard: Shard, queue: Sequence[Change], mapped: Collection[str] = ()
) -> Decided | None:
    """Return the decision about queued DDLs of one shard that together need no change of the target; None without."""
    parts = ({shard: queue[:end]} for end in range(2, len(queue) + 1))
    decisions = (_together(group, target, part, mapped) for part in parts)
    return next((each for each in decisions if each is not None and each.decision is Decision.NOTHING), None)


def decide_new(
    group: Group,
    target: Target,
    shard: Shard,
    first: TableSchema,
    queue: Sequence[Change],
    mapped: Collection[str] = (),
) -> Decided | None:
    """Return the decision about a new shard that has a join only after some of its queued DDLs; None without them.

    `first` is its structure before them. `accepted` has the shard with `first`, then after each DDL but the last.
    """
    created = Change((), first)
    parts = ({shard: (created, *queue[:end])} for end in range(1, len(queue) + 1))
    return _first_accepted(joined_by(group, shard, first), target, parts, mapped)


def _first_accepted(
    group: Group, target: Target, candidates: Iterable[Queues], mapped: Collection[str]
) -> Decided | None:
    decisions = (_together(group, target, parts, mapped) for parts in candidates)
    return next((decided for decided in decisions if decided is not None), None)


def _candidates(group: Group, target: Target, queues: Queues, mapped: Collection[str]) -> Iterator[Queues]:
    """Yield sets of DDLs: parts of one queue, then those of shards that are in conflict with each other, then all."""
    for shard, queue in sorted(queues.items()):
        yield from ({shard: queue[:end]} for end in range(1, len(queue) + 1))
    for shards in dict.fromkeys(_concerned(group, target, shard, queues, mapped) for shard in sorted(queues)):
        if len(shards) > 1:
            yield from _shorter_and_whole({shard: queues[shard] for shard in shards})
    yield from _shorter_and_whole(queues)


def _concerned(
    group: Group, target: Target, shard: Shard, queues: Queues, mapped: Collection[str]
) -> tuple[Shard, ...]:
    """Return a shard and those that its first DDL is in conflict with, if they have DDLs in their queues, too."""
    conflicts = decide_change(group, target, shard, queues[shard][0], mapped).conflicts
    others = {other for each in conflicts for _, shards in each.sides for other in shards} | {shard}
    return tuple(other for other in sorted(others) if other in queues)


def _shorter_and_whole(queues: Queues) -> Iterator[Queues]:
    yield {shard: queue[:1] for shard, queue in queues.items()}
    yield queues


def _together(group: Group, target: Target, parts: Queues, mapped: Collection[str]) -> Decided | None:
    after = group
    for shard, part in parts.items():
        whole = Change(tuple(ran for change in part for ran in change.statements), part[-1].after)
        decided = decide_change(after, target, shard, whole, mapped)
        is_name_conflict = any(each.dimension == "new name" for each in decided.conflicts)
        if decided.decision is Decision.BARRIER or is_name_conflict or decided.after is None:
            return None
        after = decided.after
    decided = decide_group(group, after, target)
    if decided.decision not in ACCEPTED:
        return None
    accepted = dict[Shard, tuple[Member, ...]]()
    members = dict(decided.group.members)
    for shard, part in parts.items():
        accepted[shard], members[shard] = _with_rows_between(decided.group, group.members[shard], shard, part)
    return replace(decided, group=replace(decided.group, members=members), accepted=accepted)


def _with_rows_between(
    group: Group, before: Member, shard: Shard, part: Sequence[Change]
) -> tuple[tuple[Member, ...], Member]:
    """Return the shard after each DDL but the last, and after the last one with the columns to read again."""
    last, columns = group.members[shard], group.table.columns
    between, chain, lost = list[Member](), [before], set[int]()
    for number, change in enumerate(part[:-1], 1):
        later = tuple(ran for each in part[number:] for ran in each.statements)
        moves = names_after((name.lower() for name in change.after.names), later)
        ids = {name: last.ids[new] for name, new in moves.items() if new in last.ids}
        own = table_with_ids(change.after, ids).columns
        unfit = {id for id, definition in own.items() if not _is_held(definition, columns[id])}
        between.append(Member(change.after, {name: id for name, id in ids.items() if id not in unfit}))
        chain.append(Member(change.after, ids))
        lost |= unfit
    is_strict = all(ran.sql_mode & STRICT for change in part for ran in change.statements)
    reloads = {ColumnToReload(id, ReloadReason.CONVERTED) for id in lost}
    for change, one, other in zip(part, chain, (*chain[1:], last), strict=True):
        reloads |= {*conversions(one, other, is_strict, change.statements)} if between else set()
    return tuple(between), replace(last, reloads=last.reloads | reloads)


def _is_held(own: Definition | None, column: Definition | None) -> bool:
    both = join_definitions(own, column) if own is not None and column is not None else None
    if both is None or column is None:
        return False
    return meets(column.type, both.type) and both.nullable == column.nullable


def _of_column(group: Group, id: int) -> Conflict:
    """Return the first dimension on which the definitions of a column cannot be joined, with its two sides."""
    own = {shard: group.members[shard].table.columns[id] for shard in group.holders(id)}
    shown = {shard: _shown(group, shard, id) for shard in own}
    pairs = [(one, other) for one in own for other in own if one < other]
    first, second = next((pair for pair in pairs if _pair_fails(own[pair[0]], own[pair[1]])), pairs[0])
    sides: Mapping[str, list[Shard]] = {shown[first]: [], shown[second]: []}
    for shard, text in shown.items():
        if text in sides:
            sides[text].append(shard)
    dimension = _dimension(own[first], own[second])
    return Conflict(f"column {group.last_name(id)}", dimension, tuple((text, tuple(s)) for text, s in sides.items()))


def _of_identity(group: Group, id: int) -> Conflict:
    """Return the conflict of two columns with one name, which other shards have or which has no other name."""
    name = group.last_name(id)
    other = next(other for other in group.held if other != id and name in group.columns[other].names)
    holders = group.holders(id), group.holders(other)
    sides = tuple((_shown(group, s[0], each), s) for s, each in zip(holders, (id, other), strict=True))
    one, two = (group.members[s[0]].table.columns[each] for s, each in zip(holders, (id, other), strict=True))
    dimension = _dimension(one, two) if _pair_fails(one, two) else "identity"
    return Conflict(f"column {name}", dimension, sides)


def _pair_fails(one: Definition | None, other: Definition | None) -> bool:
    return one is None or other is None or join_definitions(one, other) is None


def _shown(group: Group, shard: Shard, id: int) -> str:
    definition = group.members[shard].table.columns[id]
    name = group.members[shard].names[id]
    text = definition.text if definition is not None else ""
    return f"{name} {text}" if text else f"{name} {described(definition) if definition else ''}"


def _dimension(one: Definition | None, other: Definition | None) -> str:
    if one is None or other is None:
        return "type"
    if isinstance(one.type, TextType | LabelType) and type(one.type) is type(other.type):
        pairs = {charset for side in (one.type, other.type) for charset, _ in side.collations}
        if common_charset(pairs) is None:
            return "character set"
    if join_types(one.type, other.type) is None:
        return "type"
    if len(one.generated | other.generated) > 1 or one.is_generated != other.is_generated:
        return "expression"
    return "labels" if isinstance(one.type, LabelType) else "type"


def _of_keys(group: Group) -> Conflict:
    sides: dict[str, list[Shard]] = {}
    for shard, member in sorted(group.members.items()):
        index = next((index for index in member.structure.indexes if index.name == "PRIMARY"), None)
        sides.setdefault(f"({', '.join(index.columns)})" if index else "none", []).append(shard)
    return Conflict("the table", "primary key", tuple((text, tuple(shards)) for text, shards in sides.items()))


def _barrier(before: Member, after: Member, mapped: Collection[str]) -> str:
    """Return why a DDL must be coordinated with all shards; empty if it need not."""
    old, new = before.table, after.table
    if old.primary != new.primary:
        return "it changes the primary key"
    if reason := _of_row_key(before, after):
        return reason
    if _options(before.structure.create_sql) != _options(after.structure.create_sql):
        return "it changes the storage engine or the partitions"
    names = {before.ids[name] for name in mapped if name in before.ids}
    if any(old.columns.get(id) != new.columns.get(id) or before.names[id] != after.names.get(id) for id in names):
        return "it changes a column of a column mapping"
    if any(_shrinks(old, new, id) for id in old.columns if id in new.columns):
        return "it converts a column to a smaller character set"
    return ""


def _of_row_key(before: Member, after: Member) -> str:
    if _row_key(before) != _row_key(after):
        return "it changes the key that identifies rows"
    converts = any(reload.column in _row_key(after) for reload in after.reloads - before.reloads)
    return "it converts values of the key that identifies rows" if converts else ""


def _row_key(member: Member) -> frozenset[int]:
    return frozenset(member.ids[name.lower()] for name in member.structure.key if name.lower() in member.ids)


@lru_cache(512)
def _options(create_sql: str) -> tuple[str, ...]:
    """Return the engine and the partitions, the latter without what only some servers show."""
    parts = create_parts(create_sql).options
    kept = (part for part in parts if part.kind is PartKind.PARTITION or part.text.upper().startswith("ENGINE"))
    return tuple(
        SHOWN_BY_SOME.sub("", part.text.upper()) if part.kind is PartKind.PARTITION else part.text.upper()
        for part in kept
    )


def _shrinks(old: Table, new: Table, id: int) -> bool:
    one, two = old.columns[id], new.columns[id]
    if one is None or two is None:
        return False
    if not isinstance(one.type, TextType | LabelType) or not isinstance(two.type, TextType | LabelType):
        return False
    return common_charset({one.type.charset, two.type.charset}) != two.type.charset


# --- whether a target that exists can begin to follow the join of its shards


def begun_names(group: Group, present: TableSchema) -> Mapping[int, str]:
    """Return the ids of the target's columns when it begins to join: those of the names that it should have."""
    return {id: name for id, name in wanted(group).names.items() if name in present.by_name}


def unjoined_columns(target: TableId, group: Group, present: TableSchema) -> Iterator[ColumnTypesDiffer]:
    """Yield the columns of a target that have no join with those of its shards; the shards must have one."""
    there = target_with_ids(present, begun_names(group, present)).table.columns
    for id, definition in there.items():
        asked = wanted(group).table.columns[id]
        if definition is None or asked is None:
            continue
        is_computed = asked.is_generated and not definition.is_generated
        if is_computed or join_definitions(definition, asked) is None:
            yield _error(target, group, id, present.column(wanted(group).names[id]).column_type, definition)


def undumped_columns(target: TableId, group: Group) -> Iterator[ColumnTypesDiffer]:
    """Yield the columns that some shards generate and others do not: rows of a dump do not have their values."""
    for id, asked in wanted(group).table.columns.items():
        members = ((shard, group.members[shard]) for shard in group.holders(id))
        makers = [shard for shard, own in members if own.structure.column(own.names[id]).is_generated]
        if asked is not None and not asked.is_generated and makers:
            yield _error(target, group, id, described(asked), asked, makers[0])


def foreign_columns(
    present: TableSchema, shards: Iterable[TableSchema], extracted: Collection[str] = ()
) -> tuple[str, ...]:
    """Return why rows of no shard can be written to the target; `extracted` are columns that routes fill."""
    shards = tuple(shards)
    filled = {*extracted, *(name for shard in shards for name in shard.by_name)}
    return tuple(dict.fromkeys(reason for shard in shards for reason in foreign_reasons(present, shard.key, filled)))


def _error(
    target: TableId, group: Group, id: int, shown: str, there: Definition, shard: Shard | None = None
) -> ColumnTypesDiffer:
    shard = shard or group.holders(id)[0]
    name = group.members[shard].names[id]
    own = group.members[shard].structure.column(name)
    kind = own.column_type + (" (generated)" if own.is_generated else "")
    return ColumnTypesDiffer(
        str(shard), name, kind, str(target), shown + (" (generated)" if there.is_generated else "")
    )


def begun_at(
    structures: Iterable[tuple[ShardState, TableSchema]], begin: Callable[[Mapping[Shard, TableSchema]], Group]
) -> tuple[Group, Mapping[Shard, Accepted]]:
    """Return the first group of a target and how far its shards are."""
    found = [*structures]
    accepted = {
        state.shard: Accepted(state.queue[0].seq - 1 if state.queue else state.last_seq, None, state.shard_uid)
        for state, _ in found
    }
    return begin({state.shard: schema for state, schema in found}), accepted
