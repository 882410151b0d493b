"""Numbers in JSON text that a server changes when it reads them as doubles.

MySQL's JSON can hold a DECIMAL, and prints it as a number with all its digits. But its parser reads a number with a
point, or a large one, as a DOUBLE: 12345678901234567890.12345 becomes 1.2345678901234567e19, and 1.50 becomes 1.5. A
DECIMAL gets into a document by JSON_REPLACE only. TiDB's JSON has no DECIMAL.
"""

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import NamedTuple

MAYBE = rb"\d[\d.]{15}|\.\d+0(?:[^\d]|$)|0\.0000"
"""Matches in every text with such a number, and in few others."""
DIGITS, SCALE = 65, 30
"""The limits of DECIMAL."""
LEAST, FIRST_WITH_EXPONENT = 1e-15, 1e15
"""Between them a server prints doubles without an exponent."""
_MAYBE = re.compile(MAYBE)
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*|[\[\]{}:,]', re.DOTALL)


class JsonNumber(NamedTuple):
    """A number that only a DECIMAL can hold as it is written, and its place in the document."""

    path: str
    text: str

    @property
    def is_changed(self) -> bool:
        """Whether a double has another value; otherwise it is only printed differently."""
        return Decimal(self.text) != Decimal(repr(float(self.text)))

    @property
    def literal(self) -> str:
        """The literal of a DECIMAL; empty if no DECIMAL can hold the number."""
        text = format(Decimal(self.text), "f")
        whole, _, fraction = text.lstrip("-").partition(".")
        return text if len(whole.lstrip("0")) + len(fraction) <= DIGITS and len(fraction) <= SCALE else ""


def exact_numbers(document: bytes) -> tuple[JsonNumber, ...]:
    """Return the numbers of a document that a double would change."""
    if not _MAYBE.search(document):
        return ()
    try:
        return tuple(number for number in _numbers(document) if _is_exact(number))
    except (IndexError, TypeError, ArithmeticError, ValueError):  # no JSON: the server refuses it
        return ()


def _is_exact(number: JsonNumber) -> bool:
    text = number.text.lower()
    if "." not in text and "e" not in text and -(1 << 63) <= int(text) < 1 << 64:
        return False
    if number.is_changed:
        return True
    if "e" in text:
        return False
    fraction, value = text.partition(".")[2], abs(float(text))
    has_zeros = len(fraction) > 1 and fraction.endswith("0")
    return has_zeros or value >= FIRST_WITH_EXPONENT or 0 < value < LEAST


def _numbers(document: bytes) -> Iterator[JsonNumber]:
    """Yield all numbers; a key in a path has the form that it has in the document."""
    legs: list[int | str] = []
    name = ""
    for found in _TOKEN.finditer(document):
        token = found[0]
        match token[:1]:
            case b'"':
                name = token.decode()
            case b":":
                legs[-1] = name
            case b"{" | b"[":
                legs.append("" if token == b"{" else 0)
            case b"}" | b"]":
                legs.pop()
            case b",":
                leg = legs[-1]
                legs[-1] = leg + 1 if isinstance(leg, int) else ""
            case _:
                path = "".join(f"[{leg}]" if isinstance(leg, int) else f".{leg}" for leg in legs)
                yield JsonNumber(f"${path}", token.decode())
