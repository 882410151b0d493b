"""Conversion by ids: the rows of shards that lack, dropped, renamed, widened or narrowed columns."""

import random

import pyarrow as pa
import pytest

from tests.unit.join.paper import PaperTable, alter, create
from unshard.core.ddl.lineage import ExecutedDdl
from unshard.core.join.decision import Change, Decision, decide, wanted
from unshard.core.join.difference import Target, apply, target_of
from unshard.core.join.group import Group, begin
from unshard.core.join.places import JoinedRows, RowIds, places_of
from unshard.core.model import Column, Shard, TableId
from unshard.core.rows.missingcolumns import filled_value
from unshard.core.rules.reshaping import Extracted, Reshaping
from unshard.errors.rows import ColumnTypesDiffer
from unshard.units.rows.conversion import conversion_by_places, convert

ONE, TWO = Shard("s1", TableId("d", "t1")), Shard("s2", TableId("d", "t2"))
TARGET = TableId("d", "t")
STRICT = 1 << 22
Rows = list[dict[str, bytes | None]]


class Case:
    """Two shards, their group, and the target as a table on paper."""

    def __init__(self, body: str = "id INT PRIMARY KEY, a INT, b VARCHAR(10)") -> None:
        start = create(f"CREATE TABLE t ({body})")
        self.tables = {ONE: start, TWO: start}
        self.target: PaperTable = start
        self.group: Group = begin({shard: table.structure for shard, table in self.tables.items()})
        self.names = dict(wanted(self.group).names)

    def ddl(self, shard: Shard, text: str, *target: str) -> None:
        """Run a DDL on a shard; `target` are the statements that the steps stand for."""
        after = self.tables[shard] = alter(self.tables[shard], text)
        change = Change((ExecutedDdl(text, STRICT),), after.structure)
        decided = decide(self.group, self.present, shard, change)
        assert decided.decision in (Decision.EXPAND, Decision.NOTHING), decided
        for each in target:
            self.target = alter(self.target, each)
        self.group = decided.group
        self.names = dict(apply((*decided.first, *decided.steps), self.present).names)

    @property
    def present(self) -> Target:
        return target_of(self.target.structure, self.names)

    def rows(self, shard: Shard, *rows: tuple[bytes | None, ...], reshaping: Reshaping | None = None) -> Rows:
        structure, schema = self.tables[shard].structure, self.target.structure
        found = places_of(self.group.members[shard].ids, self.group.fills, target_of(schema, self.names))
        plan = conversion_by_places(shard, structure, TARGET, schema, found, reshaping or Reshaping())
        columns = [pa.array(list(values), pa.binary()) for values in zip(*rows, strict=True)]
        values = [each.to_pylist() for each in convert(plan, columns)]
        names = [column.name for column in plan.destination.columns]
        return [dict(zip(names, row, strict=True)) for row in zip(*values, strict=True)]


def test_a_column_that_a_shard_lacks_gets_the_fill():
    case = Case()
    case.ddl(ONE, "ALTER TABLE t ADD c INT NOT NULL DEFAULT 7", "ALTER TABLE t ADD c INT NOT NULL DEFAULT 7")
    assert case.rows(ONE, (b"1", b"2", b"x", b"3")) == [{"id": b"1", "a": b"2", "b": b"x", "c": b"3"}]
    assert case.rows(TWO, (b"1", b"2", b"x")) == [{"id": b"1", "a": b"2", "b": b"x", "c": b"7"}]


def test_a_nullable_column_that_a_shard_lacks_gets_null_although_the_target_has_a_default():
    case = Case()
    case.ddl(ONE, "ALTER TABLE t ADD c INT", "ALTER TABLE t ADD c INT")
    case.ddl(ONE, "ALTER TABLE t MODIFY c INT DEFAULT 5", "ALTER TABLE t MODIFY c INT DEFAULT 5")
    assert case.rows(TWO, (b"1", b"2", b"x")) == [{"id": b"1", "a": b"2", "b": b"x", "c": None}]


def test_a_shard_that_has_dropped_a_column_writes_the_fill():
    case = Case()
    case.ddl(ONE, "ALTER TABLE t DROP a")
    assert case.rows(ONE, (b"1", b"x")) == [{"id": b"1", "a": None, "b": b"x"}]


def test_a_renamed_column_is_followed_by_its_id():
    case = Case()
    case.ddl(ONE, "ALTER TABLE t RENAME COLUMN a TO c", "ALTER TABLE t RENAME COLUMN a TO c")
    assert case.rows(TWO, (b"1", b"2", b"x")) == [{"id": b"1", "c": b"2", "b": b"x"}]
    assert case.rows(ONE, (b"1", b"2", b"x")) == [{"id": b"1", "c": b"2", "b": b"x"}]


def test_two_names_that_are_swapped():
    case = Case("id INT PRIMARY KEY, a INT, b INT")
    swap = "ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a"
    case.ddl(ONE, swap, swap)
    assert case.rows(TWO, (b"1", b"2", b"3")) == [{"id": b"1", "b": b"2", "a": b"3"}]
    assert case.rows(ONE, (b"1", b"2", b"3")) == [{"id": b"1", "b": b"2", "a": b"3"}]


