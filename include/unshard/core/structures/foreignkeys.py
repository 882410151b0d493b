"""Foreign keys: which target tables they connect, and the foreign keys that a target gets from its shards.

Rows of connected tables are written in the order of the binlog, in one transaction: parents come first on insert and
last on delete there, because the source has enforced the same foreign keys. Without compaction there is also an order
for cycles, rows that reference their own table, and rows that are deleted and inserted again.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace

from unshard.core.model import TableId
from unshard.core.sql.quoting import identifier, qualified

NO_ACTION = frozenset({"RESTRICT", "NO ACTION", ""})


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
        """All but the name, with names in lower case."""
        columns, parents = ([name.lower() for name in names] for names in (self.columns, self.parent_columns))
        return self.child, columns, self.parent, parents, self.cascades

    @property
    def clause(self) -> str:
        """The clause of CREATE TABLE or ALTER TABLE … ADD."""
        columns, parents = (", ".join(map(identifier, names)) for names in (self.columns, self.parent_columns))
        actions = "".join(f" {each}" for each in self.cascades)
        parent = qualified(self.parent.schema, self.parent.name)
        return f"CONSTRAINT {identifier(self.name)} FOREIGN KEY ({columns}) REFERENCES {parent} ({parents}){actions}"

    def __str__(self) -> str:
        actions = "".join(f" {each}" for each in self.cascades)
        columns, parents = ", ".join(self.columns), ", ".join(self.parent_columns)
        return f"{self.child} ({columns}) references {self.parent} ({parents}){actions}"


def groups_of(tables: Iterable[TableId], keys: Collection[ForeignKey]) -> tuple[tuple[TableId, ...], ...]:
    """Return the tables that have or are named by foreign keys, in groups that foreign keys connect."""
    leaders: dict[TableId, TableId] = {}

    def leader(table: TableId) -> TableId:
        while (next_table := leaders.setdefault(table, table)) != table:
            table = next_table
        return table

    for key in keys:
        first, second = sorted((leader(key.child), leader(key.parent)))
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
            made += without_like([replace(key, child=child, parent=parent)], made)
        elif child is not None:
            left.append(key)
    return tuple(made), tuple(left)


def with_foreign_keys(text: str, keys: Iterable[ForeignKey]) -> str:
    """Return the text of a CREATE TABLE that SHOW CREATE TABLE printed, with these foreign keys."""
    end = text.rindex("\n)")
    return text[:end] + "".join(f",\n  {key.clause}" for key in keys) + text[end:]


def without_like(keys: Iterable[ForeignKey], others: Collection[ForeignKey]) -> tuple[ForeignKey, ...]:
    """Return the foreign keys that none of the others equals."""
    return tuple(key for key in keys if not any(key.is_like(other) for other in others))
