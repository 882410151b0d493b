"""Mask values of rows and secrets in texts for the page and for alerts.

A server's error message quotes the value of a duplicate key and whole texts that do not fit. A statement may contain
a password or a connection string.
"""

import re

HIDDEN = "'…'"
_VALUES = (
    # Up to the last possible closing quote, because a value may contain quotes.
    re.compile(r"(\b(?:entry|value:?)\s+)'.*'(?=\s+for\s+(?:key|column)\b)", re.IGNORECASE | re.DOTALL),
    re.compile(r"(\bvalue:\s+)'(?!…').*'", re.IGNORECASE | re.DOTALL),
)
_SECRETS = re.compile(
    r"((?:\bCONNECTION|PASSWORD|\bIDENTIFIED\s+(?:BY|AS))\b\s*=?\s*)"
    r"(?:'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\")",
    re.IGNORECASE,
)


def statement(text: str) -> str:
    """Return a statement without passwords and connection strings."""
    return _SECRETS.sub(rf"\1{HIDDEN}", text)


def refusal(text: str) -> str:
    """Return a server's error message without the values that it quotes."""
    for pattern in _VALUES:
        text = pattern.sub(rf"\1{HIDDEN}", text)
    return statement(text)
