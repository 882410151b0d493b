"""Ports of the coordinator: the meta store, and the executor of a DDL.

adapters.meta.Meta implements the store. The tests also have a store in memory, which runs the same scenarios in
milliseconds and can be killed between any two steps.
"""

import contextlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from unshard.core.ddl.lock import DdlLock, LockState, Outcome, PendingSkips, SkipResolution
from unshard.core.ddl.lockcommands import IssuedCommand
from unshard.core.ddl.queue import OperatorDecision, QueueEntry, ShardState
from unshard.core.ddl.shardgroup import Admission
from unshard.core.join.changekind import ChangeKind
from unshard.core.model import Shard, TableId, TableSchema
from unshard.core.task.state import Checkpoint, SourceState
from unshard.core.window.plan import StructureChange
from unshard.core.window.suspension import SuspendedTarget

if TYPE_CHECKING:
    from unshard.core.join.group import Group
    from unshard.core.join.joined import Completion, JoinedTarget, JoinStatement, OpenChange


class Executor(Protocol):
    """Executes DDL on the target, each exactly once."""

    def intended(self, lock: str, entry: QueueEntry) -> QueueEntry:
        """Return the entry with the target's structures in place of the shard's; the same after every crash."""

    def execute(self, target: TableId, entry: QueueEntry, before: TableSchema, wanted: TableSchema) -> bool:
        """Execute `entry` unless the target has the wanted structure; return whether it was executed.

        Raises a coded error with the target's message if the target refuses.
        """


class Execution(Protocol):
    """One execution of a statement of a lock."""

    @property
    def ddl(self) -> str:
        """Return the statement."""

    @property
    def outcome(self) -> str | None:
        """Return how it ended; None while that is unknown."""

    @property
    def wanted(self) -> str:
        """Return the structure of the target after it."""


class Sources(Protocol):
    """The sources of a task."""

    def all(self) -> tuple[SourceState, ...]:
        """Return every recorded source."""


class ShardStore(Protocol):
    """The shards of a task and their structures."""

    def shards(self) -> tuple[ShardState, ...]:
        """Return the shards of all sources, with queues and held files."""

    def is_pending(self) -> bool:
        """Whether any shard has a DDL that is not resolved."""

    def get(self, digests: Iterable[str]) -> dict[str, TableSchema]:
        """Return the structures of those digests."""


class StructureStore(ShardStore, Protocol):
    """Keeps structures by digest."""

    def put(self, schema: TableSchema) -> str:
        """Store a structure and return its digest."""

    def uid_of(self, change: StructureChange) -> str:
        """Return the permanent id of a shard that a window creates."""


class LockReader(Protocol):
    """The locks of a task."""

    def open(self) -> tuple[DdlLock, ...]:
        """Return the locks that are not resolved."""

    def all(self, resolved: int = ...) -> tuple[DdlLock, ...]:
        """Return the open locks and the newest resolved ones."""

    def get(self, lock: str) -> DdlLock:
        """Return one lock; raises UnknownLock if it does not exist."""

    def pending_skips(self) -> PendingSkips:
        """Return the pending skips of shards, the oldest lock first."""

    def executions(self, lock: str) -> Sequence[Execution]:
        """Return what a lock has tried, the oldest first; the last one that is not done is an intent."""


class Locks(LockReader, Protocol):
    """Changes the locks of a task; every step finds the same state again or changes nothing."""

    def create(self, target: TableId, entry: QueueEntry) -> None:
        """Open the next lock of a target, unless one is open or the DDL is resolved."""

    def note(self, lock: DdlLock, state: LockState, owner: str | None) -> None:
        """Record the state of an open lock, if its owner has not changed since it was read."""

    def settle(self, skip_resolution: SkipResolution) -> None:
        """Resolve a queue head as a pending skip."""

    def admit(self, admission: Admission) -> None:
        """Resolve the DDL of a shard whose structure now equals a peer's, and give it the peer's pending skips."""

    def withdraw(self, lock: DdlLock) -> None:
        """Resolve a lock without executing it, unless its execution has begun."""

    def exclusive(self, lock: str) -> contextlib.AbstractContextManager[None]:
        """Be the only executor of a lock inside the block; raises LockBusy if another one exists."""

    def start(self, lock: DdlLock, source: str, entry: QueueEntry, join_version: int = 0) -> bool:
        """Write the intent of executing the next statement; False if the lock was resolved or changed meanwhile.

        `join_version` is that of a target in optimistic mode. Raises TargetBeingChanged if it has another one by now,
        or if it is being changed.
        """

    def split(self, lock: DdlLock, statements: tuple[str, ...]) -> bool:
        """Record the statements that are executed in its place; False if the lock was resolved or changed meanwhile."""

    def advance(self, lock: DdlLock, outcome: Outcome) -> None:
        """End the intent of a statement that is not the last."""

    def fail(self, lock: DdlLock, error: str, *, may_be_done: bool = False) -> None:
        """Record the target's message and end the intent, unless the DDL may have been executed nevertheless."""

    def resolve(self, lock: DdlLock, outcome: Outcome) -> None:
        """Resolve queue heads and lock, record pending skips for the other shards, end the intent."""


