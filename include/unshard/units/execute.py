"""Runs a DDL on the target once, however often it is asked to, and makes target tables.

The one who asks has written down, before anything else, the target table's structure (`before`) and the one
that the DDL leads to (`wanted`), as `intended` gave them; both come again with every retry.

| died | what happens next time |
|---|---|
| before the DDL reached the target | the target has `before`: it is executed |
| while the target works at it | its session holds the guard: the next one waits, then looks again |
| after it, before the caller noted it | the target has `wanted`: nothing is executed |
| … and then someone altered the table | it has neither: nothing is executed, an operator is asked |

A target such as TiDB takes some statements only in steps of one change each (core.ddlsteps). The lock then executes
the steps like the statements that an operator gives in place of a DDL: each with an intent of its own.

| died | what happens next time |
|---|---|
| before the steps are noted in the lock | the trial is made again, with the same steps |
| after that, before the first step | the lock has the steps: the first is executed |
| before a step reached the target | its intent is open, the target has its `before`: it is executed |
| after a step, before the lock noted it | the target has the step's `wanted`: the step is noted, the next follows |
| between two steps | the lock counts the steps that are done: the next is executed |
| after the last step | as after any other DDL |

If the target refuses a step because of its rows, the lock is failed, and the steps before it stay done. Another try
goes on with the refused step.

Both are kept with their texts (SHOW CREATE TABLE): a DDL that changes nothing but a comment, a CHECK, partitions
or the name of a constraint is told by those. Where even the texts are the same (ENGINE=InnoDB, DROP and ADD of
the same column) it is executed again, which ends in the same rows: the rows behind it wait until it is noted
as done.
"""

import contextlib
import hashlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Protocol

from pymysql.connections import Connection

from unshard.adapters.meta.locks import Execution
from unshard.adapters.meta.rows import in_portions
from unshard.adapters.mysql import assume_session, connect, create_as_shown, identifier, query
from unshard.adapters.shadow import ShadowTables, Tried
from unshard.adapters.structures import read_schema, read_schemas
from unshard.core.ddl import DdlKind, read
from unshard.core.ddlcreate import create_text, with_collation
from unshard.core.ddlsteps import steps
from unshard.core.difference import differences, missing_columns
from unshard.core.model import Server, TableId, TableSchema
from unshard.core.versioning import unversioned
from unshard.core.window import QueueEntry
from unshard.errors.ddl import DdlRefused, DdlStillRunning, TargetChanged, TargetLacksColumns
from unshard.errors.source import StatementRefused, TableMissing

log = logging.getLogger(__name__)

GUARD_SECONDS = 30
LOCK_WAIT_SECONDS = 120


def intent(server: Server, meta_schema: str, target: TableId, entry: QueueEntry) -> tuple[TableSchema, Tried]:
    """Return the target's present structure and what the DDL makes of it; raises EffectRefused."""
    with contextlib.closing(connect(server, "target")) as connection:
        before = read_schema(connection, target)
    statement = replace(entry.statement, text=entry.routed)
    return before, ShadowTables(server, meta_schema).tried(before, statement, target, target)


class History(Protocol):
    """What a lock has tried."""

    def executions(self, lock: str) -> Sequence[Execution]:
        """Return the executions of a lock; the open one, if any, is an intent."""


class Structures(Protocol):
    """Keeps structures by digest."""

    def put(self, schema: TableSchema) -> str:
        """Store a structure and return its digest."""


class Intents(Protocol):
    """The part of the meta store that keeps intents."""

    @property
    def schema(self) -> str:
        """Return the meta schema."""

    @property
    def structures(self) -> Structures:
        """Return the structures."""

    @property
    def locks(self) -> History:
        """Return the history of locks."""


def intended(meta: Intents, server: Server, lock: str, entry: QueueEntry) -> QueueEntry:
    """Return the entry with the target's structures in place of the shard's; the same after every death.

    The target may have columns and indexes of its own, so what the DDL makes of it is asked once and kept
    in the open intent: behind the DDL it could not be found out any more. If the target takes the DDL only in steps,
    the entry is returned with these as its replacement, and nothing else has changed.
    """
    for execution in meta.locks.executions(lock):
        if execution.done_at is None:
            return replace(entry, before=execution.before, after=execution.wanted)
    if is_create(entry):
        made = ShadowTables(server, meta.schema).effect(None, replace(entry.statement, text=entry.routed), entry.target)
        before = wanted = made
    else:
        before, tried = intent(server, meta.schema, entry.target, entry)
        if tried.is_split:
            return replace(entry, replacement=steps(entry.routed, entry.statement.sql_mode))
        wanted = tried.after
    return replace(entry, before=meta.structures.put(before), after=meta.structures.put(wanted))


