"""Mask secrets and values of rows in texts that come from servers.

A statement may contain a password or a connection string. A server's error message quotes the value of a duplicate key,
whole texts that do not fit, and parts of statements.
"""

import math
import re
from collections.abc import Set

HIDDEN = "'…'"
_VALUES = (
    # Up to the last possible closing quote, because a value may contain quotes.
    re.compile(r"(\b(?:entry|value:?)\s+)'.*'(?=\s+for\s+(?:key|column)\b)", re.IGNORECASE | re.DOTALL),
    re.compile(r"(\b(?:value|string|argument|vector)(?::|\s+is)?\s+)'(?!…').*'", re.IGNORECASE | re.DOTALL),
    re.compile(r"(\bconstant\s+)(?!'…').*?(?=\s+overflows\b)", re.IGNORECASE | re.DOTALL),
    re.compile(r"(\binvalid\s+vector\s+text:)(?!\s*'…')[^\n]*", re.IGNORECASE),
    re.compile(r"(\b(?:handle|indexValues)=)(?!'…')(?:\{.*?\}(?=[,}])|[^,}]*)", re.IGNORECASE | re.DOTALL),
    re.compile(r"(\bpartition\s+for\s+value\s+|\brow\s+in\s+wrong\s+partition\s+)(?!'…')[^\n]*", re.IGNORECASE),
    re.compile(r"(\billegal\s+\w+\s+)'.*'(?=\s+value\s+found\b)", re.IGNORECASE | re.DOTALL),
    re.compile(r"(\bcannot\s+convert\s+)'.*'(?=\s+character\b)", re.IGNORECASE | re.DOTALL),
    re.compile(r"(\b(?:longitude|latitude)\s+)(?!'…')\S+(?=\s+is\s+out\s+of\s+range\b)", re.IGNORECASE),
    re.compile(r"(\bassertion\s+failed:\s+key:\s+)(?!'…')[^,\s]+", re.IGNORECASE),
    re.compile(r"(\bout\s+of\s+range\s+in\s+)'(?!…').*'", re.IGNORECASE | re.DOTALL),
    re.compile(r"(\bparsing\s+)\"(?:[^\"\\]|\\.)*\"", re.IGNORECASE),
)
_LITERAL = r"(?:_\w+\s*)?(?:(?:\b[nxb])?(?:'(?:[^'\\]|\\.|'')*(?:'|\Z)|\"(?:[^\"\\]|\\.|\"\")*(?:\"|\Z))|\b0x[0-9a-f]+)"
_PIECE = re.compile(
    rf"(?P<mark>/\*M?!\d*|\*/)|(?P<comment>/\*.*?(?:\*/|\Z)|--(?=\s)[^\n]*|\#[^\n]*)|(?P<literal>{_LITERAL})"
    r"|(?P<word>`(?:[^`]|``)*`|[\w$]+)|(?P<other>\S)",
    re.IGNORECASE | re.DOTALL,
)
_SECRET = re.compile(r"`?\w*(?:PASSWORD|PASSWD|SECRET|SECRET_KEY|SST_AUTH)`?|AUTHENTICATION_STRING", re.IGNORECASE)
_WITH_KEYS = re.compile(r"\w*PASSWORD|(?:AES|DES)_(?:EN|DE)CRYPT|ENCRYPT|ENCODE|DECODE", re.IGNORECASE)
"""Functions one of whose arguments is a secret."""
_INSIDE = re.compile(
    r"\b\w*(?:PASSWORD|PASSWD|PWD|SECRET|SECRET[-_][\w-]*KEY)\b\s*(?:=|(?:\\?[\"'])+\s*\w)|://[^\s/@'\"]*:[^\s/@'\"]+@"
    r"|\bIDENTIFIED\b[^'\"]*(?:''|\"\"|\\[\"'])",
    re.IGNORECASE,
)
"""A secret in a string: an option of a CONNECT table, the comment of a SPIDER table, an address, a statement."""
_ASSIGNMENT = "SET PASSWORD"
_CLAUSES_OF_ACCOUNTS = frozenset(("IDENTIFIED", _ASSIGNMENT))
_NAMES_SECRET = re.compile(r"\bIDENTIFIED\b|PASSWORD|\bCONNECTION\b", re.IGNORECASE)
_OF_ACCOUNTS = ("BY", "AS", "USING", "REPLACE", "TO")
_QUOTED = re.compile(
    r"((?:\bCONNECTION(?=\s*=)|PASSWORD|\bIDENTIFIED\s+(?:BY|AS)|\b(?:USING|BY|AS|REPLACE))\b[\s=(]*)"
    r"(?:'(?!…')(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\")",
    re.IGNORECASE,
)
"""Within the quotes of an error message, a statement has quotes that are not escaped."""


def statement(text: str) -> str:
    """Return a statement without passwords and connection strings."""
    last, seen, pieces, position = "", set[str](), list[str](), 0
    is_hidden = is_assigned = False
    depth, keys_until = 0, math.inf
    for match in _PIECE.finditer(text):
        if match["literal"]:
            is_key = depth >= keys_until
            is_hidden = is_hidden or is_key or _is_secret(last, seen, match["literal"], is_assigned=is_assigned)
            if is_hidden:
                pieces += [text[position : match.start()], HIDDEN]
                position = match.end()
        elif match["word"]:
            before, last = last, match["word"].upper()
            seen |= {f"{before} {last}", last} & _CLAUSES_OF_ACCOUNTS
            is_hidden = is_assigned = False
        elif match["other"]:
            is_hidden, is_assigned = False, match["other"] == "="
            depth += (match["other"] == "(") - (match["other"] == ")")
            if match["other"] == "(" and _WITH_KEYS.fullmatch(last):
                keys_until = min(keys_until, depth)
            elif depth < keys_until:
                keys_until = math.inf
    masked = "".join((*pieces, text[position:]))
    return _QUOTED.sub(rf"\1{HIDDEN}", masked) if last and _NAMES_SECRET.search(masked) else masked


def _is_secret(last: str, seen: Set[str], literal: str, *, is_assigned: bool) -> bool:
    """Whether a literal is a secret: `last` is the word before it, perhaps with an equals sign between."""
    if _INSIDE.search(literal):
        return True
    if last.strip("`") == "CONNECTION":  # else the name of a connection, in a message of unshard
        return is_assigned or "://" in literal
    is_account = bool(seen) and last in _OF_ACCOUNTS
    return _SECRET.fullmatch(last) is not None or is_account or (is_assigned and _ASSIGNMENT in seen)


def refusal(text: str) -> str:
    """Return a server's error message without the values that it quotes."""
    for pattern in _VALUES:
        text = pattern.sub(rf"\1{HIDDEN}", text)
    return statement(text)
