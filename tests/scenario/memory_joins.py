"""Joined targets of the meta store in memory: the same steps as adapters.meta.joinrecords."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from unshard.core.ddl.issuedcommands import IssuedCommand
from unshard.core.ddl.queue import QueueEntry
from unshard.core.join.group import ColumnHistory, Group, Member
from unshard.core.join.joined import (
    Accepted,
    ChangeKind,
    Completion,
    JoinedTarget,
    JoinStatement,
    OpenChange,
    ShardStep,
    steps_of_shards,
)
from unshard.core.join.planning import needless_states
from unshard.core.model import Shard, TableId


@dataclass
class JoinRow:
    columns: Mapping[int, ColumnHistory]
    last_id: int
    names: Mapping[int, str]
    floor: Member | None
    version: int = 1
    settled_version: int = 0
    settled_shards: str = ""
    change: OpenChange | None = None
    cause: str = ""
    error: str = ""
    error_cause: str = ""
    refused: frozenset[str] = frozenset()
    reload_errors: dict[Shard, str] = field(default_factory=dict)


@dataclass
class JoinRows:
    targets: dict[TableId, JoinRow] = field(default_factory=dict)
    members: dict[tuple[Shard, int], tuple[TableId, ShardStep]] = field(default_factory=dict)
    accepted_at: dict[tuple[str, int], int] = field(default_factory=dict)
    """When each DDL was accepted, by the shard's uid and the number of the DDL."""
    moment: int = -1
    last_change: int = 0

    def rename(self, names: Mapping[Shard, Shard], gone: set[Shard]) -> None:
        """Move the members of renamed shards to their new names."""
        self.members = {
            (names.get(shard, shard), seq): (target, replace(step, shard=names.get(shard, shard)))
            for (shard, seq), (target, step) in self.members.items()
            if shard not in gone
        }