def test_dropped_and_added_under_the_same_name_is_another_column_until_the_old_one_is_gone():
    case = Case()
    case.ddl(ONE, "ALTER TABLE t ADD c INT DEFAULT 1", "ALTER TABLE t ADD c INT DEFAULT 1")
    case.ddl(ONE, "ALTER TABLE t DROP c")
    case.ddl(
        ONE,
        "ALTER TABLE t ADD c VARCHAR(5) DEFAULT 'x'",
        "ALTER TABLE t DROP c",
        "ALTER TABLE t ADD c VARCHAR(5) DEFAULT 'x'",
    )
    assert case.rows(TWO, (b"1", b"2", b"y")) == [{"id": b"1", "a": b"2", "b": b"y", "c": b"x"}]


def test_a_wider_target_takes_the_values_of_the_narrower_column():
    case = Case()
    case.ddl(ONE, "ALTER TABLE t MODIFY a BIGINT", "ALTER TABLE t MODIFY a BIGINT")
    case.ddl(ONE, "ALTER TABLE t MODIFY b VARCHAR(30)", "ALTER TABLE t MODIFY b VARCHAR(30)")
    assert case.rows(TWO, (b"1", b"2", b"x")) == [{"id": b"1", "a": b"2", "b": b"x"}]


def test_extracted_values_are_filled_beside_the_ids():
    case = Case()
    case.target = alter(case.target, "ALTER TABLE t ADD c_table VARCHAR(10)")
    reshaping = Reshaping((Extracted("c_table", "1"),))
    assert case.rows(TWO, (b"1", b"2", b"x"), reshaping=reshaping)[0]["c_table"] == b"1"


def ids_of(case: Case, shard: Shard, seq: int) -> RowIds:
    member = case.group.members[shard]
    return RowIds(seq, member.structure.digest, member.ids)


def test_held_rows_have_the_ids_that_they_were_written_with():
    case = Case("id INT PRIMARY KEY, a INT, b INT")
    before, schema = ids_of(case, ONE, 0), case.tables[ONE].structure
    swap = "ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a"
    case.ddl(ONE, swap, swap)
    rows = JoinedRows(2, case.names, case.group.fills, {ONE: (before, ids_of(case, ONE, 3))})
    target = case.target.structure
    own = {place.shard_column: place.target_column for place in rows.places(ONE, 0, schema, target)}
    assert own == {"id": "id", "a": "b", "b": "a"}
    for seq in (None, 3, 4):
        own = {place.shard_column: place.target_column for place in rows.places(ONE, seq, target, target)}
        assert own == {"id": "id", "a": "a", "b": "b"}
    assert rows.of_rows(ONE, 2) == before


def test_a_column_that_no_id_explains_has_no_place():
    case = Case()
    rows = JoinedRows(1, case.names, case.group.fills, {ONE: (ids_of(case, ONE, 0),)})
    other = alter(case.tables[ONE], "ALTER TABLE t ADD z INT").structure
    with pytest.raises(KeyError, match="z"):
        rows.places(ONE, None, other, case.target.structure)
    with pytest.raises(KeyError):
        rows.places(Shard("s9", ONE.table), None, case.target.structure, case.target.structure)


def test_columns_without_an_id_are_left_out_where_ddls_were_accepted_together():
    case = Case()
    structure = case.tables[ONE].structure
    ids = {name: id for name, id in case.group.members[ONE].ids.items() if name != "a"}
    rows = JoinedRows(1, case.names, case.group.fills, {ONE: (RowIds(3, structure.digest, ids),)})
    own = {place.target_column: place.shard_column for place in rows.places(ONE, 3, structure, case.target.structure)}
    assert own == {"id": "id", "a": "", "b": "b"}


def test_a_column_whose_values_would_change_is_refused():
    case = Case("id INT PRIMARY KEY, a DATETIME(3)")
    case.target = alter(case.target, "ALTER TABLE t MODIFY a TIME")
    with pytest.raises(ColumnTypesDiffer):
        case.rows(TWO, (b"1", b"2020-01-01 00:00:00.000"))


@pytest.mark.parametrize(
    ("kind", "literal", "value"),
    [
        ("int(11)", "-5", b"-5"),
        ("int(11)", "", b"0"),
        ("int(11)", "NULL", None),
        ("decimal(5,2)", "", b"0.00"),
        ("decimal(5,2)", "'1.50'", b"1.50"),
        ("varchar(9)", "'it''s'", b"it's"),
        ("varchar(9)", r"'a\\b\'\n'", b"a\\b'\n"),
        ("varchar(9)", "''", b""),
        ("varchar(9)", "'ä'", "ä".encode("latin1")),
        ("varbinary(9)", "x'00ff'", b"\x00\xff"),
        ("enum('x','y')", "", b"x"),
        ("datetime(3)", "", b"0000-00-00 00:00:00.000"),
    ],
)
def test_the_value_of_a_fill(kind, literal, value):
    word = kind.partition("(")[0]
    charset = "latin1" if word in ("varchar", "enum") else None
    assert filled_value(Column("c", word, kind, True, charset, None, "5", ""), literal) == value


def test_places_do_not_depend_on_the_order_of_columns():
    dice = random.Random(7)
    case = Case("id INT PRIMARY KEY, a INT, b INT, c INT, d INT")
    case.target = case.target.copy()
    names = case.target.columns[1:]
    dice.shuffle(names)
    case.target.columns[1:] = names
    (row,) = case.rows(ONE, (b"0", b"1", b"2", b"3", b"4"))
    assert row == {"id": b"0", "a": b"1", "b": b"2", "c": b"3", "d": b"4"}
