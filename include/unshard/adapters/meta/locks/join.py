"""Targets in optimistic mode: their groups (core.join.group) and the changes of their tables.

Each step is one transaction. It changes nothing if the version of the target is no longer the one that was read.

| step       | what it stores                                                                                      |
|------------|-----------------------------------------------------------------------------------------------------|
| `begin`    | the group of a new target                                                                           |
| `intend`   | statements before the first is executed, and the ids of their columns                               |
| `advance`  | that the target has a statement: the ids of its columns after it                                    |
| `complete` | the group after the change; the accepted DDLs are resolved, so that windows release the rows after  |
| `fail`     | the message of a target that has rejected a statement                                               |
| `give_up`  | that the rest of a change is decided again                                                          |
| `note_settled` | that shards and target are equal; deletes states of shards that no waiting row needs            |
"""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, delete, exists, func, insert, select, text, update

from unshard.adapters.meta import tables
from unshard.adapters.meta.database import ReadDatabase
from unshard.adapters.meta.parts import ReadingPart, WritingPart
from unshard.adapters.meta.rows import (
    AT_ONCE,
    AnyRow,
    entry_of,
    in_portions,
    is_one_of,
    location_columns,
    location_of,
    matches,
    read,
    shard_columns,
    shard_of,
    target_columns,
    target_of,
)
from unshard.adapters.meta.shards.structures import StructureReader
from unshard.adapters.meta.tasks.actions import record
from unshard.core import codec
from unshard.core.ddl.lockcommands import IssuedCommand
from unshard.core.ddl.queue import EntryState, QueueEntry
from unshard.core.join.changekind import ChangeKind
from unshard.core.join.group import ColumnHistory, Group, Member, Reload, ReloadReason
from unshard.core.join.joined import (
    Accepted,
    Completion,
    JoinedTarget,
    JoinStatement,
    OpenChange,
    ShardStep,
    steps_of,
)
from unshard.core.join.places import JoinedRows, RowIds
from unshard.core.join.planning import needless_states
from unshard.core.model import Shard, TableId

T, C, M, X, Q = tables.join_target, tables.join_column, tables.join_member, tables.join_change, tables.shard_ddl
K = tables.ddl_lock
SHARD_KEY = ("task", "source", "shard_schema", "shard_table")
TARGET_KEY = ("task", "target_schema", "target_table")
FIRST_VERSION = 1
EXECUTED, REFUSED, GIVEN_UP = "executed", "refused", "given up"


