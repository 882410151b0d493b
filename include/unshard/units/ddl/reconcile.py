"""Fill in the structures that operator decisions make known; the first step of planning a window. Runs in the driver.

It is idempotent and level-triggered, like all of planning. It reads the unknown structures of the source's shards,
determines which are known by now (core.ddl.reconcile), and writes them in one transaction per shard.

| process dies                 | what happens                                                           |
|------------------------------|------------------------------------------------------------------------|
| before the transaction       | the next window of the source determines the same                      |
| in it                        | all of it or nothing                                                   |
| after it                     | nothing is unknown any more, or waits for an operator with a reason    |
| a window that was begun with the old unknowns commits later | its rows of the meta tables are filled in next time |
"""

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from unshard.core.ddl.columnnames import as_own, named, own_names
from unshard.core.ddl.queue import OperatorDecision, ShardState, groups, matching_shard
from unshard.core.ddl.reconcile import UNKNOWABLE, Record, ShardWithUnknowns, adopted, settled
from unshard.core.model import TableSchema
from unshard.core.relay.segment import Statement
from unshard.errors.ddl import DdlUnreadable, EffectRefused, StructureNotShown, StructureUnknown
from unshard.errors.locks import DecisionMisfits, MismatchedNewShard

if TYPE_CHECKING:
    from unshard.adapters.meta.shardrecords import Structures
    from unshard.units.ddl.trial import TrialOfStatements

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
        found, schemas = named(shard, structures.get(shard.digests))
        for schema in schemas:
            structures.put(schema)
        log.info("columns named shard=%s ddls=%s", shard.shard, len(found.entries))
        structures.name_columns(shard, found)


class _Asked:
    """Implements `core.ddl.reconcile.StructureAfter` for one shard."""

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
            text = " ".join(later.statement.text.split())
            raise StructureNotShown(str(entry.shard), f"a later statement concerns it: `{text}`")
        return self._trial.shown(record)
