"""The shards of a target with the ids of their columns.

A name is not enough: `RENAME a TO b`, `DROP c, ADD c` and swaps look alike by name. Each column of the target has an
id, and each shard maps the names of its columns to ids. One DDL changes the mapping of its shard:

| the shard runs        | its mapping                                                                                |
|-----------------------|--------------------------------------------------------------------------------------------|
| RENAME, CHANGE        | the id stays; the new name must be in the history of the id's names, or the shard must     |
|                       | have the last name of it: then the history gets the new name                               |
| MODIFY                | the id stays                                                                               |
| DROP                  | the shard has the id no more                                                               |
| ADD                   | the id of that name that other shards have and this one lacks, if the types join; else a   |
|                       | new id                                                                                     |
| DROP c, ADD c         | the same, in one statement or in two: a new id, unless other shards have the column still  |

The names of an id are a history in which shards move. The target has the last name that a shard has. If two ids want
one name (`DROP a, RENAME b TO a` on one shard), the target keeps an earlier name of one of them until the name is free.

Equal names of equal shards are one column in the end: if a shard gives a column a name under which others have another
one (`RENAME a TO b` here, `ADD b, DROP a` there), it gets the id of the others, unless a shard has both columns
(`DROP b, RENAME a TO b`). When a DDL leads a shard to the structure of others, all of these get the ids that most have.

A column that is added has a **fill**: what the rows have that existed before. Rows of shards that lack the column get
the fill, too. The values of a shard's rows differ in the target, and the column must be read again (**reload**), if:

| the shard                                                          | `ReloadReason` |
|--------------------------------------------------------------------|----------------|
| has added the column with another fill, or with own values         | FILL           |
| has dropped the column and added it again while others have it     | ADDED_AGAIN    |
| has changed the type so that stored values may have changed        | CONVERTED      |
| has given a column the name that others gave to another one        | SAME_NAME      |

The fill is an SQL literal. If the shards convert the column later, its type may not hold this value any more. Then the
fill becomes NULL or the zero of the type, and each shard that adds the column is read again.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from functools import cached_property

from unshard.core.ddl.lineage import ExecutedDdl, names_after, specs_of_alter
from unshard.core.ddl.sessioneffects import added_columns, converted_in
from unshard.core.join.jointables import (
    NULL,
    Definition,
    Table,
    definition_of,
    floored,
    join_all,
    join_definitions,
    table_with_ids,
)
from unshard.core.model import Column, Shard, TableSchema
from unshard.core.rows.missingcolumns import filled_value, implicit_value
from unshard.core.sql import charsets
from unshard.core.sql.literals import BINARIES, EXACT, TEXTS
from unshard.core.sql.mode import STRICT
from unshard.core.structures.columntypes import (
    BinaryType,
    ColumnType,
    DecimalType,
    IntegerType,
    LabelType,
    TextType,
    TimeType,
    TypeForm,
    meets,
    type_of,
)

LITERAL = re.compile(r"'(?:[^'\\]|''|\\.)*'|-?\d+(?:\.\d+)?(?:e[+-]?\d+)?", re.IGNORECASE)
MOMENT = re.compile(r"-?\d[\d:. -]*")
TIMES = ("date", "year")
FLOATS = ("float", "double", "real")


class ReloadReason(StrEnum):
    """Why a column of a shard must be read again."""

    FILL = "its old rows have other values than the target gave them"
    ADDED_AGAIN = "the shard has dropped the column and added it again"
    CONVERTED = "the shard has converted its values"
    SAME_NAME = "other shards have added a column with the name that this shard has given it"


@dataclass(frozen=True, slots=True, order=True)
class ColumnToReload:
    """A column of one shard that must be read again."""

    column: int
    reason: ReloadReason
    to: str = ""
    """The definition to which the shard has converted the values, as `conversion` shows it."""


@dataclass(frozen=True, slots=True)
class ColumnHistory:
    """The names that an id had, in order, and the fill of its column."""

    names: tuple[str, ...]
    """In lower case; the last one is that of the shard that is furthest."""
    fill: str = NULL
    """An SQL literal."""
    was_common: bool = False
    """Whether all shards have had the column at one time."""
    is_kept: bool = False
    """Whether filters have left out a DDL that drops it: the target keeps it when no shard has it any more."""
    is_filled_by_server: bool = False
    """Whether rows of shards that lack it have values that no shard has: those of the target's own clock or functions,
    or a substitute for a fill that no type of a shard holds any more."""


@dataclass(frozen=True)
class Member:
    """A shard of the group."""

    structure: TableSchema
    ids: Mapping[str, int]
    """The id of each column, by its name in lower case. A column without an id stays out of the target."""
    dropped: frozenset[int] = frozenset()
    """Ids that the shard has dropped: the values of its old rows in these columns are unknown."""
    reloads: frozenset[ColumnToReload] = frozenset()

    @cached_property
    def names(self) -> Mapping[int, str]:
        return {id: name for name, id in self.ids.items()}

    @cached_property
    def table(self) -> Table:
        return table_with_ids(self.structure, self.ids)


@dataclass(frozen=True)
class Group:
    """All shards of a target; `columns` are the ids that a shard has or had, `last_id` was given last."""

    members: Mapping[Shard, Member]
    columns: Mapping[int, ColumnHistory]
    last_id: int = 0
    floor: Member | None = None
    """The target when someone had given it more than its shards need: before the group began, or since. Indexes and
    wider types of these columns are never taken from it."""

    @property
    def fills(self) -> Mapping[int, str]:
        return {id: column.fill for id, column in self.columns.items()}

    def holders(self, id: int) -> tuple[Shard, ...]:
        return tuple(shard for shard, member in sorted(self.members.items()) if id in member.ids.values())

    @cached_property
    def held(self) -> tuple[int, ...]:
        return tuple(sorted({id for member in self.members.values() for id in member.ids.values()}))

    @cached_property
    def table(self) -> Table:
        """The join of all shards, with the wider types and the indexes of the floor."""
        found = join_all((member.table for _, member in sorted(self.members.items())), self.fills)
        return found if self.floor is None else floored(found, self.floor.table)

    def last_name(self, id: int) -> str:
        """Return the name that the shards which are furthest have given the column."""
        history = self.columns[id].names
        places = (history.index(member.names[id]) for member in self.members.values() if id in member.names)
        return history[max(places, default=len(history) - 1)]


@dataclass(frozen=True, slots=True)
class NameConflict:
    """A shard gives a column a name, and another shard has given it another one."""

    name: str
    other: str
    shards: tuple[Shard, ...]


def begin_group(structures: Mapping[Shard, TableSchema]) -> Group:
    """Return the group of a task that starts: columns of one name are one column."""
    group = Group({}, {})
    for shard, structure in sorted(structures.items()):
        group = joined_by(group, shard, structure)
    return group


def joined_by(group: Group, shard: Shard, structure: TableSchema) -> Group:
    """Return the group with a new shard, whose rows have all values of its columns.

    Its columns are those of a shard with the same structure, first of one of its source; else those of the same names.
    """
    shape, others = structure.shape, group.members.items()
    alike = [(each.source != shard.source, each) for each, member in others if member.structure.shape == shape]
    if alike:
        _, peer = min(alike)
        return with_member(group, shard, Member(structure, group.members[peer].ids))
    member, columns, last = Member(structure, {}), dict(group.columns), group.last_id
    ids = dict[str, int]()
    for name in structure.by_name:
        found = next(iter(_open_ids(group, name, {*ids.values()})), None)
        if found is None:
            last = found = last + 1
            columns[found] = ColumnHistory((name,))
        ids[name] = found
    members = {**group.members, shard: replace(member, ids=ids)}
    return _noted(replace(group, members=members, columns=columns, last_id=last))


def with_member(group: Group, shard: Shard, member: Member) -> Group:
    """Return the group with a shard that has ids already."""
    return _noted(replace(group, members={**group.members, shard: member}))


def left_by(group: Group, shard: Shard) -> Group:
    """Return the group without a shard; its rows stay in the target."""
    return _noted(replace(group, members={each: m for each, m in group.members.items() if each != shard}))


def followed_by(group: Group, shard: Shard, structure: TableSchema, *, keeps: bool = False) -> Group:
    """Return the group after a change of a shard that concerns no other: filters ignore it, or it changes only texts.

    A column that it adds stays out of the target. `keeps`: the target keeps a column that it drops.
    """
    member = group.members[shard]
    ids = {name: id for name, id in member.ids.items() if name in structure.by_name}
    members = {**group.members, shard: replace(member, structure=structure, ids=ids)}
    gone = {*member.ids.values()}.difference(ids.values()) if keeps else set[int]()
    columns = {id: replace(each, is_kept=each.is_kept or id in gone) for id, each in group.columns.items()}
    return _noted(replace(group, members=members, columns=columns))


def left_out(group: Group, shard: Shard, ids: Collection[int]) -> Group:
    """Return the group in which columns of a shard have no id, as if the shard had dropped them."""
    member = group.members[shard]
    kept = {name: id for name, id in member.ids.items() if id not in ids}
    after = replace(member, ids=kept, dropped=member.dropped | {*member.ids.values()}.intersection(ids))
    return with_member(group, shard, replace(after, reloads=frozenset(_lasting(after))))


def fitted_again(group: Group, shard: Shard) -> Group:
    """Return the group in which columns without an id that have a join with other shards' again have their ids.

    They must be read again, because values since have been left out.
    """
    member = group.members[shard]
    left_out = {name: column for name, column in member.structure.by_name.items() if name not in member.ids}
    if not left_out:
        return group
    others = replace(group, members={each: m for each, m in group.members.items() if each != shard})
    state = _Added(others, dict(member.ids), dict(group.columns), {*member.reloads}, group.last_id)
    for name, column in left_out.items():
        found = _found(state, column, member.structure)
        if found is not None:
            state.ids[name] = found
            state.reloads |= set() if column.is_generated else {ColumnToReload(found, ReloadReason.ADDED_AGAIN)}
    after = replace(member, ids=state.ids, dropped=member.dropped.difference(state.ids.values()))
    return with_member(group, shard, replace(after, reloads=frozenset(state.reloads)))


def kept_columns(group: Group) -> tuple[int, ...]:
    """Return the columns that no shard has any more and that the target keeps, because filters ignore their DROP."""
    return tuple(id for id, column in group.columns.items() if column.is_kept and id not in group.held)


def moved(
    group: Group, shard: Shard, ran: Sequence[ExecutedDdl], after: TableSchema
) -> tuple[Group, tuple[NameConflict, ...]]:
    """Return the group after a shard's DDL, and the new names that conflict with those of other shards.

    `ran` are the statements, several for one change of an online DDL tool.
    """
    member = group.members[shard]
    kept = {new: member.ids[old] for old, new in names_after(member.ids, ran).items()}
    kept = {name: id for name, id in kept.items() if name in after.by_name}
    columns, conflicts = dict(group.columns), list[NameConflict]()
    for name, id in kept.items():
        names, conflict = _with_name(group, shard, id, name)
        columns[id] = replace(columns[id], names=names)
        conflicts += [conflict] if conflict else []
    if conflicts:
        return group, tuple(conflicts)
    gone = frozenset(member.ids.values()).difference(kept.values())
    stale = member.dropped | gone
    others = replace(group, members={each: m for each, m in group.members.items() if each != shard}, columns=columns)
    state = _Added(others, dict(kept), columns, {*member.reloads}, group.last_id)
    left_out = {*names_after(member.structure.by_name.keys() - member.ids.keys(), ran).values()}
    added = _added_names(ran) - kept.keys()  # others are added by a clause that filters leave out
    for name, column in after.by_name.items():
        if name in left_out:
            found = _found(state, column, after)
            if found is not None:  # it has a join again; its values since are missing in the target
                _add(state, column, after, frozenset({found}))
        elif name in added:
            _add(state, column, after, stale)
    stale |= _same_names(state, after)
    changed = Member(after, state.ids, stale.difference(state.ids.values()), frozenset(state.reloads))
    is_strict = all(each.sql_mode & STRICT for each in ran)
    changed = replace(changed, reloads=frozenset((*_lasting(changed), *conversions(member, changed, is_strict, ran))))
    members = _with_equal_ids({**group.members, shard: changed}, shard)
    return _noted(replace(group, members=members, columns=state.columns, last_id=state.last)), ()


def unread_names(group: Group, shard: Shard, ran: Sequence[ExecutedDdl], after: TableSchema) -> tuple[str, ...]:
    """Return the columns that the statements leave, as they were read, and that the structure after them lacks."""
    return tuple(sorted({*names_after(group.members[shard].ids, ran).values()} - after.by_name.keys()))


def reloaded(group: Group, shard: Shard, columns: Iterable[int]) -> Group:
    """Return the group after columns of a shard have been read again."""
    member, done = group.members[shard], {*columns}
    left = frozenset(reload for reload in member.reloads if reload.column not in done)
    return replace(group, members={**group.members, shard: replace(member, reloads=left)})


def conversion_text(definition: Definition) -> str:
    """Return a text that is equal for definitions to which values are converted alike."""
    return f"{definition.type}{'' if definition.nullable else ' NOT NULL'}"


def converted(group: Group, made: Mapping[int, str]) -> Group:
    """Return the group after the target has converted columns; a shard that made the same conversion needs no reload.

    A shard that made two different ones does: the values of each could depend on the one before.
    """
    members = {shard: _converted_member(member, made) for shard, member in group.members.items()}
    return replace(group, members=members)


def unmade_reloads(member: Member, id: int, made: str) -> frozenset[ColumnToReload]:
    """Return the reloads of a column that are left if the target makes this conversion."""
    own = frozenset(reload for reload in member.reloads if reload.column == id)
    conversions_of = {reload.to for reload in own if reload.reason is ReloadReason.CONVERTED}
    if conversions_of != {made}:
        return own
    return frozenset(reload for reload in own if reload.reason is not ReloadReason.CONVERTED)


def _converted_member(member: Member, made: Mapping[int, str]) -> Member:
    others = frozenset(reload for reload in member.reloads if reload.column not in made)
    return replace(member, reloads=others.union(*(unmade_reloads(member, id, to) for id, to in made.items())))


def intended(group: Group, after: Group) -> Group:
    """Return the group to store with the intent of steps that lead to `after`: it knows all ids of the target.

    The shards are as before. If the steps are not completed, a column that no shard has is dropped like any other.
    """
    return replace(group, columns={**after.columns, **group.columns}, last_id=after.last_id)


def without(group: Group, ids: Iterable[int]) -> Group:
    """Return the group after the target has dropped columns that no shard has."""
    gone = {*ids}
    members = {shard: replace(member, dropped=member.dropped - gone) for shard, member in group.members.items()}
    columns = {id: column for id, column in group.columns.items() if id not in gone}
    return replace(group, members=members, columns=columns)


def names_of(group: Group, ids: Iterable[int]) -> tuple[Mapping[int, str], tuple[int, ...]]:
    """Return the target's name of each of these ids, and the ids that have none because another id has it.

    An id with fewer names chooses first. It takes the last name that a shard has given it and that is free.
    """
    places = {id: group.columns[id].names.index(group.last_name(id)) for id in ids}
    names, nameless = dict[int, str](), list[int]()
    for id in sorted(places, key=lambda id: (places[id], id)):
        history = group.columns[id].names[: places[id] + 1]
        name = next((name for name in reversed(history) if name not in names.values()), None)
        if name is None:
            nameless.append(id)
        else:
            names[id] = name
    return names, tuple(nameless)


@dataclass(slots=True)
class _Added:
    """The mapping of a shard while the columns that it adds get their ids."""

    others: Group
    ids: dict[str, int]
    columns: dict[int, ColumnHistory]
    reloads: set[ColumnToReload]
    last: int


def _add(state: _Added, column: Column, after: TableSchema, stale: frozenset[int]) -> None:
    name, fill = column.name.lower(), fill_of(column)
    found = _found(state, column, after)
    if found is None:
        state.last = found = state.last + 1
        state.columns[found] = ColumnHistory((name,), NULL if fill is None else fill, is_filled_by_server=fill is None)
        state.reloads |= {ColumnToReload(found, ReloadReason.FILL)} if fill is None else set()
    elif column.is_generated:
        pass
    elif found in stale:
        state.reloads.add(ColumnToReload(found, ReloadReason.ADDED_AGAIN))
    elif state.columns[found].is_filled_by_server or not is_same_fill(fill, state.columns[found].fill):
        state.reloads.add(ColumnToReload(found, ReloadReason.FILL))
    state.ids[name] = found


def _same_names(state: _Added, after: TableSchema) -> frozenset[int]:
    """Give columns the ids under which other shards have their names; return the ids that the shard has no more."""
    gone, others = set[int](), state.others.members.values()
    for name, column in after.by_name.items():
        own = state.ids.get(name)
        if own is None or any(other.ids.get(name) == own for other in others):
            continue
        found = _found(state, column, after)
        if found is None or not any(other.ids.get(name) == found for other in others):
            continue
        if any({own, found} <= {*other.ids.values()} for other in others):
            continue
        state.ids[name] = found
        state.reloads |= set() if column.is_generated else {ColumnToReload(found, ReloadReason.SAME_NAME)}
        gone.add(own)
    return frozenset(gone)


def _with_equal_ids(members: Mapping[Shard, Member], shard: Shard) -> Mapping[Shard, Member]:
    """Return the members after a DDL of one of them: all with its structure have the ids that most of them have.

    The ids of a new shard are a guess while another shard has run a DDL that is not accepted yet. And shards may come
    to one structure in different ways: `DROP a, RENAME b TO a` here, `DROP b` there.
    """
    shape = members[shard].structure.shape
    alike = {each: member for each, member in members.items() if member.structure.shape == shape}
    ways = Counter(frozenset(member.ids.items()) for member in alike.values())
    own = frozenset(members[shard].ids.items())
    _, _, asked = max((count, way == own, sorted(way)) for way, count in ways.items())
    return {**members, **{each: _with_ids(member, dict(asked)) for each, member in alike.items()}}


def _with_ids(member: Member, asked: Mapping[str, int]) -> Member:
    """Return a shard with other ids; it stays as it is if its key has another id."""
    ids = {name: asked.get(name, id) for name, id in member.ids.items()}
    changed = {name for name, id in ids.items() if id != member.ids[name]}
    keys = {name.lower() for name in member.structure.key}
    if not changed or changed & keys or len({*ids.values()}) < len(ids):
        return member
    written = {column.name.lower() for column in member.structure.written}
    reloads = frozenset(ColumnToReload(ids[name], ReloadReason.SAME_NAME) for name in changed & written)
    dropped = (member.dropped | {*member.ids.values()}).difference(ids.values())
    after = replace(member, ids=ids, dropped=dropped)
    return replace(after, reloads=reloads.union(_lasting(after)))


def _found(state: _Added, column: Column, after: TableSchema) -> int | None:
    """Return the open id of a column's name whose type joins; None without one."""
    name = column.name.lower()
    own = definition_of(after, column, {**state.ids, name: 0})
    ids = _open_ids(state.others, name, {*state.ids.values()})
    return next((id for id in ids if _is_joined(state.others, id, own)), None)


