"""The parser of statements in the binlog: which tables a statement concerns, and the same statement for another table.

The text is never generated again, because every generator loses information: only comments and the spans of table names
are replaced. The effect on columns is not read from the text either; unshard tries the statement on a server
(adapters/targetddl.py). So this module decides only which tables the statement concerns and how it is treated:

| kind | treatment |
|---|---|
| ALTER, INDEX | coordinated: the shard waits for its group |
| CREATE_TABLE | a shard joins its group |
| DROP_TABLE, DROP_DATABASE | shards leave their groups |
| CREATE_SEQUENCE, DROP_SEQUENCE | ignored; the set of sequences is updated (core.ddl.sequences) |
| TRUNCATE, CREATE_DATABASE, ALTER_DATABASE, IGNORABLE | ignored, counted |
| RENAME | a shard's name changes, or it leaves its group; other changes of the same ALTER are coordinated |
| UNSUPPORTED | an error with `reason` if it concerns a shard, else ignored |

A statement of no kind raises DdlUnreadable: unshard never skips a statement because it does not understand it.

The parser reads only the beginning of a statement: the verb, the kind of object, the names of tables, and the first
words of each specification of an ALTER TABLE. The word lists are closed. A statement whose first words are in no list
is unreadable, and a specification whose first words are in no list makes the ALTER unsupported.
"""

import contextlib
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from unshard.core.ddl.parsed import Ddl, DdlKind, Role, TableRef
from unshard.core.model import TableId
from unshard.core.sql.mode import NO_BACKSLASH_ESCAPES
from unshard.core.sql.quoting import identifier, qualified
from unshard.core.sql.tokens import (
    MARIADB,
    Dialect,
    Token,
    TokenKind,
    begins_at,
    edited,
    expand_comments,
    outside,
    tokenize,
)
from unshard.core.sql.words import (
    FOLLOWED,
    NOT_FOLLOWED,
    OBJECT_ATTRIBUTES,
    OTHER_OBJECTS,
    OTHER_VERBS,
    RESERVED,
    ROWS_VERBS,
    TABLE_OPTIONS,
)
from unshard.core.structures.constraintnames import constraint_names, made_end
from unshard.core.structures.storageclauses import NOTHING, STORAGE, without_storage
from unshard.errors.ddl import DdlUnreadable

COLUMN_IS_OPTIONAL = frozenset({"ADD", "ALTER", "CHANGE", "DROP", "MODIFY"})
OBJECT = re.compile(rf"\b(?:{'|'.join(sorted(OTHER_OBJECTS))})\b", re.IGNORECASE)
MOST_KINDS = 20
"""So many such words are looked at; the head of a statement has a few."""
PLAIN_NAME = re.compile(r"[0-9A-Za-z$_\u0080-\uffff]*[A-Za-z$_\u0080-\uffff][0-9A-Za-z$_\u0080-\uffff]*")


def read_ddl(text: str, sql_mode: int, default_schema: str, dialect: Dialect = MARIADB) -> Ddl:
    """Parse one statement as the server that ran it did; raises DdlUnreadable."""
    try:
        plain, tokens = tokenize(text, sql_mode, dialect)
    except DdlUnreadable:
        if head := _head_of_routine(text, sql_mode, dialect):
            return Ddl(DdlKind.IGNORABLE, head)
        raise
    if begin := _after_set_statement(tokens):
        plain, tokens = tokenize(plain[begin:], sql_mode, dialect)
    rest, left_out = without_storage(plain, tokens)
    if left_out:
        plain, tokens = tokenize(rest, sql_mode, dialect)
    return replace(parse(plain, tokens, default_schema), left_out=left_out)


