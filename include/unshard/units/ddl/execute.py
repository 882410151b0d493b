"""Execute a DDL on the target exactly once, and create target tables. Runs in the driver.

Before anything else the caller records the target table's structure (`before`) and the structure that the DDL produces
(`wanted`). `intended` returns both. Every retry passes the same two.

| process dies | next attempt |
|---|---|
| before the DDL reaches the target | the target has `before`: the DDL is executed |
| while the target executes it | its session holds the guard: the next attempt waits, then reads the structure again |
| after the DDL, before the caller records it | the target has `wanted`: nothing is executed |
| … and then someone alters the table | the target has neither: nothing is executed, an operator is asked |

A target such as TiDB takes some statements only in steps of one change each (core.ddl.steps). The lock then executes
the steps like the statements that an operator gives in place of a DDL: each step has its own intent.

| process dies | next attempt |
|---|---|
| before the steps are recorded in the lock | the trial is made again, with the same steps |
| after that, before the first step | the lock has the steps: the first is executed |
| before a step reaches the target | its intent is open, the target has its `before`: it is executed |
| after a step, before the lock records it | the target has the step's `wanted`: it is recorded, the next follows |
| between two steps | the lock counts the completed steps: the next is executed |
| after the last step | as after any other DDL |
| before or after the last write is recorded (adapters.target.fence) | it is recorded, or recorded again |

If the target refuses a step because of its rows, the lock fails, and the earlier steps stay done. A retry continues
with the refused step.

If the target refuses the DDL and has everything that the shards have after it, an operator has altered the target by
hand: nothing is executed.

Both structures are stored with their texts (SHOW CREATE TABLE). The text identifies a DDL that changes only a comment,
a CHECK, partitions or the name of a constraint. Where even the texts are equal (ENGINE=InnoDB, DROP and ADD of the same
column), the DDL is executed again. The result has the same rows, because the rows after the DDL wait until the DDL is
recorded as done.

`OnTarget` executes the statements of optimistic mode, each once. The guard of the target is held from the comparison of
the structure to the end of the statement. So a statement of a process that is given up for dead either has ended before
the next process looks, or is not executed any more.
"""

import contextlib
import hashlib
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pymysql.connections import Connection

from unshard.adapters import serverstate
from unshard.adapters.mysql import (
    REFUSALS,
    assume_session,
    connect,
    create_as_shown,
    errno_of,
    query,
    uncheck_foreign_keys,
)
from unshard.adapters.serverstate import limit_ddl_wait
from unshard.adapters.structures import read_constraints, read_foreign_keys, read_schema, read_schemas
from unshard.adapters.target.fence import NO_SOURCE, Pair, drop_empty_schema, record_ddl
from unshard.adapters.targetddl import DdlTrialTables, TriedTable, create_schema
from unshard.core.ddl.foreignkeys import clauses_of, for_present
from unshard.core.ddl.parsed import DdlKind
from unshard.core.ddl.queue import QueueEntry, WholeChange
from unshard.core.ddl.statement import read, retarget
from unshard.core.ddl.steps import steps
from unshard.core.join.difference import IN_TASK_ZONE
from unshard.core.join.joined import JoinStatement
from unshard.core.join.tables import features
from unshard.core.model import Server, TableId, TableSchema
from unshard.core.relay.segment import Statement
from unshard.core.sql.mode import STRICT
from unshard.core.structures.comparison import has_all_of, missing_columns, shape_differences
from unshard.core.structures.constraintnames import for_table, names_constraints
from unshard.core.structures.createtext import create_text, with_collation
from unshard.core.structures.foreignkeys import ForeignKey, is_indexed, with_foreign_keys
from unshard.core.structures.hiddencolumns import unversioned
from unshard.core.structures.storageclauses import with_transactions
from unshard.errors.ddl import DdlRefused, DdlStillRunning, EffectRefused, TargetChanged, TargetLacksColumns

if TYPE_CHECKING:
    from unshard.adapters.meta import Meta

log = logging.getLogger(__name__)

GUARD_SECONDS = 30
LOCK_WAIT_SECONDS = 120


def intent(server: Server, meta_schema: str, target: TableId, entry: QueueEntry) -> tuple[TableSchema, TriedTable]:
    """Return the target's current structure and the trial of the DDL on it; raises EffectRefused."""
    with contextlib.closing(connect(server, "target")) as connection:
        before = read_schema(connection, target)
        statement = replace(entry.statement, text=with_present_keys(connection, target, entry))
    return before, DdlTrialTables(server, meta_schema).tried(before, statement, target, target)


