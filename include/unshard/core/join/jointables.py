"""The structure of a table by the ids of its columns, and the join of two such structures.

| part                          | join                                                                               |
|-------------------------------|------------------------------------------------------------------------------------|
| a column                      | there if one side has it                                                           |
| its type                      | `columntypes.join_types`                                                           |
| NULL                          | nullable if one side is, or if one side lacks the column and its fill is NULL      |
| DEFAULT, ON UPDATE, collation | that of both sides if they agree, else open: the target keeps its own              |
| generated                     | generated if both sides are; a STORED one that is plain on one side is plain;      |
|                               | two expressions, or VIRTUAL and plain: no join                                     |
| a CHECK                       | there if both sides have it                                                        |
| UNIQUE                        | there if both sides have it, with the same rule of comparison for its texts        |
| another index                 | there if one side has it                                                           |
| the primary key               | that of both sides; two different ones: no join                                    |

Row images are complete, so a default has no effect on rows. Order, comments and options of the table are ignored.
Names of columns are not part of it: `group` chooses them. `join` is commutative, associative and idempotent.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation
from enum import Enum
from functools import lru_cache, reduce

from unshard.core.model import Column, TableSchema
from unshard.core.sql.literals import EXACT
from unshard.core.sql.quoting import identifier
from unshard.core.sql.tokens import Token, TokenKind, closing
from unshard.core.structures.columntypes import (
    MOST_DIGITS,
    BinaryType,
    ColumnType,
    TextType,
    TypeForm,
    has_incompatible_labels,
    join_types,
    meets,
    sort_rule,
    type_of,
    type_with_choices,
)
from unshard.core.structures.parsedtable import IndexText, ParsedTable, in_parentheses, parsed

NO_SPACE_BEFORE = frozenset({"(", ")", ",", "."})
NULL = "NULL"
NEEDS_VALUES = frozenset({"SPATIAL", "VECTOR"})
"""The kinds of indexes whose columns must be NOT NULL."""
FULLTEXT, CHECK, DESCENDING = "FULLTEXT", "CHECK", "DESC"
FEATURES = frozenset({FULLTEXT, CHECK, DESCENDING})
"""Parts of a structure that some servers accept and leave out, as TiDB does; no value of a row depends on them."""
MOMENT = re.compile(r"current_timestamp\(\d*\)", re.IGNORECASE)
INTRODUCER = "_utf8mb4"
"""Before each literal in an expression, as TiDB and MySQL show it; MariaDB leaves it out."""
OPERATORS = {"!=": "<>", "mod": "%"}
"""Operators that servers show differently."""
ZEROS = re.compile(r"(:\d\d)\.?0*'$|(:\d\d\.\d*[1-9])0*'$")
"""The end of a time, with the zeros that a column with more digits shows."""


class Open(Enum):
    """The value of a property on which the shards do not agree, so that the target keeps its own."""

    OPEN = "open"


OPEN = Open.OPEN
Agreed = str | Open
Expression = tuple[int | str, ...]
"""Words of SQL text; a column is its id."""


@dataclass(frozen=True, slots=True)
class Definition:
    """A column without its name."""

    type: ColumnType
    nullable: bool
    default: Agreed = ""
    """Empty: no default or NULL. Without the digits that depend on the type: `1.5` for `1.50`."""
    extra: Agreed = ""
    generated: frozenset[Expression] = frozenset()
    """The expressions of the sides; more than one cannot be joined."""
    is_plain: bool = True
    """Whether a side stores values that are not generated."""
    check: Expression = ()
    text: str = field(default="", compare=False, repr=False)
    """The column as a server shows it, after its name; statements are made of it."""

    @property
    def is_generated(self) -> bool:
        return bool(self.generated) and not self.is_plain


@dataclass(frozen=True, slots=True)
class KeyPart:
    """A part of an index: a column or an expression, with its prefix length and direction."""

    expression: Expression
    options: str = ""
    compared: str = ""
    """The rule of comparison of a text in a unique key."""


@dataclass(frozen=True, slots=True)
class Key:
    """An index; its name is not part of it."""

    kind: str
    """`PRIMARY`, `UNIQUE`, `FULLTEXT`, `SPATIAL`, `VECTOR` or empty."""
    parts: tuple[KeyPart, ...]
    options: str = field(default="", compare=False)

    @property
    def is_strict(self) -> bool:
        """Whether it rejects rows, so that it may exist only if every shard has it."""
        return self.kind == "UNIQUE"

    @property
    def columns(self) -> frozenset[int]:
        return frozenset(word for part in self.parts for word in part.expression if isinstance(word, int))


@dataclass(frozen=True, slots=True)
class Table:
    """The structure of a shard, of the target or of the join; None in place of a column that has no join."""

    columns: Mapping[int, Definition | None]
    primary: Key | None = None
    keys: Mapping[Key, Agreed] = field(default_factory=dict)
    checks: Mapping[Expression, Agreed] = field(default_factory=dict)
    collation: Agreed = ""
    is_keyed: bool = True
    """Whether all sides have the same primary key."""


def table_with_ids(schema: TableSchema, ids: Mapping[str, int]) -> Table:
    """Return the structure with ids in place of the names of columns, which are in lower case in `ids`.

    A column without an id is left out, and so are the indexes and constraints that name it.
    """
    text, known = parsed(schema.create_sql), schema.by_name
    columns = {ids[name]: _definition(known[name], text, ids, known) for name in known if name in ids}
    rules = {name: sort_rule(column) for name, column in known.items()}
    keys = dict[Key, Agreed]()
    primary = None
    for index in text.indexes:
        key = _key(index, ids, known, rules)
        if key is not None and key.kind == "PRIMARY":
            primary = key
        elif key is not None:
            keys.setdefault(key, index.name)
    shown = ((_with_ids(words, ids, known), name) for name, words in text.checks)
    checks: Mapping[Expression, Agreed] = {words: name for words, name in shown if words is not None}
    return Table(columns, primary, keys, checks, schema.collation)


def definition_of(schema: TableSchema, column: Column, ids: Mapping[str, int]) -> Definition:
    """Return the definition of one column."""
    return _definition(column, parsed(schema.create_sql), ids, schema.by_name)


def join(one: Table, other: Table, fills: Mapping[int, str]) -> Table:
    """Return the smallest structure that holds the rows of both; `fills`: what rows have in a column that they lack."""
    ids = in_one_order(one.columns, other.columns)
    columns = {id: _joined_column(id, one.columns, other.columns, fills.get(id, NULL)) for id in ids}
    keys = {
        key: _agreed(one.keys.get(key), other.keys.get(key))
        for key in (*one.keys, *(key for key in other.keys if key not in one.keys))
        if not key.is_strict or (key in one.keys and key in other.keys)
    }
    checks = {words: _agreed(one.checks[words], other.checks[words]) for words in one.checks if words in other.checks}
    return Table(
        columns,
        one.primary if one.primary == other.primary else None,
        keys,
        checks,
        one.collation if one.collation == other.collation else OPEN,
        one.is_keyed and other.is_keyed and one.primary == other.primary,
    )


def in_one_order(one: Iterable[int], other: Iterable[int]) -> tuple[int, ...]:
    """Return the columns of the first order with those of the other one: each after the column that it follows there.

    Those that come last there come last.
    """
    found, given = [*one], [*other]
    known = {*found}
    end = next((at for at in reversed(range(len(given))) if given[at] in known), -1)
    for at, id in enumerate(given[:end]):
        if id not in known:
            found.insert(found.index(given[at - 1]) + 1 if at else 0, id)
    return (*found, *(id for id in given[end + 1 :] if id not in known))


def join_all(tables: Iterable[Table], fills: Mapping[int, str]) -> Table:
    """Return the join of several structures."""
    return reduce(lambda one, other: join(one, other, fills), tables)


def floored(table: Table, floor: Table) -> Table:
    """Return the join of shards with what the target had before them: wider types, and its own indexes that reject no
    row.
    """
    columns = dict(table.columns)
    for id, definition in table.columns.items():
        own = floor.columns.get(id)
        both = join_definitions(definition, own) if definition is not None and own is not None else None
        if both is not None and definition is not None:
            is_same_kind = both.is_generated == definition.is_generated
            columns[id] = replace(both, default=definition.default, extra=definition.extra) if is_same_kind else both
    own_keys = {key: name for key, name in floor.keys.items() if not key.is_strict and key.columns <= columns.keys()}
    return replace(table, columns=columns, keys={**own_keys, **table.keys})


def buildable(table: Table, shards: Collection[Table]) -> Table:
    """Return the join without the indexes that no server could build.

    A SPATIAL or VECTOR index needs NOT NULL. An index on a whole CHAR or BINARY column cannot be on a TEXT or BLOB.
    """
    own = {key: shard for shard in shards for key in shard.keys}
    keys = {key: name for key, name in table.keys.items() if _is_buildable(key, table, own[key])}
    return replace(table, keys=keys)


@lru_cache(512)
def features(create_sql: str) -> frozenset[str]:
    """Return the features that a table has."""
    table = parsed(create_sql)
    words = {index.kind for index in table.indexes}
    words |= {token.word for index in table.indexes for part in index.parts for token in part}
    has_check = table.checks or any(in_parentheses(column, CHECK) for column in table.columns.values())
    return frozenset(words & {FULLTEXT, DESCENDING}) | ({CHECK} if has_check else set())


def limited(table: Table, lacks: Collection[str]) -> Table:
    """Return a structure as a server shows it that leaves these features out."""
    if not lacks:
        return table
    columns, checks, keys = dict(table.columns), table.checks, dict[Key, Agreed]()
    if CHECK in lacks:
        checks = {}
        columns = {id: replace(each, check=()) if each is not None else None for id, each in columns.items()}
    for key, name in table.keys.items():
        if key.kind not in lacks:
            parts = (replace(part, options=part.options.replace(DESCENDING, "")) for part in key.parts)
            keys.setdefault(replace(key, parts=tuple(parts)) if DESCENDING in lacks else key, name)
    return replace(table, columns=columns, keys=keys, checks=checks)


def join_definitions(one: Definition, other: Definition) -> Definition | None:
    """Return the join of two definitions of one column; None if there is no such definition."""
    if one == other and len(one.generated) < 2:
        return one
    kind = join_types(one.type, other.type)
    generated = one.generated | other.generated
    is_plain = one.is_plain or other.is_plain
    if kind is None or has_incompatible_labels(kind) or len(generated) > 1:
        return None
    virtual = ("virtual" in str(side.extra) or side.extra is OPEN for side in (one, other) if side.is_generated)
    if one.is_generated != other.is_generated and any(virtual):
        return None
    return Definition(
        kind,
        one.nullable or other.nullable,
        one.default if one.default == other.default else OPEN,
        one.extra if one.extra == other.extra else OPEN,
        generated,
        is_plain,
        one.check if one.check == other.check else (),
        one.text or other.text,
    )


def is_met(present: Definition, wanted: Definition) -> bool:
    """Whether a column of the target is what the join asks for."""
    return (
        meets(present.type, wanted.type)
        and present.nullable == wanted.nullable
        and wanted.default in (OPEN, present.default)
        and wanted.extra in (OPEN, present.extra)
        and (present.generated if present.is_generated else None) == (wanted.generated if wanted.is_generated else None)
        and present.check == wanted.check
    )


def concrete(wanted: Definition, present: Definition | None) -> Definition:
    """Return a definition that meets `wanted`, with the properties of `present` on which the shards do not agree."""
    is_open = OPEN in (wanted.default, wanted.extra)
    kept = present if is_open and present is not None and present.is_generated == wanted.is_generated else wanted
    default = kept.default if wanted.default is OPEN else wanted.default
    extra = kept.extra if wanted.extra is OPEN else wanted.extra
    generated = wanted.generated if wanted.is_generated else frozenset[Expression]()
    return replace(
        wanted,
        type=type_with_choices(wanted.type, present.type if present else None),
        default="" if default is OPEN else default,
        extra="" if extra is OPEN else extra,
        generated=generated,
        is_plain=not generated,
        text=kept.text or wanted.text,
    )


def shown_expression(words: Expression, names: Mapping[int, str]) -> str:
    """Return the SQL text of an expression."""
    text = ""
    for word in words:
        shown = identifier(names[word]) if isinstance(word, int) else word
        text += shown if not text or shown in NO_SPACE_BEFORE or text[-1] in "(." else f" {shown}"
    return text


def _definition(column: Column, table: ParsedTable, ids: Mapping[str, int], known: Collection[str]) -> Definition:
    name = column.name.lower()
    generated, check = (in_parentheses(table.columns.get(name, ()), word) for word in ("AS", CHECK))
    expression = _with_ids(generated, ids, known) if generated else None
    return Definition(
        type_of(column),
        column.nullable,
        "" if column.default in (None, NULL) else _normal_default(str(column.default)),
        MOMENT.sub("current_timestamp()", column.extra).replace("auto_random", "auto_increment"),
        frozenset() if expression is None else frozenset({expression}),
        expression is None,
        _with_ids(check, ids, known) or (),
        table.column_text(name),
    )


def _normal_default(text: str) -> str:
    """Return a default without the digits that a server adds for the type of the column."""
    if text.startswith("'"):
        return ZEROS.sub(lambda found: f"{found[1] or found[2]}'", text)
    try:
        number = Decimal(text)
    except InvalidOperation:
        return MOMENT.sub("current_timestamp()", text)
    return format(number.normalize(EXACT), "f" if abs(number.adjusted()) < MOST_DIGITS else "e")


def _with_ids(tokens: Sequence[Token], ids: Mapping[str, int], known: Collection[str]) -> Expression | None:
    """Return the words of an expression; None if it names a column that has no id."""
    words: list[int | str] = []
    for token in tokens:
        if token.raw == INTRODUCER:
            continue
        name = token.name.lower() if token.kind is TokenKind.QUOTED else ""
        if name in known and name not in ids:
            return None
        shown = token.word.lower() or token.raw
        words.append(ids.get(name, OPERATORS.get(shown, shown)))
    return tuple(words)


def _key(index: IndexText, ids: Mapping[str, int], known: Collection[str], rules: Mapping[str, str]) -> Key | None:
    parts = []
    for part in index.parts:
        end = closing(part, 0) + 1
        expression = _with_ids(part[:end], ids, known)
        if expression is None:
            return None
        rule = rules.get(part[0].name.lower(), "") if index.kind in ("UNIQUE", "PRIMARY") else ""
        shown = "".join(token.raw for token in part[end:]).upper()
        # The order of a primary key has no effect on rows, and some servers leave it out.
        shown = shown.replace(DESCENDING, "") if index.kind == "PRIMARY" else shown
        parts.append(KeyPart(expression, shown, rule))
    return Key(index.kind, tuple(parts), " ".join(token.raw for token in index.options))


def _joined_column(
    id: int, mine: Mapping[int, Definition | None], others: Mapping[int, Definition | None], fill: str
) -> Definition | None:
    if id in mine and id in others:
        one, other = mine[id], others[id]
        return join_definitions(one, other) if one is not None and other is not None else None
    only = mine[id] if id in mine else others[id]
    if only is None or only.is_generated or fill != NULL:
        return only
    return replace(only, nullable=True)


def _agreed(one: Agreed | None, other: Agreed | None) -> Agreed:
    found = {name for name in (one, other) if name is not None}
    return found.pop() if len(found) == 1 else OPEN


def _is_buildable(key: Key, table: Table, shard: Table) -> bool:
    for part in key.parts:
        column, own = (
            side.columns.get(part.expression[0]) if isinstance(part.expression[0], int) else None
            for side in (table, shard)
        )
        if column is None or own is None:
            continue
        if key.kind in NEEDS_VALUES and column.nullable:
            return False
        is_whole = key.kind not in ("FULLTEXT", *NEEDS_VALUES) and not part.options.startswith("(")
        if is_whole and is_text_or_blob(column.type) and not is_text_or_blob(own.type):
            return False
    return True


def is_text_or_blob(kind: ColumnType) -> bool:
    """Whether it is a TEXT or BLOB."""
    if isinstance(kind, TextType):
        return kind.resolved[0] is TypeForm.LARGE
    return isinstance(kind, BinaryType) and kind.form is TypeForm.LARGE