def _head_of_routine(text: str, sql_mode: int, dialect: Dialect) -> str:
    """Return the text up to the kind of object if that is no table; else empty.

    The body of a routine may be in another language, which cannot be split into tokens.
    """
    plain = expand_comments(text, sql_mode, dialect)
    for found in islice(OBJECT.finditer(plain), MOST_KINDS):
        with contextlib.suppress(DdlUnreadable):
            head, tokens = tokenize(plain[: found.end()], sql_mode, dialect)
            is_object = tokens[0].word in ("ALTER", "CREATE") and parse(head, tokens, "").kind is DdlKind.IGNORABLE
            return head if is_object else ""
    return ""


def retarget(ddl: Ddl, mapping: Mapping[TableId, TableId]) -> str:
    """Return the statement with each table of `mapping` replaced by its value.

    Every table name, replaced or not, is written quoted and with its schema, so that the text has the same meaning in
    any session. Only the tables that foreign keys reference stay as written, unless `mapping` has them. A name of a
    constraint that the server has made from that of the table is made from the new one.
    """
    left_out = {Role.NEW_NAME} if ddl.kind is DdlKind.ALTER else set()
    refs = [ref for ref in ddl.tables if ref.role not in left_out]
    named = [ref for ref in refs if ref.role is not Role.REFERENCED or ref.table in mapping]
    edits = [(ref.start, ref.end, _quoted(mapping.get(ref.table, ref.table))) for ref in named]
    if ddl.made_names and (new := mapping.get(ddl.subjects[0])):
        edits += [(start, end, identifier(new.name + made)) for start, end, made in ddl.made_names]
    others = [*ddl.edits, *((start, end, "") for start, end in ddl.cuts)]
    others += [(start, end, NOTHING) for start, end in ddl.dropped_keys]
    edits = [(a, b, new) for a, b, new in edits if not any(start <= a and b <= end for start, end, _ in others)]
    return edited(ddl.text, [*edits, *others])


def fingerprint(text: str, sql_mode: int = 0, dialect: Dialect = MARIADB) -> str:
    """Return the normalized tokens of a statement, joined by one blank.

    The result is equal for statements that differ only in spacing, case, quoting, and the optional word COLUMN
    (`[COLUMN]` in the MySQL manual, ALTER TABLE). In RENAME COLUMN, the word is not optional. The next AUTO_INCREMENT
    value of a table differs from shard to shard; `core.ddl.lock.script` chooses the largest. Strings are written as
    without NO_BACKSLASH_ESCAPES.
    """
    _, tokens = tokenize(text, sql_mode, dialect)
    kept: list[Token] = []
    for token in tokens:
        if token.raw.isdigit() and (number := _counter(kept)):
            del kept[number:]
        elif not (token.word == "COLUMN" and kept and kept[-1].word in COLUMN_IS_OPTIONAL):
            kept.append(token)
    return " ".join(_normal(token, escapes=not sql_mode & NO_BACKSLASH_ESCAPES) for token in kept)


def _counter(tokens: list[Token]) -> int:
    """Return the number of tokens without the equals sign of AUTO_INCREMENT = n; 0 if they end with something else."""
    end = len(tokens) - (tokens[-1:] != [] and tokens[-1].raw == "=")
    return end if end and tokens[end - 1].word == "AUTO_INCREMENT" else 0


def _after_set_statement(tokens: tuple[Token, ...]) -> int:
    """Return the offset of the statement after MariaDB's prefix SET STATEMENT … FOR; 0 without the prefix."""
    words = [token.word for token in tokens]
    if words[:2] != ["SET", "STATEMENT"] or "FOR" not in words[:-1]:
        return 0
    return tokens[words.index("FOR") + 1].start


def _quoted(table: TableId) -> str:
    return qualified(table.schema, table.name) if table.schema else identifier(table.name)


def _normal(token: Token, *, escapes: bool) -> str:
    match token.kind:
        case TokenKind.QUOTED:
            name = token.name.lower()
            is_plain = PLAIN_NAME.fullmatch(name) and name.upper() not in RESERVED
            return name if is_plain else identifier(name)
        case TokenKind.STRING:
            return _literal(token, escapes=escapes)
        case TokenKind.WORD | TokenKind.OTHER:
            return token.raw.lower()


