"""US-503x: orders of an operator that cannot be carried out."""

from dataclasses import dataclass

from unshard.errors.base import Scope
from unshard.errors.shardddl import ShardDdlError


@dataclass(eq=False)
class OrderError(ShardDdlError):
    """An order does not fit the lock."""

    scope = Scope.CONFIG
    lock: str


@dataclass(eq=False)
class LockResolved(OrderError):
    """The lock of an order is resolved: there is nothing left to order."""

    how: str

    code = "US-5030"
    template = "lock {lock} is resolved already ({how})"
    hint = "`unshard locks` lists the open ones; a shard can be dropped with the id of a resolved lock too"


@dataclass(eq=False)
class LockUndecided(OrderError):
    """A lock cannot be forced while it is not known what its DDL means."""

    why: str

    code = "US-5031"
    template = "lock {lock} cannot be forced, because nobody has said what its DDL means: {why}"
    hint = "skip the DDL (`unshard skip`), or replace it by what should happen on the target (`unshard replace`)"


@dataclass(eq=False)
class NotAnOwner(OrderError):
    """The source that was chosen as owner has no shard that has reached the DDL."""

    source: str
    sources: str

    code = "US-5032"
    template = "source {source} cannot be the owner of lock {lock}: no shard of it has reached the DDL"
    hint = "choose one that has it: {sources}"


@dataclass(eq=False)
class LockBegun(OrderError):
    """The DDL of a lock is being executed, or was when its executor died."""

    transient = True

    code = "US-5033"
    template = "the execution of the DDL of lock {lock} was begun and has not ended"
    hint = "let it end first (`unshard run`, or the task execute_ddl); if the target refuses it, give the order then"


@dataclass(eq=False)
class NotInGroup(OrderError):
    """An order names a shard that the group of the lock does not have."""

    shard: str
    group: str

    code = "US-5034"
    template = "lock {lock} has no shard {shard}"
    hint = "its shards are: {group}"


@dataclass(eq=False)
class NothingToReplace(OrderError):
    """The shard whose DDL is to be replaced has not reached one."""

    shard: str

    code = "US-5035"
    template = "{shard} has no DDL that waits, so lock {lock} can replace none"
    hint = "replace the DDL of all shards (without --shard), or wait until the shard has reached its DDL"


@dataclass(eq=False)
class NothingRefused(OrderError):
    """The target is to be asked again about a DDL that it has not refused."""

    why: str

    code = "US-5037"
    template = "lock {lock} does not wait for another answer of the target: {why}"
    hint = "`unshard locks` tells what it waits for and what helps"


@dataclass(eq=False)
class ReplacementRefused(OrderError):
    """A statement that should take the place of a DDL is none that could."""

    text: str
    why: str

    code = "US-5036"
    template = "lock {lock}: the DDL cannot be replaced by `{text}`: {why}"
    hint = "give ALTER TABLE, CREATE INDEX or DROP INDEX statements on the target table or on one of its shards"