def intended(meta: "Meta", server: Server, lock: str, entry: QueueEntry) -> QueueEntry:
    """Return the entry with the target's structures in place of the shard's; the same after every crash.

    The target may have its own columns and indexes, so the trial is made on the target's structure. It is made once and
    its result is stored in the open intent, because it is not possible after the DDL. If the target takes the DDL only
    in steps, the returned entry has them as its replacement and is otherwise unchanged.
    """
    if entry.whole is not WholeChange.NONE:
        return entry
    for execution in meta.locks.executions(lock):
        if execution.done_at is None:
            return replace(entry, before=execution.before, after=execution.wanted)
    if is_create(entry):
        made = DdlTrialTables(server, meta.schema).effect(
            None, replace(entry.statement, text=entry.routed), entry.target
        )
        before = wanted = made
    else:
        try:
            before, tried = intent(server, meta.schema, entry.target, entry)
        except EffectRefused:
            present = _with_its_result(meta, server, entry)
            if present is None:
                raise
            digest = meta.structures.put(present)
            return replace(entry, before=digest, after=digest, whole=WholeChange.CREATE)
        if tried.is_split:
            return replace(entry, replacement=steps(entry.routed, entry.statement.sql_mode))
        wanted = tried.after
    return replace(entry, before=meta.structures.put(before), after=meta.structures.put(wanted))


def _with_its_result(meta: "Meta", server: Server, entry: QueueEntry) -> TableSchema | None:
    """Return the target's structure if it has what the shards have after the DDL: someone has altered it by hand."""
    if not entry.after:
        return None
    wanted = meta.structures.get({entry.after})[entry.after]
    with contextlib.closing(connect(server, "target")) as connection:
        present = read_schema(connection, entry.target)
    return present if has_all_of(present, wanted) else None


def execute_ddl(server: Server, target: TableId, entry: QueueEntry, before: TableSchema, wanted: TableSchema) -> bool:
    """Execute the DDL of a queue entry unless the target has the wanted structure; return whether it was executed."""
    if is_create(entry):
        return _create(server, target, wanted)
    with contextlib.closing(connect(server, "target", database=target.schema)) as connection:
        with target_guard(connection, target):
            present = read_schema(connection, target)
            if before.digest != wanted.digest and _is_as(wanted, present, before, wanted):
                log.info("ddl already present table=%s shard=%s", target, entry.shard)
                return False
            if not _is_as(before, present, before, wanted):
                changes = "; ".join(shape_differences(before, present)) or f"it is now {present.create_sql}"
                raise TargetChanged(str(target), changes, entry.routed)
            _run(connection, target, replace(entry, routed=with_present_keys(connection, target, entry)))
            with contextlib.closing(connect(server, "target")) as other:
                found = read_schema(other, target)  # this session uses our settings, not the source's
            if found.shape != wanted.shape:
                raise TargetChanged(str(target), "; ".join(shape_differences(wanted, found)), entry.routed)
    return True


def drop_schema(meta: "Meta", connection: Connection, target: TableId, entry: QueueEntry) -> None:
    """Drop the empty schema of a DROP DATABASE, unless the source has created the schema again since."""
    ddl = read(entry.statement.text, entry.statement.sql_mode, entry.statement.schema)
    if ddl.kind is not DdlKind.DROP_DATABASE:
        return
    changes = [each for each in meta.schema_defaults.of(entry.shard.source) if each.schema == ddl.database]
    if not changes or changes[-1].default is None:
        drop_empty_schema(connection, meta.schema, meta.task, target.schema)


def record_write(meta: "Meta", server: Server, target: TableId) -> None:
    """Record in both schemas that the target has a DDL, before the meta tables say so."""
    record_ddl(server, Pair(meta.schema, meta.task, NO_SOURCE, target))


def is_whole(entry: QueueEntry) -> bool:
    """Whether the entry is a statement about a whole one-to-one target, which has no structures to compare."""
    return entry.whole not in (WholeChange.NONE, WholeChange.CREATE)