def _literal(token: Token, *, escapes: bool) -> str:
    """Return a string in single quotes; one in which a backslash escapes stays as written."""
    if token.raw[0] in "'\"" and not (escapes and "\\" in token.raw):
        return "'" + token.name.replace("'", "''").replace("\\", "\\\\") + "'"
    return token.raw


# --- the grammar


IGNORE_REASON = "it deletes rows that violate a new key, and the binlog does not record that"
ENGINES = (("ENGINE",), ("TYPE",), *STORAGE)
"""Options about the storage engine; a shard may get one without transactions, its target does not."""
HINTS = frozenset({"ALGORITHM", "LOCK", "WITH", "WITHOUT"})
"""First words of the ALTER TABLE clauses that change nothing."""


class TokenCursor:
    """A cursor over tokens: `eat`, `name` and `table` move it past what they read, `peek` and `ends` do not move it."""

    def __init__(self, text: str, tokens: tuple[Token, ...], schema: str) -> None:
        self.text = text
        self.tokens = tokens
        self.schema = schema
        self.position = 0

    def peek(self, ahead: int = 0) -> str:
        """Return the keyword or punctuation `ahead` tokens after the cursor; empty for any other token."""
        position = self.position + ahead
        return self.tokens[position].word if position < len(self.tokens) else ""

    def ends(self) -> bool:
        return self.position >= len(self.tokens)

    def eat(self, *words: str) -> bool:
        found = all(self.peek(ahead) == word for ahead, word in enumerate(words))
        self.position += len(words) if found else 0
        return found

    def eat_any(self, *words: str) -> bool:
        return any(self.eat(word) for word in words)

    def name(self) -> Token:
        """Read a name, quoted or not; raises DdlUnreadable."""
        if self.ends() or self.tokens[self.position].kind not in (TokenKind.WORD, TokenKind.QUOTED):
            raise self.unreadable("a name was expected")
        self.position += 1
        return self.tokens[self.position - 1]

    def table(self, role: Role) -> TableRef:
        first = self.name()
        if not self.eat("."):
            return TableRef(TableId(self.schema, first.name), first.start, first.end, role)
        last = self.name()
        return TableRef(TableId(first.name, last.name), first.start, last.end, role)

    def tables(self, role: Role) -> Iterator[TableRef]:
        yield self.table(role)
        while self.eat(","):
            yield self.table(role)

    def eat_wait(self) -> tuple[tuple[int, int], ...]:
        """Move past MariaDB's WAIT n and NOWAIT, which change nothing; return the span or nothing."""
        begin = self.position
        if self.eat("WAIT"):
            self.position += 1
        self.eat("NOWAIT")
        return ((self.tokens[begin].start, self.tokens[self.position - 1].end),) if self.position > begin else ()

    def unreadable(self, reason: str) -> DdlUnreadable:
        where = f" before {self.tokens[self.position].raw!r}" if not self.ends() else " at the end"
        return DdlUnreadable(self.text, reason + where)


def parse(text: str, tokens: tuple[Token, ...], schema: str) -> Ddl:
    """Classify one statement; raises DdlUnreadable."""
    cursor = TokenCursor(text, tokens, schema)
    if not tokens:
        return _ddl(cursor, DdlKind.IGNORABLE)
    verb = cursor.name().word
    if read := VERBS.get(verb):
        return _single(read(cursor), cursor)
    if verb in OTHER_VERBS:
        return _ddl(cursor, DdlKind.IGNORABLE)
    cursor.position = 0
    raise cursor.unreadable(
        "it is a change of rows logged as a statement" if verb in ROWS_VERBS else "its first word is unknown"
    )


