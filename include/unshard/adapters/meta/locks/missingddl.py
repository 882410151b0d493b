"""DDL that the target has and that rows of a shard lack: the DDL of pending skips, and resolved DDL after held rows.

The history says what was executed for a lock: nothing if it was skipped, other statements if it was replaced.
"""

from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, delete, null, select, union_all

from unshard.adapters.meta import tables
from unshard.adapters.meta.locks.pendingskips import PENDING_SKIP, add_pending_skip, skips_of_new_shard
from unshard.adapters.meta.rows import AT_ONCE, is_one_of, read, shard_of
from unshard.adapters.meta.shards.structures import read_shards
from unshard.core.ddl.queue import EntryState, QueueEntry
from unshard.core.ddl.sessioneffects import ExecutedDdl
from unshard.core.ddl.shardgroup import last_index
from unshard.core.model import Shard, TableId
from unshard.core.window.plan import StructureChange

DDL_LOCK_MEMBER, SHARD_DDL, DDL_HISTORY, HELD_ROWS, DDL_LOCK = (
    tables.ddl_lock_member,
    tables.shard_ddl,
    tables.ddl_history,
    tables.held_rows,
    tables.ddl_lock,
)
HAD = ("executed", "present")
Locks = tuple[str, ...]

Behind = Mapping[tuple[Shard, int | None], tuple[ExecutedDdl, ...]]


def read_missing_ddl(
    connection: Connection, task: str, shards: Collection[Shard], changes: Iterable[StructureChange] = ()
) -> Behind:
    """Return the statements, oldest first, by shard and number of held rows; None: rows from the binlog.

    For a shard that joins by one of `changes`, the pending skips that the window's commit will add are included.
    """
    pending_skips, passed = _owed_and_passed(connection, task, shards)
    for change in changes:
        if (
            change.joins and change.shard not in pending_skips
        ):  # otherwise the window also has rows of the shard that had the name before
            inherited = pending_skips.get(change.peer, frozenset()) if change.peer else frozenset()
            pending_skips[change.shard] = inherited | set(skips_of_new_shard(connection, task, change))
    if not pending_skips and not passed:
        return {}
    ran = _ran(connection, task)
    found: dict[tuple[Shard, int | None], tuple[ExecutedDdl, ...]] = {}
    numbers = _held_numbers(connection, task, pending_skips.keys() | passed.keys())
    for shard in pending_skips.keys() | passed.keys():
        mine = pending_skips.get(shard, frozenset())
        found[shard, None] = _of(ran, mine)
        for seq in numbers.get(shard, ()):
            found[shard, seq] = _of(ran, mine | {lock for number, lock in passed.get(shard, ()) if number > seq})
    return {rows: statements for rows, statements in found.items() if statements}


def locks_behind(connection: Connection, task: str, target: TableId, structure: str) -> Locks:
    """Return the locks whose DDL a new shard of that structure has not run.

    The shard is placed by the structures that the group's shards had before and after each lock.
    """
    where = DDL_LOCK.c.task == task, *_is(DDL_LOCK, target), DDL_LOCK.c.outcome.in_(HAD)
    rows = connection.execute(
        select(DDL_LOCK.c.lock_id, DDL_LOCK.c.entry).where(*where).order_by(DDL_LOCK.c.number)
    ).all()
    entries = [read(QueueEntry, row.entry, f"the DDL of lock {row.lock_id}") for row in rows]
    if not entries:
        return ()
    stands = last_index([entries[0].before, *(entry.after for entry in entries)], structure)
    return () if stands is None else tuple(row.lock_id for row in rows[stands:])


def ran_by(connection: Connection, task: str, locks: Collection[str]) -> tuple[ExecutedDdl, ...]:
    """Return the statements that were executed for these locks, oldest first."""
    return _of(_ran(connection, task), locks) if locks else ()


def add_late_skip(connection: Connection, task: str, source: str) -> None:
    """Add pending skips for the DDL that the group has had without the shards of a new source, after its snapshot."""
    connection.execute(
        delete(DDL_LOCK_MEMBER).where(
            DDL_LOCK_MEMBER.c.task == task, DDL_LOCK_MEMBER.c.source == source, DDL_LOCK_MEMBER.c.state == PENDING_SKIP
        )
    )
    for state in read_shards(connection, task, source):
        add_pending_skip(
            connection, task, (state.shard,), locks_behind(connection, task, state.target, state.structure)
        )


