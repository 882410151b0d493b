"""Find the structure after a statement, and whether held events fit it, with the target and the held files.

Runs in the driver.
"""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace

from unshard.adapters.parquet import Storage
from unshard.adapters.targetddl import DdlTrialTables
from unshard.binlog import rawrows
from unshard.core.ddl.parsed import Ddl, DdlKind
from unshard.core.ddl.queue import HeldFile, QueueEntry
from unshard.core.ddl.reconcile import UNKNOWABLE, Record
from unshard.core.ddl.statement import read
from unshard.core.model import TableId, TableSchema
from unshard.core.relay.segment import Statement
from unshard.core.structures.comparison import has_all_of, order_differences
from unshard.core.structures.createtext import create_text
from unshard.errors.ddl import DdlUnreadable, StructureNotShown, StructureUnknown
from unshard.errors.locks import DecisionMisfits

STRUCTURAL = (DdlKind.ALTER, DdlKind.INDEX, DdlKind.CREATE_TABLE)


Shown = Callable[[QueueEntry], TableSchema]
Present = Callable[[set[TableId]], Mapping[TableId, TableSchema]]


class TrialOfStatements:
    """Finds structures after statements for `units.ddl.reconcile`, and whether rows fit them."""

    def __init__(self, trial: DdlTrialTables, storage: Storage, present: Present, shown: Shown | None = None) -> None:
        """Keep what the trial needs: `present` reads structures of targets, `shown` that of a shard from its source.

        Without `shown` no source is asked now.
        """
        self._trial, self._storage, self._present, self._shown = trial, storage, present, shown

    @property
    def asks_source(self) -> bool:
        """Whether a source may be asked now."""
        return self._shown is not None

    def shown(self, record: Record) -> TableSchema | None:
        """Return the structure that the source shows for a shard; raises a coded error if it is not certain.

        None: it is not asked now.
        """
        return self._shown(record.entry) if self._shown else None

    def rebuilt(self, record: Record) -> TableSchema | None:
        """Return the structure that the source shows, if the target has it too and takes such a table; else None."""
        found = self._shown_now(record)
        return found if found and self._has(record, found) and self._made(record, found) else None

    def skipped(self, record: Record, before: TableSchema) -> TableSchema:
        """Return the structure after a DDL that is skipped; raises DecisionMisfits if its columns are known to differ.

        Both structures are compared as the target prints them, if it takes both.
        """
        found = self._shown_now(record)
        if found is None:
            return before
        after, made = self._made(record, found), self._made(record, before)
        if after and self._has(record, found):
            return found
        if changes := order_differences(made, after) if made and after else order_differences(before, found):
            raise DecisionMisfits(str(record.entry.shard), record.entry.routed, f"the source shows that {changes}")
        return before

    def _shown_now(self, record: Record) -> TableSchema | None:
        """Return the structure that the source shows if it is certain."""
        try:
            return self.shown(record)
        except (StructureNotShown, *UNKNOWABLE):
            return None

    def _has(self, record: Record, found: TableSchema) -> bool:
        """Whether the target has all of a structure."""
        present = self._present({record.entry.target}).get(record.entry.target)
        return present is not None and has_all_of(present, found)

    def _made(self, record: Record, structure: TableSchema) -> TableSchema | None:
        """Return the structure as the target makes it; None if it refuses."""
        entry = record.entry
        statement = replace(entry.statement, text=create_text(structure.create_sql, entry.shard.table))
        with contextlib.suppress(*UNKNOWABLE):
            return self._trial.effect(None, statement, entry.shard.table, entry.target)
        return None

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
