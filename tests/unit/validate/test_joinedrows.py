"""The rows of a shard as a target in optimistic mode should have them: by id, with fills, without unsure columns."""

from dataclasses import replace

from tests.unit.join.paper import alter, create
from unshard.core.join.group import ColumnToReload, Group, Member, ReloadReason, begin_group, joined_by
from unshard.core.model import Shard, TableId
from unshard.core.validate.comparedrows import compared_rows

ONE, TWO = Shard("s1", TableId("d", "t1")), Shard("s2", TableId("d", "t2"))
TABLE = create("CREATE TABLE t (id INT PRIMARY KEY, a INT, b VARCHAR(9))")
WIDER = alter(TABLE, "ALTER TABLE t ADD c DECIMAL(5,2) NOT NULL DEFAULT 1.5, ADD e DATETIME")


def seen(group: Group, member: Member, names: dict[int, str]) -> tuple[list[str], str]:
    target = alter(WIDER, "ALTER TABLE t RENAME COLUMN a TO z").structure
    found = compared_rows(TWO.table, TABLE.structure, target, names, member, group.columns)
    return [column.name for column in found.structure.columns], found.rows


def test_names_fills_and_columns_that_are_not_compared():
    group = joined_by(begin_group({ONE: WIDER.structure}), TWO, TABLE.structure)
    fills = {id: replace(column, fill="1.5") if id == 4 else column for id, column in group.columns.items()}
    group = replace(group, columns=fills)
    names = {1: "id", 2: "z", 3: "b", 4: "c", 5: "e"}
    member = group.members[TWO]
    columns, text = seen(group, member, names)
    assert columns == ["id", "z", "b", "c", "e"]
    assert "`a` AS `z`" in text and "CAST(1.5 AS decimal(5,2)) AS `c`" in text and "NULL AS `e`" in text
    columns, text = seen(group, replace(member, dropped=frozenset({5})), names)
    assert columns == ["id", "z", "b", "c"] and "`e`" not in text
    late = replace(member, reloads=frozenset({ColumnToReload(2, ReloadReason.FILL)}))
    assert seen(group, late, names)[0] == ["id", "b", "c", "e"]


def test_a_target_may_lack_a_name_while_it_is_changed():
    group = joined_by(begin_group({ONE: TABLE.structure}), TWO, TABLE.structure)
    columns, text = seen(group, group.members[TWO], {1: "id", 2: "y", 3: "b"})
    assert columns == ["id", "a", "b"] and "`y`" not in text, "the target shows z still"
