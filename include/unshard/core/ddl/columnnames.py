"""Columns that have another name in a shard than in the target.

An operator may count `CHANGE a d` of one shard as `CHANGE a c` of its group. Then d of this shard is column c of the
target, until the shard gives it that name. Each structure of the shard keeps this: its columns have the target's names,
and `Column.own_name` is the shard's own name. So rows, which are decoded by the place of a column, reach the right
column, also held rows, rows of a new shard that is created LIKE this one, and rows after further DDL. Types, indexes
and order stay those of the shard.

The names after a DDL follow from two histories of the same columns:

| the shard's own statement | what counts for its group | the column of the shard    |
|---------------------------|---------------------------|----------------------------|
| renames a to d            | renames a to c            | d is c                     |
| changes d                 | changes c                 | d is c                     |
| renames d to c            | changes c, or nothing     | has the target's name      |
| renames d to e            | renames c to e            | has the target's name      |
| drops d                   | drops c                   | is gone                    |
| renames a to d            | renames a to c, adds d    | d is d of the target       |
| adds d                    | adds c                    | d is c                     |

`translated` writes a later statement of the shard with the target's names, so that it agrees with those of its group.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from types import MappingProxyType

from unshard.core.ddl.lineage import NO_COLUMNS, ExecutedDdl, names_after, specs_of_alter
from unshard.core.ddl.queue import EntryState, OperatorDecision, QueueEntry, UnnamedShard
from unshard.core.ddl.sessioneffects import added_columns, note_of
from unshard.core.ddl.statement import TokenCursor, alter_specs, fingerprint
from unshard.core.model import Column, TableSchema
from unshard.core.sql.quoting import identifier, replace_names
from unshard.core.sql.tokens import MARIADB, Edit, Token, TokenKind, edited, tokenize
from unshard.core.structures.parsedtable import parsed
from unshard.errors.ddl import ColumnNamedOtherwise

Names = Mapping[str, str]
"""The target's name of a column by the shard's own name, which is in lower case; only where they differ."""
NO_NAMES: Names = MappingProxyType({})
NAMED = frozenset({"TABLE", "KEY", "INDEX", "CONSTRAINT", "PARTITION", "SUBPARTITION", "PARSER", "EXISTS", "TO", "."})
"""Words before a name that is not a column's."""


def own_names(schema: TableSchema) -> dict[str, str]:
    """Return the columns of a shard that have another name in the target."""
    return {column.own_name.lower(): column.name for column in schema.columns if column.own_name}


def as_own(schema: TableSchema) -> TableSchema:
    """Return the structure with the shard's own names, as its source shows it."""
    names = {name: column.own_name for name, column in schema.by_name.items() if column.own_name}
    if not names:
        return schema
    return _renamed(schema, names, lambda column: replace(column, name=names[column.name.lower()], own_name=None))


def with_names(schema: TableSchema, names: Names) -> TableSchema:
    """Return the structure with the target's names of these columns."""
    schema = as_own(schema)
    if not names:
        return schema
    return _renamed(
        schema, names, lambda column: replace(column, name=names[column.name.lower()], own_name=column.name)
    )


def _renamed(schema: TableSchema, names: Names, renamed: Callable[[Column], Column]) -> TableSchema:
    return replace(
        schema,
        columns=tuple(renamed(each) if name in names else each for name, each in schema.by_name.items()),
        indexes=tuple(
            replace(index, columns=tuple(_renamed_part(part, names) for part in index.columns))
            for index in schema.indexes
        ),
        create_sql=_renamed_text(schema.create_sql, names),
    )


def _renamed_part(part: str, names: Names) -> str:
    if part.startswith("(") and part.lower() not in names:
        return replace_names(part, lambda name: identifier(names.get(name.lower(), name)))
    return names.get(part.lower(), part)


def _renamed_text(text: str, names: Names) -> str:
    """Return CREATE TABLE with other names of columns; servers print every name in backquotes."""
    table = parsed(text)
    edits = (
        (token.start, token.end, identifier(names[token.name.lower()]))
        for before, token in pairwise(table.tokens)
        if token.kind is TokenKind.QUOTED and token.name.lower() in names and before.word not in NAMED
    )
    return edited(table.text, edits)


def carried(schema: TableSchema, names: Names) -> dict[str, str]:
    """Return those of the names that a structure of the shard still has, and whose target name it does not use."""
    used = as_own(schema).by_name.keys()
    kept = {own: new for own, new in names.items() if own in used}
    return {own: new for own, new in kept.items() if new.lower() not in used - kept.keys()}


