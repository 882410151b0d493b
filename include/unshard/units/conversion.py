"""From the structure of a shard to that of its target, column by column and by name.

* A column goes to the target's column of the same name (names ignore case). Same charset: the bytes go
  as they are. Another charset: they are transcoded, and what has no counterpart is an error.
* A column of the shard that the target lacks is an error, unless the shard is known to be behind DDL that
  a forced unlock has executed on the target: then its values go where that DDL takes them (core.lineage).
* A column that a route extracts from the shard's names has one value in all its rows; the target must have it.
* A column that a column mapping changes gets its values as the last thing, in the target's character set.
* A column of the target that the shard lacks gets the target's default. Generated columns are never
  written. What the server would change without a warning (fractions of a second, DOUBLE to FLOAT, BIT
  to a number; units/bending.py) is refused here.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unshard.adapters.target import Destination
from unshard.adapters.target.destination import key_of
from unshard.adapters.target.lines import lines_of
from unshard.adapters.target.load import refuse_nulls
from unshard.core import charsets
from unshard.core.constants import constants_of
from unshard.core.lineage import Ran, names_behind
from unshard.core.mapping import Affix, Mapped, PartitionId, fitted
from unshard.core.missing import constant_default, implicit_value
from unshard.core.model import Column, Shard, TableId, TableSchema
from unshard.core.reshape import AS_IT_IS, Reshaping
from unshard.errors.target import ColumnNotInTarget, ColumnTypesDiffer, KeyColumnMissing, RowRefused
from unshard.units.bending import bent, rounds

FAMILIES = {
    "bit": "bit", "timestamp": "timestamp", "datetime": "datetime", "date": "datetime",
    "time": "time",
    "geometry": "geometry", "point": "geometry", "linestring": "geometry", "polygon": "geometry",
    "multipoint": "geometry", "multilinestring": "geometry", "multipolygon": "geometry",
    "geometrycollection": "geometry", "vector": "vector",
}  # fmt: skip
"""Types that mix with no other: the same text or bytes would mean something else there."""
EXACT = {
    "float": frozenset({"float"}),
    "double": frozenset({"double", "float", "tinyint", "smallint", "mediumint", "int"}),
}
"""Types whose every value a floating-point type holds; the server rounds others without a word."""
WIDE = frozenset({"ucs2", "utf16", "utf16le", "utf32"})
SUPERSETS = frozenset({("utf8mb3", "utf8mb4"), ("utf8", "utf8mb4"), ("utf8", "utf8mb3"), ("utf8mb3", "utf8")})


NO_PLACE = -1
PLAIN_NUMBER = r"\A(?:0|[1-9][0-9]{0,18})\z"
"""As MySQL prints it, and so that no two texts are the same number."""
Behind = Mapping[tuple[Shard, int | None], tuple[Ran, ...]]
"""What the target has had and the rows of a shard have not, held ones by the number of the DDL they stand behind."""


@dataclass(frozen=True, slots=True)
class Field:
    """Where a column of the target comes from."""

    column: Column
    """The target's."""
    place: int
    """Number of the shard's column among those that rows bring."""
    charset: str | None = None
    """The shard's charset when the bytes must be transcoded."""
    cut: int = 0
    """How many digits of the fraction of a second the target lacks; they must be zero."""
    constant: bytes | None = None
    """The value of every row, when the column is extracted and has no place."""
    mapped: Mapped | None = None
    """How the values change."""
    given: Column | None = None
    """The shard's column; None where values become what a DDL makes of them that the target has had already."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """How rows of one structure become rows of one target table."""

    destination: Destination
    fields: tuple[Field, ...]
    key: tuple[int, ...]
    """Numbers of the fields that make the target's key; empty for a multiset."""


