"""Rows of parameters have every value, with the length in each of its forms."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unshard.adapters.target.rendering import TYPES, can_be_parameters, parameters_of, values_in
from unshard.adapters.target.targetrows import Destination, LineForm
from unshard.core.model import Column, TableId

SHORT = st.none() | st.binary(max_size=300)


def rendered(rows: list[tuple[bytes | None, ...]]) -> list[bytes]:
    columns = [pa.array(values, pa.binary()) for values in zip(*rows, strict=True)]
    lines: list[bytes] = parameters_of(columns).to_pylist()
    return lines


def column(kind: str) -> Column:
    return Column("v", kind, kind, True, None, None, None, "")


@given(st.lists(st.tuples(SHORT, SHORT, SHORT), min_size=1, max_size=20))
def test_values_come_back(rows):
    assert [tuple(values_in(row)) for row in rendered(rows)] == rows


@pytest.mark.parametrize("size", [0, 1, 250, 251, 252, 253, 254, 255, 65_535, 65_536, (1 << 24) - 1, 1 << 24])
def test_every_length(size):
    rows = [(b"1", b"x" * size, None), (None, b"", b"\0")]
    assert [tuple(values_in(row)) for row in rendered(rows)] == rows


@pytest.mark.parametrize(
    ("value", "bytes_"),
    [
        (None, b"\1"),
        (b"", b"\0\0"),
        (b"ab", b"\0\2ab"),
        (b"c" * 251, b"\0\xfc\xfb\0" + b"c" * 251),
        (b"d" * 65_536, b"\0\xfd\0\0\1" + b"d" * 65_536),
    ],
)
def test_the_bytes_are_those_of_the_protocol(value, bytes_):
    assert rendered([(value,), (b"a",)]) == [bytes_, b"\0\1a"]


def test_a_slice_of_an_array_has_only_its_values():
    values = pa.array([b"a" * 300, None, b"b", b"cc"], pa.binary())
    assert [values_in(row) for row in parameters_of([values.slice(2)]).to_pylist()] == [[b"b"], [b"cc"]]
    assert len(parameters_of([values.slice(4)])) == 0


@pytest.mark.parametrize("kind", ["json", "uuid", "inet4", "inet6", "unheard_of"])
def test_types_that_take_no_blob_stay_text(kind):
    assert not can_be_parameters([column("int"), column(kind)])
    assert Destination(TableId("d", "t"), (column(kind),), ()).in_form(LineForm.PARAMETERS).form is LineForm.TEXT


def test_all_others_are_parameters():
    columns = tuple(column(kind) for kind in sorted(TYPES))
    assert Destination(TableId("d", "t"), columns, ()).in_form(LineForm.PARAMETERS).form is LineForm.PARAMETERS