class MemoryJoins:
    """Implements `adapters.meta.joinrecords.Joins`."""

    def __init__(self, meta: Any) -> None:
        self._rows, self._store, self._step, self._meta = meta.rows.joins, meta.rows, meta.step, meta

    def targets(self) -> frozenset[TableId]:
        return frozenset(self._rows.targets)

    def resting(self) -> Mapping[TableId, str]:
        return {
            target: row.settled_shards if row.version == row.settled_version else ""
            for target, row in self._rows.targets.items()
            if row.change is None
        }

    def begun(self) -> frozenset[TableId]:
        rows = self._rows.targets.items()
        return frozenset(target for target, row in rows if row.version == 1 and not row.settled_version)

    def get(self, target: TableId) -> JoinedTarget | None:
        self._meta.reading("join")
        row = self._rows.targets.get(target)
        if row is None:
            return None
        members, accepted = dict[Shard, Member](), dict[Shard, Accepted]()
        for (shard, _), (_, step) in sorted(self.members(target).items()):
            members[shard], accepted[shard] = step.member, step.accepted
        group = Group(members, row.columns, row.last_id, row.floor)
        return JoinedTarget(target, group, row.names, row.version, accepted, row.settled_version, row.change)

    def version(self, target: TableId) -> int:
        row = self._rows.targets.get(target)
        return row.version if row is not None else 0

    def members(self, target: TableId) -> dict[tuple[Shard, int], tuple[TableId, ShardStep]]:
        return {key: value for key, value in self._rows.members.items() if value[0] == target}

    def history(self, target: TableId) -> Mapping[tuple[Shard, int], Member]:
        return {key: step.member for key, (_, step) in self.members(target).items()}

    def steps(self, target: TableId) -> dict[Shard, list[tuple[datetime, Member]]]:
        """Return the history; each transaction takes a second."""
        found: dict[Shard, list[tuple[datetime, Member]]] = {}
        for (shard, seq), (_, step) in sorted(self.members(target).items()):
            moment = self._rows.accepted_at[step.accepted.shard_uid, seq]
            found.setdefault(shard, []).append((datetime.fromtimestamp(moment, UTC), step.member))
        return found

    def resolved(self, shard: Shard, after: int) -> tuple[QueueEntry, ...]:
        rows = sorted((seq, row) for (owner, seq), row in self._store.entries.items() if owner == shard and seq > after)
        return tuple(row.entry for _, row in rows if row.lock is not None)

    def refused(self, target: TableId) -> frozenset[str]:
        found: frozenset[str] = self._rows.targets[target].refused
        return found

    def reload_errors(self, target: TableId) -> Mapping[Shard, str]:
        return dict(self._rows.targets[target].reload_errors)

    def note_reload(self, target: TableId, shard: Shard, error: str | None) -> None:
        errors = self._rows.targets[target].reload_errors
        errors.pop(shard, None)
        if error is not None:
            errors[shard] = error

    def idle_seconds(self, target: TableId) -> float:
        return 0.0

    def last_error(self, target: TableId, cause: str = "") -> str:
        row = self._rows.targets.get(target)
        return row.error if row is not None and cause in ("", row.error_cause) else ""

    def last_errors(self) -> Mapping[tuple[TableId, str], str]:
        return {(target, row.error_cause): row.error for target, row in self._rows.targets.items() if row.error}

    def begin(self, joined: JoinedTarget) -> None:
        with self._step("begin join"):
            if joined.target in self._rows.targets:
                return
            group = joined.group
            self._rows.moment += 1
            self._rows.targets[joined.target] = JoinRow(group.columns, group.last_id, joined.names, group.floor)
            for shard, member in group.members.items():
                self._put(joined.target, ShardStep(shard, joined.accepted[shard], member))

    def intend(
        self, joined: JoinedTarget, group: Group, kind: ChangeKind, cause: str, statements: tuple[JoinStatement, ...]
    ) -> OpenChange | None:
        with self._step("intend join"):
            row = self._rows.targets[joined.target]
            of_target = [lock for lock in self._store.locks.values() if lock.target == joined.target]
            is_executing = any(lock.started_at is not None and lock.resolved_at is None for lock in of_target)
            if row.version != joined.version or is_executing:
                return None
            self._rows.last_change += 1
            row.change, row.cause = OpenChange(self._rows.last_change, kind, statements, 0), cause
            row.columns, row.last_id, row.version = group.columns, group.last_id, row.version + 1
            return row.change

    def advance(self, target: TableId, change: OpenChange) -> None:
        with self._step("advance join"):
            row = self._rows.targets[target]
            if row.change is not None and (row.change.id, row.change.done) == (change.id, change.done):
                row.names = {id: name for name, id in change.statements[change.done].names}
                row.change = replace(change, done=change.done + 1)
                row.version += 1

    def complete(self, joined: JoinedTarget, completion: Completion, command: IssuedCommand | None = None) -> bool:
        with self._step("complete join"):
            row = self._rows.targets[joined.target]
            if row.version != joined.version:
                return False
            if row.change is not None and row.change.kind is ChangeKind.EXPAND:
                row.refused = frozenset()
            group = completion.group
            row.error = "" if row.change is not None else row.error
            self._rows.moment += 1
            row.columns, row.last_id, row.names = group.columns, group.last_id, completion.names
            row.floor = group.floor
            row.change, row.version = None, row.version + 1
            for key in [key for key in self.members(joined.target) if key[0] not in group.members]:
                del self._rows.members[key]
            for step in steps_of_shards(joined, completion):
                self._put(joined.target, step)
            for shard, seq in completion.resolved:
                entry = self._store.entries[shard, seq]
                entry.lock = entry.lock or "joined"
        return True

    def _put(self, target: TableId, step: ShardStep) -> None:
        uid = step.accepted.shard_uid
        self._rows.targets[target].reload_errors.pop(step.shard, None)
        for key, (_, other) in [*self._rows.members.items()]:
            if key[0] == step.shard and other.accepted.shard_uid != uid:
                del self._rows.members[key]
        self._rows.members[step.shard, step.accepted.seq] = target, step
        self._rows.accepted_at.setdefault((uid, step.accepted.seq), self._rows.moment)

    def fail(self, target: TableId, change: OpenChange, error: str) -> None:
        with self._step("fail join"):
            row = self._rows.targets[target]
            if row.change is not None and row.change.id == change.id:
                row.refused |= {row.cause} if change.kind is ChangeKind.CONTRACT else set()
                row.error, row.error_cause = error, row.cause
                row.change, row.version = None, row.version + 1

    def give_up(self, target: TableId, change: OpenChange) -> None:
        with self._step("give up join"):
            row = self._rows.targets[target]
            if row.change is not None and row.change.id == change.id:
                row.change, row.version = None, row.version + 1

    def remove(self, joined: JoinedTarget) -> None:
        with self._step("remove join"):
            del self._rows.targets[joined.target]
            for key in self.members(joined.target):
                del self._rows.members[key]

    def note_settled(self, joined: JoinedTarget, shards: str, needed: Mapping[Shard, int]) -> None:
        with self._step("settle join"):
            row = self._rows.targets[joined.target]
            if row.version != joined.version:
                return
            row.settled_version, row.settled_shards = joined.version, shards
            numbers: dict[Shard, list[int]] = {}
            for shard, seq in self.members(joined.target):
                numbers.setdefault(shard, []).append(seq)
            for shard, some in numbers.items():
                for seq in needless_states(some, needed.get(shard, 0)):
                    del self._rows.members[shard, seq]
