"""The states of the open differences of a group, as `unshard locks` and the page show them.

| state         | meaning                                                                                              |
|---------------|------------------------------------------------------------------------------------------------------|
| `CONFLICT`    | a shard's DDL has no join with the others; its rows after the DDL are held                           |
| `BARRIER`     | a DDL is coordinated as in pessimistic mode                                                          |
| `EXPANDING`   | the target does not have yet what a shard needs                                                      |
| `REVERSED`    | no shard has the column any more, and never all had it: the target drops it                          |
| `OPEN`        | some shards have the change, others do not                                                           |
| `CONTRACTING` | no shard needs any more what the target has                                                          |
| `RELOAD`      | values of some shards must be read again                                                             |
| (settled)     | all shards are equal, and so is the target: there is no entry                                        |
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from unshard.core.join.decision import Decided, Decision, awaits_reload, steps_to_join, wanted
from unshard.core.join.difference import (
    AddCheck,
    AddColumn,
    AddKey,
    ChangeColumn,
    Difference,
    DropColumn,
    DropKey,
    RenameColumn,
    RenameKey,
    Step,
    Target,
    described,
)
from unshard.core.join.group import Group, Member
from unshard.core.join.tables import OPEN, Expression, Key, Table, concrete, is_met, limited
from unshard.core.model import Shard

History = Mapping[Shard, Sequence[tuple[datetime, Member]]]
"""Each shard after each of its accepted DDLs, with the time of the acceptance; oldest first."""


WITHOUT = "without it"


class State(StrEnum):
    """The state of an open difference."""

    CONFLICT = "conflict"
    BARRIER = "barrier"
    EXPANDING = "expanding"
    REVERSED = "reversed"
    OPEN = "open"
    CONTRACTING = "contracting"
    RELOAD = "reload"


@dataclass(frozen=True, slots=True)
class OpenDifference:
    """Something in which shards differ from each other, or the target from them."""

    subject: str
    state: State
    have: tuple[Shard, ...] = ()
    """The shards that are as the target is or will be."""
    lack: tuple[Shard, ...] = ()
    steps: tuple[Step, ...] = ()
    """The steps that will run, now or when no shard needs the old structure."""
    reloads: tuple[Shard, ...] = ()
    reason: str = ""
    about: int | Key | Expression | Shard | None = None
    """The id of the column, the index, the expression of the CHECK, or the shard with the DDL."""

    def __str__(self) -> str:
        shards = len(self.have) + len(self.lack)
        progress = f" ({len(self.have)} of {shards} shards)" if self.state is State.OPEN else ""
        reloads = f", to reload: {', '.join(map(str, self.reloads))}" if self.reloads else ""
        return f"{self.subject}: {self.state}{progress}{f': {self.reason}' if self.reason else ''}{reloads}"


def open_differences(
    group: Group, target: Target, waiting: Mapping[Shard, Decided] | None = None
) -> tuple[OpenDifference, ...]:
    """Return all open differences; `waiting` are the decisions about DDLs that are not accepted."""
    found = []
    for shard, decided in sorted((waiting or {}).items()):
        state = State.CONFLICT if decided.decision is Decision.CONFLICT else State.BARRIER
        reason = "; ".join(filter(None, (*map(str, decided.conflicts), decided.reason)))
        found.append(OpenDifference(f"DDL of {shard}", state, lack=(shard,), reason=reason, about=shard))
    steps = steps_to_join(group, target)
    asked = wanted(group)
    asked = replace(asked, table=limited(asked.table, target.lacks))
    tables = {shard: limited(member.table, target.lacks) for shard, member in sorted(group.members.items())}
    for id in sorted({*asked.table.columns, *target.table.columns}):
        found += _of_column(group, target, asked, steps, id)
    keys = {**target.table.keys, **{key: OPEN for table in tables.values() for key in table.keys}}
    for key in keys:
        found += _of_key(group, tables, target, steps, key)
    found += _of_checks(tables, target, steps)
    return tuple(found)


def forms(difference: OpenDifference, group: Group) -> Mapping[str, tuple[Shard, ...]]:
    """Return the forms that shards have given the subject of a difference, each with its shards, the rarest last."""
    found: dict[str, list[Shard]] = {}
    about = difference.about
    if about is None or isinstance(about, Shard):
        return {}
    for shard, member in sorted(group.members.items()):
        if not isinstance(about, int):
            text = "with it" if _form(about, member) else WITHOUT
        elif about in member.names:
            definition = member.table.columns[about]
            text = f"{member.names[about]} {definition.text or described(definition)}" if definition else ""
        else:
            text = WITHOUT
        found.setdefault(text, []).append(shard)
    return {text: tuple(shards) for text, shards in sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))}


@dataclass(frozen=True, slots=True)
class Past:
    """How shards began to differ."""

    begun: datetime | None = None
    """It stays the same while more shards follow, and when all have followed but the target has not.

    None for a DDL that waits.
    """
    changed: frozenset[Shard] = frozenset()
    """The shards that no longer are as all were before; empty if they never were alike."""
    is_removal: bool = False
    """Whether all had it before, and shards lack it now."""


def past_of(difference: OpenDifference, history: History) -> Past:
    """Return how the shards began to differ."""
    about = difference.about
    if isinstance(about, Shard):
        return Past()
    moments = sorted((some[n][0], shard, n) for shard, some in history.items() for n in range(len(some)))
    now, begun, before, differed = dict[Shard, object](), None, None, False
    for moment, shard, number in moments:
        old = [*now.values()]
        is_new = shard in now and now[shard] != _form(about, history[shard][number][1])
        now[shard] = _form(about, history[shard][number][1])
        differs = len({*now.values()}) > 1
        if not differed and (differs or is_new or begun is None):
            begun, before = moment, old[0] if is_new else None
        differed = differs
    changed = frozenset(shard for shard, form in now.items() if before is not None and form != before)
    return Past(begun, changed, bool(before) and not all(now.values()))


def _form(about: int | Key | Expression | None, member: Member) -> object:
    """Return what a shard has, without the properties on which shards need not agree; false if it lacks it."""
    if about is None:
        return member.structure.digest
    if isinstance(about, int):
        definition = member.table.columns.get(about)
        shown = replace(definition, default="", extra="") if definition else None
        return (member.names[about], shown) if about in member.names else ()
    return about in member.table.keys if isinstance(about, Key) else about in member.table.checks


def _of_column(group: Group, target: Target, asked: Target, steps: Difference, id: int) -> Iterator[OpenDifference]:
    definition = asked.table.columns.get(id)
    now = tuple(step for step in (*steps.first, *steps.expanding) if _column_of(step) == id)
    later = tuple(step for step in steps.contracting if _column_of(step) == id)
    have = tuple(s for s in group.holders(id) if _is_alike(group, s, id, asked, target.lacks))
    lack = tuple(shard for shard in sorted(group.members) if shard not in have)
    reloads = _reloads(group, (id,))
    state = None
    if definition is None:
        state = State.CONTRACTING if group.columns[id].was_common else State.REVERSED
        have, lack = lack, ()
    elif now:
        state = State.EXPANDING
    elif lack:
        state = State.OPEN
    elif later:
        state = State.CONTRACTING
    elif reloads:
        state = State.RELOAD
    if state is not None:
        name = asked.names.get(id) or target.names[id]
        yield OpenDifference(f"column {name}", state, have, lack, (*now, *later), reloads, about=id)


def _is_alike(group: Group, shard: Shard, id: int, asked: Target, lacks: frozenset[str]) -> bool:
    """Whether a shard has the column with the name and the definition of the join."""
    member, definition = group.members[shard], asked.table.columns[id]
    own = limited(member.table, lacks).columns[id]
    if own is None or definition is None or member.names[id] != group.last_name(id):
        return False
    return is_met(own, concrete(definition, own)) and is_met(own, definition)


def _of_key(
    group: Group, tables: Mapping[Shard, Table], target: Target, steps: Difference, key: Key
) -> Iterator[OpenDifference]:
    now = tuple(step for step in (*steps.first, *steps.expanding) if _key_of(step) == key)
    later = tuple(step for step in steps.contracting if _key_of(step) == key)
    have = tuple(shard for shard, table in tables.items() if key in table.keys)
    lack = tuple(shard for shard in tables if shard not in have)
    state = None
    reloads = _reloads(group, key.columns) if awaits_reload(group, key) else ()
    if not have:
        state = State.CONTRACTING
    elif reloads and not lack:
        state = State.RELOAD
    elif any(isinstance(step, AddKey) for step in now):
        state = State.EXPANDING
    elif lack:
        state = State.OPEN
    elif later or now:
        state = State.CONTRACTING
    if state is not None:
        names = {table.keys[key] for table in tables.values() if key in table.keys}
        name = target.table.keys.get(key) or min(map(str, names))
        yield OpenDifference(f"index {name}", state, have, lack, (*now, *later), reloads, about=key)


def _of_checks(tables: Mapping[Shard, Table], target: Target, steps: Difference) -> Iterator[OpenDifference]:
    shown = {words: str(name) for table in tables.values() for words, name in table.checks.items()}
    for words, name in {**shown, **target.table.checks}.items():
        later = tuple(s for s in steps.contracting if isinstance(s, AddCheck) and s.expression == words)
        have = tuple(shard for shard, table in tables.items() if words in table.checks)
        lack = tuple(shard for shard in tables if shard not in have)
        if lack or later:
            state = State.OPEN if lack else State.CONTRACTING
            yield OpenDifference(f"check {name}", state, have, lack, later, about=words)


def _reloads(group: Group, columns: Collection[int]) -> tuple[Shard, ...]:
    members = sorted(group.members.items())
    return tuple(shard for shard, member in members if any(each.column in columns for each in member.reloads))


def _column_of(step: Step) -> int | None:
    return step.id if isinstance(step, AddColumn | DropColumn | ChangeColumn | RenameColumn) else None


def _key_of(step: Step) -> Key | None:
    return step.key if isinstance(step, AddKey | DropKey | RenameKey) else None
