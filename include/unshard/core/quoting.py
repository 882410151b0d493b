"""The one way to write a name or a string into SQL text.

Names come from servers and task files and may hold any character, so nothing else in the code base
puts backquotes around a name.
"""


def identifier(name: str) -> str:
    """Return the name between backquotes; right whatever the session's sql_mode is."""
    return "`" + name.replace("`", "``") + "`"


def qualified(schema: str, name: str) -> str:
    """Return `schema`.`name`."""
    return f"{identifier(schema)}.{identifier(name)}"
