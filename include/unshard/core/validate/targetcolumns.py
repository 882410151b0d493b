"""The columns of a shard in the target, while the target has DDL that the shard has not reached."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from unshard.core.model import TableSchema
from unshard.core.rows.columnnames import NO_NAMES, Names, carried
from unshard.core.rows.lineage import ExecutedDdl, names_after


@dataclass(frozen=True, slots=True)
class TargetColumns:
    """The columns of a shard that have another name in the target, and those that the target has dropped."""

    names: Names
    dropped: frozenset[str]
    """The shard's own names, in lower case."""


ALL_AS_THEY_ARE = TargetColumns(NO_NAMES, frozenset())


def target_columns(present: TableSchema, applied: TableSchema, missing: Sequence[ExecutedDdl]) -> TargetColumns:
    """Return where the values of a shard are in the target.

    `present` is the structure that the source shows now, `applied` the one of the newest applied rows, and `missing`
    the DDL that the target has and the shard does not have.
    """
    after = names_after(applied.names, missing)
    names: dict[str, str] = {}
    dropped: set[str] = set()
    for column in applied.columns:
        own, new = (column.own_name or column.name).lower(), after.get(column.name.lower())
        if new is None:
            dropped.add(own)
        elif own != new:
            names[own] = column.name if column.name.lower() == new else new
    gone = frozenset(dropped.intersection(map(str.lower, present.names)))
    return TargetColumns(carried(without_columns(present, gone), names), gone)


def without_columns(schema: TableSchema, dropped: Collection[str]) -> TableSchema:
    """Return the structure without these columns, which are in lower case, and without their indexes."""
    if not dropped:
        return schema
    return replace(
        schema,
        columns=tuple(each for each in schema.columns if each.name.lower() not in dropped),
        indexes=tuple(each for each in schema.indexes if not each.names & {*dropped}),
    )