def _is_joined(others: Group, id: int, own: Definition | None) -> bool:
    """Whether the column joins that of the other shards; one that is generated joins generated ones only."""
    found = others.table.columns.get(id)
    if own is None or found is None or own.is_generated != found.is_generated:
        return False
    return join_definitions(found, own) is not None


def _open_ids(group: Group, name: str, taken: set[int]) -> list[int]:
    """Return the ids of other shards that have or had this name, first those whose last name it is."""
    found = [id for id in group.held if id not in taken and name in _reached(group, id)]
    return sorted(found, key=lambda id: (group.last_name(id) != name, id))


def _reached(group: Group, id: int) -> tuple[str, ...]:
    """Return the history up to the last name that a shard has."""
    names = group.columns[id].names
    return names[: names.index(group.last_name(id)) + 1]


def _with_name(group: Group, shard: Shard, id: int, name: str) -> tuple[tuple[str, ...], NameConflict | None]:
    history, present = _reached(group, id), group.members[shard].names[id]
    if name in history:
        return history, None
    if history.index(present) == len(history) - 1:
        return (*history, name), None
    further = history[history.index(present) + 1 :]
    shards = tuple(other for other, m in sorted(group.members.items()) if m.names.get(id) in further)
    return history, NameConflict(name, history[-1], shards)