def _single(ddl: Ddl, cursor: TokenCursor) -> Ddl:
    """Reject a second statement after a semicolon, which would be executed unread; a routine's body may contain one."""
    if ddl.kind is not DdlKind.IGNORABLE and any(token.raw == ";" for token in cursor.tokens):
        raise cursor.unreadable("there is more than one statement")
    return ddl


def _ddl(cursor: TokenCursor, kind: DdlKind, *tables: TableRef) -> Ddl:
    """Return the statement with these tables, those that its foreign keys reference, and names of constraints."""
    if not tables:
        return Ddl(kind, cursor.text)
    table = tables[0].table
    names = [each.token for each in constraint_names(cursor.tokens)]
    made = tuple((name.start, name.end, end) for name in names if (end := made_end(name.name, table.name)))
    return Ddl(kind, cursor.text, (*tables, *_references(cursor, table.schema)), made_names=made)


def _references(cursor: TokenCursor, schema: str) -> Iterator[TableRef]:
    """Yield the parents of foreign keys; without a schema they are in that of the child."""
    for position, token in enumerate(cursor.tokens):
        if token.kind is TokenKind.WORD and token.word == "REFERENCES":
            inner = TokenCursor(cursor.text, cursor.tokens, schema)
            inner.position = position + 1
            yield inner.table(Role.REFERENCED)


def _alter(cursor: TokenCursor) -> Ddl:
    cursor.eat_any("ONLINE", "OFFLINE")
    ignore = cursor.eat("IGNORE")
    if cursor.eat("TABLE"):
        ddl = _alter_table(cursor)
        return replace(ddl, kind=DdlKind.UNSUPPORTED, reason=IGNORE_REASON) if ignore else ddl
    if cursor.eat_any("DATABASE", "SCHEMA"):
        return _database(cursor, DdlKind.ALTER_DATABASE)
    return _other_object(cursor)


def _alter_table(cursor: TokenCursor) -> Ddl:
    cursor.eat("IF", "EXISTS")
    table = cursor.table(Role.SUBJECT)
    waits = cursor.eat_wait()
    if cursor.eat("UPGRADE", "PARTITIONING"):
        return Ddl(DdlKind.IGNORABLE, cursor.text)  # how MySQL 5.7 stores the partitions
    ddl, specs = replace(_ddl(cursor, DdlKind.ALTER, table), cuts=waits), tuple(specs_of(cursor))
    ddl = replace(ddl, edits=tuple(edit for spec in specs for edit in _histories(spec.tokens)))
    for spec in specs:
        ddl = ddl if _is_rename(spec) else _with_spec(ddl, spec)
    return _renamed(ddl, specs)


def _histories(tokens: Sequence[Token]) -> Iterator[tuple[int, int, str]]:
    """Yield MariaDB's WITH and WITHOUT SYSTEM VERSIONING of columns: no target keeps the history of a shard."""
    words = [token.word for token in tokens]
    for number in range(1, len(words) - 2):
        if words[number] in ("WITH", "WITHOUT") and words[number + 1 : number + 3] == ["SYSTEM", "VERSIONING"]:
            yield tokens[number - 1].end, tokens[number + 2].end, ""


def alter_specs(text: str, tokens: tuple[Token, ...], schema: str = "") -> tuple[TokenCursor, ...]:
    """Return the specifications of an ALTER TABLE; nothing for other statements."""
    cursor = TokenCursor(text, tokens, schema)
    if not cursor.eat("ALTER"):
        return ()
    cursor.eat_any("ONLINE", "OFFLINE")
    cursor.eat("IGNORE")
    if not cursor.eat("TABLE"):
        return ()
    cursor.eat("IF", "EXISTS")
    cursor.table(Role.SUBJECT)
    cursor.eat_wait()
    return tuple(specs_of(cursor))


