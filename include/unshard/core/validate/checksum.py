"""SQL that makes rows of different servers comparable: one hash per row, one sum per range of keys.

The target and the union of the shards have the same rows if, for every range, the counts and the sums of the row
hashes are equal. A sum does not depend on the order of rows, and, unlike an XOR, two equal rows do not cancel out. With
64 bits of SHA-256 per row, an accidental match is practically impossible. The SQL uses only functions that MariaDB,
MySQL and TiDB share (MySQL 9.6 has removed MD5 and SHA1).

A row is hashed as `value,value,…`. A value that may contain a comma (text, bytes) is preceded by its length, and long
values are hashed first. So different rows have different texts, and no text exceeds the packet size. Columns are
matched by name. The way to read a column depends on its types in all places: a column with one type everywhere is
compared byte for byte, text of different charsets as utf8mb4, and numbers and times of different precision with the
finer one. -0.0 equals 0.0, as in every comparison of SQL.

Columns that the target generates are compared, too. Their values need not follow from equal rows: servers may compute
the same expression differently. So a row has a second hash without them, which tells whether a repair can help.

Servers print floating-point values differently: 1e15 is 1000000000000000 in TiDB's functions. But all of them print the
shortest digits that identify the value. So a value is compared by its sign, its digits and its power of ten.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from unshard.core.model import Column, TableSchema, lowered
from unshard.core.sql.literals import BINARIES, DECIMALS, FLOATS, INTEGERS, PRINTED, TEXTS
from unshard.core.sql.quoting import identifier
from unshard.core.structures.parsedtable import expressions
from unshard.errors.source import UnknownColumnType

LONG_CHARACTERS = 1024
"""Declared length from which a text or byte string is hashed separately before the row is hashed."""
MINIMAL_PACKET = 1 << 20
"""The text of a row is shorter than this (long values are hashed first); a smaller packet would turn it into NULL."""
PLACE_TARGET = "target"


class Family(StrEnum):
    """Types whose values are printed in the same way."""

    NUMBER = "number"
    FLOAT = "float"
    DATE = "date"
    DATETIME = "datetime"
    TIME = "time"
    TEXT = "text"
    BYTES = "bytes"
    PRINTED = "printed"


FAMILIES: Mapping[Family, frozenset[str]] = {
    Family.NUMBER: INTEGERS | DECIMALS | {"bit", "year"},
    Family.FLOAT: FLOATS,
    Family.DATE: frozenset({"date"}),
    Family.DATETIME: frozenset({"datetime", "timestamp"}),
    Family.TIME: frozenset({"time"}),
    Family.TEXT: TEXTS,
    Family.BYTES: BINARIES,
    Family.PRINTED: PRINTED,
}


DECIMAL_DIGITS = 65
FINER = {Family.NUMBER: "DECIMAL(65,{})", Family.DATETIME: "DATETIME({})", Family.TIME: "TIME({})"}


class Reason(StrEnum):
    """Why a column is not compared."""

    NOT_IN_TARGET = "not in the target"
    ON_ITS_WAY = "on its way to the target"
    NOT_IN_SHARDS = "not in every shard"
    DROPPED = "dropped in the target by a DDL that a shard has not reached yet"
    GENERATED = "generated, and the table has no key"
    ROW_TIMES = "the times of a system-versioned table"
    GENERATED_FROM_CHANGED = "generated from a column that a rule of the task changes"
    JSON = "JSON on one side, text on the other"


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A column that is not compared, and the places that do not have it."""

    column: str
    reason: Reason
    places: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HashedForm:
    """The way to read one column in every place, so that equal values are printed equally."""

    column: str
    family: Family | None
    """None: the places have types of different families, which are all read as text."""
    digits: int | None = None
    """Common scale or number of fractional digits, if the places differ."""
    converted: bool = False
    """Text of different charsets: compared as utf8mb4."""
    long: bool = False
    nullable: bool = True
    generated: bool = False
    """The target computes the values."""
    rounded: int | None = None
    """Digits after the point of a FLOAT(m,d) or DOUBLE(m,d), which servers store with different rounding errors."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The columns of one target table and its shards to compare, and the key by which the table is divided."""

    forms: tuple[HashedForm, ...]
    left_out: tuple[LeftOut, ...]
    key: tuple[str, ...]
    """Columns that identify a row; empty: the rows are a multiset."""
    ranged: bool
    """Whether all places sort the key in the same order, so that a range of it has the same rows everywhere."""


