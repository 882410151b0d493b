"""One group with column ids, and the policies that say when it accepts the DDL of a shard.

| policy   | a DDL is accepted when                                                                                       |
|----------|--------------------------------------------------------------------------------------------------------------|
| JOIN     | it has a join with the other shards (optimistic)                                                              |
| TOGETHER | every shard has it: all agree in each *subject* that it changes (pessimistic; in JOIN: a barrier)             |

A subject is a column, the name of a column, an index, a CHECK, the primary key, or the rest of the table's text; the
statement itself if it changes none of them (a comment of a column, a foreign key, `ENGINE = InnoDB`). A shard *stands apart* in a subject when an operator has said so, with the values that decided DDLs will give it, in
order. It does not count there: the target follows the others, and no DDL that leads to one of these values waits for
it. It counts again when it has the last of them and others have it too, or when it runs a DDL that leads to another
one. If no shard counts, the target keeps what it has.

| operation           | stands apart in the subjects of the DDL | accepted now                                                |
|---------------------|-----------------------------------------|-------------------------------------------------------------|
| unlock              | the shards that lack it                 | that of all shards that have it, or another form of it      |
| skip                | every shard                             | that of all shards that have it                             |
| skip --shard, at it | this shard                              | nothing                                                     |
| skip --shard, at    | this shard, in those of the other DDL   | the other DDL                                               |
| another DDL         |                                         |                                                             |
| replace             | every shard, once all have it           | nothing; the statements are executed when it is accepted    |
| replace --shard     | this shard                              | nothing; its DDL counts as the statements                   |
| drop-shard          |                                         | nothing; the shard leaves                                   |
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property

from unshard.core.ddl.lineage import names_after
from unshard.core.ddl.statement import fingerprint
from unshard.core.join import decision
from unshard.core.join import group as core
from unshard.core.join.decision import Change
from unshard.core.join.difference import Difference, Target, difference
from unshard.core.join.group import ColumnToReload, Member, ReloadReason
from unshard.core.join.jointables import Table, buildable, floored, join_all
from unshard.core.model import Shard, TableSchema
from unshard.core.structures.parsedtable import create_parts
from unshard.errors.ddl import DdlUnreadable

Subject = tuple[object, ...]
Values = Mapping[Subject, object]
Paths = Mapping[Subject, tuple[object, ...]]
"""The subjects in which a shard stands apart, each with the values to come."""
NONE: Paths = {}


class Policy(StrEnum):
    """When a DDL is accepted."""

    JOIN = "when it joins"
    TOGETHER = "when all shards have it"


@dataclass(frozen=True)
class Group(core.Group):
    """All shards of a target, and the subjects in which some of them stand apart."""

    apart: Mapping[Shard, Paths] = field(default_factory=dict)

    @cached_property
    def table(self) -> Table:
        """The join of the shards that count; of all shards in the subjects in which none counts."""
        if not self.members:
            return Table({})
        tables = [self._counted(shard) for shard in sorted(self.members)]
        found = join_all(tables, self.fills)
        return found if self.floor is None else floored(found, self.floor.table)

    def is_apart(self, shard: Shard, subject: Subject) -> bool:
        return subject in self.apart.get(shard, NONE)

    def counting(self, subject: Subject) -> tuple[Shard, ...]:
        return tuple(shard for shard in sorted(self.members) if not self.is_apart(shard, subject))

    @cached_property
    def unled(self) -> frozenset[Subject]:
        """The subjects in which no shard counts."""
        marked = {subject for shard in self.members for subject in self.apart.get(shard, NONE)}
        return frozenset(subject for subject in marked if not self.counting(subject))

    def _counted(self, shard: Shard) -> Table:
        """Return the structure of a shard as the join takes it: where it stands apart, with the values of another."""
        table, marks = self.members[shard].table, self.apart.get(shard, NONE)
        if not marks:
            return table
        columns, keys, checks, primary = dict(table.columns), dict(table.keys), dict(table.checks), table.primary
        for subject in marks:
            leader = next(iter(self.counting(subject)), None)
            if leader is None:
                continue
            other = self.members[leader].table
            match subject:
                case ("column", id):
                    _as_in(columns, other.columns, id)
                case ("key", key):
                    _as_in(keys, other.keys, key)
                case ("check", words):
                    _as_in(checks, other.checks, words)
                case ("primary",):
                    primary = other.primary
        return replace(table, columns=columns, keys=keys, checks=checks, primary=primary)

    def last_name(self, id: int) -> str:
        history = self.columns[id].names
        named = [s for s, m in self.members.items() if id in m.names]
        counting = [s for s in named if not self.is_apart(s, ("name", id))] or named
        names = [name for s in counting if (name := self.members[s].names[id]) in history]
        return history[max(map(history.index, names), default=len(history) - 1)]


def _as_in(own: dict, other: Mapping, key: object) -> None:
    own.pop(key, None)
    if key in other:
        own[key] = other[key]


def of(group: core.Group) -> Group:
    """Return a group of this prototype."""
    return Group(group.members, group.columns, group.last_id, group.floor)


# --- what the target should be


def wanted_by(group: Group, target: Target) -> Target:
    """Return the structure that the target should have; where no shard counts, it keeps its own."""
    table = group.table
    columns, keys, checks, primary = dict(table.columns), dict(table.keys), dict(table.checks), table.primary
    for subject in group.unled:
        match subject:
            case ("column", id):
                _as_in(columns, target.table.columns, id)
            case ("key", key):
                _as_in(keys, target.table.keys, key)
            case ("check", words):
                _as_in(checks, target.table.checks, words)
            case ("primary",):
                primary = target.table.primary
    columns = {id: each for id, each in columns.items() if each is not None}
    names = dict(core.names_of(group, columns)[0])
    names |= {id: target.names[id] for kind, *rest in group.unled if kind == "name" for id in rest if id in columns}
    keys = {key: name for key, name in keys.items() if key.columns <= columns.keys()}
    shards = [group._counted(shard) for shard in sorted(group.members)]
    shards += [group.floor.table] if group.floor is not None else []
    table = replace(table, columns=columns, checks=checks, primary=primary)
    known = buildable(replace(table, keys={k: n for k, n in keys.items() if k in table.keys}), shards)
    kept = {key: name for key, name in keys.items() if key in known.keys or key not in table.keys}
    kept = {key: name for key, name in kept.items() if not decision.awaits_reload(group, key)}
    return Target(replace(table, keys=kept), names)


def steps_by(group: Group, target: Target) -> Difference:
    return difference(target, wanted_by(group, target), group.fills)


def conflicts_by(group: Group) -> tuple[decision.Conflict, ...]:
    """Return everything in the group that has no join."""
    table = group.table
    columns = {id: column for id, column in table.columns.items() if ("column", id) not in group.unled}
    found = [decision._of_column(group, id) for id, column in columns.items() if column is None]
    if not table.is_keyed and ("primary",) not in group.unled:
        found.append(decision._of_keys(group))
    return (*found, *(decision._of_identity(group, id) for id in core.names_of(group, columns)[1]))


# In place of an edit of core/join/decision.py: the functions of JOIN see the shards that stand apart.
_steps, _conflicts = decision.steps_to_join, decision.conflicts_of
decision.steps_to_join = lambda group, target: (steps_by if isinstance(group, Group) else _steps)(group, target)
decision.conflicts_of = lambda group: (conflicts_by if isinstance(group, Group) else _conflicts)(group)


# --- subjects


def values(member: Member) -> Values:
    """Return what a shard has, by subject."""
    known = member.__dict__.get("values")
    if known is None:
        known = member.__dict__["values"] = _values(member)
    return known


def _values(member: Member) -> Values:
    table = member.table
    found: dict[Subject, object] = {("column", id): each for id, each in table.columns.items()}
    found |= {("name", id): name for id, name in member.names.items()}
    found |= {("key", key): True for key in table.keys} | {("check", words): True for words in table.checks}
    found |= {("statement", said): True for said in member.structure.left_out}
    return {**found, ("primary",): table.primary, ("rest",): _rest(member.structure)}


def _rest(structure: TableSchema) -> tuple[object, ...]:
    parts = (part.text for part in create_parts(structure.create_sql).options)
    return tuple(part.upper() for part in parts if not part.upper().startswith("AUTO_INCREMENT")), structure.collation


def changed(before: Values, after: Values) -> frozenset[Subject]:
    return frozenset(subject for subject in {*before, *after} if before.get(subject) != after.get(subject))


# --- the DDLs that shards have reached


@dataclass(frozen=True)
class Queued:
    """A DDL that a shard has reached."""

    text: str
    moment: int
    change: Change | None
    """None: its effect is unknown."""
    counted: Change | None = None
    """An operator's statements that count in its place for the group."""
    instead: tuple[str, ...] = ()
    """An operator's statements that the target executes in its place."""
    without: frozenset[Shard] = frozenset()
    """Shards that an operator has exempted: it does not wait for them."""


