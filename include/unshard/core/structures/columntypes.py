"""The join of two column types: the smallest type that can hold every value of both.

| types                         | join                                                                               |
|-------------------------------|------------------------------------------------------------------------------------|
| integers                      | the wider; signed with unsigned: the next wider signed; BIGINT UNSIGNED with       |
|                               | signed: none                                                                       |
| DECIMAL                       | the most integer digits, the largest scale; none above 65 digits or a scale of 30  |
| CHAR, VARCHAR, TEXT           | the longer, in the later of these three forms                                      |
| BINARY, VARBINARY, BLOB       | the same, but BINARY of two lengths is VARBINARY: BINARY pads with zero bytes      |
| DATETIME, TIMESTAMP, TIME     | the larger number of fractional digits                                             |
| ENUM, SET                     | all labels; in the order of the shards, if one list begins with the other          |
| character set                 | the smallest that contains both (core/sql/charsets.py)                             |
| two other types               | none, unless they are equal                                                        |

The display width of an integer is ignored. ZEROFILL remains if both types are equal. The collation remains if all sides
with the resulting character set agree. `join_types` is commutative, associative and idempotent; None absorbs.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import lru_cache
from itertools import takewhile

from unshard.core.model import Column, TableSchema
from unshard.core.sql.charsets import MOST_BYTES, canonical, common_charset, encode, is_stored_alike
from unshard.core.sql.literals import BITS, PREFIX_BYTES
from unshard.errors.rows import UnsupportedColumn

_LABEL = re.compile(r"'((?:[^']|'')*)'(,|\)$)")
_ESCAPED = re.compile(r"''|\\(.)", re.DOTALL)
_ESCAPES = {"0": "\0", "n": "\n", "r": "\r", "Z": "\x1a"}
_LABELS = re.compile(r"((?:^|\n)  `(?:[^`]|``)*` |^)((?:enum|set)\((?:'(?:[^']|'')*'[,)])+)")
"""The labels in a column type, and in a line of SHOW CREATE TABLE."""
_LITERAL_BACKSLASH = re.compile(r"\\(?![0nr])")
_CONTROL, _BEFORE_LETTER = re.compile(r"\\[0nr]"), re.compile(r"\\\\[0nr]")


def as_escaped(text: str) -> str:
    r"""Return a text that TiDB prints with the escapes of other servers: TiDB prints a backslash in a label as it is.

    It prints zero bytes and ends of lines as `\0`, `\n` and `\r`, so a backslash before these letters is lost.
    """
    return _LABELS.sub(lambda found: found[1] + _LITERAL_BACKSLASH.sub(r"\\\\", found[2]), text)


def is_ambiguous(printed: TableSchema, statements: str) -> bool:
    """Whether a label of a structure that TiDB has printed may have a backslash before one of these letters."""
    labels = (column.column_type for column in printed.columns if column.data_type in ("enum", "set"))
    return any(map(_CONTROL.search, labels)) and bool(_BEFORE_LETTER.search(statements))


def read_labels(column_type: str) -> tuple[str, ...]:
    """Return the labels of `enum('a','b')` in order; raises ValueError if the text has another form."""
    labels, offset = [], column_type.index("(") + 1
    while offset < len(column_type):
        found = _LABEL.match(column_type, offset)
        if not found:
            raise ValueError(f"unreadable labels: {column_type}")
        labels.append(_ESCAPED.sub(lambda each: _ESCAPES.get(each[1], each[1]) if each[1] else "'", found[1]))
        offset = found.end()
    return tuple(labels)


def encoded_labels(column: Column, shard: str) -> tuple[bytes, ...]:
    """Return the labels as bytes in the column's own charset."""
    try:
        return tuple(encode(label, column.charset or "utf8mb4") for label in read_labels(column.column_type))
    except (UnicodeEncodeError, ValueError) as error:
        raise UnsupportedColumn(shard, column.name, f"labels in {column.charset}: {error}") from error


# --- the join of two types


TEXT_BYTES = {name: (1 << 8 * size) - 1 for name, size in PREFIX_BYTES.items()}
MOST_DIGITS, MOST_SCALE, MOST_LABELS = 65, 30, 64
MOST_VARIABLE = 65_532
"""The most bytes of a VARCHAR or VARBINARY: a row has at most 65,535, with lengths and NULL bits."""
INTEGER_NAMES = {8: "tinyint", 16: "smallint", 24: "mediumint", 32: "int", 64: "bigint"}
NEXT_WIDER = {8: 16, 16: 24, 24: 32, 32: 64}
TEXT_SIZES = [(TEXT_BYTES[name], name) for name in ("tinytext", "text", "mediumtext", "longtext")]
BLOB_SIZES = [(TEXT_BYTES[name], name) for name in ("tinyblob", "blob", "mediumblob", "longblob")]


