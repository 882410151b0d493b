"""What the target has had and the rows of a shard have not: the DDL of locks that a shard owes a skip, and of locks
that resolved DDL which its held rows still stand before.

The history says what was executed for a lock, whatever its shards brought: nothing for one that was skipped, other
statements for one that was replaced.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from sqlalchemy import Connection, delete, null, select, union_all

from unshard.adapters.meta import tables
from unshard.adapters.meta.debts import OWED, debts_of_newcomer, owe
from unshard.adapters.meta.rows import AT_ONCE, is_one_of, read, shard_of
from unshard.adapters.meta.structures import read_shards
from unshard.core.lineage import Ran
from unshard.core.model import Shard, TableId
from unshard.core.shardgroup import place
from unshard.core.window import EntryState, QueueEntry, StructureChange

M, Q, H, F, K = (tables.ddl_lock_member, tables.shard_ddl, tables.ddl_history, tables.held_rows,
                 tables.ddl_lock)  # fmt: skip
HAD = ("executed", "present")
Locks = tuple[str, ...]

Behind = Mapping[tuple[Shard, int | None], tuple[Ran, ...]]


def read_behind(connection: Connection, task: str, shards: Collection[Shard],
                changes: Iterable[StructureChange] = ()) -> Behind:  # fmt: skip
    """Return the statements, oldest first, for rows from the binlog (None) and for held ones by their number.

    A shard that joins by one of the changes of the window in hand owes already what the window's commit will record.
    """
    owed, passed = _owed_and_passed(connection, task, shards)
    for change in changes:
        if change.joins and change.shard not in owed:  # else the window has rows of who had the name before, too
            inherited = owed.get(change.peer, frozenset()) if change.peer else frozenset()
            owed[change.shard] = inherited | set(debts_of_newcomer(connection, task, change))
    if not owed and not passed:
        return {}
    ran = _ran(connection, task)
    found: dict[tuple[Shard, int | None], tuple[Ran, ...]] = {}
    numbers = _held_numbers(connection, task, owed.keys() | passed.keys())
    for shard in owed.keys() | passed.keys():
        mine = owed.get(shard, frozenset())
        found[shard, None] = _of(ran, mine)
        for seq in numbers.get(shard, ()):
            found[shard, seq] = _of(ran, mine | {lock for number, lock in passed.get(shard, ()) if number > seq})
    return {rows: statements for rows, statements in found.items() if statements}


def locks_behind(connection: Connection, task: str, target: TableId, structure: str) -> Locks:
    """Return the locks whose DDL a shard of that structure has yet to run; it was never seen before.

    The structures that the group's shards have had before and behind each lock tell where it stands.
    """
    where = K.c.task == task, *_is(K, target), K.c.outcome.in_(HAD)
    rows = connection.execute(select(K.c.lock_id, K.c.entry).where(*where).order_by(K.c.number)).all()
    entries = [read(QueueEntry, row.entry, f"the DDL of lock {row.lock_id}") for row in rows]
    if not entries:
        return ()
    stands = place([entries[0].before, *(entry.after for entry in entries)], structure)
    return () if stands is None else tuple(row.lock_id for row in rows[stands:])


def ran_by(connection: Connection, task: str, locks: Collection[str]) -> tuple[Ran, ...]:
    """Return what was executed for these locks, oldest first."""
    return _of(_ran(connection, task), locks) if locks else ()


def owe_late(connection: Connection, task: str, source: str) -> None:
    """Let the shards of a source that has just been snapshot owe what its group has had without them."""
    connection.execute(delete(M).where(M.c.task == task, M.c.source == source, M.c.state == OWED))
    for state in read_shards(connection, task, source):
        owe(connection, task, (state.shard,), locks_behind(connection, task, state.target, state.structure))


def _is(table: Any, target: TableId) -> tuple[Any, Any]:
    return table.c.target_schema == target.schema, table.c.target_table == target.name


def _of(ran: list[tuple[str, Ran]], locks: Collection[str]) -> tuple[Ran, ...]:
    return tuple(statement for lock, statement in ran if lock in locks)


def _owed_and_passed(
    connection: Connection, task: str, shards: Collection[Shard]
) -> tuple[dict[Shard, frozenset[str]], dict[Shard, list[tuple[int, str]]]]:
    """Read the locks that each shard owes a skip, and the resolved DDL after its held rows, in one statement."""
    owed: dict[Shard, frozenset[str]] = {}
    passed: dict[Shard, list[tuple[int, str]]] = {}
    for row in connection.execute(union_all(_passed(task, shards), _owed(task, shards))):
        if (shard := shard_of(row)) not in shards:
            continue
        if row.seq is None:
            owed[shard] = owed.get(shard, frozenset()) | {row.lock_id}
        else:
            passed.setdefault(shard, []).append((row.seq, row.lock_id))
    return owed, passed


def _owed(task: str, shards: Collection[Shard]) -> Any:
    key = M.c.source, M.c.shard_schema, M.c.shard_table, null().label("seq"), M.c.lock_id
    return select(*key).where(M.c.task == task, M.c.state == OWED, _are(M, shards))


def _passed(task: str, shards: Collection[Shard]) -> Any:
    """Select resolved DDL after held rows: a skip may be settled while older rows still wait."""
    both = (F.c.task == Q.c.task, F.c.source == Q.c.source, F.c.shard_schema == Q.c.shard_schema,
            F.c.shard_table == Q.c.shard_table, F.c.seq < Q.c.seq)  # fmt: skip
    mine = Q.c.task == task, Q.c.state == EntryState.RESOLVED.value, Q.c.lock_id.is_not(None), _are(Q, shards)
    key = Q.c.source, Q.c.shard_schema, Q.c.shard_table, Q.c.seq, Q.c.lock_id
    return select(*key).where(*mine, select(F.c.seq).where(*both).exists())


def _held_numbers(connection: Connection, task: str, shards: Collection[Shard]) -> dict[Shard, set[int]]:
    key = F.c.source, F.c.shard_schema, F.c.shard_table, F.c.seq
    found: dict[Shard, set[int]] = {}
    query: Any = select(*key).where(F.c.task == task, _are(F, shards)).distinct()
    for row in connection.execute(query):
        found.setdefault(shard_of(row), set()).add(row.seq)
    return found


def _are(table: Any, shards: Collection[Shard]) -> Any:
    """Leave other shards to the server while they can be named in one statement."""
    return is_one_of(table, shards) if len(shards) <= AT_ONCE else table.c.source.in_({s.source for s in shards})


def _ran(connection: Connection, task: str) -> list[tuple[str, Ran]]:
    query = select(H.c.lock_id, H.c.ddl, H.c.sql_mode).where(H.c.task == task, H.c.outcome.in_(HAD)).order_by(H.c.id)
    return [(row.lock_id, Ran(row.ddl, row.sql_mode)) for row in connection.execute(query)]
