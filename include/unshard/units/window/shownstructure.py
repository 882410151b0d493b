"""The structure of a shard after its newest DDL, read from its source. Runs in the driver.

The binlog may not tell it, or the target may refuse the DDL on an empty table.

`CREATE TABLE a LIKE b` and `RENAME TABLE b TO a` tell nothing about the columns if the task does not follow table b.
The source shows the present structure of `a`. It is the structure after that statement if no later statement concerns
the table. The order of the steps makes that certain:

1. read the structure of the table
2. pull the binlog to its present end, which is later than step 1
3. look for a later DDL in the shard's queue (up to the checkpoint) and in the pulled binlog (after it)
"""

import contextlib

from unshard.adapters import mysql, structures
from unshard.core.ddl.names import concerned, mentions
from unshard.core.ddl.queue import QueueEntry
from unshard.core.model import TableId, TableSchema
from unshard.core.relay.segment import Statement
from unshard.errors.ddl import StructureNotShown
from unshard.units.ddl.trial import TrialOfStatements
from unshard.units.full.refusedindexes import without_refused_indexes
from unshard.units.relay.tasksource import pull_source
from unshard.units.work import Work


def shown_structure(work: Work, entry: QueueEntry) -> TableSchema:
    """Return the structure of a shard after its newest DDL; raises StructureNotShown."""
    source, table = entry.shard.source, entry.shard.table
    with contextlib.closing(mysql.connect(work.sources[source], f"source {source}")) as connection:
        found = without_refused_indexes(work, structures.read_schemas(connection, [table]))
    if table not in found:
        raise StructureNotShown(str(entry.shard), "the source has no such table any more")
    pull_source(work, source)
    checkpoint = work.meta.checkpoints.get(source)
    assert checkpoint is not None  # planning requires it
    for segment in work.store.links(source).following(checkpoint.location):
        if segment.statement is not None and names(segment.statement, table):
            text = " ".join(segment.statement.text.split())
            raise StructureNotShown(str(entry.shard), f"a later statement concerns it: `{text}`")
    return found[table]


def trial_of(work: Work, *, asks_source: bool = True) -> TrialOfStatements:
    """Return the trial with which structures after operators' decisions are found."""
    shown = (lambda entry: shown_structure(work, entry)) if asks_source else None
    return TrialOfStatements(work.trial_tables, work.storage, work.present, shown)


def names(statement: Statement, table: TableId) -> bool:
    """Whether a statement names a table; of a text that cannot be split into tokens, whether it may name it."""
    found = mentions(statement)
    return bool({*found.named([table])}) if found.is_certain else bool(concerned(statement, [table]))
