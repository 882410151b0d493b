"""Finds new columns that each server fills with different values in existing rows.

The rows of a shard get values from the shard, the rows of the target get values from the target. So after such a DDL
the target is not the union of its shards. It is unknown which row of the target belongs to which shard, so only a
change on the shards can correct the values.

| the column                                        | values in existing rows                       |
|---------------------------------------------------|-----------------------------------------------|
| DEFAULT CURRENT_TIMESTAMP, UUID(), RAND(), …      | the time of the DDL, or a value for each row  |
| TIMESTAMP without a default, with                 | the time of the DDL                           |
| explicit_defaults_for_timestamp off               |                                               |
| AUTO_INCREMENT, SERIAL, DEFAULT NEXT VALUE FOR …  | numbers in the row order of the server        |
"""

from collections.abc import Iterator, Sequence

from unshard.core.ddl.grammar import TokenCursor
from unshard.core.rows.lineage import ExecutedDdl, specs_of_alter
from unshard.core.sql.tokens import Token
from unshard.core.sql.words import ADDS_NO_COLUMN, OWN_VALUES
from unshard.errors.ddl import DdlUnreadable

ENDS = frozenset({"ON", "CHECK", "CONSTRAINT"})
"""Words that end a default; the clauses after them may contain the same functions."""


def filled_by_each(ran: ExecutedDdl, explicit_timestamps: bool = True) -> tuple[str, ...]:
    """Return the columns that a statement adds and whose values in existing rows differ between servers."""
    try:
        return tuple(
            definition[0].name
            for spec in specs_of_alter(ran)
            for definition in added_columns(spec)
            if _is_own(definition[1:], explicit_timestamps)
        )
    except DdlUnreadable:
        return ()


def added_columns(spec: TokenCursor) -> Iterator[Sequence[Token]]:
    """Yield the column definitions of ADD COLUMN, one or several in parentheses; each begins with the name."""
    if not spec.eat("ADD"):
        return
    if not spec.eat("COLUMN") and spec.peek() in ADDS_NO_COLUMN:
        return
    spec.eat("IF", "NOT", "EXISTS")
    if not spec.eat("("):
        yield spec.tokens[spec.position :]
        return
    begin, depth = spec.position, 1
    for position in range(begin, len(spec.tokens)):
        word = spec.tokens[position].word
        depth += (word == "(") - (word == ")")
        if (word == "," and depth == 1) or depth == 0:
            yield spec.tokens[begin:position]
            begin = position + 1


def _is_own(definition: Sequence[Token], explicit_timestamps: bool) -> bool:
    words = [token.word for token in definition]
    outside = [word for word, depth in zip(words, _depths(words), strict=True) if depth == 0]
    if {"AUTO_INCREMENT", "SERIAL"} & set(outside):
        return True
    if "DEFAULT" not in outside:
        is_plain = "NULL" not in outside or "NOT" in outside
        return not explicit_timestamps and words[:1] == ["TIMESTAMP"] and is_plain
    begin = next(at for at, depth in enumerate(_depths(words)) if depth == 0 and words[at] == "DEFAULT")
    ends = (position for position in range(begin, len(words)) if words[position] in ENDS)
    return bool(OWN_VALUES & set(words[begin : next(ends, None)]))


def _depths(words: Sequence[str]) -> list[int]:
    """Return the number of open parentheses at each word."""
    depths, depth = [], 0
    for word in words:
        depth += (word == "(") - (word == ")")
        depths.append(depth)
    return depths
