"""Runs of rows that lack columns, from sessions that log only changed columns (binlog/sparse.py). Runs in executors.

Such a run has some columns of a row; the others keep the values that they had before it. Its line has `\\A` in place of
an unknown value. If the row had another key before, that key precedes the line: an UPDATE may change a row's key and
log no other column. These runs are not compacted where they are decoded. This module sees all runs of a target, in
their order:

| before it in the window           | becomes                                                                   |
|-----------------------------------|---------------------------------------------------------------------------|
| a whole row                       | a whole row                                                               |
| another such run                  | one run of both                                                           |
| nothing                           | a line with gaps, which the writer fills from the target (target/patches) |
| the row was deleted               | an error: the binlog contradicts itself                                   |
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unshard.adapters.target import Destination
from unshard.adapters.target.rendering import ABSENT, lines_of
from unshard.adapters.target.sending import blank_rows
from unshard.adapters.target.targetrows import is_blankable
from unshard.core.rows.compaction import Op
from unshard.errors.rows import ColumnLeftOut, KeyOutOfOrder, MovedRowUnknown
from unshard.units.rows import shuffle
from unshard.units.rows.conversion import Conversion, convert
from unshard.units.rows.origins import bases_of
from unshard.units.rows.windowjob import WindowJob

PATCH, UNSURE_PATCH = 2, 3
"""In `come`: the row exists after the run, and its line lacks values; in safe mode the row may not exist."""
FIRST_COLUMN = 2
_SIZE_BYTES = 4
State = tuple[int, list[bytes], bytes, int]
"""A row while runs are folded: layout, fields, key of the row that it changes ('' if it is whole), and `come`."""


def is_sparse(batch: pa.RecordBatch) -> bool:
    """Whether a batch has a mask column: the last one, which marks the columns that each row has."""
    return bool(pa.types.is_fixed_size_binary(batch.schema.types[-1]))


def masks_of(batch: pa.RecordBatch) -> pa.Array:
    """Return the mask column of a sparse batch."""
    return batch.column(batch.num_columns - 1)


def has(mask: bytes | None, place: int) -> bool:
    """Whether a row with this mask has the column."""
    return mask is None or bool(mask[place >> 3] >> (place & 7) & 1)


def with_masks(batches: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Return the batches, all with a mask column if one of them has it."""
    schema = next((batch.schema for batch in batches if is_sparse(batch)), None)
    return [batch if schema is None or is_sparse(batch) else _masked(batch, schema) for batch in batches]


