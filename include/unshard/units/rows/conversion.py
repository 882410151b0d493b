"""Convert rows from the structure of a shard to that of its target, by column name. Runs in executors.

* A column goes to the target's column of the same name (names ignore case). If the charsets are equal, the bytes are
  copied. Otherwise they are transcoded, and a character without a counterpart is an error.
* A column of the shard that the target lacks is an error, unless a forced unlock has executed DDL on the target that
  the shard has not reached: then the values go where that DDL moves them (core.ddl.sessioneffects).
* A column that a route extracts from the shard's names has one value in all its rows; the target must have it.
* A column mapping changes values last, in the target's character set.
* A column of the target that the shard lacks gets the target's default. Generated columns are never written.
* With `shard-mode: optimistic` columns are matched by their ids (core.join.places). A column that the shard lacks gets
  the fill of its id.
* Values that the server would change without a warning (fractions of a second, DOUBLE to FLOAT, BIT to a number;
  units/rows/conversion.py) are refused here.

Detect values that a server changes without a warning when it stores them in a column of another type.

LOAD DATA LOCAL warns of most values that do not fit. It does not warn of values that it considers equal: CHAR without
trailing spaces, BINARY padded with zeros, a number that is the index of an ENUM label, a year of two digits.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unshard.adapters.target import Destination
from unshard.adapters.target.sending import refuse_nulls
from unshard.adapters.target.targetrows import LineForm, key_of
from unshard.core.ddl.lineage import ExecutedDdl, names_after
from unshard.core.join.places import JoinedRows, Place
from unshard.core.model import Column, Shard, TableId, TableSchema
from unshard.core.rows.missingcolumns import constant_default, filled_value, implicit_value
from unshard.core.rules.columnmapping import Affix, Mapped, PartitionId, fitted
from unshard.core.rules.reshaping import AS_IT_IS, Reshaping, constants_of
from unshard.core.sql import charsets
from unshard.core.sql.charsets import is_stored_alike
from unshard.core.structures.columntypes import read_labels
from unshard.errors.rows import ColumnNotInTarget, ColumnTypesDiffer, KeyColumnMissing, RowRefused

FLOATS = frozenset({"float", "double"})
YEAR = r"\A[0-9]{4}\z"


def first_changed(shard_column: Column, target_column: Column, array: pa.Array) -> tuple[int, str] | None:
    """Return the number of the first value that `target_column` would change, and why; None if it changes none."""
    check = _CHECKS.get(target_column.data_type)
    if check is None or shard_column.column_type == target_column.column_type:
        return None
    marks, reason = check(shard_column, target_column, array)
    row = pc.index(pc.fill_null(marks, False), True).as_py()
    return None if row < 0 else (row, reason)


def rounds(shard_column: Column, target_column: Column) -> bool:
    """Whether floating-point values lose digits because the column limits their number."""
    if target_column.data_type not in FLOATS or shard_column.data_type not in FLOATS:
        return False
    target_digits, shard_digits = target_column.numbers[1:], shard_column.numbers[1:]
    return bool(target_digits) and (
        shard_column.data_type != target_column.data_type or not shard_digits or shard_digits > target_digits
    )


def _blanks(shard_column: Column, target_column: Column, array: pa.Array) -> tuple[pa.Array, str]:
    blank = charsets.encode(" ", target_column.encoding or "binary")
    return pc.and_(
        pc.ends_with(array, blank), shard_column.data_type != "char"
    ), "the target's column drops the trailing spaces"


def _zeros(shard_column: Column, target_column: Column, array: pa.Array) -> tuple[pa.Array, str]:
    (width,) = target_column.numbers
    return pc.less(pc.binary_length(array), width), "the target's column pads it with zero bytes"


def _years(shard_column: Column, target_column: Column, array: pa.Array) -> tuple[pa.Array, str]:
    marks = pc.invert(pc.match_substring_regex(array, YEAR))
    return pc.and_(marks, shard_column.data_type != "year"), "the target's column reads it as another year"


def _labels(shard_column: Column, target_column: Column, array: pa.Array) -> tuple[pa.Array, str]:
    labels = frozenset(read_labels(target_column.column_type))
    coded = pc.dictionary_encode(array)
    unknown = [_is_unknown(value, target_column, labels) for value in coded.dictionary.to_pylist()]
    return pa.array(unknown, pa.bool_()).take(coded.indices), "it is not a label of the target's column"


def _is_unknown(value: bytes, target_column: Column, labels: frozenset[str]) -> bool:
    try:
        text = charsets.decode(value, target_column.encoding or "binary")
    except UnicodeDecodeError:
        return False
    return text != "" and not labels.issuperset(text.split(",") if target_column.data_type == "set" else [text])


_CHECKS = {"char": _blanks, "binary": _zeros, "year": _years, "enum": _labels, "set": _labels}


# --- the conversion of rows


FAMILIES = {
    "bit": "bit",
    "timestamp": "timestamp",
    "datetime": "datetime",
    "date": "datetime",
    "time": "time",
    "geometry": "geometry",
    "point": "geometry",
    "linestring": "geometry",
    "polygon": "geometry",
    "multipoint": "geometry",
    "multilinestring": "geometry",
    "multipolygon": "geometry",
    "geometrycollection": "geometry",
    "vector": "vector",
}
"""Types that cannot be mixed with others: the same text or bytes would have another meaning there."""
EXACT = {
    "float": frozenset({"float"}),
    "double": frozenset({"double", "float", "tinyint", "smallint", "mediumint", "int"}),
}
"""The types whose values a floating-point type holds exactly; the server rounds others without a warning."""


NO_PLACE = -1
PLAIN_NUMBER = r"\A(?:0|[1-9][0-9]{0,18})\z"
"""As MySQL prints it, so that a number has only one text."""
Behind = Mapping[tuple[Shard, int | None], tuple[ExecutedDdl, ...]]
"""DDL that the target has and the rows of a shard do not have; for held rows by the number of the DDL they wait for."""


@dataclass(frozen=True, slots=True)
class TargetField:
    """The origin of a column of the target."""

    column: Column
    place: int
    """Number of the shard's column among the columns of its rows."""
    charset: str | None = None
    """The shard's charset when the bytes must be transcoded."""
    cut: int = 0
    """Number of fractional-second digits that the target lacks; they must be zero."""
    constant: bytes | None = None
    """The value of every row, if the column has no place; None is NULL."""
    mapped: Mapped | None = None
    shard_column: Column | None = None
    """The shard's column; None if DDL that the target already has changes the values."""

    @property
    def is_constant(self) -> bool:
        return self.place == NO_PLACE


