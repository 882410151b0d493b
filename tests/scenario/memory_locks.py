"""DDL locks of the meta store in memory: the same steps as adapters.meta.lockrecords."""

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from unshard.adapters.meta.lockrecords import Execution
from unshard.core.ddl.lock import DdlLock, LockState, Outcome, PendingSkip, SkipResolution, lock_id, resolution, void
from unshard.core.ddl.queue import Admission, OperatorDecision, QueueEntry
from unshard.core.model import Shard, TableId
from unshard.errors.locks import LockBusy, TargetBeingChanged, UnknownLock

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class MemoryLocks:
    """Implements `adapters.meta.lockrecords.Locks`; each step reads its own state, as a transaction does."""

    def __init__(self, meta: Any) -> None:
        self._meta, self._rows, self._step = meta, meta.rows, meta.step
        self._taken: set[str] = set()

    def open(self) -> tuple[DdlLock, ...]:
        return tuple(self.get(lock.id) for lock in self._rows.locks.values() if lock.state is not LockState.RESOLVED)

    def all(self, resolved: int = 20) -> tuple[DdlLock, ...]:
        return tuple(self.get(lock) for lock in self._rows.locks)

    def get(self, lock: str) -> DdlLock:
        if lock not in self._rows.locks:
            raise UnknownLock(self._meta.task, lock)
        found = self._rows.locks[lock]
        exempted = {shard for (one, shard) in self._rows.members if one == lock}
        return found if found.state is LockState.RESOLVED else replace(found, exempted=frozenset(exempted))

    def pending_skips(self) -> dict[Shard, tuple[PendingSkip, ...]]:
        found: dict[Shard, list[PendingSkip]] = {}
        newest = self._newest_resolved()
        for (lock, shard), state in self._rows.members.items():
            if state == "pending":
                is_parted = (lock, shard) in self._rows.parted or newest.get(shard, 0) > self._rows.locks[lock].number
                record = self._rows.locks[lock]
                found.setdefault(shard, []).append(
                    PendingSkip(
                        shard,
                        lock,
                        record.number,
                        record.fingerprint,
                        record.state is not LockState.RESOLVED,
                        record.outcome is not Outcome.SKIPPED and not is_parted,
                    )
                )
        return {
            shard: tuple(sorted(skips_of_shard, key=lambda pending_skip: pending_skip.number))
            for shard, skips_of_shard in found.items()
        }

    def _newest_resolved(self) -> dict[Shard, int]:
        found: dict[Shard, int] = {}
        for (lock, shard), state in self._rows.members.items():
            if state == "resolved":
                found[shard] = max(found.get(shard, 0), self._rows.locks[lock].number)
        return found

    def create(self, target: TableId, entry: QueueEntry) -> None:
        with self._step("create lock"):
            queued = self._rows.entries.get((entry.shard, entry.seq))
            if queued is None or queued.lock is not None:
                return
            of_target = [lock for lock in self._rows.locks.values() if lock.target == target]
            if not any(lock.state is not LockState.RESOLVED for lock in of_target):
                number = len(of_target) + 1
                name = lock_id(self._meta.task, target, number)
                opened = datetime.fromtimestamp(entry.statement.timestamp, UTC)
                self._rows.locks[name] = DdlLock(name, target, number, entry, opened, NOW)

    def note(self, lock: DdlLock, state: LockState, owner: str | None) -> None:
        if self._rows.locks[lock.id].owner == lock.owner:
            self.update(lock.id, state=state, owner=owner)

    def settle(self, skip_resolution: SkipResolution) -> None:
        with self._step("settle"):
            key = skip_resolution.lock, skip_resolution.shard
            if not self._is_still(skip_resolution.shard, skip_resolution.shard_uid):
                return
            if self._rows.members.get(key) == "pending":
                self._rows.members[key] = "settled"
                self._rows.entries[skip_resolution.shard, skip_resolution.seq].lock = skip_resolution.lock

    def _is_still(self, shard: Shard, shard_uid: str) -> bool:
        row = self._rows.shards.get(shard)
        return row is not None and row.shard_uid == shard_uid

    def admit(self, admission: Admission) -> None:
        with self._step("admit"):
            if not (
                self._is_still(admission.shard, admission.shard_uid)
                and self._is_still(admission.peer, admission.peer_uid)
            ):
                return
            row = self._rows.entries[admission.shard, admission.seq]
            if row.lock is None:
                row.lock = "admitted"
                for lock, shard in [key for key, state in self._rows.members.items() if state == "pending"]:
                    if shard == admission.peer:
                        self._rows.members.setdefault((lock, admission.shard), "pending")

    def withdraw(self, lock: DdlLock) -> None:
        with self._step("withdraw"):
            found = self._rows.locks[lock.id]
            if found.started_at is None and found.verdict is not OperatorDecision.SKIP:
                self.update(lock.id, state=LockState.RESOLVED, resolved_at=NOW, outcome=Outcome.WITHDRAWN)
                for shard in void(self._meta.structures.shards(target=lock.target), lock, self.pending_skips()):
                    del self._rows.members[lock.id, shard]

    @contextlib.contextmanager
    def exclusive(self, lock: str) -> Iterator[None]:
        if lock in self._taken:
            raise LockBusy(lock)
        self._taken.add(lock)
        try:
            yield
        finally:
            self._taken.discard(lock)

    def start(self, lock: DdlLock, source: str, entry: QueueEntry, join_version: int = 0) -> bool:
        with self._step("start"):
            joined = self._rows.joins.targets.get(lock.target)
            if joined is not None and (joined.version != join_version or joined.change is not None):
                raise TargetBeingChanged(str(lock.target))
            found = self._rows.locks[lock.id]
            ordered = (found.verdict, found.replacement, found.done) != (lock.verdict, lock.replacement, lock.done)
            if found.state is LockState.RESOLVED or ordered:
                return False
            self.update(lock.id, started_at=found.started_at or NOW, owner=found.owner or source, error=None)
            if not [one for one in self.executions(lock.id) if one.done_at is None]:
                self._rows.history.append(
                    Execution(lock.id, source, entry.routed, entry.before, entry.after, NOW, None, None, None)
                )
            return True

    def split(self, lock: DdlLock, statements: tuple[str, ...]) -> bool:
        with self._step("split"):
            self.update(lock.id, replacement=statements)
            return True

    def advance(self, lock: DdlLock, outcome: Outcome) -> None:
        with self._step("advance"):
            if self._rows.locks[lock.id].done == lock.done:
                self.update(lock.id, done=lock.done + 1)
                self.finish(lock.id, outcome)

    def fail(self, lock: DdlLock, error: str, *, may_be_done: bool = False) -> None:
        with self._step("fail"):
            started = self._rows.locks[lock.id].started_at if may_be_done else None
            self.update(lock.id, started_at=started, error=error, state=LockState.FAILED)
            if not may_be_done:
                self.finish(lock.id, "refused")

    def resolve(self, lock: DdlLock, outcome: Outcome) -> None:
        with self._step("resolve"):
            if self._rows.locks[lock.id].state is LockState.RESOLVED:
                return
            members = self._meta.structures.shards(target=lock.target)
            what = resolution(members, self.get(lock.id), self.pending_skips())
            for shard, seq in what.resolved:
                self._rows.entries[shard, seq].lock = lock.id
                self._rows.members[lock.id, shard] = "resolved"
            for shard in what.skipping:
                if (lock.id, shard) not in self._rows.members:
                    self._rows.members[lock.id, shard] = "pending"
                    self._rows.parted |= {(lock.id, shard)} if shard in what.parted else set()
            self.finish(lock.id, outcome)
            self.update(lock.id, state=LockState.RESOLVED, resolved_at=NOW, error=None, outcome=outcome)

    def executions(self, lock: str) -> tuple[Execution, ...]:
        return tuple(one for one in self._rows.history if one.lock == lock)

    def finish(self, lock: str, outcome: str) -> None:
        self._rows.history[:] = [
            replace(one, done_at=NOW, outcome=str(outcome)) if one.lock == lock and one.done_at is None else one
            for one in self._rows.history
        ]

    def update(self, lock: str, **values: object) -> None:
        if self._rows.locks[lock].state is not LockState.RESOLVED:
            self._rows.locks[lock] = replace(self._rows.locks[lock], **values)  # type: ignore[arg-type]
