"""Rows of tables that foreign keys connect: each change is a run of its own, written in the order of the binlog.

Runs in executors. Such a run uses the columns of RUNS in another way than compacted runs (units/rows/batchruns.py):

| column | compacted            | in order                                                                  |
|--------|----------------------|---------------------------------------------------------------------------|
| `seq`  | order of the runs    | order of the row in its part                                              |
| `gone` | existed before       | the operation of the image; UNSURE is added if the dump may have seen it  |
| `come` | exists after         | order of the part                                                         |
| `line` | the row after        | the row of the image; empty if it only needs a key                        |
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unshard.adapters.target import Applied
from unshard.adapters.target.applyinorder import apply_in_order
from unshard.adapters.target.rowsteps import ConnectedTables, RowStep
from unshard.core.model import TableId
from unshard.core.rows.compaction import Op, RowStepKind, StepImages, steps_of
from unshard.units.rows import shuffle
from unshard.units.rows.batchruns import ADDS, FIRST_COLUMN, RUNS, BatchOrigin, key_of_rows, rendered
from unshard.units.rows.conversion import Conversion
from unshard.units.rows.sparserows import is_sparse, lines_with_gaps, masks_of, refuse_lost_keys, whole_or_refused
from unshard.units.rows.windowjob import WindowJob, fence_of

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
        made, marked = rendered(columns, np.flatnonzero(needed), conversion)
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
    return (_step(job, columns, unsure, each) for each in steps_of(ops, names, alone))


def _step(job: WindowJob, columns: Mapping[str, list], unsure: Sequence[bool], images: StepImages) -> RowStep:  # type: ignore[type-arg]
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
        [shuffle.decode(key, keys[row]) for row in old],
        [lines[row] for row in old],
        [lines[row] for row in new],
        [blank[row] for row in new],
        job.shards[columns["shard"][first]],
        shuffle.decode(key, keys[last]) if moves else None,
        columns["safe"][first],
        unsure[first],
        len(images.rows),
    )
