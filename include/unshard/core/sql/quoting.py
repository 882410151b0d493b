"""Quotes identifiers for SQL text.

Names come from servers and task files and may contain any character, so all code must use these functions
to put backquotes around a name.
"""


def identifier(name: str) -> str:
    """Return the name in backquotes, which is valid in any sql_mode."""
    return "`" + name.replace("`", "``") + "`"


def qualified(schema: str, name: str) -> str:
    """Return `schema`.`name`."""
    return f"{identifier(schema)}.{identifier(name)}"
