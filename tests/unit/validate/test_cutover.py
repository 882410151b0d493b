"""Which ranges a cutover proves again: those that the binlog may have touched, and those without a sum."""

from datetime import UTC, datetime

import pytest

from tests.unit.validate.test_ledger import BEGAN
from unshard.core.model import Column
from unshard.core.sql.keyrange import KeyRange
from unshard.core.validate.cutoverstate import TouchedRanges, still_proven, total_of, touched_ranges
from unshard.core.validate.ledger import JudgedRange, RangeFound, RangeVerdict
from unshard.core.validate.proof import Touched

MIDDLE = KeyRange((b"10", b"5"), (b"20", b"5"))


def key(kind: str) -> list[Column]:
    return [Column("id", kind, kind, False, None, None, None, "")]


@pytest.mark.parametrize(
    ("numbers", "is_touched"),
    [((), False), ((9,), False), ((10,), True), ((15, 90), True), ((20,), True), ((21,), False), ((-3, 100), False)],
)
def test_a_range_is_touched_by_the_first_column_of_a_key(numbers: tuple[int, ...], is_touched: bool) -> None:
    touched = touched_ranges(Touched(frozenset((str(each), "1") for each in numbers)), key("bigint"))
    assert touched.may_touch(MIDDLE) is is_touched
    assert touched.may_touch(KeyRange()) is bool(numbers)


def test_keys_that_only_servers_can_sort_touch_every_range() -> None:
    keys = Touched(frozenset({("15",)}))
    assert touched_ranges(keys, key("varchar")).may_touch(KeyRange((b"9",), (b"99",)))
    assert touched_ranges(keys, []).may_touch(KeyRange())
    assert touched_ranges(Touched(anything="a DDL"), key("int")).may_touch(KeyRange((b"100",), None))
    assert not touched_ranges(Touched(), key("varchar")).may_touch(KeyRange())


def test_a_range_stays_proven_in_its_cutover_if_it_has_a_sum() -> None:
    def judged(number: int, total: int | None) -> JudgedRange:
        return JudgedRange(KeyRange(), RangeFound(1, RangeVerdict.EQUAL, total), number, BEGAN)

    counts = still_proven(7, TouchedRanges(anything=False))
    assert [counts(judged(*each)) for each in ((7, 1), (6, 1), (8, 1), (7, None))] == [True, False, False, False]
    assert not still_proven(7, TouchedRanges(anything=True))(judged(7, 1))


def test_the_checksum_of_a_table_is_that_of_its_ranges() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    parts = [(2, 2**64 - 1), (3, 2), (1, 15), (0, None)]
    ranges = [JudgedRange(KeyRange(), RangeFound(rows, RangeVerdict.EQUAL, total), 1, at) for rows, total in parts]
    found = total_of(ranges[:3])
    assert (found.rows, found.checksum, found.is_incomplete) == (6, "0000000000000010", False)
    assert total_of(ranges).is_incomplete