Queues = Mapping[Shard, Sequence[Queued]]


@dataclass(frozen=True)
class Accepted:
    """DDLs that are accepted together: the group after them, and their number by shard."""

    group: Group
    taken: Mapping[Shard, int]
    between: Mapping[Shard, tuple[Member, ...]]
    """Each shard as it was after its DDLs, except the last one."""
    seed: Shard
    subjects: frozenset[Subject]
    instead: tuple[str, ...] = ()


def take(group: Group, shard: Shard, queued: Queued, is_last: bool = False) -> Group | None:
    """Return the group after a DDL of a shard, whether it is accepted or not; None if that is unknown.

    `is_last`: the shard may give new names also if others have given other ones.
    """
    if queued.change is None:
        return None
    before = values(group.members[shard])
    try:
        if core.unread_names(group, shard, queued.change.statements, queued.change.after):
            return None
        as_own = group if queued.counted is None else _with_own_names(group, shard, queued)
        as_own = _as_last(as_own, shard, is_last)
        after, conflicts = _moved(as_own, shard, queued.change)
        if conflicts:
            return None
        after = _in_order(group, after, shard) if not is_last else after
        counts: Values = {}
        if queued.counted is not None:
            after, counts = _counted_as(as_own, after, shard, queued.counted)
    except DdlUnreadable:
        return None
    own = values(after.members[shard])
    left = changed(before, own)
    if not left and not counts and queued.change.statements:
        member = _with_statement(after.members[shard], queued.change)
        after = replace(after, members={**after.members, shard: member})
        own = values(member)
        left = changed(before, own)
    paths = {s: path for s, path in group.apart.get(shard, NONE).items() if s not in left}
    for subject, path in group.apart.get(shard, NONE).items():
        if subject in left and own.get(subject) in path:
            paths[subject] = path[path.index(own.get(subject)) + 1 :]
    paths |= {subject: (*paths.get(subject, ()), value) for subject, value in counts.items()}
    return replace(after, apart={**group.apart, shard: paths})


