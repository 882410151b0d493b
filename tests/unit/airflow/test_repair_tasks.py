"""The question before a repair in Airflow."""

from unshard.core.model import TableId
from unshard.core.sql.keyrange import KeyRange
from unshard.core.validate.rowdifferences import DifferenceKind, NotYetInTarget, RowDifference
from unshard.units.validate.repairing import Left, PlannedRow, TableRepair
from unshard.units.validate.validate import TableResult
from unshard_airflow.repairtasks import left_rows, question

CHANGED = RowDifference(DifferenceKind.DIFFERENT, ("7",), ("s1 d.t_1",), 1)
GONE = RowDifference(DifferenceKind.EXTRA, ("8",), (), 1)
TAKEN = RowDifference(DifferenceKind.COLLISION, ("9",), ("s1 d.t_1", "s2 d.t_2"), 2)
CHANGES = (
    PlannedRow(CHANGED, {"id": "7", "name": "a|`b\n", "card": None}, {"id": "7", "name": "a|b", "card": "4711"}),
    PlannedRow(GONE, {"id": "8", "name": "", "card": "x" * 70}, {}),
)


def plan() -> TableRepair:
    found = {KeyRange(): (CHANGED, GONE)}
    result = TableResult(TableId("d", "t"), ("id",), ("id", "name", "card"), (), 2, 1, 9, 9, found, NotYetInTarget(), 1)
    return TableRepair(result, {KeyRange(): (CHANGED, GONE, GONE)}, (Left(TAKEN, "several shards have the key"),))


def test_it_shows_the_values_that_differ() -> None:
    lines = question(plan(), CHANGES, ()).splitlines()
    assert "| `id=7 of s1 d.t_1` | different | `name` = `a\\|'b` | `name` = `a\\|b` |" in lines
    assert "|  |  | `card` = NULL | `card` = `4711` |" in lines
    assert "| `id=8` | extra | `id` = `8` |  |" in lines and "|  |  | `name` = '' |  |" in lines
    assert f"|  |  | `card` = `{'x' * 59}…` |  |" in lines
    assert "1 more rows differ: trigger another run for them." in lines
    assert lines[-1] == "* left: id=9: several shards have the key"


def test_masked_columns_stay_masked() -> None:
    shown = question(plan(), CHANGES, ("Card",))
    assert "| `card` = NULL |" not in shown and "4711" not in shown and "`card` = `'…'`" in shown and "`8`" in shown
    assert left_rows(plan(), ("ID",)) == ["left: id='…': several shards have the key"]
    assert not {"7", "8", "9", "a|b"} & {*question(plan(), CHANGES, ("*",)).replace("`", " ").replace("=", " ").split()}
