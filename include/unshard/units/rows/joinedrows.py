"""How rows go into targets that follow the join of their shards (core.join.places). Runs in the driver.

The version of a target is read before its structure. Each transaction of rows compares it and locks it
(adapters/target/fence): so the ids of the columns are those of the structure that was read, or the window runs again.

| the target                                          | the window                                                    |
|-----------------------------------------------------|---------------------------------------------------------------|
| was changed before the version was read             | writes into the present columns                               |
| is changed after that, before a transaction         | US-5120: converts its rows again                              |
| is changed during a transaction                     | the change waits until it is committed                        |
| is between the statements of a change               | US-5121: the window is tried again after the change           |
"""

from collections.abc import Collection, Iterable
from dataclasses import replace

from unshard.config import ShardMode
from unshard.core.join.group import joined_by
from unshard.core.join.places import JoinedRows, RowIds
from unshard.core.join.planning import entries_between
from unshard.core.model import Shard, TableId
from unshard.core.window.plan import Plan
from unshard.errors.locks import JoinChanging
from unshard.units.work import Work


def joined_rows(
    work: Work, targets: Iterable[TableId], shards: Collection[Shard], plan: Plan | None = None
) -> dict[TableId, JoinedRows]:
    """Return the ids for rows of these shards, for those targets that have joined; `plan` may have new shards."""
    if work.task.shard_mode is not ShardMode.OPTIMISTIC:
        return {}
    joined: dict[TableId, JoinedRows] = {}
    for target in targets:
        found = work.meta.joins.rows(target, shards)
        if found is None:
            continue
        rows, change = found
        if change is not None and change.done < len(change.statements):
            raise JoinChanging(str(target), change.statements[change.done].text)
        rows = _with_new(work, target, rows, plan)
        joined[target] = replace(rows, filtered=_filtered(work, rows, plan))
    return joined


def _filtered(work: Work, rows: JoinedRows, plan: Plan | None) -> frozenset[Shard]:
    """Return the shards whose DDL filters may ignore, and of which every other DDL is accepted.

    A shard that the window creates has no other DDL yet of which it writes rows.
    """
    tables: dict[str, list[TableId]] = {}
    for shard in rows.history:
        if any(rule.matches(shard.table) for rule in work.task.instance(shard.source).routing.events.rules):
            tables.setdefault(shard.source, []).append(shard.table)
    states = (state for source, some in tables.items() for state in work.meta.structures.planned_shards(source, some))
    known = {shard: own[-1].seq for shard, own in rows.history.items()}
    accepted = {state.shard for state in states if not entries_between(state, known.get(state.shard, -1))}
    created = {each.shard for each in plan.structures if each.joins} if plan else set[Shard]()
    return frozenset(accepted | {shard for shard in created if shard.table in tables.get(shard.source, ())})


def _with_new(work: Work, target: TableId, rows: JoinedRows, plan: Plan | None) -> JoinedRows:
    """Return the ids with those of shards that the window creates; their columns get the ids of the group's."""
    changes = [each for each in plan.structures if each.joins and each.target == target] if plan else []
    new = [each for each in changes if each.structure and each.shard not in rows.history]
    joined = work.meta.joins.get(target) if new else None
    if joined is None:
        return rows
    schemas = work.structures({each.structure for each in new if each.structure})
    found: dict[Shard, list[RowIds]] = {}
    for each in new:
        member = joined_by(joined.group, each.shard, schemas[str(each.structure)]).members[each.shard]
        found[each.shard] = [RowIds(0, member.structure.digest, member.ids)]
    return replace(rows, history={**rows.history, **found})
