"""The columns of a shard in the target, while the target has DDL that the shard has not reached.

The rows of a shard as they should be in a target that follows the join, for a comparison of the two by SQL.

| the target's column is                     | the shard's rows are compared with                                  |
|--------------------------------------------|---------------------------------------------------------------------|
| a column of the shard                      | its values, under the target's name                                 |
| one that the shard lacks                   | the fill                                                            |
| one that the shard has dropped, or whose   | nothing: the column is left out of the comparison                   |
| DDL or values are still on their way, or   |                                                                     |
| that the target has filled by its clock or |                                                                     |
| functions                                  |                                                                     |
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from unshard.core.ddl.columnnames import NO_NAMES, Names, carried, with_names
from unshard.core.ddl.lineage import ExecutedDdl, names_after
from unshard.core.join.difference import target_with_ids
from unshard.core.join.group import ColumnHistory, Member
from unshard.core.join.places import places_of
from unshard.core.model import Column, TableId, TableSchema
from unshard.core.rows.missingcolumns import filled_value
from unshard.core.rules.reshaping import ReshapedShard
from unshard.core.sql.literals import DECIMALS, literal
from unshard.core.sql.quoting import identifier, qualified

CAST = {"date": "DATE", "datetime": "DATETIME", "timestamp": "DATETIME", "time": "TIME"}


def compared_rows(
    table: TableId,
    structure: TableSchema,
    target: TableSchema,
    names: Mapping[int, str],
    member: Member,
    columns: Mapping[int, ColumnHistory],
) -> ReshapedShard:
    """Return the rows of a shard with the target's columns; `names` are the target's names of the ids in `columns`.

    A column of the shard without an id, because its DDL is not accepted yet, keeps its name. If the target has a column
    of this name, it is left out. While a target is changed, it may lack some of the names.
    """
    names = {id: name for id, name in names.items() if name.lower() in target.by_name}
    own = {name: member.ids[name] for name in (each.lower() for each in structure.names) if name in member.ids}
    own = {name: id for name, id in own.items() if id in names}
    filled_by_server = {id for id, column in columns.items() if column.is_filled_by_server}
    unsure = {reload.column for reload in member.reloads} | member.dropped | (filled_by_server - {*own.values()})
    own_only = {column.name.lower() for column in structure.columns} - own.keys()
    left_out = {names[id] for id in unsure if id in names} | own_only.intersection(names.values())
    known = ((column, own.get(column.name.lower())) for column in structure.columns)
    kept = tuple(
        column for column, id in known if id not in unsure and (id is not None or column.name.lower() not in left_out)
    )
    renamed = {name: names[id] for name, id in own.items() if names[id] != name}
    shown = [(column.name, renamed.get(column.name.lower(), column.name)) for column in kept]
    values = [f"{identifier(name)} AS {identifier(new)}" for name, new in shown]
    fills = {id: column.fill for id, column in columns.items()}
    places = places_of(own, fills, target_with_ids(target, names))
    fill = {each.target_column: each.fill for each in places if not each.shard_column}
    added = [column for column in target.columns if column.name.lower() in fill.keys() - left_out]
    values += [f"{_constant(column, fill[column.name.lower()])} AS {identifier(column.name)}" for column in added]
    found = with_names(replace(structure, columns=kept), renamed)
    found = replace(found, columns=(*found.columns, *(replace(column, sent_as=None) for column in added)))
    return ReshapedShard(found, qualified(table.schema, table.name), tuple(values))


def _constant(column: Column, fill: str) -> str:
    """Return the expression of a fill, which is printed like the values of the column."""
    text = literal(column, filled_value(column, fill))
    if text == "NULL":
        return text
    if column.data_type in DECIMALS or column.data_type in CAST:
        kind = column.column_type.partition(" ")[0]
        return f"CAST({text} AS {kind.replace(column.data_type, CAST.get(column.data_type, column.data_type), 1)})"
    if column.sent_as:
        text = f"CONVERT({text} USING {column.charset})"
    return f"{text} COLLATE {column.collation}" if column.collation else text


# --- the columns of a shard while the target is ahead


@dataclass(frozen=True, slots=True)
class TargetColumns:
    """The columns of a shard that have another name in the target, and those that it has dropped or does not know."""

    names: Names = field(default_factory=lambda: NO_NAMES)
    dropped: frozenset[str] = frozenset()
    """The shard's own names, in lower case."""
    coming: frozenset[str] = frozenset()
    """Columns in lower case whose DDL is not applied."""


ALL_AS_THEY_ARE = TargetColumns()


def columns_in_target(present: TableSchema, applied: TableSchema, missing: Sequence[ExecutedDdl]) -> TargetColumns:
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
    known = {(column.own_name or column.name).lower() for column in applied.columns}
    coming = frozenset(map(str.lower, present.names)) - known
    return TargetColumns(carried(without_columns(present, gone), names), gone, coming)


def without_columns(schema: TableSchema, dropped: Collection[str]) -> TableSchema:
    """Return the structure without these columns, which are in lower case, and without their indexes."""
    if not dropped:
        return schema
    return replace(
        schema,
        columns=tuple(each for each in schema.columns if each.name.lower() not in dropped),
        indexes=tuple(each for each in schema.indexes if not each.names & {*dropped}),
    )
