"""An ALTER TABLE with several changes as statements with one change each, for a target that does not take it whole.

TiDB checks every change of a statement against the table as it was before the statement. So it refuses a change that
relies on another one. Each statement here is cut out of the original text, which is never written anew:

| the statement | becomes |
|---|---|
| `ALTER TABLE t ADD a INT, ADD KEY (a)` | `ALTER TABLE t ADD a INT`; `ALTER TABLE t ADD KEY (a)` |
| `ALTER TABLE t ADD (a INT, KEY k (a))` | `ALTER TABLE t ADD a INT`; `ALTER TABLE t ADD KEY k (a)` |
| `…, ALGORITHM=INPLACE, LOCK=NONE` | these are left out: they change nothing |

One after another means the same as all at once, except where a name changes its meaning inside the statement
(`RENAME COLUMN a TO b, RENAME COLUMN b TO a`). Then one of the statements has the name of a column twice, and the
target refuses it. With IF EXISTS it would not, so a statement that adds and drops the same name so stays whole.
"""

from collections.abc import Iterator

from unshard.core.ddlcreate import items
from unshard.core.ddlgrammar import HINTS, Words, alter_specs
from unshard.core.ddltokens import MARIADB, tokenize
from unshard.core.ddlwords import ADDS_NO_COLUMN


def steps(text: str, sql_mode: int) -> tuple[str, ...]:
    """Return the statements, in order; the text alone if it cannot be split."""
    plain, tokens = tokenize(text, sql_mode, MARIADB)
    specs = [spec for spec in alter_specs(plain, tokens) if spec.peek() not in HINTS]
    pieces = [piece for spec in specs for piece in _pieces(spec)]
    if len(pieces) < 2 or _drops_what_it_adds(specs):
        return (text,)
    head = plain[: alter_specs(plain, tokens)[0].tokens[0].start]
    return tuple(head + piece for piece in pieces)


def _pieces(spec: Words) -> Iterator[str]:
    tokens = spec.tokens
    columns = Words(spec.text, tokens, spec.schema)
    if columns.eat("ADD"):
        columns.eat("COLUMN")
        columns.eat("IF", "NOT", "EXISTS")
    if columns.position == 0 or columns.peek() != "(":
        yield spec.text[tokens[0].start : tokens[-1].end]
        return
    head = spec.text[tokens[0].start : tokens[columns.position].start]
    for _, item in items(tokens[columns.position :]):
        before = "ADD " if item[0].word in ADDS_NO_COLUMN else f"{head.rstrip()} "
        yield before + spec.text[item[0].start : item[-1].end]


def _drops_what_it_adds(specs: list[Words]) -> bool:
    """Whether the statement adds a name and drops it IF EXISTS."""
    added, dropped = set(), set()
    for spec in specs:
        names = {token.name.lower() for token in spec.tokens if not token.word or token.word.isidentifier()}
        words = [token.word for token in spec.tokens[:4]]
        if words[:1] == ["ADD"]:
            added |= names - {"add", "column", "index", "key", "if", "not", "exists"}
        elif words[:1] == ["DROP"] and "IF" in words:
            dropped.add(spec.tokens[-1].name.lower())
    return bool(added & dropped)
