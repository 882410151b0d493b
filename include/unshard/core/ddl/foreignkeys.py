"""The foreign keys that an ALTER TABLE adds or drops, and the statement with only those that the target gets.

| in the statement                | the target's session checks foreign keys            | it does not         |
|---------------------------------|-----------------------------------------------------|---------------------|
| ADD FOREIGN KEY, REFERENCES in  | the same, with the name of the parent's target; if  | only the index that |
| the definition of a column      | the parent is not in the task, only the index       | it creates          |
| DROP FOREIGN KEY                | the same, if the target has the key                 | nothing             |

The server names a foreign key without a name after its table. So `c_1_ibfk_2` of the shard `c_1` is `c_ibfk_2` in the
target `c` (core.ddl.statement.retarget), whichever server the target is: the target gets the name explicitly, because
TiDB would choose another one.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from unshard.core.ddl.parsed import Ddl, DdlKind, Role
from unshard.core.ddl.statement import TokenCursor, alter_specs
from unshard.core.model import Index, TableId, TableSchema
from unshard.core.sql.quoting import identifier
from unshard.core.sql.tokens import MARIADB, Edit, Token, at_commas, closing, tokenize
from unshard.core.structures.foreignkeys import NUMBERED, ForeignKey, automatic_name, is_indexed
from unshard.core.structures.parsedtable import items
from unshard.core.structures.storageclauses import NOTHING

Parents = Mapping[TableId, TableId] | None
"""The targets of parent tables; None: targets get no foreign keys."""


@dataclass(frozen=True, slots=True)
class ForeignKeyClause:
    """A part of an ALTER TABLE that adds or drops one foreign key."""

    spec: int
    """Number of its specification."""
    spec_end: int
    start: int
    end: int
    instead: str
    """Text that changes nothing, in place of the part from `start` to `end`."""
    key: ForeignKey
    """Of a dropped one only the name is known."""
    drops: bool = False
    name: tuple[int, int] | None = None
    """Span of the constraint's name; if it has none, the place for one."""
    index: str = ""
    """Name of the index after FOREIGN KEY."""
    naming: str = ""
    """Text before a name that is inserted."""


def clauses_of(ddl: Ddl, sql_mode: int) -> tuple[ForeignKeyClause, ...]:
    """Return the clauses of an ALTER TABLE in the order of the text; nothing for other statements."""
    if not ddl.subjects or not (ddl.dropped_keys or ddl.of(Role.REFERENCED)):
        return ()
    _, tokens = tokenize(ddl.text, sql_mode, MARIADB)
    child = ddl.subjects[0]
    specs = alter_specs(ddl.text, tokens, child.schema)
    return tuple(clause for number, spec in enumerate(specs) for clause in _clauses(number, spec, child))


def adds_keys(ddl: Ddl, sql_mode: int) -> bool:
    """Whether the statement adds a foreign key."""
    return any(not clause.drops for clause in clauses_of(ddl, sql_mode))


def for_target(
    ddl: Ddl,
    sql_mode: int,
    parents: Parents,
    made: Sequence[Index] = (),
    skipped: Collection[int] = (),
) -> Ddl:
    """Return the statement of a shard with the foreign keys that its target gets.

    `made` are the indexes that the statement's foreign keys create: the target gets them explicitly, because the server
    drops an index that it has made itself when another one replaces it. Specifications with the numbers in `skipped`
    are not touched.
    """
    clauses = [clause for clause in clauses_of(ddl, sql_mode) if clause.spec not in skipped]
    left_out = [clause for clause in clauses if _is_left_out(clause, parents)]
    edits = [(clause.start, clause.end, clause.instead) for clause in left_out]
    if made and (first := next((clause for clause in clauses if not clause.drops), None)):
        edits = _with_indexes(first, made, edits)
    if parents is not None:
        ddl = replace(ddl, dropped_keys=())
    return replace(ddl, edits=(*ddl.edits, *edits))


