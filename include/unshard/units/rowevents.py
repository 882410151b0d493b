"""Row changes that the task's filters leave out, by the kind of change."""

import numpy as np
import pyarrow as pa

from unshard.core.eventfilter import Action
from unshard.core.model import Shard
from unshard.core.netting import Op
from unshard.core.reshape import Reshaping
from unshard.errors.target import RowsFiltered

OPS = {"insert": (Op.INSERT,), "update": (Op.BEFORE, Op.AFTER), "delete": (Op.DELETE,)}


def passing(reshaping: Reshaping, shard: Shard, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows of a batch that filters let through; raises where one asks for an error."""
    for kind, judged in reshaping.events:
        ops = batch.column(0).to_numpy()
        met = np.isin(ops, [op.value for op in OPS[kind]])
        if met.any() and judged.action is Action.ERROR:
            raise RowsFiltered(judged.rule, str(shard), kind, int(np.isin(ops, OPS[kind][0].value).sum()))
        batch = batch.filter(pa.array(~met)) if met.any() else batch
    return batch
