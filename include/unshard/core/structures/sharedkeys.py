"""Which shards of a target could have a row with the same value of one of the target's unique keys."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from unshard.core.model import Index, Shard, TableSchema
from unshard.core.structures.filledkeys import as_filled


@dataclass(frozen=True, slots=True)
class SharedKey:
    """Columns of a unique key of the target, and shards whose rows collide if they have equal values in them."""

    columns: tuple[str, ...]
    """Without the columns that routes extract: they have equal values for all these shards."""
    shards: tuple[Shard, ...]


def shared_keys(
    target: TableSchema,
    shards: Mapping[Shard, TableSchema],
    constants: Mapping[Shard, Mapping[str, str]],
    mapped: Collection[str],
) -> tuple[SharedKey, ...]:
    """Return the keys to compare, each with at least two shards that have an index for it.

    `constants` are the extracted values by lower-case column. Keys with a `mapped` column are left out: their values
    are not those of the shards.
    """
    filled = {name.lower() for schema in shards.values() for name in schema.names}
    filled |= {name for values in constants.values() for name in values}
    groups: dict[tuple[tuple[str, ...], tuple[tuple[str, str], ...]], list[Shard]] = {}
    for index in as_filled(target, filled).unique_indexes:
        names = [name.lower() for name in index.columns]
        for shard, schema in shards.items():
            values = constants.get(shard, {})
            columns = tuple(name for name in names if name not in values)
            if not {*names} & {*mapped} and leading_index(schema, columns) is not None:
                same = tuple((name, values[name]) for name in names if name in values)
                groups.setdefault((columns, same), []).append(shard)
    return tuple(SharedKey(columns, tuple(some)) for (columns, _), some in groups.items() if len(some) > 1)


def leading_index(schema: TableSchema, columns: Collection[str]) -> Index | None:
    """Return an index of the shard that begins with one of the columns; None if the shard lacks one of them."""
    if not columns or not {name.lower() for name in schema.names}.issuperset(columns):
        return None
    found = [index for index in schema.indexes if index.columns[0].lower() in columns and not index.prefixed]
    return min(found, key=lambda index: (not index.unique, index.name != "PRIMARY"), default=None)


def may_share_key(target: TableSchema, key: Collection[str]) -> bool:
    """Whether a unique key of the target consists of these columns only, so that no other column separates shards."""
    own = {name.lower() for name in key}
    return any(own.issuperset(name.lower() for name in index.columns) for index in target.unique_indexes)
