"""Changes of shard names: the net effect of a rename statement, and the name of a dropped shard that still waits.

All state of a shard is stored under its name, and a new table may take the name of a dropped one. So a shard that is
dropped while DDL or rows of it wait is renamed in our state, to a name that no table has in practice.
"""

from collections.abc import Iterable, Mapping

from unshard.core.model import Location, TableId

DROPPED = " (dropped at "


def net_renames(pairs: Iterable[tuple[TableId, TableId]]) -> dict[TableId, TableId]:
    """Return the new name of each table by its old name; each pair applies to the result of the pairs before it.

    `a TO x, b TO a, x TO b` is a swap of a and b. A table that gets its own name back is not in the result.
    """
    origins: dict[TableId, TableId] = {}
    for old, new in pairs:
        origins[new] = origins.pop(old, old)
    return dict(sorted((origin, name) for name, origin in origins.items() if origin != name))


def in_turn(moved: Mapping[TableId, TableId]) -> list[tuple[TableId, TableId]]:
    """Return the renames in an order in which each new name is free; those of a cycle of names are left out."""
    left, found = dict(moved), []
    while free := [old for old, new in left.items() if new not in left]:
        found += [(old, left.pop(old)) for old in free]
    return found


def cycles(moved: Mapping[TableId, TableId]) -> list[list[tuple[TableId, TableId]]]:
    """Return the renames of each cycle of names: the first frees a name for the second, and so on."""
    turns = {old for old, _ in in_turn(moved)}
    olds = {new: old for old, new in moved.items() if old not in turns}
    found = []
    while olds:
        new = min(olds)
        cycle = [(new, moved[new])]
        while (old := olds.pop(new)) != cycle[0][0]:
            cycle.append((old, new))
            new = old
        found.append(cycle)
    return found


def name_of_dropped(table: TableId, location: Location) -> TableId:
    """Return the name of a shard that was dropped at `location`, under which its DDL and rows wait."""
    number = ".".join(map(str, location.order[1 if location.generation == 0 else 0 : 2]))
    return TableId(table.schema, f"{table.name}{DROPPED}{number}:{location.position})")


def name_upstream(table: TableId) -> TableId:
    """Return the name of a shard upstream; for a dropped shard, the name that it had."""
    name, separator, _ = table.name.rpartition(DROPPED)
    return TableId(table.schema, name) if separator else table