@dataclass(frozen=True, slots=True)
class Conversion:
    """Conversion of rows of one structure to rows of one target table."""

    destination: Destination
    fields: tuple[TargetField, ...]
    key: tuple[int, ...]
    """Numbers of the fields of the target's key; empty for a multiset."""

    def in_form(self, form: LineForm) -> "Conversion":
        """Return the same conversion to lines of another form, if its columns have it."""
        return replace(self, destination=self.destination.in_form(form))


def conversion(
    shard: Shard,
    structure: TableSchema,
    target: TableId,
    schema: TableSchema,
    behind: Sequence[ExecutedDdl] = (),
    reshaping: Reshaping = AS_IT_IS,
) -> Conversion:
    """Match the columns of a shard's structure with those of the target; raises coded errors.

    `behind` is the DDL that the target has and the rows do not have.
    """
    target_names = names_after(structure.names, behind)
    if not reshaping.leaves_columns_out:
        _refuse_unknown(shard, structure, target_names, target, schema)
    made_up = _made_up(schema, {*target_names.values()}) if behind else {}
    found = _Match(shard, structure, target, schema, target_names, made_up, reshaping)
    return _conversion(found, is_exact=not behind)


def conversion_by_places(
    shard: Shard,
    structure: TableSchema,
    target: TableId,
    schema: TableSchema,
    places: Sequence[Place],
    reshaping: Reshaping = AS_IT_IS,
) -> Conversion:
    """Match the columns of a shard's structure with those of the target by their ids; raises coded errors."""
    target_names = {place.shard_column: place.target_column for place in places if place.shard_column}
    lacking = (place for place in places if not place.shard_column)
    fills = {place.target_column: filled_value(schema.column(place.target_column), place.fill) for place in lacking}
    return _conversion(_Match(shard, structure, target, schema, target_names, fills, reshaping), is_exact=True)


