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

**Statements**: types, NULL, defaults and expressions come from the definition. Everything else (comments, COMPRESSED,
SRID, …) is copied from the text in which a server shows the column. Renames have a statement of their own: servers
differ in whether other clauses of the same statement must use the old or the new name.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from unshard.core.ddl.lineage import ExecutedDdl, names_after
from unshard.core.ddl.queue import QueueEntry
from unshard.core.ddl.steps import BETWEEN
from unshard.core.join.jointables import (
    MOMENT,
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
    in_one_order,
    is_met,
    join_definitions,
    limited,
    shown_expression,
    table_with_ids,
)
from unshard.core.model import Column, TableId, TableSchema
from unshard.core.sql.quoting import identifier, qualified
from unshard.core.sql.tokens import MARIADB, Token, closing, tokenize
from unshard.core.sql.words import words_of
from unshard.core.structures.columntypes import (
    IntegerType,
    LabelType,
    TextType,
    TimeType,
    TypeForm,
    collation_of,
    type_of,
)
from unshard.core.structures.constraintnames import OWN, named_after
from unshard.errors.ddl import DdlUnreadable


@dataclass(frozen=True, slots=True)
class Target:
    """A structure with the names of its columns: the target's, or the one that it should have."""

    table: Table
    names: Mapping[int, str]
    lacks: frozenset[str] = frozenset()
    """The features that its server leaves out (`tables.FEATURES`), so that nobody asks for them."""


def target_with_ids(structure: TableSchema, names: Mapping[int, str], lacks: frozenset[str] = frozenset()) -> Target:
    """Return a target as its server shows it; `names` are in lower case, columns without an id belong to the target."""
    ids = {name: id for id, name in names.items()}
    table = table_with_ids(structure, ids)
    return Target(table, {id: name for id, name in names.items() if id in table.columns}, lacks)


@dataclass(frozen=True, slots=True)
class AddColumn:
    """The target gets a column."""

    id: int
    name: str
    definition: Definition
    follows: int | None = field(default=None, compare=False)
    """The column before it, as in a shard; 0: it is the first one; None: it is the last one."""

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
    for id in in_one_order(target.table.columns, wanted.table.columns):
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
        AddColumn(id, after.names[id], column, _followed(id, column, old, new))
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


def _followed(id: int, definition: Definition, old: Table, new: Table) -> int | None:
    """Return the column that a new one follows; none that a statement of its own adds or makes generated later."""
    order = [*new.columns]
    at = order.index(id)
    if old.columns.keys().isdisjoint(order[at:]):
        return None

    def is_there(other: int) -> bool:
        present, column = old.columns.get(other), new.columns[other]
        if column is None:
            return present is not None and present.is_generated
        is_early = definition.is_generated if present is None else present.is_generated
        return is_early or not column.is_generated

    return next(filter(is_there, reversed(order[:at])), 0)


# --- the ALTER TABLE statements of steps


BARE_DEFAULT = re.compile(
    r"[bx]?'(?:[^'\\]|''|\\.)*'|-?\d+(?:\.\d+)?(?:e[+-]?\d+)?|current_timestamp(?:\(\d*\))?", re.IGNORECASE | re.DOTALL
)
ENDS_TYPE = words_of("""
    AS AUTO_INCREMENT CHARACTER CHARSET CHECK COLLATE COLUMN_FORMAT COMMENT COMPRESSED DEFAULT GENERATED INVISIBLE NOT
    NULL ON REF_SYSTEM_ID SRID STORAGE VISIBLE WITH WITHOUT
""")
"""Words that may follow the type of a column."""
ONE_WORD = words_of("ALWAYS AUTO_INCREMENT GENERATED INVISIBLE NULL PERSISTENT STORED VIRTUAL")
"""Clauses of one word that a definition has."""
WORDS = {"CHARACTER": {"SET": 3}, "NOT": {"NULL": 2}}
"""Clauses of several words, with their length."""
ORDER = (
    *(DropCheck, DropKey, DropColumn, RenameColumn, ChangeColumn, AddColumn),
    *(RenameKey, AddKey, AddCheck, SetCollation),
)
"""The order of single statements."""
NAMING = AddColumn | RenameColumn
IN_TASK_ZONE = "/* in the time zone of the task */"
"""Part of a statement that is executed in the task's time zone; all other texts are for UTC."""
ON_UPDATE = re.compile(r"on update current_timestamp(?:\(\d*\))?")


