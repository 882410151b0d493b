"""What a statement of the binlog does to which tables, and the same statement for another table.

The text is never made anew: it stays as written but for comments and the spans of table names, because
every generator loses something. What the statement does to columns is not read from it either; a server is
asked (adapters/shadow.py). So all that is decided here is whom it concerns and how it is treated:

| kind | treatment |
|---|---|
| ALTER, INDEX | coordinated: the shard waits for its group |
| CREATE_TABLE | a shard joins its group |
| DROP_TABLE, DROP_DATABASE | shards leave their groups |
| CREATE_SEQUENCE, DROP_SEQUENCE | passed over; what is a sequence is remembered (core.sequences) |
| TRUNCATE, CREATE_DATABASE, ALTER_DATABASE, IGNORABLE | passed over, counted |
| RENAME | a shard's name changes, or it leaves its group; what an ALTER does besides is coordinated |
| UNSUPPORTED | an error with `reason` if it touches a shard, else passed over |

A statement that fits none of these raises DdlUnreadable: nothing is skipped because it is not understood.
"""

import re
from collections.abc import Mapping

from unshard.core.ddlgrammar import parse
from unshard.core.ddltokens import MARIADB, Dialect, Token, TokenKind, tokenize
from unshard.core.ddltypes import Ddl, DdlKind, Role, TableRef
from unshard.core.ddlwords import RESERVED
from unshard.core.model import TableId
from unshard.core.quoting import identifier, qualified

__all__ = ["MARIADB", "Ddl", "DdlKind", "Dialect", "Role", "TableRef", "agreement", "read", "retarget"]

NOTHING = "ALGORITHM=DEFAULT"
"""A specification of ALTER TABLE that every server takes and that changes nothing."""
COLUMN_IS_OPTIONAL = frozenset({"ADD", "ALTER", "CHANGE", "DROP", "MODIFY"})
PLAIN_NAME = re.compile(r"[0-9A-Za-z$_\u0080-\uffff]*[A-Za-z$_\u0080-\uffff][0-9A-Za-z$_\u0080-\uffff]*")


def read(text: str, sql_mode: int, default_schema: str, dialect: Dialect = MARIADB) -> Ddl:
    """Read one statement as the server that ran it did; raises DdlUnreadable."""
    plain, tokens = tokenize(text, sql_mode, dialect)
    if begin := _after_set_statement(tokens):
        plain, tokens = tokenize(plain[begin:], sql_mode, dialect)
    return parse(plain, tokens, default_schema)


def retarget(ddl: Ddl, mapping: Mapping[TableId, TableId]) -> str:
    """Return the statement with other tables in place of those in `mapping`.

    Every table that is named, mapped or not, comes out quoted and with its schema, so that the text means the
    same in any session; only what a foreign key references stays as written.
    """
    left_out = {Role.REFERENCED, Role.NEW_NAME} if ddl.kind is DdlKind.ALTER else {Role.REFERENCED}
    places = [ref for ref in ddl.tables if ref.role not in left_out]
    edits = [(ref.start, ref.end, _place(mapping.get(ref.table, ref.table))) for ref in places]
    edits += [(start, end, "") for start, end in ddl.cuts]
    edits += [(start, end, NOTHING) for start, end in ddl.dropped_keys]
    text = ddl.text
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def agreement(text: str, sql_mode: int = 0, dialect: Dialect = MARIADB) -> str:
    """Return the statement's tokens in one form each.

    Equal for statements that differ in spacing, case, quoting, and in the word COLUMN where the grammar has it as
    `[COLUMN]` (MySQL manual, ALTER TABLE); RENAME COLUMN is not among these.
    """
    _, tokens = tokenize(text, sql_mode, dialect)
    kept: list[Token] = []
    for token in tokens:
        if not (token.word == "COLUMN" and kept and kept[-1].word in COLUMN_IS_OPTIONAL):
            kept.append(token)
    return " ".join(map(_normal, kept))


def _after_set_statement(tokens: tuple[Token, ...]) -> int:
    """Return where the statement begins that follows MariaDB's SET STATEMENT … FOR, 0 without that prefix."""
    words = [token.word for token in tokens]
    if words[:2] != ["SET", "STATEMENT"] or "FOR" not in words[:-1]:
        return 0
    return tokens[words.index("FOR") + 1].start


def _place(table: TableId) -> str:
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
    """A string with a backslash stays as written: what it means depends on sql_mode."""
    if token.raw[0] in "'\"" and "\\" not in token.raw:
        return "'" + token.name.replace("'", "''") + "'"
    return token.raw
