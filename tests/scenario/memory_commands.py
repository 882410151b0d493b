"""Operators' commands on the meta store in memory: the same steps as adapters.meta.commandrecords."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from unshard.core.ddl.issuedcommands import IssuedCommand
from unshard.core.ddl.lock import DdlLock, LockState
from unshard.core.ddl.queue import OperatorDecision, QueueEntry
from unshard.core.model import Shard
from unshard.errors.locks import LockBegun


class MemoryCommands:
    """Replaces `adapters.meta.commandrecords.LockCommands`; each step reads its own state, like a transaction."""

    def __init__(self, meta: Any) -> None:
        self._meta, self._rows, self._step = meta, meta.rows, meta.step

    def force(
        self,
        lock: str,
        owner: str | None,
        command: IssuedCommand,
        counted: Sequence[tuple[QueueEntry, QueueEntry]] = (),
    ) -> bool:
        with self._step("force"):
            found = self._rows.locks[lock]
            owner = owner if owner and found.started_at is None else found.owner
            is_old = found.is_forced and found.error is None and owner == found.owner
            changed = found.state is not LockState.RESOLVED and not is_old
            if changed:
                self._meta.locks.update(lock, is_forced=True, owner=owner, error=None)
            found = self._rows.locks[lock]
            for entry, made in counted if found.state is not LockState.RESOLVED and not found.is_begun else ():
                row = self._same(entry)
                if row is not None:
                    row.entry, changed = made, True
            return self._record(lock, command, changed)

    def decide(self, lock: str, verdict: OperatorDecision, statements: tuple[str, ...], command: IssuedCommand) -> bool:
        with self._step("decide"):
            found, is_open = self._rows.locks[lock], self._is_open(lock)
            is_again = (found.verdict, found.replacement) == (verdict, statements)
            changed = is_open and not (is_again and found.error is None)
            if changed:
                said = {"verdict": verdict, "replacement": statements, "done": found.done if is_again else 0}
                self._meta.locks.update(lock, error=None, started_at=None, **said)
                self._meta.locks.finish(lock, "given up")
            return self._record(lock, command, changed)

    def skip_head(self, lock: DdlLock, entry: QueueEntry, command: IssuedCommand) -> bool:
        is_ours = entry.fingerprint == lock.fingerprint
        with self._step("skip head"):
            row = self._same(entry)
            changed = self._is_open(lock.id, begun=True) and row is not None
            if changed:
                row.entry, row.lock = (
                    replace(row.entry, verdict=OperatorDecision.SKIP),
                    lock.id if is_ours else "skipped",
                )
                if is_ours:
                    self._rows.members.setdefault((lock.id, entry.shard), "settled")
            return self._record(lock.id, command, changed)

    def exempt(self, lock: str, shard: Shard, command: IssuedCommand) -> bool:
        with self._step("exempt"):
            changed = self._is_open(lock, begun=True) and (lock, shard) not in self._rows.members
            if changed:
                self._rows.members[lock, shard] = "pending"
            return self._record(lock, command, changed)

    def replace_head(self, lock: str, entry: QueueEntry, changed: QueueEntry, command: IssuedCommand) -> bool:
        said = {
            "routed": changed.routed,
            "fingerprint": changed.fingerprint,
            "reason": "",
            "verdict": OperatorDecision.REPLACE,
            "replacement": changed.replacement,
        }
        with self._step("replace head"):
            row = self._same(entry)
            is_new = self._is_open(lock) and row is not None
            if is_new:
                row.entry = replace(row.entry, **said)
            return self._record(lock, command, is_new)

    def retry(self, lock: str, entries: Sequence[QueueEntry], command: IssuedCommand) -> bool:
        with self._step("retry"):
            changed = self._is_open(lock) and self._rows.locks[lock].error is not None
            if self._is_open(lock):
                self._meta.locks.update(lock, error=None)
                for entry in entries:
                    row = self._same(entry)
                    if row is not None and row.entry.reason == entry.reason:
                        row.entry, changed = replace(row.entry, reason=""), True
            return self._record(lock, command, changed)

    def drop_shard(self, lock: str, shard: Shard, command: IssuedCommand) -> bool:
        with self._step("drop shard"):
            row = self._rows.shards.get(shard)
            changed = row is not None and not row.dropped
            if changed:
                row.dropped = True
                for key, state in self._rows.members.items():
                    if key[1] == shard and state == "pending":
                        self._rows.members[key] = "waived"
            return self._record(lock, command, changed)

    def _is_open(self, lock: str, begun: bool = False) -> bool:
        found = self._rows.locks[lock]
        if found.state is not LockState.RESOLVED and found.is_begun and not begun:
            raise LockBegun(lock)
        return found.state is not LockState.RESOLVED

    def _same(self, entry: QueueEntry) -> Any:
        row = self._rows.entries.get((entry.shard, entry.seq))
        return row if row and row.lock is None and row.entry.fingerprint == entry.fingerprint else None

    def _record(self, lock: str, command: IssuedCommand, changed: bool) -> bool:
        if changed:
            self._rows.orders.append((lock, command))
        return changed
