"""Names of shards that change: what a statement does in all, and where a dropped shard goes that still waits.

All that is kept of a shard is kept under its name, so a name is free again as soon as its shard has left it: a
shard that is dropped while DDL or rows of it wait is put aside under a name that no table can have in practice.
"""

from collections.abc import Iterable

from unshard.core.model import Location, TableId

ASIDE = " (dropped at "


def net_renames(pairs: Iterable[tuple[TableId, TableId]]) -> dict[TableId, TableId]:
    """Return the last name of each table by its first one; each pair sees what the ones before it did.

    So `a TO x, b TO a, x TO b` is a swap of a and b; a table that gets its own name back is left out.
    """
    origins: dict[TableId, TableId] = {}
    for old, new in pairs:
        origins[new] = origins.pop(old, old)
    return dict(sorted((origin, name) for name, origin in origins.items() if origin != name))


def name_aside(table: TableId, location: Location) -> TableId:
    """Return the name under which a shard that was dropped at `location` waits for the rest of its DDL and rows."""
    number = ".".join(map(str, location.order[1 if location.generation == 0 else 0 : 2]))
    return TableId(table.schema, f"{table.name}{ASIDE}{number}:{location.position})")


def name_upstream(table: TableId) -> TableId:
    """Return the name that a shard had when it was dropped, or has."""
    name, aside, _ = table.name.rpartition(ASIDE)
    return TableId(table.schema, name) if aside else table
