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
from collections.abc import Iterable, Sequence
from typing import Protocol

from unshard.core.ddl.columnnames import own_names
from unshard.core.ddl.queue import HeldFile, OperatorDecision, ShardState
from unshard.core.ddl.reconcile import UNKNOWABLE, Finding, Record, ShardWithUnknowns, adopted, settled
from unshard.core.ddl.shardgroup import groups, matching_shard
from unshard.core.model import TableSchema
from unshard.errors.ddl import DdlUnreadable, EffectRefused, StructureNotShown, StructureUnknown
from unshard.errors.locks import DecisionMisfits, MismatchedNewShard

log = logging.getLogger(__name__)

NO_STRUCTURE = (*UNKNOWABLE, DdlUnreadable, StructureNotShown)
"""Errors about an operator's statement, which is read here for the first time; other errors are server trouble."""


class Trial(Protocol):
    """Finds structures after statements, and whether rows fit them."""

    def after(self, before: TableSchema | None, text: str, record: Record) -> TableSchema:
        """Return the structure after a statement for the target or a shard; raises one of NO_STRUCTURE."""

    def is_create(self, text: str, record: Record) -> bool:
        """Whether the statement creates its table, so that it needs no structure before it."""

    def shown(self, record: Record) -> TableSchema | None:
        """Return the structure that the source shows for a new shard; raises one of NO_STRUCTURE if not certain.

        None: the source is not asked now, because a plan pulls nothing.
        """

    @property
    def asks_source(self) -> bool:
        """Whether a source may be asked now; a plan that is only shown pulls nothing."""

    def rebuilt(self, record: Record) -> TableSchema | None:
        """Return the structure that the source shows, if the target has it too; else None."""

    def misfit(self, file: HeldFile, schema: TableSchema) -> str:
        """Return why the events of a raw file cannot be rows of that structure; empty if they can."""


class UnknownStructures(Protocol):
    """The part of the meta store that keeps structures, known and unknown."""

    def unknown_shards(self, source: str) -> tuple[ShardWithUnknowns, ...]:
        """Return the shards with an unknown structure."""

    def settle(self, shard: ShardWithUnknowns, findings: Sequence[Finding]) -> None:
        """Write the structures that have become known; known ones do not change."""

    def shards(self) -> tuple[ShardState, ...]:
        """Return the shards of all sources."""

    def get(self, digests: Iterable[str]) -> dict[str, TableSchema]:
        """Return the structures of those digests."""

    def put(self, schema: TableSchema) -> str:
        """Store a structure and return its digest."""


def reconcile_structures(structures: UnknownStructures, source: str, trial: Trial) -> bool:
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


class _Asked:
    """Implements `core.ddl.reconcile.StructureAfter` for one shard."""

    def __init__(
        self, structures: UnknownStructures, trial: Trial, shard: ShardWithUnknowns, group: Sequence[ShardState]
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
            schema = self._rebuilt(record, schema) or schema
        for text in record.replacement if record.verdict is OperatorDecision.REPLACE else ():
            is_create = self._trial.is_create(text, record)
            schema = self._trial.after(None if is_create else schema, text, record)
        return self._shown(record) if schema is None else schema

    def _rebuilt(self, record: Record, before: TableSchema | None) -> TableSchema | None:
        """Return the structure after a DDL that the target refuses, if an operator has given it to the target by hand.

        It must be the newest DDL of the shard, and all columns must have their own names.
        """
        is_newest = all(one.entry.seq <= record.entry.seq for one in self._shard.records)
        if before is None or own_names(before) or record.entry.is_alone or not is_newest:
            return None
        return self._trial.rebuilt(record)

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
