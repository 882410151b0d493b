"""The part of MySQL's and MariaDB's grammar that tells whom a statement concerns and how it is treated.

Only heads are read: the verb, the kind of object, the names of tables, and the first words of each
specification of an ALTER TABLE. Lists of words are closed: a head that is in none of them is unreadable,
and a specification that is in none of them makes the ALTER unsupported.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace

from unshard.core.ddltokens import Token, TokenKind
from unshard.core.ddltypes import Ddl, DdlKind, Role, TableRef
from unshard.core.ddlwords import FOLLOWED, NOT_FOLLOWED, OTHER_OBJECTS, OTHER_VERBS, ROWS_VERBS, TABLE_OPTIONS
from unshard.core.model import TableId
from unshard.errors.ddl import DdlUnreadable

IGNORE_REASON = "rows that break a new key vanish without being in the binlog"
HINTS = frozenset({"ALGORITHM", "LOCK", "WITH", "WITHOUT"})
"""First words of what stands in an ALTER TABLE and changes nothing."""


class Words:
    """A cursor over tokens: `eat` moves it over words that match, everything else looks only."""

    def __init__(self, text: str, tokens: tuple[Token, ...], schema: str) -> None:
        self.text = text
        self.tokens = tokens
        self.schema = schema
        self.position = 0

    def peek(self, ahead: int = 0) -> str:
        """Return the keyword or punctuation there, empty for anything else."""
        position = self.position + ahead
        return self.tokens[position].word if position < len(self.tokens) else ""

    def ends(self) -> bool:
        """Whether no token is left."""
        return self.position >= len(self.tokens)

    def eat(self, *words: str) -> bool:
        """Pass over these words if all of them come next."""
        found = all(self.peek(ahead) == word for ahead, word in enumerate(words))
        self.position += len(words) if found else 0
        return found

    def eat_any(self, *words: str) -> bool:
        """Pass over one of these words."""
        return any(self.eat(word) for word in words)

    def name(self) -> Token:
        """Pass over a name, quoted or not."""
        if self.ends() or self.tokens[self.position].kind not in (TokenKind.WORD, TokenKind.QUOTED):
            raise self.unreadable("a name was expected")
        self.position += 1
        return self.tokens[self.position - 1]

    def table(self, role: Role) -> TableRef:
        """Pass over a table's name with or without its schema."""
        first = self.name()
        if not self.eat("."):
            return TableRef(TableId(self.schema, first.name), first.start, first.end, role, is_qualified=False)
        last = self.name()
        return TableRef(TableId(first.name, last.name), first.start, last.end, role, is_qualified=True)

    def tables(self, role: Role) -> Iterator[TableRef]:
        """Pass over a list of tables."""
        yield self.table(role)
        while self.eat(","):
            yield self.table(role)

    def eat_patience(self) -> tuple[tuple[int, int], ...]:
        """Pass over MariaDB's WAIT n and NOWAIT, which say nothing about the table; return the span if there is one."""
        begin = self.position
        if self.eat("WAIT"):
            self.position += 1
        self.eat("NOWAIT")
        return ((self.tokens[begin].start, self.tokens[self.position - 1].end),) if self.position > begin else ()

    def unreadable(self, reason: str) -> DdlUnreadable:
        """Return the error for what stands at the cursor."""
        where = f" before {self.tokens[self.position].raw!r}" if not self.ends() else " at the end"
        return DdlUnreadable(self.text, reason + where)


def parse(text: str, tokens: tuple[Token, ...], schema: str) -> Ddl:
    """Classify one statement; raises DdlUnreadable."""
    words = Words(text, tokens, schema)
    if not tokens:
        return _ddl(words, DdlKind.IGNORABLE)
    verb = words.name().word
    if read := VERBS.get(verb):
        return _alone(read(words), words)
    if verb in OTHER_VERBS:
        return _ddl(words, DdlKind.IGNORABLE)
    words.position = 0
    raise words.unreadable(
        "it is a change of rows logged as a statement" if verb in ROWS_VERBS else "its first word is not known"
    )


def _alone(ddl: Ddl, words: Words) -> Ddl:
    """A second statement behind a semicolon would be executed unread; in a routine's body it is not."""
    if ddl.kind is not DdlKind.IGNORABLE and any(token.raw == ";" for token in words.tokens):
        raise words.unreadable("there is more than one statement")
    return ddl


def _ddl(words: Words, kind: DdlKind, *tables: TableRef) -> Ddl:
    """Return the statement with the foreign keys' tables added to those given."""
    return Ddl(kind, words.text, (*tables, *_references(words)) if tables else ())


