"""What Spark does for a job of ours, in this process: enough for tests of what the jobs say, not of Spark.

The jobs are functions over Arrow batches (`range`, `mapInArrow`, `repartitionById`, `toArrow`), so the
same code runs here as on executors, in milliseconds. That Spark does the same with them is the business of
tests/integration/test_windows.py, test_spark_jobs.py and the tests from end to end.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from unshard.config import load_task
from unshard.units.run import Outcome, run
from unshard.units.work import open_work

Batches = Iterable[pa.RecordBatch]
Function = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True)
class Frame:
    """A DataFrame of ours: the batches of each partition, made when they are asked for."""

    partitions: tuple[Callable[[], Batches], ...]

    def mapInArrow(self, function: Function, schema: str) -> "Frame":
        return Frame(tuple(lambda made=made: list(function(iter(made()))) for made in self.partitions))

    def repartitionById(self, slots: int, column: str) -> "Frame":
        table = self.toArrow()
        return Frame(tuple(
            lambda slot=slot: table.filter(pc.equal(table[column], slot)).to_batches() for slot in range(slots)
        ))  # fmt: skip

    def toArrow(self) -> pa.Table:
        return pa.Table.from_batches([batch for made in self.partitions for batch in made()])


class LocalSpark:
    """Stands where a session would; pass it as `Work.spark` and `Work.bulk_spark`."""

    def range(self, start: int, end: int, step: int, partitions: int) -> Frame:
        numbers = [list(range(start, end, step))[part::partitions] for part in range(partitions)]
        return Frame(tuple(
            lambda some=some: [pa.RecordBatch.from_arrays([pa.array(some, pa.int64())], ["id"])] for some in numbers
        ))  # fmt: skip


class TaskFile:
    """A task file that is run as the command line runs it, without a JVM."""

    path: Path

    def run(self) -> Outcome:
        """Load what is not loaded yet, then catch up."""
        with open_work(load_task(self.path)) as work:
            return run(replace(work, spark=LocalSpark, bulk_spark=LocalSpark))

    def go(self) -> Outcome:
        """Run, and see that nothing went wrong."""
        outcome = self.run()
        assert not outcome.errors, [str(trouble.error) for trouble in outcome.errors]
        return outcome