def _added_names(ran: Sequence[ExecutedDdl]) -> frozenset[str]:
    """Return the columns that statements add, under their last names, in lower case."""
    found = set[str]()
    for each in ran:
        own = {d[0].name.lower() for spec in specs_of_alter(each) for d in added_columns(spec) if d}
        found = own.union(names_after(found, [each]).values())
    return frozenset(found)


def _lasting(member: Member) -> tuple[ColumnToReload, ...]:
    return tuple(reload for reload in member.reloads if reload.column in member.ids.values())


def conversions(
    before: Member, after: Member, is_strict: bool, ran: Sequence[ExecutedDdl] = ()
) -> tuple[ColumnToReload, ...]:
    """Return the reloads of columns whose stored values the shard's DDL may have changed."""
    old, new, found = before.table.columns, after.table.columns, list[ColumnToReload]()
    for id, definition in new.items():
        if id in old and definition is not None:
            how = _in_session(before, after, id, ran)
            if how or _may_convert(old[id], definition, is_strict):
                text = conversion_text(definition) + how + ("" if is_strict else " without strict mode")
                found.append(ColumnToReload(id, ReloadReason.CONVERTED, text))
    return tuple(found)


def _in_session(before: Member, after: Member, id: int, ran: Sequence[ExecutedDdl]) -> str:
    """Return how the session of a DDL has converted values otherwise than the target would; empty if it has not."""
    old, new = (member.structure.column(member.names[id]) for member in (before, after))
    how = dict.fromkeys(converted_in(old, new, each) for each in ran)
    return "".join(f" {each}" for each in how if each)