def _references(words: Words) -> Iterator[TableRef]:
    for position, token in enumerate(words.tokens):
        if token.kind is TokenKind.WORD and token.word == "REFERENCES":
            inner = Words(words.text, words.tokens, words.schema)
            inner.position = position + 1
            yield inner.table(Role.REFERENCED)


def _alter(words: Words) -> Ddl:
    words.eat_any("ONLINE", "OFFLINE")
    ignore = words.eat("IGNORE")
    if words.eat("TABLE"):
        ddl = _alter_table(words)
        return replace(ddl, kind=DdlKind.UNSUPPORTED, reason=IGNORE_REASON) if ignore else ddl
    if words.eat_any("DATABASE", "SCHEMA"):
        return _database(words, DdlKind.ALTER_DATABASE)
    return _other_object(words)


def _alter_table(words: Words) -> Ddl:
    words.eat("IF", "EXISTS")
    table = words.table(Role.SUBJECT)
    patience = words.eat_patience()
    ddl, specs = replace(_ddl(words, DdlKind.ALTER, table), cuts=patience), tuple(specs_of(words))
    for spec in specs:
        ddl = ddl if _is_rename(spec) else _with_spec(ddl, spec)
    return _renamed(ddl, specs)


def alter_specs(text: str, tokens: tuple[Token, ...], schema: str = "") -> tuple[Words, ...]:
    """Return the specifications of an ALTER TABLE; nothing for other statements."""
    words = Words(text, tokens, schema)
    if not words.eat("ALTER"):
        return ()
    words.eat_any("ONLINE", "OFFLINE")
    words.eat("IGNORE")
    if not words.eat("TABLE"):
        return ()
    words.eat("IF", "EXISTS")
    words.table(Role.SUBJECT)
    words.eat_patience()
    return tuple(specs_of(words))


def without_specs(ddl: Ddl, tokens: tuple[Token, ...], left_out: Collection[int]) -> Ddl:
    """Return an ALTER TABLE of which some specifications are no part of the change, like RENAME TO."""
    specs = alter_specs(ddl.text, tokens)
    begins = specs[0].tokens[0].start
    ends = {number: spec.tokens[-1].end for number, spec in enumerate(specs) if number in left_out}
    ends |= {number: _new_name(spec).end for number, spec in enumerate(specs) if _is_rename(spec)}
    cuts = tuple(cut for cut in ddl.cuts if cut[0] < begins)
    spans = [(specs[number].tokens[0].start, specs[number].tokens[-1].end) for number in left_out]
    return replace(ddl, cuts=(*cuts, *(_cut(specs, ends, number) for number in sorted(ends))),
                   dropped_keys=tuple(key for key in ddl.dropped_keys if key not in spans))  # fmt: skip


def specs_of(words: Words) -> Iterator[Words]:
    """Yield the specifications of an ALTER TABLE, which commas outside of parentheses part."""
    begin, depth, end = words.position, 0, len(words.tokens)
    for position in range(begin, end + 1):
        word = words.tokens[position].word if position < end else ""
        depth += (word == "(") - (word == ")")
        is_border = word == "," and depth == 0 and not _names_partitions(words, begin)
        if position == end or is_border:
            if position > begin:
                yield Words(words.text, words.tokens[begin:position], words.schema)
            begin = position + 1


def _names_partitions(words: Words, begin: int) -> bool:
    """Whether the comma parts names, as in DROP PARTITION p0, p1."""
    heads = [token.word for token in words.tokens[begin : begin + 2]]
    return len(heads) == 2 and heads[1] == "PARTITION" and heads[0] != "ADD"


def _with_spec(ddl: Ddl, spec: Words) -> Ddl:
    if spec.eat("DROP", "FOREIGN", "KEY"):
        return replace(ddl, dropped_keys=(*ddl.dropped_keys, (spec.tokens[0].start, spec.tokens[-1].end)))
    for head, reason in NOT_FOLLOWED.items():
        if spec.eat(*head):
            return replace(ddl, kind=DdlKind.UNSUPPORTED, reason=reason, tables=(*ddl.tables, *_exchanged(spec, head)))
    if any(spec.eat(*head) for head in FOLLOWED) or _is_option(spec):
        return ddl
    shown = spec.text[spec.tokens[0].start : spec.tokens[-1].end]
    return replace(ddl, kind=DdlKind.UNSUPPORTED, reason=f"the change {shown!r} is not known")


def _exchanged(spec: Words, head: tuple[str, ...]) -> Iterator[TableRef]:
    """Yield the other table of EXCHANGE PARTITION p WITH TABLE t, CONVERT PARTITION p TO TABLE t, CONVERT TABLE t."""
    if head == ("CONVERT", "TABLE"):
        yield spec.table(Role.EXCHANGED)
    elif head[0] in ("EXCHANGE", "CONVERT"):
        spec.name()
        if spec.eat("WITH", "TABLE") or spec.eat("TO", "TABLE"):
            yield spec.table(Role.EXCHANGED)


