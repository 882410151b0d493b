"""Numbers in JSON that only a DECIMAL holds: which they are, where they are, and how they are written."""

import pyarrow as pa
import pytest

from unshard.adapters.target.rendering import rendered
from unshard.core.model import Column
from unshard.core.sql.literals import exact_numbers, literal, stored
from unshard.errors.source import JsonNumberLost

GREAT = "12345678901234567890.12345"
DOC = Column("doc", "json", "json", True, None, None, None, "")
OF_TIDB = Column("doc", "json", "json", True, None, None, None, "", sent_as="utf8mb4")


@pytest.mark.parametrize(
    ("document", "found"),
    [
        (f'{{"h": {GREAT}}}', [('$."h"', GREAT)]),
        (f'[1, {{"a": [0.1, {{"b": -1.50}}], "c": 2.00}}, {"9" * 20}]', '$[1]."a"[1]."b" $[1]."c" $[2]'),
        (f'{{"a\\"]: 1.50": "x", "k": [[], {{}}, {GREAT}]}}', '$."k"[2]'),
        (f'{{"q\\"\\\\": {GREAT}}}', [('$."q\\"\\\\"', GREAT)]),
        (GREAT, [("$", GREAT)]),
        ("0.0000000000000000001", "$"),
        ("1000000000000000.0", "$"),
        ("123456789012345678901", "$"),
        ("1.2345678901234567891e5", "$"),
        ("[0.30000000000000004, 1e15, 1.0, -0.0, 0.00001, 1.5e300, 0.1, 123456789012345.0]", []),
        ("[18446744073709551615, -9223372036854775808, 1234567890123456]", []),
        (f'{{"{GREAT}": "{GREAT}", "t": "1.50,"}}', []),
        (f"]{GREAT}", []),
        ("1.2.3 1111111111111111.1", []),
    ],
)
def test_the_numbers_that_a_double_would_change(document: str, found: list[tuple[str, str]] | str) -> None:
    numbers = exact_numbers(document.encode())
    if isinstance(found, str):
        assert [number.path for number in numbers] == found.split()
    else:
        assert [(number.path, number.text) for number in numbers] == found


def hexadecimal(text: str) -> str:
    return f"_utf8mb4 x'{text.encode().hex()}'"


def test_mysql_gets_decimals() -> None:
    document = f'{{"h": {GREAT}, "l": [1.50]}}'
    paths = [hexadecimal(path) for path in ('$."h"', '$."l"[0]')]
    want = f"JSON_REPLACE({hexadecimal(document)}, {paths[0]}, {GREAT}, {paths[1]}, 1.50)"
    assert stored(DOC, document.encode()) == literal(DOC, document.encode()) == want
    texts = rendered(DOC, pa.array([b"[1]", document.encode(), None], pa.binary()))
    assert texts.to_pylist() == [b"'[1]'", want.encode(), b"NULL"]


@pytest.mark.parametrize(
    ("column", "number"), [(OF_TIDB, GREAT), (OF_TIDB, "9" * 20), (DOC, "9" * 66), (DOC, f"0.{'1' * 31}")]
)
def test_a_number_that_the_target_would_change_is_an_error(column: Column, number: str) -> None:
    value = f'{{"a": [{number} ]}}'.encode()
    for render in (stored, lambda column, value: rendered(column, pa.array([value], pa.binary()))):
        with pytest.raises(JsonNumberLost) as caught:
            render(column, value)
        assert (caught.value.number, caught.value.path) == (number, '$."a"[0]')
    assert literal(column, value)


def test_tidb_gets_numbers_of_the_same_value() -> None:
    assert stored(OF_TIDB, b"[1.50]") == "_utf8mb4'[1.50]'"