def without_specs(ddl: Ddl, tokens: tuple[Token, ...], left_out: Collection[int]) -> Ddl:
    """Return an ALTER TABLE whose specifications with these numbers are cut out, and RENAME TO with them."""
    specs = alter_specs(ddl.text, tokens)
    begins = specs[0].tokens[0].start
    ends = {number: spec.tokens[-1].end for number, spec in enumerate(specs) if number in left_out}
    ends |= {number: _new_name(spec).end for number, spec in enumerate(specs) if _is_rename(spec)}
    cuts = tuple(cut for cut in ddl.cuts if cut[0] < begins)
    spans = [(specs[number].tokens[0].start, specs[number].tokens[-1].end) for number in left_out]
    return replace(
        ddl,
        cuts=(*cuts, *(_cut(specs, ends, number) for number in sorted(ends))),
        dropped_keys=tuple(key for key in ddl.dropped_keys if key not in spans),
    )


def specs_of(cursor: TokenCursor) -> Iterator[TokenCursor]:
    """Yield the specifications of an ALTER TABLE, which are separated by commas outside of parentheses."""
    begin, depth, end = cursor.position, 0, len(cursor.tokens)
    for position in range(begin, end + 1):
        word = cursor.tokens[position].word if position < end else ""
        depth += (word == "(") - (word == ")")
        is_border = word == "," and depth == 0 and not _is_in_list(cursor, begin, position)
        if position == end or is_border:
            if position > begin:
                yield TokenCursor(cursor.text, cursor.tokens[begin:position], cursor.schema)
            begin = position + 1


def _is_in_list(cursor: TokenCursor, begin: int, comma: int) -> bool:
    """Whether the comma separates names, as in DROP PARTITION p0, p1 and ORDER BY a, b DESC."""
    heads = [token.word for token in cursor.tokens[begin : begin + 2]]
    following = [token.word for token in cursor.tokens[comma + 1 : comma + 3]]
    if heads == ["ORDER", "BY"]:
        return bool(following) and following[0] not in RESERVED and (*following, ",")[1] in (",", "ASC", "DESC")
    return len(heads) == 2 and heads[1] == "PARTITION" and heads[0] != "ADD"


def _with_spec(ddl: Ddl, spec: TokenCursor) -> Ddl:
    if spec.eat("DROP", "FOREIGN", "KEY"):
        return replace(ddl, dropped_keys=(*ddl.dropped_keys, (spec.tokens[0].start, spec.tokens[-1].end)))
    for head, reason in NOT_FOLLOWED.items():
        if spec.eat(*head):
            return replace(ddl, kind=DdlKind.UNSUPPORTED, reason=reason, tables=(*ddl.tables, *_exchanged(spec, head)))
    if any(spec.eat(*head) for head in FOLLOWED) or is_option(spec):
        return ddl
    shown = spec.text[spec.tokens[0].start : spec.tokens[-1].end]
    return replace(ddl, kind=DdlKind.UNSUPPORTED, reason=f"the change {shown!r} is unknown")


def _exchanged(spec: TokenCursor, head: tuple[str, ...]) -> Iterator[TableRef]:
    """Yield the other table of EXCHANGE PARTITION p WITH TABLE t, CONVERT PARTITION p TO TABLE t, CONVERT TABLE t."""
    if head == ("CONVERT", "TABLE"):
        yield spec.table(Role.EXCHANGED)
    elif head[0] in ("EXCHANGE", "CONVERT"):
        spec.name()
        if spec.eat("WITH", "TABLE") or spec.eat("TO", "TABLE"):
            yield spec.table(Role.EXCHANGED)


def _is_rename(spec: TokenCursor) -> bool:
    return spec.peek() == "RENAME" and spec.peek(1) not in ("COLUMN", "INDEX", "KEY")


def _renamed(ddl: Ddl, specs: tuple[TokenCursor, ...]) -> Ddl:
    """Add the last new name. An ALTER that also changes something stays an ALTER, and RENAME TO is cut out of it."""
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