def _is_rename(spec: Words) -> bool:
    return spec.peek() == "RENAME" and spec.peek(1) not in ("COLUMN", "INDEX", "KEY")


def _renamed(ddl: Ddl, specs: tuple[Words, ...]) -> Ddl:
    """Add the last new name; an ALTER that also changes something stays one, with RENAME TO cut out of it."""
    names = {index: _new_name(spec) for index, spec in enumerate(specs) if _is_rename(spec)}
    if not names:
        return ddl
    ddl = replace(ddl, tables=(*ddl.tables, names[max(names)]))
    others = [spec for index, spec in enumerate(specs) if index not in names and spec.tokens[0].word not in HINTS]
    if ddl.kind is DdlKind.UNSUPPORTED:
        return ddl
    if not others and all(specs[index].ends() for index in names):
        return replace(ddl, kind=DdlKind.RENAME)
    ends = {index: name.end for index, name in names.items()}
    return replace(ddl, cuts=(*ddl.cuts, *(_cut(specs, ends, index) for index in ends)))


def _new_name(spec: Words) -> TableRef:
    """Pass over RENAME TO; only what partitions the table may follow it without a comma."""
    spec.eat("RENAME")
    spec.eat_any("TO", "AS", "=")
    name = spec.table(Role.NEW_NAME)
    if not spec.ends() and spec.peek() not in ("PARTITION", "REMOVE"):
        raise spec.unreadable("the end of the new name was expected")
    return name


def _cut(specs: tuple[Words, ...], ends: Mapping[int, int], index: int) -> tuple[int, int]:
    """Return the span of one specification that is left out, with the comma that parts it from a change that stays."""
    if any(before not in ends for before in range(index)):
        return specs[index - 1].tokens[-1].end, ends[index]
    is_last = index + 1 == len(specs)
    return specs[index].tokens[0].start, ends[index] if is_last else specs[index + 1].tokens[0].start


def _is_option(spec: Words) -> bool:
    return spec.peek() in TABLE_OPTIONS or spec.peek(1) == "="


def _create(words: Words) -> Ddl:
    or_replace = words.eat("OR", "REPLACE")
    temporary = words.eat("TEMPORARY")
    if words.eat("TABLE"):
        ddl = _create_table(words)
        return replace(ddl, kind=DdlKind.IGNORABLE, tables=()) if temporary else replace(ddl, or_replace=or_replace)
    if not temporary and words.eat("SEQUENCE"):
        return _create_sequence(words, or_replace)
    words.eat("ONLINE")
    words.eat_any("UNIQUE", "FULLTEXT", "VECTOR") or (words.peek(1) == "INDEX" and words.eat("SPATIAL"))
    if words.eat("INDEX"):
        return _index(words)
    if words.eat_any("DATABASE", "SCHEMA"):
        return replace(_database(words, DdlKind.CREATE_DATABASE), or_replace=or_replace)
    words.eat("AGGREGATE")
    return _other_object(words)


def _create_table(words: Words) -> Ddl:
    if_not_exists = words.eat("IF", "NOT", "EXISTS")
    table = words.table(Role.SUBJECT)
    if words.eat("LIKE") or words.eat("(", "LIKE"):
        ddl = _ddl(words, DdlKind.CREATE_TABLE, table, words.table(Role.LIKE))
    else:
        is_sequence = _is_sequence(words)
        kind = DdlKind.CREATE_SEQUENCE if is_sequence else DdlKind.CREATE_TABLE
        ddl = replace(_ddl(words, kind, table), cuts=_atomic(words))
        if not is_sequence and (reason := _created_otherwise(words)):
            ddl = replace(ddl, kind=DdlKind.UNSUPPORTED, reason=reason)
    return replace(ddl, if_not_exists=if_not_exists)


def _create_sequence(words: Words, or_replace: bool) -> Ddl:
    if_not_exists = words.eat("IF", "NOT", "EXISTS")
    table = words.table(Role.SUBJECT)
    return Ddl(DdlKind.CREATE_SEQUENCE, words.text, (table,), if_not_exists=if_not_exists, or_replace=or_replace)


def _is_sequence(words: Words) -> bool:
    """Whether the option SEQUENCE=1 makes a sequence of what is written as a table."""
    depth = 0
    for place in range(len(words.tokens) - words.position):
        depth += (words.peek(place) == "(") - (words.peek(place) == ")")
        if depth == 0 and words.peek(place) == "SEQUENCE":
            return words.peek(place + 1 + (words.peek(place + 1) == "=")) not in ("0", "NO")
    return False


