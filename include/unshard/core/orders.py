"""What an operator can order a lock to do; Airflow, the page and the command line give these and nothing else.

| order                 | the target                   | the shards                                      |
|-----------------------|------------------------------|-------------------------------------------------|
| Force                 | gets the DDL now             | those that have not come owe a skip             |
| Skip                  | gets nothing                 | those that have not come owe a skip             |
| Skip of one shard     | waits for the others         | its head is resolved, or it owes a skip         |
| Replace               | gets the statements instead  | are waited for as before: they bring the DDL    |
| Replace for one shard | waits as before              | its head counts as the statements               |
| Retry                 | is asked again about what it has refused | as before: nothing is decided |
| DropShard             | keeps what it has of it      | its DDL and rows are dropped, the later ones too |

`Replace` says what is executed, `Force` says when: a replaced DDL that is not to wait for the missing shards is
forced too.
"""

from dataclasses import dataclass, field
from typing import Any

from unshard.core.model import Shard


@dataclass(frozen=True, slots=True)
class Force:
    """Let a lock go with the shards that have come."""

    lock: str
    owner: str | None = None
    """The source that executes the DDL, one that has it; None: the lock's owner, or the first that has it."""


@dataclass(frozen=True, slots=True)
class Skip:
    """Resolve a DDL without executing it: of all shards, or of one."""

    lock: str
    shard: Shard | None = None
    seq: int | None = None
    """Number of the shard's DDL that is meant, 0 for the one that it has not reached; None: the one at its head."""


@dataclass(frozen=True, slots=True)
class Replace:
    """Execute other statements in place of a DDL, or let them count as one shard's."""

    lock: str
    statements: tuple[str, ...]
    shard: Shard | None = None
    seq: int | None = None
    """As in Skip."""


@dataclass(frozen=True, slots=True)
class DropShard:
    """Take a shard out of its group for good; its rows in the target stay."""

    lock: str
    shard: Shard


@dataclass(frozen=True, slots=True)
class Retry:
    """Ask the target again about a DDL that it has refused; if it agrees now, the DDL is one like any other."""

    lock: str


Order = Force | Skip | Replace | DropShard | Retry
ACTIONS: dict[type[Order], str] = {
    Force: "unlock", Skip: "skip", Replace: "replace", DropShard: "drop-shard", Retry: "retry",
}  # fmt: skip
"""What the record and the command line call an order."""


@dataclass(frozen=True, slots=True)
class Cleared:
    """Whoever cleared a task in Airflow; the worker that gives the order then is not told the name."""

    run: str
    instance: str
    """Airflow's id of the task instance that gave the order, by which the name can be found out later."""

    def __str__(self) -> str:
        return f"someone in Airflow (run {self.run})"


@dataclass(frozen=True, slots=True)
class Given:
    """An order as it goes into the record."""

    action: str
    by: str | Cleared
    via: str
    reason: str
    details: dict[str, Any] = field(default_factory=dict)
    """What the order says besides its lock."""


def given(order: Order, by: str | Cleared, via: str, reason: str) -> Given:
    """Return what is recorded of an order."""
    said = {"owner": getattr(order, "owner", None), "statements": list(getattr(order, "statements", ()))}
    shard = getattr(order, "shard", None)
    said["shard"] = str(shard) if shard else None
    return Given(ACTIONS[type(order)], by, via, reason, {name: value for name, value in said.items() if value})
