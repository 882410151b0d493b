"""Convert batches of row changes to runs, and compact runs, in Arrow and NumPy. Runs in executors.

The rule is in `core/rows/compaction`; this module applies it to columns. Every executor compacts its decoded changes
before it sends them. The applier of a target compacts again the runs that it receives. One schema of runs serves every
table: the differences between tables are inside `key` and `line`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unshard.adapters.target.rendering import rows_of
from unshard.adapters.target.sending import blank_rows
from unshard.core.rows.compaction import Op
from unshard.units.rows import sortkeys
from unshard.units.rows.conversion import Conversion, convert
from unshard.units.rows.origins import bases_of, origins
from unshard.units.rows.partialrows import is_sparse, patched, refuse_lost_keys, whole_or_refused

RUNS = pa.schema(
    [
        ("shard", pa.int32()),
        ("layout", pa.int32()),  # number of the line's column list
        ("seq", pa.int64()),  # order of the runs of one key
        ("gone", pa.int32()),  # keyed: existed before; multiset: number of removed rows
        ("come", pa.int32()),  # keyed: exists after; multiset: number of added rows
        ("safe", pa.bool_()),
        ("blank", pa.bool_()),  # the line has an ENUM value with index 0
        ("key", pa.binary()),  # empty for multisets
        ("line", pa.binary()),  # the row after the run; multisets: the row itself
    ]
)
TRACKED = RUNS.append(pa.field("base", pa.binary()))
"""Runs of a target with columns of its own (origins.py): the name that the row had before the run."""
FIRST_COLUMN = 2
"""A batch begins with `_op` and `_seq`; the shard's columns follow in their order."""
TRIED_FIRST = 1000
"""So many values show in most cases that they are not in order."""
ADDS = np.array([op.adds for op in Op])


@dataclass(frozen=True, slots=True)
class Origin:
    """The properties that all rows of a batch share."""

    shard: int
    layout: int
    seq: int
    safe: bool
    name: str = ""
    """The shard, for messages."""
    unsure: bool = False
    """The dump may have read the row after this change, or may not have read it."""
    tracked: bool = False
    """Whether the target has columns of its own, so that runs name the row that they change."""


@dataclass(frozen=True, slots=True)
class Groups:
    """Sorted rows of equal keys, as row numbers; `broken` are rows that contradict the preceding one."""

    order: np.ndarray
    first: np.ndarray
    last: np.ndarray
    broken: np.ndarray


def is_tracked(runs: pa.Table) -> bool:
    """Whether runs name the row that they change."""
    return "base" in runs.schema.names


def changes_in(batch: pa.RecordBatch) -> int:
    """Return the number of row changes in a batch; the two images of an UPDATE are one change."""
    ops = batch.column(0).to_numpy()
    return int((ops != Op.AFTER).sum())


def runs_of(batch: pa.RecordBatch, conversion: Conversion, origin: Origin) -> tuple[pa.RecordBatch, bytes | None]:
    """Compact a batch of one shard; also return a key whose changes contradict each other, if there is one."""
    if is_sparse(batch):
        if conversion.key:
            return _sparse(batch, conversion, origin), None
        batch = whole_or_refused(batch, origin.name, conversion)
    columns = [batch.column(FIRST_COLUMN + place) for place in range(batch.num_columns - FIRST_COLUMN)]
    ops = batch.column(0).to_numpy()
    if conversion.key:
        return _keyed(columns, ops, conversion, origin)
    values = convert(conversion, columns)
    if origin.tracked:
        return _one_by_one(values, ops, conversion, origin), None
    return _multiset(values, ADDS[ops], conversion, origin), None


def _keyed(
    columns: Sequence[pa.Array], ops: np.ndarray, conversion: Conversion, origin: Origin
) -> tuple[pa.RecordBatch, bytes | None]:
    key, adds = key_of_rows(columns, conversion), ADDS[ops]
    groups = grouped(key, ~adds, adds)
    broken = key[int(groups.broken[0])].as_py() if len(groups.broken) else None
    existed, exists = ~adds[groups.first], adds[groups.last]
    kept = existed | exists | origin.safe
    existed, exists, last = existed[kept], exists[kept], groups.last[kept]
    lines, blank = rendered(columns, last[exists], conversion)
    places = pa.array(np.cumsum(exists) - 1, pa.int64(), mask=~exists)
    counts = existed.astype(np.int32), exists.astype(np.int32)
    names = rows_of(key, last)
    bases = None
    if origin.tracked:
        comes = pa.array(adds)
        before = bases_of(ops, key).filter(comes)
        bases = origins(key.filter(comes), before, np.flatnonzero(adds), names.filter(pa.array(exists))).take(places)
    if not exists.all():
        lines, blank = lines.take(places), pc.fill_null(blank.take(places), False)
    return _batch(origin, counts, names, lines, blank, bases), broken


def _sparse(batch: pa.RecordBatch, conversion: Conversion, origin: Origin) -> pa.RecordBatch:
    """Make a run of each change of rows that lack columns; they are compacted with all runs of the target."""
    refuse_lost_keys(batch, conversion, origin.name)
    key = key_of_rows(batch.columns[FIRST_COLUMN:-1], conversion)
    made = patched(batch, conversion, key, origin.unsure)
    runs = _batch(origin, (made.gone, made.come), made.key, made.line, made.blank, made.base)
    seq = pa.array(made.seq + origin.seq)
    return runs.set_column(runs.schema.get_field_index("seq"), runs.schema.field("seq"), seq)