def _is(table: Any, target: TableId) -> tuple[Any, Any]:
    return table.c.target_schema == target.schema, table.c.target_table == target.name


def _of(ran: list[tuple[str, ExecutedDdl]], locks: Collection[str]) -> tuple[ExecutedDdl, ...]:
    return tuple(statement for lock, statement in ran if lock in locks)


def _owed_and_passed(
    connection: Connection, task: str, shards: Collection[Shard]
) -> tuple[dict[Shard, frozenset[str]], dict[Shard, list[tuple[int, str]]]]:
    """Read the pending skips of each shard and the resolved DDL after its held rows, in one statement."""
    pending_skips: dict[Shard, frozenset[str]] = {}
    passed: dict[Shard, list[tuple[int, str]]] = {}
    for row in connection.execute(_both(task, frozenset(shards))):
        if (shard := shard_of(row)) not in shards:
            continue
        if row.seq is None:
            pending_skips[shard] = pending_skips.get(shard, frozenset()) | {row.lock_id}
        else:
            passed.setdefault(shard, []).append((row.seq, row.lock_id))
    return pending_skips, passed


@lru_cache(maxsize=64)
def _both(task: str, shards: frozenset[Shard]) -> Any:
    """Return the statement; it is kept, because the windows of a source have the same shards again and again."""
    return union_all(_passed(task, shards), _pending_skips(task, shards))


def _pending_skips(task: str, shards: Collection[Shard]) -> Any:
    key = (
        DDL_LOCK_MEMBER.c.source,
        DDL_LOCK_MEMBER.c.shard_schema,
        DDL_LOCK_MEMBER.c.shard_table,
        null().label("seq"),
        DDL_LOCK_MEMBER.c.lock_id,
    )
    return select(*key).where(
        DDL_LOCK_MEMBER.c.task == task, DDL_LOCK_MEMBER.c.state == PENDING_SKIP, _are(DDL_LOCK_MEMBER, shards)
    )


def _passed(task: str, shards: Collection[Shard]) -> Any:
    """Select resolved DDL after held rows: a skip may be resolved while older rows still wait."""
    both = (
        HELD_ROWS.c.task == SHARD_DDL.c.task,
        HELD_ROWS.c.source == SHARD_DDL.c.source,
        HELD_ROWS.c.shard_schema == SHARD_DDL.c.shard_schema,
        HELD_ROWS.c.shard_table == SHARD_DDL.c.shard_table,
        HELD_ROWS.c.seq < SHARD_DDL.c.seq,
    )
    mine = (
        SHARD_DDL.c.task == task,
        SHARD_DDL.c.state == EntryState.RESOLVED.value,
        SHARD_DDL.c.lock_id.is_not(None),
        _are(SHARD_DDL, shards),
    )
    key = SHARD_DDL.c.source, SHARD_DDL.c.shard_schema, SHARD_DDL.c.shard_table, SHARD_DDL.c.seq, SHARD_DDL.c.lock_id
    return select(*key).where(*mine, select(HELD_ROWS.c.seq).where(*both).exists())


def _held_numbers(connection: Connection, task: str, shards: Collection[Shard]) -> dict[Shard, set[int]]:
    key = HELD_ROWS.c.source, HELD_ROWS.c.shard_schema, HELD_ROWS.c.shard_table, HELD_ROWS.c.seq
    found: dict[Shard, set[int]] = {}
    query: Any = select(*key).where(HELD_ROWS.c.task == task, _are(HELD_ROWS, shards)).distinct()
    for row in connection.execute(query):
        found.setdefault(shard_of(row), set()).add(row.seq)
    return found


def _are(table: Any, shards: Collection[Shard]) -> Any:
    """Select these shards by name, or by source if one statement cannot name all of them."""
    return is_one_of(table, shards) if len(shards) <= AT_ONCE else table.c.source.in_({s.source for s in shards})


def _ran(connection: Connection, task: str) -> list[tuple[str, ExecutedDdl]]:
    query = (
        select(DDL_HISTORY.c.lock_id, DDL_HISTORY.c.ddl, DDL_HISTORY.c.sql_mode)
        .where(DDL_HISTORY.c.task == task, DDL_HISTORY.c.outcome.in_(HAD))
        .order_by(DDL_HISTORY.c.id)
    )
    return [(row.lock_id, ExecutedDdl(row.ddl, row.sql_mode)) for row in connection.execute(query)]
