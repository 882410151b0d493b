"""SQL literals of canonical values for WHERE clauses (chunk bounds, deletes by key), and expressions to select them.

The canonical value of a column is the bytes that MySQL prints for it in the column's own charset. A literal must
select the same rows through an index in any session charset. So text is written as an introducer
with hexadecimal digits: the server then compares in the column's collation, and nothing needs escaping.

TiDB stores text as UTF-8 and would store the bytes of another charset without conversion: latin1 becomes
invalid text without a warning. Columns of such a charset have `sent_as` set (adapters/structures.py). Their
canonical value is UTF-8, and their literal is quoted text. TiDB refuses `_gbk x'..'` and reads the digits of
`_utf8mb4 x'..'` as bytes of GBK. It converts and validates quoted text, and can use an index for it.
"""

import re

from unshard.core.model import Column
from unshard.core.sql.jsonnumbers import JsonNumber, exact_numbers
from unshard.core.sql.quoting import identifier
from unshard.core.sql.words import words_of
from unshard.errors.source import JsonNumberLost, UnknownColumnType, ValueNotCanonical

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
