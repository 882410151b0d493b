"""The commands that an operator can issue for a lock, in Airflow, on the page and on the command line.

| command               | the target                          | the shards                                          |
|-----------------------|-------------------------------------|-----------------------------------------------------|
| Force                 | gets the DDL now                    | those without the DDL get a pending skip; in a      |
|                       |                                     | conflict, a DDL with the same columns counts as it  |
| Skip                  | gets nothing                        | those without the DDL get a pending skip            |
| Skip of one shard     | waits for the other shards          | its head is resolved, or it gets a pending skip     |
| Replace               | gets the statements instead         | as before: the lock waits until they have the DDL   |
| Replace for one shard | waits as before                     | its head is treated as these statements             |
| Retry                 | is asked again about a refused DDL  | as before: nothing is decided                       |
| DropShard             | keeps the shard's rows              | its DDL and rows are dropped, also all later ones   |

`Replace` decides what is executed, `Force` decides when. To execute a replaced DDL without waiting for the missing
shards, use both.
"""

from dataclasses import dataclass, field
from typing import Any

from unshard.core.model import Shard


@dataclass(frozen=True, slots=True)
class Force:
    """Execute the DDL of a lock without waiting for the missing shards."""

    lock: str
    owner: str | None = None
    """The source that executes the DDL, which it must have. None: the lock's owner, or the first source that has it."""


@dataclass(frozen=True, slots=True)
class Skip:
    """Resolve a DDL without executing it, for all shards or for one."""

    lock: str
    shard: Shard | None = None
    seq: int | None = None
    """Number of the DDL in the shard's queue; 0: the DDL that the shard has not reached; None: the DDL at its head."""


@dataclass(frozen=True, slots=True)
class Replace:
    """Execute other statements instead of a DDL, or treat the DDL of one shard as these statements."""

    lock: str
    statements: tuple[str, ...]
    shard: Shard | None = None
    seq: int | None = None
    """As in Skip."""


@dataclass(frozen=True, slots=True)
class DropShard:
    """Remove a shard from its group permanently; its rows in the target stay."""

    lock: str
    shard: Shard


@dataclass(frozen=True, slots=True)
class Retry:
    """Ask the target again about a DDL that it has refused; if it accepts the DDL now, the lock goes on normally."""

    lock: str


LockCommand = Force | Skip | Replace | DropShard | Retry
ACTIONS: dict[type[LockCommand], str] = {
    Force: "unlock",
    Skip: "skip",
    Replace: "replace",
    DropShard: "drop-shard",
    Retry: "retry",
}
"""The names of the commands in the record and on the command line."""


@dataclass(frozen=True, slots=True)
class Cleared:
    """The unknown user who cleared a task in Airflow: Airflow does not tell the worker that issues the command."""

    run: str
    instance: str
    """Airflow's id of the task instance that issued the command, by which the page later finds the user."""

    def __str__(self) -> str:
        return f"someone in Airflow (run {self.run})"


@dataclass(frozen=True, slots=True)
class IssuedCommand:
    """A command as it is recorded."""

    action: str
    by: str | Cleared
    via: str
    reason: str
    details: dict[str, Any] = field(default_factory=dict)
    """The parameters of the command other than its lock."""


def recorded(command: LockCommand, by: str | Cleared, via: str, reason: str) -> IssuedCommand:
    """Return the record of a command."""
    details = {"owner": getattr(command, "owner", None), "statements": list(getattr(command, "statements", ()))}
    shard = getattr(command, "shard", None)
    details["shard"] = str(shard) if shard else None
    return IssuedCommand(
        ACTIONS[type(command)], by, via, reason, {name: value for name, value in details.items() if value}
    )
