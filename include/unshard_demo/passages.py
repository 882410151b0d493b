"""How windows passed the DDL of shards: the plans of committed windows, as the meta tables have them.

A window that reaches a DDL holds the rows after it. The first window that writes such rows ends the wait of the shard.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from unshard.core import codec
from unshard.core.model import Shard, TableId
from unshard.core.window.plan import Plan
from unshard_demo.output import DemoFailed
from unshard_demo.servers import MariaDb

Windows = Mapping[str, int]
"""The number of a window of each source."""


@dataclass(frozen=True, slots=True)
class ReachedDdl:
    """A DDL that a window has reached."""

    shard: Shard
    seq: int
    window: int
    after: str
    """Digest of the structure of the rows after it."""

    def is_held_in(self, plan: Plan) -> bool:
        """Whether the window holds rows after the DDL."""
        return any(
            each.shard == self.shard and each.hold == self.seq for read in plan.reads for each in read.dispositions
        )

    def is_written_in(self, plan: Plan) -> bool:
        """Whether the window writes rows after the DDL, held ones or new ones."""
        mine = (each for read in plan.reads for each in read.dispositions if each.shard == self.shard)
        released = (file for each in plan.releases if each.shard == self.shard for file in each.files)
        return any(each.hold is None and each.structure == self.after for each in mine) or any(
            file.seq == self.seq for file in released
        )

    def windows(self, plans: Iterable[Plan]) -> int | None:
        """Return how many windows the first rows after the DDL took to the target; None if they are not there yet."""
        own = [plan for plan in plans if plan.source == self.shard.source and plan.number >= self.window]
        written = next((plan.number for plan in own if self.is_written_in(plan)), None)
        first = next((plan.number for plan in own if self.is_held_in(plan) or self.is_written_in(plan)), None)
        return None if written is None or first is None else written - first + 1


@dataclass(frozen=True, slots=True)
class WindowRecords:
    """Reads the windows of a task."""

    target: MariaDb
    meta_schema: str
    task: str

    def last(self) -> Windows:
        """Return the last committed window of each source; 0: it has none yet."""
        rows = self._rows("source, `window`", "checkpoint")
        return {str(source): int(str(number)) for source, number in rows}

    def plans(self, after: Windows) -> tuple[Plan, ...]:
        """Return the plans of the committed windows after the given ones, in order."""
        found: list[Plan] = []
        for source, number in after.items():
            more = f"AND state = 'committed' AND source = '{source}' AND number > {number} ORDER BY number"
            plans = [codec.loads(Plan, str(text)) for (text,) in self._rows("plan", "`window`", more)]
            if plans and plans[0].number > number + 1:
                raise DemoFailed(f"the meta tables have no window {number + 1} of source {source} any more")
            found += plans
        return tuple(found)

    def ddls(self, after: Windows) -> Iterator[ReachedDdl]:
        """Return the DDL that were reached after those windows."""
        columns = "source, shard_schema, shard_table, seq, `window`, after_digest"
        for source, schema, table, seq, window, digest in self._rows(columns, "shard_ddl"):
            shard = Shard(str(source), TableId(str(schema), str(table)))
            if int(str(window)) > after[shard.source]:
                yield ReachedDdl(shard, int(str(seq)), int(str(window)), str(digest))

    def _rows(self, columns: str, table: str, more: str = "") -> list[tuple[object, ...]]:
        return self.target.run(f"SELECT {columns} FROM {self.meta_schema}.{table} WHERE task = '{self.task}' {more}")


def held_shards(plans: Iterable[Plan]) -> frozenset[Shard]:
    """Return the shards of which windows held rows."""
    return frozenset(
        each.shard for plan in plans for read in plan.reads for each in read.dispositions if each.hold is not None
    )