class TypeForm(IntEnum):
    """The form of a text or binary type; a later one holds the values of an earlier one."""

    FIXED = 0
    VARIABLE = 1
    LARGE = 2


@dataclass(frozen=True, slots=True)
class IntegerType:
    """An integer type; `filled` is the whole type if it has ZEROFILL."""

    bits: int
    is_unsigned: bool
    filled: str = ""

    def __str__(self) -> str:
        return self.filled or f"{INTEGER_NAMES[self.bits]}{' unsigned' if self.is_unsigned else ''}"


@dataclass(frozen=True, slots=True)
class DecimalType:
    """A DECIMAL with `whole` digits before the point; `filled` is the whole type if it has ZEROFILL."""

    whole: int
    scale: int
    is_unsigned: bool
    filled: str = ""

    def __str__(self) -> str:
        unsigned = " unsigned" if self.is_unsigned else ""
        return self.filled or f"decimal({self.whole + self.scale},{self.scale}){unsigned}"


@dataclass(frozen=True, slots=True)
class TextType:
    """A text type: `characters` of its CHAR and VARCHAR sides, and for each character set the most bytes of a value."""

    form: TypeForm
    characters: int
    most_bytes: tuple[tuple[str, int], ...]
    collations: frozenset[tuple[str, str]]
    """Pairs of character set and collation."""

    @property
    def charset(self) -> str:
        return _charset(self.collations)

    @property
    def resolved(self) -> tuple[TypeForm, int]:
        """The form, and the length in characters or, for a TEXT, in bytes."""
        if self.form is not TypeForm.LARGE and self.characters * MOST_BYTES.get(self.charset, 1) <= MOST_VARIABLE:
            return self.form, self.characters
        sizes = (size if is_stored_alike(name, self.charset) else size * 3 for name, size in self.most_bytes)
        return TypeForm.LARGE, _large(max(sizes), TEXT_SIZES)[0]

    def __str__(self) -> str:
        form, length = self.resolved
        if form is TypeForm.LARGE:
            return _large(length, TEXT_SIZES)[1]
        return f"{'char' if form is TypeForm.FIXED else 'varchar'}({length})"


@dataclass(frozen=True, slots=True)
class BinaryType:
    """A type of bytes."""

    form: TypeForm
    most_bytes: int

    def __str__(self) -> str:
        if self.form is TypeForm.LARGE:
            return _large(self.most_bytes, BLOB_SIZES)[1]
        return f"{'binary' if self.form is TypeForm.FIXED else 'varbinary'}({self.most_bytes})"


@dataclass(frozen=True, slots=True)
class TimeType:
    """DATETIME, TIMESTAMP or TIME."""

    name: str
    fraction: int

    def __str__(self) -> str:
        return f"{self.name}({self.fraction})" if self.fraction else self.name


@dataclass(frozen=True, slots=True)
class LabelType:
    """ENUM or SET: `ordered` labels whose order is known, then `others` whose order the sides do not agree on."""

    name: str
    ordered: tuple[str, ...]
    others: frozenset[str]
    collations: frozenset[tuple[str, str]]

    @property
    def charset(self) -> str:
        return _charset(self.collations)

    @property
    def labels(self) -> tuple[str, ...]:
        return (*self.ordered, *sorted(self.others))

    def __str__(self) -> str:
        quoted = (label.replace("\\", "\\\\").replace("'", "''") for label in self.labels)
        return self.name + "(" + ",".join(f"'{label}'" for label in quoted) + ")"


@dataclass(frozen=True, slots=True)
class OtherType:
    """A type that joins only itself."""

    text: str

    def __str__(self) -> str:
        return self.text


ColumnType = IntegerType | DecimalType | TextType | BinaryType | TimeType | LabelType | OtherType


