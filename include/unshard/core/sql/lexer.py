"""Splits DDL text by sqlglot's tokenizer. Only core.sql.tokens uses this, because sqlglot is expensive to import."""

from functools import cache

from sqlglot.dialects.mysql import MySQL
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import TokenType

from unshard.core.sql.tokens import Token, TokenKind
from unshard.errors.ddl import DdlUnreadable

LITERALS = {
    TokenType.STRING,
    TokenType.NATIONAL_STRING,
    TokenType.RAW_STRING,
    TokenType.HEX_STRING,
    TokenType.BIT_STRING,
    TokenType.BYTE_STRING,
}


def split(text: str, ansi: bool, verbatim: bool) -> tuple[Token, ...]:
    """Return the tokens of a text; with `ansi`, double quotes enclose names; `verbatim`: a backslash is no escape."""
    try:
        found = _dialect(ansi, verbatim).tokenize(text)
    except TokenError as error:
        raise DdlUnreadable(text, f"it cannot be split into tokens: {str(error).splitlines()[0]}") from error
    return tuple(_token(text, t.token_type, t.text, t.start, t.end + 1) for t in found)


@cache
def _dialect(ansi: bool, verbatim: bool) -> MySQL:
    strings: list[str | tuple[str, str]] = ["'"] if ansi else ["'", '"']

    class Session(MySQL):
        class Tokenizer(MySQL.Tokenizer):
            QUOTES = strings
            IDENTIFIERS = ["`", '"'] if ansi else ["`"]
            STRING_ESCAPES = [str(quote) for quote in strings] + ([] if verbatim else ["\\"])
            # Else sqlglot reads the rest of the statement after RENAME, OPTIMIZE, … as one string.
            COMMANDS = set()
            # FOREIGN KEY, PARTITION BY, … must be two words each.
            KEYWORDS = {word: kind for word, kind in MySQL.Tokenizer.KEYWORDS.items() if " " not in word}

    return Session()


def _token(text: str, kind: TokenType, name: str, start: int, end: int) -> Token:
    raw = text[start:end]
    if kind is TokenType.IDENTIFIER:
        return Token(TokenKind.QUOTED, name, raw, start, end)
    if kind in LITERALS:
        return Token(TokenKind.STRING, name, raw, start, end)
    # Unquoted names may contain every character from U+0080 on, such as a currency sign.
    is_word = any(character.isalpha() or character in "_$" or character > "\x7f" for character in raw)
    return Token(TokenKind.WORD if is_word else TokenKind.OTHER, raw, raw, start, end)