def compare_structures(
    places: Mapping[str, TableSchema],
    changed: Collection[str] = (),
    dropped: Collection[str] = (),
    coming: Collection[str] = (),
) -> Comparison:
    """Return how to compare the tables; `places` are the shards by name and the target as `target`.

    `changed` are the columns, in lower case, whose values are not those of the shards. A column that a shard generates
    from them has another value in the target. `dropped` are columns that shards still have and that `places` omits.
    `coming` are columns, in lower case, whose DDL or values of some shards are on their way.
    """
    names: dict[str, str] = {}
    for schema in (places[PLACE_TARGET], *places.values()):
        for column in schema.columns:
            names.setdefault(column.name.lower(), column.name)
    forms: list[HashedForm] = []
    left_out: list[LeftOut] = []
    for name in names.values():
        reason = _reason(name, places, changed)
        if reason in (Reason.NOT_IN_TARGET, Reason.NOT_IN_SHARDS) and name.lower() in coming:
            reason = Reason.ON_ITS_WAY
        if reason is None:
            generated = places[PLACE_TARGET].column(name).is_generated
            forms.append(_form(name, [schema.column(name) for schema in places.values()], generated))
        else:
            left_out.append(LeftOut(name, reason, tuple(p for p, s in places.items() if name.lower() not in s.by_name)))
    left_out += [LeftOut(name, Reason.DROPPED) for name in sorted({*dropped} - names.keys())]
    key = _key(places, {form.column.lower() for form in forms})
    if not key:
        left_out += [LeftOut(form.column, Reason.GENERATED) for form in forms if form.generated]
        forms = [form for form in forms if not form.generated]
    return Comparison(tuple(forms), tuple(left_out), key, bool(key) and _is_ranged(key, places))


def row_text(forms: Sequence[HashedForm], schema: TableSchema) -> str:
    """Return the SQL expression for the text of a row of a table with this structure."""
    return f"CONCAT_WS(',', {', '.join(_wrapped(form, schema.column(form.column)) for form in forms)})"


def row_hash(forms: Sequence[HashedForm], schema: TableSchema) -> str:
    """Return the SQL expression for the hash of a row: 64 hexadecimal digits."""
    return f"SHA2({row_text(forms, schema)}, 256)"


def row_digest(forms: Sequence[HashedForm], schema: TableSchema) -> str:
    """Return the SQL expression for the hash of a row, followed by that of the columns that a repair writes."""
    written = [form for form in forms if not form.generated]
    if len(written) == len(forms):
        return row_hash(forms, schema)
    return f"CONCAT({row_hash(forms, schema)}, {row_hash(written, schema)})"


def checksum(hashed: str) -> str:
    """Return the two aggregates of a set of rows: their number and the sum of their hashes."""
    return f"COUNT(*), COALESCE(SUM(CAST(CONV(LEFT({hashed}, 16), 16, 10) AS UNSIGNED)), 0)"


BYTES_AS = "0x"


def is_bytes(column: Column) -> bool:
    """Whether values are shown in hexadecimal digits."""
    return _family(column) is Family.BYTES


def has_readable_bytes(column: Column) -> bool:
    """Whether the bytes that the binlog and a dump have for a value are those of its text."""
    return column.data_type != "bit" and _family(column) not in (Family.FLOAT, Family.PRINTED)


def readable_expression(form: HashedForm, column: Column) -> str:
    """Return the SQL expression for a value in the form for people: text, or 0x… for bytes."""
    if is_bytes(column):
        return f"CONCAT('{BYTES_AS}', HEX({identifier(column.name)}))"
    return f"CONVERT({_value(form, column)} USING utf8mb4)" if form.converted else _readable(form, column)


def _readable(form: HashedForm, column: Column) -> str:
    if _family(column) is Family.TEXT:
        return f"CONVERT({identifier(column.name)} USING utf8mb4)"
    return f"CAST({_value(form, column)} AS CHAR)"


def _reason(name: str, places: Mapping[str, TableSchema], changed: Collection[str]) -> Reason | None:
    if name.lower() not in places[PLACE_TARGET].by_name:
        return Reason.NOT_IN_TARGET
    if not all(name.lower() in schema.by_name for schema in places.values()):
        return Reason.NOT_IN_SHARDS
    columns = [schema.column(name) for schema in places.values()]
    if all(column.is_generated for column in columns):
        found = [expressions(schema.create_sql).get(name.lower()) for schema in places.values()]
        if not any(found):
            return Reason.ROW_TIMES
        if any(each and each.columns.intersection(changed) for each in found):
            return Reason.GENERATED_FROM_CHANGED
    kinds = {column.data_type == "json" for column in columns}
    return Reason.JSON if len(kinds) == 2 else None


def _form(name: str, columns: Sequence[Column], generated: bool) -> HashedForm:
    families = {_family(column) for column in columns}
    family = families.pop() if len(families) == 1 else None
    digits = {_digits(column) for column in columns}
    charsets = {column.encoding for column in columns}
    return HashedForm(
        column=name,
        family=family,
        digits=max(digits) if len(digits) > 1 and family is not None else None,
        converted=len(charsets) > 1 or family is None,
        long=any(map(_is_long, columns)),
        nullable=any(column.nullable for column in columns),
        generated=generated,
        rounded=_rounded(columns) if family is Family.FLOAT else None,
    )


