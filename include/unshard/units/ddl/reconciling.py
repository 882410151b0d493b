"""Fill in the structures that operator decisions make known; the first step of planning a window. Runs in the driver.

It is idempotent and level-triggered, like all of planning. It reads the unknown structures of the source's shards,
determines which are known by now (core.ddl.reconcile), and writes them in one transaction per shard.

| process dies                 | what happens                                                           |
|------------------------------|------------------------------------------------------------------------|
| before the transaction       | the next window of the source determines the same                      |
| in it                        | all of it or nothing                                                   |
| after it                     | nothing is unknown any more, or waits for an operator with a reason    |
| a window that was begun with the old unknowns commits later | its rows of the meta tables are filled in next time |

`TrialOfStatements` finds the structure after a statement, and whether held events fit it, with the target and the held
files.
"""

import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from unshard.adapters.parquet import Storage
from unshard.adapters.targetddl import DdlTrialTables
from unshard.binlog import rawrows
from unshard.core.ddl.columnnames import as_own, own_names, with_target_names
from unshard.core.ddl.hiddenstructure import NOTHING, are_alike, changed_columns, is_hidden, text_between
from unshard.core.ddl.parsed import Ddl, DdlKind
from unshard.core.ddl.queue import HeldFile, OperatorDecision, QueueEntry, ShardState, groups, matching_shard
from unshard.core.ddl.reconcile import UNKNOWABLE, Record, ShardWithUnknowns, adopted, settled
from unshard.core.ddl.statement import read_ddl
from unshard.core.model import TableId, TableSchema
from unshard.core.relay.segment import Statement
from unshard.core.shown import one_line
from unshard.core.structures.comparison import decision_differences, has_columns_of
from unshard.core.structures.createtext import create_text
from unshard.core.structures.parsedtable import without_computed_defaults
from unshard.errors.ddl import DdlUnreadable, EffectRefused, StructureNotShown, StructureUnknown
from unshard.errors.locks import DecisionMisfits, MismatchedNewShard

if TYPE_CHECKING:
    from unshard.adapters.meta.shardrecords import Structures

log = logging.getLogger(__name__)

NO_STRUCTURE = (*UNKNOWABLE, DdlUnreadable, StructureNotShown, DecisionMisfits)
"""Errors about an operator's decision, which is tried here for the first time; other errors are server trouble."""


def reconcile_structures(structures: "Structures", source: str, trial: "TrialOfStatements") -> bool:
    """Fill in the structures of a source's shards that are known by now; return whether any was unknown."""
    unknown_shards = structures.unknown_shards(source)
    group = groups(structures.shards()) if unknown_shards else {}
    for shard in unknown_shards:
        members = group.get(shard.target, ())
        asked = _Asked(structures, trial, shard, members)
        like = adopted(members, shard.shard)
        findings = tuple(settled(shard, like, asked.find))
        for finding in findings:
            log.info("structure resolved shard=%s seq=%s known=%s", shard.shard, finding.seq, bool(finding.after))
        structures.settle(shard, findings)
    return bool(unknown_shards)


def name_columns(structures: "Structures", source: str) -> bool:
    """Store the target's names of columns in structures and later DDLs of a source's shards; False if all have them."""
    unnamed = structures.unnamed_shards(source)
    for shard in unnamed:
        found, schemas = with_target_names(shard, structures.get(shard.digests))
        for schema in schemas:
            structures.put(schema)
        log.info("columns named shard=%s ddls=%s", shard.shard, len(found.entries))
        structures.name_columns(shard, found)
    return bool(unnamed)


