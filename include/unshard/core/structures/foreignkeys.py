"""Foreign keys: which target tables they connect, and the foreign keys that a target gets from its shards.

Rows of connected tables are written in the order of the binlog, in common transactions: parents come first on insert
and last on delete there, because the source has enforced the same foreign keys. Without compaction there is also an
order for cycles, rows that reference their own table, and rows that are deleted and inserted again.
"""

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from unshard.core.model import TableId, TableSchema, lowered
from unshard.core.sql.quoting import identifier, qualified
from unshard.core.structures.constraintnames import made_end

NO_ACTION = frozenset({"RESTRICT", "NO ACTION", ""})
NUMBERED = re.compile(r"_ibfk_(\d+)\Z", re.IGNORECASE)
"""The end of a name that the server has made from the name of the table."""


@dataclass(frozen=True, slots=True, order=True)
class ForeignKey:
    """A foreign key: rows of `child` reference rows of `parent`."""

    child: TableId
    columns: tuple[str, ...]
    parent: TableId
    parent_columns: tuple[str, ...]
    name: str
    on_delete: str = "RESTRICT"
    on_update: str = "RESTRICT"

    @property
    def cascades(self) -> tuple[str, ...]:
        """The actions that change rows of the child: no binlog has these changes."""
        actions = (("ON DELETE", self.on_delete), ("ON UPDATE", self.on_update))
        return tuple(f"{when} {action}" for when, action in actions if action not in NO_ACTION)

    def is_like(self, other: "ForeignKey") -> bool:
        """Whether both are the same except for their names; servers print RESTRICT and NO ACTION differently."""
        return self._rule == other._rule

    @property
    def _rule(self) -> tuple[object, ...]:
        return self.child, lowered(self.columns), self.parent, lowered(self.parent_columns), self.cascades

    @property
    def clause(self) -> str:
        columns, parents = (", ".join(map(identifier, names)) for names in (self.columns, self.parent_columns))
        actions = "".join(f" {each}" for each in self.cascades)
        parent = qualified(self.parent.schema, self.parent.name)
        return f"CONSTRAINT {identifier(self.name)} FOREIGN KEY ({columns}) REFERENCES {parent} ({parents}){actions}"

    def __str__(self) -> str:
        actions = "".join(f" {each}" for each in self.cascades)
        columns, parents = ", ".join(self.columns), ", ".join(self.parent_columns)
        return f"{self.child} ({columns}) references {self.parent} ({parents}){actions}"


def groups_of(
    tables: Iterable[TableId], keys: Collection[ForeignKey], together: Iterable[Sequence[TableId]] = ()
) -> tuple[tuple[TableId, ...], ...]:
    """Return the tables that have or are named by foreign keys, in groups that foreign keys or `together` connect."""
    leaders: dict[TableId, TableId] = {}

    def leader(table: TableId) -> TableId:
        while (next_table := leaders.setdefault(table, table)) != table:
            table = next_table
        return table

    pairs = [(key.child, key.parent) for key in keys]
    pairs += [(table, group[0]) for group in together for table in group]
    for pair in pairs:
        first, second = sorted(map(leader, pair))
        leaders[second] = first
    found: dict[TableId, list[TableId]] = {}
    for table in sorted(set(tables) & leaders.keys()):
        found.setdefault(leader(table), []).append(table)
    return tuple(tuple(group) for group in found.values())


def connected(tables: Collection[TableId], keys: Collection[ForeignKey]) -> frozenset[TableId]:
    """Return the tables, and all others that foreign keys connect with them."""
    everything = {table for key in keys for table in (key.child, key.parent)}
    groups = groups_of(everything, keys)
    return frozenset(tables).union(*(group for group in groups if not frozenset(group).isdisjoint(tables)))


def routed(
    keys: Iterable[ForeignKey], target_of: Callable[[TableId], TableId | None]
) -> tuple[tuple[ForeignKey, ...], tuple[ForeignKey, ...]]:
    """Return the foreign keys with the names of the targets, and those whose parent is not in the task."""
    made, left = list[ForeignKey](), list[ForeignKey]()
    for key in sorted(keys):
        child, parent = target_of(key.child), target_of(key.parent)
        if child is not None and parent is not None:
            end = made_end(key.name, key.child.name)
            name = child.name + end if end else key.name
            if any(each.name.lower() == name.lower() for each in made):
                name = key.name
            made += without_like([replace(key, child=child, parent=parent, name=name)], made)
        elif child is not None:
            left.append(key)
    return tuple(made), tuple(left)


def is_indexed(key: ForeignKey, child: TableSchema) -> bool:
    """Whether an index of the child begins with the columns of the foreign key; every server requires that."""
    return any(lowered(index.columns[: len(key.columns)]) == lowered(key.columns) for index in child.indexes)


def automatic_name(table: TableId, number: int) -> str:
    """Return the name that the server gives to a foreign key without a name."""
    return f"{table.name}_ibfk_{number}"


def with_foreign_keys(text: str, keys: Iterable[ForeignKey]) -> str:
    """Return the text of a CREATE TABLE that SHOW CREATE TABLE printed, with these foreign keys."""
    end = text.rindex("\n)")
    return text[:end] + "".join(f",\n  {key.clause}" for key in keys) + text[end:]


def without_like(keys: Iterable[ForeignKey], others: Collection[ForeignKey]) -> tuple[ForeignKey, ...]:
    """Return the foreign keys that none of the others equals."""
    return tuple(key for key in keys if not any(key.is_like(other) for other in others))