def execute_ddl(server: Server, target: TableId, entry: QueueEntry, before: TableSchema, wanted: TableSchema) -> bool:
    """Execute the DDL of a queue entry unless the target has the wanted structure; whether it was executed."""
    if is_create(entry):
        return _create(server, target, wanted)
    with contextlib.closing(connect(server, "target", database=target.schema)) as connection:
        with target_guard(connection, target):
            present = read_schema(connection, target)
            if before.digest != wanted.digest and _is_as(wanted, present, before, wanted):
                log.info("ddl is there already table=%s shard=%s", target, entry.shard)
                return False
            if not _is_as(before, present, before, wanted):
                raise TargetChanged(str(target), _changes(before, present), entry.routed)
            _run(connection, target, entry)
            with contextlib.closing(connect(server, "target")) as other:
                found = read_schema(other, target)  # that session reads as ours do, not as the source's did
            if found.shape != wanted.shape:
                raise TargetChanged(str(target), "; ".join(differences(wanted, found)), entry.routed)
    return True


def is_create(entry: QueueEntry) -> bool:
    """Whether an operator says by it what a shard is like that no shard of the group is like: nothing is altered."""
    return entry.is_alone and read(entry.routed, entry.statement.sql_mode, "").kind is DdlKind.CREATE_TABLE


def _create(server: Server, target: TableId, like: TableSchema) -> bool:
    """Make the target table if the shard is the first of its group; a table that is there needs the shard's columns."""
    with contextlib.closing(connect(server, "target")) as connection, target_guard(connection, target):
        existed = target in read_schemas(connection, [target])
        create_target(connection, target, like)
    return not existed


def create_target(connection: Connection, target: TableId, like: TableSchema) -> TableSchema:
    """Make the target table of a shard's structure unless there is one, and return what it has; idempotent.

    A table that is there already may have columns and indexes of its own, but must have all of the shard's
    columns; raises TargetLacksColumns.
    """
    if target not in read_schemas(connection, [target]):  # else the server may not even know what is in the text
        query(connection, f"CREATE DATABASE IF NOT EXISTS {identifier(target.schema)}")
        create_as_shown(connection, create_text(target_text(like), target, if_not_exists=True))
    found = read_schema(connection, target)
    if missing := missing_columns(like, found):
        raise TargetLacksColumns(str(target), ", ".join(missing))
    return found


def target_text(like: TableSchema) -> str:
    """Return the CREATE TABLE of a target that is made like a shard, with the placeholder as its name."""
    return with_collation(unversioned(like.create_sql), like.collation)


def _is_as(one: TableSchema, present: TableSchema, before: TableSchema, wanted: TableSchema) -> bool:
    """Whether the target has this structure; the text decides where the DDL changes nothing else."""
    if before.shape != wanted.shape:
        return present.shape == one.shape
    return present.digest == one.digest


def _changes(before: TableSchema, present: TableSchema) -> str:
    found = differences(before, present)
    return "; ".join(found) if found else f"it is now {present.create_sql}"


def _run(connection: Connection, target: TableId, entry: QueueEntry) -> None:
    query(connection, "SET SESSION lock_wait_timeout = %s", (LOCK_WAIT_SECONDS,))
    try:
        assume_session(connection, entry.statement)
        query(connection, entry.routed)
    except (StatementRefused, TableMissing) as error:
        errno = error.errno if isinstance(error, StatementRefused) else 1146
        raise DdlRefused(str(target), errno, error.words, entry.routed) from error


@contextlib.contextmanager
def target_guard(connection: Connection, target: TableId, seconds: int | None = None) -> Iterator[None]:
    """Hold the target table's guard for the block; a session that is cut off keeps it until its DDL has ended."""
    name, seconds = _guard_of(target), GUARD_SECONDS if seconds is None else seconds
    ((taken,),) = query(connection, "SELECT GET_LOCK(%s, %s)", (name, seconds))
    if not taken:
        raise DdlStillRunning(str(target), seconds)
    try:
        yield
    finally:
        if connection.open:
            query(connection, "SELECT RELEASE_LOCK(%s)", (name,))


def guarded(connection: Connection, targets: Sequence[TableId]) -> tuple[TableId, ...]:
    """Return the target tables whose guard somebody holds, without waiting or holding up anybody."""
    found: list[TableId] = []
    for some in in_portions(targets):
        holders = query(connection, f"SELECT {', '.join(['IS_USED_LOCK(%s)'] * len(some))}", [*map(_guard_of, some)])
        found += (target for target, holder in zip(some, holders[0], strict=True) if holder is not None)
    return tuple(found)


def _guard_of(target: TableId) -> str:
    return "unshard_" + hashlib.sha256(str(target).encode()).hexdigest()[:32]
