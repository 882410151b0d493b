"""Delete the rows of dropped and truncated shards from merged targets. Runs in the driver."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from unshard.adapters.target import Fence
from unshard.adapters.target.shardremoval import delete_rows_of
from unshard.core.ddl.queue import ShardState
from unshard.core.model import Shard, TableSchema
from unshard.core.rules.shardrows import ShardRows, rows_of, why_unknown
from unshard.core.task.state import BegunWindow
from unshard.core.window.plan import Deletion
from unshard.errors.base import ConfigError, ServerError
from unshard.errors.locks import ShardRowsUnknown
from unshard.errors.rows import NoTargetTable, ShardRowsNotDeleted
from unshard.units.work import Work

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class IdentifiedRows:
    """Finds the values that name the rows of a shard; implements `PlanRules.rows_of`."""

    work: Work

    def __call__(self, state: ShardState, group: Sequence[Shard]) -> ShardRows | str:
        """Return the values, or the error that explains why they also fit rows of another shard."""
        rows = self._rows(state.shard, self._structure(state))
        # Shards that have left count, because rows of them may still be in the target.
        others = {other: self._rows(other) for other in {*group, *self.work.meta.structures.fed(state.target)}}
        if why := why_unknown(state.shard, rows, others):
            return str(ShardRowsUnknown(str(state.shard), str(state.target), why))
        return rows

    def _structure(self, state: ShardState) -> TableSchema:
        # Without a structure, a mapped column counts as missing.
        found = self.work.structures({state.structure}) if state.structure else {}
        return found.get(state.structure, TableSchema((), (), ""))

    def _rows(self, shard: Shard, structure: TableSchema | None = None) -> ShardRows:
        if shard.source not in self.work.task.sources:
            return ShardRows()
        try:
            return rows_of(self.work.task.instance(shard.source).routing.reshaping(shard.table), structure)
        except ConfigError:
            return ShardRows()  # the rules of the file do not fit a shard that has left


def delete_shard_rows(work: Work, begun: BegunWindow) -> tuple[int, ...]:
    """Carry out the deletions of a window, and return how many rows each of them has deleted."""
    return tuple(_delete(work, begun, deletion) for deletion in begun.plan.deletions)


def _delete(work: Work, begun: BegunWindow, deletion: Deletion) -> int:
    plan, shard, target = begun.plan, deletion.shard, deletion.target
    fence = Fence(work.meta.schema, work.task.name, plan.source, target, plan.number, begun.epoch)
    try:
        schema = work.target_schema(target)
        found = delete_rows_of(work.writer(), fence, shard, deletion.rows, schema, work.limits.deleted_rows)
    except (ServerError, NoTargetTable) as error:
        if error.transient:
            raise
        raise ShardRowsNotDeleted(str(shard), str(target), deletion.text, error.message) from error
    log.info("rows of shard deleted shard=%s target=%s rows=%s", shard, target, found)
    return found
