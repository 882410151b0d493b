"""Fills in the structures that decisions have made known; the first step of planning a window.

Idempotent and level-triggered, like all of planning: it reads what is unknown of the source's shards, finds out
what follows by now (core.settling), and writes that in one transaction per shard.

| dies                         | what happens                                                           |
|------------------------------|------------------------------------------------------------------------|
| before the transaction       | the next window of the source finds the same                           |
| in it                        | all of it or nothing                                                   |
| after it                     | nothing is unknown any more, or waits for an operator with a reason    |
| a window that was begun with the old unknowns commits later | its rows of the meta tables are filled in next time |
"""

import logging
from collections.abc import Iterable, Sequence
from typing import Protocol

from unshard.core.model import TableSchema
from unshard.core.newcomers import likeness
from unshard.core.settling import UNKNOWABLE, Finding, Record, Unsettled, adopted, settled
from unshard.core.shardgroup import groups
from unshard.core.window import HeldFile, ShardState, Verdict
from unshard.errors.ddl import DdlUnreadable, StructureUnknown
from unshard.errors.shardddl import DecisionMisfits, StrangeNewShard

log = logging.getLogger(__name__)

NO_STRUCTURE = (*UNKNOWABLE, DdlUnreadable)
"""Answers to what an operator gave, which nobody has read before; all else is trouble with the one who was asked."""


class Trial(Protocol):
    """Finds out what statements do and whether rows fit."""

    def behind(self, before: TableSchema | None, text: str, record: Record) -> TableSchema:
        """Return the structure behind a statement about the target or a shard; raise one of NO_STRUCTURE."""

    def is_create(self, text: str, record: Record) -> bool:
        """Whether the statement makes its table, so that it needs no structure before it."""

    def misfit(self, file: HeldFile, schema: TableSchema) -> str:
        """Return why the events of a raw file cannot be rows of that structure; empty if they can."""


class Structures(Protocol):
    """The part of the meta store that keeps structures and what is unknown."""

    def unsettled(self, source: str) -> tuple[Unsettled, ...]:
        """Return the shards of which something is unknown."""

    def settle(self, shard: Unsettled, findings: Sequence[Finding]) -> None:
        """Write what has become known; what is known already stays."""

    def shards(self) -> tuple[ShardState, ...]:
        """Return the shards of all sources."""

    def get(self, digests: Iterable[str]) -> dict[str, TableSchema]:
        """Return the structures of those digests."""

    def put(self, schema: TableSchema) -> str:
        """Store a structure and return its digest."""


def settle(structures: Structures, source: str, trial: Trial) -> None:
    """Fill in whatever is known by now of the structures of a source's shards."""
    unsettled = structures.unsettled(source)
    group = groups(structures.shards()) if unsettled else {}
    for shard in unsettled:
        members = group.get(shard.target, ())
        asked = _Asked(structures, trial, shard, members)
        like = adopted(members, shard.shard)
        findings = tuple(settled(shard, like, asked.behind))
        for finding in findings:
            log.info("settled shard=%s seq=%s known=%s", shard.shard, finding.seq, bool(finding.after))
        structures.settle(shard, findings)


class _Asked:
    """Answers `core.settling.Behind` for one shard."""

    def __init__(self, structures: Structures, trial: Trial, shard: Unsettled, group: Sequence[ShardState]) -> None:
        self._structures, self._trial, self._shard, self._group = structures, trial, shard, group

    def behind(self, record: Record, before: str) -> tuple[str, str]:
        try:
            after = self._after(record, self._structures.get({before})[before] if before else None)
        except NO_STRUCTURE as error:
            return "", str(error)
        for file in self._shard.held:
            if file.seq == record.entry.seq and (why := self._trial.misfit(file, after)):
                return "", str(DecisionMisfits(str(self._shard.shard), record.entry.routed, why))
        digest = self._structures.put(after)
        return digest, self._strangeness(record, digest)

    def _strangeness(self, record: Record, digest: str) -> str:
        """Return why a new shard goes on waiting, although the target takes its CREATE TABLE now."""
        entry = record.entry
        others = [state for state in self._group if state.shard != entry.shard and not state.has_left]
        is_asked = entry.is_alone and record.verdict is Verdict.NONE
        if not is_asked or not others or likeness(self._group, digest, entry.shard.source)[0] is not None:
            return ""
        return str(StrangeNewShard(str(entry.shard), str(entry.target), entry.statement.text, str(others[0].shard)))

    def _after(self, record: Record, schema: TableSchema | None) -> TableSchema:
        if record.verdict is Verdict.NONE or not record.is_answer:
            is_create = record.entry.is_alone and self._trial.is_create(record.entry.routed, record)
            return self._trial.behind(None if is_create else schema, record.entry.routed, record)
        for text in record.replacement if record.verdict is Verdict.REPLACE else ():
            is_create = self._trial.is_create(text, record)
            schema = self._trial.behind(None if is_create else schema, text, record)
        if schema is None:
            raise StructureUnknown(str(self._shard.shard), record.entry.routed)
        return schema