def execute_whole(
    server: Server,
    target: TableId,
    entry: QueueEntry,
    is_open: Callable[[], bool],
    drop_schema: Callable[[Connection], None] = lambda _: None,
) -> bool:
    """Execute a statement about a whole target table while its intent is open; return whether it was executed.

    core.ddl.onetoone says why it has the effect of one execution. The guard is taken first, so no other process can
    resolve the lock between the question `is_open` and the statement. `drop_schema` lets the schema go with its last
    table.
    """
    with contextlib.closing(connect(server, "target")) as connection, target_guard(connection, target):
        if not is_open():
            log.info("statement done by another process table=%s shard=%s", target, entry.shard)
            return False
        if entry.whole is WholeChange.RENAME:
            ((_, new),) = read(entry.routed, entry.statement.sql_mode, "").renames
            create_schema(connection, new.schema, if_not_exists=True)
            if [*read_schemas(connection, [target, new])] == [new]:
                return False
        _run(connection, target, entry)
        drop_schema(connection)
    return True


def is_create(entry: QueueEntry) -> bool:
    """Whether the entry states the structure of a shard, which the target must have; it alters nothing."""
    if entry.whole is WholeChange.CREATE:
        return True
    return read(entry.routed, entry.statement.sql_mode, "").kind is DdlKind.CREATE_TABLE


def _create(server: Server, target: TableId, like: TableSchema) -> bool:
    """Create the target table if the shard is the first of its group; an existing table needs the shard's columns."""
    with contextlib.closing(connect(server, "target")) as connection, target_guard(connection, target):
        existed = target in read_schemas(connection, [target])
        create_target(connection, target, like)
    return not existed


def create_target(
    connection: Connection, target: TableId, like: TableSchema, keys: Sequence[ForeignKey] = ()
) -> TableSchema:
    """Create the target table with a shard's structure unless it exists; return its structure; idempotent.

    A new table gets the foreign keys, even if their parents do not exist yet. Those without an index are left out: a
    later DDL adds them.

    An existing table may have its own columns and indexes, but must have all columns of the shard; raises
    TargetLacksColumns.
    """
    if target not in read_schemas(connection, [target]):  # it may have a text unknown here
        create_schema(connection, target.schema, if_not_exists=True)
        text = create_text(target_text(like), target, if_not_exists=True)
        if keys := [key for key in keys if is_indexed(key, like)]:
            uncheck_foreign_keys(connection)
        create_as_shown(connection, with_own_names(connection, target, with_foreign_keys(text, keys)))
    found = read_schema(connection, target)
    if missing := missing_columns(like, found):
        raise TargetLacksColumns(str(target), ", ".join(missing))
    return found


def target_text(like: TableSchema) -> str:
    """Return the CREATE TABLE of a target that is created like a shard, with the placeholder as its name.

    The target has transactions, also if the engine of the shard has none.
    """
    return with_collation(with_transactions(unversioned(like.create_sql)), like.collation)


def _is_as(one: TableSchema, present: TableSchema, before: TableSchema, wanted: TableSchema) -> bool:
    """Whether the target has the structure `one`; the text decides where the DDL changes nothing else."""
    if before.shape != wanted.shape:
        return present.shape == one.shape
    return present.digest == one.digest


def with_present_keys(connection: Connection, target: TableId, entry: QueueEntry) -> str:
    """Return the DDL with the names that constraints have in the target, and without work on foreign keys that is done.

    That is a foreign key that it adds and the target has, or that it drops and the target lacks. A target that a window
    creates gets the foreign keys that its shard has at that time, which may be later ones.
    """
    mode = entry.statement.sql_mode
    text = with_own_names(connection, target, entry.routed, mode)
    ddl = read(text, mode, target.schema)
    if not clauses_of(ddl, mode):
        return text
    return retarget(for_present(ddl, mode, target, read_foreign_keys(connection, [target])), {})


def with_own_names(connection: Connection, target: TableId, text: str, sql_mode: int = 0) -> str:
    """Return a statement with the names that the constraints of a target table have in it, or get there."""
    if not names_constraints(text, sql_mode):
        return text
    return for_table(text, sql_mode, target.name, read_constraints(connection, target))


def _run(connection: Connection, target: TableId, entry: QueueEntry) -> None:
    run_statement(connection, target, replace(entry.statement, text=entry.routed))


def run_statement(connection: Connection, target: TableId, statement: Statement) -> None:
    """Execute a statement on the target in its own session settings; raises DdlRefused with the target's message."""
    limit_ddl_wait(connection, LOCK_WAIT_SECONDS)
    try:
        assume_session(connection, statement)
        query(connection, statement.text)
    except REFUSALS as error:
        if error.transient:
            raise
        raise DdlRefused(str(target), errno_of(error), error.server_message, statement.text) from error


