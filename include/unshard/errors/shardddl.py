"""US-5xxx: shard groups, DDL locks and operators' orders."""

from dataclasses import dataclass

from unshard.errors.base import Scope, UnshardError


@dataclass(eq=False)
class ShardDdlError(UnshardError):
    """The shards of a group disagree, or an order to a lock cannot be carried out."""

    scope = Scope.UPSTREAM


@dataclass(eq=False)
class ShardDdlRefused(ShardDdlError):
    """A shard ran a DDL that cannot be coordinated."""

    shard: str
    ddl: str
    reason: str
    step: str

    code = "US-5001"
    template = "{shard} ran `{ddl}`: {reason}"
    hint = "{step}"


@dataclass(eq=False)
class UnknownShard(ShardDdlError):
    """The binlog has changes of a routed table that the task has never met."""

    shard: str
    target: str
    location: str

    code = "US-5002"
    template = "{shard} is routed to {target} and changes at {location}, but the task does not know its structure"
    hint = "its CREATE TABLE was never seen: load the task from the start, or take the table off the routes"


@dataclass(eq=False)
class StrangeNewShard(ShardDdlError):
    """A new shard has none of the structures that its group has or will have, as far as is known."""

    shard: str
    target: str
    ddl: str
    peer: str

    code = "US-5003"
    template = "new shard {shard} of {target} has another structure than its group (compared with {peer}): `{ddl}`"
    hint = "it goes on by itself when its group gets there; else skip it, or replace it by what the target needs"


@dataclass(eq=False)
class UnknownLock(ShardDdlError):
    """No lock of the task has that id."""

    scope = Scope.CONFIG
    task: str
    lock: str

    code = "US-5004"
    template = "task {task} has no lock {lock}"
    hint = "`unshard locks` lists them"


@dataclass(eq=False)
class LockBusy(ShardDdlError):
    """Another process executes this lock's DDL right now."""

    scope = Scope.INTERNAL
    transient = True
    lock: str

    code = "US-5005"
    template = "another process is executing the DDL of lock {lock}"
    hint = "wait for it; if that process is dead, its connection to the target ends by itself or by KILL"


@dataclass(eq=False)
class SegmentGap(ShardDdlError):
    """The segments given to a plan do not follow on the checkpoint without a gap."""

    scope = Scope.INTERNAL
    source: str
    expected: str
    found: str

    code = "US-5006"
    template = "source {source}: the next segment should begin at {expected} but begins at {found}"
    hint = "a segment file of the relay is missing: restore it, or remove the later ones so that they are pulled again"


@dataclass(eq=False)
class RecreatedShard(ShardDdlError):
    """One statement replaces a shard that still has pending DDL or held rows (CREATE OR REPLACE TABLE)."""

    shard: str
    target: str
    ddl: str

    code = "US-5007"
    transient = True  # it passes when nothing of the old table waits any more
    template = "{shard} was dropped and created again while rows of {target} behind a pending DDL wait: `{ddl}`"
    hint = "its rows wait: skip it, or replace it by what the target needs to take them; see docs/errors.md"


@dataclass(eq=False)
class DecisionMisfits(ShardDdlError):
    """What an operator has decided does not lead to a structure that the shard's held rows can have."""

    shard: str
    ddl: str
    why: str

    code = "US-5020"
    template = "what was decided about `{ddl}` of {shard} does not fit its rows: {why}"
    hint = "replace it by the statements that lead from the structure of before to that of the rows"