def type_of(column: Column) -> ColumnType:
    """Return the type of a column."""
    kind, text = column.data_type, column.column_type
    filled = text if "zerofill" in text else ""
    length, scale, *_ = (*(column.numbers or (10 if kind == "decimal" else 1,)), 0)
    if kind in BITS:
        return IntegerType(BITS[kind], column.is_unsigned, filled)
    if kind == "decimal":
        return DecimalType(length - scale, scale, column.is_unsigned, filled)
    if kind in ("datetime", "timestamp", "time"):
        return TimeType(kind, length if column.numbers else 0)
    if kind in ("enum", "set"):
        return LabelType(kind, read_labels(text), frozenset(), _collations(column))
    if kind in ("char", "varchar") or (kind in TEXT_BYTES and kind.endswith("text")):
        return _text(column, length)
    forms = {"binary": TypeForm.FIXED, "varbinary": TypeForm.VARIABLE, **dict.fromkeys(TEXT_BYTES, TypeForm.LARGE)}
    return BinaryType(forms[kind], TEXT_BYTES.get(kind, length)) if kind in forms else OtherType(text)


def join_types(one: ColumnType, other: ColumnType) -> ColumnType | None:
    """Return the smallest type that holds the values of both; None if there is no such type."""
    if one == other:
        return one
    if isinstance(one, TextType) and isinstance(other, TextType):
        return _texts(one, other)
    if isinstance(one, LabelType) and isinstance(other, LabelType) and one.name == other.name:
        return _labels(one, other)
    return _joined_numbers(one, other)


def collation_of(kind: ColumnType) -> str:
    """Return the collation of a text, ENUM or SET type; empty for others, or if its sides do not agree."""
    if not isinstance(kind, TextType | LabelType):
        return ""
    found = {collation for charset, collation in kind.collations if charset == kind.charset}
    return found.pop() if len(found) == 1 else ""


def meets(given: ColumnType, wanted: ColumnType) -> bool:
    """Whether a column of type `given` is what the join asks for: equal in all that the shards agree on."""
    if isinstance(given, LabelType) and isinstance(wanted, LabelType) and wanted.others:
        is_same = given.name == wanted.name and {*given.labels} == {*wanted.labels}
    elif isinstance(given, TextType) and isinstance(wanted, TextType):
        is_same = given.resolved == wanted.resolved
    elif isinstance(given, IntegerType | DecimalType) and isinstance(wanted, IntegerType | DecimalType):
        is_same = replace(given, filled="") == replace(wanted, filled="") and wanted.filled in ("", given.filled)
    else:
        is_same = str(given) == str(wanted)
    if not isinstance(given, TextType | LabelType) or not isinstance(wanted, TextType | LabelType):
        return is_same
    return is_same and given.charset == wanted.charset and collation_of(wanted) in ("", collation_of(given))


def type_with_choices(wanted: ColumnType, present: ColumnType | None) -> ColumnType:
    """Return a type that meets `wanted`, with the choices of `present` where the shards do not agree."""
    if isinstance(wanted, LabelType):
        wanted = _with_order(wanted, present)
    if isinstance(wanted, TextType):
        wanted = _resolved_text(wanted)
    if isinstance(wanted, TextType | LabelType) and not collation_of(wanted):
        kept = collation_of(present) if isinstance(present, TextType | LabelType) else ""
        own = {(charset, name) for charset, name in wanted.collations if charset == wanted.charset}
        is_usable = isinstance(present, TextType | LabelType) and present.charset == wanted.charset
        chosen = kept if is_usable and kept else min((name for _, name in own), default=f"{wanted.charset}_bin")
        return replace(wanted, collations=frozenset({(wanted.charset, chosen)}))
    if isinstance(wanted, TextType | LabelType):
        return replace(wanted, collations=frozenset({(wanted.charset, collation_of(wanted))}))
    if isinstance(wanted, IntegerType | DecimalType) and isinstance(present, IntegerType | DecimalType):
        is_kept = not wanted.filled and replace(present, filled="") == wanted
        return present if is_kept else wanted
    return wanted


def has_incompatible_labels(kind: ColumnType) -> bool:
    """Whether labels of an ENUM or SET cannot be in one column: two differ in case only, or they are too many."""
    if not isinstance(kind, LabelType):
        return False
    if kind.name == "set" and len(kind.labels) > MOST_LABELS:
        return True
    is_binary = all(collation.endswith("_bin") for _, collation in kind.collations)
    return not is_binary and len({label.casefold().rstrip(" ") for label in kind.labels}) < len(kind.labels)


def sort_rule(column: Column) -> str:
    """Return the rule by which a unique key compares a column's values, equal for utf8mb3_bin and utf8mb4_bin."""
    if not column.collation or not column.charset:
        return ""
    collation = canonical(column.collation)
    return collation if not is_stored_alike(column.charset, "utf8mb4") else collation.partition("_")[2]