@contextlib.contextmanager
def target_guard(connection: Connection, target: TableId, seconds: int | None = None) -> Iterator[None]:
    """Hold the target table's guard for the block; a disconnected session keeps it until its DDL has ended."""
    name, seconds = _guard_of(target), GUARD_SECONDS if seconds is None else seconds
    if not serverstate.take_lock(connection, name, seconds):
        raise DdlStillRunning(str(target), seconds)
    try:
        yield
    finally:
        if connection.open:
            serverstate.release_lock(connection, name)


def guarded(connection: Connection, targets: Sequence[TableId]) -> tuple[TableId, ...]:
    """Return the target tables whose guard a session holds, without waiting and without blocking that session."""
    held = serverstate.are_locks_held(connection, [*map(_guard_of, targets)])
    return tuple(target for target, is_held in zip(targets, held, strict=True) if is_held)


def _guard_of(target: TableId) -> str:
    return "unshard_" + hashlib.sha256(str(target).encode()).hexdigest()[:32]


class OnTarget:
    """Reads and changes target tables on their server."""

    def __init__(self, server: Server, meta_schema: str, time_zone: str = "+00:00", task: str = "") -> None:
        """Keep the target; it converts times in `time_zone`, the task's. Only `execute` needs the task."""
        self._server, self._time_zone = server, time_zone
        self._place = meta_schema, task, NO_SOURCE
        self._trials = DdlTrialTables(server, meta_schema)
        self._features: frozenset[str] | None = None

    def present(self, target: TableId) -> TableSchema | None:
        with contextlib.closing(connect(self._server, "target")) as connection:
            return read_schemas(connection, [target]).get(target)

    @contextlib.contextmanager
    def at_rest(self, target: TableId) -> Iterator[TableSchema]:
        """Return the structure after the DDL of another session has ended; none begins inside the block."""
        with contextlib.closing(connect(self._server, "target")) as connection, target_guard(connection, target):
            yield read_schema(connection, target)

    def own(self, entry: QueueEntry, before: TableSchema, *, in_steps: bool = False) -> TableSchema | None:
        """Return the structure after a shard's own statement; None if the target rejects it.

        `in_steps`: also if the target takes it only one change after another.
        """
        with contextlib.closing(connect(self._server, "target")) as connection:
            text = with_own_names(connection, entry.target, entry.routed, entry.statement.sql_mode)
        statement = replace(entry.statement, text=text)
        try:
            tried = self._trials.tried(before, statement, entry.target, entry.target)
        except EffectRefused:
            return None
        is_usable = not entry.replacement and (in_steps or not tried.is_split)
        return tried.after if is_usable else None

    def tried(self, target: TableId, text: str, before: TableSchema) -> TableSchema | None:
        """Return the structure after a statement; None if the target takes it only in steps; raises EffectRefused."""
        with contextlib.closing(connect(self._server, "target")) as connection:
            text = with_own_names(connection, target, text)
        tried = self._trials.tried(before, _own_statement(text), target, target)
        return None if tried.is_split else tried.after

    def lacks(self, asked: frozenset[str]) -> frozenset[str]:
        """Return those of these features that the server leaves out (core.join.tables.FEATURES)."""
        if self._features is None:
            self._features = features(self._trials.with_features().create_sql)
        return asked - self._features

    def execute(
        self, target: TableId, statement: JoinStatement, entry: QueueEntry | None, is_open: Callable[[], bool]
    ) -> bool:
        """Execute a statement unless the target has it; return False if its change is not open any more."""
        connection = connect(self._server, "target", database=target.schema)
        with contextlib.closing(connection), target_guard(connection, target):
            if not is_open():
                return False
            found = read_schema(connection, target)
            if statement.is_after(found):
                self._record(target)
                return True
            if not statement.is_before(found):
                raise TargetChanged(str(target), f"it is now {found.create_sql}", statement.text)
            text = with_own_names(connection, target, statement.text)
            run = _own_statement(text, self._time_zone if IN_TASK_ZONE in text else "+00:00")
            if entry is not None:
                run = replace(entry.statement, text=with_present_keys(connection, target, entry))
            run_statement(connection, target, run)
            self._record(target)
        return True

    def _record(self, target: TableId) -> None:
        record_ddl(self._server, Pair(*self._place, target))


def _own_statement(text: str, time_zone: str = "+00:00") -> Statement:
    """Return a statement of unshard: in a strict mode, so that it changes no value without an error."""
    return Statement(text, "", STRICT, "utf8mb4", 0, time_zone)