def _may_convert(old: Definition | None, new: Definition | None, is_strict: bool) -> bool:
    """Whether a value may change because the new definition does not hold every old value."""
    if old is None or new is None or (old.is_generated and new.is_generated):
        return False
    both = join_definitions(old, new)
    if both is None or both.is_generated != new.is_generated:
        return True
    if not is_strict and old.type != new.type and isinstance(new.type, TimeType):
        return True  # an invalid date becomes zero
    if not is_strict and both.nullable and not new.nullable:
        return True
    return not meets(new.type, both.type) and not (is_strict and _is_checked(new.type))


def _is_checked(kind: ColumnType) -> bool:
    """Whether a strict sql_mode rejects each value that the type cannot hold; others are rounded, padded or cut."""
    if isinstance(kind, TextType):
        return kind.form is not TypeForm.FIXED
    return isinstance(kind, IntegerType | LabelType)


def _noted(group: Group) -> Group:
    """Cut the histories after the last name in use, and note which columns all shards have."""
    return replace(group, columns={id: _noted_column(group, id) for id in group.columns})


def _noted_column(group: Group, id: int) -> ColumnHistory:
    column, holders = group.columns[id], group.holders(id)
    names = _reached(group, id) if holders else column.names
    is_common = bool(holders) and len(holders) == len(group.members)
    members = (group.members[shard] for shard in holders)
    fill = held_fill(column.fill, [member.structure.column(member.names[id]) for member in members])
    is_own = column.is_filled_by_server or fill != column.fill
    return replace(
        column, names=names, fill=fill, was_common=column.was_common or is_common, is_filled_by_server=is_own
    )