def _with_statement(member: Member, change: Change) -> Member:
    """Return a shard that has run a DDL of which its structure shows nothing: the statement itself is a subject then.

    In a real build this is a field of the member, until the DDL is accepted.
    """
    said = " ; ".join(fingerprint(ran.text, ran.sql_mode) for ran in change.statements)
    return replace(member, structure=replace(member.structure, left_out=(said,)))


def apart_in(group: Group, shard: Shard, want: Values) -> Group:
    """Return the group in which a shard stands apart in these subjects, on its way to these values."""
    paths, own = dict(group.apart.get(shard, NONE)), values(group.members[shard])
    for subject, value in want.items():
        paths[subject] = paths.get(subject, ()) if own.get(subject) == value else (*paths.get(subject, ()), value)
    return replace(group, apart={**group.apart, shard: paths})


def _moved(group: Group, shard: Shard, change: Change) -> tuple[Group, tuple[core.NameConflict, ...]]:
    """Return the group after a DDL; a column that it drops and adds is a new one, also if other shards have it still."""
    member = group.members[shard]
    kept = {member.ids[old] for old in names_after(member.ids, change.statements)}
    anew = core._added_names(change.statements)
    hidden = {id for name, id in member.ids.items() if id not in kept and name in anew}
    if not hidden:
        return core.moved(group, shard, change.statements, change.after)
    others = {
        s: replace(m, ids={n: id for n, id in m.ids.items() if id not in hidden}) if s != shard else m
        for s, m in group.members.items()
    }
    after, conflicts = core.moved(replace(group, members=others), shard, change.statements, change.after)
    return replace(after, members={**group.members, shard: after.members[shard]}), conflicts


