"""Checks of foreign keys: of the shards, and of a target that enforces its own. Runs in the driver."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing

from unshard.adapters import mysql, structures
from unshard.config import Connections, Task, resolve
from unshard.core.checks.items import Item, Severity, problem, shortened
from unshard.core.model import Shard, TableId
from unshard.core.structures.foreignkeys import ForeignKey, routed, without_like
from unshard.errors import UnshardError
from unshard.errors.checks import ForeignKeysLeft
from unshard.errors.foreignkeys import ForeignKeyLacking, ForeignKeyNotOfShards, ForeignKeysCascade

ITEM = "table_schema"


def problems_of_source(
    source: str, keys: Sequence[ForeignKey], *, are_checked: bool, are_logged: bool
) -> list[UnshardError]:
    """Return the warnings about the foreign keys of a source's shards; `are_logged`: the binlog has their changes."""
    found: list[UnshardError] = []
    if keys and not are_checked:
        tables = sorted({key.child for key in keys})
        found.append(ForeignKeysLeft(source, shortened([str(table) for table in tables])))
    if not are_logged and (cascades := [str(key) for key in keys if key.cascades]):
        found.append(ForeignKeysCascade(source, shortened(cascades)))
    return found


def foreign_key_items(
    task: Task,
    connections: Connections,
    groups: Mapping[TableId, Collection[Shard]],
    keys: Mapping[str, Sequence[ForeignKey]],
) -> list[Item]:
    """Compare the foreign keys of the target with those of the shards; `keys` has the latter for each source."""
    if not task.checks_foreign_keys or not groups:
        return []
    with closing(mysql.connect(resolve(task.target, connections), "target")) as connection:
        present = structures.read_foreign_keys(connection, groups)
        existing = structures.read_schemas(connection, sorted(groups)).keys()
    items: list[Item] = []
    for source, found in keys.items():
        made, left = routed(found, task.instance(source).routing.target_of)
        lacking = [*left, *without_like([key for key in made if key.child in existing], present)]
        if lacking:
            error = ForeignKeyLacking(source, shortened([str(key) for key in lacking]))
            items.append(problem(ITEM, f"source {source}", error, Severity.WARNING))
    return [*items, *_not_of_shards(task, groups, keys, present)]


def _not_of_shards(
    task: Task,
    groups: Mapping[TableId, Collection[Shard]],
    keys: Mapping[str, Sequence[ForeignKey]],
    present: Sequence[ForeignKey],
) -> Iterator[Item]:
    """Yield the foreign keys between targets that a shard does not have: the order of its rows may violate them."""
    for key in present:
        for shard in groups.get(key.child, ()) if key.parent in groups else ():
            own = [each for each in keys.get(shard.source, ()) if each.child == shard.table]
            if without_like([key], routed(own, task.instance(shard.source).routing.target_of)[0]):
                error = ForeignKeyNotOfShards(str(key.child), str(key), str(shard))
                yield problem("target_tables", f"target {key.child}", error)
                break