def _new_name(spec: TokenCursor) -> TableRef:
    """Read RENAME TO; only a partitioning clause may follow it without a comma."""
    spec.eat("RENAME")
    spec.eat_any("TO", "AS", "=")
    name = spec.table(Role.NEW_NAME)
    if not spec.ends() and spec.peek() not in ("PARTITION", "REMOVE"):
        raise spec.unreadable("the end of the new name was expected")
    return name


def _cut(specs: tuple[TokenCursor, ...], ends: Mapping[int, int], index: int) -> tuple[int, int]:
    """Return the span of one specification to cut out, with the comma between it and a change that stays."""
    if any(before not in ends for before in range(index)):
        return specs[index - 1].tokens[-1].end, ends[index]
    is_last = index + 1 == len(specs)
    return specs[index].tokens[0].start, ends[index] if is_last else specs[index + 1].tokens[0].start


def is_option(spec: TokenCursor) -> bool:
    """Whether a specification consists of options of the table."""
    return spec.peek() in TABLE_OPTIONS or spec.peek(1) == "="


def _create(cursor: TokenCursor) -> Ddl:
    or_replace = cursor.eat("OR", "REPLACE")
    temporary = cursor.eat("TEMPORARY")
    if cursor.eat("TABLE"):
        ddl = _create_table(cursor)
        return replace(ddl, kind=DdlKind.IGNORABLE, tables=()) if temporary else replace(ddl, or_replace=or_replace)
    if not temporary and cursor.eat("SEQUENCE"):
        return _create_sequence(cursor, or_replace)
    cursor.eat("ONLINE")
    cursor.eat_any("UNIQUE", "FULLTEXT", "VECTOR") or (cursor.peek(1) == "INDEX" and cursor.eat("SPATIAL"))
    if cursor.eat("INDEX"):
        return _index(cursor)
    if cursor.eat_any("DATABASE", "SCHEMA"):
        return replace(_database(cursor, DdlKind.CREATE_DATABASE), or_replace=or_replace)
    return _other_object(cursor)


def _create_table(cursor: TokenCursor) -> Ddl:
    if_not_exists = cursor.eat("IF", "NOT", "EXISTS")
    table = cursor.table(Role.SUBJECT)
    if cursor.eat("LIKE") or cursor.eat("(", "LIKE"):
        ddl = _ddl(cursor, DdlKind.CREATE_TABLE, table, cursor.table(Role.LIKE))
    else:
        is_sequence = _is_sequence(cursor)
        kind = DdlKind.CREATE_SEQUENCE if is_sequence else DdlKind.CREATE_TABLE
        ddl = replace(_ddl(cursor, kind, table), cuts=_atomic(cursor))
        if not is_sequence and (reason := _reason_of_query(cursor)):
            ddl = replace(ddl, kind=DdlKind.UNSUPPORTED, reason=reason)
    return replace(ddl, if_not_exists=if_not_exists)


def _create_sequence(cursor: TokenCursor, or_replace: bool) -> Ddl:
    if_not_exists = cursor.eat("IF", "NOT", "EXISTS")
    table = cursor.table(Role.SUBJECT)
    return Ddl(DdlKind.CREATE_SEQUENCE, cursor.text, (table,), if_not_exists=if_not_exists, or_replace=or_replace)


def _is_sequence(cursor: TokenCursor) -> bool:
    at = next(outside(cursor.tokens[cursor.position :], "SEQUENCE"), None)
    return at is not None and cursor.peek(at + 1 + (cursor.peek(at + 1) == "=")) not in ("0", "NO")


def _reason_of_query(cursor: TokenCursor) -> str:
    """Return why the text does not list all columns, empty if it does; SELECT in parentheses is an expression."""
    rest = cursor.tokens[cursor.position :]
    apart = [*outside(rest)]
    opened = [at + 2 for at in (-1, *apart) if begins_at(rest, at + 1, "(")]
    is_query = any(begins_at(rest, at, word) for at in opened for word in ("SELECT", "("))
    if is_query or {"SELECT", "VALUES", "TABLE"} & {rest[at].word for at in apart}:
        return "its columns come from a query over other tables"
    return ""


