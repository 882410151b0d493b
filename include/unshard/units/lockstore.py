"""What the coordinator needs of the meta store and of whoever executes a DDL.

Ports: adapters.meta.Meta fits as it is, and the tests' store in memory too, which runs the same scenarios in
milliseconds and can be killed between any two steps.
"""

import contextlib
from collections.abc import Iterable, Sequence
from typing import Protocol

from unshard.core.ddllock import DdlLock, Debts, LockState, Outcome, Settlement
from unshard.core.model import Shard, TableId, TableSchema
from unshard.core.newcomers import Admission
from unshard.core.orders import Given
from unshard.core.progress import SourceState
from unshard.core.stops import Stop
from unshard.core.window import QueueEntry, ShardState, Verdict


class Executor(Protocol):
    """Executes DDL on the target, each once."""

    def intended(self, lock: str, entry: QueueEntry) -> QueueEntry:
        """Return the entry with the target's structures in place of the shard's; the same after every death."""

    def execute(self, target: TableId, entry: QueueEntry, before: TableSchema, wanted: TableSchema) -> bool:
        """Execute `entry` unless the target has the wanted structure; whether it executed.

        Raises a coded error with the target's words if it refuses.
        """


class Execution(Protocol):
    """One execution of a statement of a lock."""

    @property
    def ddl(self) -> str:
        """Return the statement."""

    @property
    def outcome(self) -> str | None:
        """Return how it ended; None while nobody knows."""


class Sources(Protocol):
    """The sources of a task."""

    def all(self) -> tuple[SourceState, ...]:
        """Return every recorded source."""


class Structures(Protocol):
    """The shards of a task and their structures."""

    def shards(self) -> tuple[ShardState, ...]:
        """Return the shards of all sources, with queues and held files."""

    def is_pending(self) -> bool:
        """Whether any shard has a DDL that is not resolved."""

    def get(self, digests: Iterable[str]) -> dict[str, TableSchema]:
        """Return the structures of those digests."""


class Locks(Protocol):
    """The locks of a task; every step finds the same state again or changes nothing."""

    def open(self) -> tuple[DdlLock, ...]:
        """Return the locks that are not resolved."""

    def all(self, resolved: int = ...) -> tuple[DdlLock, ...]:
        """Return the open locks and the newest resolved ones."""

    def get(self, lock: str) -> DdlLock:
        """Return one lock; UnknownLock if there is none."""

    def owed(self) -> Debts:
        """Return the skips that shards owe, the oldest lock first."""

    def create(self, target: TableId, entry: QueueEntry) -> None:
        """Open the next lock of a target, unless one is open or the DDL is resolved."""

    def note(self, lock: DdlLock, state: LockState, owner: str | None) -> None:
        """Record where an open lock stands, if its owner is still the one that was read."""

    def settle(self, settlement: Settlement) -> None:
        """Resolve a queue head as an owed skip."""

    def admit(self, admission: Admission) -> None:
        """Resolve the DDL of one shard alone, which has become like a peer, and let it owe what the peer owes."""

    def withdraw(self, lock: DdlLock) -> None:
        """Resolve a lock without executing it, unless an execution was begun."""

    def exclusive(self, lock: str) -> contextlib.AbstractContextManager[None]:
        """Be the only executor of a lock inside the block; LockBusy if another is."""

    def start(self, lock: DdlLock, source: str, entry: QueueEntry) -> bool:
        """Write the intent of executing its next statement; False if it was resolved or ordered otherwise meanwhile."""

    def split(self, lock: DdlLock, statements: tuple[str, ...]) -> bool:
        """Note the statements that are executed in its place; False if it was resolved or changed meanwhile."""

    def advance(self, lock: DdlLock, outcome: Outcome) -> None:
        """End the intent of a statement that others follow."""

    def fail(self, lock: DdlLock, error: str, *, may_be_done: bool = False) -> None:
        """Record what the target said and end the intent, unless the DDL may have been executed all the same."""

    def resolve(self, lock: DdlLock, outcome: Outcome) -> None:
        """Resolve heads and lock, let the other shards owe the skip, end the intent."""

    def executions(self, lock: str) -> Sequence[Execution]:
        """Return what a lock has tried, the oldest first; the last one that is not done is an intent."""


class Orders(Protocol):
    """What operators order; every step is recorded, and says whether it has changed anything."""

    def force(self, lock: str, owner: str | None, order: Given) -> bool:
        """Let a lock go, also one that the target has refused."""

    def decide(self, lock: str, verdict: Verdict, statements: tuple[str, ...], order: Given) -> bool:
        """Skip or replace the DDL of all shards; LockBegun if the target may have it."""

    def skip_head(self, lock: DdlLock, entry: QueueEntry, order: Given) -> bool:
        """Resolve a shard's DDL without executing it; if it is the lock's, the shard is excused from the lock."""

    def excuse(self, lock: str, shard: Shard, order: Given) -> bool:
        """Let a shard that has reached no DDL owe the lock a skip; the lock does not wait for it."""

    def replace_head(self, lock: str, entry: QueueEntry, changed: QueueEntry, order: Given) -> bool:
        """Let statements count as a shard's DDL, if that still is `entry`."""

    def retry(self, lock: str, entries: Sequence[QueueEntry], order: Given) -> bool:
        """Forget what the target has said about a lock's DDL, so that it is asked again."""

    def drop_shard(self, lock: str, shard: Shard, order: Given) -> bool:
        """Take a shard out of its group."""


class Stops(Protocol):
    """The targets that take no rows for now."""

    def all(self) -> tuple[Stop, ...]:
        """Return what is stopped, of all sources."""


class Store(Protocol):
    """The part of the meta store that coordination needs."""

    @property
    def sources(self) -> Sources:
        """Return the sources."""

    @property
    def structures(self) -> Structures:
        """Return the structures."""

    @property
    def locks(self) -> Locks:
        """Return the locks."""

    @property
    def orders(self) -> Orders:
        """Return where orders are given."""

    @property
    def stops(self) -> Stops:
        """Return what is stopped."""
