"""Where the values of a shard's row go in the target, by the ids of the columns.

| the target's column is               | INSERT writes  | UPDATE writes  |
|--------------------------------------|----------------|----------------|
| a column of the shard                | its value      | its value      |
| one that the shard lacks             | the fill       | nothing        |
| generated                            | nothing        | nothing        |
"""

from dataclasses import dataclass

from unshard.core.join.difference import Target
from unshard.core.join.group import Group
from unshard.core.join.tables import NULL
from unshard.core.model import Shard


@dataclass(frozen=True, slots=True)
class Place:
    """A column of the target, in lower case, and the origin of its value."""

    target_column: str
    shard_column: str
    """In lower case; empty if the shard lacks the column."""
    fill: str = ""
    """An SQL literal for the rows of a shard that lacks the column; empty: the implicit value of its type."""


def places(group: Group, target: Target, shard: Shard) -> tuple[Place, ...]:
    """Return the places of a shard's values in the order of ids; raises KeyError for a column that the target lacks."""
    own = group.members[shard].names
    missing = [name for id, name in own.items() if id not in target.names]
    if missing:
        raise KeyError(*missing)
    found = []
    for id, definition in sorted(target.table.columns.items()):
        if definition is not None and not definition.is_generated and id in target.names:
            fill = "" if id in own else group.columns[id].fill
            fill = "" if fill == NULL and not definition.nullable else fill
            found.append(Place(target.names[id], own.get(id, ""), fill))
    return tuple(found)
