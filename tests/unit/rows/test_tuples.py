"""Rows of an INSERT statement, rendered column by column: each value equals the result of `literal`."""

from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unshard.adapters.target.rendering import lines_of, rendered, tuples_of
from unshard.core.model import Column
from unshard.core.sql.literals import literal
from unshard.errors.source import ValueNotCanonical


def column(kind: str, charset: str | None = None, sent_as: str = "") -> Column:
    return replace(Column("c", kind, kind, True, charset, None, None, ""), sent_as=sent_as)


NUMBERS = [b"0", b"-1", b"18446744073709551615", b"1.50", None]
TEXTS = [b"", b"a", b"\\N", b"\\\\t'\t\n\0", "\u00fc\U0001f42c".encode(), None]
CASES = [
    (column("int"), NUMBERS),
    (column("decimal"), NUMBERS),
    (column("double"), [*NUMBERS, b"1e308", b"-2.5E-3"]),
    (column("datetime"), [b"0000-00-00 00:00:00.000", b"2020-01-01 01:02:03", None]),
    (column("time"), [b"-838:59:59", None]),
    (column("bit"), [b"\0", b"\1\xff", None]),
    (column("blob"), [bytes(range(256)), b"", None]),
    (column("varchar", "latin1"), [b"\xe9'", b"\\", None]),
    (column("varchar", "ucs2"), [b"\0a", None]),
    (column("varchar", "utf8mb4"), [b"\xff", b"valid", None]),
    (column("varchar", "utf8mb4", "utf8mb4"), TEXTS),
]


@pytest.mark.parametrize(("kind", "values"), CASES, ids=lambda one: getattr(one, "data_type", None))
def test_each_value_is_rendered_as_its_literal(kind: Column, values: list[bytes | None]) -> None:
    found = tuples_of([kind, kind], lines_of([pa.array(values, pa.binary())] * 2)).to_pylist()
    assert [row.decode("latin1") for row in found] == [
        f"({text}, {text}), " for text in (_bytes(literal(kind, value)) for value in values)
    ]


def _bytes(text: str) -> str:
    return text.encode().decode("latin1")


@given(st.lists(st.none() | st.text() | st.sampled_from(["'", "\\", "\0", "\\'", "\t\\n"]), min_size=1))
def test_text_of_utf8_is_a_quoted_string(texts: list[str | None]) -> None:
    values = [None if text is None else text.encode("utf-8", "replace") for text in texts]
    found = rendered(column("varchar", "utf8mb4"), pa.array(values, pa.binary())).to_pylist()
    for value, shown in zip(values, found, strict=True):
        if value is None:
            assert shown == b"NULL"
            continue
        plain = value.replace(b"\\", b"\\\\").replace(b"'", b"''").replace(b"\0", b"\\0")
        assert shown == b"'" + plain + b"'"


@pytest.mark.parametrize(("kind", "value"), [("int", b"1-1"), ("double", b"x"), ("date", b"'"), ("decimal", b"")])
def test_a_value_that_is_no_literal_is_an_error(kind: str, value: bytes) -> None:
    with pytest.raises(ValueNotCanonical):
        rendered(column(kind), pa.array([b"1", value], pa.binary()))
