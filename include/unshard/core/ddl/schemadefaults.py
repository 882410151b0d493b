"""A DDL with the meaning that it has on its source: character sets of schemas, and types that differ on the target.

**The default character set of a schema** is what a table gets if its DDL names none. No binlog event contains this
default, and the target's schemas have other defaults. So unshard reads the defaults at the snapshot, follows them
through CREATE and ALTER DATABASE, and writes them into the text of a statement:

| the statement                                | change of the text                                             |
|----------------------------------------------|----------------------------------------------------------------|
| CREATE TABLE t (…) with neither charset nor  | DEFAULT CHARACTER SET x COLLATE y is added after the columns   |
| collation                                    |                                                                |
| … CHARACTER SET DEFAULT, also ALTER          | … CHARACTER SET x: the charset's own collation, as servers do  |
| CREATE TABLE t (…) COLLATE DEFAULT           | DEFAULT CHARACTER SET x is added after the columns             |
| any other                                    | none                                                           |

**Types and character sets** may have another meaning on the target. The statement gets text with the source's meaning:

| source's DDL | its meaning there | the target | becomes |
|---|---|---|---|
| `JSON` on MariaDB | a text | has a JSON type | `LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin` |
| `NATIONAL VARCHAR(9)`, `NCHAR` | character set utf8 | uses another, e.g. TiDB | `VARCHAR(9) CHARACTER SET utf8 …` |
| `CHARACTER SET utf8mb4` | utf8mb4_general_ci | compares bytes, e.g. TiDB | `… utf8mb4 COLLATE utf8mb4_general_ci` |
| `CHARACTER SET utf8`, `COLLATE utf8_bin`, `_utf8'é'` | utf8mb4: MariaDB's `old_mode` | utf8mb3 | `… utf8mb4` |
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from unshard.core.relay.segment import SchemaDefault, Statement
from unshard.core.sql.charsets import COLLATIONS
from unshard.core.sql.tokens import MARIADB, Edit, Token, TokenKind, closing, edited, outside, tokenize
from unshard.core.sql.words import words_of


def naming_default(text: str, sql_mode: int, default: SchemaDefault) -> str:
    """Return a CREATE or ALTER TABLE that names the schema's default wherever it would use it."""
    plain, tokens = tokenize(text, sql_mode, MARIADB)
    words = [token.word for token in tokens]
    edits = list(_charset_default(tokens, words, default))
    if words[:1] == ["CREATE"] and (end := _end_of_columns(tokens, words)) is not None and not edits:
        edits += _inserted(tokens, words, end, default)
    return edited(plain, edits)


def with_default(routed: str, statement: Statement) -> str:
    """Return the routed statement, which names the default of the source's schema wherever it would use it."""
    return naming_default(routed, statement.sql_mode, statement.default) if statement.default else routed


def relies_on_schema(text: str, sql_mode: int) -> bool:
    """Whether the meaning of a CREATE or ALTER TABLE depends on its schema's default."""
    return naming_default(text, sql_mode, SchemaDefault("x", "x_y")) != tokenize(text, sql_mode, MARIADB)[0]


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


# --- types and character sets that mean something else on the target


DEPENDS = re.compile(r"\b(JSON|NATIONAL|NCHAR|NVARCHAR|CHARSET|SET|_?utf8|utf8_\w+)\b", re.IGNORECASE)
"""A statement without any of these words has the same meaning on every server."""
JSON_AS_TEXT = "LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
NO_COLUMN = words_of("ADD AFTER AS BY CHANGE COLUMN CONVERT DROP EXISTS INDEX KEY MODIFY RENAME TABLE TO UNIQUE")
"""A word after one of these is a name, not a type."""
AFTER_TYPE = words_of("""
    , ) AFTER AS CHECK COLLATE COMMENT COMPRESSED CONSTRAINT DEFAULT FIRST GENERATED INVISIBLE KEY NOT NULL ON PRIMARY
    REFERENCES STORED UNIQUE VIRTUAL WITHOUT
""")