def names_after_ddl(
    before: TableSchema, after: TableSchema, ran: ExecutedDdl, counted: Sequence[ExecutedDdl]
) -> dict[str, str]:
    """Return the columns that have another name in the target after a DDL of a shard.

    `ran` is the shard's own statement, `counted` what counts in its place for the group, with the target's names.
    """
    here = names_after(as_own(before).names, [ran])
    there = names_after(before.names, counted)
    own, added = _added([ran]), _added(counted)
    found: dict[str, str] = {}
    for column in before.columns:
        known = (column.own_name or column.name).lower()
        mine, theirs = here.get(known), there.get(column.name.lower())
        if mine and theirs and mine != theirs and (mine == known or mine not in added):
            found[mine] = column.name if column.name.lower() == theirs else theirs
    if len(own) == len(added) == 1 and own.keys() != added.keys():
        found |= zip(own, added.values(), strict=True)
    return carried(after, found)


def _added(ran: Iterable[ExecutedDdl]) -> dict[str, str]:
    """Return the columns that statements add, by their names in lower case."""
    names = (definition[0].name for each in ran for spec in specs_of_alter(each) for definition in added_columns(spec))
    return {name.lower(): name for name in names}


def translated(text: str, sql_mode: int, names: Names) -> str | None:
    """Return a statement of the shard with the target's names of its columns; None if a name may mean something else.

    A name after MODIFY, CHANGE, DROP, ALTER, RENAME COLUMN, AFTER or ORDER BY is a column. So is one in parentheses,
    unless it is a function's.
    """
    plain, tokens = tokenize(text, sql_mode, MARIADB)
    specs = [spec.tokens for spec in alter_specs(plain, tokens)]
    edits: list[Edit] = []
    for spec in specs or [tokens]:
        columns = {*_columns(TokenCursor(plain, spec, ""))}
        for place, token in enumerate(spec):
            if not _is_name(token) or token.name.lower() not in names:
                continue
            if place in columns or _is_in_expression(spec, place):
                edits.append((token.start, token.end, identifier(names[token.name.lower()])))
            elif specs and token.kind is TokenKind.QUOTED and (place == 0 or spec[place - 1].word not in NAMED):
                return None
    return edited(plain, edits)


def columns_named(text: str, sql_mode: int) -> frozenset[str]:
    """Return the names in an ALTER TABLE that are columns, in lower case; they may include new columns."""
    plain, tokens = tokenize(text, sql_mode, MARIADB)
    found: set[str] = set()
    for spec in alter_specs(plain, tokens):
        places = {*_columns(TokenCursor(plain, spec.tokens, ""))}
        for place, token in enumerate(spec.tokens):
            if _is_name(token) and (place in places or _is_in_expression(spec.tokens, place)):
                found.add(token.name.lower())
    return frozenset(found)


def _is_name(token: Token) -> bool:
    return token.kind in (TokenKind.WORD, TokenKind.QUOTED)


def _is_in_expression(tokens: Sequence[Token], place: int) -> bool:
    before = [token.word for token in tokens[:place]]
    is_inside = before.count("(") > before.count(")")
    follower = tokens[place + 1].word if place + 1 < len(tokens) else ""
    return is_inside and before[-1] not in NAMED and (follower != "(" or tokens[place].kind is TokenKind.QUOTED)


def _columns(spec: TokenCursor) -> Iterator[int]:
    """Yield the places at which a specification of ALTER TABLE names a column outside of parentheses."""
    for place, token in enumerate(spec.tokens[:-1]):
        if token.word == "AFTER" or (token.word == "BY" and spec.tokens[place - 1].word == "ORDER"):
            yield place + 1
    if spec.eat("RENAME", "COLUMN") or spec.eat("MODIFY"):
        is_column = True
    elif spec.eat("CHANGE"):
        spec.eat("COLUMN")
        spec.eat("IF", "EXISTS")
        yield spec.position
        pair = [token.name.lower() for token in spec.tokens[spec.position : spec.position + 2]]
        if pair[1:] == pair[:1]:
            yield spec.position + 1
        return
    else:
        is_column = spec.eat_any("DROP", "ALTER") and (spec.peek() == "COLUMN" or spec.peek() not in NO_COLUMNS)
    if is_column:
        spec.eat("COLUMN")
        spec.eat("IF", "EXISTS")
        yield spec.position