class _Asked:
    def __init__(
        self,
        structures: "Structures",
        trial: "TrialOfStatements",
        shard: ShardWithUnknowns,
        group: Sequence[ShardState],
    ) -> None:
        self._structures, self._trial, self._shard, self._group = structures, trial, shard, group

    def find(self, record: Record, before: str) -> tuple[str, str]:
        schema = self._structures.get({before})[before] if before else None
        try:
            after = self._after(record, schema)
        except NO_STRUCTURE as error:
            if isinstance(error, EffectRefused) and not self._trial.asks_source:
                return "", ""
            after = self._rebuilt(record, schema) if isinstance(error, EffectRefused) else None
            if after is None:
                return "", str(error)
        if after is None:
            return "", ""
        for file in self._shard.held:
            if file.seq == record.entry.seq and (why := self._trial.misfit(file, after)):
                return "", str(DecisionMisfits(str(self._shard.shard), record.entry.routed, why))
        digest = self._structures.put(after)
        return digest, self._mismatch(record, digest)

    def _mismatch(self, record: Record, digest: str) -> str:
        """Return why a new shard still waits although the target now takes its CREATE TABLE; else empty."""
        entry = record.entry
        others = [state for state in self._group if state.shard != entry.shard and not state.has_left]
        is_asked = entry.is_alone and record.verdict is OperatorDecision.NONE
        if not is_asked or not others or matching_shard(self._group, digest, entry.shard.source)[0] is not None:
            return ""
        return str(MismatchedNewShard(str(entry.shard), str(entry.target), entry.statement.text, str(others[0].shard)))

    def _after(self, record: Record, schema: TableSchema | None) -> TableSchema | None:
        if record.verdict is OperatorDecision.NONE or not record.is_answer:
            is_create = record.entry.is_alone and self._trial.is_create(record.entry.routed, record)
            return self._trial.after(None if is_create else schema, record.entry.routed, record)
        before = schema
        if record.verdict is OperatorDecision.SKIP and not record.entry.is_alone and before is not None:
            return self._skipped(record, before) if self._trial.asks_source else None
        is_stated = False
        for text in record.replacement if record.verdict is OperatorDecision.REPLACE else ():
            is_create = self._trial.is_create(text, record)
            is_stated = is_stated or is_create
            schema = self._trial.after(None if is_create else schema, text, record)
        if schema is None:
            return self._shown(record)
        if before and not (is_stated or record.entry.is_alone or own_names(before)) and self._trial.asks_source:
            self._trial.require_shown(record, before, self._later(record), schema)
        return schema

    def _skipped(self, record: Record, before: TableSchema) -> TableSchema:
        """Return the structure after a DDL that is skipped; columns may have other names in the target."""
        own = as_own(before)
        found = self._trial.skipped(record, own, self._later(record))
        if not own_names(before):
            return found
        if found is not own:
            raise StructureNotShown(str(record.entry.shard), "its columns have other names in the target")
        return before

    def _rebuilt(self, record: Record, before: TableSchema | None) -> TableSchema | None:
        """Return the structure after a DDL that the target refuses, if an operator has changed the target by hand."""
        if before is None or record.entry.is_alone or own_names(before):
            return None
        return self._trial.rebuilt(record, before, self._later(record))

    def _later(self, record: Record) -> tuple[Statement, ...]:
        """Return the later DDLs of the shard."""
        return tuple(one.entry.statement for one in self._shard.records if one.entry.seq > record.entry.seq)

    def _shown(self, record: Record) -> TableSchema | None:
        """Return the structure of a new shard that no other shard of its group tells."""
        entry = record.entry
        if not entry.is_alone:
            raise StructureUnknown(str(entry.shard), entry.routed)
        later = next((one.entry for one in self._shard.records if one.entry.seq > entry.seq), None)
        if later is not None:
            text = one_line(later.statement.text)
            raise StructureNotShown(str(entry.shard), f"a later statement concerns it: `{text}`")
        return self._trial.shown(record)


STRUCTURAL = (DdlKind.ALTER, DdlKind.INDEX, DdlKind.CREATE_TABLE)


Shown = Callable[[QueueEntry], tuple[TableSchema, tuple[Statement, ...]]]
"""Returns the present structure of a shard at its source, and the statements about it after the checkpoint."""
Present = Callable[[set[TableId]], Mapping[TableId, TableSchema]]


class TrialOfStatements:
    """Finds structures after statements for `units.ddl.reconciling`, and whether rows fit them."""

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
        if changes := decision_differences(*((one, other) if one and other else (decided, found))):
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
        """Whether the target has the columns of a structure; rows can be read without an index that it lacks."""
        present = self._present({record.entry.target}).get(record.entry.target)
        return present is not None and has_columns_of(present, found)

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
        statement = replace(record.entry.statement, text=text)
        ddl = _read(statement)
        if ddl.kind in STRUCTURAL:
            return self._trial.effect(before, statement, ddl.subjects[0], record.entry.target)
        if before is None:
            raise StructureUnknown(str(record.entry.shard), text)
        return before

    def is_create(self, text: str, record: Record) -> bool:
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
    return read_ddl(statement.text, statement.sql_mode, statement.schema)
