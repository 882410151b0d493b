"""What may be shown to everybody who may look, and sent to a chat: no value of a row, no secret.

A server's refusal quotes the value of a duplicate key and whole texts that do not fit, and a statement may hold a
password or a connection string.
"""

import re

HIDDEN = "'…'"
_VALUES = (
    # Up to the last quote that can end it: a value may hold quotes of its own.
    re.compile(r"(\b(?:entry|value:?)\s+)'.*'(?=\s+for\s+(?:key|column)\b)", re.IGNORECASE | re.DOTALL),
    re.compile(r"(\bvalue:\s+)'(?!…').*'", re.IGNORECASE | re.DOTALL),
)
_SECRETS = re.compile(
    r"((?:\bCONNECTION|PASSWORD|\bIDENTIFIED\s+(?:BY|AS))\b\s*=?\s*)"
    r"(?:'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\")",
    re.IGNORECASE,
)


def statement(text: str) -> str:
    """Return a statement as it may be shown: without passwords and connection strings."""
    return _SECRETS.sub(rf"\1{HIDDEN}", text)


def refusal(text: str) -> str:
    """Return a server's words as they may be shown: without the values that they quote."""
    for pattern in _VALUES:
        text = pattern.sub(rf"\1{HIDDEN}", text)
    return statement(text)
