"""Lines of LOAD DATA: what is read from them equals the values, wherever the bytes to escape are in a column."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unshard.adapters.target.rendering import ABSENT, SEARCHED_BYTES, lines_of, take_rows, values_of

VALUES = st.none() | st.binary(max_size=8) | st.sampled_from([b"\\N", b"\t", b"a\nb", b"\\"])


@given(st.lists(st.tuples(VALUES, VALUES, VALUES), min_size=1))
def test_lines_have_the_values(rows: list[tuple[bytes | None, ...]]) -> None:
    lines = lines_of([pa.array(column, pa.binary()) for column in zip(*rows, strict=True)]).to_pylist()
    assert [tuple(values_of(line)) for line in lines] == rows
    assert all(line.count(b"\n") == 1 for line in lines)


@pytest.mark.parametrize("plain", [b"\\", b"\t", b"\n"])
@pytest.mark.parametrize("before", [0, 1, SEARCHED_BYTES - 1, SEARCHED_BYTES, 3 * SEARCHED_BYTES + 5])
def test_each_part_of_a_large_column_is_searched(before: int, plain: bytes) -> None:
    values = [b"x" * before, plain, b"y"]
    assert [values_of(line) for line in lines_of([pa.array(values, pa.binary())]).to_pylist()] == [[v] for v in values]


def test_the_last_column_may_be_the_one_without_known_values() -> None:
    (line,) = lines_of([pa.array([b"1"], pa.binary()), None]).to_pylist()
    assert line == b"1\t" + ABSENT + b"\n"


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(1, 200)), max_size=4))
def test_rows_are_the_same_whether_they_are_copied_in_runs_or_one_by_one(runs):
    rows = np.array([row for first, count in runs for row in range(first, first + count)], np.int64)
    values = pa.array([b"%d" % number for number in range(700)], pa.binary()).slice(50)
    assert take_rows(values, rows).equals(values.take(pa.array(rows)))
