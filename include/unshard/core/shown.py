"""Text of a source for a terminal, and words of a suggested command for a shell."""

import shlex


def visible(text: str) -> str:
    r"""Return a text for a terminal: every character that cannot be printed, except line ends, as an escape like \x1b.

    A name or a statement could otherwise move the cursor, hide text, or change what is pasted.
    """
    return text if text.isprintable() else "".join(c if c.isprintable() or c == "\n" else _escaped(c) for c in text)


def shell(word: str) -> str:
    """Return a word of a command, quoted for a shell where it must be."""
    if word.isprintable():
        return shlex.quote(word)
    return "$'" + "".join(_escaped(c) if c in "\\'" or not c.isprintable() else c for c in word) + "'"


def _escaped(character: str) -> str:
    number = ord(character)
    if number < 0x80:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
