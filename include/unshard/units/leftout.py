"""Structures of shards without the indexes that the target refuses (`unsupported-indexes: leave-out`).

They are recorded like this, so target tables, trial tables of DDL and comparisons never see these indexes. A later DDL
of a shard that drops or adds such an index is refused by the target and waits for an operator.
"""

import contextlib
import logging
from collections.abc import Mapping

from unshard.adapters import mysql
from unshard.config import UnsupportedIndexes
from unshard.core.model import TableId, TableSchema
from unshard.units.createtrial import Refused, TrialTables
from unshard.units.work import Work

log = logging.getLogger(__name__)


def without_refused_indexes(work: Work, schemas: Mapping[TableId, TableSchema]) -> dict[TableId, TableSchema]:
    """Return the structures without non-unique indexes that the target refuses, if the task file asks for this."""
    if work.task.options.unsupported_indexes is not UnsupportedIndexes.LEAVE_OUT or not schemas:
        return dict(schemas)
    kept: dict[str, tuple[TableSchema, tuple[Refused, ...]]] = {}
    with contextlib.closing(mysql.connect(work.target, "target")) as connection:
        trials = TrialTables(connection, work.task.meta_schema)
        for table, schema in schemas.items():
            if schema.digest not in kept:
                kept[schema.digest] = trials.supported(schema)
                for each in kept[schema.digest][1]:
                    log.warning("index left out table=%s index=%s: %s", table, each.part, each.words)
    return {table: kept[schema.digest][0] for table, schema in schemas.items()}
