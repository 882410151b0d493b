"""The character set that a table gets when its DDL names none: its schema's default.

No event carries it, and the target's schemas have others. So it is followed through CREATE and ALTER DATABASE
from what the source said at the snapshot, and given to a statement by naming it in its text:

| the statement                       | becomes                                                        |
|-------------------------------------|----------------------------------------------------------------|
| CREATE TABLE t (…) without either   | DEFAULT CHARACTER SET x COLLATE y behind the columns           |
| … CHARACTER SET DEFAULT, also ALTER | … CHARACTER SET x: the charset's own collation, as servers do  |
| CREATE TABLE t (…) COLLATE DEFAULT  | DEFAULT CHARACTER SET x behind the columns                     |
| everything else                     | stays as it is                                                 |
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from unshard.core.charsets import COLLATIONS
from unshard.core.ddltokens import MARIADB, Token, TokenKind, tokenize
from unshard.core.segment import SchemaDefault, Statement

Edit = tuple[int, int, str]


def named(text: str, sql_mode: int, default: SchemaDefault) -> str:
    """Return a CREATE or ALTER TABLE with the schema's default named wherever it relies on it."""
    plain, tokens = tokenize(text, sql_mode, MARIADB)
    words = [token.word for token in tokens]
    edits = list(_charset_default(tokens, words, default))
    if words[:1] == ["CREATE"] and (end := _end_of_columns(words)) is not None and not edits:
        edits += _inserted(tokens, words, end, default)
    for start, stop, new in sorted(edits, reverse=True):
        plain = plain[:start] + new + plain[stop:]
    return plain


def with_default(routed: str, statement: Statement) -> str:
    """Return the statement with the default of its source's schema in its text, where it relies on that."""
    return named(routed, statement.sql_mode, statement.default) if statement.default else routed


def relies_on_schema(text: str, sql_mode: int) -> bool:
    """Whether the meaning of a CREATE or ALTER TABLE depends on its schema's default."""
    return named(text, sql_mode, SchemaDefault("x", "x_y")) != tokenize(text, sql_mode, MARIADB)[0]


def altered(before: SchemaDefault | None, text: str, sql_mode: int, server: SchemaDefault) -> SchemaDefault | None:
    """Return a schema's default behind a CREATE or ALTER DATABASE; `server` is that of the session that ran it.

    `before` is None for a schema that there is not, or whose default is not known.
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
    # COLLATE DEFAULT, or a collation such as uca1400_ai_ci that goes with several character sets.
    return replace(base, collation=collation) if base else None


def _option(tokens: Sequence[Token], words: Sequence[str], *heads: str) -> str | None:
    """Return the value of the last of such options outside of parentheses, "" for DEFAULT, None if there is none."""
    found = None
    for place in _options(words, heads):
        found = "" if words[place] == "DEFAULT" else _value(tokens[place])
    return found


def _options(words: Sequence[str], heads: Sequence[str]) -> Iterator[int]:
    """Yield where the values of these options stand, outside of parentheses."""
    depth = 0
    for place, word in enumerate(words):
        depth += (word == "(") - (word == ")")
        behind_character = word != "SET" or (place and words[place - 1] in ("CHARACTER", "CHAR"))
        if depth == 0 and word in heads and behind_character:
            value = place + 2 if words[place + 1 : place + 2] == ["="] else place + 1
            if value < len(words):
                yield value


def _value(token: Token) -> str:
    return token.name.lower() if token.kind in (TokenKind.QUOTED, TokenKind.STRING) else token.raw.lower()


def _charset_default(tokens: Sequence[Token], words: Sequence[str], default: SchemaDefault) -> Iterator[Edit]:
    for place in _options(words, ("CHARSET", "SET")):
        if words[place] == "DEFAULT":
            yield tokens[place].start, tokens[place].end, default.charset


def _inserted(tokens: Sequence[Token], words: Sequence[str], end: int, default: SchemaDefault) -> Iterator[Edit]:
    charset, collation = _option(tokens, words, "CHARSET", "SET"), _option(tokens, words, "COLLATE")
    if charset is None and not collation:
        given = default if collation is None else SchemaDefault(default.charset)
        yield tokens[end].end, tokens[end].end, f" {given.options}"


def _end_of_columns(words: Sequence[str]) -> int | None:
    """Return where the first outer parenthesis closes; None for LIKE and for a query instead of columns."""
    if "(" not in words or "LIKE" in words[: words.index("(") + 2]:
        return None
    start = words.index("(")
    if words[start + 1 : start + 2] == ["SELECT"] or {"SELECT", "AS"} & set(words[:start]):
        return None
    depth = 0
    for place, word in enumerate(words):
        depth += (word == "(") - (word == ")")
        if word == ")" and depth == 0:
            return place
    return None
