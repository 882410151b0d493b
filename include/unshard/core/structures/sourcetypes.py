"""Rewrites types and character sets in a DDL that have another meaning on the target than on the source.

The statement gets text that has the source's meaning on the target:

| source's DDL | its meaning there | the target | becomes |
|---|---|---|---|
| `JSON` on MariaDB | a text | has a JSON type | `LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin` |
| `NATIONAL VARCHAR(9)`, `NCHAR` | character set utf8 | uses another, e.g. TiDB | `VARCHAR(9) CHARACTER SET utf8 …` |
| `CHARACTER SET utf8mb4` | utf8mb4_general_ci | compares bytes, e.g. TiDB | `… utf8mb4 COLLATE utf8mb4_general_ci` |
| `CHARACTER SET utf8`, `COLLATE utf8_bin`, `_utf8'é'` | utf8mb4: MariaDB's `old_mode` | utf8mb3 | `… utf8mb4` |
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from unshard.core.sql.tokens import MARIADB, Edit, Token, TokenKind, edited, tokenize
from unshard.core.sql.words import words_of

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
