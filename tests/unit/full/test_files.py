"""Files of a dump: all rows in order, none larger than the target can take in one transaction."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unshard.units.full.dumpchunks import batch_bytes, files_of


def batch(values: list[int]) -> pa.RecordBatch:
    return pa.record_batch([pa.array([b"x" * value for value in values], pa.binary())], ["v"])


@given(
    st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=9), max_size=6), st.integers(1, 7), st.integers(1, 90)
)
def test_files_have_all_rows_in_order_within_the_limits(sizes: list[list[int]], rows: int, most: int) -> None:
    files = [[*some] for some in files_of(iter([batch(values) for values in sizes]), rows, most)]
    assert [len(v.as_py()) for some in files for b in some for v in b.column(0)] == [v for s in sizes for v in s]
    assert all(some and sum(each.num_rows for each in some) <= rows for some in files)
    for some in files:
        # A file ends at the batch or row with which it reaches its size.
        assert sum(map(batch_bytes, some[:-1])) < most


@pytest.mark.parametrize("limits", [(0, 0), (0, 100), (10, 0)])
def test_zero_is_no_limit(limits: tuple[int, int]) -> None:
    files = [[*some] for some in files_of(iter([batch([1] * 4), batch([1] * 4)]), *limits)]
    assert [sum(each.num_rows for each in some) for some in files] == [8]
    assert [each.num_rows for each in files[0]] == [4, 4], "batches stay whole"


def test_no_rows_are_no_file() -> None:
    assert [*files_of(iter(()), 5, 5)] == []
