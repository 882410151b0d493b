"""Accepts DDLs that wait because they have no join with the other shards, together with other DDLs.

| DDLs that are accepted together                              | example                                  |
|--------------------------------------------------------------|------------------------------------------|
| several of one shard that lead back to a join, or to the     | a canary that drops its wrong column, or |
| target as it is                                              | renames it back                          |
| the next one of several shards, or all that they have queued | all shards change INT to VARCHAR         |
| those of a new shard that lead to a join                     | a shard created like one that had not    |
|                                                              | changed INT to VARCHAR yet               |

The rows between DDLs of one shard are written with the mapping of that time. Values that have no place in the join are
left out, and the column is read again.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from unshard.core.ddl.lineage import names_after
from unshard.core.join.decision import Change, Decided, Decision, decide, decide_group
from unshard.core.join.difference import Target
from unshard.core.join.group import Group, Member, Reload, ReloadReason, conversions, joined_by
from unshard.core.join.tables import Definition, join_definitions, table_of
from unshard.core.join.types import meets
from unshard.core.model import Shard, TableSchema
from unshard.core.sql.mode import STRICT

Queues = Mapping[Shard, Sequence[Change]]
ACCEPTED = frozenset({Decision.NOTHING, Decision.EXPAND})


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
    """Return the decision about the first set of DDLs that is accepted."""
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
    conflicts = decide(group, target, shard, queues[shard][0], mapped).conflicts
    others = {other for each in conflicts for _, shards in each.sides for other in shards} | {shard}
    return tuple(other for other in sorted(others) if other in queues)


def _shorter_and_whole(queues: Queues) -> Iterator[Queues]:
    yield {shard: queue[:1] for shard, queue in queues.items()}
    yield queues


def _together(group: Group, target: Target, parts: Queues, mapped: Collection[str]) -> Decided | None:
    """Return the decision about these DDLs as one change; None if it is not accepted."""
    after = group
    for shard, part in parts.items():
        whole = Change(tuple(ran for change in part for ran in change.statements), part[-1].after)
        moved = _moved(after, target, shard, whole, mapped)
        if moved is None:
            return None
        after = moved
    decided = decide_group(group, after, target)
    if decided.decision not in ACCEPTED:
        return None
    accepted = dict[Shard, tuple[Member, ...]]()
    members = dict(decided.group.members)
    for shard, part in parts.items():
        accepted[shard], members[shard] = _with_rows_between(decided.group, group.members[shard], shard, part)
    return replace(decided, group=replace(decided.group, members=members), accepted=accepted)


def _moved(group: Group, target: Target, shard: Shard, change: Change, mapped: Collection[str]) -> Group | None:
    """Return the group after a DDL that has no join yet; None if it needs a barrier, or if its names conflict."""
    decided = decide(group, target, shard, change, mapped)
    if decided.decision is Decision.BARRIER or any(each.dimension == "new name" for each in decided.conflicts):
        return None
    return decided.after


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
        own = table_of(change.after, ids).columns
        unfit = {id for id, definition in own.items() if not _is_held(definition, columns[id])}
        between.append(Member(change.after, {name: id for name, id in ids.items() if id not in unfit}))
        chain.append(Member(change.after, ids))
        lost |= unfit
    is_strict = all(ran.sql_mode & STRICT for change in part for ran in change.statements)
    reloads = {Reload(id, ReloadReason.CONVERTED) for id in lost}
    for change, one, other in zip(part, chain, (*chain[1:], last), strict=True):
        reloads |= {*conversions(one, other, is_strict, change.statements)} if between else set()
    return tuple(between), replace(last, reloads=last.reloads | reloads)


def _is_held(own: Definition | None, column: Definition | None) -> bool:
    """Whether the joined column holds every value of a definition."""
    both = join_definitions(own, column) if own is not None and column is not None else None
    if both is None or column is None:
        return False
    return meets(column.type, both.type) and both.nullable == column.nullable