def for_present(ddl: Ddl, sql_mode: int, target: TableId, present: Iterable[ForeignKey]) -> Ddl:
    """Return a statement about the target that adds only foreign keys that it lacks, and drops only those it has."""
    has = {key.name.lower(): key for key in present if key.child == target}
    clauses, edits = clauses_of(ddl, sql_mode), list[Edit]()
    number = _last_number(target, has)
    for clause in clauses:
        if clause.drops:
            name = _present_name(clause.key.name, has)
            key = has.pop(name.lower(), None)
            if key is None:
                edits.append((clause.start, clause.end, clause.instead))
            elif clause.name is not None and name != clause.key.name:
                edits.append((*clause.name, identifier(name)))
    for clause in clauses:
        if not clause.drops and any(key.is_like(clause.key) for key in has.values()):
            edits.append((clause.start, clause.end, clause.instead))
        elif not (clause.drops or clause.key.name or clause.index) and clause.name is not None:
            number += 1
            edits.append((*clause.name, f"{clause.naming}{identifier(automatic_name(target, number))} "))
    return replace(ddl, dropped_keys=(), edits=(*ddl.edits, *edits))


def made_indexes(ddl: Ddl, sql_mode: int, without: TableSchema) -> tuple[Index, ...]:
    """Return the indexes that MySQL and MariaDB create for the foreign keys of an ALTER TABLE; TiDB creates others.

    `without` is the structure after the statement without foreign keys.
    """
    made = list[Index]()
    for clause in clauses_of(ddl, sql_mode):
        key = clause.key
        if clause.drops or not key.columns or is_indexed(key, without):
            continue
        made = [index for index in made if index.columns != key.columns[: len(index.columns)]]
        if not any(key.columns == index.columns[: len(key.columns)] for index in made):
            taken = {index.name.lower() for index in (*without.indexes, *made)}
            name = key.name or clause.index or _free_name(key.columns[0], taken)
            made.append(Index(name, key.columns, unique=False))
    return tuple(made)


def with_index_names(ddl: Ddl, sql_mode: int) -> Ddl:
    """Return a CREATE TABLE in which each foreign key has a name: that of the index that MySQL and MariaDB make for it.

    TiDB gives an index the name of its foreign key.
    """
    if ddl.kind is not DdlKind.CREATE_TABLE or not ddl.of(Role.REFERENCED):
        return ddl
    text, tokens = tokenize(ddl.text, sql_mode, MARIADB)
    child, names, edits = ddl.subjects[0], set[str](), list[Edit]()
    start = next((number for number, token in enumerate(tokens) if token.word == "("), len(tokens))
    for _, item in items(tuple(tokens[start:])):
        found = _definition(TokenCursor(text, tuple(item), child.schema), child)
        if found and not found[0].name:
            key, _, span, index, naming = found
            names.add(name := index or _free_name(key.columns[0], names))
            edits.append((*span, f"{naming}{identifier(name)} "))
    return replace(ddl, edits=(*ddl.edits, *edits))


def _free_name(column: str, taken: Collection[str]) -> str:
    names = (column, *(f"{column}_{number}" for number in range(2, len(taken) + 3)))
    return next(name for name in names if name.lower() not in taken)


def _last_number(target: TableId, names: Iterable[str]) -> int:
    found = (NUMBERED.search(name) for name in names)
    numbers = (int(match[1]) for match in found if match)
    made = {name.lower() for name in names}
    return max((number for number in numbers if automatic_name(target, number).lower() in made), default=0)


def _present_name(name: str, has: Collection[str]) -> str:
    """Return the name of a foreign key in the target; TiDB gives other names to those without one."""
    found = NUMBERED.search(name)
    of_tidb = f"fk_{found[1]}" if found else name
    return of_tidb if name.lower() not in has and of_tidb in has else name


def _is_left_out(clause: ForeignKeyClause, parents: Parents) -> bool:
    return not clause.drops and (parents is None or clause.key.parent not in parents)


def _with_indexes(clause: ForeignKeyClause, made: Sequence[Index], edits: list[Edit]) -> list[Edit]:
    """Add the indexes in place of a specification or before it, or after it if the clause is only a part of it."""
    specs = ", ".join(
        f"ADD INDEX {identifier(index.name)} ({', '.join(map(identifier, index.columns))})" for index in made
    )
    if clause.instead != NOTHING:
        return [*edits, (clause.spec_end, clause.spec_end, f", {specs}")]
    nothing = (clause.start, clause.end, clause.instead)
    if nothing in edits:
        return [(clause.start, clause.end, specs), *(edit for edit in edits if edit != nothing)]
    return [*edits, (clause.start, clause.start, f"{specs}, ")]


# --- reading ------------------------------------------------------------------------------------------------