def fill_of(column: Column) -> str | None:
    """Return what ALTER TABLE gives to the old rows of a new column; None if that is unknown or differs by server."""
    if column.is_generated:
        return NULL
    if column.is_numbered:
        return None
    if column.default in (None, NULL):
        return NULL if column.nullable else _implicit(column)
    return column.default if LITERAL.fullmatch(str(column.default)) else None


def _implicit(column: Column) -> str | None:
    """Return the literal of the value that ALTER TABLE gives to old rows without a default; None if it is unknown."""
    value = implicit_value(column)
    if value is None:
        return None
    if column.data_type in BINARIES:
        return f"x'{value.hex()}'" if value else "''"
    text = charsets.decode(value, column.encoding or "ascii").replace("'", "''")
    return text if LITERAL.fullmatch(text) and column.data_type not in TEXTS else f"'{text}'"


def is_same_fill(one: str | None, other: str | None) -> bool:
    """Whether two fills are known and equal."""
    if one is None or other is None:
        return False
    return one == other or _number(one) == _number(other) is not None


def _number(literal: str) -> Decimal | None:
    try:
        return Decimal(literal)
    except InvalidOperation:
        return None


def held_fill(fill: str, columns: Sequence[Column]) -> str:
    """Return the fill if a column of the shards holds it, else NULL or the zero of their type."""
    if fill == NULL or not columns or any(column.is_generated or _is_fill_held(fill, column) for column in columns):
        return fill
    return NULL if any(column.nullable for column in columns) else _implicit(columns[0]) or NULL