@dataclass(frozen=True, slots=True)
class AlterPart:
    """One statement with the steps that it executes."""

    text: str
    steps: tuple[Step, ...]
    names: Mapping[int, str]


def alter_parts(table: TableId, steps: Sequence[Step], names: Mapping[int, str]) -> tuple[AlterPart, ...]:
    """Return the statements that execute the steps, in order; `names` are those of the columns after all steps."""
    early = [step for step in steps if isinstance(step, DropCheck | DropKey | DropColumn | RenameColumn)]
    zoned = [step for step in steps if isinstance(step, ChangeColumn) and _moves_zone(step)]
    late = [step for step in steps if step not in early and step not in zoned]
    is_split = zoned or any(isinstance(step, RenameColumn) for step in early)
    converting = [each for step in zoned for each in _without_default(step)]
    divided: tuple[Sequence[Step], ...] = (early, *([each] for each in converting), late)
    groups = divided if is_split else (steps,)
    head = f"ALTER TABLE {qualified(table.schema, table.name)} "
    texts = ((_text(head, group, names), group) for group in groups if group)
    return tuple(AlterPart(named_after(text, table.name), tuple(group), names) for text, group in texts)


def _text(head: str, group: Sequence[Step], names: Mapping[int, str]) -> str:
    zone = f"{IN_TASK_ZONE} " if any(isinstance(step, ChangeColumn) and _moves_zone(step) for step in group) else ""
    return head + zone + ", ".join(clause for step in group for clause in _clauses_of(step, names))


def _moves_zone(step: ChangeColumn) -> bool:
    """Whether the time zone of the session decides what stored values become."""
    kinds = [str(definition.type).partition("(")[0] for definition in (step.before, step.after)]
    return kinds.count("timestamp") == 1 and not (step.before.is_generated or step.after.is_generated)


def _without_default(step: ChangeColumn) -> Iterator[ChangeColumn]:
    """Yield a conversion without the new default, which is written in UTC, then the default."""
    if str(step.after.default)[:1] not in ("'", '"'):
        yield step
        return
    middle = replace(step.after, default="")
    yield replace(step, after=middle)
    yield replace(step, before=middle)


def taken_names(present: TableSchema, names: Mapping[int, str], steps: Sequence[Step]) -> tuple[str, ...]:
    """Return the columns without an id that a table has under names that the steps give; `names` are those of ids."""
    own = present.by_name.keys() - {*names.values()}
    given = [step.name if isinstance(step, AddColumn) else step.new_name for step in steps if isinstance(step, NAMING)]
    return tuple(name for name in given if name in own)


def leads_to(own: TableSchema, expected: Target) -> bool:
    """Whether a shard's own statement leads to the structure that the target should have."""
    found = target_with_ids(own, expected.names)
    return is_equal(found, expected) and dict(found.table.keys) == dict(expected.table.keys)


def moves_as(entry: QueueEntry, present: Target, expected: Target) -> bool:
    """Whether a shard's own statement gives each column of the target the name that it should have.

    A structure does not show that: where the target has other names than the shard, the same words may mean another
    column.
    """
    try:
        found = names_after(present.names.values(), (ExecutedDdl(entry.routed, entry.statement.sql_mode),))
    except DdlUnreadable:
        return False
    return all(found.get(name) == expected.names.get(id) for id, name in present.names.items())


def has_same_effect(entry: QueueEntry, present: Target, expected: Target) -> bool:
    """Whether a shard's own statement does to the names and the stored values of the target what the steps would do."""
    old, new = present.table.columns, expected.table.columns
    pairs = ((old[id], new[id]) for id in old.keys() & new.keys())
    in_session = any(one and other and _depends_on_session(one, other) for one, other in pairs)
    return not in_session and moves_as(entry, present, expected)


def _depends_on_session(before: Definition, after: Definition) -> bool:
    """Whether the session decides what stored values become (core.ddl.sessioneffects)."""
    old, new = before.type, after.type
    is_cut = isinstance(old, TimeType) and isinstance(new, TimeType) and new.fraction < old.fraction
    is_padded = isinstance(old, TextType) and old.resolved[0] is TypeForm.FIXED and old != new
    return is_cut or is_padded or _moves_zone(ChangeColumn(0, "", before, after))


