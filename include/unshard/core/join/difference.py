"""The difference between the target and the join of its shards, as steps in two directions.

| step                                          | expanding                    | contracting                  |
|-----------------------------------------------|------------------------------|------------------------------|
| a column                                      | added                        | dropped, if no shard has it  |
| its definition                                | wider, nullable, not checked | narrower, NOT NULL, checked  |
| the name of a column                          | when the name is free        | after the drop that frees it |
| default, ON UPDATE, collation that the shards | at once                      | –                            |
| agree on                                      |                              |                              |
| UNIQUE, CHECK                                 | dropped                      | added, if every shard has it |
| another index                                 | added                        | dropped, if no shard has it  |

`apply` is the effect of steps on a structure: after the expanding steps the target holds the rows of every shard, after
all steps it is the join.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from unshard.core.join.tables import (
    NEEDS_VALUES,
    NULL,
    OPEN,
    Agreed,
    Definition,
    Expression,
    Key,
    Table,
    buildable,
    concrete,
    is_met,
    join_definitions,
    limited,
    table_of,
)
from unshard.core.model import TableSchema


@dataclass(frozen=True, slots=True)
class Target:
    """A structure with the names of its columns: the target's, or the one that it should have."""

    table: Table
    names: Mapping[int, str]
    lacks: frozenset[str] = frozenset()
    """The features that its server leaves out (`tables.FEATURES`), so that nobody asks for them."""


def target_of(structure: TableSchema, names: Mapping[int, str], lacks: frozenset[str] = frozenset()) -> Target:
    """Return a target as its server shows it; `names` are in lower case, columns without an id belong to the target."""
    ids = {name: id for id, name in names.items()}
    table = table_of(structure, ids)
    return Target(table, {id: name for id, name in names.items() if id in table.columns}, lacks)


@dataclass(frozen=True, slots=True)
class AddColumn:
    """The target gets a column."""

    id: int
    name: str
    definition: Definition

    def __str__(self) -> str:
        return f"add column {self.name} {described(self.definition)}"


@dataclass(frozen=True, slots=True)
class DropColumn:
    """The target loses a column that no shard has."""

    id: int
    name: str

    def __str__(self) -> str:
        return f"drop column {self.name}"


@dataclass(frozen=True, slots=True)
class ChangeColumn:
    """A column of the target gets another definition."""

    id: int
    name: str
    before: Definition
    after: Definition

    def __str__(self) -> str:
        return f"change column {self.name} from {described(self.before)} to {described(self.after)}"


@dataclass(frozen=True, slots=True)
class RenameColumn:
    """A column of the target gets another name."""

    id: int
    name: str
    new_name: str

    def __str__(self) -> str:
        return f"rename column {self.name} to {self.new_name}"


@dataclass(frozen=True, slots=True)
class AddKey:
    """The target gets an index."""

    key: Key
    name: str

    def __str__(self) -> str:
        return f"add {self.key.kind.lower() or 'index'} {self.name}"


@dataclass(frozen=True, slots=True)
class DropKey:
    """The target loses an index."""

    key: Key
    name: str

    def __str__(self) -> str:
        return f"drop index {self.name}"


@dataclass(frozen=True, slots=True)
class RenameKey:
    """An index of the target gets the name that all shards give it."""

    key: Key
    name: str
    new_name: str

    def __str__(self) -> str:
        return f"rename index {self.name} to {self.new_name}"


@dataclass(frozen=True, slots=True)
class AddCheck:
    """The target gets a CHECK constraint."""

    expression: Expression
    name: str

    def __str__(self) -> str:
        return f"add check {self.name}"


@dataclass(frozen=True, slots=True)
class DropCheck:
    """The target loses a CHECK constraint."""

    expression: Expression
    name: str

    def __str__(self) -> str:
        return f"drop check {self.name}"


@dataclass(frozen=True, slots=True)
class SetCollation:
    """The table gets another default collation."""

    collation: str

    def __str__(self) -> str:
        return f"set the default collation to {self.collation}"


Step = (
    AddColumn
    | DropColumn
    | ChangeColumn
    | RenameColumn
    | AddKey
    | DropKey
    | RenameKey
    | AddCheck
    | DropCheck
    | SetCollation
)


@dataclass(frozen=True, slots=True)
class Difference:
    """The steps from the target to the join."""

    expanding: tuple[Step, ...] = ()
    contracting: tuple[Step, ...] = ()
    first: tuple[Step, ...] = ()
    """Contracting steps without which an expanding one is impossible: its name is in use, or the types do not join."""


