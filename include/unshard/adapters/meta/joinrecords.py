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
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import exists, func, select, text

from unshard.adapters.meta import tables
from unshard.adapters.meta.commandrecords import record_command
from unshard.adapters.meta.database import MetaDatabase, Records
from unshard.adapters.meta.gateway import AT_ONCE, AnyRow, TaskReader, TaskWriter
from unshard.adapters.meta.rowvalues import (
    SHARD_NAME,
    TARGET_NAME,
    are_same,
    entry_of,
    is_one_of,
    location_columns,
    location_of,
    read_stored,
    shard_name,
    shard_of,
    target_name,
    target_of,
)
from unshard.adapters.meta.shardrecords import Structures
from unshard.core import codec
from unshard.core.ddl.issuedcommands import IssuedCommand
from unshard.core.ddl.queue import EntryState, QueueEntry
from unshard.core.join.changekind import ChangeKind
from unshard.core.join.group import ColumnHistory, ColumnToReload, Group, Member, ReloadReason
from unshard.core.join.joined import (
    Accepted,
    Completion,
    JoinedTarget,
    JoinStatement,
    OpenChange,
    ShardStep,
    steps_of_shards,
)
from unshard.core.join.places import JoinedRows, RowIds
from unshard.core.join.planning import needless_states
from unshard.core.model import Shard, TableId

TARGET, COLUMN, MEMBER, CHANGE = tables.join_target, tables.join_column, tables.join_member, tables.join_change
SHARD_DDL, DDL_LOCK = tables.shard_ddl, tables.ddl_lock
FIRST_VERSION = 1
EXECUTED, REFUSED, GIVEN_UP = "executed", "refused", "given up"