def _atomic(cursor: TokenCursor) -> tuple[tuple[int, int], ...]:
    """Return the span of START TRANSACTION, by which MySQL marks a CREATE TABLE … SELECT whose rows follow."""
    last = cursor.tokens[-2:]
    return ((last[0].start, last[1].end),) if [token.word for token in last] == ["START", "TRANSACTION"] else ()


def _index(cursor: TokenCursor) -> Ddl:
    """Read CREATE and DROP INDEX. The table follows ON, a reserved word that an unquoted index name cannot be."""
    while not cursor.ends() and not cursor.eat("ON"):
        cursor.position += 1
    table = cursor.table(Role.SUBJECT)
    return replace(_ddl(cursor, DdlKind.INDEX, table), cuts=cursor.eat_wait())


def _drop(cursor: TokenCursor) -> Ddl:
    temporary = cursor.eat("TEMPORARY")
    if cursor.eat_any("TABLE", "TABLES"):
        cursor.eat("IF", "EXISTS")
        tables = tuple(cursor.tables(Role.SUBJECT))
        return Ddl(DdlKind.IGNORABLE, cursor.text) if temporary else Ddl(DdlKind.DROP_TABLE, cursor.text, tables)
    if not temporary and cursor.eat("SEQUENCE"):
        cursor.eat("IF", "EXISTS")
        return Ddl(DdlKind.DROP_SEQUENCE, cursor.text, tuple(cursor.tables(Role.SUBJECT)))
    cursor.eat("ONLINE")
    if cursor.eat("INDEX"):
        return _index(cursor)
    if cursor.eat_any("DATABASE", "SCHEMA"):
        return _database(cursor, DdlKind.DROP_DATABASE)
    return _other_object(cursor)


def _truncate(cursor: TokenCursor) -> Ddl:
    cursor.eat("TABLE")
    return Ddl(DdlKind.TRUNCATE, cursor.text, (cursor.table(Role.SUBJECT),))


def _rename(cursor: TokenCursor) -> Ddl:
    if not cursor.eat_any("TABLE", "TABLES"):
        return _other_object(cursor)
    cursor.eat("IF", "EXISTS")
    tables = [*_rename_pair(cursor)]
    while cursor.eat(","):
        tables += _rename_pair(cursor)
    return Ddl(DdlKind.RENAME, cursor.text, tuple(tables))


def _rename_pair(cursor: TokenCursor) -> Iterator[TableRef]:
    yield cursor.table(Role.SUBJECT)
    cursor.eat_wait()
    if not cursor.eat("TO"):
        raise cursor.unreadable("TO was expected")
    yield cursor.table(Role.NEW_NAME)


def _database(cursor: TokenCursor, kind: DdlKind) -> Ddl:
    cursor.eat("IF", "NOT", "EXISTS") or cursor.eat("IF", "EXISTS")
    # ALTER DATABASE without a name changes the default schema.
    has_name = not cursor.ends() and cursor.peek() not in ("CHARACTER", "CHARSET", "COLLATE", "DEFAULT", "COMMENT")
    return Ddl(kind, cursor.text, database=cursor.name().name if has_name else cursor.schema)


def _other_object(cursor: TokenCursor) -> Ddl:
    """Accept views, triggers, routines, accounts and similar objects, with the attributes that precede the kind."""
    start = cursor.position
    if not object_kind(cursor) and not cursor.ends():
        cursor.position = start
        raise cursor.unreadable("the kind of object is unknown")
    return Ddl(DdlKind.IGNORABLE, cursor.text)


def object_kind(cursor: TokenCursor) -> str:
    """Move to the kind of an object that is no table, past the attributes before it; empty if none comes next."""
    while not cursor.ends() and cursor.peek() not in OTHER_OBJECTS:
        if not _eat_attribute(cursor):
            return ""
    return cursor.peek()