def key_of_rows(columns: Sequence[pa.Array], conversion: Conversion) -> pa.BinaryArray:
    """Return the encoded key of each row; converts only the key columns."""
    fields = tuple(conversion.fields[number] for number in conversion.key)
    only = Conversion(conversion.destination.only(conversion.key), fields, ())
    return sortkeys.encode([field.column for field in fields], convert(only, columns))


def rendered(columns: Sequence[pa.Array], rows: np.ndarray, conversion: Conversion) -> tuple[pa.Array, pa.Array]:
    """Return the lines of these rows in the target, and marks of those with an ENUM value with index 0."""
    taken = [rows_of(column, rows) for column in columns]
    values = convert(conversion, taken)
    return conversion.destination.lines(values), blank_rows(conversion.destination.columns, values)


def _multiset(values: Sequence[pa.Array], adds: np.ndarray, conversion: Conversion, origin: Origin) -> pa.RecordBatch:
    lines, blank = conversion.destination.lines(values), blank_rows(conversion.destination.columns, values)
    counted = counted_lines(lines, np.where(adds, 1, -1))
    change = counted.change
    counts = np.maximum(-change, 0).astype(np.int32), np.maximum(change, 0).astype(np.int32)
    key = pa.array([b""] * len(change), pa.binary())
    return _batch(origin, counts, key, lines.take(counted.rows), blank.take(counted.rows))


def _one_by_one(values: Sequence[pa.Array], ops: np.ndarray, conversion: Conversion, origin: Origin) -> pa.RecordBatch:
    """Make a run of each change, which is compacted with all runs of the target; an UPDATE has its line before."""
    lines, blank = conversion.destination.lines(values), blank_rows(conversion.destination.columns, values)
    kept = np.flatnonzero(ops != Op.BEFORE)
    taken, adds = pa.array(kept), ADDS[ops[kept]]
    counts = (ops[kept] != Op.INSERT).astype(np.int32), adds.astype(np.int32)
    key = pa.array([b""] * len(kept), pa.binary())
    runs = _batch(origin, counts, key, lines.take(taken), blank.take(taken), bases_of(ops, lines).take(taken))
    return runs.set_column(runs.schema.get_field_index("seq"), runs.schema.field("seq"), pa.array(kept + origin.seq))


@dataclass(frozen=True, slots=True)
class Counted:
    """Distinct lines: the number of a row with each line, and the change of its count (never 0)."""

    rows: pa.Array
    change: np.ndarray


def counted_lines(lines: pa.Array, change: np.ndarray) -> Counted:
    """Sum the changes of equal lines and omit those with sum 0."""
    coded = pc.dictionary_encode(lines)
    numbers = coded.indices.to_numpy()
    sums = np.zeros(len(coded.dictionary), np.int64)
    np.add.at(sums, numbers, change)
    rows = np.zeros(len(sums), np.int64)
    rows[numbers] = np.arange(len(numbers))
    left = sums != 0
    return Counted(pa.array(rows[left]), sums[left])


def grouped(key: pa.Array, existed: np.ndarray, exists: np.ndarray) -> Groups:
    """Group rows by key; the order inside a key stays."""
    if is_ascending(key):
        order, same = np.arange(len(key), dtype=np.uint64), np.zeros(len(key), bool)
    else:
        order = pc.sort_indices(key).to_numpy()
        same = equal_to_previous(key.take(pa.array(order)))
    first = np.flatnonzero(~same)
    last = np.append(first[1:], len(order)) - 1 if len(order) else first
    broken = np.flatnonzero(same[1:] & (exists[order[:-1]] != existed[order[1:]])) + 1
    return Groups(order, order[first], order[last], order[broken])


def is_ascending(values: pa.Array) -> bool:
    """Whether each value is greater than the one before, as the keys of new rows are; faster than sorting them."""
    some = values.slice(0, TRIED_FIRST)
    return _is_ascending(some) and (len(some) == len(values) or _is_ascending(values))


def _is_ascending(values: pa.Array) -> bool:
    return len(values) < 2 or pc.all(pc.greater(values.slice(1), values.slice(0, len(values) - 1))).as_py()


def equal_to_previous(values: pa.Array) -> np.ndarray:
    """Mark the values that equal the preceding value."""
    same = np.zeros(len(values), bool)
    if len(values) > 1:
        same[1:] = pc.equal(values.slice(1), values.slice(0, len(values) - 1)).to_numpy(zero_copy_only=False)
    return same


def _batch(
    origin: Origin,
    counts: tuple[np.ndarray, np.ndarray],
    key: pa.Array,
    line: pa.Array,
    blank: pa.Array,
    base: pa.Array | None = None,
) -> pa.RecordBatch:
    size = len(key)
    numbers = [np.full(size, n, np.int32) for n in (origin.shard, origin.layout)]
    columns = [
        *map(pa.array, numbers),
        pa.array(np.full(size, origin.seq, np.int64)),
        *map(pa.array, counts),
        pa.array(np.full(size, origin.safe)),
        blank,
        key,
        line,
    ]
    if origin.tracked:
        return pa.RecordBatch.from_arrays([*columns, base], schema=TRACKED)
    return pa.RecordBatch.from_arrays(columns, schema=RUNS)