def _masked(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    whole = pa.nulls(batch.num_rows, schema.types[-1])
    return pa.RecordBatch.from_arrays([*batch.columns, whole], schema=schema)


def in_pairs(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the batches so that no sparse batch ends between the two images of an UPDATE."""
    half: pa.RecordBatch | None = None
    for incoming in batches:
        if not is_sparse(incoming):
            yield incoming
            continue
        batch = incoming if half is None else pa.Table.from_batches([half, incoming]).combine_chunks().to_batches()[0]
        end = batch.num_rows - int(batch.column(0)[-1].as_py() == Op.BEFORE.value)
        half = batch.slice(end) if end < batch.num_rows else None
        yield batch.slice(0, end)


# --- one batch of one shard ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Patched:
    """The runs of a batch, one for each change: numbers of rows, and columns of the runs."""

    seq: np.ndarray
    gone: np.ndarray
    come: np.ndarray
    key: pa.Array
    line: pa.Array
    blank: pa.Array
    base: pa.Array
    """The key that each row had before its UPDATE."""


def whole_or_refused(batch: pa.RecordBatch, shard: str, conversion: Conversion) -> pa.RecordBatch:
    """Return the batch for a target without a key; raises if a row is not whole."""
    for mask in pc.unique(masks_of(batch)).to_pylist():
        for field in conversion.fields:
            if not field.is_constant and not has(mask, field.place):
                target = str(conversion.destination.table)
                raise ColumnLeftOut(shard, field.column.name, target, "a table without a key")
    return batch.select(batch.schema.names[:-1])


def patched(batch: pa.RecordBatch, conversion: Conversion, key: pa.Array, unsure: bool) -> Patched:
    """Return the changes of a sparse batch as runs; `key` has the key of each row."""
    ops, masks = batch.column(0).to_numpy(), masks_of(batch).to_pylist()
    after = ops == Op.AFTER
    same = np.zeros(len(ops), bool)
    same[1:] = after[1:] & pc.equal(key.slice(1), key.slice(0, len(key) - 1)).to_numpy(zero_copy_only=False)
    # The BEFORE image of a row that keeps its key adds nothing.
    kept = np.flatnonzero((ops != Op.BEFORE) | ~np.append(same[1:], False))
    come = np.where(np.isin(ops, (Op.INSERT, Op.AFTER)), 1, 0).astype(np.int32)
    gone = np.where((ops == Op.DELETE) | (ops == Op.BEFORE) | same, 1, 0).astype(np.int32)
    lines, blank, lacking = lines_with_gaps(batch, conversion, masks, come > 0)
    come[lacking] = UNSURE_PATCH if unsure else PATCH
    for row in lacking:
        base = b"" if same[row] else key[int(row) - 1].as_py()
        lines[row] = len(base).to_bytes(_SIZE_BYTES, "little") + base + (lines[row] or b"")
    seq = np.arange(len(ops)) - after
    taken = pa.array(kept)
    return Patched(
        seq[kept],
        gone[kept],
        come[kept],
        key.take(taken),
        pa.array(lines, pa.binary()).take(taken),
        pa.array(blank).take(taken),
        bases_of(ops, key).take(taken),
    )


def refuse_lost_keys(batch: pa.RecordBatch, conversion: Conversion, shard: str) -> None:
    """Raise for rows that lack a column of the target's key."""
    for mask in pc.unique(masks_of(batch)).to_pylist():
        for number in conversion.key:
            field = conversion.fields[number]
            if not field.is_constant and not has(mask, field.place):
                target = str(conversion.destination.table)
                raise ColumnLeftOut(shard, field.column.name, target, "the key of the target")


def lines_with_gaps(
    batch: pa.RecordBatch, conversion: Conversion, masks: Sequence[bytes | None], needed: np.ndarray
) -> tuple[list[bytes | None], np.ndarray, list[int]]:
    """Return the lines of the needed rows, the rows with ENUM index 0, and the rows that lack values."""
    columns = batch.columns[FIRST_COLUMN:-1]
    lines: list[bytes | None] = [None] * len(masks)
    blank, lacking = np.zeros(len(masks), bool), list[int]()
    alike: dict[bytes | None, list[int]] = defaultdict(list)
    for row in np.flatnonzero(needed).tolist():
        alike[masks[row]].append(row)
    for mask, rows in alike.items():
        fields = enumerate(conversion.fields)
        numbers = [n for n, field in fields if field.is_constant or has(mask, field.place)]
        only = Conversion(conversion.destination.only(numbers), tuple(conversion.fields[n] for n in numbers), ())
        values = convert(only, [column.take(pa.array(rows)) for column in columns])
        by_number = dict(zip(numbers, values, strict=True))
        made = lines_of([by_number.get(number) for number in range(len(conversion.fields))]).to_pylist()
        for row, line in zip(rows, made, strict=True):
            lines[row] = line
        blank[rows] = blank_rows(only.destination.columns, values).to_numpy(zero_copy_only=False)
        lacking += rows if len(numbers) < len(conversion.fields) else []
    return lines, blank, lacking


# --- all runs of a target -----------------------------------------------------------------------------------


def has_patches(runs: pa.Table) -> bool:
    """Whether some runs lack values."""
    return bool((runs["come"].to_numpy() >= PATCH).any())


def folded(job: WindowJob, target: int, runs: pa.Table) -> pa.Table:
    """Return runs, sorted by shard, key and order, the last of each key with all known values of its row."""
    return _Fold(job, target, runs.combine_chunks(), runs["come"].to_numpy()).run()


class _Fold:
    def __init__(self, job: WindowJob, target: int, runs: pa.Table, come: np.ndarray) -> None:
        self._job, self._target, self._runs, self._come = job, target, runs, come
        self._shards, self._seq = runs["shard"].to_numpy(), runs["seq"].to_numpy()
        self._layouts = runs["layout"].to_numpy()
        self._keys, self._lines = runs["key"].combine_chunks(), runs["line"].combine_chunks()
        self._states: dict[tuple[int, bytes], State | None] = {}

    def run(self) -> pa.Table:
        """Fold the runs of shared rows in order; runs with one number use the state before all of them."""
        rows = self._involved()
        order = rows[np.lexsort((self._seq[rows], self._shards[rows]))].tolist()
        last: dict[tuple[int, bytes], int] = {}
        start = 0
        while start < len(order):
            end = start
            while end < len(order) and self._moment(order[end]) == self._moment(order[start]):
                end += 1
            after = {self._name(row): self._after(row) for row in order[start:end]}
            self._states |= after
            last |= {self._name(row): row for row in order[start:end]}
            start = end
        return self._replaced({row: state for name, row in last.items() if (state := self._states[name]) is not None})

    def _moment(self, row: int) -> tuple[int, int]:
        return int(self._shards[row]), int(self._seq[row])

    def _name(self, row: int) -> tuple[int, bytes]:
        return int(self._shards[row]), self._keys[row].as_py()

    def _involved(self) -> np.ndarray:
        """Return the runs of keys that have runs with gaps, and of the earlier keys of such rows."""
        gaps = np.flatnonzero(self._come >= PATCH)
        found = {self._keys[row].as_py() for row in gaps.tolist()}
        found |= {base for row in gaps.tolist() if (base := split(self._lines[row].as_py())[0])}
        chosen = pc.is_in(self._keys, pa.array(list(found), pa.binary()))
        involved: np.ndarray = np.flatnonzero(chosen.to_numpy(zero_copy_only=False))
        return involved

    def _after(self, row: int) -> State | None:
        come, layout = int(self._come[row]), int(self._layouts[row])
        if not come:
            return None
        if come < PATCH:
            return layout, _fields(self._lines[row].as_py()), b"", 1
        shard, key = self._name(row)
        base, line = split(self._lines[row].as_py())
        name = (shard, base or key)
        if name in self._states:
            before = self._states[name]
            if before is None:
                raise KeyOutOfOrder(self._shard(shard), self._target_name(), self._shown(key))
            found = self._onto(shard, before, layout, _fields(line), come)
        else:
            found = layout, _fields(line), base or key, come
        if come == UNSURE_PATCH and base and found[2]:
            raise MovedRowUnknown(self._target_name(), self._shard(shard), self._shown(key))
        return found

    def _onto(self, shard: int, before: State, layout: int, fields: list[bytes], come: int) -> State:
        known_layout, known, base, known_come = before
        if known_layout != layout:
            layout, known, fields = self._one_layout(shard, known_layout, known, layout, fields)
        both = [old if new == ABSENT else new for old, new in zip(known, fields, strict=True)]
        # A row that is changed twice existed in between, so it must exist if one of the runs requires it.
        return layout, both, base, min(known_come, come) if base else 1

    def _one_layout(
        self, shard: int, first: int, known: list[bytes], second: int, fields: list[bytes]
    ) -> tuple[int, list[bytes], list[bytes]]:
        """Convert fields of two column lists to one list that contains all columns of both."""
        names = [[column.name for column in self._job.layouts[n].destination.columns] for n in (first, second)]
        rows = [dict(zip(names[n], some, strict=True)) for n, some in enumerate((known, fields))]
        named = {name for each in rows for name, field in each.items() if field != ABSENT}
        for layout, columns in ((second, names[1]), (first, names[0])):
            if named == set(columns) or (named <= set(columns) and ABSENT in known):
                one, two = ([each.get(name, ABSENT) for name in columns] for each in rows)
                return layout, one, two
        column = sorted(named ^ set(names[1]))[0]
        raise ColumnLeftOut(self._shard(shard), column, self._target_name(), "a DDL between two changes of one row")

    def _shard(self, number: int) -> str:
        return str(self._job.shards[number])

    def _target_name(self) -> str:
        return str(self._job.targets[self._target])

    def _shown(self, key: bytes) -> str:
        schema = self._job.schemas[self._target]
        columns = [schema.column(name) for name in schema.key]
        values = shuffle.decode(columns, key)
        return ", ".join(
            f"{c.name} = {value.decode('utf-8', 'backslashreplace')[:60]}"
            for c, value in zip(columns, values, strict=True)
        )

    def _replaced(self, found: dict[int, State]) -> pa.Table:
        rows = list(found)
        states = list(found.values())
        lines = [_line(state) for state in states]
        columns = {
            "line": (lines, pa.binary()),
            "layout": ([state[0] for state in states], pa.int32()),
            "come": ([state[3] for state in states], pa.int32()),
            "blank": (
                [_is_blank(self._job.layouts[layout].destination, fields) for layout, fields, _, _ in states],
                pa.bool_(),
            ),
        }
        places = np.arange(self._runs.num_rows)
        places[rows] = self._runs.num_rows + np.arange(len(rows))
        made = self._runs
        for name, (values, kind) in columns.items():
            whole = pa.concat_arrays([made[name].combine_chunks(), pa.array(values, kind)]).take(pa.array(places))
            made = made.set_column(made.schema.get_field_index(name), made.schema.field(name), whole)
        return made


def split(line: bytes) -> tuple[bytes, bytes]:
    """Return the earlier key of the row that a run with gaps changes (empty: unchanged), and the line."""
    end = _SIZE_BYTES + int.from_bytes(line[:_SIZE_BYTES], "little")
    return line[_SIZE_BYTES:end], line[end:]


def _fields(line: bytes) -> list[bytes]:
    return line[:-1].split(b"\t")


def _line(state: State) -> bytes:
    _, fields, base, come = state
    line = b"\t".join(fields) + b"\n"
    return line if come < PATCH else len(base).to_bytes(_SIZE_BYTES, "little") + base + line


def _is_blank(destination: Destination, fields: Sequence[bytes]) -> bool:
    return any(field == b"" and is_blankable(c) for c, field in zip(destination.columns, fields, strict=True))