def _as_last(group: Group, shard: Shard, is_last: bool) -> Group:
    """Return the group in which the names of a shard that stands apart in them are the last ones, so that it may go on."""
    columns, paths = dict(group.columns), dict(group.apart.get(shard, NONE))
    for name, id in group.members[shard].ids.items():
        is_unknown = name not in columns[id].names  # it was exempted in the name, and the history has gone on
        if paths.pop(("name", id), None) is not None or is_unknown or is_last:
            columns[id] = replace(columns[id], names=(*(n for n in columns[id].names if n != name), name))
    return replace(group, columns=columns, apart={**group.apart, shard: paths})


def _in_order(before: Group, after: Group, shard: Shard) -> Group:
    """Return the group with the histories in their order again, new names last."""
    columns = dict(after.columns)
    for id in before.members[shard].names:
        if before.is_apart(shard, ("name", id)) and id in columns:
            known, found = before.columns[id].names, columns[id].names
            columns[id] = replace(columns[id], names=(*known, *(n for n in found if n not in known)))
    return replace(after, columns=columns)


def _with_own_names(group: Group, shard: Shard, queued: Queued) -> Group:
    """Return the group in which new names that only this shard gives are earlier ones than that of the others."""
    assert queued.change is not None
    member, columns = group.members[shard], dict(group.columns)
    for old, new in names_after(member.ids, queued.change.statements).items():
        id = member.ids[old]
        history = core._reached(group, id)
        if new not in history and new in queued.change.after.by_name:
            columns[id] = replace(
                columns[id], names=(*history[:-1], new, history[-1]) if old != history[-1] else (*history, new)
            )
    return replace(group, columns=columns)


def _counted_as(before: Group, after: Group, shard: Shard, counted: Change) -> tuple[Group, Values]:
    """Return the group with the ids that the operator's statements give, and the values with which the DDL counts."""
    there, conflicts = core.moved(before, shard, counted.statements, counted.after)
    if conflicts:
        raise DdlUnreadable(str(shard), "the statements conflict with other names")
    asked = there.members[shard]
    own = after.members[shard]
    ids = {name: asked.ids.get(name, id) for name, id in own.ids.items()}
    ids = ids if len({*ids.values()}) == len(ids) else dict(own.ids)
    after = replace(
        after,
        members={**after.members, shard: replace(own, ids=ids)},
        columns={**there.columns, **after.columns},
        last_id=max(after.last_id, there.last_id),
    )
    mine, theirs = values(after.members[shard]), values(asked)
    marks = {
        s: theirs.get(s)
        for s in changed(values(before.members[shard]), theirs) | changed(mine, theirs)
        if mine.get(s) != theirs.get(s)
    }
    return after, marks


def agrees(group: Group, shard: Shard, subject: Subject, value: object) -> bool:
    """Whether a shard has the value, or stands apart with it."""
    return value in group.apart.get(shard, NONE).get(subject, ()) or values(group.members[shard]).get(subject) == value