def _clauses(number: int, spec: TokenCursor, child: TableId) -> Iterator[ForeignKeyClause]:
    begin, end = spec.tokens[0].start, spec.tokens[-1].end
    cursor = _cursor(spec, spec.tokens, child)
    if cursor.eat("DROP", "FOREIGN", "KEY"):
        cursor.eat("IF", "EXISTS")
        token = cursor.name()
        key = ForeignKey(child, (), child, (), token.name)
        yield ForeignKeyClause(number, end, begin, end, NOTHING, key, True, (token.start, token.end))
        return
    adds = cursor.eat("ADD")
    if adds and (found := _definition(cursor, child)):
        yield ForeignKeyClause(number, end, begin, end, NOTHING, *found)
        return
    cursor.eat("COLUMN")
    cursor.eat("IF", "NOT", "EXISTS")
    is_list = adds and cursor.peek() == "("
    listed = [item for _, item in items(spec.tokens[cursor.position :])] if is_list else [list(spec.tokens)]
    keys = [_definition(_cursor(spec, item, child), child) for item in listed] if is_list else []
    if keys and all(keys):
        yield from (ForeignKeyClause(number, end, begin, end, NOTHING, *found) for found in keys if found)
        return
    for place, item in enumerate(listed):
        if keys and (found := keys[place]):
            start = listed[place - 1][-1].end if place else item[0].start
            stop = item[-1].end if place else listed[1][0].start
            yield ForeignKeyClause(number, end, start, stop, "", *found)
        else:
            yield from _of_column(number, end, _cursor(spec, item, child), child)


def _cursor(spec: TokenCursor, tokens: Iterable[Token], child: TableId) -> TokenCursor:
    return TokenCursor(spec.text, tuple(tokens), child.schema)


Definition = tuple[ForeignKey, bool, tuple[int, int], str, str]
"""The last fields of a clause."""


def _definition(cursor: TokenCursor, child: TableId) -> Definition | None:
    """Read [CONSTRAINT [name]] FOREIGN KEY …; return None for another definition."""
    name: Token | None = None
    is_constraint = cursor.eat("CONSTRAINT")
    if is_constraint and (cursor.peek(), cursor.peek(1)) != ("FOREIGN", "KEY"):
        name = cursor.name()
    if (cursor.peek(), cursor.peek(1)) != ("FOREIGN", "KEY"):
        return None
    place = cursor.tokens[cursor.position].start
    cursor.eat("FOREIGN", "KEY")
    cursor.eat("IF", "NOT", "EXISTS")
    index = cursor.name().name if cursor.peek() != "(" else ""
    columns = _names(cursor)
    cursor.eat("REFERENCES")
    key = _referenced(cursor, child, columns, name.name if name else "")
    span = (name.start, name.end) if name else (place, place)
    return key, False, span, index, "" if is_constraint else "CONSTRAINT "


def _of_column(number: int, spec_end: int, cursor: TokenCursor, child: TableId) -> Iterator[ForeignKeyClause]:
    """Yield the clause of REFERENCES in the definition of a column, which MariaDB executes."""
    while not cursor.ends():
        start = cursor.tokens[cursor.position].start
        if cursor.eat("REFERENCES"):
            key = _referenced(cursor, child, (), "")
            yield ForeignKeyClause(number, spec_end, start, cursor.tokens[cursor.position - 1].end, "", key)
        else:
            cursor.position += 1


def _referenced(cursor: TokenCursor, child: TableId, columns: tuple[str, ...], name: str) -> ForeignKey:
    parent = cursor.table(Role.REFERENCED).table
    parent_columns = _names(cursor) if cursor.peek() == "(" else ()
    actions = {"DELETE": "RESTRICT", "UPDATE": "RESTRICT"}
    while True:
        if cursor.eat("MATCH"):
            cursor.position += 1
        elif cursor.peek() == "ON" and cursor.peek(1) in actions:
            what, words = cursor.peek(1), (cursor.peek(2), cursor.peek(3))
            length = 2 if words[0] in ("SET", "NO") else 1
            actions[what] = " ".join(words[:length])
            cursor.position += 2 + length
        else:
            break
    return ForeignKey(child, columns, parent, parent_columns, name, actions["DELETE"], actions["UPDATE"])


def _names(cursor: TokenCursor) -> tuple[str, ...]:
    """Read names in parentheses; lengths and ASC or DESC after a name are not names."""
    begin, end = cursor.position + 1, closing(cursor.tokens, cursor.position)
    cursor.position = end + 1
    return tuple(part[0].name for part in at_commas(cursor.tokens[begin:end]) if part)