def conversion_by_ids(
    shard: Shard,
    seq: int | None,
    structure: TableSchema,
    into: tuple[TableId, TableSchema],
    joined: JoinedRows,
    reshaping: Reshaping = AS_IT_IS,
) -> Conversion:
    """Match the columns of rows that were written after DDL number `seq` of a shard; raises coded errors."""
    target, schema = into
    try:
        places = joined.places(shard, seq, structure, schema)
    except KeyError as error:
        raise ColumnNotInTarget(str(shard), str(error.args[0]), str(target)) from error
    return conversion_by_places(shard, structure, target, schema, places, reshaping)


@dataclass(frozen=True, slots=True)
class _Match:
    """A shard's structure and its target, with the target's names of the shard's columns."""

    shard: Shard
    structure: TableSchema
    target: TableId
    schema: TableSchema
    target_names: Mapping[str, str]
    constants: Mapping[str, bytes | None]
    """The values of columns that the shard lacks, by the target's names."""
    reshaping: Reshaping


def _conversion(match: _Match, *, is_exact: bool) -> Conversion:
    """Return the conversion; `is_exact`: the target's columns hold the values of the shard's columns unchanged."""
    shard, structure, target, schema = match.shard, match.structure, match.target, match.schema
    places = {column.name.lower(): place for place, column in enumerate(structure.written)}
    named = {c.name.lower(): c for c in structure.columns}
    known = {new: named[old] for old, new in match.target_names.items() if old in named}
    extracted = constants_of(str(shard), structure, target, schema, match.reshaping.extracted)
    constants = {**match.constants, **extracted}
    mapped = _mapped(shard, structure, target, schema, match.target_names, match.reshaping)
    fields = tuple(
        TargetField(column, NO_PLACE, constant=constants[column.name.lower()])
        if column.name.lower() in constants
        else _field(
            shard,
            _source(structure, known[column.name.lower()], mapped),
            target,
            column,
            places,
            mapped.get(known[column.name.lower()].name.lower()),
        )
        for column in schema.written
        if column.name.lower() in known or column.name.lower() in constants
    )
    fields = fields if is_exact else tuple(replace(field, shard_column=None) for field in fields)
    for field in fields:
        if field.shard_column is not None and rounds(field.shard_column, field.column):
            raise _differs(shard, field.shard_column, target, field.column)
    names = [field.column.name.lower() for field in fields]
    for name in schema.key:
        if name.lower() not in names:
            raise KeyColumnMissing(str(shard), name, str(target))
    key = schema.key or _shown_key(structure, fields)
    destination = Destination(target, tuple(field.column for field in fields), key)
    return Conversion(destination, fields, tuple(names.index(name.lower()) for name in schema.key))


def convert(plan: Conversion, columns: Sequence[pa.Array]) -> list[pa.Array]:
    """Return the target's columns for the shard's columns; raises RowRefused with column and key."""
    converted = convert_some(plan, columns, range(len(plan.fields)))
    refuse_nulls(plan.destination, converted)
    return converted


def convert_some(plan: Conversion, columns: Sequence[pa.Array], numbers: Iterable[int]) -> list[pa.Array]:
    """Return some of the target's columns, by their numbers in the plan; NULL is not refused."""
    arrays = [_array_of(field, columns) for field in plan.fields]
    return [_converted(plan, number, arrays) for number in numbers]


def _shown_key(structure: TableSchema, fields: Sequence[TargetField]) -> tuple[str, ...]:
    """Return the columns that show a row of a target without a usable key: the shard's key, else the first ones."""
    key = {name.lower() for name in structure.key}
    names = tuple(field.column.name for field in fields)
    return tuple(name for name in names if name.lower() in key) or names[:3]


