"""Find the structure after a statement, and whether held events fit it, with the target and the held files.

Runs in the driver.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from unshard.adapters.parquet import Storage
from unshard.adapters.targetddl import DdlTrialTables
from unshard.binlog import rawrows
from unshard.core.ddl.hiddenstructure import NOTHING, are_alike, changed_columns, is_hidden, text_between
from unshard.core.ddl.parsed import Ddl, DdlKind
from unshard.core.ddl.queue import HeldFile, QueueEntry
from unshard.core.ddl.reconcile import UNKNOWABLE, Record
from unshard.core.ddl.statement import read
from unshard.core.model import TableId, TableSchema
from unshard.core.relay.segment import Statement
from unshard.core.shown import one_line
from unshard.core.structures.comparison import has_all_of, order_differences
from unshard.core.structures.createtext import create_text
from unshard.core.structures.parsedtable import without_computed_defaults
from unshard.errors.ddl import DdlUnreadable, StructureNotShown, StructureUnknown
from unshard.errors.locks import DecisionMisfits

STRUCTURAL = (DdlKind.ALTER, DdlKind.INDEX, DdlKind.CREATE_TABLE)


Shown = Callable[[QueueEntry], tuple[TableSchema, tuple[Statement, ...]]]
"""Returns the present structure of a shard at its source, and the statements about it after the checkpoint."""
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
        if self._shown is None:
            return None
        found, later = self._shown(record.entry)
        if later:
            text = one_line(later[0].text)
            raise StructureNotShown(str(record.entry.shard), f"a later statement concerns it: `{text}`")
        return found

    def rebuilt(self, record: Record, before: TableSchema, later: Sequence[Statement]) -> TableSchema | None:
        """Return the structure after a DDL that the target refuses, if the target has it all the same; else None.

        It follows from what the source shows. `later` are the later DDLs of the shard up to the checkpoint.
        """
        try:
            found = self._found(record, before, later)
        except StructureNotShown:
            return None
        return self._made(record, found) if found is not before and self._has(record, found) else None

    def skipped(self, record: Record, before: TableSchema, later: Sequence[Statement]) -> TableSchema:
        """Return the structure after a DDL that is skipped.

        Raises DecisionMisfits if its columns are known to differ, StructureNotShown if they may differ.
        """
        try:
            found = self._found(record, before, later)
        except StructureNotShown:
            if changed_columns(record.entry.statement) == NOTHING:
                return before
            raise
        if self._has(record, found) and (made := self._made(record, found)):
            return made
        self._require(record, before, found)
        return before

    def require_shown(
        self, record: Record, before: TableSchema, later: Sequence[Statement], result: TableSchema
    ) -> None:
        """Raise DecisionMisfits if the source shows other columns than the statements that replace a DDL lead to."""
        with contextlib.suppress(StructureNotShown):
            found = self._found(record, before, later)
            if self._made(record, found):
                self._require(record, result, found)

    def _require(self, record: Record, decided: TableSchema, found: TableSchema) -> None:
        """Raise DecisionMisfits if a structure differs; both are compared as the target prints them, if it can."""
        one, other = self._made(record, decided), self._made(record, found)
        if changes := order_differences(one, other) if one and other else order_differences(decided, found):
            raise DecisionMisfits(str(record.entry.shard), record.entry.routed, f"the source shows that {changes}")

    def _found(self, record: Record, before: TableSchema, later: Sequence[Statement]) -> TableSchema:
        """Return the structure after a DDL as it follows from what the source shows; raises StructureNotShown."""
        shard, ddl = str(record.entry.shard), record.entry.statement
        assert self._shown is not None
        try:
            present, more = self._shown(record.entry)
        except UNKNOWABLE as error:
            raise StructureNotShown(shard, error.message) from error
        if not (later := (*later, *more)):
            return present
        hides = StructureNotShown(shard, f"a later statement concerns it: `{one_line(later[0].text)}`")
        if is_hidden(ddl, later, before, present):
            raise hides
        present, first = self._made(record, present) or present, self._made(record, before) or before
        after, is_complete = self._replayed(record, first, later)
        if is_complete and are_alike(after, present):
            return before
        text = text_between(first, after, present) if is_complete else ""
        found = self._created(record, text) if text else None
        if found is None or not are_alike(self._replayed(record, found, later)[0], present):
            raise hides
        return found

    def _replayed(self, record: Record, before: TableSchema, later: Sequence[Statement]) -> tuple[TableSchema, bool]:
        """Return the structure after later statements, and whether it has all their changes of columns."""
        found, is_complete = before, True
        for statement in later:
            with contextlib.suppress(*UNKNOWABLE, DdlUnreadable):
                ddl = _read(statement)
                if ddl.kind in (DdlKind.ALTER, DdlKind.INDEX):
                    found = self._trial.effect(found, statement, ddl.subjects[0], record.entry.target)
                    continue
            is_complete = is_complete and changed_columns(statement) == NOTHING
        return found, is_complete

    def _has(self, record: Record, found: TableSchema) -> bool:
        """Whether the target has all of a structure."""
        present = self._present({record.entry.target}).get(record.entry.target)
        return present is not None and has_all_of(present, found)

    def _made(self, record: Record, structure: TableSchema) -> TableSchema | None:
        """Return the structure as the target makes it; None if it refuses."""
        return self._created(record, structure.create_sql)

    def _created(self, record: Record, create_sql: str) -> TableSchema | None:
        """Do the same for a text; rows are read without the defaults that the target may refuse to compute."""
        entry = record.entry
        for text in dict.fromkeys((create_sql, without_computed_defaults(create_sql))):
            statement = replace(entry.statement, text=create_text(text, entry.shard.table))
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
