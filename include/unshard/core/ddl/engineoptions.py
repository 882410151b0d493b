"""Finds the options of an ALTER TABLE about the storage engine: a target keeps its own engine, which has transactions.

Rows of a target must be able to roll back. So if a shard gets an engine without transactions, or has one, these options
are followed in the shard's structure only.
"""

from collections.abc import Collection, Iterator, Sequence

from unshard.core.ddl.grammar import HINTS, TokenCursor, is_option
from unshard.core.sql.tokens import Token
from unshard.core.structures.engines import STORAGE

ENGINES = (("ENGINE",), ("TYPE",), *STORAGE)
Span = tuple[int, int]


def engine_options(specs: Sequence[TokenCursor], left_out: Collection[int]) -> tuple[frozenset[int], tuple[Span, ...]]:
    """Return the specifications that have no other options, and the spans of these options in the others."""
    whole, spans = set[int](), list[Span]()
    for number, spec in enumerate(specs):
        found = [*_options(spec.tokens)] if is_option(spec) and number not in left_out else []
        if found and sum(last - first for first, last in found) == len(spec.tokens):
            whole.add(number)
        else:
            spans += [(spec.tokens[first].start, spec.tokens[last - 1].end) for first, last in found]
    return frozenset(whole), tuple(spans)


def changes_without(specs: Sequence[TokenCursor], left_out: Collection[int]) -> bool:
    """Whether specifications other than these, hints and RENAME TO are left."""
    names = ("COLUMN", "INDEX", "KEY")
    others = (spec for number, spec in enumerate(specs) if number not in left_out and spec.tokens[0].word not in HINTS)
    return any(spec.peek() != "RENAME" or spec.peek(1) in names for spec in others)


def _options(tokens: Sequence[Token]) -> Iterator[tuple[int, int]]:
    """Yield the first token of each option about the engine, and the one after its last."""
    position = 0
    while position < len(tokens):
        words = next((w for w in ENGINES if tuple(t.word for t in tokens[position : position + len(w)]) == w), None)
        if words is None:
            position += 1
            continue
        last = position + len(words)
        last += last < len(tokens) and tokens[last].word == "="
        if last < len(tokens) and tokens[last].word == "(":
            last = next((n for n in range(last, len(tokens)) if tokens[n].word == ")"), last)
        yield position, last + 1
        position = last + 1
