"""A replacement for Spark in this process: it runs our jobs, for tests of their results, not of Spark.

The jobs are functions over Arrow batches (`range`, `mapInArrow`, `repartitionById`, `toArrow`), so the same code runs
here and on executors, here in milliseconds. tests/integration/window/test_windows.py, test_spark_jobs.py and the
end-to-end tests check that Spark does the same with them.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

Batches = Iterable[pa.RecordBatch]
Function = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True)
class Frame:
    """Our DataFrame: the batches of each partition, created on access."""

    partitions: tuple[Callable[[], Batches], ...]

    def mapInArrow(self, function: Function, schema: object) -> "Frame":
        return Frame(tuple(lambda made=made: list(function(iter(made()))) for made in self.partitions))

    def repartitionById(self, slots: int, column: str) -> "Frame":
        table = self.toArrow()
        return Frame(
            tuple(lambda slot=slot: table.filter(pc.equal(table[column], slot)).to_batches() for slot in range(slots))
        )

    def toArrow(self) -> pa.Table:
        return pa.Table.from_batches([batch for made in self.partitions for batch in made()])


class LocalSpark:
    """Replaces a session; pass it as `Work.spark` and `Work.bulk_spark`."""

    def range(self, start: int, end: int, step: int, partitions: int) -> Frame:
        numbers = [list(range(start, end, step))[part::partitions] for part in range(partitions)]
        return Frame(
            tuple(
                lambda some=some: [pa.RecordBatch.from_arrays([pa.array(some, pa.int64())], ["id"])] for some in numbers
            )
        )
