"""Splits an ALTER TABLE with several changes into statements with one change each, for a target that refuses the whole.

TiDB checks every change of a statement against the table as it was before the statement. So it refuses a change that
depends on another one, and a column that is added with its own unique key. Each statement is cut out of the text:

| the statement | becomes |
|---|---|
| `ALTER TABLE t ADD a INT, ADD KEY (a)` | `ALTER TABLE t ADD a INT`; `ALTER TABLE t ADD KEY (a)` |
| `ALTER TABLE t ADD (a INT, KEY k (a))` | `ALTER TABLE t ADD a INT`; `ALTER TABLE t ADD KEY k (a)` |
| `ALTER TABLE t ADD a INT UNIQUE FIRST` | `ALTER TABLE t ADD a INT FIRST`; `ALTER TABLE t ADD UNIQUE KEY (a)` |
| `…, ALGORITHM=INPLACE, LOCK=NONE` | these are omitted: they change nothing |
| `… RENAME COLUMN a TO b, RENAME COLUMN b TO a` | `… a TO _unshard_0`; `… b TO a`; `… _unshard_0 TO b` |

The single statements together have the same effect as the whole, except if a name changes its meaning inside the
statement. If the statement only renames columns (CHANGE included), they are renamed in an order in which each new name
is free. Else one of the single statements would create a column name twice, and the target refuses it. With IF EXISTS
the target would not refuse it. So a statement that adds a name and drops the same name with IF EXISTS is not split.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from unshard.core.ddl.statement import HINTS, TokenCursor, alter_specs
from unshard.core.sql.tokens import MARIADB, Token, outside, tokenize
from unshard.core.sql.words import ADDS_NO_COLUMN
from unshard.core.structures.parsedtable import items

BETWEEN = "_unshard_"
"""The beginning of a name that one of two columns has for a moment while they swap their names."""


def steps(text: str, sql_mode: int) -> tuple[str, ...]:
    """Return the single statements, in order; only the text if it cannot be split."""
    plain, tokens = tokenize(text, sql_mode, MARIADB)
    specs = [spec for spec in alter_specs(plain, tokens) if spec.peek() not in HINTS]
    pieces = [piece for spec in specs for piece in _pieces(spec)]
    if len(pieces) < 2 or _drops_what_it_adds(specs):
        return (text,)
    head = plain[: alter_specs(plain, tokens)[0].tokens[0].start]
    renames = [_rename(spec) for spec in specs]
    if all(renames):
        pieces = [*_in_turn([each for each in renames if each])]
    return tuple(head + piece for piece in pieces)


@dataclass(frozen=True, slots=True)
class _Rename:
    """A specification that gives a column another name: its text around the old name."""

    before: str
    old: Token
    after: str
    new: Token

    @property
    def text(self) -> str:
        return f"{self.before}{self.old.raw}{self.after}"


def _rename(spec: TokenCursor) -> _Rename | None:
    cursor = TokenCursor(spec.text, spec.tokens, spec.schema)
    if cursor.eat("RENAME", "COLUMN"):
        cursor.eat("IF", "EXISTS")
        old, _, new = cursor.name(), cursor.eat("TO"), cursor.name()
    elif cursor.eat("CHANGE"):
        cursor.eat("COLUMN")
        cursor.eat("IF", "EXISTS")
        old, new = cursor.name(), cursor.name()
    else:
        return None
    first, last = spec.tokens[0], spec.tokens[-1]
    return _Rename(spec.text[first.start : old.start], old, spec.text[old.end : last.end], new)


def _in_turn(renames: list[_Rename]) -> Iterator[str]:
    """Yield the renames in an order in which each new name is free; the first of a cycle gets a name in between."""
    left = list(renames)
    while left:
        names = {each.old.name.lower() for each in left}
        free = next((each for each in left if each.new.name.lower() not in names - {each.old.name.lower()}), None)
        if free is None:
            first, between = left[0], f"{BETWEEN}{len(renames) - len(left)}"
            yield f"RENAME COLUMN {first.old.raw} TO {between}"
            left[0] = replace(first, old=replace(first.old, name=between, raw=between))
        else:
            yield free.text
            left.remove(free)


def _pieces(spec: TokenCursor) -> Iterator[str]:
    tokens = spec.tokens
    columns = TokenCursor(spec.text, tokens, spec.schema)
    if columns.eat("ADD"):
        columns.eat("COLUMN")
    has_condition = columns.eat("IF", "NOT", "EXISTS")
    if columns.position == 0 or (has_condition and columns.peek() != "("):
        yield spec.text[tokens[0].start : tokens[-1].end]
        return
    head = spec.text[tokens[0].start : tokens[columns.position].start].rstrip()
    is_list = columns.peek() == "("
    for item in [item for _, item in items(tokens[columns.position :])] if is_list else [tokens[columns.position :]]:
        if item[0].word in ADDS_NO_COLUMN:
            yield f"ADD {spec.text[item[0].start : item[-1].end]}"
        elif has_condition:
            yield f"{head} {spec.text[item[0].start : item[-1].end]}"
        else:
            yield from _column(head, spec.text, item)


def _column(head: str, text: str, tokens: Sequence[Token]) -> Iterator[str]:
    at = next((position for position in outside(tokens, "UNIQUE") if position), None)
    if at is None:
        yield f"{head} {text[tokens[0].start : tokens[-1].end]}"
        return
    after = tokens[at + 1 :]
    after = after[1:] if after and after[0].word == "KEY" else after
    definition = text[tokens[0].start : tokens[at - 1].end]
    yield " ".join((head, definition, *([text[after[0].start : after[-1].end]] if after else [])))
    yield f"ADD UNIQUE KEY ({tokens[0].raw})"


def _drops_what_it_adds(specs: list[TokenCursor]) -> bool:
    added, dropped = set(), set()
    for spec in specs:
        names = {token.name.lower() for token in spec.tokens if not token.word or token.word.isidentifier()}
        words = [token.word for token in spec.tokens[:4]]
        if words[:1] == ["ADD"]:
            added |= names - {"add", "column", "index", "key", "if", "not", "exists"}
        elif words[:1] == ["DROP"] and "IF" in words:
            dropped.add(spec.tokens[-1].name.lower())
    return bool(added & dropped)