def _is_fill_held(fill: str, column: Column) -> bool:
    try:
        value = filled_value(column, fill)
    except UnicodeError:
        return False
    return value is not None and _holds(type_of(column), column, value)


def _holds(kind: ColumnType, column: Column, value: bytes) -> bool:
    text = charsets.decode(value, column.encoding or "latin1")
    is_large = isinstance(kind, TextType) and kind.resolved[0] is TypeForm.LARGE
    match kind:
        case IntegerType() | DecimalType():
            return _holds_number(kind, _number(text))
        case TextType() | BinaryType():
            most = kind.resolved[1] if isinstance(kind, TextType) else kind.most_bytes
            return len(value if is_large else text) <= most
        case LabelType():
            return {*(text.split(",") if kind.name == "set" and text else [text])} <= {*kind.labels}
    if isinstance(kind, TimeType) or column.data_type in TIMES:
        return MOMENT.fullmatch(text) is not None
    return column.data_type not in FLOATS or _number(text) is not None


def _holds_number(kind: IntegerType | DecimalType, number: Decimal | None) -> bool:
    if number is None or not number.is_finite() or (number < 0 and kind.is_unsigned):
        return False
    if isinstance(kind, DecimalType):
        return abs(number) < 10**kind.whole and number == number.quantize(Decimal(1).scaleb(-kind.scale), context=EXACT)
    bits = kind.bits if kind.is_unsigned else kind.bits - 1
    return number == int(number) and (0 if kind.is_unsigned else -(1 << bits)) <= number < 1 << bits
