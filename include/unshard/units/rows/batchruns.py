"""Convert batches of row changes to runs, and compact runs, in Arrow and NumPy. Runs in executors.

The rule is in `core/rows/compaction`; this module applies it to columns. Every executor compacts its decoded changes
before it sends them. The applier of a target compacts again the runs that it receives. One schema of runs serves every
table: the differences between tables are inside `key` and `line`.

Remove row changes that the task's filters exclude, by kind or by expressions that the target evaluates.

Runs in executors. Both images of an UPDATE are removed or kept together. If a batch ends between them, the first is
kept for the next batch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unshard.adapters.target.evaluator import ExpressionEvaluator
from unshard.adapters.target.rendering import rows_of
from unshard.adapters.target.sending import blank_rows
from unshard.core.ddl.columnnames import as_own
from unshard.core.model import Shard, TableSchema
from unshard.core.rows.compaction import Op
from unshard.core.rules.filters import Action, RowFilter
from unshard.core.rules.reshaping import Reshaping
from unshard.errors.rows import ColumnLeftOut, RowsFiltered
from unshard.units.rows import shuffle
from unshard.units.rows.conversion import Conversion, convert
from unshard.units.rows.origins import bases_of, origins
from unshard.units.rows.sparserows import has, is_sparse, masks_of, patched, refuse_lost_keys, whole_or_refused

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
class BatchOrigin:
    """The properties that all rows of a batch share."""

    shard: int
    layout: int
    seq: int
    safe: bool
    name: str = ""
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


def runs_of(batch: pa.RecordBatch, conversion: Conversion, origin: BatchOrigin) -> tuple[pa.RecordBatch, bytes | None]:
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
    columns: Sequence[pa.Array], ops: np.ndarray, conversion: Conversion, origin: BatchOrigin
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


def _sparse(batch: pa.RecordBatch, conversion: Conversion, origin: BatchOrigin) -> pa.RecordBatch:
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
    return shuffle.encode([field.column for field in fields], convert(only, columns))


def rendered(columns: Sequence[pa.Array], rows: np.ndarray, conversion: Conversion) -> tuple[pa.Array, pa.Array]:
    """Return the lines of these rows in the target, and marks of those with an ENUM value with index 0."""
    taken = [rows_of(column, rows) for column in columns]
    values = convert(conversion, taken)
    return conversion.destination.lines(values), blank_rows(conversion.destination.columns, values)


def _multiset(
    values: Sequence[pa.Array], adds: np.ndarray, conversion: Conversion, origin: BatchOrigin
) -> pa.RecordBatch:
    lines, blank = conversion.destination.lines(values), blank_rows(conversion.destination.columns, values)
    counted = counted_lines(lines, np.where(adds, 1, -1))
    change = counted.change
    counts = np.maximum(-change, 0).astype(np.int32), np.maximum(change, 0).astype(np.int32)
    key = pa.array([b""] * len(change), pa.binary())
    return _batch(origin, counts, key, lines.take(counted.rows), blank.take(counted.rows))


def _one_by_one(
    values: Sequence[pa.Array], ops: np.ndarray, conversion: Conversion, origin: BatchOrigin
) -> pa.RecordBatch:
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
    origin: BatchOrigin,
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


# --- row changes that the task's filters exclude


OPS = {"insert": (Op.INSERT,), "update": (Op.BEFORE, Op.AFTER), "delete": (Op.DELETE,)}


def passing(reshaping: Reshaping, shard: Shard, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows of a batch that the filters by kind let through; raises if one demands an error."""
    for kind, rule in reshaping.events:
        ops = batch.column(0).to_numpy()
        matching = np.isin(ops, [op.value for op in OPS[kind]])
        if matching.any() and rule.action is Action.ERROR:
            raise RowsFiltered(rule.rule, str(shard), kind, int((ops == OPS[kind][0].value).sum()))
        batch = batch.filter(pa.array(~matching)) if matching.any() else batch
    return batch


class Filtering:
    """All filters, for the batches of one part of a window in order."""

    def __init__(self, evaluator: ExpressionEvaluator, structures: Mapping[str, TableSchema]) -> None:
        self._evaluator, self._structures = evaluator, structures
        self._halves: dict[tuple[Shard, str], pa.RecordBatch] = {}

    def close(self) -> None:
        self._evaluator.close()

    def passing(
        self, reshaping: Reshaping, shard: Shard, structure: str, batch: pa.RecordBatch, *, in_pairs: bool = False
    ) -> pa.RecordBatch:
        """Return the rows that all filters let through; `in_pairs` keeps both images of an UPDATE together."""
        batch = passing(reshaping, shard, batch)
        if not (reshaping.filters or in_pairs) or not batch.num_rows:
            return batch
        batch, schema = self._whole(shard, structure, batch), as_own(self._structures[structure])
        for rule in reshaping.filters:
            if batch.num_rows:
                self._refuse_gaps(rule, shard, schema, batch)
                batch = batch.filter(pa.array(~self._dropped(rule, schema, batch)))
        return batch

    def _whole(self, shard: Shard, structure: str, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch preceded by the first half of an UPDATE from the last batch, without such a half at its own
        end.
        """
        half = self._halves.pop((shard, structure), None)
        if half is not None:
            batch = pa.Table.from_batches([half, batch]).combine_chunks().to_batches()[0]
        if batch.column(0)[-1].as_py() == Op.BEFORE.value:
            self._halves[shard, structure] = batch.slice(batch.num_rows - 1)
            batch = batch.slice(0, batch.num_rows - 1)
        return batch

    def _refuse_gaps(self, rule: RowFilter, shard: Shard, structure: TableSchema, batch: pa.RecordBatch) -> None:
        """Raise if rows lack a column that the rule's expression for them names."""
        if not is_sparse(batch):
            return
        texts = {Op.DELETE: rule.delete, Op.BEFORE: rule.update_old, Op.AFTER: rule.update_new}
        for op, mask in {*zip(batch.column(0).to_pylist(), masks_of(batch).to_pylist(), strict=True)}:
            for place, column in enumerate(structure.written):
                if column.name.lower() in texts.get(Op(op), "").lower() and not has(mask, place):
                    need = f"the rule '{rule.name}' of expression-filter"
                    raise ColumnLeftOut(str(shard), column.name, "the target", need)

    def _dropped(self, rule: RowFilter, structure: TableSchema, batch: pa.RecordBatch) -> np.ndarray:
        ops = batch.column(0).to_numpy()
        dropped = np.zeros(len(ops), bool)
        for op, expression in ((Op.INSERT, rule.insert), (Op.DELETE, rule.delete)):
            dropped |= self._true(rule.name, expression, op, structure, batch)
        if rule.update_old or rule.update_new:
            expressions = [
                (op, text) for op, text in ((Op.BEFORE, rule.update_old), (Op.AFTER, rule.update_new)) if text
            ]
            pairs = np.logical_and.reduce(
                [self._true(rule.name, text, op, structure, batch)[ops == op.value] for op, text in expressions]
            )
            dropped[ops == Op.BEFORE.value] = pairs
            dropped[ops == Op.AFTER.value] = pairs
        return dropped

    def _true(self, rule: str, expression: str, op: Op, structure: TableSchema, batch: pa.RecordBatch) -> np.ndarray:
        matching: np.ndarray = batch.column(0).to_numpy() == op.value
        if expression and matching.any():
            rows = batch.filter(pa.array(matching))
            columns = rows.columns[FIRST_COLUMN : rows.num_columns - is_sparse(rows)]
            matching[matching] = self._evaluator.true_for(rule, expression, structure, columns)
            return matching
        return np.zeros(len(matching), bool)