class JoinReader(ReadingPart):
    """Reads joined targets."""

    def __init__(self, database: ReadDatabase) -> None:
        super().__init__(database)
        self._structures = StructureReader(database)
        """Keeps the structures that were read."""

    def all(self) -> tuple[JoinedTarget, ...]:
        """Return all joined targets of the task."""
        with self._database.snapshot() as connection:
            rows = connection.execute(select(T).where(T.c.task == self._task)).all()
            return tuple(self._joined(connection, row) for row in rows)

    def targets(self) -> frozenset[TableId]:
        """Return the joined targets."""
        query = select(T.c.target_schema, T.c.target_table).where(T.c.task == self._task)
        with self._database.reading() as connection:
            return frozenset(TableId(*row) for row in connection.execute(query))

    def resting(self) -> Mapping[TableId, str]:
        """Return the joined targets without an open change.

        The text is the hash of the shards with which the target was settled; empty if it is not settled.
        """
        is_open = exists().where(*(X.c[name] == T.c[name] for name in TARGET_KEY), X.c.done_at.is_(None))
        columns = T.c.target_schema, T.c.target_table, T.c.version, T.c.settled_version, T.c.settled_shards
        query: Any = select(*columns).where(T.c.task == self._task, ~is_open)
        with self._database.reading() as connection:
            return {
                target_of(row): row.settled_shards if row.version == row.settled_version else ""
                for row in connection.execute(query)
            }

    def begun(self) -> frozenset[TableId]:
        """Return the joined targets that have not been changed yet, and are not known to equal their shards."""
        columns = T.c.target_schema, T.c.target_table
        is_first = T.c.version == FIRST_VERSION, T.c.settled_version == 0
        with self._database.reading() as connection:
            rows = connection.execute(select(*columns).where(T.c.task == self._task, *is_first))
            return frozenset(TableId(*row) for row in rows)

    def get(self, target: TableId) -> JoinedTarget | None:
        """Return a target with its group; None if it has not joined."""
        with self._database.snapshot() as connection:
            row = connection.execute(select(T).where(self._is(T, target))).one_or_none()
            return self._joined(connection, row) if row else None

    def history(self, target: TableId) -> Mapping[tuple[Shard, int], Member]:
        """Return each shard as it was after each of its accepted DDLs, by the number of the DDL."""
        with self._database.snapshot() as connection:
            return {(shard_of(row), row.seq): member for row, member in self._members(connection, target)}

    def rows(self, target: TableId, shards: Collection[Shard]) -> tuple[JoinedRows, OpenChange | None] | None:
        """Return the ids for rows of these shards, and the open change of the target; None if it has not joined."""
        mine = [self._is(M, target), *([is_one_of(M, shards)] if len(shards) <= AT_ONCE else [])]
        columns = M.c.source, M.c.shard_schema, M.c.shard_table, M.c.seq, M.c.digest, M.c.ids
        members: Any = select(*columns).where(*mine).order_by(M.c.seq)
        with self._database.snapshot() as connection:
            row = connection.execute(select(T.c.version, T.c.names).where(self._is(T, target))).one_or_none()
            if row is None:
                return None
            fills = connection.execute(select(C.c.id, C.c.fill).where(self._is(C, target))).all()
            history: dict[Shard, list[RowIds]] = {}
            for each in connection.execute(members):
                found = history.setdefault(shard_of(each), [])
                found.append(RowIds(each.seq, each.digest, json.loads(each.ids)))
            names = {id: name for name, id in json.loads(row.names).items()}
            fill_of = {each.id: each.fill for each in fills}
            return JoinedRows(row.version, names, fill_of, history), self._change(connection, target)

    def steps(self, target: TableId) -> dict[Shard, list[tuple[datetime, Member]]]:
        """Return each shard after each of its accepted DDLs, oldest first, with the time of the acceptance."""
        found: dict[Shard, list[tuple[datetime, Member]]] = {}
        with self._database.snapshot() as connection:
            for row, member in self._members(connection, target):
                found.setdefault(shard_of(row), []).append((row.accepted_at, member))
        return found

    def resolved(self, shard: Shard, after: int) -> tuple[QueueEntry, ...]:
        """Return the DDLs of a shard after a number that are resolved, oldest first."""
        mine = {"task": self._task, **shard_columns(shard), "state": EntryState.RESOLVED.value}
        query = select(Q).where(matches(Q, mine), Q.c.seq > after).order_by(Q.c.seq)
        with self._database.reading() as connection:
            return tuple(map(entry_of, connection.execute(query)))

    def refused(self, target: TableId) -> frozenset[str]:
        """Return the causes of the contractions that the target has rejected since it was last expanded."""
        mine = self._is(X, target)
        is_expansion = X.c.kind == ChangeKind.EXPAND.value, X.c.outcome == EXECUTED
        newest = select(func.coalesce(func.max(X.c.id), 0)).where(mine, *is_expansion).scalar_subquery()
        is_refused = X.c.kind == ChangeKind.CONTRACT.value, X.c.outcome == REFUSED, X.c.id > newest
        with self._database.reading() as connection:
            return frozenset(connection.scalars(select(X.c.cause).where(mine, *is_refused)))

    def last_error(self, target: TableId, cause: str = "") -> str:
        """Return the message of the newest change if the target has rejected it and it has that cause; else empty."""
        newest = select(X.c.error, X.c.outcome, X.c.cause).where(self._is(X, target)).order_by(X.c.id.desc()).limit(1)
        with self._database.reading() as connection:
            row = connection.execute(newest).one_or_none()
        is_meant = row is not None and row.outcome == REFUSED and cause in ("", row.cause)
        return str(row.error or "") if is_meant and row is not None else ""

    def reload_errors(self, target: TableId) -> Mapping[Shard, str]:
        """Return the shards whose columns cannot be read again without an operator, with the reason."""
        columns = M.c.source, M.c.shard_schema, M.c.shard_table, M.c.reload_error
        query: Any = select(*columns).where(self._is(M, target), M.c.reload_error.is_not(None))
        with self._database.reading() as connection:
            return {shard_of(row): row.reload_error for row in connection.execute(query)}

    def idle_seconds(self, target: TableId) -> float:
        """Return the time since the last DDL of a shard was accepted."""
        newest = select(func.timestampdiff(text("SECOND"), func.max(M.c.accepted_at), tables.NOW))
        with self._database.reading() as connection:
            return float(connection.scalar(newest.where(self._is(M, target))) or 0)

    def version(self, target: TableId) -> int:
        """Return the version of a target; 0 if it has not joined."""
        with self._database.reading() as connection:
            return connection.scalar(select(T.c.version).where(self._is(T, target))) or 0

    def _joined(self, connection: Connection, row: AnyRow) -> JoinedTarget:
        target = target_of(row)
        found = connection.execute(select(C).where(self._is(C, target)).order_by(C.c.id))
        columns = {
            each.id: ColumnHistory(
                tuple(json.loads(each.names)),
                each.fill,
                bool(each.was_common),
                bool(each.is_kept),
                bool(each.is_filled_by_server),
            )
            for each in found
        }
        members, accepted = dict[Shard, Member](), dict[Shard, Accepted]()
        for each, member in self._members(connection, target, is_newest=True):
            members[shard_of(each)] = member
            accepted[shard_of(each)] = Accepted(each.seq, location_of(each, "ddl_"), each.shard_uid)
        names = {id: name for name, id in json.loads(row.names).items()}
        group = Group(members, columns, row.last_id, self._floor(row))
        change = self._change(connection, target)
        return JoinedTarget(target, group, names, row.version, accepted, row.settled_version, change)

    def _floor(self, row: AnyRow) -> Member | None:
        if not row.floor_digest:
            return None
        return Member(self._structures.get({row.floor_digest})[row.floor_digest], json.loads(row.floor_ids))

    def _members(
        self, connection: Connection, target: TableId, *, is_newest: bool = False
    ) -> list[tuple[AnyRow, Member]]:
        """Return the states of the shards, oldest first; `is_newest`: only the newest of each shard."""
        query = select(M).where(self._is(M, target)).order_by(M.c.seq)
        if is_newest:
            other = M.alias("other")
            same = (other.c[name] == M.c[name] for name in SHARD_KEY)
            query = query.where(M.c.seq == select(func.max(other.c.seq)).where(*same).scalar_subquery())
        rows = connection.execute(query).all()
        structures = self._structures.get({row.digest for row in rows})
        return [
            (
                row,
                Member(
                    structures[row.digest],
                    json.loads(row.ids),
                    frozenset(json.loads(row.dropped)),
                    frozenset(Reload(id, ReloadReason(reason), to) for id, reason, to in json.loads(row.reloads)),
                ),
            )
            for row in rows
        ]

    def _change(self, connection: Connection, target: TableId) -> OpenChange | None:
        row = connection.execute(select(X).where(self._is(X, target), X.c.done_at.is_(None))).one_or_none()
        if row is None:
            return None
        statements = read(tuple[JoinStatement, ...], row.statements, f"change {row.id} of {target}")
        return OpenChange(row.id, ChangeKind(row.kind), statements, row.done, row.error or "")

    def _is(self, table: Any, target: TableId) -> Any:
        return matches(table, {"task": self._task, **target_columns(target)})