def _array_of(field: TargetField, columns: Sequence[pa.Array]) -> pa.Array:
    if not field.is_constant:
        return columns[field.place]
    return pa.repeat(pa.scalar(field.constant, pa.binary()), len(columns[0]))


def _made_up(schema: TableSchema, known: Collection[str]) -> dict[str, bytes]:
    """Return the values of old rows in columns that DDL has added and that the server fills only in existing rows."""
    added = [c for c in schema.written if c.name.lower() not in known and c.name.lower() not in schema.own]
    key = {name.lower() for name in schema.key}
    values = {c.name.lower(): constant_default(c) if c.name.lower() in key else implicit_value(c) for c in added}
    return {name: value for name, value in values.items() if value is not None}


def _refuse_unknown(
    shard: Shard, structure: TableSchema, target_names: Mapping[str, str], target: TableId, schema: TableSchema
) -> None:
    names = {column.name.lower() for column in schema.columns}
    given = Counter(target_names.get(column.name.lower()) for column in structure.columns)
    for column in structure.written:
        name = target_names.get(column.name.lower())
        # Two shards may give one name to different columns: then a DDL that a shard misses moves one to another one.
        is_taken = given[name] > 1 and name != column.name.lower()
        if name is not None and (is_taken or name not in names):
            raise ColumnNotInTarget(str(shard), column.name, str(target))


def _mapped(
    shard: Shard,
    structure: TableSchema,
    target: TableId,
    schema: TableSchema,
    target_names: Mapping[str, str],
    reshaping: Reshaping,
) -> dict[str, Mapped]:
    if not reshaping.mapped:
        return {}
    target_columns = {column.name.lower(): column for column in schema.columns}
    wanted = {name: target_columns[new] for name, new in target_names.items() if new in target_columns}
    return fitted(str(shard), structure, target, wanted, reshaping.mapped)


def _source(structure: TableSchema, column: Column, mapped: Mapping[str, Mapped]) -> Column:
    """Return the shard's column whose values go to this column's place."""
    found = mapped.get(column.name.lower())
    return structure.column(found.source) if found else column


def _field(
    shard: Shard,
    shard_column: Column,
    target: TableId,
    target_column: Column,
    places: dict[str, int],
    mapped: Mapped | None,
) -> TargetField:
    if shard_column.is_generated or not _mixes(shard_column, target_column):
        raise _differs(shard, shard_column, target, target_column)
    place = places[shard_column.name.lower()]
    charset, encoding = shard_column.charset, target_column.encoding
    if encoding is None or (charset is not None and is_stored_alike(charset, encoding)):
        charset = None

    return TargetField(
        target_column,
        place,
        charset,
        max(0, _fraction(shard_column) - _fraction(target_column)),
        mapped=mapped,
        shard_column=shard_column,
    )


def _differs(shard: Shard, shard_column: Column, target: TableId, target_column: Column) -> ColumnTypesDiffer:
    kind = shard_column.column_type + (" (generated)" if shard_column.is_generated else "")
    return ColumnTypesDiffer(str(shard), target_column.name, kind, str(target), target_column.column_type)


def _mixes(shard_column: Column, target_column: Column) -> bool:
    if target_column.data_type in EXACT:
        return shard_column.data_type in EXACT[target_column.data_type]
    return FAMILIES.get(shard_column.data_type) == FAMILIES.get(target_column.data_type)


def _fraction(column: Column) -> int:
    if column.data_type not in ("datetime", "timestamp", "time"):
        return 0
    found = re.search(r"\((\d)\)", column.column_type)
    return int(found[1]) if found else 0


def _converted(plan: Conversion, number: int, arrays: Sequence[pa.Array]) -> pa.Array:
    field, array = plan.fields[number], arrays[number]
    if field.charset is not None:
        array = _transcoded(plan, number, arrays, field.charset)
    if field.cut:
        _refuse_fractions(plan, number, arrays, field.cut)
    if field.mapped is not None:
        array = _changed(plan, number, arrays, array, field.mapped)
    if field.shard_column is not None and (found := first_changed(field.shard_column, field.column, array)):
        raise _refused(plan, number, arrays, *found)
    return array


