"""Turn all runs of one target table into the work of its writer: deletes, removals and lines in key order.

Runs in executors.

Of rows of tables that foreign keys connect, each change is a run of its own, written in the order of the binlog. Such a
run uses the columns of RUNS in another way than compacted runs (units/rows/batchruns.py):

| column | compacted            | in order                                                                  |
|--------|----------------------|---------------------------------------------------------------------------|
| `seq`  | order of the runs    | order of the row in its part                                              |
| `gone` | existed before       | the operation of the image; UNSURE is added if the dump may have seen it  |
| `come` | exists after         | order of the part                                                         |
| `line` | the row after        | the row of the image; empty if it only needs a key                        |
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unshard.adapters.target import Applied, Changes, Lines, Mode, Origins, Patches, RowRemoval, Writes
from unshard.adapters.target.applyinorder import ConnectedTables, RowStep, apply_in_order
from unshard.adapters.target.deletes import any_of
from unshard.adapters.target.rendering import take_rows
from unshard.adapters.target.targetrows import Selected
from unshard.core.model import Column, TableId, TableSchema
from unshard.core.rows.compaction import (
    CollisionPolicy,
    Op,
    RowStepKind,
    StepImages,
    Write,
    image_steps,
    row_operations,
)
from unshard.core.rows.rowerrors import NAMED_AT_ONCE, KeyCollision
from unshard.core.structures.tablekeys import unique_keys
from unshard.errors.rows import Collision, KeyOutOfOrder
from unshard.units.rows import shuffle
from unshard.units.rows.batchruns import (
    ADDS,
    FIRST_COLUMN,
    RUNS,
    BatchOrigin,
    counted_lines,
    equal_to_previous,
    is_ascending,
    is_tracked,
    key_of_rows,
    rendered_rows,
)
from unshard.units.rows.conversion import Conversion
from unshard.units.rows.origins import NONE, in_shard, net_lines, origins, without_shard
from unshard.units.rows.sparserows import (
    PATCH,
    folded,
    has_patches,
    is_sparse,
    lines_with_gaps,
    masks_of,
    refuse_lost_keys,
    split_line,
    whole_or_refused,
)
from unshard.units.rows.windowjob import WindowJob, fence_of

SAFE = 4
"""The cases of safe mode begin here in the table of actions."""
MODES = {Write.PLAIN: Mode.PLAIN, Write.REPLACE: Mode.REPLACE}


def changes_of(job: WindowJob, target: int, runs: pa.Table) -> Changes:
    """Compact all runs of one target table; raises if the shards contradict themselves or each other."""
    schema = job.schemas[target]
    key = tuple(schema.column(name) for name in schema.key)
    deletes, removals, lines, collisions = _parts(job, target, runs, bool(key))
    order = deletes.encoded if isinstance(deletes, Keys) and not _needs_one_transaction(lines, schema) else None
    diverts = job.diverts and bool(key)
    writes = Writes(job.targets[target], lines, unique_keys(schema), job.collisions, collisions, diverts)
    deferred = job.targets[target] in job.deferred
    return Changes(job.targets[target], key, deletes, removals, schema, writes, order, has_deferred=deferred)


@dataclass(frozen=True, slots=True)
class Keys(Sequence[tuple[bytes, ...]]):
    """Encoded keys, decoded on access: a million tuples would take more memory than everything else."""

    columns: tuple[Column, ...]
    encoded: pa.Array

    def __len__(self) -> int:
        return len(self.encoded)

    @overload
    def __getitem__(self, place: int) -> tuple[bytes, ...]: ...

    @overload
    def __getitem__(self, place: slice) -> "Keys": ...

    def __getitem__(self, place: int | slice) -> "tuple[bytes, ...] | Keys":
        if isinstance(place, int):
            return shuffle.decode_key(self.columns, self.encoded[place].as_py())
        first, last, _ = place.indices(len(self))
        return Keys(self.columns, self.encoded.slice(first, last - first))


class OptionalKeys(Sequence[tuple[bytes, ...] | None]):
    """Encoded keys, some of them null, decoded on access."""

    def __init__(self, columns: tuple[Column, ...], encoded: pa.Array) -> None:
        self._columns, self._encoded = columns, encoded

    def __len__(self) -> int:
        return len(self._encoded)

    @overload
    def __getitem__(self, place: int) -> tuple[bytes, ...] | None: ...

    @overload
    def __getitem__(self, place: slice) -> "OptionalKeys": ...

    def __getitem__(self, place: int | slice) -> "tuple[bytes, ...] | OptionalKeys | None":
        if isinstance(place, int):
            key = self._encoded[place].as_py()
            return None if key is None else shuffle.decode_key(self._columns, key)
        first, last, _ = place.indices(len(self))
        return OptionalKeys(self._columns, self._encoded.slice(first, last - first))


Parts = tuple[Sequence[tuple[bytes, ...]], Sequence[RowRemoval], Sequence[Lines], tuple[KeyCollision, ...]]


def _parts(job: WindowJob, target: int, runs: pa.Table, has_key: bool) -> Parts:
    if not runs.num_rows:
        return (), (), (), ()
    return _keyed(job, target, runs) if has_key else _multiset(job, runs)


def _multiset(job: WindowJob, runs: pa.Table) -> Parts:
    removals: list[RowRemoval] = []
    writes: list[Lines] = []
    for layout in pc.unique(runs["layout"]).to_pylist():
        some = runs.filter(pc.equal(runs["layout"], layout)).combine_chunks()
        if is_tracked(runs):
            found = _multiset_with_origins(job, some, layout)
            removals += found[0]
            writes += found[1]
            continue
        lines = _array(some, "line")
        counted = counted_lines(lines, _numbers(some, "come") - _numbers(some, "gone"))
        destination = job.layouts[layout].destination
        rows, change = counted.rows.to_numpy(), counted.change
        for row, count in zip(rows[change < 0].tolist(), change[change < 0].tolist(), strict=True):
            removals.append(RowRemoval(destination, lines[row].as_py(), -count))
        added = pa.array(np.repeat(rows[change > 0], change[change > 0]))
        if len(added):
            writes.append(_lines(job, some, layout, added, Mode.PLAIN))
    return (), removals, writes, ()


def _multiset_with_origins(job: WindowJob, runs: pa.Table, layout: int) -> tuple[list[RowRemoval], list[Lines]]:
    runs = runs.sort_by([("shard", "ascending"), ("seq", "ascending")]).combine_chunks()
    columns = (runs[name].to_pylist() for name in ("shard", "line", "base", "gone"))
    net = net_lines(*columns)
    destination = job.layouts[layout].destination
    removals = [RowRemoval(destination, line, count) for line, count in net.removed.items()]
    new = _lines(job, runs, layout, pa.array(net.new, pa.int64()), Mode.PLAIN)
    changed = _lines(job, runs, layout, pa.array([row for _, row in net.changed], pa.int64()), Mode.PLAIN)
    origins = Origins(removals=[RowRemoval(destination, line, 1) for line, _ in net.changed])
    return removals, [each for each in (new, replace(changed, origins=origins)) if len(each.lines)]


@dataclass(frozen=True, slots=True)
class _Content:
    """The lines of runs in their first order, and the index in them of each sorted run."""

    line: pa.Array
    blank: pa.Array
    order: np.ndarray

    def lines(self, runs: pa.Table, job: WindowJob, layout: int, rows: np.ndarray, mode: Mode) -> Lines:
        shards = Selected(job.shards, _numbers(runs, "shard")[rows])
        places = self.order[rows]
        return Lines(
            job.layouts[layout].destination, mode, take_rows(self.line, places), take_rows(self.blank, places), shards
        )


@dataclass(frozen=True, slots=True)
class _Sorted:
    """The runs in the order of shard, key and time, and what the runs of each key in a shard lead to."""

    runs: pa.Table
    """Without the columns of `content`."""
    content: _Content
    last: np.ndarray
    """The row of the last run of each key."""
    cases: np.ndarray
    """The case of each key in the table of actions."""
    origins: pa.Array | None
    """The key that the row of each key had before the window, if runs tell; null if the row is new."""


def _keyed(job: WindowJob, target: int, given: pa.Table) -> Parts:
    found = _sorted(job, target, given)
    runs, last = found.runs, found.last
    schema = job.schemas[target]
    columns = tuple(schema.column(name) for name in schema.key)
    keys = _array(runs, "key")
    moves = found.origins is not None and bool(pc.any(pc.not_equal(found.origins, keys.take(pa.array(last)))).as_py())
    table = row_operations(several_keys=moves or len(schema.unique_indexes) > 1)
    deleted = np.array([table[code].delete for code in range(len(table))])[found.cases]
    written = np.array([table[code].write for code in range(len(table))])[found.cases]
    gone = pc.unique(keys.take(pa.array(last[deleted])))
    deletes = Keys(columns, gone.take(pc.sort_indices(gone)))
    rows, how, collisions = _by_key(job, target, runs, last[written > 0], written[written > 0])
    lines = _writes(job, runs, found.content, rows, how)
    if found.origins is not None:
        places = np.zeros(runs.num_rows, np.int64)
        places[last] = np.arange(len(last))
        whose = _Tracked(columns, found.origins, found.cases >= SAFE, places, moves)
        lines = (_with_origins(runs, whose, *each) for each in lines)
    return deletes, (), [each for each, _ in lines], collisions


def _sorted(job: WindowJob, target: int, runs: pa.Table) -> _Sorted:
    """Sort runs and decide their keys; the lines, most of the bytes, are copied later and only if they are written."""
    order = _order(runs)
    has_gaps = has_patches(runs)
    if has_gaps:
        runs, order = runs.take(pa.array(order)), np.arange(len(order))
    narrow = runs.drop_columns(["line", "blank"])
    is_sorted = bool((order[1:] > order[:-1]).all())
    narrow = (narrow if is_sorted else narrow.take(pa.array(order))).combine_chunks()
    last, cases, broken = _decide(narrow)
    origins = _origins(narrow, last) if is_tracked(runs) else None
    if has_gaps:
        runs = folded(job, target, runs)
        narrow = runs.drop_columns(["line", "blank"])
    if broken is not None and job.collisions is CollisionPolicy.ERROR:
        raise _disorder(job, target, narrow, broken)
    content = _Content(_array(runs, "line"), _array(runs, "blank"), order)
    return _Sorted(narrow, content, last, cases, origins)


def _order(runs: pa.Table) -> np.ndarray:
    shards = _numbers(runs, "shard")
    if bool((shards == shards[0]).all()) and is_ascending(_array(runs, "key")):
        return np.arange(runs.num_rows)
    order: np.ndarray = pc.sort_indices(runs, [(name, "ascending") for name in ("shard", "key", "seq")]).to_numpy()
    return order


def _decide(runs: pa.Table) -> tuple[np.ndarray, np.ndarray, int | None]:
    """Return the last row of each group, its case in the table of actions, and a contradictory row if there is one."""
    shards = _numbers(runs, "shard")
    same = equal_to_previous(_array(runs, "key")) & np.append(False, shards[1:] == shards[:-1])
    existed, exists = _numbers(runs, "gone") > 0, _numbers(runs, "come") > 0
    safe = runs["safe"].to_numpy()
    first = np.flatnonzero(~same)
    last = np.append(first[1:], len(same)) - 1
    any_safe = np.logical_or.reduceat(safe, first)
    broken = np.flatnonzero(same[1:] & (exists[:-1] != existed[1:]) & ~(safe[1:] | safe[:-1])) + 1
    case = 4 * any_safe + 2 * existed[first] + exists[last]
    return last, case, int(broken[0]) if len(broken) else None


def _origins(runs: pa.Table, last: np.ndarray) -> pa.Array:
    """Return the key that the row of each of these runs had before the window; null if it is new."""
    shards, comes = _numbers(runs, "shard"), pa.array(_numbers(runs, "come") > 0)
    names, bases = (in_shard(shards, _array(runs, name)) for name in ("key", "base"))
    moments = _numbers(runs, "seq")[comes.to_numpy(zero_copy_only=False)]
    found = origins(names.filter(comes), bases.filter(comes), moments, names.take(pa.array(last)))
    return without_shard(found)


@dataclass(frozen=True, slots=True)
class _Tracked:
    columns: tuple[Column, ...]
    origins: pa.Array
    safe: np.ndarray
    places: np.ndarray
    """Of each last run its index in the other arrays."""
    moves: bool


def _with_origins(runs: pa.Table, tracked: _Tracked, made: Lines, rows: pa.Array) -> tuple[Lines, pa.Array]:
    """Add the rows of the target that lines change; in safe mode a row may already have its new key."""
    places = pa.array(tracked.places[rows.to_numpy()])
    origin, own = tracked.origins.take(places), _array(runs, "key").take(rows)
    safe = pa.array(tracked.safe).take(places)
    moved = pc.fill_null(pc.and_(safe, pc.not_equal(origin, own)), False)
    preferred = pc.if_else(safe, own, origin), pc.if_else(moved, origin, NONE)
    keys = tuple(OptionalKeys(tracked.columns, each) for each in preferred if each.null_count < len(each))
    return replace(made, origins=Origins(keys, moves=tracked.moves) if keys else None), rows


def _by_key(
    job: WindowJob, target: int, runs: pa.Table, rows: np.ndarray, how: np.ndarray
) -> tuple[np.ndarray, np.ndarray, tuple[KeyCollision, ...]]:
    """Sort the rows to write by key, and resolve the keys that two shards have."""
    key = take_rows(_array(runs, "key"), rows)
    if is_ascending(key):
        return rows, how, ()
    seq = _numbers(runs, "seq")[rows]
    order = pc.sort_indices(pa.table({"key": key, "seq": seq}), [("key", "ascending"), ("seq", "ascending")]).to_numpy()
    rows, how = rows[order], how[order]
    same = equal_to_previous(key.take(pa.array(order)))
    if not same.any():
        return rows, how, ()
    seconds = np.flatnonzero(same)
    collisions = tuple(
        _shared(job, target, runs, int(rows[n - 1]), int(rows[n])) for n in seconds[:NAMED_AT_ONCE].tolist()
    )
    collisions = (*collisions[:-1], replace(collisions[-1], others=len(seconds) - len(collisions)))
    match job.collisions:
        case CollisionPolicy.ERROR:
            collision = collisions[0]
            raise Collision(
                str(collision.target),
                collision.key,
                str(collision.shard),
                f"shard {collision.owner}",
                collision.condition,
            )
        case CollisionPolicy.REPLACE:
            kept = ~np.append(same[1:], False)
        case CollisionPolicy.IGNORE:
            kept = ~same
    return rows[kept], how[kept], collisions


def _writes(
    job: WindowJob, runs: pa.Table, content: _Content, rows: np.ndarray, how: np.ndarray
) -> Iterator[tuple[Lines, pa.Array]]:
    layouts = _numbers(runs, "layout")[rows]
    for write, mode in MODES.items():
        for layout in np.unique(layouts[how == write]).tolist():
            places = rows[(how == write) & (layouts == layout)]
            made = content.lines(runs, job, layout, places, mode)
            chosen = pa.array(places)
            yield _with_patches(job, runs, chosen, replace(made, order=take_rows(_array(runs, "key"), places))), chosen


def _needs_one_transaction(lines: Sequence[Lines], schema: TableSchema) -> bool:
    """Whether rows must be read that an earlier step of the same changes may have deleted."""
    read = [found for each in lines for found in (each.patches, each.origins) if found is not None]
    return bool(read) and (len(schema.unique_indexes) > 1 or any(each.moves for each in read))


def _lines(job: WindowJob, runs: pa.Table, layout: int, rows: pa.Array, mode: Mode) -> Lines:
    content = _Content(_array(runs, "line"), _array(runs, "blank"), np.arange(runs.num_rows))
    return content.lines(runs, job, layout, rows.to_numpy(), mode)


def _with_patches(job: WindowJob, runs: pa.Table, chosen: pa.Array, made: Lines) -> Lines:
    """Determine the rows that lines with gaps change, and keep only the line of each."""
    gaps = np.flatnonzero(_numbers(runs, "come")[chosen.to_numpy()] >= PATCH)
    if not len(gaps):
        return made
    rows = chosen.take(pa.array(gaps))
    target = made.destination.table
    schema = job.schemas[job.targets.index(target)]
    own, come = _array(runs, "key").take(rows), _numbers(runs, "come")[rows.to_numpy()]
    parts = [split_line(line) for line in made.lines.take(pa.array(gaps)).to_pylist()]
    bases = [base or key for (base, _), key in zip(parts, own.to_pylist(), strict=True)]
    places = np.arange(len(made.lines))
    places[gaps] = len(made.lines) + np.arange(len(gaps))
    lines = pa.concat_arrays([made.lines, pa.array([line for _, line in parts], pa.binary())]).take(pa.array(places))
    target_keys = Keys(tuple(schema.column(name) for name in schema.key), pa.array(bases, pa.binary()))
    patches = Patches(gaps, target_keys, (come == PATCH).tolist(), bases != own.to_pylist())
    return replace(made, lines=lines, patches=patches)


def _shared(job: WindowJob, target: int, runs: pa.Table, first: int, second: int) -> KeyCollision:
    owner, shard = (job.shards[runs["shard"][row].as_py()] for row in (first, second))
    key, schema = runs["key"][second].as_py(), job.schemas[target]
    columns = [schema.column(name) for name in schema.key]
    condition = any_of(columns, [shuffle.decode_key(columns, key)])
    return KeyCollision(job.targets[target], shown_row_key(job, target, key), condition, shard, owner)


def _disorder(job: WindowJob, target: int, runs: pa.Table, row: int) -> KeyOutOfOrder:
    shard = job.shards[runs["shard"][row].as_py()]
    return KeyOutOfOrder(str(shard), str(job.targets[target]), shown_row_key(job, target, runs["key"][row].as_py()))


def shown_row_key(job: WindowJob, target: int, key: bytes) -> str:
    """Return a key as messages show it."""
    schema = job.schemas[target]
    columns = [schema.column(name) for name in schema.key]
    values = shuffle.decode_key(columns, key)
    pairs = zip(columns, values, strict=True)
    return ", ".join(f"{c.name} = {value.decode('utf-8', 'backslashreplace')[:60]}" for c, value in pairs)


def _numbers(runs: pa.Table, name: str) -> np.ndarray:
    numbers: np.ndarray = runs[name].to_numpy()
    return numbers


def _array(runs: pa.Table, name: str) -> pa.Array:
    column = runs[name]
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


UNSURE = 4
SORTED = [(name, "ascending") for name in ("come", "seq", "target", "shard")]
IMAGES_AT_ONCE = 10_000


def images_of(
    batch: pa.RecordBatch, conversion: Conversion, origin: BatchOrigin, rank: int, seq: pa.Array, *, is_unsure: bool
) -> pa.RecordBatch:
    """Return each row image of a batch as a run."""
    if is_sparse(batch) and not conversion.key:
        batch = whole_or_refused(batch, origin.name, conversion)
    sparse = is_sparse(batch)
    columns = batch.columns[FIRST_COLUMN : -1 if sparse else None]
    ops = batch.column(0).to_numpy()
    needed = ADDS[ops] if conversion.key else np.ones(len(ops), bool)
    if sparse:
        refuse_lost_keys(batch, conversion, origin.name)
        found, marks, _ = lines_with_gaps(batch, conversion, masks_of(batch).to_pylist(), needed)
        lines, blank = pa.array(found, pa.binary()), pa.array(marks)
    else:
        made, marked = rendered_rows(columns, np.flatnonzero(needed), conversion)
        places = pa.array(np.cumsum(needed) - 1, pa.int64(), mask=~needed)
        lines, blank = made.take(places), pc.fill_null(marked.take(places), False)
    key = key_of_rows(columns, conversion) if conversion.key else pa.array([b""] * len(ops), pa.binary())
    size = len(ops)
    arrays = [
        pa.array(np.full(size, origin.shard, np.int32)),
        pa.array(np.full(size, origin.layout, np.int32)),
        seq,
        pa.array(ops.astype(np.int32) + (UNSURE if is_unsure else 0)),
        pa.array(np.full(size, rank, np.int32)),
        pa.array(np.full(size, origin.safe)),
        blank,
        key,
        lines,
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=RUNS)


def apply_group(job: WindowJob, targets: Sequence[int], runs: Mapping[int, pa.Table]) -> dict[TableId, Applied]:
    """Apply the runs of tables that foreign keys connect; raises StepRefused."""
    own = {target: runs[target] for target in targets if target in runs}
    schemas = {job.targets[target]: job.schemas[target] for target in own}
    group = ConnectedTables(
        tuple(fence_of(job, target) for target in own),
        job.foreign_keys,
        schemas,
        job.collisions,
        job.deferred,
        job.diverts,
    )
    return apply_in_order(job.writer, group, OrderedRuns(job, sorted_runs(own)))


def sorted_runs(runs: Mapping[int, pa.Table]) -> pa.Table:
    """Return all runs of a group in the order of the binlog, with the number of their target."""
    tables = [
        table.append_column("target", pa.array(np.full(table.num_rows, target, np.int32)))
        for target, table in runs.items()
    ]
    return pa.concat_tables(tables).sort_by(SORTED).combine_chunks()


@dataclass(frozen=True)
class OrderedRuns:
    """The runs of a group in order, as the writer reads them: a part at a time, because a window may be large."""

    job: WindowJob
    images: pa.Table

    @property
    def rows(self) -> int:
        return int(self.images.num_rows)

    @property
    def bytes(self) -> int:
        return int(self.images.nbytes)

    @cached_property
    def content(self) -> str:
        digest, sink = hashlib.sha256(), pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.images.schema) as stream:
            stream.write_table(self.images)
        digest.update(sink.getvalue())
        return digest.hexdigest()

    def after(self, images: int) -> Iterator[RowStep]:
        start = images
        while start < self.rows:
            piece = self.images.slice(start, IMAGES_AT_ONCE)
            if piece["gone"][-1].as_py() % UNSURE == Op.BEFORE:  # the other image of an UPDATE follows
                piece = self.images.slice(start, IMAGES_AT_ONCE + 1)
            start += piece.num_rows
            yield from row_steps(self.job, piece)


def row_steps(job: WindowJob, images: pa.Table) -> Iterator[RowStep]:
    """Yield the steps of images that are sorted."""
    columns = {name: images[name].to_pylist() for name in images.schema.names}
    ops = [op % UNSURE for op in columns["gone"]]
    unsure = [op >= UNSURE for op in columns["gone"]]
    names = list(zip(columns["target"], columns["shard"], columns["layout"], columns["safe"], unsure, strict=True))
    own = {key.child for key in job.foreign_keys if key.child == key.parent}
    alone = [job.targets[target] in own for target in columns["target"]]
    return (_step(job, columns, unsure, each) for each in image_steps(ops, names, alone))


def _step(job: WindowJob, columns: Mapping[str, list[Any]], unsure: Sequence[bool], images: StepImages) -> RowStep:
    first, last = images.rows[0], images.rows[-1]
    target = columns["target"][first]
    schema = job.schemas[target]
    key = tuple(schema.column(name) for name in schema.key)
    is_update = images.kind is RowStepKind.UPDATE
    old = (first,) if is_update else images.rows
    new = {RowStepKind.UPDATE: (last,), RowStepKind.INSERT: images.rows}.get(images.kind, ())
    keys, lines, blank = columns["key"], columns["line"], columns["blank"]
    moves = is_update and keys[first] != keys[last]
    return RowStep(
        images.kind,
        job.layouts[columns["layout"][first]].destination,
        key,
        [shuffle.decode_key(key, keys[row]) for row in old],
        [lines[row] for row in old],
        [lines[row] for row in new],
        [blank[row] for row in new],
        job.shards[columns["shard"][first]],
        shuffle.decode_key(key, keys[last]) if moves else None,
        columns["safe"][first],
        unsure[first],
        len(images.rows),
    )
