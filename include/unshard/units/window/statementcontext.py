"""Adds to the statements of a source the context that their events do not carry, before they are planned (driver).

* The time zone of a session that used its server's: the task's, because the target may have another one.
* The default character set of a schema, for tables that are created or altered without a character set.
* Types and character sets that have another meaning on the target (core.ddl.schemadefaults).

Defaults are followed from the snapshot on, statement by statement (core.ddl.schemadefaults). Each change is stored at
once, so the next plan begins at the checkpoint and not at the snapshot.

The structure of a shard after its newest DDL, read from its source. Runs in the driver.

The binlog may not tell it, or the target may refuse the DDL on an empty table.

`CREATE TABLE a LIKE b` and `RENAME TABLE b TO a` tell nothing about the columns if the task does not follow table b.
The source shows the present structure of `a`. It is the structure after that statement if no later statement concerns
the table (core.ddl.hiddenstructure tells it for the others). The order of the steps makes that certain:

1. read the structure of the table
2. pull the binlog to its present end, which is later than step 1
3. look for a later DDL in the shard's queue (up to the checkpoint) and in the pulled binlog (after it)

Find the tables whose rows a statement may have changed without row events (driver).

Its text names tables. Views, triggers, stored routines, foreign keys that cascade and some engines write into others.
MySQL lists the schemas of all tables that a statement uses; MariaDB does not, so its catalog is read:

1. read what the source has now of all that the statement names
2. pull the binlog to its present end, which is later than step 1
3. look for a later statement, after this one, that may have removed something of it

The result is unknown if one of the tables is or has such a thing, if the account does not see everything, or if a later
statement may have removed something.
"""

import contextlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from functools import cache

from pymysql.connections import Connection

from unshard.adapters import mysql, serverstate, structures, upstream
from unshard.adapters.meta.sourcerecords import DefaultChange
from unshard.core.checks.items import missing_privileges, parse_grants
from unshard.core.ddl.names import RowChange, concerned_tables, may_hide, mentions, row_change
from unshard.core.ddl.parsed import Ddl, DdlKind, Role
from unshard.core.ddl.queue import QueueEntry
from unshard.core.ddl.schemadefaults import DEPENDS, Meanings, altered, as_source_means, relies_on_schema
from unshard.core.ddl.statement import read_ddl
from unshard.core.model import Location, TableId, TableSchema
from unshard.core.relay.segment import SchemaDefault, Segment, Statement
from unshard.errors.base import ServerError
from unshard.errors.ddl import DdlUnreadable, StructureNotShown
from unshard.units.ddl.reconciling import TrialOfStatements
from unshard.units.full.targets import without_refused_indexes
from unshard.units.relay.tasksource import pull_source
from unshard.units.work import Work

UTF8 = {"utf8": "utf8mb3"}
"""The name that every server knows, and the name that current servers print."""
CONVERTS = re.compile(r"\b(MODIFY|CHANGE)\b", re.IGNORECASE)
OLD_NAME = re.compile(r"\b_?utf8(_\w+)?\b", re.IGNORECASE)
USUAL = "utf8mb4_0900_ai_ci"
CONCERNED = re.compile(r"\b(DATABASE|SCHEMA|CREATE|CHARSET|SET)\b", re.IGNORECASE)


def in_context(work: Work, source: str, begins: Location, segments: Iterable[Segment]) -> list[Segment]:
    """Return the segments after `begins` with statements that are complete without further context."""
    server_zone = cache(lambda: _server_zone(work, source))
    zoned = [
        _meant(work, source, in_zone(_with_zone(segment, server_zone), work.task.timezone)) for segment in segments
    ]
    if not any(segment.statement and CONCERNED.search(segment.statement.text) for segment in zoned):
        return zoned
    return list(_SchemaDefaults(work, source, begins).followed(zoned))


def _with_zone(segment: Segment, server_zone: Callable[[], str]) -> Segment:
    """Give a statement its server's time zone if it has converted no value; other shards may have converted some."""
    statement = segment.statement
    if statement is None or statement.time_zone or not CONVERTS.search(statement.text):
        return segment
    return replace(segment, statement=replace(statement, time_zone=server_zone()))


