"""Structures of shards without the indexes that the target refuses (`unsupported-indexes: leave-out`).

Runs in the driver. They are recorded in this form, so target tables, trial tables of DDL and comparisons never contain
these indexes. The target refuses a later DDL of a shard that drops or adds such an index, and that DDL waits for an
operator.
"""

import contextlib
import logging
from collections.abc import Mapping

from unshard.adapters import mysql
from unshard.config import UnsupportedIndexes
from unshard.core.model import TableId, TableSchema
from unshard.units.ddl.createtrial import Refused, TrialTables
from unshard.units.work import Work

log = logging.getLogger(__name__)


def without_refused_indexes(work: Work, schemas: Mapping[TableId, TableSchema]) -> dict[TableId, TableSchema]:
    """Return the structures without the non-unique indexes that the target refuses, if the task file requests this."""
    if work.task.options.unsupported_indexes is not UnsupportedIndexes.LEAVE_OUT or not schemas:
        return dict(schemas)
    supported: dict[str, tuple[TableSchema, tuple[Refused, ...]]] = {}
    with contextlib.closing(mysql.connect(work.target, "target")) as connection:
        trials = TrialTables(connection, work.task.meta_schema)
        for table, schema in schemas.items():
            if schema.digest not in supported:
                supported[schema.digest] = trials.supported(schema)
                for each in supported[schema.digest][1]:
                    log.warning("index left out table=%s index=%s: %s", table, each.part, each.message)
    return {table: supported[schema.digest][0] for table, schema in schemas.items()}
