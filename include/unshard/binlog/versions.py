"""Rows of system-versioned tables: reduce changes to those of current rows, which a SELECT shows.

| logged                              | result                                             |
|-------------------------------------|----------------------------------------------------|
| INSERT of a row without an end      | INSERT                                             |
| INSERT of a row with an end         | history: left out                                  |
| UPDATE, both images without an end  | UPDATE                                             |
| UPDATE that ends the row            | DELETE                                             |
| UPDATE that removes the end         | INSERT                                             |
| DELETE of a row without an end      | DELETE                                             |
| DELETE or UPDATE of history         | left out                                           |
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unshard.core.rows.compaction import Op
from unshard.core.structures.hiddencolumns import FOREVER

FOREVERS = pa.array(FOREVER, pa.binary())


def present_rows(
    ops: pa.Array, seq: pa.Array, columns: Sequence[pa.Array], period_end: int
) -> tuple[pa.Array, pa.Array, list[pa.Array]]:
    """Return operations, sequence numbers and columns of the current rows, without the period-end column."""
    kinds = ops.to_numpy().copy()
    present = pc.is_in(columns[period_end], FOREVERS).to_numpy(zero_copy_only=False)
    before = np.flatnonzero(kinds == Op.BEFORE)
    after = before + 1
    kinds[before[present[before] & ~present[after]]] = Op.DELETE
    kinds[after[present[after] & ~present[before]]] = Op.INSERT
    kept = pa.array(np.flatnonzero(present))
    others = [column for number, column in enumerate(columns) if number != period_end]
    return pa.array(kinds, pa.int8()).take(kept), seq.take(kept), [column.take(kept) for column in others]