class Joins(WritingPart, JoinReader):
    """Changes joined targets."""

    def begin(self, joined: JoinedTarget) -> None:
        """Store the group of a new target, unless it has one."""
        row = {
            "version": FIRST_VERSION,
            "settled_version": 0,
            "settled_shards": "",
            "last_id": joined.group.last_id,
            "names": _dumped_names(joined.names),
            **_floor_columns(joined.group),
            "began_at": tables.NOW,
            "changed_at": tables.NOW,
        }
        key = {"task": self._task, **target_columns(joined.target)}
        with self._database.transaction() as connection:
            new = insert(T).prefix_with("IGNORE").values({**key, **row})
            if not connection.execute(new).rowcount:
                return
            self._put_columns(connection, joined.target, joined.group)
            steps = [
                ShardStep(shard, joined.accepted.get(shard, Accepted(0)), member)
                for shard, member in joined.group.members.items()
            ]
            self._put_members(connection, joined.target, steps)

    def intend(
        self, joined: JoinedTarget, group: Group, kind: ChangeKind, cause: str, statements: tuple[JoinStatement, ...]
    ) -> OpenChange | None:
        """Store statements before the first is executed.

        None if the target has changed since it was read, or if a lock is being executed on it. `group` has the ids of
        their columns (core.join.group.intended).
        """
        with self._database.transaction() as connection:
            if not self._is_still(connection, joined) or self._is_executing(connection, joined.target):
                return None
            row = {"task": self._task, **target_columns(joined.target), "kind": kind.value, "cause": cause}
            row |= {"statements": codec.dumps(statements), "done": 0, "started_at": tables.NOW}
            connection.execute(insert(X).values(row))
            self._put_columns(connection, joined.target, group)
            self._raise(connection, joined.target, {"last_id": group.last_id})
            return self._change(connection, joined.target)

    def advance(self, target: TableId, change: OpenChange) -> None:
        """Record that the target has the next statement of a change; idempotent."""
        names = dict(change.statements[change.done].names)
        moved = update(X).where(X.c.task == self._task, X.c.id == change.id, X.c.done == change.done)
        with self._database.transaction() as connection:
            self._lock(connection, target)
            if connection.execute(moved.where(X.c.done_at.is_(None)).values(done=change.done + 1)).rowcount:
                self._raise(connection, target, {"names": json.dumps(names, ensure_ascii=False)})

    def complete(self, joined: JoinedTarget, completion: Completion, order: IssuedCommand | None = None) -> bool:
        """Store the group and resolve the accepted DDLs; False if the target has changed since it was read.

        `order` is the command of a person.
        """
        target = joined.target
        with self._database.transaction() as connection:
            if not self._is_still(connection, joined):
                return False
            self._end_change(connection, target, EXECUTED)
            self._put_columns(connection, target, completion.group)
            for shard in joined.group.members.keys() - completion.group.members.keys():
                connection.execute(delete(M).where(self._is(M, target), matches(M, shard_columns(shard))))
            self._put_members(connection, target, steps_of(joined, completion))
            self._resolve(connection, completion.resolved)
            if order is not None:
                record(connection, self._task, "", order)
            self._raise(
                connection,
                target,
                {
                    "last_id": completion.group.last_id,
                    "names": _dumped_names(completion.names),
                    **_floor_columns(completion.group),
                },
            )
        return True

    def fail(self, target: TableId, change: OpenChange, error: str) -> None:
        """Record that the target has rejected the next statement; the rest of the change is decided again."""
        with self._database.transaction() as connection:
            self._lock(connection, target)
            connection.execute(
                update(X)
                .where(X.c.task == self._task, X.c.id == change.id, X.c.done_at.is_(None))
                .values(error=error, done_at=tables.NOW, outcome=REFUSED)
            )
            self._raise(connection, target, {})

    def give_up(self, target: TableId, change: OpenChange) -> None:
        """End a change whose process has died, unless it has ended: what is left of it is decided again."""
        with self._database.transaction() as connection:
            self._lock(connection, target)
            if self._end_change(connection, target, GIVEN_UP, X.c.id == change.id):
                self._raise(connection, target, {})

    def remove(self, joined: JoinedTarget) -> None:
        """Delete the group of a target, unless the target has changed since it was read; its changes stay."""
        with self._database.transaction() as connection:
            if self._is_still(connection, joined):
                for table in (T, C, M):
                    connection.execute(delete(table).where(self._is(table, joined.target)))

    def note_settled(self, joined: JoinedTarget, shards: str, needed: Mapping[Shard, int]) -> None:
        """Record that shards and target are equal, unless the target has changed since it was read.

        States of a shard that rows after its DDL number `needed` do not need are deleted.
        """
        with self._database.transaction() as connection:
            if not self._is_still(connection, joined):
                return
            settled = update(T).where(self._is(T, joined.target))
            connection.execute(settled.values(settled_version=joined.version, settled_shards=shards))
            self._prune(connection, joined.target, needed)

    def _prune(self, connection: Connection, target: TableId, needed: Mapping[Shard, int]) -> None:
        query = select(M.c.source, M.c.shard_schema, M.c.shard_table, M.c.seq).where(self._is(M, target))
        numbers = defaultdict[Shard, list[int]](list)
        rows: Sequence[Any] = connection.execute(query).all()
        for row in rows:
            numbers[shard_of(row)].append(row.seq)
        for shard, some in numbers.items():
            old = needless_states(some, needed.get(shard, 0))
            if old:
                connection.execute(
                    delete(M).where(self._is(M, target), matches(M, shard_columns(shard)), M.c.seq.in_(old))
                )

    def note_reload(self, target: TableId, shard: Shard, error: str | None) -> None:
        """Record why columns of a shard cannot be read again; None: nothing hinders it."""
        mine = self._is(M, target), matches(M, shard_columns(shard))
        with self._database.transaction() as connection:
            newest = connection.scalar(select(func.max(M.c.seq)).where(*mine))
            connection.execute(update(M).where(*mine, M.c.seq == newest).values(reload_error=error))

    def _is_still(self, connection: Connection, joined: JoinedTarget) -> bool:
        return self._lock(connection, joined.target) == joined.version

    def _is_executing(self, connection: Connection, target: TableId) -> bool:
        """Whether a lock has begun to change the target; `start` of a lock takes the row of the target first, too."""
        begun = self._is(K, target), K.c.started_at.is_not(None), K.c.resolved_at.is_(None)
        return connection.execute(select(K.c.lock_id).where(*begun).with_for_update()).first() is not None

    def _lock(self, connection: Connection, target: TableId) -> int:
        """Lock the target; this waits for the transactions of rows that have compared its version."""
        return connection.scalar(select(T.c.version).where(self._is(T, target)).with_for_update()) or 0

    def _raise(self, connection: Connection, target: TableId, values: dict[str, Any]) -> None:
        changed = {**values, "version": T.c.version + 1, "changed_at": tables.NOW}
        connection.execute(update(T).where(self._is(T, target)).values(changed))

    def _end_change(self, connection: Connection, target: TableId, outcome: str, *which: Any) -> bool:
        is_open = self._is(X, target), X.c.done_at.is_(None), *which
        return bool(connection.execute(update(X).where(*is_open).values(done_at=tables.NOW, outcome=outcome)).rowcount)

    def _put_columns(self, connection: Connection, target: TableId, group: Group) -> None:
        connection.execute(delete(C).where(self._is(C, target)))
        key = {"task": self._task, **target_columns(target)}
        rows = [
            {
                **key,
                "id": id,
                "names": _dumped(column.names),
                "fill": column.fill,
                "was_common": column.was_common,
                "is_kept": column.is_kept,
                "is_filled_by_server": column.is_filled_by_server,
            }
            for id, column in group.columns.items()
        ]
        for some in in_portions(rows):
            connection.execute(insert(C).values(list(some)))

    def _put_members(self, connection: Connection, target: TableId, steps: Iterable[ShardStep]) -> None:
        by_key = defaultdict[Shard, dict[int, ShardStep]](dict)
        for step in steps:
            by_key[step.shard][step.accepted.seq] = step
        for shard, some in by_key.items():
            mine = {"task": self._task, **shard_columns(shard)}
            same = select(M.c.seq, M.c.shard_uid, M.c.accepted_at).where(matches(M, mine), M.c.seq.in_(some))
            accepted_at = {(row.seq, row.shard_uid): row.accepted_at for row in connection.execute(same)}
            connection.execute(delete(M).where(matches(M, mine), M.c.seq.in_(some)))
            other = {step.accepted.shard_uid for step in some.values()}
            connection.execute(delete(M).where(matches(M, mine), M.c.shard_uid.not_in(other)))
            for step in some.values():
                at = accepted_at.get((step.accepted.seq, step.accepted.shard_uid), tables.NOW)
                connection.execute(insert(M).values(self._member_row(target, step, at)))

    def _member_row(self, target: TableId, step: ShardStep, accepted_at: Any) -> dict[str, Any]:
        """Return the row of a shard; one that is stored again, as after a reload, keeps the time of its DDL."""
        member, accepted = step.member, step.accepted
        return {
            "task": self._task,
            **shard_columns(step.shard),
            "seq": accepted.seq,
            **target_columns(target),
            "shard_uid": accepted.shard_uid,
            **location_columns(accepted.location, "ddl_"),
            "digest": member.structure.digest,
            "ids": json.dumps(dict(member.ids), ensure_ascii=False),
            "dropped": _dumped(sorted(member.dropped)),
            "reloads": _dumped([(each.column, each.reason.value, each.to) for each in sorted(member.reloads)]),
            "accepted_at": accepted_at,
        }

    def _resolve(self, connection: Connection, entries: Iterable[tuple[Shard, int]]) -> None:
        done = {"state": EntryState.RESOLVED.value, "outcome": EXECUTED, "resolved_at": tables.NOW}
        for shard, seq in entries:
            key = {"task": self._task, **shard_columns(shard), "seq": seq, "state": EntryState.PENDING.value}
            connection.execute(update(Q).where(matches(Q, key)).values(done))


def _floor_columns(group: Group) -> dict[str, str]:
    digest, ids = (group.floor.structure.digest, dict(group.floor.ids)) if group.floor is not None else ("", {})
    return {"floor_digest": digest, "floor_ids": _dumped(ids)}


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _dumped_names(names: Mapping[int, str]) -> str:
    return _dumped({name: id for id, name in names.items()})