class CommandStore(Protocol):
    """Commands of operators; every method records the command and returns whether it changed anything."""

    def force(
        self,
        lock: str,
        owner: str | None,
        command: IssuedCommand,
        counted: Sequence[tuple[QueueEntry, QueueEntry]] = (),
    ) -> bool:
        """Unlock, even if the target has refused the DDL; `counted` are DDLs that count as the lock's DDL."""

    def decide(self, lock: str, verdict: OperatorDecision, statements: tuple[str, ...], command: IssuedCommand) -> bool:
        """Skip or replace the DDL of all shards; raises LockBegun if the target may have executed it."""

    def skip_head(self, lock: DdlLock, entry: QueueEntry, command: IssuedCommand) -> bool:
        """Resolve a shard's DDL without executing it; if it is the lock's DDL, exempt the shard from the lock."""

    def exempt(self, lock: str, shard: Shard, command: IssuedCommand) -> bool:
        """Record a pending skip for a shard that has reached no DDL; the lock does not wait for the shard."""

    def replace_head(self, lock: str, entry: QueueEntry, changed: QueueEntry, command: IssuedCommand) -> bool:
        """Use statements in place of a shard's DDL, if that still is `entry`."""

    def retry(self, lock: str, entries: Sequence[QueueEntry], command: IssuedCommand) -> bool:
        """Clear the target's error message for a lock's DDL, so that the DDL is tried again."""

    def drop_shard(self, lock: str, shard: Shard, command: IssuedCommand) -> bool:
        """Take a shard out of its group."""


class SuspendedStore(Protocol):
    """The suspended targets: they take no rows for now."""

    def all(self) -> tuple[SuspendedTarget, ...]:
        """Return the suspended targets of all sources."""


class ReloadStore(Protocol):
    """The reloads of a task."""

    def due(self, target: TableId, columns: Collection[str], since: datetime) -> tuple[Shard, ...]:
        """Return the shards of a target from which columns were not reloaded after a time."""


class JoinReader(Protocol):
    """The targets that follow the join of their shards."""

    def targets(self) -> frozenset[TableId]:
        """Return the joined targets."""

    def resting(self) -> Mapping[TableId, str]:
        """Return the joined targets without an open change; settled ones with the hash of their shards, else empty."""

    def get(self, target: TableId) -> "JoinedTarget | None":
        """Return a target with its group; None if it has not joined."""

    def version(self, target: TableId) -> int:
        """Return the version of a target; 0 if it has not joined."""

    def resolved(self, shard: Shard, after: int) -> tuple[QueueEntry, ...]:
        """Return the DDLs of a shard after a number that are resolved, oldest first."""

    def refused(self, target: TableId) -> frozenset[str]:
        """Return the causes of the contractions that the target has rejected since it was last expanded."""

    def reload_errors(self, target: TableId) -> Mapping[Shard, str]:
        """Return the shards whose columns cannot be read again without an operator, with the reason."""

    def idle_seconds(self, target: TableId) -> float:
        """Return the time since the last DDL of a shard was accepted."""

    def last_error(self, target: TableId, cause: str = "") -> str:
        """Return the message of the newest change if the target has rejected it and it has that cause; else empty."""


class Joins(JoinReader, Protocol):
    """Changes joined targets; a step changes nothing if the target has changed since it was read."""

    def begin(self, joined: "JoinedTarget") -> None:
        """Store the group of a new target, unless it has one."""

    def intend(
        self,
        joined: "JoinedTarget",
        group: "Group",
        kind: ChangeKind,
        cause: str,
        statements: "tuple[JoinStatement, ...]",
    ) -> "OpenChange | None":
        """Store statements before the first is executed.

        None if the target has changed since it was read, or if a lock is being executed on it.
        """

    def advance(self, target: TableId, change: "OpenChange") -> None:
        """Record that the target has the next statement of a change; idempotent."""

    def complete(self, joined: "JoinedTarget", completion: "Completion", order: IssuedCommand | None = None) -> bool:
        """Store the group and resolve the accepted DDLs; False if the target has changed since it was read."""

    def fail(self, target: TableId, change: "OpenChange", error: str) -> None:
        """Record that the target has rejected the next statement; the rest of the change is decided again."""

    def give_up(self, target: TableId, change: "OpenChange") -> None:
        """End a change whose process has died, unless it has ended: what is left of it is decided again."""

    def remove(self, joined: "JoinedTarget") -> None:
        """Delete everything about a target, unless it has changed since it was read."""

    def note_reload(self, target: TableId, shard: Shard, error: str | None) -> None:
        """Record why columns of a shard cannot be read again; None: nothing hinders it."""

    def note_settled(self, joined: "JoinedTarget", shards: str, needed: Mapping[Shard, int]) -> None:
        """Record that shards and target are equal, unless the target has changed since it was read.

        States of a shard that rows after its DDL number `needed` do not need are deleted.
        """


class CheckpointReader(Protocol):
    """The checkpoints of a task."""

    def get(self, source: str) -> Checkpoint | None:
        """Return the checkpoint of a source; None if it has none yet."""


class StoreReader(Protocol):
    """The part of the meta tables that shows locks."""

    @property
    def checkpoints(self) -> CheckpointReader:
        """Return the checkpoints."""

    @property
    def joins(self) -> JoinReader:
        """Return the joined targets."""

    @property
    def sources(self) -> Sources:
        """Return the sources."""

    @property
    def structures(self) -> ShardStore:
        """Return the structures."""

    @property
    def locks(self) -> LockReader:
        """Return the locks."""

    @property
    def suspended_targets(self) -> SuspendedStore:
        """Return what is stopped."""

    @property
    def reloads(self) -> ReloadStore:
        """Return the reloads."""


class Store(StoreReader, Protocol):
    """The part of the meta tables that coordination needs."""

    @property
    def structures(self) -> StructureStore:
        """Return the structures."""

    @property
    def locks(self) -> Locks:
        """Return the locks."""

    @property
    def joins(self) -> Joins:
        """Return the joined targets."""

    @property
    def lock_commands(self) -> CommandStore:
        """Return the commands of operators."""