class JoinedTargets(Records):
    """Joined targets."""

    def __init__(self, database: MetaDatabase) -> None:
        super().__init__(database)
        self._structures = Structures(database)

    def all(self) -> tuple[JoinedTarget, ...]:
        with self._db.snapshot() as db:
            return tuple(self._joined(db, row) for row in db.select(TARGET))

    def targets(self) -> frozenset[TableId]:
        return frozenset(map(target_of, self._db.select(TARGET, only=target_name(TARGET))))

    def resting(self) -> Mapping[TableId, str]:
        """Return the joined targets without an open change.

        The text is the hash of the shards with which the target was settled; empty if it is not settled.
        """
        is_open = exists().where(are_same(CHANGE, TARGET, *TARGET_NAME), CHANGE.c.done_at.is_(None))
        columns = *target_name(TARGET), TARGET.c.version, TARGET.c.settled_version, TARGET.c.settled_shards
        return {
            target_of(row): row.settled_shards if row.version == row.settled_version else ""
            for row in self._db.select(TARGET, ~is_open, only=columns)
        }

    def begun(self) -> frozenset[TableId]:
        """Return the joined targets that have not been changed yet, and are not known to equal their shards."""
        rows = self._db.select(TARGET, version=FIRST_VERSION, settled_version=0, only=target_name(TARGET))
        return frozenset(map(target_of, rows))

    def get(self, target: TableId) -> JoinedTarget | None:
        with self._db.snapshot() as db:
            row = db.row(TARGET, target=target)
            return self._joined(db, row) if row else None

    def history(self, target: TableId) -> Mapping[tuple[Shard, int], Member]:
        """Return each shard as it was after each of its accepted DDLs, by the number of the DDL."""
        with self._db.snapshot() as db:
            return {(shard_of(row), row.seq): member for row, member in self._members(db, target)}

    def rows(self, target: TableId, shards: Collection[Shard]) -> tuple[JoinedRows, OpenChange | None] | None:
        """Return the ids for rows of these shards, and the open change of the target; None if it has not joined."""
        named = [is_one_of(MEMBER, shards)] if len(shards) <= AT_ONCE else []
        columns = *shard_name(MEMBER), MEMBER.c.seq, MEMBER.c.digest, MEMBER.c.ids
        with self._db.snapshot() as db:
            row = db.row(TARGET, target=target, only=(TARGET.c.version, TARGET.c.names))
            if row is None:
                return None
            fills = {each.id: each.fill for each in db.select(COLUMN, target=target, only=(COLUMN.c.id, COLUMN.c.fill))}
            history: dict[Shard, list[RowIds]] = {}
            for each in db.select(MEMBER, *named, target=target, only=columns, order=MEMBER.c.seq):
                found = history.setdefault(shard_of(each), [])
                found.append(RowIds(each.seq, each.digest, json.loads(each.ids)))
            return JoinedRows(row.version, _names_of(row), fills, history), _open_change(db, target)

    def steps(self, target: TableId) -> dict[Shard, list[tuple[datetime, Member]]]:
        """Return each shard after each of its accepted DDLs, oldest first, with the time of the acceptance."""
        found: dict[Shard, list[tuple[datetime, Member]]] = {}
        with self._db.snapshot() as db:
            for row, member in self._members(db, target):
                found.setdefault(shard_of(row), []).append((row.accepted_at, member))
        return found

    def resolved(self, shard: Shard, after: int) -> tuple[QueueEntry, ...]:
        """Return the DDLs of a shard after a number that are resolved, oldest first."""
        seq, state = SHARD_DDL.c.seq, EntryState.RESOLVED
        return tuple(map(entry_of, self._db.select(SHARD_DDL, seq > after, shard=shard, state=state, order=seq)))

    def refused(self, target: TableId) -> frozenset[str]:
        """Return the causes of the contractions that the target has rejected since it was last expanded."""
        is_expansion = self._db.mine(CHANGE, target=target, kind=ChangeKind.EXPAND, outcome=EXECUTED)
        newest = select(func.coalesce(func.max(CHANGE.c.id), 0)).where(is_expansion).scalar_subquery()
        mine = self._db.mine(CHANGE, CHANGE.c.id > newest, target=target, kind=ChangeKind.CONTRACT, outcome=REFUSED)
        rows = self._db.fetch(select(CHANGE.c.cause).where(mine))
        return frozenset(row.cause for row in rows)

    def last_error(self, target: TableId, cause: str = "") -> str:
        """Return the message of the newest change if the target has rejected it and it has that cause; else empty."""
        row = self._db.row(CHANGE, target=target, order=CHANGE.c.id.desc(), limit=1)
        is_meant = row is not None and row.outcome == REFUSED and cause in ("", row.cause)
        return str(row.error or "") if is_meant and row is not None else ""

    def last_errors(self) -> Mapping[tuple[TableId, str], str]:
        """Return the same for all targets, by target and cause."""
        newest = select(func.max(CHANGE.c.id)).where(self._db.mine(CHANGE)).group_by(*target_name(CHANGE))
        rows = self._db.select(CHANGE, CHANGE.c.id.in_(newest), outcome=REFUSED)
        return {(target_of(row), row.cause): row.error or "" for row in rows}

    def reload_errors(self, target: TableId) -> Mapping[Shard, str]:
        """Return the shards whose columns cannot be read again without an operator, with the reason."""
        rows = self._db.select(MEMBER, MEMBER.c.reload_error.is_not(None), target=target)
        return {shard_of(row): row.reload_error for row in rows}

    def idle_seconds(self, target: TableId) -> float:
        """Return the time since the last DDL of a shard was accepted."""
        idle = func.timestampdiff(text("SECOND"), func.max(MEMBER.c.accepted_at), tables.NOW)
        return float(self._db.value(MEMBER, idle, target=target) or 0)

    def version(self, target: TableId) -> int:
        """Return the version of a target; 0 if it has not joined."""
        return self._db.value(TARGET, TARGET.c.version, target=target) or 0

    def _joined(self, db: TaskReader, row: AnyRow) -> JoinedTarget:
        target = target_of(row)
        columns = {
            each.id: ColumnHistory(
                tuple(json.loads(each.names)),
                each.fill,
                bool(each.was_common),
                bool(each.is_kept),
                bool(each.is_filled_by_server),
            )
            for each in db.select(COLUMN, target=target, order=COLUMN.c.id)
        }
        members, accepted = dict[Shard, Member](), dict[Shard, Accepted]()
        for each, member in self._members(db, target, is_newest=True):
            members[shard_of(each)] = member
            accepted[shard_of(each)] = Accepted(each.seq, location_of(each, "ddl_"), each.shard_uid)
        floor = None
        if row.floor_digest:
            floor = Member(self._structures.get({row.floor_digest})[row.floor_digest], json.loads(row.floor_ids))
        group = Group(members, columns, row.last_id, floor)
        change = _open_change(db, target)
        return JoinedTarget(target, group, _names_of(row), row.version, accepted, row.settled_version, change)

    def _members(self, db: TaskReader, target: TableId, *, is_newest: bool = False) -> list[tuple[AnyRow, Member]]:
        """Return the states of the shards, oldest first; `is_newest`: only the newest of each shard."""
        other = MEMBER.alias("other")
        newest = select(func.max(other.c.seq)).where(are_same(other, MEMBER, *SHARD_NAME)).scalar_subquery()
        where = [MEMBER.c.seq == newest] if is_newest else []
        rows = db.select(MEMBER, *where, target=target, order=MEMBER.c.seq)
        structures = self._structures.get({row.digest for row in rows})
        return [
            (
                row,
                Member(
                    structures[row.digest],
                    json.loads(row.ids),
                    frozenset(json.loads(row.dropped)),
                    frozenset(
                        ColumnToReload(id, ReloadReason(reason), to) for id, reason, to in json.loads(row.reloads)
                    ),
                ),
            )
            for row in rows
        ]

    def begin(self, joined: JoinedTarget) -> None:
        target, group = joined.target, joined.group
        row = {
            "target": target,
            "version": FIRST_VERSION,
            "settled_version": 0,
            "settled_shards": "",
            **_group_columns(group, joined.names),
            "began_at": tables.NOW,
            "changed_at": tables.NOW,
        }
        with self._db.transaction() as db:
            if db.add(TARGET, row):
                _put_columns(db, target, group)
                members = group.members.items()
                steps = [ShardStep(shard, joined.accepted.get(shard, Accepted(0)), member) for shard, member in members]
                _put_members(db, target, steps)

    def intend(
        self, joined: JoinedTarget, group: Group, kind: ChangeKind, cause: str, statements: tuple[JoinStatement, ...]
    ) -> OpenChange | None:
        """Store statements before the first is executed.

        None if the target has changed since it was read, or if a lock is being executed on it. `group` has the ids of
        their columns (core.join.group.intended).
        """
        target = joined.target
        with self._db.transaction() as db:
            # `start` of a lock takes the row of the target first, too.
            begun = {"target": target, "resolved_at": None}
            if not _is_still(db, joined) or db.has(DDL_LOCK, DDL_LOCK.c.started_at.is_not(None), **begun, lock=True):
                return None
            row = {"target": target, "kind": kind, "cause": cause, "statements": codec.dumps(statements)}
            db.insert(CHANGE, {**row, "done": 0, "started_at": tables.NOW})
            _put_columns(db, target, group)
            _raise_version(db, target, {"last_id": group.last_id})
            return _open_change(db, target)

    def advance(self, target: TableId, change: OpenChange) -> None:
        """Record that the target has the next statement of a change; idempotent."""
        names = dict(change.statements[change.done].names)
        with self._db.transaction() as db:
            _lock(db, target)
            if db.update(CHANGE, {"done": change.done + 1}, id=change.id, done=change.done, done_at=None):
                _raise_version(db, target, {"names": _dumped(names)})

    def complete(self, joined: JoinedTarget, completion: Completion, command: IssuedCommand | None = None) -> bool:
        """Store the group and resolve the accepted DDLs; False if the target has changed since it was read.

        `command` is that of a person.
        """
        target, group = joined.target, completion.group
        with self._db.transaction() as db:
            if not _is_still(db, joined):
                return False
            _end_change(db, EXECUTED, target=target)
            _put_columns(db, target, group)
            for shard in joined.group.members.keys() - group.members.keys():
                db.delete(MEMBER, target=target, shard=shard)
            _put_members(db, target, steps_of_shards(joined, completion))
            done = {"state": EntryState.RESOLVED, "outcome": EXECUTED, "resolved_at": tables.NOW}
            for shard, seq in completion.resolved:
                db.update(SHARD_DDL, done, shard=shard, seq=seq, state=EntryState.PENDING)
            if command is not None:
                record_command(db, "", command)
            _raise_version(db, target, _group_columns(group, completion.names))
        return True

    def fail(self, target: TableId, change: OpenChange, error: str) -> None:
        """Record that the target has rejected the next statement; the rest of the change is decided again."""
        with self._db.transaction() as db:
            _lock(db, target)
            _end_change(db, REFUSED, error, id=change.id)
            _raise_version(db, target, {})

    def give_up(self, target: TableId, change: OpenChange) -> None:
        """End a change whose process has died, unless it has ended: what is left of it is decided again."""
        with self._db.transaction() as db:
            _lock(db, target)
            if _end_change(db, GIVEN_UP, id=change.id):
                _raise_version(db, target, {})

    def remove(self, joined: JoinedTarget) -> None:
        """Delete the group of a target, unless the target has changed since it was read; its changes stay."""
        with self._db.transaction() as db:
            if _is_still(db, joined):
                for table in (TARGET, COLUMN, MEMBER):
                    db.delete(table, target=joined.target)

    def note_settled(self, joined: JoinedTarget, shards: str, needed: Mapping[Shard, int]) -> None:
        """Record that shards and target are equal, unless the target has changed since it was read.

        States of a shard that rows after its DDL number `needed` do not need are deleted.
        """
        settled = {"settled_version": joined.version, "settled_shards": shards}
        with self._db.transaction() as db:
            if _is_still(db, joined):
                db.update(TARGET, settled, target=joined.target)
                _prune(db, joined.target, needed)

    def note_reload(self, target: TableId, shard: Shard, error: str | None) -> None:
        """Record why columns of a shard cannot be read again; None: nothing hinders it."""
        with self._db.transaction() as db:
            newest = db.value(MEMBER, func.max(MEMBER.c.seq), target=target, shard=shard)
            db.update(MEMBER, {"reload_error": error}, target=target, shard=shard, seq=newest)


