"""Mask secrets and values of rows in texts that come from servers.

A statement may contain a password or a connection string. A server's error message quotes the value of a duplicate key,
whole texts that do not fit, and parts of statements.
"""

import re

HIDDEN = "'…'"
_VALUES = (
    # Up to the last possible closing quote, because a value may contain quotes.
    re.compile(r"(\b(?:entry|value:?)\s+)'.*'(?=\s+for\s+(?:key|column)\b)", re.IGNORECASE | re.DOTALL),
    re.compile(r"(\b(?:value|string|argument):?\s+)'(?!…').*'", re.IGNORECASE | re.DOTALL),
    re.compile(r"(\bpartition\s+for\s+value\s+)(?!'…')[^\n]*", re.IGNORECASE),
    re.compile(r"(\bout\s+of\s+range\s+in\s+)'(?!…').*'", re.IGNORECASE | re.DOTALL),
    re.compile(r"(\bparsing\s+)\"(?:[^\"\\]|\\.)*\"", re.IGNORECASE),
)
_LITERAL = r"(?:_\w+\s*|\b[nxb])?(?:'(?:[^'\\]|\\.|'')*(?:'|\Z)|\"(?:[^\"\\]|\\.|\"\")*(?:\"|\Z))|\b0x[0-9a-f]+"
_PIECE = re.compile(
    rf"(?P<mark>/\*M?!\d*|\*/)|(?P<comment>/\*.*?(?:\*/|\Z)|--(?=\s)[^\n]*|\#[^\n]*)|(?P<literal>{_LITERAL})"
    r"|(?P<word>`(?:[^`]|``)*`|[\w$]+)|(?P<other>\S)",
    re.IGNORECASE | re.DOTALL,
)
_SECRET = re.compile(r"\w*(?:PASSWORD|PASSWD|SECRET)|AUTHENTICATION_STRING", re.IGNORECASE)
_OF_ACCOUNTS = ("BY", "AS", "USING", "REPLACE", "TO")
_QUOTED = re.compile(
    r"((?:\bCONNECTION(?=\s*=)|PASSWORD|\bIDENTIFIED\s+(?:BY|AS)|\b(?:USING|BY|AS|REPLACE))\b[\s=(]*)"
    r"(?:'(?!…')(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\")",
    re.IGNORECASE,
)
"""Within the quotes of an error message, a statement has quotes that are not escaped."""


def statement(text: str) -> str:
    """Return a statement without passwords and connection strings."""
    words, pieces, position = [""], list[str](), 0
    is_hidden = is_assigned = False
    for match in _PIECE.finditer(text):
        if match["literal"]:
            is_hidden = is_hidden or _is_secret(words, match["literal"], is_assigned=is_assigned)
            if is_hidden:
                pieces += [text[position : match.start()], HIDDEN]
                position = match.end()
        elif match["word"]:
            words.append(match["word"].upper())
            is_hidden = is_assigned = False
        elif match["other"]:
            is_hidden, is_assigned = False, match["other"] == "="
    masked = "".join((*pieces, text[position:]))
    return _QUOTED.sub(rf"\1{HIDDEN}", masked) if _names_secret(words, masked) else masked


def _is_secret(words: list[str], literal: str, *, is_assigned: bool) -> bool:
    """Whether a literal is a secret: `words` come before it, perhaps with an equals sign between."""
    if words[-1] == "CONNECTION":  # else the name of a connection, in a message of unshard
        return is_assigned or "://" in literal
    sets_password = words[1:3] == ["SET", "PASSWORD"]
    is_account = (sets_password or "IDENTIFIED" in words) and words[-1] in _OF_ACCOUNTS
    return _SECRET.fullmatch(words[-1]) is not None or is_account or (is_assigned and sets_password)


def _names_secret(words: list[str], text: str) -> bool:
    """Whether a quoted part of the text may be a statement with a secret."""
    return re.search(r"\bIDENTIFIED\b|PASSWORD|\bCONNECTION\b", text, re.IGNORECASE) is not None and len(words) > 1


def refusal(text: str) -> str:
    """Return a server's error message without the values that it quotes."""
    for pattern in _VALUES:
        text = pattern.sub(rf"\1{HIDDEN}", text)
    return statement(text)
