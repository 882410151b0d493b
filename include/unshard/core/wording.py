"""In which words two DDLs that should be the same differ, for a person to read."""

import re
from collections.abc import Sequence
from difflib import SequenceMatcher

WORD = re.compile(r"`(?:[^`]|``)*`|'(?:[^'\\]|''|\\.)*'|\"(?:[^\"\\]|\"\"|\\.)*\"|[\w$@.]+|\S")


def differing_words(ours: str, theirs: str) -> tuple[str, ...]:
    """Return one phrase for each place where the second text differs from the first; empty if they are the same."""
    mine, others = WORD.findall(ours), WORD.findall(theirs)
    places = SequenceMatcher(None, mine, others, autojunk=False).get_opcodes()
    return tuple(_phrase(mine[a:b], others[c:d]) for what, a, b, c, d in places if what != "equal")


def _phrase(mine: Sequence[str], others: Sequence[str]) -> str:
    if not mine:
        return f"adds `{' '.join(others)}`"
    if not others:
        return f"lacks `{' '.join(mine)}`"
    return f"`{' '.join(others)}` instead of `{' '.join(mine)}`"