def single_parts(table: TableId, part: AlterPart) -> tuple[AlterPart, ...]:
    """Return the statements of one change each that have the effect of a statement, in an order in which each can run.

    They are for a server that checks every change against the table as it was before the statement (core.ddl.steps). A
    column that becomes generated is dropped and added. Columns or indexes that swap their names get one of unshard in
    between. Generated columns come after all others, whose names they may contain.
    """
    renames = [step for step in part.steps if isinstance(step, RenameColumn | RenameKey)]
    others = [piece for step in part.steps if step not in renames for piece in _in_two(step)]
    steps = sorted([*others, *_in_turn(renames)], key=_turn)
    head = f"ALTER TABLE {qualified(table.schema, table.name)} "
    texts = (named_after(head + "".join(_clauses_of(step, part.names)), table.name) for step in steps)
    return tuple(AlterPart(text, (step,), part.names) for text, step in zip(texts, steps, strict=True))


def _in_two(step: Step) -> tuple[Step, ...]:
    if isinstance(step, ChangeColumn) and step.after.is_generated and not step.before.is_generated:
        return DropColumn(step.id, step.name), AddColumn(step.id, step.name, step.after)
    return (step,)


def _in_turn(renames: Sequence[RenameColumn | RenameKey]) -> list[RenameColumn | RenameKey]:
    """Return the renames in an order in which each new name is free; the first of a cycle is renamed twice."""
    left, found = list(renames), list[RenameColumn | RenameKey]()
    while left:
        free = next((step for step in left if not any(_takes(step, other) for other in left if other != step)), None)
        if free is None:
            first = left[0]
            between = f"{BETWEEN}{first.id if isinstance(first, RenameColumn) else len(found)}"
            found.append(replace(first, new_name=between))
            left[0] = replace(first, name=between)
        else:
            found.append(free)
            left.remove(free)
    return found


def _takes(step: RenameColumn | RenameKey, other: RenameColumn | RenameKey) -> bool:
    return isinstance(other, type(step)) and step.new_name.lower() == other.name.lower()


def _turn(step: Step) -> tuple[int, bool]:
    match step:
        case AddColumn(definition=definition) | ChangeColumn(after=definition):
            return ORDER.index(AddColumn if definition.is_generated else type(step)), definition.is_generated
    return ORDER.index(type(step)), False


def column_text(definition: Definition, names: Mapping[int, str]) -> str:
    """Return a column as a statement defines it, after its name."""
    kind, kept = _split(definition.text)
    parts = [_type(definition, kind)]
    if isinstance(definition.type, TextType | LabelType) and collation_of(definition.type):
        parts.append(f"CHARACTER SET {definition.type.charset} COLLATE {collation_of(definition.type)}")
    extra = str(definition.extra)
    if definition.is_generated:
        (expression,) = definition.generated
        stored = "STORED" if "stored" in extra or re.search(r"\b(STORED|PERSISTENT)\b", definition.text) else "VIRTUAL"
        parts.append(f"GENERATED ALWAYS AS {shown_expression(expression, names)} {stored}")
    else:
        parts.append("NULL" if definition.nullable else "NOT NULL")
        default = _with_fraction(definition, str(definition.default))
        bare = default if BARE_DEFAULT.fullmatch(default) else f"({default})"
        parts += [f"DEFAULT {bare}"] if default else []
        parts += ["AUTO_INCREMENT"] if "auto_increment" in extra else []
        parts += [found[0] for found in ON_UPDATE.finditer(_with_fraction(definition, extra))]
    parts += ["INVISIBLE"] if "invisible" in extra else []
    parts += [kept] if kept else []
    parts += [f"CHECK {shown_expression(definition.check, names)}"] if definition.check else []
    return " ".join(parts)


