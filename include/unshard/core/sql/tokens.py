"""Splits DDL text into tokens with spans, under the rules of the session that ran it.

Only sqlglot's tokenizer is used: its parser and generator lose information in MySQL's DDL, its tokenizer
does not. The meaning of a text depends on two bits of sql_mode and on the executable comments that its server
runs. Only this module deals with both: after `tokenize`, the text has no comments.

Servers accept names that say more than they must: the table before a column (`ALTER TABLE t CHANGE t.a b INT`), and a
dot before the name of a table or column (``.`t` ``). `tokenize` cuts out both, because another table executes the text.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from itertools import pairwise

from unshard.core.sql.mode import ANSI_QUOTES, NO_BACKSLASH_ESCAPES
from unshard.core.sql.words import BEFORE_TABLES, HEADS, RESERVED
from unshard.errors.ddl import DdlUnreadable


@dataclass(frozen=True, slots=True)
class Dialect:
    """The server that ran or printed the text, which decides which executable comments are part of the text.

    | comment | MariaDB runs it | MySQL runs it |
    |---|---|---|
    | `/*! … */` | always | always |
    | `/*!50100 … */` | from 5.1 on, but not 5.7 to 9.99, which are MySQL's | from 5.1 on |
    | `/*M! … */`, `/*M!100301 … */` | always, from 10.3.1 on | never |
    | `/*T! … */`, `/*T![name] … */` | never: TiDB's | never |

    A binlog contains no `/*!` and `/*M!` that the server did not run: it writes a blank instead of their exclamation
    mark, so that replicas of a later version ignore them, too. For such a text the version must not be compared.
    """

    mariadb: bool = True
    version: int | None = None
    """The number used in executable comments: 10.11.3 is 101103, 8.0.36 is 80036. None: the text is from a binlog."""

    def runs(self, mark: str, version: int) -> bool:
        """Whether the server ran the body of an executable comment with this mark: `!`, `M!` or `T!`."""
        if self.version is None:
            return mark == "!" or (mark == "M!" and self.mariadb)
        if mark == "!":
            mysql_only = self.mariadb and 50700 <= version <= 99999
            return version <= self.version and not mysql_only
        return mark == "M!" and self.mariadb and version <= self.version


MARIADB = Dialect()


class TokenKind(StrEnum):
    """The kind of a token."""

    WORD = "word"
    """A keyword or an unquoted name."""
    QUOTED = "quoted"
    """A quoted name."""
    STRING = "string"
    """A string, hexadecimal or bit literal."""
    OTHER = "other"
    """Punctuation and numbers."""


@dataclass(frozen=True, slots=True)
class Token:
    """One token; `name` is the text without quotes, `raw` as written."""

    kind: TokenKind
    name: str
    raw: str
    start: int
    end: int

    @property
    def word(self) -> str:
        """The word in upper case, or the punctuation; empty for quoted names and literals, which are never keywords."""
        return self.raw.upper() if self.kind in (TokenKind.WORD, TokenKind.OTHER) else ""


Edit = tuple[int, int, str]
"""The span of a text, and the text in its place."""
BEFORE_NAMES = RESERVED | {"AFTER", "MODIFY", "TRUNCATE"}
"""Keywords that a name may follow, so that a dot after the keyword and a blank belongs to the name."""
COMMENTS = r"""
    (?P<mark>/\*(?P<kind>!|M!|T!)(?:(?P<version>\d{5,6})|\[[^\]]*\])?)
    | (?P<comment>/\*.*?\*/ | \#[^\n]* | --(?=\s|$)[^\n]*)
    | (?P<end>\*/)
"""


def tokenize(text: str, sql_mode: int, dialect: Dialect) -> tuple[str, tuple[Token, ...]]:
    """Return the text without comments, and its tokens, whose spans refer to the returned text."""
    plain = expand_comments(text, sql_mode, dialect)
    tokens = _split(plain, sql_mode)
    if spans := _superfluous(tokens):
        plain = edited(plain, ((start, end, "") for start, end in spans))
        tokens = _split(plain, sql_mode)
    while tokens and tokens[-1].raw == ";":
        tokens = tokens[:-1]
    return plain[: tokens[-1].end] if tokens else "", tokens


NUMBER = re.compile(r"\d[\d.]*(?:e[+-]?\d+)?", re.IGNORECASE)


def without_values(text: str, sql_mode: int, dialect: Dialect) -> str:
    """Return a statement without the values of its literals; unchanged if it cannot be split into tokens."""
    try:
        _, tokens = tokenize(text, sql_mode, dialect)
    except DdlUnreadable:
        return text
    pieces, end = list[str](), 0
    for token in tokens:
        value = "''" if token.kind is TokenKind.STRING else "0" if NUMBER.fullmatch(token.raw) else token.raw
        pieces.append((" " if pieces and token.start > end else "") + value)
        end = token.end
    return "".join(pieces)


def closing(tokens: Sequence[Token], opening: int) -> int:
    """Return the position of the parenthesis that closes another one; the last position without one."""
    depth = 0
    for position in range(opening, len(tokens)):
        depth += (tokens[position].word == "(") - (tokens[position].word == ")")
        if depth == 0:
            return position
    return len(tokens) - 1


def outside(tokens: Sequence[Token], *words: str) -> Iterator[int]:
    """Yield the positions of a sequence of words, or of all tokens, outside of parentheses; `)` is outside, too."""
    depth = 0
    for position, token in enumerate(tokens):
        depth += (token.word == "(") - (token.word == ")")
        if depth == 0 and begins_at(tokens, position, *words):
            yield position


def begins_at(tokens: Sequence[Token], position: int, *words: str) -> bool:
    """Whether a sequence of words begins at a position."""
    return [token.word for token in tokens[position : position + len(words)]] == [*words]


def at_commas(tokens: Sequence[Token]) -> list[list[Token]]:
    """Split tokens at the commas outside of parentheses."""
    commas = [position for position in outside(tokens) if tokens[position].word == ","]
    return [[*tokens[first + 1 : last]] for first, last in pairwise((-1, *commas, len(tokens)))]


def edited(text: str, edits: Iterable[Edit]) -> str:
    """Return the text with other texts in place of spans."""
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def _split(text: str, sql_mode: int) -> tuple[Token, ...]:
    from unshard.core.sql.lexer import split  # sqlglot, which a command that only shows state does not need

    return split(text, bool(sql_mode & ANSI_QUOTES), bool(sql_mode & NO_BACKSLASH_ESCAPES))


def _superfluous(tokens: tuple[Token, ...]) -> list[tuple[int, int]]:
    """Return the spans of a DDL that only repeat which table is meant: qualifiers of columns, dots before names."""
    if not tokens or tokens[0].word not in HEADS or all(token.raw != "." for token in tokens):
        return []
    subject, after = _subject(tokens)
    spans = []
    for position in range(1, len(tokens) - 1):
        token, following = tokens[position : position + 2]
        if token.raw != "." or not _may_be_name(following):
            continue
        first = _first_qualifier(tokens, position)
        if first == position:
            spans.append((token.start, token.end))
        elif subject and first >= after and _repeats(tokens, first, position, subject):
            spans.append((tokens[first].start, token.end))
    return spans


def _subject(tokens: tuple[Token, ...]) -> tuple[str, int]:
    """Return the table that a statement changes or creates, and the number of the token after it; or "" and 0."""
    words = [token.word for token in tokens[:14]]
    head = "ON" if "INDEX" in words[1:6] and "TABLE" not in words else "TABLE"
    if words[0] not in ("ALTER", "CREATE") or head not in words:
        return "", 0
    last = words.index(head) + 1
    while last < len(words) and words[last] in ("IF", "NOT", "EXISTS", "."):
        last += 1
    while last + 2 < len(tokens) and tokens[last + 1].raw == ".":
        last += 2
    return (tokens[last].name.lower(), last + 1) if last < len(tokens) else ("", 0)


def _first_qualifier(tokens: tuple[Token, ...], dot: int) -> int:
    """Return the number of the first token of the name to which a dot belongs: the dot itself if it begins the name."""
    before = tokens[dot - 1]
    is_name = _may_be_name(before) and (before.end == tokens[dot].start or before.word not in BEFORE_NAMES)
    if not is_name:
        return dot
    return _first_qualifier(tokens, dot - 2) if dot > 2 and tokens[dot - 2].raw == "." else dot - 1


def _repeats(tokens: tuple[Token, ...], first: int, dot: int, subject: str) -> bool:
    """Whether the last dot of a name follows the name of the statement's own table, and a column follows it."""
    is_last = dot + 2 >= len(tokens) or tokens[dot + 2].raw not in (".", "(")
    before = [token.word for token in tokens[:first] if token.word not in ("=", "(")][-2:]
    is_table = before[-1] in BEFORE_TABLES or before[0] == "RENAME"
    return is_last and not is_table and tokens[dot - 1].name.lower() == subject


def _may_be_name(token: Token) -> bool:
    return token.kind is TokenKind.QUOTED or (token.kind is TokenKind.WORD and not token.raw[0].isdigit())


def expand_comments(text: str, sql_mode: int, dialect: Dialect) -> str:
    """Replace comments by a blank, except the bodies of the executable comments that the server ran."""
    pattern, pieces, position, depth = _pieces(sql_mode), [], 0, 0
    while match := pattern.search(text, position):
        pieces.append(text[position : match.start()])
        position = match.end()
        if match["quoted"]:
            pieces.append(match[0])
        elif match["comment"]:
            pieces.append(" ")
        elif match["end"]:
            pieces.append(" " if depth else match[0])
            depth = max(0, depth - 1)
        elif dialect.runs(match["kind"], int(match["version"] or 0)):
            pieces.append(" ")
            depth += 1
        else:
            pieces.append(" ")
            position = _end_of_comment(text, position)
    return "".join((*pieces, text[position:]))


def _end_of_comment(text: str, position: int) -> int:
    """Return where the body of a skipped comment ends; one level of plain comments may be inside."""
    depth = 1
    for match in re.compile(r"/\*|\*/").finditer(text, position):
        depth += 1 if match[0] == "/*" else -1
        if depth == 0:
            return match.end()
    return len(text)


@cache
def _pieces(sql_mode: int) -> re.Pattern[str]:
    escape = "" if sql_mode & NO_BACKSLASH_ESCAPES else r"\\"
    string = rf"{{0}}(?:[^{{0}}{escape}]" + (r"|\\." if escape else "") + "|{0}{0})*{0}"
    double = '"(?:[^"]|"")*"' if sql_mode & ANSI_QUOTES else string.format('"')
    single = string.format("'")
    return re.compile(f"(?P<quoted>{single}|{double}|`(?:[^`]|``)*`)|{COMMENTS}", re.VERBOSE | re.DOTALL)
