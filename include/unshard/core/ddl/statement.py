"""The parser of statements in the binlog: which tables a statement concerns, and the same statement for another table.

The text is never generated again, because every generator loses information: only comments and the spans of table names
are replaced. The effect on columns is not read from the text either; unshard tries the statement on a server
(adapters/trialtables.py). So this module decides only which tables the statement concerns and how it is treated:

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
"""

import contextlib
import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice

from unshard.core.ddl.grammar import parse
from unshard.core.ddl.parsed import Ddl, DdlKind, Role, TableRef
from unshard.core.model import TableId
from unshard.core.sql.quoting import identifier, qualified
from unshard.core.sql.tokens import MARIADB, Dialect, Token, TokenKind, expand_comments, tokenize
from unshard.core.sql.words import OTHER_OBJECTS, RESERVED
from unshard.core.structures.constraintnames import edited
from unshard.core.structures.storageclauses import NOTHING, without_storage
from unshard.errors.ddl import DdlUnreadable

__all__ = ["MARIADB", "Ddl", "DdlKind", "Dialect", "Role", "TableRef", "fingerprint", "read", "retarget"]

COLUMN_IS_OPTIONAL = frozenset({"ADD", "ALTER", "CHANGE", "DROP", "MODIFY"})
OBJECT = re.compile(rf"\b(?:{'|'.join(sorted(OTHER_OBJECTS))})\b", re.IGNORECASE)
MOST_KINDS = 20
"""So many such words are looked at; the head of a statement has a few."""
PLAIN_NAME = re.compile(r"[0-9A-Za-z$_\u0080-\uffff]*[A-Za-z$_\u0080-\uffff][0-9A-Za-z$_\u0080-\uffff]*")


def read(text: str, sql_mode: int, default_schema: str, dialect: Dialect = MARIADB) -> Ddl:
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
    value of a table differs from shard to shard; `core.ddl.lock.script` chooses the largest.
    """
    _, tokens = tokenize(text, sql_mode, dialect)
    kept: list[Token] = []
    for token in tokens:
        if token.raw.isdigit() and (number := _counter(kept)):
            del kept[number:]
        elif not (token.word == "COLUMN" and kept and kept[-1].word in COLUMN_IS_OPTIONAL):
            kept.append(token)
    return " ".join(map(_normal, kept))


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


def _normal(token: Token) -> str:
    match token.kind:
        case TokenKind.QUOTED:
            name = token.name.lower()
            is_plain = PLAIN_NAME.fullmatch(name) and name.upper() not in RESERVED
            return name if is_plain else identifier(name)
        case TokenKind.STRING:
            return _literal(token)
        case TokenKind.WORD | TokenKind.OTHER:
            return token.raw.lower()


def _literal(token: Token) -> str:
    """Return a string in single quotes. A string with a backslash stays as written: its value depends on sql_mode."""
    if token.raw[0] in "'\"" and "\\" not in token.raw:
        return "'" + token.name.replace("'", "''") + "'"
    return token.raw