def _server_zone(work: Work, source: str) -> str:
    """Return the global time zone of a source; empty if the source does not answer."""
    with (
        contextlib.suppress(ServerError),
        work.source_connection(source) as asked,
    ):
        return serverstate.global_variables(asked, ["time_zone"])["time_zone"]
    return ""


def in_zone(segment: Segment, zone: str) -> Segment:
    """Give a statement the task's time zone if its session used that of its server, which the target may not have."""
    statement = segment.statement
    if statement is None or statement.time_zone not in ("", "SYSTEM"):
        return segment
    return replace(segment, statement=replace(statement, time_zone=zone))


def _meant(work: Work, source: str, segment: Segment) -> Segment:
    """Rewrite types and character sets of a statement that have another meaning on the target."""
    statement = segment.statement
    if statement is None or not DEPENDS.search(statement.text) or _read(statement) is None:
        return segment
    meanings = _meanings(work, source)
    if statement.collations or OLD_NAME.search(statement.text):
        with work.source_connection(source) as asked:
            meanings = _of_session(work, asked, statement, meanings)
    text = as_source_means(statement.text, statement.sql_mode, meanings)
    return replace(segment, statement=replace(statement, text=text))


def _of_session(work: Work, asked: Connection, statement: Statement, meanings: Meanings) -> Meanings:
    of_target, utf8 = work.trial_tables.types(), structures.meaning_of_utf8(asked)
    chosen = structures.collations_by_charset(asked, statement.collations) if statement.collations else {}
    # A target that does not know MySQL's usual collation gives its own.
    chosen = {charset: name for charset, name in chosen.items() if name != USUAL or name in of_target.collations}
    collations = {**(meanings.collations or {}), **_with_old_names(chosen)}
    return replace(meanings, collations=collations, utf8="" if utf8 == of_target.utf8 else utf8)


def _meanings(work: Work, source: str) -> Meanings:
    of_target = work.trial_tables.types()
    state = next((state for state in work.meta.sources.all() if state.source == source), None)
    is_mariadb = state is None or state.flavor == "mariadb"
    by_bytes = {name.partition("_")[0] for name in of_target.defaults if name.endswith("_bin")}
    collations: dict[str, str] = {}
    if by_bytes & {"utf8mb4", "utf8mb3"}:
        with work.source_connection(source) as asked:
            found = structures.read_collations(asked, defaults=True) & of_target.collations - of_target.defaults
        collations = {name.partition("_")[0]: name for name in found}
    collations = _with_old_names(collations)
    national = f"CHARACTER SET utf8 COLLATE {collations['utf8']}" if "utf8" in collations else "CHARACTER SET utf8"
    is_national = of_target.national == UTF8["utf8"]
    return Meanings(is_mariadb and of_target.has_json, "" if is_national else national, collations)


def _with_old_names(collations: dict[str, str]) -> dict[str, str]:
    """Return collations by character set also for the old names of character sets, as old servers name them."""
    renamed = {new: collations[new].replace("utf8mb3_", "utf8_") for new in UTF8.values() if new in collations}
    return {**collations, **renamed, **{old: renamed[new] for old, new in UTF8.items() if new in renamed}}


