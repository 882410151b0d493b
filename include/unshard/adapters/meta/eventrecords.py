"""The events of a task, from the tables that record them: the newest of each kind."""

from sqlalchemy import func

from unshard.adapters.meta import tables
from unshard.adapters.meta.commandrecords import actions
from unshard.adapters.meta.database import Records
from unshard.adapters.meta.gateway import AnyRow
from unshard.adapters.meta.rowvalues import shard_name, shard_of, target_name, target_of
from unshard.core.task.history import EventKind, TaskEvent

DDL, LOCK, HISTORY, SUSPENDED = tables.shard_ddl, tables.ddl_lock, tables.ddl_history, tables.suspended_target
LONGEST = 500
"""Characters of a statement."""
SHARDS = 10
"""DDL of so many shards are read for each event, because one event has all shards that ran the same DDL."""


class Events(Records):
    """Rows of several tables that say when something has happened."""

    def newest(self, most: int) -> tuple[TaskEvent, ...]:
        """Return the newest events of each kind, in any order, in a statement for each table."""
        seen, errors = self._seen(most * SHARDS), self._errors()
        return (*seen, *self._locks(most), *self._executions(most), *self._commands(most), *errors)

    def _seen(self, most: int) -> list[TaskEvent]:
        text = func.left(DDL.c.routed, LONGEST).label("text")
        only = (*shard_name(DDL), *target_name(DDL), DDL.c.seen_at, DDL.c.lock_id, text)
        rows = self._db.select(DDL, only=only, order=DDL.c.seen_at.desc(), limit=most)
        return [
            TaskEvent(
                row.seen_at, EventKind.DDL_SEEN, row.text, target_of(row), row.lock_id or "", "", (shard_of(row),)
            )
            for row in rows
        ]

    def _locks(self, most: int) -> list[TaskEvent]:
        only = (*target_name(LOCK), LOCK.c.lock_id, LOCK.c.seen_at, LOCK.c.resolved_at, LOCK.c.outcome)
        newest = func.coalesce(LOCK.c.resolved_at, LOCK.c.seen_at).desc()
        rows = self._db.select(LOCK, only=only, order=newest, limit=most)
        opened = [TaskEvent(row.seen_at, EventKind.LOCK_OPENED, "", target_of(row), row.lock_id) for row in rows]
        return opened + [
            TaskEvent(row.resolved_at, EventKind.LOCK_RESOLVED, row.outcome or "", target_of(row), row.lock_id)
            for row in rows
            if row.resolved_at
        ]

    def _executions(self, most: int) -> list[TaskEvent]:
        return [_execution(row) for row in self._db.select(HISTORY, order=HISTORY.c.id.desc(), limit=most)]

    def _commands(self, most: int) -> list[TaskEvent]:
        found = []
        for each in actions(self._db, None, most):
            text = f"{each.action}: {each.reason}" if each.reason else each.action
            found.append(TaskEvent(each.done_at, EventKind.COMMAND, text, None, each.lock, str(each.who)))
        return found

    def _errors(self) -> list[TaskEvent]:
        return [
            TaskEvent(row.since, EventKind.ERROR, f"[{row.code}] {row.server_message}", target_of(row), "", row.source)
            for row in self._db.select(SUSPENDED, is_open=1)
        ]


def _execution(row: AnyRow) -> TaskEvent:
    kind, text = EventKind.EXECUTED, f"{row.ddl[:LONGEST]} ({row.outcome or 'runs'})"
    if row.error:
        kind, text = EventKind.ERROR, row.error
    return TaskEvent(row.done_at or row.started_at, kind, text, None, row.lock_id, row.source)
