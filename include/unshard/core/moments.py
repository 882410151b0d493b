"""New columns whose old rows each server fills with a value of its own, in the moment of its DDL.

A shard's rows get the shard's value and the target's rows the owner's, so behind such a DDL the target is not the union
of its shards. Which rows of the target are whose is not known, so nobody but the shards can mend it.

| the column                                        | its old rows get                              |
|---------------------------------------------------|-----------------------------------------------|
| DEFAULT CURRENT_TIMESTAMP, UUID(), RAND(), …      | the value of the moment, or of each row       |
| TIMESTAMP without a default, in the old manner    | the moment too                                |
| AUTO_INCREMENT, SERIAL, DEFAULT NEXT VALUE FOR …  | numbers in an order that is the server's own  |
"""

from collections.abc import Iterator, Sequence

from unshard.core.ddlgrammar import Words
from unshard.core.ddltokens import Token
from unshard.core.ddlwords import ADDS_NO_COLUMN, OWN_VALUES
from unshard.core.lineage import Ran, specs_of_alter
from unshard.errors.ddl import DdlUnreadable

ENDS = frozenset({"ON", "CHECK", "CONSTRAINT"})
"""What may follow a default and hold words of the same kind."""


def filled_by_each(ran: Ran, explicit_timestamps: bool = True) -> tuple[str, ...]:
    """Return the columns that a statement adds and whose old rows differ from server to server."""
    try:
        return tuple(
            definition[0].name
            for spec in specs_of_alter(ran)
            for definition in _added(spec)
            if _is_own(definition[1:], explicit_timestamps)
        )
    except DdlUnreadable:
        return ()


def _added(spec: Words) -> Iterator[Sequence[Token]]:
    """Yield the definitions of ADD COLUMN, one or several in parentheses, each with the column's name first."""
    if not spec.eat("ADD"):
        return
    if not spec.eat("COLUMN") and spec.peek() in ADDS_NO_COLUMN:
        return
    spec.eat("IF", "NOT", "EXISTS")
    if not spec.eat("("):
        yield spec.tokens[spec.position :]
        return
    begin, depth = spec.position, 1
    for place in range(begin, len(spec.tokens)):
        word = spec.tokens[place].word
        depth += (word == "(") - (word == ")")
        if (word == "," and depth == 1) or depth == 0:
            yield spec.tokens[begin:place]
            begin = place + 1


def _is_own(definition: Sequence[Token], explicit_timestamps: bool) -> bool:
    words = [token.word for token in definition]
    outside = [word for word, depth in zip(words, _depths(words), strict=True) if depth == 0]
    if {"AUTO_INCREMENT", "SERIAL"} & set(outside):
        return True
    if "DEFAULT" not in outside:
        is_plain = "NULL" not in outside or "NOT" in outside
        return not explicit_timestamps and words[:1] == ["TIMESTAMP"] and is_plain
    begin = next(place for place, depth in enumerate(_depths(words)) if depth == 0 and words[place] == "DEFAULT")
    ends = (place for place in range(begin, len(words)) if words[place] in ENDS)
    return bool(OWN_VALUES & set(words[begin : next(ends, None)]))


def _depths(words: Sequence[str]) -> list[int]:
    """Return how many parentheses are open at each word."""
    depths, depth = [], 0
    for word in words:
        depth += (word == "(") - (word == ")")
        depths.append(depth)
    return depths