def _created_otherwise(words: Words) -> str:
    """Return why the columns are not those that are written; inside of parentheses SELECT is an expression."""
    depth, words_outside, is_query = 0, [], False
    for token, follower in zip(
        words.tokens[words.position :], (*words.tokens[words.position + 1 :], None), strict=True
    ):
        is_query |= depth == 0 and token.word == "(" and follower is not None and follower.word in ("SELECT", "(")
        depth += (token.word == "(") - (token.word == ")")
        words_outside += [token.word] if depth == 0 else []
    if is_query or {"SELECT", "VALUES", "TABLE"} & set(words_outside):
        return "its columns come from a query over other tables"
    return ""


def _atomic(words: Words) -> tuple[tuple[int, int], ...]:
    """Return the span of START TRANSACTION, by which MySQL marks a CREATE TABLE … SELECT whose rows follow."""
    last = words.tokens[-2:]
    return ((last[0].start, last[1].end),) if [token.word for token in last] == ["START", "TRANSACTION"] else ()


def _index(words: Words) -> Ddl:
    """CREATE and DROP INDEX: the table follows ON, which no name of an index can be without quotes."""
    while not words.ends() and not words.eat("ON"):
        words.position += 1
    table = words.table(Role.SUBJECT)
    return replace(_ddl(words, DdlKind.INDEX, table), cuts=words.eat_patience())


def _drop(words: Words) -> Ddl:
    temporary = words.eat("TEMPORARY")
    if words.eat_any("TABLE", "TABLES"):
        words.eat("IF", "EXISTS")
        tables = tuple(words.tables(Role.SUBJECT))
        return Ddl(DdlKind.IGNORABLE, words.text) if temporary else Ddl(DdlKind.DROP_TABLE, words.text, tables)
    if not temporary and words.eat("SEQUENCE"):
        words.eat("IF", "EXISTS")
        return Ddl(DdlKind.DROP_SEQUENCE, words.text, tuple(words.tables(Role.SUBJECT)))
    words.eat("ONLINE")
    if words.eat("INDEX"):
        return _index(words)
    if words.eat_any("DATABASE", "SCHEMA"):
        return _database(words, DdlKind.DROP_DATABASE)
    return _other_object(words)


def _truncate(words: Words) -> Ddl:
    words.eat("TABLE")
    return Ddl(DdlKind.TRUNCATE, words.text, (words.table(Role.SUBJECT),))


def _rename(words: Words) -> Ddl:
    if not words.eat_any("TABLE", "TABLES"):
        return _other_object(words)
    if_exists = words.eat("IF", "EXISTS")
    tables = [*_rename_pair(words)]
    while words.eat(","):
        tables += _rename_pair(words)
    return Ddl(DdlKind.RENAME, words.text, tuple(tables), if_exists=if_exists)


def _rename_pair(words: Words) -> Iterator[TableRef]:
    yield words.table(Role.SUBJECT)
    words.eat_patience()
    if not words.eat("TO"):
        raise words.unreadable("TO was expected")
    yield words.table(Role.NEW_NAME)


def _database(words: Words, kind: DdlKind) -> Ddl:
    words.eat("IF", "NOT", "EXISTS") or words.eat("IF", "EXISTS")
    # ALTER DATABASE may leave the name out and means the default schema.
    has_name = not words.ends() and words.peek() not in ("CHARACTER", "CHARSET", "COLLATE", "DEFAULT", "COMMENT")
    return Ddl(kind, words.text, database=words.name().name if has_name else words.schema)


def _other_object(words: Words) -> Ddl:
    """Accept views, triggers, routines, accounts and the like, with what may stand before the object's name."""
    start = words.position
    while not words.ends() and words.peek() not in OTHER_OBJECTS:
        if not _eat_attribute(words):
            words.position = start
            raise words.unreadable("the kind of object is not known")
    return Ddl(DdlKind.IGNORABLE, words.text)


def _eat_attribute(words: Words) -> bool:
    """Pass over DEFINER = …, ALGORITHM = … or SQL SECURITY … ."""
    if words.eat("DEFINER", "="):
        words.position += 1
        if words.eat("@"):
            words.position += 1
        words.eat("(", ")")
        return True
    if words.eat("ALGORITHM", "=") or words.eat("SQL", "SECURITY"):
        words.position += 1
        return True
    return False


VERBS: Mapping[str, Callable[[Words], Ddl]] = {
    "ALTER": _alter, "CREATE": _create, "DROP": _drop, "RENAME": _rename, "TRUNCATE": _truncate,
}  # fmt: skip
