"""Find the tables whose rows a statement may have changed without row events (driver).

Its text names tables. Views, triggers, stored routines, foreign keys that cascade and some engines write into others.
MySQL lists the schemas of all tables that a statement uses; MariaDB does not, so its catalog is read:

1. read what the source has now of all that the statement names
2. pull the binlog to its present end, which is later than step 1
3. look for a later statement, after this one, that may have removed something of it

The result is unknown if one of the tables is or has such a thing, if the account does not see everything, or if a later
statement may have removed something.
"""

import contextlib
from collections.abc import Collection, Iterable

from pymysql.connections import Connection

from unshard.adapters import mysql, serverstate, upstream
from unshard.core.checks import grants
from unshard.core.ddl.names import mentions
from unshard.core.ddl.rowchanges import RowChange, may_hide, row_change
from unshard.core.model import Location, TableId
from unshard.core.relay.segment import Segment, Statement
from unshard.units.relay.tasksource import pull_source
from unshard.units.work import Work

SEES_ALL = ("SELECT", "TRIGGER")
"""Global privileges without which information_schema leaves out tables, routines or triggers."""
Changed = frozenset[TableId] | None


class ChangedTables:
    """Answers for one plan of one source; the source is asked at most once, about all changes of the plan."""

    def __init__(self, work: Work, source: str, *, pulls: bool) -> None:
        """Keep what is needed; `pulls` is False for a plan that is only shown."""
        self._work, self._source, self._pulls = work, source, pulls
        self._first: dict[Statement, Location] = {}
        self._known: dict[Statement, Changed] | None = None

    def expect(self, segments: Iterable[Segment]) -> None:
        """Take the changes of the plan, each with the first segment that has it."""
        for segment in segments:
            for change in segment.changes:
                self._first.setdefault(change, segment.begins)

    def __call__(self, statement: Statement, schemas: Collection[str]) -> Changed:
        """Return the tables whose rows it may have changed, None if unknown; `schemas` are those of the shards."""
        if _is_elsewhere(statement, schemas):
            return frozenset()
        if self._known is None:
            self._known = self._found()
        return self._known.get(statement)

    def _found(self) -> dict[Statement, Changed]:
        changes = {statement: change for statement in self._first if (change := row_change(statement))}
        server = self._work.sources[self._source]
        with contextlib.closing(mysql.connect(server, f"source {self._source}")) as connection:
            if not _sees_all(connection):
                return {}
            found = {statement: _read(connection, change) for statement, change in changes.items()}
        later = self._statements()
        return {
            statement: None if self._is_hidden(changes[statement], self._first[statement], later) else tables
            for statement, tables in found.items()
        }

    def _is_hidden(self, change: RowChange, place: Location, later: Iterable[Segment]) -> bool:
        following = (each.statement for each in later if each.statement and each.begins > place)
        return any(may_hide(each, change, self._is_routed(each)) for each in following)

    def _is_routed(self, statement: Statement) -> bool:
        target_of = self._work.task.instance(self._source).routing.target_of
        return any(target_of(table) for table, _, _ in mentions(statement).places)

    def _statements(self) -> list[Segment]:
        """Return the stored statements after the checkpoint."""
        if self._pulls:
            pull_source(self._work, self._source)
        checkpoint = self._work.meta.checkpoints.get(self._source)
        assert checkpoint is not None  # planning requires it
        run = self._work.store.links(self._source).following(checkpoint.location)
        return [segment for segment in run if segment.statement is not None]


def _is_elsewhere(statement: Statement, schemas: Collection[str]) -> bool:
    """Whether the event lists the schemas of all tables that the statement uses, and no shard is in one of them.

    MySQL lists an empty name if it cannot know all of them.
    """
    used = {name.casefold() for name in statement.uses}
    return bool(used) and "" not in used and used.isdisjoint(name.casefold() for name in schemas)


def _sees_all(connection: Connection) -> bool:
    """Whether the account sees every table, trigger and routine, by the spelling that the statement has."""
    lines = serverstate.shown_grants(connection)
    is_revoked = any(line.startswith("REVOKE") for line in lines)
    spelling = serverstate.global_variables(connection, ["lower_case_table_names"])
    return not (is_revoked or grants.missing(grants.parse(lines), SEES_ALL)) and spelling.popitem()[1] in ("0", "1")


def _read(connection: Connection, change: RowChange) -> Changed:
    if upstream.are_routines(connection, change.names):
        return None
    found = upstream.real_tables(connection, change.named)
    if found is None:
        return None
    folded = {table.folded for table in change.written}
    written, new = frozenset[TableId](), frozenset(table for table in found if table.folded in folded)
    while new:
        if upstream.have_triggers(connection, new):
            return None
        written |= new
        new = upstream.children(connection, new) - written
    return written
