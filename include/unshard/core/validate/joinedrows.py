"""The rows of a shard as they should be in a target that follows the join, for a comparison of the two by SQL.

| the target's column is                     | the shard's rows are compared with                                  |
|--------------------------------------------|---------------------------------------------------------------------|
| a column of the shard                      | its values, under the target's name                                 |
| one that the shard lacks                   | the fill                                                            |
| one that the shard has dropped, or that is | nothing: the column is left out of the comparison                   |
| still to be read again from it             |                                                                     |
"""

from collections.abc import Mapping
from dataclasses import replace

from unshard.core.join.difference import target_of
from unshard.core.join.group import Member
from unshard.core.join.places import places_of
from unshard.core.model import Column, TableId, TableSchema
from unshard.core.rows.columnnames import with_names
from unshard.core.rows.missingcolumns import filled_value
from unshard.core.rules.reshaping import Seen
from unshard.core.sql.literals import DECIMALS, literal
from unshard.core.sql.quoting import identifier, qualified

CAST = {"date": "DATE", "datetime": "DATETIME", "timestamp": "DATETIME", "time": "TIME"}


def compared_rows(
    table: TableId,
    structure: TableSchema,
    target: TableSchema,
    names: Mapping[int, str],
    member: Member,
    fills: Mapping[int, str],
) -> Seen:
    """Return the rows of a shard with the target's columns; `names` are the target's names of the ids.

    A column of the shard without an id, because its DDL is not accepted yet, keeps its name. If the target's column of
    this name is left out, as after a skip, it is left out, too.
    """
    own = {name: member.ids[name] for name in (each.lower() for each in structure.names) if name in member.ids}
    own = {name: id for name, id in own.items() if id in names}
    unsure = {reload.column for reload in member.reloads} | member.dropped
    left_out = {names[id] for id in unsure if id in names}
    known = ((column, own.get(column.name.lower())) for column in structure.columns)
    kept = tuple(
        column for column, id in known if id not in unsure and (id is not None or column.name.lower() not in left_out)
    )
    renamed = {name: names[id] for name, id in own.items() if names[id] != name}
    shown = [(column.name, renamed.get(column.name.lower(), column.name)) for column in kept]
    values = [f"{identifier(name)} AS {identifier(new)}" for name, new in shown]
    places = places_of(own, fills, target_of(target, names))
    fill = {each.target_column: each.fill for each in places if not each.shard_column}
    added = [column for column in target.columns if column.name.lower() in fill.keys() - left_out]
    values += [f"{_constant(column, fill[column.name.lower()])} AS {identifier(column.name)}" for column in added]
    found = with_names(replace(structure, columns=kept), renamed)
    found = replace(found, columns=(*found.columns, *(replace(column, sent_as=None) for column in added)))
    return Seen(found, f"(SELECT {', '.join(values)} FROM {qualified(table.schema, table.name)}) AS named")  # noqa: S608


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
