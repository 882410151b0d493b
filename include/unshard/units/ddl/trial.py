"""Find the structure after a statement, and whether held events fit it, with the target and the held files.

Runs in the driver.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from unshard.adapters.parquet import Storage
from unshard.binlog import rawrows
from unshard.core.ddl.queue import HeldFile, QueueEntry
from unshard.core.ddl.reconcile import Record
from unshard.core.ddl.statement import Ddl, DdlKind, read
from unshard.core.model import TableId, TableSchema
from unshard.core.relay.segment import Statement
from unshard.errors.ddl import DdlUnreadable, StructureUnknown

STRUCTURAL = (DdlKind.ALTER, DdlKind.INDEX, DdlKind.CREATE_TABLE)


class DdlTrial(Protocol):
    """Finds the structure after a statement."""

    def effect(
        self, before: TableSchema | None, statement: Statement, table: TableId, target: TableId | None = None
    ) -> TableSchema:
        """Return the structure of `table` after the statement; raises the server's message if it refuses."""


Shown = Callable[[QueueEntry], TableSchema | None]


class TrialOfStatements:
    """Implements `units.ddl.reconcile.Trial`."""

    def __init__(self, trial: DdlTrial, storage: Storage, shown: Shown | None = None) -> None:
        """Keep what the trial needs; `shown` reads the structure of a new shard from its source."""
        self._trial, self._storage, self._shown = trial, storage, shown

    def shown(self, record: Record) -> TableSchema | None:
        """Return the structure that the source shows for a new shard; raises a coded error if it is not certain.

        None: it is not asked now.
        """
        if self._shown is None:
            raise StructureUnknown(str(record.entry.shard), record.entry.routed)
        return self._shown(record.entry)

    def after(self, before: TableSchema | None, text: str, record: Record) -> TableSchema:
        """Return the structure after a statement; only a statement that changes a structure is tried on the target."""
        statement = replace(record.entry.statement, text=text)
        ddl = _read(statement)
        if ddl.kind in STRUCTURAL:
            return self._trial.effect(before, statement, ddl.subjects[0], record.entry.target)
        if before is None:
            raise StructureUnknown(str(record.entry.shard), text)
        return before

    def is_create(self, text: str, record: Record) -> bool:
        """Whether the statement creates a table without LIKE."""
        try:
            ddl = _read(replace(record.entry.statement, text=text))
        except DdlUnreadable:
            return False
        return ddl.kind is DdlKind.CREATE_TABLE and ddl.like is None

    def misfit(self, file: HeldFile, schema: TableSchema) -> str:
        """Return why the TABLE_MAPs of a raw file do not fit the structure; empty if they fit."""
        pieces = self._storage.read_batches(file.path, 1, rawrows.WITHOUT_EVENTS)
        return rawrows.misfit(pieces, schema, file.shard.source)


def _read(statement: Statement) -> Ddl:
    return read(statement.text, statement.sql_mode, statement.schema)