def _joined_numbers(one: ColumnType, other: ColumnType) -> ColumnType | None:
    match one, other:
        case IntegerType(), IntegerType():
            return _integers(one, other)
        case DecimalType(), DecimalType():
            found = DecimalType(
                max(one.whole, other.whole), max(one.scale, other.scale), one.is_unsigned and other.is_unsigned
            )
            return found if found.whole + found.scale <= MOST_DIGITS and found.scale <= MOST_SCALE else None
        case BinaryType(), BinaryType():
            form = max(one.form, other.form, TypeForm.VARIABLE)
            return BinaryType(form, max(one.most_bytes, other.most_bytes))
        case TimeType(), TimeType() if one.name == other.name:
            return TimeType(one.name, max(one.fraction, other.fraction))
    return None


def _collations(column: Column) -> frozenset[tuple[str, str]]:
    charset = column.charset or "binary"
    current = "utf8mb3" if charset == "utf8" else charset
    return frozenset({(current, canonical(column.collation or ""))})


@lru_cache(256)
def _charset(collations: frozenset[tuple[str, str]]) -> str:
    found = common_charset({charset for charset, _ in collations})
    if found is None:
        raise ValueError(f"no common character set of {sorted(collations)}")
    return found


def _text(column: Column, length: int) -> TextType:
    collations = _collations(column)
    (charset,) = {charset for charset, _ in collations}
    if column.data_type in TEXT_BYTES:
        return TextType(TypeForm.LARGE, 0, ((charset, TEXT_BYTES[column.data_type]),), collations)
    form = TypeForm.FIXED if column.data_type == "char" else TypeForm.VARIABLE
    return TextType(form, length, ((charset, length * MOST_BYTES.get(charset, 1)),), collations)


def _texts(one: TextType, other: TextType) -> TextType | None:
    collations = one.collations | other.collations
    if common_charset({charset for charset, _ in collations}) is None:
        return None
    most: Mapping[str, int] = dict(one.most_bytes) | {
        charset: max(size, dict(one.most_bytes).get(charset, 0)) for charset, size in other.most_bytes
    }
    return TextType(
        max(one.form, other.form), max(one.characters, other.characters), tuple(sorted(most.items())), collations
    )


def _resolved_text(kind: TextType) -> TextType:
    form, length = kind.resolved
    own = frozenset(pair for pair in kind.collations if pair[0] == kind.charset)
    if form is TypeForm.LARGE:
        return TextType(form, 0, ((kind.charset, length),), own)
    return TextType(form, length, ((kind.charset, length * MOST_BYTES.get(kind.charset, 1)),), own)


def _integers(one: IntegerType, other: IntegerType) -> IntegerType | None:
    if one.is_unsigned == other.is_unsigned:
        return IntegerType(max(one.bits, other.bits), one.is_unsigned)
    signed, unsigned = (other, one) if one.is_unsigned else (one, other)
    if unsigned.bits not in NEXT_WIDER:
        return None
    return IntegerType(max(signed.bits, NEXT_WIDER[unsigned.bits]), False)


def _labels(one: LabelType, other: LabelType) -> LabelType | None:
    collations = one.collations | other.collations
    if common_charset({charset for charset, _ in collations}) is None:
        return None
    labels = {*one.labels, *other.labels}
    short, long = sorted((one, other), key=lambda side: len(side.ordered))
    is_begun = long.ordered[: len(short.ordered)] == short.ordered
    if is_begun and not one.others and not other.others:
        return LabelType(one.name, long.ordered, frozenset(), collations)
    pairs = zip(one.ordered, other.ordered, strict=False)
    ordered = tuple(mine for mine, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    return LabelType(one.name, ordered, frozenset(labels.difference(ordered)), collations)


def _with_order(wanted: LabelType, present: ColumnType | None) -> LabelType:
    """Return labels in an order: that of the column that exists, then the new ones."""
    known = present.labels if isinstance(present, LabelType) and wanted.others else ()
    labels = [label for label in known if label in wanted.labels]
    labels += [label for label in wanted.labels if label not in labels]
    return replace(wanted, ordered=tuple(labels), others=frozenset())


def _large(size: int, sizes: list[tuple[int, str]]) -> tuple[int, str]:
    return next(((most, name) for most, name in sizes if most >= size), sizes[-1])