class _SchemaDefaults:
    """The schemas' defaults at one location of the binlog, moved on by `followed`."""

    def __init__(self, work: Work, source: str, begins: Location) -> None:
        self._work, self._source = work, source
        changes = work.meta.schema_defaults.of(source)
        self._known = {change.schema: change.default for change in changes if change.location <= begins}

    def followed(self, segments: Iterable[Segment]) -> Iterator[Segment]:
        for segment in segments:
            statement = segment.statement
            ddl = _read(statement) if statement and CONCERNED.search(statement.text) else None
            if ddl is None or statement is None:
                yield segment
                continue
            self._follow(ddl, statement, Location(segment.file, segment.end))
            yield replace(segment, statement=self._given(ddl, statement))

    def _follow(self, ddl: Ddl, statement: Statement, location: Location) -> None:
        if ddl.kind is DdlKind.DROP_DATABASE:
            default = None
        elif ddl.kind in (DdlKind.CREATE_DATABASE, DdlKind.ALTER_DATABASE):
            server = self._work.trial_tables.server_default(dict(statement.session).get("collation_server", 0))
            default = altered(self._known.get(ddl.database), ddl.text, statement.sql_mode, server)
        else:
            return
        if ddl.database not in self._known or default != self._known[ddl.database]:
            self._work.meta.schema_defaults.add(self._source, DefaultChange(ddl.database, location, default))
        self._known[ddl.database] = default

    def _given(self, ddl: Ddl, statement: Statement) -> Statement:
        if ddl.kind in (DdlKind.CREATE_DATABASE, DdlKind.ALTER_DATABASE):
            return replace(statement, default=self._known.get(ddl.database))
        if ddl.kind not in (DdlKind.CREATE_TABLE, DdlKind.ALTER) or not relies_on_schema(ddl.text, statement.sql_mode):
            return statement
        return replace(statement, default=self._default(ddl.subjects[0].schema))

    def _default(self, schema: str) -> SchemaDefault | None:
        """Ask the source for an unknown schema: one in another spelling, or one from before the first snapshot."""
        if self._known.get(schema) is None:
            with self._work.source_connection(self._source) as asked:
                found = {name.lower(): default for name, default in structures.read_defaults(asked).items()}
            self._known[schema] = found.get(schema.lower())
        return self._known[schema]


def _read(statement: Statement) -> Ddl | None:
    try:
        return read_ddl(statement.text, statement.sql_mode, statement.schema)
    except DdlUnreadable:
        return None  # planning raises the error if the statement concerns a shard


# --- the structure of a shard after its newest DDL


def shown_structure(work: Work, entry: QueueEntry) -> tuple[TableSchema, tuple[Statement, ...]]:
    """Return the present structure of a shard, and the statements after the checkpoint that concern it.

    Raises StructureNotShown if the source does not have the table any more.
    """
    source, table = entry.shard.source, entry.shard.table
    with work.source_connection(source) as connection:
        found = without_refused_indexes(work, structures.read_schemas(connection, [table]))
    if table not in found:
        raise StructureNotShown(str(entry.shard), "the source has no such table any more")
    pull_source(work, source)
    checkpoint = work.meta.checkpoints.one(source)  # planning requires it
    run = [each for each in work.store.links(source).following(checkpoint.location) if each.statement is not None]
    following = (each.statement for each in in_context(work, source, checkpoint.location, run))
    return found[table], tuple(each for each in following if each is not None and names(each, table))


def trial_of(work: Work, *, asks_source: bool = True) -> TrialOfStatements:
    """Return the trial with which structures after operators' decisions are found."""
    shown = (lambda entry: shown_structure(work, entry)) if asks_source else None
    return TrialOfStatements(work.trial_tables, work.storage, work.present, shown)


def names(statement: Statement, table: TableId) -> bool:
    """Whether a statement is about a table, or cannot be read and may be about it."""
    if ddl := _read(statement):
        return table.folded in {found.folded for found in (*ddl.subjects, *ddl.of(Role.NEW_NAME))}
    found = mentions(statement)
    return bool({*found.named([table])}) if found.is_certain else bool(concerned_tables(statement, [table]))


# --- tables whose rows a statement may have changed without row events


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
            found = {statement: _changed_tables(connection, change) for statement, change in changes.items()}
        later = self._statements()
        return {
            statement: None if self._is_hidden(changes[statement], self._first[statement], later) else tables
            for statement, tables in found.items()
        }

    def _is_hidden(self, change: RowChange, place: Location, later: Iterable[Segment]) -> bool:
        following = (each.statement for each in later if each.statement and each.begins > place)
        target_of = self._work.task.instance(self._source).routing.target_of
        return any(
            may_hide(each, change, any(target_of(table) for table, _, _ in mentions(each).places)) for each in following
        )

    def _statements(self) -> list[Segment]:
        if self._pulls:
            pull_source(self._work, self._source)
        checkpoint = self._work.meta.checkpoints.one(self._source)  # planning requires it
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
    return not (is_revoked or missing_privileges(parse_grants(lines), SEES_ALL)) and spelling.popitem()[1] in ("0", "1")


def _changed_tables(connection: Connection, change: RowChange) -> Changed:
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