def difference(target: Target, wanted: Target, fills: Mapping[int, str]) -> Difference:
    """Return the steps that lead from the target to the join; None is not allowed for a column of `wanted`."""
    wanted = replace(wanted, table=limited(wanted.table, target.lacks))
    blocking = tuple(_blocking(target, wanted))
    present = apply(blocking, target)
    expanded = _expanded(present, wanted, fills)
    return Difference(tuple(_steps(present, expanded)), tuple(_steps(expanded, _final(expanded, wanted))), blocking)


def apply(steps: Iterable[Step], target: Target) -> Target:
    """Return the structure after the steps."""
    columns, names = dict(target.table.columns), dict(target.names)
    table = replace(target.table, columns=columns)
    for step in steps:
        match step:
            case AddColumn(id, name, definition):
                columns[id], names[id] = definition, name
            case DropColumn(id, _):
                del columns[id], names[id]
            case ChangeColumn(id, _, _, after):
                columns[id] = after
            case RenameColumn(id, _, name):
                names[id] = name
            case _:
                table = _with_key_or_option(table, step)
    return Target(table, names, target.lacks)


def _with_key_or_option(table: Table, step: Step) -> Table:
    keys, checks = dict(table.keys), dict(table.checks)
    match step:
        case AddKey(key, name) | RenameKey(key, _, name):
            keys[key] = name
        case DropKey(key, _):
            del keys[key]
        case AddCheck(expression, name):
            checks[expression] = name
        case DropCheck(expression, _):
            del checks[expression]
        case SetCollation(name):
            return replace(table, collation=name)
    return replace(table, keys=keys, checks=checks)


def is_equal(target: Target, wanted: Target) -> bool:
    """Whether the target is what the join asks for."""
    columns, asked = target.table.columns, limited(wanted.table, target.lacks)
    return (
        columns.keys() == asked.columns.keys()
        and all(is_met(columns[id], column) for id, column in asked.columns.items())  # type: ignore[arg-type]
        and dict(target.names) == dict(wanted.names)
        and target.table.primary == asked.primary
        and target.table.keys.keys() == asked.keys.keys()
        and target.table.checks.keys() == asked.checks.keys()
        and asked.collation in (OPEN, target.table.collation)
    )


def described(definition: Definition) -> str:
    """Return a definition as messages show it."""
    words = [
        str(definition.type),
        "" if definition.nullable else "NOT NULL",
        f"DEFAULT {definition.default}" if isinstance(definition.default, str) and definition.default else "",
        "generated" if definition.is_generated else "",
        "with a CHECK" if definition.check else "",
    ]
    return " ".join(filter(None, words))


def _blocking(target: Target, wanted: Target) -> list[Step]:
    """Return the contracting steps that must come first, with the drops of their indexes."""
    steps = list[Step]()
    has_new = any(id not in target.names for id in wanted.names)
    asked = {*wanted.names.values()} if has_new else set()
    dropped = [id for id, name in target.names.items() if id not in wanted.names and name in asked]
    for key, name in target.table.keys.items():
        if key.columns & {*dropped} and key not in wanted.table.keys:
            steps.append(DropKey(key, str(name)))
    steps += [DropColumn(id, target.names[id]) for id in dropped]
    for id, column in wanted.table.columns.items():
        before = target.table.columns.get(id)
        if column is not None and before is not None and join_definitions(before, column) is None:
            steps.append(ChangeColumn(id, target.names[id], before, concrete(column, before)))
    return steps


def _expanded(target: Target, wanted: Target, fills: Mapping[int, str]) -> Target:
    columns = dict[int, Definition | None]()
    for id in sorted({*target.table.columns, *wanted.table.columns}):
        present, asked = target.table.columns.get(id), wanted.table.columns.get(id)
        if present is None:
            columns[id] = concrete(asked, None) if asked is not None else None
        elif asked is None:
            is_needed = not present.nullable and not present.is_generated and fills.get(id, NULL) == NULL
            columns[id] = replace(present, nullable=True) if is_needed else present
        else:
            columns[id] = _widened(present, asked)
    given, asked_keys = target.table.keys, wanted.table.keys
    keys = {key: name for key, name in given.items() if not key.is_strict or key in asked_keys}
    late = {key for key in asked_keys if key.is_strict or key.kind in NEEDS_VALUES}  # after a change of all shards
    keys |= {key: OPEN for key in asked_keys if key not in given and key not in late}
    table = replace(
        target.table,
        columns=columns,
        keys=keys,
        checks={words: name for words, name in target.table.checks.items() if words in wanted.table.checks},
        collation=target.table.collation if wanted.table.collation is OPEN else wanted.table.collation,
    )
    table = buildable(table, (target.table, wanted.table))
    names = _free_names(target.names, wanted.names)
    return Target(replace(table, keys=_key_names(table.keys, asked_keys, given)), names)


