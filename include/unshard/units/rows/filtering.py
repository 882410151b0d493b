"""Remove row changes that the task's filters exclude, by kind or by expressions that the target evaluates.

Runs in executors. Both images of an UPDATE are removed or kept together. If a batch ends between them, the first is
kept for the next batch.
"""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from unshard.adapters.target.evaluator import ExpressionEvaluator
from unshard.core.model import Shard, TableSchema
from unshard.core.rows.columnnames import as_own
from unshard.core.rows.compaction import Op
from unshard.core.rules.eventfilter import Action
from unshard.core.rules.expressionfilter import RowFilter
from unshard.core.rules.reshaping import Reshaping
from unshard.errors.rows import ColumnLeftOut
from unshard.errors.rules import RowsFiltered
from unshard.units.rows.partialrows import has, is_sparse, masks_of

OPS = {"insert": (Op.INSERT,), "update": (Op.BEFORE, Op.AFTER), "delete": (Op.DELETE,)}
FIRST_COLUMN = 2
"""A batch begins with `_op` and `_seq`."""


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
        """Close what the evaluation of expressions has opened."""
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
