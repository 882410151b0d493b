"""From which column of a shard a column of the target comes."""

from unshard.core.model import Column, TableSchema
from unshard.units.task.tablelineage import origins_of


def schema(*names: str, own: str | None = None) -> TableSchema:
    columns = (Column(name, "int", "int(11)", True, None, None, None, "", own_name=own) for name in names)
    return TableSchema(tuple(columns), (), "")


def test_columns_of_the_same_name() -> None:
    assert origins_of(schema("id", "Name"), schema("ID", "name", "origin"), {}) == {"ID": "id", "name": "Name"}


def test_a_mapped_column_comes_from_the_column_of_the_rule() -> None:
    assert origins_of(schema("id", "v"), schema("id", "v"), {"ID": "v"}) == {"id": "v", "v": "v"}


def test_a_shard_may_have_another_name_for_a_column() -> None:
    assert origins_of(schema("amount", own="total"), schema("amount"), {}) == {"amount": "total"}