def _changed(plan: Conversion, number: int, arrays: Sequence[pa.Array], array: pa.Array, mapped: Mapped) -> pa.Array:
    """Return the values after a column mapping; raises RowRefused for the first value that it cannot change."""
    charset = plan.fields[number].column.encoding
    match mapped.change:
        case PartitionId() as change:
            changed, bad = with_bits(array if charset else _without_padding(array), change)
        case Affix(before=before, after=after):
            around = [pa.scalar(charsets.encode(part, str(charset)), pa.binary()) for part in (before, after)]
            return pc.binary_join_element_wise(around[0], array, around[1], pa.scalar(b"", pa.binary()))
    if bad is not None:
        message = f"column mapping '{mapped.rule}' takes whole numbers from 0 to {(1 << change.free) - 1} only"
        raise _refused(plan, number, arrays, bad, message)
    return changed


def _without_padding(array: pa.Array) -> pa.Array:
    return pc.replace_substring_regex(array.cast(pa.string()), r"\A0+(\d)", r"\1")


def with_bits(array: pa.Array, change: PartitionId) -> tuple[pa.Array, int | None]:
    """Return the ids with a shard's bits, or the number of the first row whose value is not an id that fits."""
    texts = array.cast(pa.string())
    fits = pc.fill_null(pc.match_substring_regex(texts, PLAIN_NUMBER), True)
    if (bad := pc.index(fits, False).as_py()) >= 0:
        return array, int(bad)
    ids = pc.fill_null(texts, "0").cast(pa.uint64()).to_numpy()
    too_large = np.flatnonzero(ids >> np.uint64(change.free))
    if len(too_large):
        return array, int(too_large[0])
    mapped = pa.array(ids | np.uint64(change.high)).cast(pa.string()).cast(pa.binary())
    return pc.if_else(pc.is_null(array), pa.scalar(None, pa.binary()), mapped), None


def _transcoded(plan: Conversion, number: int, arrays: Sequence[pa.Array], charset: str) -> pa.Array:
    field, coded = plan.fields[number], pc.dictionary_encode(arrays[number])
    values: list[bytes] = []
    for value in coded.dictionary.to_pylist():
        try:
            values.append(transcode(value, charset, str(field.column.encoding)))
        except UnicodeError as error:
            row = pc.index(arrays[number], pa.scalar(value, pa.binary())).as_py()
            message = f"x'{value.hex()[:60]}' of {charset} has no counterpart in {field.column.encoding} ({error})"
            raise _refused(plan, number, arrays, row, message) from error
    return pa.array(values, pa.binary()).take(coded.indices)


def transcode(value: bytes, from_charset: str, to_charset: str) -> bytes:
    """Return the same text in another charset of MySQL's; raises UnicodeError if that charset lacks a character."""
    text = charsets.decode(value, from_charset)
    if to_charset == "ucs2" and any(ord(character) > 0xFFFF for character in text):
        raise UnicodeError("ucs2 ends at U+FFFF")
    return charsets.encode(text, to_charset)


def _refuse_fractions(plan: Conversion, number: int, arrays: Sequence[pa.Array], cut: int) -> None:
    tail = pc.binary_slice(arrays[number], -cut)
    lost = pc.fill_null(pc.not_equal(tail, pa.scalar(b"0" * cut, pa.binary())), False)
    if pc.any(lost).as_py():
        row = pc.index(lost, True).as_py()
        raise _refused(plan, number, arrays, row, "the target's column keeps fewer digits of the second")


def _refused(plan: Conversion, number: int, arrays: Sequence[pa.Array], row: int, message: str) -> RowRefused:
    destination = plan.destination
    key = key_of(destination, destination.lines([each.slice(row, 1) for each in arrays])[0].as_py())
    return RowRefused(str(destination.table), destination.columns[number].name, key, message)
