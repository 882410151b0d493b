"""Checks whether a target table can take the rows of its shards, with the functions that the snapshot uses."""

from collections.abc import Iterator, Mapping

from unshard.config import ShardMode, Task
from unshard.core.checks.certain import UNFIT
from unshard.core.join.decision import conflicts_of
from unshard.core.join.group import begin
from unshard.core.join.start import foreign_columns, undumped_columns, unjoined_columns
from unshard.core.model import Shard, TableId, TableSchema
from unshard.core.rules.columnmapping import fitted
from unshard.core.rules.extractedvalues import constants_of
from unshard.core.rules.reshaping import Reshaping
from unshard.core.structures.alike import unfit_reasons
from unshard.errors import UnshardError
from unshard.errors.checks import TargetTableUnfit
from unshard.errors.rules import ExtractionNeedsTable
from unshard.units.full.targets import refuse_types


def unfit(
    task: Task,
    target: TableId,
    present: TableSchema | None,
    shards: Mapping[Shard, TableSchema],
    *,
    is_ahead: bool = False,
) -> Iterator[UnshardError]:
    """Yield why the target table, or its absence, prevents writing rows; of equal errors, only the first.

    If the target `is_ahead`, it may have DDL that these shards have not run yet, which explains other types and keys.
    """
    # A target that follows the join of its shards gets what it lacks.
    joins = task.shard_mode is ShardMode.OPTIMISTIC
    reasons: set[str] = set()
    found: dict[str, UnshardError] = {}
    seen: set[tuple[str, object]] = set()
    for shard, structure in shards.items():
        reshaping = task.instance(shard.source).routing.reshaping(shard.table)
        if (structure.shape, reshaping) in seen:
            continue
        seen.add((structure.shape, reshaping))
        columns = [each.column for each in reshaping.extracted]
        try:
            if present is None:
                _refuse_missing(target, shard, structure, reshaping)
            elif not joins and (here := unfit_reasons(present, structure, {column.lower() for column in columns})):
                reasons.update(here)
            else:
                constants_of(str(shard), structure, target, present, reshaping.extracted)
                _refuse_mapped(target, shard, structure, present, reshaping)
                if not (is_ahead or joins):
                    refuse_types(shard, structure, (target, present), reshaping)
        except UNFIT as error:
            found.setdefault(f"{error.code} {columns}", error)
    if joins and not is_ahead:
        reasons.update(_foreign(task, present, shards))
        yield from _unjoined(target, present, shards)
    if reasons:
        yield TargetTableUnfit(str(target), "; ".join(sorted(reasons)))
    yield from found.values()


def _foreign(task: Task, present: TableSchema | None, shards: Mapping[Shard, TableSchema]) -> tuple[str, ...]:
    """Return why rows of no shard can be written to a target that follows the join of its shards."""
    if present is None:
        return ()
    reshapings = (task.instance(shard.source).routing.reshaping(shard.table) for shard in shards)
    extracted = {each.column.lower() for reshaping in reshapings for each in reshaping.extracted}
    return foreign_columns(present, shards.values(), extracted)


def _unjoined(
    target: TableId, present: TableSchema | None, shards: Mapping[Shard, TableSchema]
) -> Iterator[UnshardError]:
    """Yield the columns with which a target cannot begin to follow the join of its shards, if these have one."""
    group = begin(shards)
    if conflicts_of(group):
        return
    yield from unjoined_columns(target, group, present) if present is not None else ()
    yield from undumped_columns(target, group)


def _refuse_missing(target: TableId, shard: Shard, structure: TableSchema, reshaping: Reshaping) -> None:
    """Raise if the target cannot be created for the shard, or would not hold its mapped values."""
    if reshaping.extracted:
        columns = ", ".join(each.column for each in reshaping.extracted)
        raise ExtractionNeedsTable(str(target), str(shard), columns)
    _refuse_mapped(target, shard, structure, structure, reshaping)


def _refuse_mapped(
    target: TableId, shard: Shard, structure: TableSchema, present: TableSchema, reshaping: Reshaping
) -> None:
    fitted(str(shard), structure, target, {column.name.lower(): column for column in present.columns}, reshaping.mapped)