def _rounded(columns: Sequence[Column]) -> int | None:
    """Return the declared digits after the point, if all places declare the same and a DECIMAL can hold them."""
    declared = {column.numbers if len(column.numbers) == 2 else (DECIMAL_DIGITS + 1, 0) for column in columns}
    total, digits = declared.pop()
    return digits if not declared and total <= DECIMAL_DIGITS else None


def _family(column: Column) -> Family:
    for family, kinds in FAMILIES.items():
        if column.data_type in kinds:
            return family
    raise UnknownColumnType(column.name, column.column_type)


def _digits(column: Column) -> int:
    """Return the number of digits after the point: scale of a DECIMAL, fractional seconds of a time."""
    if column.data_type in DECIMALS:
        return (*column.numbers, 0, 0)[1]
    return (*column.numbers, 0)[0] if column.data_type in ("datetime", "timestamp", "time") else 0


def _is_long(column: Column) -> bool:
    if column.data_type.endswith(("text", "blob")) or column.data_type in ("json", "vector"):
        return True
    if column.data_type in BINARIES - {"binary", "varbinary"}:
        return True
    is_string = column.data_type in ("char", "varchar", "binary", "varbinary")
    return is_string and (*column.numbers, 0)[0] >= LONG_CHARACTERS


def _value(form: HashedForm, column: Column) -> str:
    """Return the expression for the column's value, as a string or number that is printed equally in every place."""
    name = identifier(column.name)
    match _family(column):
        case Family.NUMBER | Family.DATETIME | Family.TIME as family if form.digits is not None:
            value = f"CAST({name} AS {FINER[family].format(form.digits)})"
        case Family.NUMBER:
            value = f"{name} + 0"  # also removes ZEROFILL and turns BIT and YEAR into integers
        case Family.FLOAT if form.rounded is not None:
            value = f"CAST({name} AS DECIMAL({DECIMAL_DIGITS},{form.rounded}))"
        case Family.FLOAT:
            value = f"{name} + 0e0"  # all digits of a FLOAT, and -0.0 becomes 0.0
        case Family.TEXT:
            value = f"CONVERT({name} USING {'utf8mb4' if form.converted else 'binary'})"
        case Family.BYTES:
            value = f"CONVERT({name} USING binary)"
        case Family.PRINTED:
            value = f"CAST({name} AS CHAR)"
        case _:
            value = name
    return value


def _wrapped(form: HashedForm, column: Column) -> str:
    value = _value(form, column)
    if form.family is None and _family(column) not in (Family.TEXT, Family.BYTES):
        value = f"CAST({value} AS CHAR)"
    if form.family is Family.FLOAT and form.rounded is None:
        value = _digits_of_float(value)
    if form.long:
        value = f"SHA2({value}, 256)"
    elif form.family in (None, Family.TEXT, Family.BYTES, Family.PRINTED):
        value = f"CONCAT(LENGTH({value}), ':', {value})"
    return f"IFNULL({value}, 'n')" if form.nullable else value


def _digits_of_float(value: str) -> str:
    """Return an expression for sign, digits and power of ten of a floating-point value.

    The last digit of LOG10 differs between servers, so the power of ten is rounded at a limit that values with few
    digits do not have. SQRT avoids the smallest values, for which TiDB's LOG10 is wrong.
    """
    digits = f"TRIM(BOTH '0' FROM REPLACE(SUBSTRING_INDEX(ABS({value}), 'e', 1), '.', ''))"
    power = f"IFNULL(ROUND(LOG10(SQRT(ABS({value}))) * 2 + 0.1234567) + 0, 0)"
    return f"CONCAT(SIGN({value}), {digits}, 'e', {power})"


def _key(places: Mapping[str, TableSchema], compared: set[str]) -> tuple[str, ...]:
    """Return the target's key if every place has its columns, else the key that all shards share, else nothing."""
    shards = [schema.key for place, schema in places.items() if place != PLACE_TARGET]
    candidates = [places[PLACE_TARGET].key, *(shards[:1] if len({*map(lowered, shards)}) == 1 else [])]
    return next((key for key in candidates if key and compared.issuperset(lowered(key))), ())


def _is_ranged(key: Sequence[str], places: Mapping[str, TableSchema]) -> bool:
    orders = [{_order(schema.column(name)) for schema in places.values()} for name in key]
    return all(len(found) == 1 and "" not in found for found in orders)


def _order(column: Column) -> str:
    """Return a name for the sort order of the column; empty if a comparison with a literal does not use that order."""
    if column.data_type in INTEGERS:
        return "integer"
    match _family(column):
        case Family.NUMBER | Family.DATE | Family.DATETIME | Family.TIME if column.data_type != "bit":
            return f"{column.data_type} {_digits(column)}"
        case Family.TEXT if column.data_type in ("char", "varchar"):
            return f"text {column.encoding} {column.collation}"
        case Family.BYTES if column.data_type in ("binary", "varbinary"):
            return column.column_type if column.data_type == "binary" else column.data_type
        case _:
            return ""
