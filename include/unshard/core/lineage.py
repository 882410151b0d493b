"""What becomes of the columns of a shard that is behind DDL which its target has had already.

A forced lock changes the target before all shards have the DDL. Until such a shard runs it, its rows still have the
old columns; what they must be in the target is what the shard's own DDL will make of them:

| the DDL                          | the shard's values                                                              |
|----------------------------------|---------------------------------------------------------------------------------|
| DROP COLUMN c                    | are let go                                                                      |
| RENAME COLUMN a TO b, CHANGE a b | go to b                                                                         |
| DROP COLUMN c, ADD COLUMN c …    | are let go: the new c is another column, also if a later DDL adds it            |
| ADD COLUMN c … with a default    | (none) get the target's default, NULL without one                               |
| ADD COLUMN c … NOT NULL          | (none) get what ALTER TABLE gives old rows: 0, '', the first label of an ENUM   |
| MODIFY, CHANGE, CONVERT TO       | are converted, or refused where the target's type cannot hold one as it is      |
| a column joins the key           | (none) rows are found by its default, refused if that is no constant            |
| a column leaves the key          | are let go if it is dropped; rows that are one key then collide                 |
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from unshard.core.ddlgrammar import Words, specs_of
from unshard.core.ddltokens import MARIADB, tokenize
from unshard.core.ddltypes import Role


@dataclass(frozen=True, slots=True)
class Ran:
    """A statement that the target has had and a shard has not."""

    text: str
    sql_mode: int


def names_behind(names: Iterable[str], ran: Sequence[Ran]) -> dict[str, str]:
    """Return what each column of a shard is called behind the statements, in lower case; without those let go."""
    found = {name.lower(): name.lower() for name in names}
    for each in ran:
        moves = _moves(each)
        moved = {old: moves.get(name, name) for old, name in found.items()}
        found = {old: name for old, name in moved.items() if name is not None}
    return found


def _moves(ran: Ran) -> dict[str, str | None]:
    """Return the columns that a statement renames or drops: all names are those of before it."""
    return dict(move for spec in specs_of_alter(ran) if (move := _move(spec)))


def specs_of_alter(ran: Ran) -> Iterator[Words]:
    """Yield the specifications of an ALTER TABLE; of another statement there are none."""
    plain, tokens = tokenize(ran.text, ran.sql_mode, MARIADB)
    words = Words(plain, tokens, "")
    if not words.eat("ALTER"):
        return
    words.eat_any("ONLINE", "OFFLINE")
    words.eat("IGNORE")
    if not words.eat("TABLE"):
        return
    words.eat("IF", "EXISTS")
    words.table(Role.SUBJECT)
    words.eat_patience()
    yield from specs_of(words)


def _move(spec: Words) -> tuple[str, str | None] | None:
    if spec.eat("RENAME", "COLUMN"):
        spec.eat("IF", "EXISTS")
        old = _name(spec)
        return (old, _name(spec)) if spec.eat("TO") else None
    if spec.eat("CHANGE"):
        spec.eat("COLUMN")
        spec.eat("IF", "EXISTS")
        return _name(spec), _name(spec)
    if spec.eat("DROP") and (spec.eat("COLUMN") or spec.peek() not in NO_COLUMNS):
        spec.eat("IF", "EXISTS")
        return _name(spec), None
    return None


NO_COLUMNS = frozenset({"INDEX", "KEY", "PRIMARY", "FOREIGN", "CONSTRAINT", "CHECK", "PARTITION", "SYSTEM", "PERIOD"})
"""What may follow DROP instead of a column's name; the names of columns that are such words are quoted."""


def _name(spec: Words) -> str:
    return spec.name().name.lower()
