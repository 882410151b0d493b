"""Expression filters: which texts are expressions, and which rows are omitted after the target has evaluated them."""

import numpy as np
import pyarrow as pa
import pytest

from unshard.core.model import Column, Shard, TableId, TableSchema
from unshard.core.rows.compaction import Op
from unshard.core.rules.filters import RowFilter, names_in, unfit_expression
from unshard.core.rules.reshaping import Reshaping
from unshard.units.rows.batchruns import Filtering

T = TableId("shop_1", "t_1")
SHARD = Shard("s1", T)
V = Column("v", "varchar", "varchar(9)", False, "utf8mb4", "utf8mb4_bin", None, "")


@pytest.mark.parametrize(
    "text", ["id % 2 = 0", "(a)", "f(a, b) or `select` = ')'", "a = 'x;'", "a IS NULL", "`a;` > 1"]
)
def test_one_expression_is_one(text: str) -> None:
    assert unfit_expression(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a)",
        "a) or (b",
        "(a",
        "a; b",
        "a in (select 1)",
        "a union b",
        "a in (table t)",
        "'a",
        "a -- b",
        "a # b",
        "/* a",
    ],
)
def test_what_would_leave_its_parentheses_is_none(text: str) -> None:
    assert unfit_expression(text)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Id % 2 = 0", {"id", "2", "0"}),
        ("`a``b` > 'c' AND d.e", {"a`b", "and", "d", "e"}),
        ("a$b<1", {"a$b", "1"}),
        ("'`' < x AND y < '`'", {"x", "and", "y"}),
        ("größe", {"größe"}),
    ],
)
def test_all_columns_that_an_expression_names_are_among_its_names(text: str, names: set[str]) -> None:
    assert names_in(text) == names


class Judge:
    """A target that evaluates expressions: an expression lists the values of the only column for which it is true."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, list[bytes]]] = []

    def true_for(self, rule: str, expression: str, structure: TableSchema, columns: list[pa.Array]) -> np.ndarray:
        values = columns[0].to_pylist()
        self.asked.append((expression, values))
        return np.array([value.decode() in expression.split() for value in values])

    def close(self) -> None:
        pass


def batch(*rows: tuple[Op, str]) -> pa.RecordBatch:
    columns = [
        pa.array([op.value for op, _ in rows], pa.int8()),
        pa.array(range(len(rows)), pa.int64()),
        pa.array([value.encode() for _, value in rows], pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, ["_op", "_seq", "v"])


def left(rule: RowFilter, *batches: pa.RecordBatch) -> list[str]:
    filtering = Filtering(Judge(), {"d": TableSchema((V,), (), "")})  # type: ignore[arg-type]
    kept = [filtering.passing(Reshaping(filters=(rule,)), SHARD, "d", each) for each in batches]
    return [
        f"{Op(op).name} {value.decode()}"
        for each in kept
        for op, value in zip(each["_op"].to_pylist(), each["v"].to_pylist(), strict=True)
    ]


ROWS = batch(
    (Op.INSERT, "1"),
    (Op.INSERT, "2"),
    (Op.BEFORE, "1"),
    (Op.AFTER, "2"),
    (Op.BEFORE, "3"),
    (Op.AFTER, "4"),
    (Op.DELETE, "1"),
    (Op.DELETE, "5"),
)
ALL = ["INSERT 1", "INSERT 2", "BEFORE 1", "AFTER 2", "BEFORE 3", "AFTER 4", "DELETE 1", "DELETE 5"]


@pytest.mark.parametrize(
    ("rule", "gone"),
    [
        (RowFilter("r", T, insert="1 5"), {"INSERT 1"}),
        (RowFilter("r", T, delete="1 5"), {"DELETE 1", "DELETE 5"}),
        (RowFilter("r", T, update_old="1"), {"BEFORE 1", "AFTER 2"}),
        (RowFilter("r", T, update_new="4"), {"BEFORE 3", "AFTER 4"}),
        (RowFilter("r", T, update_old="1 3", update_new="4"), {"BEFORE 3", "AFTER 4"}),
        (RowFilter("r", T, update_old="1", update_new="4"), set()),
        (RowFilter("r", T, update_old="2", update_new="1 3"), set()),
    ],
)
def test_a_true_expression_drops_its_rows_and_updates_whole(rule: RowFilter, gone: set[str]) -> None:
    assert left(rule, ROWS) == [row for row in ALL if row not in gone]


@pytest.mark.parametrize("border", range(1, 8))
def test_batches_may_end_anywhere(border: int) -> None:
    rule = RowFilter("r", T, update_old="1 3", update_new="4")
    assert left(rule, ROWS.slice(0, border), ROWS.slice(border)) == [row for row in ALL if row[-1] not in "34"]


def test_names_are_exact_but_for_case_where_that_does_not_matter() -> None:
    upper = TableId("Shop_1", "T_1")
    assert RowFilter("r", upper).matches(T) and not RowFilter("r", TableId("shop_1", "t_*")).matches(T)
    assert not RowFilter("r", upper, case_sensitive=True).matches(T)
