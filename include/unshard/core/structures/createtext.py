"""Normalizes the text of SHOW CREATE TABLE: equal texts for tables that differ only in name and AUTO_INCREMENT.

The text of a structure does not contain the name of the table (the placeholder is `t`, and `*` in names of constraints
that the server has made from it), AUTO_INCREMENT=n, clauses about storage, or foreign keys, which a merged table or a
trial table cannot have. CHECK constraints are in the order of their names, as MySQL prints them. A default value that
is not valid UTF-8 is read as surrogates and written as a hexadecimal literal, so the result is always valid text.
"""

import re
from collections.abc import Iterator

from unshard.core.model import TableId
from unshard.core.sql.quoting import identifier, qualified
from unshard.core.sql.tokens import MARIADB, Dialect, Token, TokenKind, tokenize
from unshard.core.structures.constraintnames import CHECK, OWN, constraint_names, edited, made_end, named_after
from unshard.core.structures.storageclauses import without_storage

PLACEHOLDER = "t"
ESCAPED = {"0": "\0", "n": "\n", "r": "\r", "t": "\t", "b": "\b", "Z": "\x1a"}
CHARSET = re.compile(r"( DEFAULT CHARSET=\w+)")
Span = tuple[int, int]


def normal_create(text: str, dialect: Dialect = MARIADB) -> str:
    """Return the normalized text of SHOW CREATE TABLE, printed in a session of `mysql.connect`."""
    return normal_with_names(text, dialect)[0]


def normal_with_names(text: str, dialect: Dialect = MARIADB) -> tuple[str, tuple[str, ...]]:
    """Return the normalized text, and the names of the clauses about storage that it does not have."""
    plain, tokens = tokenize(text, 0, dialect)
    rest, left_out = without_storage(plain, tokens)
    if left_out:
        plain, tokens = tokenize(rest, 0, dialect)
    edits = [(tokens[2].start, tokens[2].end, identifier(PLACEHOLDER)), *_made_names(tokens)]
    edits += [(start, end, "") for start, end in (*_next_number(tokens), *_foreign_keys(tokens))]
    edits += [(token.start, token.end, _hexadecimal(token)) for token in tokens if _is_no_text(token)]
    return with_sorted_checks(edited(plain, edits)), left_out


def with_sorted_checks(text: str) -> str:
    """Return the text with the named CHECK constraints in the order of their names."""
    if text.count(" CHECK (") < 2:
        return text
    text, tokens = tokenize(text, 0, MARIADB)
    found = [i for _, i in items(tokens) if len(i) > 2 and (i[0].word, i[2].word) == ("CONSTRAINT", "CHECK")]
    ordered = sorted(found, key=lambda item: item[1].name.lower())
    texts = [text[item[0].start : item[-1].end] for item in ordered]
    for item, new in reversed([*zip(found, texts, strict=True)]):
        text = text[: item[0].start] + new + text[item[-1].end :]
    return text


def create_text(normal: str, table: TableId, *, if_not_exists: bool = False) -> str:
    """Return the statement that creates `table` from the text that `normal_create` returned."""
    head = f"CREATE TABLE {identifier(PLACEHOLDER)}"
    if not normal.startswith(head):
        raise ValueError(f"not a normal CREATE TABLE: {normal[:80]!r}")
    condition = "IF NOT EXISTS " if if_not_exists else ""
    rest = named_after(normal[len(head) :], table.name)
    return f"CREATE TABLE {condition}{qualified(table.schema, table.name)}{rest}"


def with_collation(text: str, collation: str) -> str:
    """Return the text with the table's collation, which servers omit if it is the default of the character set."""
    options = text.rfind("\n) ")
    if options < 0 or not collation or " COLLATE=" in text[options:]:
        return text
    return text[:options] + CHARSET.sub(rf"\1 COLLATE={collation}", text[options:], count=1)


def _next_number(tokens: tuple[Token, ...]) -> Iterator[Span]:
    """Yield the span of AUTO_INCREMENT=n, which is outside of the parentheses."""
    depth = 0
    for position, token in enumerate(tokens[:-2]):
        depth += (token.word == "(") - (token.word == ")")
        if depth == 0 and token.word == "AUTO_INCREMENT" and tokens[position + 1].word == "=":
            yield tokens[position - 1].end, tokens[position + 2].end


def _made_names(tokens: tuple[Token, ...]) -> Iterator[tuple[int, int, str]]:
    """Yield the names of CHECK constraints that the server has made from the name of the table."""
    for each in constraint_names(tokens):
        if each.kind == CHECK and (end := made_end(each.token.name, tokens[2].name)):
            yield each.token.start, each.token.end, identifier(OWN + end)


def _foreign_keys(tokens: tuple[Token, ...]) -> Iterator[Span]:
    """Yield the spans of foreign keys with the comma before them, which always exists because columns come first."""
    for comma, item in items(tokens):
        if comma is not None and _is_foreign_key(item):
            yield comma.start, item[-1].end


def items(tokens: tuple[Token, ...]) -> Iterator[tuple[Token | None, list[Token]]]:
    """Yield the items between the outer parentheses, each with the comma before it (None for the first)."""
    depth, comma, item = 0, None, list[Token]()
    for token in tokens:
        depth -= token.word == ")"
        if depth == 0 and item:
            yield comma, item
            return
        if depth == 1 and token.word == ",":
            yield comma, item
            comma, item = token, []
        elif depth >= 1:
            item.append(token)
        depth += token.word == "("


def _is_foreign_key(item: list[Token]) -> bool:
    words = [token.word for token in item if token.kind is not TokenKind.QUOTED]
    return words[:3] == ["CONSTRAINT", "FOREIGN", "KEY"] or words[:2] == ["FOREIGN", "KEY"]


def _is_no_text(token: Token) -> bool:
    return token.kind is TokenKind.STRING and any("\udc80" <= character <= "\udcff" for character in token.raw)


def _hexadecimal(token: Token) -> str:
    def unescaped(match: re.Match[str]) -> str:
        return ESCAPED.get(match[1], match[1]) if match[1] else "'"

    text = re.sub(r"\\(.)|''", unescaped, token.raw[1:-1], flags=re.DOTALL)
    return f"x'{text.encode('utf-8', 'surrogateescape').hex()}'"