def with_target_names(
    shard: UnnamedShard, schemas: Mapping[str, TableSchema]
) -> tuple[UnnamedShard, tuple[TableSchema, ...]]:
    """Return the shard with the target's names in its structures and later DDLs, and these structures.

    A later DDL that only gives a column the target's name is resolved: there is nothing to do for the group. An unknown
    structure stays so: it follows from an operator's statements, which have the target's names.
    """
    made: dict[str, TableSchema] = {}

    def kept(digest: str, names: Names) -> TableSchema:
        found = with_names(schemas[digest], carried(schemas[digest], names))
        return made.setdefault(found.digest, found)

    first, entries, by_seq = shard.entries[0], list[QueueEntry](), dict[int, Names]()
    names: Names = own_names(schemas[first.before]) if first.before else {}
    for entry in shard.entries:
        if not (entry.before and entry.after):
            break
        before = kept(entry.before, names)
        found, after = _named(entry, own_names(schemas[entry.before]), before, schemas[entry.after])
        made[after.digest] = after
        entries.append(replace(found, before=before.digest, after=after.digest, is_unnamed=False))
        names = by_seq[entry.seq] = own_names(after)
    entries += (replace(entry, is_unnamed=False) for entry in shard.entries[len(entries) :])
    held = tuple(
        replace(file, structure=kept(file.structure, by_seq[file.seq]).digest)
        if file.structure and file.seq in by_seq
        else file
        for file in shard.held
    )
    structure = kept(shard.structure, names).digest if shard.structure else ""
    return replace(shard, entries=tuple(entries), held=held, structure=structure), tuple(made.values())


def _named(entry: QueueEntry, known: Names, before: TableSchema, after: TableSchema) -> tuple[QueueEntry, TableSchema]:
    """Return a DDL with the target's names, and the structure after it; `known` are the names that its text has."""
    mode = entry.statement.sql_mode
    ran = ExecutedDdl(entry.statement.text, mode)
    if entry.verdict is OperatorDecision.REPLACE:
        counted = [ExecutedDdl(text, mode) for text in entry.replacement]
        return entry, with_names(after, names_after_ddl(before, after, ran, counted))
    change = in_target(before, as_own(after), ran, entry.routed, entry.fingerprint, known)
    if entry.state is EntryState.RESOLVED or entry.verdict is not OperatorDecision.NONE or entry.reason:
        return entry, change.after
    if not change.is_certain:
        return replace(entry, reason=otherwise(str(entry.shard), ran.text, own_names(before))), change.after
    state = EntryState.RESOLVED if change.is_nothing else entry.state
    return replace(entry, routed=change.routed, fingerprint=change.fingerprint, state=state), change.after


def named_as(entry: QueueEntry, counted: Sequence[str], before: TableSchema, after: TableSchema) -> str:
    """Return in words which names change if these statements count as a DDL of a shard; empty if none does."""
    mode = entry.statement.sql_mode
    names = names_after_ddl(
        before, after, ExecutedDdl(entry.statement.text, mode), [ExecutedDdl(text, mode) for text in counted]
    )
    if names == own_names(after):
        return ""
    return ", ".join(f"column {own} is {new} of the target" for own, new in sorted(names.items())) or "the same names"


@dataclass(frozen=True, slots=True)
class ChangeInTarget:
    """A DDL of a shard with the target's names of columns."""

    after: TableSchema
    routed: str
    fingerprint: str
    is_certain: bool = True
    """Whether all names in the statement could be translated."""
    is_nothing: bool = False
    """Whether it only gives columns the names that they have in the target."""


def in_target(
    before: TableSchema, found: TableSchema, ran: ExecutedDdl, routed: str, agreed: str, known: Names = NO_NAMES
) -> ChangeInTarget:
    """Return a DDL with the target's names; `found` is the structure after it with the shard's own names.

    `known` are the names that the text has already.
    """
    names = own_names(before)
    if not names and not known:
        return ChangeInTarget(found, routed, agreed)
    changed = {own: new for own, new in names.items() if known.get(own) != new}
    is_mixed = bool(known.keys() - names.keys() or known.keys() & changed)
    text = None if is_mixed else translated(routed, ran.sql_mode, changed)
    counted = () if text is None else (ExecutedDdl(text, ran.sql_mode),)
    after = with_names(found, names_after_ddl(before, found, ran, counted))
    if text is None or _is_ambiguous(before, after):
        return ChangeInTarget(after, routed, agreed, is_certain=False)
    is_nothing = before.shape == after.shape and own_names(after) != names
    return ChangeInTarget(
        after,
        text,
        agreed if text == routed else fingerprint(text, ran.sql_mode) + note_of(agreed),
        is_nothing=is_nothing,
    )


def _is_ambiguous(before: TableSchema, after: TableSchema) -> bool:
    """Whether a shard has got a second column with the target's name of another one of its columns."""
    used = as_own(after).by_name
    names = own_names(after)
    return any(own in used and new.lower() in used and own not in names for own, new in own_names(before).items())


def otherwise(shard: str, text: str, names: Names) -> str:
    """Return the reason for which an operator decides about a statement with names that the target does not have."""
    return str(ColumnNamedOtherwise(shard, text, ", ".join(f"{own} is {new}" for own, new in sorted(names.items()))))
