"""Checks whether a target that exists can begin to follow the join of its shards.

| the target's column                   | the shards'                | the target                                      |
|---------------------------------------|----------------------------|-------------------------------------------------|
| has a join with it                    | any                        | gets what it lacks, keeps what it has more      |
| has no join: another type, expression | any                        | US-6004: a conversion could change its values   |
| is plain                              | generated                  | US-6004: the server would not compute it        |
| any                                   | plain in some, generated   | US-6004 if rows are dumped: the dump lacks the  |
|                                       | in others                  | values                                          |
| NOT NULL without a default            | no such column             | US-6802: no row has a value                     |
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from unshard.core.ddl.queue import ShardState
from unshard.core.join.decision import wanted
from unshard.core.join.difference import described, target_of
from unshard.core.join.group import Group
from unshard.core.join.joined import Accepted
from unshard.core.join.tables import Definition, join_definitions
from unshard.core.model import Shard, TableId, TableSchema
from unshard.core.structures.comparison import foreign_reasons
from unshard.errors.rows import ColumnTypesDiffer


def begun_names(group: Group, present: TableSchema) -> Mapping[int, str]:
    """Return the ids of the target's columns when it begins to join: those of the names that it should have."""
    return {id: name for id, name in wanted(group).names.items() if name in present.by_name}


def unjoined_columns(target: TableId, group: Group, present: TableSchema) -> Iterator[ColumnTypesDiffer]:
    """Yield the columns of a target that have no join with those of its shards; the shards must have one."""
    there = target_of(present, begun_names(group, present)).table.columns
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