def _open_change(db: TaskReader, target: TableId) -> OpenChange | None:
    row = db.row(CHANGE, target=target, done_at=None)
    if row is None:
        return None
    statements = read_stored(tuple[JoinStatement, ...], row.statements, f"change {row.id} of {target}")
    return OpenChange(row.id, ChangeKind(row.kind), statements, row.done, row.error or "")


def _is_still(db: TaskWriter, joined: JoinedTarget) -> bool:
    return _lock(db, joined.target) == joined.version


def _lock(db: TaskWriter, target: TableId) -> int:
    """Lock the target; this waits for the transactions of rows that have compared its version."""
    return db.value(TARGET, TARGET.c.version, target=target, lock=True) or 0


def _raise_version(db: TaskWriter, target: TableId, values: dict[str, Any]) -> None:
    changed = {**values, "version": TARGET.c.version + 1, "changed_at": tables.NOW}
    db.update(TARGET, changed, target=target)


def _end_change(db: TaskWriter, outcome: str, error: str | None = None, **which: Any) -> bool:
    values = {"done_at": tables.NOW, "outcome": outcome, **({"error": error} if error is not None else {})}
    return bool(db.update(CHANGE, values, **which, done_at=None))


def _prune(db: TaskWriter, target: TableId, needed: Mapping[Shard, int]) -> None:
    numbers = defaultdict[Shard, list[int]](list)
    for row in db.select(MEMBER, target=target, only=(*shard_name(MEMBER), MEMBER.c.seq)):
        numbers[shard_of(row)].append(row.seq)
    for shard, some in numbers.items():
        if old := needless_states(some, needed.get(shard, 0)):
            db.delete(MEMBER, MEMBER.c.seq.in_(old), target=target, shard=shard)