def conversion(shard: Shard, structure: TableSchema, target: TableId, schema: TableSchema,
               behind: Sequence[Ran] = (), reshaping: Reshaping = AS_IT_IS) -> Conversion:  # fmt: skip
    """Match the columns of a shard's structure with those of the target; raises coded errors.

    `behind` is the DDL that the target has had and the rows have not.
    """
    names_there = names_behind(structure.names, behind)
    if not reshaping.leaves_columns_out:
        _refuse_unknown(shard, structure, names_there, target, schema)
    places = {column.name.lower(): place for place, column in enumerate(structure.written)}
    known = {names_there[c.name.lower()]: c for c in structure.columns if c.name.lower() in names_there}
    constants = constants_of(str(shard), structure, target, schema, reshaping.extracted)
    mapped = _mapped(shard, structure, target, schema, names_there, reshaping)
    if behind:
        constants = {**_made_up(schema, known), **constants}
    fields = tuple(
        Field(column, NO_PLACE, constant=constants[column.name.lower()])
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
    fields = tuple(replace(field, given=None) for field in fields) if behind else fields
    for field in fields:
        if field.given is not None and rounds(field.given, field.column):
            raise _differs(shard, field.given, target, field.column)
    names = [field.column.name.lower() for field in fields]
    for name in schema.key:
        if name.lower() not in names:
            raise KeyColumnMissing(str(shard), name, str(target))
    destination = Destination(target, tuple(field.column for field in fields), schema.key or schema.names[:3])
    return Conversion(destination, fields, tuple(names.index(name.lower()) for name in schema.key))


def convert(plan: Conversion, columns: Sequence[pa.Array]) -> list[pa.Array]:
    """Return the target's columns for the shard's; raises RowRefused with column and key."""
    given = [_given(field, columns) for field in plan.fields]
    converted = [_converted(plan, number, given) for number in range(len(given))]
    refuse_nulls(plan.destination, converted)
    return converted


def _given(field: Field, columns: Sequence[pa.Array]) -> pa.Array:
    if field.constant is None:
        return columns[field.place]
    return pa.repeat(pa.scalar(field.constant, pa.binary()), len(columns[0]))


def _made_up(schema: TableSchema, known: Mapping[str, Column]) -> dict[str, bytes]:
    """Return what old rows get in columns that DDL has added and that the server fills only where they are there."""
    added = [column for column in schema.written if column.name.lower() not in known]
    key = {name.lower() for name in schema.key}
    values = {c.name.lower(): constant_default(c) if c.name.lower() in key else implicit_value(c) for c in added}
    return {name: value for name, value in values.items() if value is not None}


def _refuse_unknown(shard: Shard, structure: TableSchema, names_there: Mapping[str, str], target: TableId,
                    schema: TableSchema) -> None:  # fmt: skip
    names = {column.name.lower() for column in schema.columns}
    for column in structure.written:
        if names_there.get(column.name.lower(), schema.columns[0].name.lower()) not in names:
            raise ColumnNotInTarget(str(shard), column.name, str(target))


def _mapped(shard: Shard, structure: TableSchema, target: TableId, schema: TableSchema, names_there: Mapping[str, str],
            reshaping: Reshaping) -> dict[str, Mapped]:  # fmt: skip
    """Return the mappings by the shard's name of the column that they change."""
    if not reshaping.mapped:
        return {}
    there = {column.name.lower(): column for column in schema.columns}
    wanted = {name: there[new] for name, new in names_there.items() if new in there}
    return fitted(str(shard), structure, target, wanted, reshaping.mapped)


def _source(structure: TableSchema, column: Column, mapped: Mapping[str, Mapped]) -> Column:
    """Return the shard's column whose values go where this one's would."""
    found = mapped.get(column.name.lower())
    return structure.column(found.source) if found else column


def _field(shard: Shard, given: Column, target: TableId, wanted: Column, places: dict[str, int],
           mapped: Mapped | None) -> Field:  # fmt: skip
    if given.is_generated or not _mixes(given, wanted):
        raise _differs(shard, given, target, wanted)
    place = places[given.name.lower()]
    charset = None if _same_bytes(given.charset, wanted.encoding) else given.charset
    return Field(wanted, place, charset, max(0, _fraction(given) - _fraction(wanted)), mapped=mapped, given=given)


def _differs(shard: Shard, given: Column, target: TableId, wanted: Column) -> ColumnTypesDiffer:
    kind = given.column_type + (" (generated)" if given.is_generated else "")
    return ColumnTypesDiffer(str(shard), wanted.name, kind, str(target), wanted.column_type)


def _mixes(given: Column, wanted: Column) -> bool:
    if wanted.data_type in EXACT:
        return given.data_type in EXACT[wanted.data_type]
    return FAMILIES.get(given.data_type) == FAMILIES.get(wanted.data_type)


def _same_bytes(given: str | None, wanted: str | None) -> bool:
    if given is None or wanted is None or given == wanted or (given, wanted) in SUPERSETS:
        return True
    return given == "ascii" and wanted not in WIDE


def _fraction(column: Column) -> int:
    if column.data_type not in ("datetime", "timestamp", "time"):
        return 0
    found = re.search(r"\((\d)\)", column.column_type)
    return int(found[1]) if found else 0


def _converted(plan: Conversion, number: int, given: Sequence[pa.Array]) -> pa.Array:
    field, array = plan.fields[number], given[number]
    if field.charset is not None:
        array = _transcoded(plan, number, given, field.charset)
    if field.cut:
        _refuse_fractions(plan, number, given, field.cut)
    if field.mapped is not None:
        array = _changed(plan, number, given, array, field.mapped)
    if field.given is not None and (found := bent(field.given, field.column, array)):
        raise _refused(plan, number, given, *found)
    return array


def _changed(plan: Conversion, number: int, given: Sequence[pa.Array], array: pa.Array, mapped: Mapped) -> pa.Array:
    """Return the values as a column mapping makes them; raises RowRefused for the first that it cannot change."""
    charset = plan.fields[number].column.encoding
    match mapped.change:
        case PartitionId() as change:
            changed, bad = with_bits(array if charset else _without_padding(array), change)
        case Affix(before=before, after=after):
            around = [pa.scalar(charsets.encode(part, str(charset)), pa.binary()) for part in (before, after)]
            return pc.binary_join_element_wise(around[0], array, around[1], pa.scalar(b"", pa.binary()))
    if bad is not None:
        words = f"column mapping '{mapped.rule}' takes whole numbers from 0 to {(1 << change.free) - 1} only"
        raise _refused(plan, number, given, bad, words)
    return changed


def _without_padding(array: pa.Array) -> pa.Array:
    """Take away the zeros that ZEROFILL prints."""
    return pc.replace_substring_regex(array.cast(pa.string()), r"\A0+(\d)", r"\1")


def with_bits(array: pa.Array, change: PartitionId) -> tuple[pa.Array, int | None]:
    """Return the ids with a shard's bits, or the number of the first row whose value is no id that fits."""
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


def _transcoded(plan: Conversion, number: int, given: Sequence[pa.Array], charset: str) -> pa.Array:
    field, coded = plan.fields[number], pc.dictionary_encode(given[number])
    values: list[bytes] = []
    for value in coded.dictionary.to_pylist():
        try:
            values.append(transcode(value, charset, str(field.column.encoding)))
        except UnicodeError as error:
            row = pc.index(given[number], pa.scalar(value, pa.binary())).as_py()
            words = f"x'{value.hex()[:60]}' of {charset} has no counterpart in {field.column.encoding} ({error})"
            raise _refused(plan, number, given, row, words) from error
    return pa.array(values, pa.binary()).take(coded.indices)


def transcode(value: bytes, given: str, wanted: str) -> bytes:
    """Return the same text in another charset of MySQL's; UnicodeError when it cannot be said there."""
    text = charsets.decode(value, given)
    if wanted == "ucs2" and any(ord(character) > 0xFFFF for character in text):
        raise UnicodeError("ucs2 ends at U+FFFF")
    return charsets.encode(text, wanted)


def _refuse_fractions(plan: Conversion, number: int, given: Sequence[pa.Array], cut: int) -> None:
    tail = pc.binary_slice(given[number], -cut)
    lost = pc.fill_null(pc.not_equal(tail, pa.scalar(b"0" * cut, pa.binary())), False)
    if pc.any(lost).as_py():
        row = pc.index(lost, True).as_py()
        raise _refused(plan, number, given, row, "the target's column keeps fewer digits of the second")


def _refused(plan: Conversion, number: int, given: Sequence[pa.Array], row: int, words: str) -> RowRefused:
    destination = plan.destination
    key = key_of(destination, lines_of([array.slice(row, 1) for array in given])[0].as_py())
    return RowRefused(str(destination.table), destination.columns[number].name, key, words)
