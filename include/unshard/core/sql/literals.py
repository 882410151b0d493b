"""SQL literals of canonical values for WHERE clauses (chunk bounds, deletes by key), and expressions to select them.

The canonical value of a column is the bytes that MySQL prints for it in the column's own charset. A literal must
select the same rows through an index in any session charset. So text is written as an introducer
with hexadecimal digits: the server then compares in the column's collation, and nothing needs escaping.

TiDB stores text as UTF-8 and would store the bytes of another charset without conversion: latin1 becomes
invalid text without a warning. Columns of such a charset have `sent_as` set (adapters/structures.py). Their
canonical value is UTF-8, and their literal is quoted text. TiDB refuses `_gbk x'..'` and reads the digits of
`_utf8mb4 x'..'` as bytes of GBK. It converts and validates quoted text, and can use an index for it.

MySQL's JSON can hold a DECIMAL, and prints it as a number with all its digits. But its parser reads a number with a
point, or a large one, as a DOUBLE: 12345678901234567890.12345 becomes 1.2345678901234567e19, and 1.50 becomes 1.5. A
DECIMAL gets into a document by JSON_REPLACE only. TiDB's JSON has no DECIMAL.
"""

import re
from collections.abc import Iterator
from decimal import Context, Decimal
from typing import NamedTuple

from unshard.core.model import Column
from unshard.core.sql.quoting import identifier
from unshard.core.sql.words import words_of
from unshard.errors.source import JsonNumberLost, UnknownColumnType, ValueNotCanonical

MAYBE = rb"\d[\d.]{15}|\.\d+0(?:[^\d]|$)|0\.0000"
"""Matches in every text with such a number, and in few others."""
DIGITS, SCALE = 65, 30
"""The limits of DECIMAL."""
EXACT = Context(prec=1000)
"""Rounds no DECIMAL and no DOUBLE; Python's own context rounds to 28 digits."""
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


# --- literals


BITS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "integer": 32, "bigint": 64}
INTEGERS = frozenset(BITS)
PREFIX_BYTES = {
    f"{size}{kind}": number
    for number, size in enumerate(("tiny", "", "medium", "long"), 1)
    for kind in ("text", "blob")
}
"""The bytes of the length of a TEXT or BLOB."""
DECIMALS = frozenset({"decimal", "numeric"})
FLOATS = frozenset({"float", "double", "real"})
TEMPORALS = frozenset({"date", "datetime", "timestamp", "time", "year"})
TEXTS = frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set"})
GEOMETRIES = words_of("geometry point linestring polygon multipoint multilinestring multipolygon geometrycollection")
BINARIES = GEOMETRIES | words_of("binary varbinary tinyblob blob mediumblob longblob vector")
PRINTED = frozenset({"uuid", "inet4", "inet6", "json"})
"""Types whose values are printed as ASCII or utf8mb4 text although the column has no charset."""

_NUMBER = re.compile(rb"-?\d+(\.\d+)?(e[+-]?\d+)?\Z", re.IGNORECASE)
_TEMPORAL = re.compile(rb"-?[\d:. -]+\Z")


def is_known(column: Column) -> bool:
    """Whether unshard can read, compare and write values of the column's type."""
    kinds = (INTEGERS, DECIMALS, FLOATS, TEMPORALS, TEXTS, BINARIES, PRINTED, ("bit",))
    return any(column.data_type in kind for kind in kinds)


def limits(column: Column) -> tuple[int, int]:
    """Return the smallest and the largest number of an integer column."""
    bits = BITS[column.data_type]
    return (0, (1 << bits) - 1) if column.is_unsigned else (-(1 << bits - 1), (1 << bits - 1) - 1)


def literal(column: Column, value: bytes | None) -> str:
    """Return the literal of `value` for a comparison with `column`; `NULL` for None."""
    if value is None:
        return "NULL"
    kind = column.data_type
    if column.sent_as:
        return f"_{column.sent_as}{_quoted(column, value)}"
    if kind in TEXTS or kind in PRINTED:
        text = f"_{_charset(column)} x'{value.hex()}'"
        return _exact_json(text, exact_numbers(value)) if kind == "json" else text
    if kind in BINARIES:
        return f"x'{value.hex()}'"
    if kind == "bit":
        return str(int.from_bytes(value, "big"))
    return _printed_literal(column, value)


def stored(column: Column, value: bytes | None) -> str:
    """Return the literal of a value to write; raises JsonNumberLost if the column would change a number in it."""
    for number in exact_numbers(value) if column.data_type == "json" and value else ():
        if (column.sent_as and number.is_changed) or not number.literal:
            raise JsonNumberLost(column.name, number.text, number.path)
    return literal(column, value)


def expression(column: Column) -> str:
    """Return the expression that selects the column's canonical values: without it, a FLOAT prints only six digits."""
    name = identifier(column.name)
    if column.sent_as:
        return f"CONVERT({name} USING {column.sent_as})"
    # MySQL has CAST(… AS DOUBLE) since 8.0.17 only; adding zero would lose the sign of -0.
    return f"{name} * 1e0" if column.data_type == "float" else name


def bytes_of(column: Column) -> str:
    """Return the SQL expression for the canonical bytes of a text column, to compare them without a collation."""
    return f"CAST({expression(column)} AS BINARY)"


def _exact_json(text: str, numbers: tuple[JsonNumber, ...]) -> str:
    """Return an expression for a document of MySQL in which each of these numbers is a DECIMAL."""
    pairs = (f", _utf8mb4 x'{number.path.encode().hex()}', {number.literal or number.text}" for number in numbers)
    return f"JSON_REPLACE({text}{''.join(pairs)})" if numbers else text


def _quoted(column: Column, value: bytes) -> str:
    """Return UTF-8 text in quotes; unshard's sessions never use NO_BACKSLASH_ESCAPES."""
    try:
        text = value.decode()
    except UnicodeDecodeError as error:
        raise ValueNotCanonical(column.name, column.column_type) from error
    return "'" + text.replace("\\", "\\\\").replace("'", "''").replace("\0", "\\0") + "'"


def _printed_literal(column: Column, value: bytes) -> str:
    """Return the literal of a number or a time, which has the text of the value."""
    kind = column.data_type
    if kind in INTEGERS or kind in DECIMALS:
        return _matching(_NUMBER, column, value)
    if kind in FLOATS:
        # Without an exponent the literal would be a DECIMAL, which cannot hold every double.
        number = _matching(_NUMBER, column, value)
        return number if "e" in number.lower() else f"{number}e0"
    if kind in TEMPORALS:
        return f"'{_matching(_TEMPORAL, column, value)}'"
    raise UnknownColumnType(column.name, column.column_type)


def _charset(column: Column) -> str:
    charset = column.charset or ("binary" if column.data_type in TEXTS else "utf8mb4")
    if not charset.isalnum():
        raise UnknownColumnType(column.name, f"{column.column_type} character set {charset}")
    return charset


def _matching(pattern: re.Pattern[bytes], column: Column, value: bytes) -> str:
    if pattern.match(value) is None:
        raise ValueNotCanonical(column.name, column.column_type)
    return value.decode("ascii")
