"""Maps the columns of a shard that misses DDLs which its target already has.

A forced lock changes the target before all shards have the DDL. Until such a shard runs the DDL, its rows have the
old columns. In the target they must look as they will after the shard's own DDL:

| the DDL                          | the shard's values                                                              |
|----------------------------------|---------------------------------------------------------------------------------|
| DROP COLUMN c                    | are dropped                                                                     |
| RENAME COLUMN a TO b, CHANGE a b | are written to b                                                                |
| DROP COLUMN c, ADD COLUMN c …    | are dropped: the new c is another column, also if a later DDL adds it           |
| ADD COLUMN c … with a default    | do not exist: the target's default, or NULL if there is no default              |
| ADD COLUMN c … NOT NULL          | do not exist: the value that ALTER TABLE gives to old rows: 0, '', the first    |
|                                  | label of an ENUM                                                                |
| MODIFY, CHANGE, CONVERT TO       | are converted; an error if the target's type cannot hold a value unchanged      |
| a column joins the key           | do not exist: rows are found by its default; an error if it is not a constant   |
| a column leaves the key          | are dropped with the column; rows that have the same key then collide           |
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from unshard.core.sql.tokens import MARIADB, tokenize

if TYPE_CHECKING:
    from unshard.core.ddl.statement import TokenCursor


@dataclass(frozen=True, slots=True)
class ExecutedDdl:
    """A statement that ran on the target and has not run on a shard."""

    text: str
    sql_mode: int
    time_zone: str = ""
    """Of its session; empty: that of the target's own statements."""
    timestamp: int = 0
    """Seconds since the epoch, UTC."""


def names_after(names: Iterable[str], ran: Sequence[ExecutedDdl]) -> dict[str, str]:
    """Return the name of each column of a shard after the statements, in lower case, without dropped columns."""
    found = {name.lower(): name.lower() for name in names}
    for each in ran:
        found = names_moved(found, _moves(each))
    return found


def names_moved(names: Mapping[str, str], moves: Mapping[str, str | None]) -> dict[str, str]:
    """Return the names of columns after a statement that renames these, or drops them (None).

    If another column has got the name of a column, that one is younger than the statements: the target had no second
    column with this name.
    """
    taken = {name for old, name in names.items() if old != name}
    found = {old: name if old == name and name in taken else moves.get(name, name) for old, name in names.items()}
    return {old: name for old, name in found.items() if name is not None}


def filled_names(names: Iterable[str], ran: Sequence[ExecutedDdl]) -> frozenset[str]:
    """Return the columns of a target that are filled for a shard, in lower case: its own, and those that `ran` names.

    A column that a statement adds gets its default in old rows. The result may also contain other words of `ran`.
    """
    words = (token.name.lower() for each in ran for token in tokenize(each.text, each.sql_mode, MARIADB)[1])
    return frozenset((*names_after(names, ran).values(), *words))


@lru_cache(1024)
def _moves(ran: ExecutedDdl) -> Mapping[str, str | None]:
    return dict(move for spec in specs_of_alter(ran) if (move := _move(spec)))


def specs_of_alter(ran: ExecutedDdl) -> "Iterator[TokenCursor]":
    """Yield the specifications of an ALTER TABLE; nothing for another statement."""
    from unshard.core.ddl.statement import alter_specs  # commands that show state do not need it

    yield from alter_specs(*tokenize(ran.text, ran.sql_mode, MARIADB))


def _move(spec: "TokenCursor") -> tuple[str, str | None] | None:
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
"""Words that may follow DROP instead of a column name; a column with such a name must be quoted."""


def _name(spec: "TokenCursor") -> str:
    return spec.name().name.lower()
