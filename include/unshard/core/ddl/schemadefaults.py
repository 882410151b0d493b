"""The default character set of a schema, which a table gets if its DDL names none.

No binlog event contains this default, and the target's schemas have other defaults. So unshard reads the defaults at
the snapshot, follows them through CREATE and ALTER DATABASE, and writes them into the text of a statement:

| the statement                                | change of the text                                             |
|----------------------------------------------|----------------------------------------------------------------|
| CREATE TABLE t (…) with neither charset nor  | DEFAULT CHARACTER SET x COLLATE y is added after the columns   |
| collation                                    |                                                                |
| … CHARACTER SET DEFAULT, also ALTER          | … CHARACTER SET x: the charset's own collation, as servers do  |
| CREATE TABLE t (…) COLLATE DEFAULT           | DEFAULT CHARACTER SET x is added after the columns             |
| any other                                    | none                                                           |
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from unshard.core.relay.segment import SchemaDefault, Statement
from unshard.core.sql.charsets import COLLATIONS
from unshard.core.sql.tokens import MARIADB, Edit, Token, TokenKind, closing, edited, outside, tokenize


def named(text: str, sql_mode: int, default: SchemaDefault) -> str:
    """Return a CREATE or ALTER TABLE that names the schema's default wherever it would use it."""
    plain, tokens = tokenize(text, sql_mode, MARIADB)
    words = [token.word for token in tokens]
    edits = list(_charset_default(tokens, words, default))
    if words[:1] == ["CREATE"] and (end := _end_of_columns(tokens, words)) is not None and not edits:
        edits += _inserted(tokens, words, end, default)
    return edited(plain, edits)


def with_default(routed: str, statement: Statement) -> str:
    """Return the routed statement, which names the default of the source's schema wherever it would use it."""
    return named(routed, statement.sql_mode, statement.default) if statement.default else routed


def relies_on_schema(text: str, sql_mode: int) -> bool:
    """Whether the meaning of a CREATE or ALTER TABLE depends on its schema's default."""
    return named(text, sql_mode, SchemaDefault("x", "x_y")) != tokenize(text, sql_mode, MARIADB)[0]


def altered(before: SchemaDefault | None, text: str, sql_mode: int, server: SchemaDefault) -> SchemaDefault | None:
    """Return a schema's default after a CREATE or ALTER DATABASE; `server` is the default of the session that ran it.

    `before` is None if the schema does not exist or its default is unknown.
    """
    _, tokens = tokenize(text, sql_mode, MARIADB)
    words = [token.word for token in tokens]
    is_new = words[0] == "CREATE"
    if is_new and before is not None and words[1] != "OR" and "EXISTS" in words[2:5]:
        return before
    charset, collation = _option(tokens, words, "CHARSET", "SET"), _option(tokens, words, "COLLATE")
    base = server if is_new else before
    if charset is None and collation is None:
        return base
    if charset is None:
        return _collated(collation or "", base)
    chosen = SchemaDefault(server.charset if charset == "" else charset)
    return replace(chosen, collation=collation) if collation else chosen


def _collated(collation: str, base: SchemaDefault | None) -> SchemaDefault | None:
    prefix = collation.partition("_")[0]
    if collation and prefix in COLLATIONS:
        return SchemaDefault(prefix, collation)
    # COLLATE DEFAULT, or a collation such as uca1400_ai_ci that is valid for several character sets.
    return replace(base, collation=collation) if base else None


def _option(tokens: Sequence[Token], words: Sequence[str], *heads: str) -> str | None:
    """Return the value of the last of these options outside of parentheses; "" for DEFAULT, None without the option."""
    found = None
    for position in _options(tokens, words, heads):
        found = "" if words[position] == "DEFAULT" else _value(tokens[position])
    return found


def _options(tokens: Sequence[Token], words: Sequence[str], heads: Sequence[str]) -> Iterator[int]:
    """Yield the positions of the values of these options, outside of parentheses."""
    for position in outside(tokens):
        is_option = words[position] != "SET" or (position and words[position - 1] in ("CHARACTER", "CHAR"))
        if words[position] in heads and is_option:
            value = position + 2 if words[position + 1 : position + 2] == ["="] else position + 1
            if value < len(words):
                yield value


def _value(token: Token) -> str:
    return token.name.lower() if token.kind in (TokenKind.QUOTED, TokenKind.STRING) else token.raw.lower()


def _charset_default(tokens: Sequence[Token], words: Sequence[str], default: SchemaDefault) -> Iterator[Edit]:
    for position in _options(tokens, words, ("CHARSET", "SET")):
        if words[position] == "DEFAULT":
            yield tokens[position].start, tokens[position].end, default.charset


def _inserted(tokens: Sequence[Token], words: Sequence[str], end: int, default: SchemaDefault) -> Iterator[Edit]:
    charset, collation = _option(tokens, words, "CHARSET", "SET"), _option(tokens, words, "COLLATE")
    if charset is None and not collation:
        inserted = default if collation is None else SchemaDefault(default.charset)
        yield tokens[end].end, tokens[end].end, f" {inserted.options}"


def _end_of_columns(tokens: Sequence[Token], words: Sequence[str]) -> int | None:
    """Return the position at which the first outer parenthesis closes; None for LIKE or a query instead of columns."""
    if "(" not in words or "LIKE" in words[: words.index("(") + 2]:
        return None
    start = words.index("(")
    if words[start + 1 : start + 2] == ["SELECT"] or {"SELECT", "AS"} & set(words[:start]):
        return None
    return closing(tokens, start)