def _put_columns(db: TaskWriter, target: TableId, group: Group) -> None:
    db.delete(COLUMN, target=target)
    rows = [
        {
            "target": target,
            "id": id,
            "names": _dumped(column.names),
            "fill": column.fill,
            "was_common": column.was_common,
            "is_kept": column.is_kept,
            "is_filled_by_server": column.is_filled_by_server,
        }
        for id, column in group.columns.items()
    ]
    db.insert_all(COLUMN, rows)


def _put_members(db: TaskWriter, target: TableId, steps: Iterable[ShardStep]) -> None:
    """Store states of shards; one that is stored again, as after a reload, keeps the time of its DDL."""
    by_key = defaultdict[Shard, dict[int, ShardStep]](dict)
    for step in steps:
        by_key[step.shard][step.accepted.seq] = step
    for shard, some in by_key.items():
        is_same = MEMBER.c.seq.in_(some)
        columns = MEMBER.c.seq, MEMBER.c.shard_uid, MEMBER.c.accepted_at
        accepted_at = {
            (row.seq, row.shard_uid): row.accepted_at for row in db.select(MEMBER, is_same, shard=shard, only=columns)
        }
        db.delete(MEMBER, is_same, shard=shard)
        db.delete(MEMBER, MEMBER.c.shard_uid.not_in({step.accepted.shard_uid for step in some.values()}), shard=shard)
        for step in some.values():
            at = accepted_at.get((step.accepted.seq, step.accepted.shard_uid), tables.NOW)
            db.insert(MEMBER, _member_row(target, step, at))


def _member_row(target: TableId, step: ShardStep, accepted_at: Any) -> dict[str, Any]:
    member, accepted = step.member, step.accepted
    return {
        "shard": step.shard,
        "seq": accepted.seq,
        "target": target,
        "shard_uid": accepted.shard_uid,
        **location_columns(accepted.location, "ddl_"),
        "digest": member.structure.digest,
        "ids": _dumped(dict(member.ids)),
        "dropped": _dumped(sorted(member.dropped)),
        "reloads": _dumped([(each.column, each.reason.value, each.to) for each in sorted(member.reloads)]),
        "accepted_at": accepted_at,
    }


def _group_columns(group: Group, names: Mapping[int, str]) -> dict[str, Any]:
    digest, ids = (group.floor.structure.digest, dict(group.floor.ids)) if group.floor is not None else ("", {})
    return {
        "last_id": group.last_id,
        "names": _dumped({name: id for id, name in names.items()}),
        "floor_digest": digest,
        "floor_ids": _dumped(ids),
    }


def _names_of(row: AnyRow) -> dict[int, str]:
    return {id: name for name, id in json.loads(row.names).items()}


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
