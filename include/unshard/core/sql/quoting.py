"""Quotes identifiers for SQL text.

Names come from servers and task files and may contain any character, so all code must use these functions
to put backquotes around a name.
"""

import re
from collections.abc import Callable

_NAMES = re.compile(r"'(?:[^'\\]|\\.|'')*'|`((?:[^`]|``)+)`", re.DOTALL)


def identifier(name: str) -> str:
    """Return the name in backquotes, which is valid in any sql_mode."""
    return "`" + name.replace("`", "``") + "`"


def qualified(schema: str, name: str) -> str:
    """Return `schema`.`name`."""
    return f"{identifier(schema)}.{identifier(name)}"


def quoted_names(text: str) -> tuple[str, ...]:
    """Return the names in backquotes in a text of the server; strings are skipped."""
    return tuple(found[1].replace("``", "`") for found in _NAMES.finditer(text) if found[1])


def replace_names(text: str, new: Callable[[str], str]) -> str:
    """Return the text with other SQL in place of the names in backquotes."""
    return _NAMES.sub(lambda found: new(found[1].replace("``", "`")) if found[1] else found[0], text)