def _eat_attribute(cursor: TokenCursor) -> bool:
    """Move past DEFINER = …, ALGORITHM = …, SQL SECURITY …, or a word that belongs to the kind of object."""
    if cursor.eat("DEFINER", "="):
        _eat_account(cursor)
        return True
    if cursor.eat("ALGORITHM", "=") or cursor.eat("SQL", "SECURITY"):
        cursor.position += 1
        return True
    return cursor.eat_any(*OBJECT_ATTRIBUTES)


def _eat_account(cursor: TokenCursor) -> None:
    """Move past an account or role: `u`@`h`, u@db1.example.com, CURRENT_USER()."""
    cursor.position += 1
    cursor.eat("(", ")")
    if cursor.eat("@"):
        cursor.position += 1
        # A host name without quotes contains dots and no blanks.
        while not cursor.ends() and cursor.tokens[cursor.position].start == cursor.tokens[cursor.position - 1].end:
            cursor.position += 1


VERBS: Mapping[str, Callable[[TokenCursor], Ddl]] = {
    "ALTER": _alter,
    "CREATE": _create,
    "DROP": _drop,
    "RENAME": _rename,
    "TRUNCATE": _truncate,
}


# --- options about the storage engine: a target keeps its own, which has transactions -------------------------


def engine_options(
    specs: Sequence[TokenCursor], left_out: Collection[int]
) -> tuple[frozenset[int], tuple[tuple[int, int], ...]]:
    """Return the specifications that have no other options, and the spans of these options in the others."""
    whole, spans = set[int](), list[tuple[int, int]]()
    for number, spec in enumerate(specs):
        found = [*_options(spec.tokens)] if is_option(spec) and number not in left_out else []
        if found and sum(last - first for first, last in found) == len(spec.tokens):
            whole.add(number)
        else:
            spans += [(spec.tokens[first].start, spec.tokens[last - 1].end) for first, last in found]
    return frozenset(whole), tuple(spans)


def without_engine(ddl: Ddl, sql_mode: int) -> tuple[Ddl | None, str]:
    """Return a statement without options about the engine, None if nothing is left, and the engine that it names."""
    text, tokens = tokenize(ddl.text, sql_mode, MARIADB)
    specs = alter_specs(text, tokens)
    whole, cuts = engine_options(specs, ())
    if whole and not changes_without(specs, whole):
        return None, _named_engine(specs)
    rest = without_specs(ddl, tokens, whole) if whole else ddl
    return replace(rest, cuts=(*rest.cuts, *cuts)), _named_engine(specs)


def _named_engine(specs: Sequence[TokenCursor]) -> str:
    found = ""
    for spec in specs:
        for first, last in _options(spec.tokens) if is_option(spec) else ():
            if spec.tokens[first].word in ("ENGINE", "TYPE"):
                found = spec.tokens[last - 1].name
    return found


def changes_without(specs: Sequence[TokenCursor], left_out: Collection[int]) -> bool:
    """Whether specifications other than these, hints and RENAME TO are left."""
    names = ("COLUMN", "INDEX", "KEY")
    others = (spec for number, spec in enumerate(specs) if number not in left_out and spec.tokens[0].word not in HINTS)
    return any(spec.peek() != "RENAME" or spec.peek(1) in names for spec in others)


def _options(tokens: Sequence[Token]) -> Iterator[tuple[int, int]]:
    """Yield the first token of each option about the engine, and the one after its last."""
    position = 0
    while position < len(tokens):
        words = next((w for w in ENGINES if tuple(t.word for t in tokens[position : position + len(w)]) == w), None)
        if words is None:
            position += 1
            continue
        last = position + len(words)
        last += last < len(tokens) and tokens[last].word == "="
        if last < len(tokens) and tokens[last].word == "(":
            last = next((n for n in range(last, len(tokens)) if tokens[n].word == ")"), last)
        yield position, last + 1
        position = last + 1
