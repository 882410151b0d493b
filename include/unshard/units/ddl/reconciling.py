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
from unshard.core.ddl.columnnames import own_names, with_target_names
from unshard.core.ddl.parsed import Ddl, DdlKind
from unshard.core.ddl.queue import HeldFile, OperatorDecision, QueueEntry, ShardState, groups, matching_shard
from unshard.core.ddl.reconcile import UNKNOWABLE, Record, ShardWithUnknowns, adopted, settled
from unshard.core.ddl.statement import read_ddl
from unshard.core.model import TableId, TableSchema
from unshard.core.relay.segment import Statement
from unshard.core.shown import one_line
from unshard.core.structures.comparison import has_all_of, order_differences
from unshard.core.structures.createtext import create_text
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


def name_columns(structures: "Structures", source: str) -> None:
    """Store the target's names of columns in the structures and later DDLs of the shards of a source."""
    for shard in structures.unnamed_shards(source):
        found, schemas = with_target_names(shard, structures.get(shard.digests))
        for schema in schemas:
            structures.put(schema)
        log.info("columns named shard=%s ddls=%s", shard.shard, len(found.entries))
        structures.name_columns(shard, found)


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
        if record.verdict is OperatorDecision.SKIP and not record.entry.is_alone and schema is not None:
            if not self._trial.asks_source:
                return None
            return self._trial.skipped(record, schema) if self._may_be_shown(record, schema) else schema
        for text in record.replacement if record.verdict is OperatorDecision.REPLACE else ():
            is_create = self._trial.is_create(text, record)
            schema = self._trial.after(None if is_create else schema, text, record)
        return self._shown(record) if schema is None else schema

    def _rebuilt(self, record: Record, before: TableSchema | None) -> TableSchema | None:
        """Return the structure after a DDL that the target refuses, if an operator has changed the target by hand."""
        if before is None or record.entry.is_alone or not self._may_be_shown(record, before):
            return None
        return self._trial.rebuilt(record)

    def _may_be_shown(self, record: Record, before: TableSchema) -> bool:
        """Whether the source may show the structure: no later DDL is known, and all columns have their own names."""
        return not own_names(before) and all(one.entry.seq <= record.entry.seq for one in self._shard.records)

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


Shown = Callable[[QueueEntry], TableSchema]
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
