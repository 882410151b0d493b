"""Keys as bytes: they can be decoded again, and they have the sort order of the keys."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from unshard.core.model import Column
from unshard.units.rows import shuffle

INT = Column("i", "bigint", "bigint(20)", False, None, None, None, "")
TEXT = Column("t", "varbinary", "varbinary(20)", False, None, None, None, "")
NUMBERS = st.integers(-(2**63), 2**64 - 1)
TEXTS = st.binary(max_size=4) | st.lists(st.sampled_from([b"\0", b"\xff", b"a"]), max_size=5).map(b"".join)


def encoded(columns, rows):
    return shuffle.encode_keys(
        columns, [pa.array(list(values), pa.binary()) for values in zip(*rows, strict=True)]
    ).to_pylist()


@given(st.lists(st.tuples(NUMBERS, TEXTS, NUMBERS, TEXTS), min_size=1))
def test_a_key_comes_back(rows):
    columns = (INT, TEXT, INT, TEXT)
    given = [(str(a).encode(), b, str(c).encode(), d) for a, b, c, d in rows]
    assert [shuffle.decode_key(columns, key) for key in encoded(columns, given)] == given


@given(st.lists(st.tuples(NUMBERS, TEXTS), min_size=1))
def test_keys_sort_as_their_values(rows):
    pairs = zip(encoded((INT, TEXT), [(str(a).encode(), b) for a, b in rows]), rows, strict=True)
    assert [row for _, row in sorted(pairs)] == sorted(rows)


@given(st.lists(NUMBERS, min_size=1, unique=True))
def test_a_single_integer(numbers):
    coded = encoded((INT,), [(str(n).encode(),) for n in numbers])
    assert [shuffle.decode_key((INT,), key) for key in coded] == [(str(n).encode(),) for n in numbers]
    assert len(set(coded)) == len(numbers)