def together(
    group: Group, queues: Queues, seed: Shard, needed: Collection[Shard], in_order: bool = True
) -> Accepted | None:
    """Return the DDLs that are accepted with the first one of `seed`, because all needed shards have them.

    `in_order`: of each shard only the next one.
    """
    chains = dict[Shard, list[Member]]()
    after, alike = group, dict[object, tuple[Member, Paths]]()

    def one_more(shard: Shard, now: Group) -> Group | None:
        """Return the group after the next DDL of a shard; shards that are alike do alike."""
        number, queue = len(chains.get(shard, ())), queues.get(shard, ())
        if number >= (min(1, len(queue)) if in_order else len(queue)):
            return None
        key = _alike(now, shard, queue[number])
        if key not in alike:
            found = take(now, shard, queue[number])
            if found is not None:
                alike[key] = found.members[shard], found.apart.get(shard, NONE)
            return found
        member, paths = alike[key]
        return replace(now, members={**now.members, shard: member}, apart={**now.apart, shard: paths})

    def asked() -> dict[Subject, object]:
        found = dict[Subject, object]()
        for shard in (*(s for s in chains if s != seed), seed):
            found |= effect(group, after, shard)
        return found

    first = one_more(seed, after)
    if first is None:
        return None
    after, chains[seed] = first, [first.members[seed]]
    exempt = set[Shard]()
    while True:
        exempt |= {s for each in chains for s in queues[each][0].without}
        want, needed = asked(), {*needed} - exempt
        behind = [s for s in sorted(needed) if not all(agrees(after, s, u, v) for u, v in want.items())]
        if not behind:
            break
        for shard in behind:
            more = one_more(shard, after)
            if more is None:
                return None
            after = more
            chains.setdefault(shard, []).append(more.members[shard])
    for shard in sorted(queues.keys() - {*needed} - chains.keys()):  # shards that have left or are exempted come along
        more = one_more(shard, after)
        if more is not None and all(agrees(more, shard, u, v) for u, v in asked().items()):
            if changed(values(group.members[shard]), values(more.members[shard])) <= asked().keys():
                after, chains[shard] = more, [more.members[shard]]
    for shard in exempt & after.members.keys() - chains.keys():
        late = {u: v for u, v in asked().items() if values(after.members[shard]).get(u) != v}
        after = apart_in(after, shard, late)
    for shard in after.members.keys() - chains.keys() - exempt:  # it goes on to what is still to come, then to this
        to_come = {
            u: v for u, v in asked().items() if after.apart.get(shard, NONE).get(u) and v not in after.apart[shard][u]
        }
        after = replace(
            after,
            apart={
                **after.apart,
                shard: {**after.apart.get(shard, NONE), **{u: (*after.apart[shard][u], v) for u, v in to_come.items()}},
            },
        )
    instead = next((queues[s][0].instead for s in chains if queues[s][0].instead), ())
    if instead:  # the target gets other statements: every shard stands apart
        want = asked()
        for shard in after.members:
            after = apart_in(after, shard, want)
    return accepted(group, after, chains, seed, frozenset(asked()), instead)


def _alike(group: Group, shard: Shard, queued: Queued) -> object:
    """Return a value that is equal for shards that are alike and have the same DDL."""
    member, change, counted = group.members[shard], queued.change, queued.counted
    own = member.structure.digest, frozenset(member.ids.items()), member.dropped, member.reloads
    ddl = change and (change.statements, change.after.digest), counted and (counted.statements, counted.after.digest)
    return own, ddl, frozenset(group.apart.get(shard, NONE).items())


def back(group: Group, queues: Queues, shard: Shard) -> Accepted | None:
    """Return several DDLs of a shard that together change nothing."""
    after, chain = group, list[Member]()
    for queued in queues[shard]:
        more = take(after, shard, queued)
        if more is None:
            return None
        after = more
        chain.append(after.members[shard])
        if len(chain) > 1 and not effect(group, after, shard):
            return accepted(group, after, {shard: chain}, shard, frozenset())
    return None


def accepted(
    group: Group,
    after: Group,
    chains: Mapping[Shard, Sequence[Member]],
    seed: Shard,
    subjects: frozenset[Subject],
    instead: tuple[str, ...] = (),
) -> Accepted | None:
    """Return DDLs as accepted, with the columns that must be read again; None if the shards have no join then."""
    gone = {*group.held}.difference(after.held)
    after = tidy(replace(after, apart={s: _without(marks, gone) for s, marks in after.apart.items()}))
    if conflicts_by(after):
        return None
    between = dict[Shard, tuple[Member, ...]]()
    members = {
        s: replace(m, structure=replace(m.structure, left_out=())) if m.structure.left_out else m
        for s, m in after.members.items()
    }
    apart = {
        s: {u: path for u, path in paths.items() if u[0] != "statement" or path} for s, paths in after.apart.items()
    }
    after = replace(after, apart={s: paths for s, paths in apart.items() if paths})
    for shard, chain in chains.items():
        *passed, _ = chain
        last, lost, found = members[shard], set[int](), list[Member]()
        for each in passed:
            unfit = {
                id for id, own in each.table.columns.items() if not decision._is_held(own, after.table.columns.get(id))
            }
            found.append(replace(each, ids={name: id for name, id in each.ids.items() if id not in unfit}))
            lost |= unfit
        between[shard] = tuple(found)
        reloads = {ColumnToReload(id, ReloadReason.CONVERTED) for id in lost & {*last.ids.values()}}
        members[shard] = replace(last, reloads=last.reloads | reloads)
    return Accepted(
        replace(after, members=members), {s: len(c) for s, c in chains.items()}, between, seed, subjects, instead
    )


