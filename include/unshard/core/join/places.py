"""Where the values of a shard's row go in the target, by the ids of the columns.

| the target's column is                      | a written row gets                                                |
|---------------------------------------------|-------------------------------------------------------------------|
| a column of the shard                       | its value                                                         |
| one that the shard lacks                    | the fill, which is what ADD COLUMN gave to the shard's old rows    |
| one that the shard has dropped              | the same: the column is read again if the shard gets it back      |
| generated, or a column without an id        | nothing                                                           |

A changed row is written as a whole. Rows that do not change keep the values of a column that their shard has dropped.

| the shard's column                          | its values                                                        |
|---------------------------------------------|-------------------------------------------------------------------|
| has an id that the target has               | are written                                                       |
| has an id that the target lacks             | an error: the target must be expanded first                       |
| has no id                                   | are left out: DDLs were accepted together, and the column is read |
|                                             | again (core.join.decision)                                        |
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from unshard.core.join.difference import Target, target_of
from unshard.core.join.tables import NULL
from unshard.core.model import Shard, TableSchema, text_of


@dataclass(frozen=True, slots=True)
class Place:
    """A column of the target, in lower case, and the origin of its value."""

    target_column: str
    shard_column: str
    """In lower case; empty if the shard lacks the column."""
    fill: str = ""
    """An SQL literal for the rows of a shard that lacks the column; empty: the implicit value of its type."""


@dataclass(frozen=True, slots=True)
class RowIds:
    """The ids of the columns of a shard's rows after one of its DDLs."""

    seq: int
    """Number of the DDL in the queue of the shard; 0: the structure with which it has joined."""
    structure: str
    """Digest of the structure after it."""
    ids: Mapping[str, int]


@dataclass(frozen=True)
class JoinedRows:
    """How the rows of all shards go into one target; the same for every row as long as the version is the same."""

    version: int
    names: Mapping[int, str]
    """The target's names of the ids, in lower case."""
    fills: Mapping[int, str]
    history: Mapping[Shard, Sequence[RowIds]]
    """The columns of each shard after each of its accepted DDLs, in order."""
    filtered: frozenset[Shard] = frozenset()
    """Shards whose other columns come from a DDL that filters ignore: their values are left out."""

    @property
    def filled(self) -> frozenset[str]:
        """Return the target's columns that get a value for every row of a shard, in lower case."""
        return frozenset(self.names.values())

    def of_rows(self, shard: Shard, seq: int | None) -> RowIds | None:
        """Return the ids of rows that were written after DDL number `seq`; None for a shard that has not joined.

        Without a number they are rows from the binlog: the shard has no DDL that is not accepted.
        """
        found = self.history.get(shard, ())
        earlier = [each for each in found if seq is None or each.seq <= seq]
        return (*found[:1], *earlier)[-1] if found else None

    def places(self, shard: Shard, seq: int | None, structure: TableSchema, target: TableSchema) -> tuple[Place, ...]:
        """Return the places of rows of a structure; raises KeyError for columns that have no place in the target."""
        rows = self.of_rows(shard, seq)
        if rows is None:
            raise KeyError(*structure.names)
        names = structure.by_name
        # The columns may be shown otherwise than stored (core.structures.hiddencolumns), the text is the same.
        is_same = text_of(rows.structure) == text_of(structure.digest)
        is_known = is_same or shard in self.filtered
        if not is_known and (unknown := [name for name in names if name not in rows.ids]):
            raise KeyError(*unknown)
        ids = {name: rows.ids[name] for name in names if name in rows.ids}
        return places_of(ids, self.fills, target_of(target, self.names))


def places_of(ids: Mapping[str, int], fills: Mapping[int, str], target: Target) -> tuple[Place, ...]:
    """Return the places of columns by their ids; raises KeyError for columns that the target lacks."""
    own = {id: name for name, id in ids.items()}
    missing = [name for id, name in own.items() if id not in target.names]
    if missing:
        raise KeyError(*missing)
    found = []
    for id, definition in sorted(target.table.columns.items()):
        if definition is not None and not definition.is_generated and id in target.names:
            fill = "" if id in own else fills.get(id, NULL)
            fill = "" if fill == NULL and not definition.nullable else fill
            found.append(Place(target.names[id], own.get(id, ""), fill))
    return tuple(found)
