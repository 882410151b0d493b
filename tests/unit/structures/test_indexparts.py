"""Indexes on expressions: their parts, and every decision that uses the columns of an index."""

import pytest

from unshard.core.ddl.columnnames import with_names
from unshard.core.model import Column, Index, Shard, TableId, TableSchema
from unshard.core.rows.columnreload import unfit_column
from unshard.core.structures.comparison import shape_differences
from unshard.core.structures.foreignkeys import ForeignKey, is_indexed
from unshard.core.structures.parsedtable import index_parts
from unshard.core.structures.tablekeys import UniqueKey, conditions, may_share_key, shared_keys, unique_keys
from unshard.core.validate.comparedrows import without_columns

TABLE = TableId("d", "t")
TAGS = "(cast(json_extract(`doc`,_utf8mb4'$.`x') as unsigned array))"
LOWER = "(lower(`Name`))"
COLUMNS = tuple(
    Column(name, kind, kind, True, charset, None, None, "")
    for name, kind, charset in (
        ("a", "int", None),
        ("name", "varchar", "latin1"),
        ("doc", "json", None),
        ("(b)", "int", None),
    )
)


def table(parts: str, unique: bool = True, name: str = "u") -> TableSchema:
    kind = "UNIQUE KEY" if unique else "KEY"
    keys = f"PRIMARY KEY (`a`),\n  {kind} `{name}` ({parts}) USING BTREE"
    text = f"CREATE TABLE `t` (\n  `a` int,\n  {keys}\n) ENGINE=InnoDB"
    found = index_parts(text, name)
    prefixed = any(part.length or part.is_expression for part in found)
    indexes = (Index("PRIMARY", ("a",), True), Index(name, tuple(part.text for part in found), unique, prefixed))
    return TableSchema(COLUMNS, indexes, text)


@pytest.mark.parametrize(
    ("parts", "columns", "names"),
    [
        ("`a`,`name`(5) DESC", ("a", "name"), {"a", "name"}),
        (LOWER, (LOWER,), {LOWER.lower(), "name"}),
        (f"{TAGS},`a`", (TAGS, "a"), {TAGS.lower(), "doc", "a"}),
        ("((`a` + concat(`name`,_latin1'`,it''s)')))", None, None),
        ("(`a` + 1) DESC,`(b)`", ("(`a` + 1)", "(b)"), {"(`a` + 1)", "a", "(b)"}),
    ],
)
def test_the_parts_of_an_index(parts: str, columns: tuple[str, ...] | None, names: set[str] | None) -> None:
    index = table(parts).indexes[1]
    assert index.columns == (columns or (parts,)) and index.names == (names or {parts.lower(), "a", "name"})


def test_only_the_named_index_is_read() -> None:
    schema = table(LOWER, name="PRIMARY KEY")
    assert [part.text for part in index_parts(schema.create_sql, "PRIMARY")] == ["a"]
    assert [part.text for part in index_parts(schema.create_sql, "PRIMARY KEY")] == [LOWER]
    assert index_parts(schema.create_sql, "u") == ()


def test_no_row_is_found_by_an_expression() -> None:
    schema = table(f"{LOWER},`a`")
    assert TableSchema(COLUMNS, schema.indexes[1:], schema.create_sql).key == ()
    assert not may_share_key(TableSchema(COLUMNS, table(LOWER).indexes[1:], ""), ("a",))
    assert not may_share_key(TableSchema(COLUMNS, table(f"`a`,{LOWER}").indexes[1:], ""), ("a",))


def test_shards_do_not_share_a_part_of_a_key() -> None:
    one, two = (Shard("s", TableId("d", f"t_{n}")) for n in (1, 2))
    target = table(f"`name`,{LOWER}")
    keys = shared_keys(target, {one: target, two: table(LOWER)}, {}, ())
    assert [key.columns for key in keys] == [("a",)]
    assert shared_keys(table("`name`"), {one: table(f"{LOWER},`name`", unique=False), two: target}, {}, ())[1:] == ()


def test_a_foreign_key_needs_an_index_that_begins_with_its_columns() -> None:
    key = ForeignKey(TABLE, ("name",), TABLE, ("a",), "f")
    assert is_indexed(key, table(f"`name`,{LOWER}"))
    assert not is_indexed(key, table(f"{LOWER},`name`"))


def test_what_depends_on_a_column_of_an_expression() -> None:
    target = table(LOWER)
    assert "unique key u" in unfit_column("name", target, target, "name")
    assert [index.name for index in without_columns(target, {"name"}).indexes] == ["PRIMARY"]
    renamed = with_names(target, {"name": "new"})
    assert renamed.indexes[1].columns == ("(lower(`new`))",)
    assert unique_keys(renamed)[1].read == ("new",)
    assert shape_differences(target, table("(upper(`name`))")) == (
        "index u is unique ((upper(`name`))) with prefixes instead of unique ((lower(`Name`))) with prefixes",
    )


def test_rows_with_the_same_values_of_expressions_are_found() -> None:
    key = unique_keys(table(f"`a`,{LOWER}"))[1]
    assert key == UniqueKey(("a",), (None,), (LOWER,), ("name",))
    columns = [COLUMNS[0], COLUMNS[1]]
    assert [*conditions(key, columns, (b"1", b"A"))] == ["`a` = 1", f"{LOWER} = (lower(_latin1 x'41'))"]
    assert [*conditions(key, columns, (b"1", None))] == ["`a` = 1", f"{LOWER} = (lower(NULL))"]
    (found,) = conditions(unique_keys(table(TAGS))[1], [COLUMNS[2]], (b"{}",))
    own = "json_extract({},_utf8mb4'$.`x')"
    assert found == f"JSON_OVERLAPS({own.format('`doc`')}, {own.format('_utf8mb4 x' + chr(39) + '7b7d' + chr(39))})"