def _clauses_of(step: Step, names: Mapping[int, str]) -> Iterator[str]:
    """Yield the clauses of a step. A column that becomes generated is dropped and added: no server can change it."""
    match step:
        case AddColumn(_, name, definition, follows):
            place = f" AFTER {identifier(names[follows])}" if follows else " FIRST"
            yield f"ADD COLUMN {identifier(name)} {column_text(definition, names)}{'' if follows is None else place}"
        case DropColumn(_, name):
            yield f"DROP COLUMN {identifier(name)}"
        case ChangeColumn(_, name, before, after):
            text = column_text(after, names)
            if after.is_generated and not before.is_generated:
                yield f"DROP COLUMN {identifier(name)}"
                yield f"ADD COLUMN {identifier(name)} {text}"
            else:
                yield f"MODIFY COLUMN {identifier(name)} {text}"
        case RenameColumn(_, name, new_name):
            yield f"RENAME COLUMN {identifier(name)} TO {identifier(new_name)}"
        case _:
            yield _key_or_option(step, names)


def _key_or_option(step: Step, names: Mapping[int, str]) -> str:
    match step:
        case AddKey(key, name):
            return f"ADD {_key(key, name, names)}"
        case DropKey(_, name):
            return f"DROP KEY {identifier(name)}"
        case RenameKey(_, name, new_name):
            return f"RENAME KEY {identifier(name)} TO {identifier(new_name)}"
        case AddCheck(expression, name):
            head = f"CONSTRAINT {identifier(name)} " if name and not name.startswith(OWN) else ""
            return f"ADD {head}CHECK {shown_expression(expression, names)}"
        case DropCheck(_, name):
            return f"DROP CONSTRAINT {identifier(name)}"
        case SetCollation(collation):
            return f"DEFAULT COLLATE {collation}"
    raise ValueError(f"no clause for {step}")


def _key(key: Key, name: str, names: Mapping[int, str]) -> str:
    parts = ", ".join(
        f"{shown_expression(part.expression, names)}{part.options.replace(')', ') ')}".strip() for part in key.parts
    )
    return f"{key.kind} KEY {identifier(name)} ({parts}) {key.options}".strip()


def _type(definition: Definition, shown: str) -> str:
    """Return the type; that of an integer as a server shows it, with its display width, if it is the same."""
    if isinstance(definition.type, IntegerType) and shown:
        word = re.match(r"\w+", shown)
        column = Column("", word[0].lower() if word else "", shown.lower(), True, None, None, None, "")
        return shown if type_of(column) == definition.type else str(definition.type)
    return str(definition.type)


def _with_fraction(definition: Definition, text: str) -> str:
    """Return the text with as many digits of the current time as the column has."""
    digits = definition.type.fraction if isinstance(definition.type, TimeType) else 0
    return MOMENT.sub(f"current_timestamp({digits})", text) if digits else text


def _split(text: str) -> tuple[str, str]:
    """Return the type, and the parts of a column's text that a definition does not have."""
    text, tokens = tokenize(text, 0, MARIADB)
    start = next((at for at, token in enumerate(tokens) if token.word in ENDS_TYPE and at), len(tokens))
    kind = text[tokens[0].start : tokens[start - 1].end] if tokens else ""
    kept, position = list[str](), start
    while position < len(tokens):
        end = _end_of_known(tokens, position)
        if end == position:
            end += 1
            kept.append(tokens[position].raw)
        position = end
    return kind, " ".join(kept)


def _end_of_known(tokens: Sequence[Token], position: int) -> int:
    """Return where a clause ends that is part of the definition; the same position for any other clause."""
    word, follower = tokens[position].word, tokens[position + 1].word if position + 1 < len(tokens) else ""
    if word in ONE_WORD:
        return position + 1
    if word in WORDS and follower in WORDS[word]:
        return position + WORDS[word][follower]
    if word in ("AS", "CHECK"):
        return closing(tokens, position + 1) + 1
    if word == "DEFAULT":
        return _after_value(tokens, position + 1)
    if (word, follower) == ("ON", "UPDATE"):
        return _after_value(tokens, position + 2)
    return position + 2 if word in ("CHARSET", "COLLATE") else position


def _after_value(tokens: Sequence[Token], position: int) -> int:
    """Return the position after a literal, a function with its arguments, or parentheses."""
    if tokens[position].word in ("-", "+") or tokens[position].word.startswith("_"):
        position += 1
    if tokens[position].word != "(":
        position += 1
    if position < len(tokens) and tokens[position].word == "(":
        return closing(tokens, position) + 1
    return position