def _widened(present: Definition, asked: Definition) -> Definition:
    """Return the join of the target's definition with the wanted one, with all that the shards agree on."""
    both = join_definitions(present, asked)
    if both is None:
        raise ValueError(f"{present} and {asked} have no join")
    if is_met(present, replace(both, default=asked.default, extra=asked.extra)):
        return present
    return concrete(replace(both, default=asked.default, extra=asked.extra, text=asked.text), present)


def _final(expanded: Target, wanted: Target) -> Target:
    """Return the join itself, with the target's properties on which the shards do not agree."""
    columns = dict[int, Definition | None]()
    for id, asked in wanted.table.columns.items():
        present = expanded.table.columns.get(id)
        if asked is not None:
            columns[id] = present if present is not None and is_met(present, asked) else concrete(asked, present)
    checks = {
        words: expanded.table.checks.get(words, name if name is not OPEN else "")
        for words, name in wanted.table.checks.items()
    }
    keys = _key_names(wanted.table.keys, wanted.table.keys, expanded.table.keys)
    table = replace(expanded.table, columns=columns, keys=keys, checks=checks)
    return Target(table, wanted.names)


def _free_names(given: Mapping[int, str], wanted: Mapping[int, str]) -> Mapping[int, str]:
    """Return the wanted names; a column keeps its name while the wanted one is that of another column."""
    names = {id: wanted.get(id, name) for id, name in given.items()}
    while len({*names.values()}) < len(names):
        taken = list(names.values())
        waiting = next(id for id, name in names.items() if taken.count(name) > 1 and name != given[id])
        names[waiting] = given[waiting]
    return {**names, **{id: name for id, name in wanted.items() if id not in given}}


def _key_names(keys: Collection[Key], wanted: Mapping[Key, Agreed], given: Mapping[Key, Agreed]) -> dict[Key, Agreed]:
    """Return a name for each index: the one that the shards agree on, else the target's; a free one if it is taken."""
    names, later = dict[Key, Agreed](), list[tuple[Key, str]]()
    ordered = sorted(keys, key=lambda key: (key not in given, str(given.get(key)), str(key)))
    for key in ordered:
        own, agreed = given.get(key, OPEN), wanted.get(key, OPEN)
        if own is not OPEN and agreed in (OPEN, own):
            names[key] = own
        else:
            later.append((key, str(agreed if agreed is not OPEN else own if own is not OPEN else "")))
    for key, name in later:
        own = given.get(key, OPEN)
        is_taken = name.lower() in {str(each).lower() for each in names.values()}
        names[key] = own if is_taken and own is not OPEN else _unused(name or "idx", names.values())
    return names


def _unused(name: str, names: Iterable[Agreed]) -> str:
    taken, number, found = {str(each).lower() for each in names}, 1, name
    while found.lower() in taken:
        number += 1
        found = f"{name}_{number}"
    return found


def _steps(before: Target, after: Target) -> list[Step]:
    """Return the steps in the order in which one ALTER TABLE, or several, can execute them."""
    old, new = before.table, after.table
    steps: list[Step] = [DropCheck(words, str(name)) for words, name in old.checks.items() if words not in new.checks]
    steps += [DropKey(key, str(name)) for key, name in old.keys.items() if key not in new.keys]
    steps += [DropColumn(id, before.names[id]) for id in old.columns if id not in new.columns]
    steps += [
        RenameColumn(id, before.names[id], after.names[id])
        for id in new.columns
        if id in before.names and before.names[id] != after.names[id]
    ]
    for id, definition in new.columns.items():
        present = old.columns.get(id)
        if present is not None and definition is not None and present != definition:
            steps.append(ChangeColumn(id, after.names[id], present, definition))
    steps += [
        AddColumn(id, after.names[id], column)
        for id, column in new.columns.items()
        if id not in old.columns and column is not None
    ]
    steps += [
        RenameKey(key, str(name), str(new.keys[key]))
        for key, name in old.keys.items()
        if key in new.keys and new.keys[key] != name
    ]
    steps += [AddKey(key, str(name)) for key, name in new.keys.items() if key not in old.keys]
    steps += [AddCheck(words, str(name)) for words, name in new.checks.items() if words not in old.checks]
    if old.collation != new.collation:
        steps.append(SetCollation(str(new.collation)))
    return steps