def _without(marks: Paths, ids: Collection[int]) -> Paths:
    return {
        subject: path for subject, path in marks.items() if not (subject[0] in ("column", "name") and subject[1] in ids)
    }


def tidy(group: Group) -> Group:
    """Let shards count again that have come to the value with which they stood apart, if another one counts with it."""
    apart = dict[Shard, Paths]()
    for shard, marks in group.apart.items():
        if shard not in group.members:
            continue
        own = values(group.members[shard])
        kept = {}
        for subject, path in marks.items():
            others = [values(group.members[s]).get(subject) for s in group.counting(subject)]
            if path or own.get(subject) not in others:
                kept[subject] = path
        if kept:
            apart[shard] = kept
    return replace(group, apart=apart)


# --- open changes


@dataclass(frozen=True)
class OpenChange:
    """A DDL that shards have reached and that is not accepted."""

    seed: Shard
    text: str
    has: tuple[Shard, ...]
    lacks: tuple[Shard, ...]
    """The shards that have not reached it."""
    others: tuple[Shard, ...] = ()
    """Those of them that have reached another DDL."""
    is_unknown: bool = False
    subjects: Mapping[Subject, object] = field(default_factory=dict)

    @property
    def state(self) -> str:
        return "undecided" if self.is_unknown else "conflict" if self.others else "waiting"


def open_changes(group: Group, queues: Queues, needed: Collection[Shard]) -> tuple[OpenChange, ...]:
    """Return what waits, the oldest first."""
    found, named = list[OpenChange](), set[Shard]()
    for shard in sorted((s for s in queues if queues[s]), key=lambda s: (queues[s][0].moment, s)):
        if shard in named:
            continue
        head = queues[shard][0]
        after = take(group, shard, head)
        if after is None:
            others = tuple(s for s in sorted(needed) if s != shard)
            is_unknown = head.change is None
            reached = tuple(s for s in others if queues.get(s))
            found.append(
                OpenChange(
                    shard, head.text, (shard,), tuple(s for s in others if s not in reached), reached, is_unknown
                )
            )
            named.add(shard)
            continue
        want = effect(group, after, shard)
        has, exempt = [shard], {*head.without}
        for other in sorted(queues.keys() - {shard}):
            more = take(after, other, queues[other][0]) if queues[other] else None
            is_it = more is not None and effect(group, more, other).keys() <= want.keys()
            if more is not None and is_it and all(agrees(more, other, u, v) for u, v in want.items()):
                has.append(other)
                exempt |= queues[other][0].without
        behind = [
            s
            for s in sorted(needed)
            if s not in has and s not in exempt and not all(agrees(after, s, u, v) for u, v in want.items())
        ]
        others = tuple(s for s in behind if queues.get(s))
        named |= {*has}
        found.append(
            OpenChange(
                shard, head.text, tuple(sorted(has)), tuple(s for s in behind if s not in others), others, False, want
            )
        )
    return tuple(found)


def effect(group: Group, after: Group, shard: Shard) -> Mapping[Subject, object]:
    """Return the values that a DDL gives its subjects, without those that are decided for this shard already."""
    own, old, new = values(after.members[shard]), group.apart.get(shard, NONE), after.apart.get(shard, NONE)
    counted = {subject: path[-1] for subject, path in new.items() if path and path[-1:] != old.get(subject, ())[-1:]}
    found = {s: own.get(s) for s in changed(values(group.members[shard]), own)}
    return {**{s: value for s, value in found.items() if value not in old.get(s, ())}, **counted}