@dataclass(frozen=True, slots=True)
class Meanings:
    """The meanings to rewrite for one pair of source and target."""

    json_is_text: bool = False
    """JSON is a text on the source and a separate type on the target."""
    national: str = ""
    """The character set, with its collation, of NATIONAL types on the source, if the target uses another one."""
    collations: Mapping[str, str] | None = None
    """The collations of character sets without one, if those of the target compare bytes or the session chose them."""
    utf8: str = ""
    """The character set that `utf8` names on the source, if it names another one on the target."""


def as_source_means(text: str, sql_mode: int, meanings: Meanings) -> str:
    """Return the statement that has the source's meaning on the target."""
    plain, tokens = tokenize(text, sql_mode, MARIADB)
    words = [token.word for token in tokens]
    edits = [*_json(tokens, words)] if meanings.json_is_text else []
    edits += _national(tokens, words, meanings.national) if meanings.national else []
    edits += _charsets(tokens, words, meanings)
    edits += _utf8(tokens, words, meanings.utf8) if meanings.utf8 else []
    return edited(plain, edits) if edits else text


def _is_type(tokens: Sequence[Token], words: Sequence[str], position: int) -> bool:
    """Whether a word follows the name of a column."""
    before = tokens[position - 1] if position else None
    return before is not None and (
        before.kind is TokenKind.QUOTED or (before.kind is TokenKind.WORD and before.word not in NO_COLUMN)
    )


def _json(tokens: Sequence[Token], words: Sequence[str]) -> Iterator[Edit]:
    for position, word in enumerate(words):
        following = words[position + 1] if position + 1 < len(words) else ","
        if word == "JSON" and following in AFTER_TYPE and _is_type(tokens, words, position):
            yield tokens[position].start, tokens[position].end, JSON_AS_TEXT


def _national(tokens: Sequence[Token], words: Sequence[str], charset: str) -> Iterator[Edit]:
    for position, word in enumerate(words):
        is_national = word == "NATIONAL" and set(words[position + 1 : position + 2]) & {"CHAR", "CHARACTER", "VARCHAR"}
        if not (is_national or word in ("NCHAR", "NVARCHAR")) or not _is_type(tokens, words, position):
            continue
        end = position + (2 if is_national else 1)
        end += words[end : end + 1] in (["VARYING"], ["VARCHAR"], ["VARCHARACTER"])
        if words[end : end + 1] == ["("]:
            end += words[end:].index(")") + 1
        yield tokens[position].start, tokens[position].end, "" if is_national else word[1:]
        yield tokens[end - 1].end, tokens[end - 1].end, f" {charset}"


def _utf8(tokens: Sequence[Token], words: Sequence[str], charset: str) -> Iterator[Edit]:
    for position, word in enumerate(words):
        token, before = tokens[position], [other for other in words[max(position - 2, 0) : position] if other != "="]
        is_named = before[-1:] in (["CHARSET"], ["SET"], ["USING"], ["COLLATE"])
        if is_named and (word == "UTF8" or token.name.lower() == "utf8" or token.name.lower().startswith("utf8_")):
            yield token.start, token.end, charset + token.name[len("utf8") :].lower()
        elif word == "_UTF8" and tokens[position + 1 : position + 2] and tokens[position + 1].kind is TokenKind.STRING:
            yield token.start, token.end, f"_{charset}"


def _charsets(tokens: Sequence[Token], words: Sequence[str], meanings: Meanings) -> Iterator[Edit]:
    collations = meanings.collations or {}
    for position, word in enumerate(words):
        if word != "CHARSET" and not (word == "SET" and words[position - 1] in ("CHARACTER", "CHAR")):
            continue
        value = position + (2 if words[position + 1 : position + 2] == ["="] else 1)
        if value < len(tokens) and not _is_collated(words, value):
            name = tokens[value].name.lower()
            collation = collations.get(meanings.utf8 or name if name == "utf8" else name)
            if collation:
                if meanings.utf8 and collation.startswith("utf8_"):
                    collation = f"utf8mb3{collation[len('utf8') :]}"
                yield tokens[value].end, tokens[value].end, f" COLLATE {collation}"


def _is_collated(words: Sequence[str], position: int) -> bool:
    """Whether COLLATE follows in the same column or list of options."""
    depth = 0
    for word in words[position:]:
        depth += (word == "(") - (word == ")")
        if depth < 0 or (depth == 0 and word == ","):
            return False
        if word == "COLLATE":
            return True
    return False