# --- operations


def unlock(group: Group, queues: Queues, seed: Shard) -> Accepted | None:
    """Accept a DDL now: the shards that lack it stand apart; None if the shards that have it have no join."""
    first = take(group, seed, queues[seed][0]) or take(group, seed, queues[seed][0], is_last=True)
    if first is None:
        return None
    want, after, chains = effect(group, first, seed), first, {seed: [first.members[seed]]}
    for shard in sorted(group.members):
        more = take(after, shard, queues[shard][0]) if shard != seed and queues.get(shard) else None
        if more is not None and _is_a_form(group, more, shard, want):
            after, chains[shard] = more, [more.members[shard]]
        own = values(after.members[shard])
        late = {
            u: v for u, v in want.items() if own.get(u) != v and not (shard in chains and not _holds(v, own.get(u)))
        }
        if shard != seed or queues[seed][0].instead:
            after = apart_in(after, shard, want if queues[seed][0].instead else late)
    return accepted(group, after, chains, seed, frozenset(want), queues[seed][0].instead)


def _is_a_form(group: Group, after: Group, shard: Shard, want: Mapping[Subject, object]) -> bool:
    """Whether a DDL of another shard changes the same columns, so that it counts as the unlocked one."""
    own = effect(group, after, shard)
    return (
        bool(own)
        and own.keys() <= want.keys()
        and all((own[u] is None) == (want[u] is None) for u in own if u[0] != "rest")
    )


def _holds(asked: object, own: object) -> bool:
    """Whether a column of the first definition holds the values of the second."""
    return not hasattr(asked, "type") or own is None or decision._is_held(own, asked)


def skip(group: Group, queues: Queues, seed: Shard) -> Accepted | None:
    """Accept a DDL of all shards without an effect on the target."""
    first = take(group, seed, queues[seed][0])
    if first is None:
        return None
    want, after, chains = effect(group, first, seed), first, {seed: [first.members[seed]]}
    for shard in sorted(group.members):
        more = take(after, shard, queues[shard][0]) if shard != seed and queues.get(shard) else None
        if more is not None and all(agrees(more, shard, u, v) for u, v in want.items()):
            after, chains[shard] = more, [more.members[shard]]
    for shard in after.members:
        after = apart_in(after, shard, want)
    return accepted(group, _unread(after, want), chains, seed, frozenset(want))


def _unread(group: Group, want: Mapping[Subject, object]) -> Group:
    """Return the group in which columns that the target does not follow need not be read again."""
    members = {
        shard: replace(member, reloads=frozenset(r for r in member.reloads if ("column", r.column) not in want))
        for shard, member in group.members.items()
    }
    return replace(group, members=members)


def skip_shard(group: Group, queues: Queues, shard: Shard) -> Accepted | None:
    """Accept a DDL that only this shard has, without an effect on the target.

    A shard that has an open DDL, or no DDL, is exempted from it instead (`Queued.without`).
    """
    after = take(group, shard, queues[shard][0])
    if after is None:
        return None
    own = effect(group, after, shard)
    after = apart_in(after, shard, own)
    return accepted(group, _unread(after, own), {shard: [after.members[shard]]}, shard, frozenset(own))


def joined(group: Group, shard: Shard, structure: TableSchema) -> Group | None:
    """Return the group with a new shard that is like another one; None if none has its structure (yet)."""
    own = structure.shape
    peers = [s for s, m in sorted(group.members.items()) if m.structure.shape == own]
    if group.members and not peers:
        return None
    after = core.joined_by(group, shard, structure)
    peer = next((s for s in peers if s.source == shard.source), peers[0] if peers else None)
    return replace(after, apart={**group.apart, shard: dict(group.apart.get(peer, NONE))}) if peer else after


def left(group: Group, shard: Shard) -> Group:
    after = core.left_by(group, shard)
    return replace(after, apart={s: m for s, m in after.apart.items() if s != shard})
