"""What the meaning of a source's statements depends on and no event carries, added before they are planned.

* The time zone of a session that had its server's: the task's, because the target may not share it.
* The default character set of a schema, for tables that are created or altered without one.
* Types and character sets that mean something else on the target (core.sourcetypes).

Defaults are followed from the snapshot on, statement by statement (core.schemadefaults); a change that is found is
kept at once, so the next plan begins where the checkpoint is and not at the snapshot.
"""

import contextlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from unshard.adapters import mysql, structures
from unshard.adapters.meta.defaults import DefaultChange
from unshard.core.ddl import DdlKind, read
from unshard.core.ddltypes import Ddl
from unshard.core.model import Location
from unshard.core.schemadefaults import altered, relies_on_schema
from unshard.core.segment import SchemaDefault, Segment, Statement
from unshard.core.sourcetypes import DEPENDS, Meanings, as_source_means
from unshard.errors.ddl import DdlUnreadable
from unshard.units.work import Work

UTF8 = {"utf8": "utf8mb3"}
"""The name that every server knows, and the one that those of today print."""
CONCERNED = re.compile(r"\b(DATABASE|SCHEMA|CREATE|CHARSET|SET)\b", re.IGNORECASE)


def in_context(work: Work, source: str, begins: Location, segments: Iterable[Segment]) -> list[Segment]:
    """Return the segments, which follow on `begins`, with statements that need nothing else to be understood."""
    zoned = [_meant(work, source, in_zone(segment, work.task.timezone)) for segment in segments]
    if not any(segment.statement and CONCERNED.search(segment.statement.text) for segment in zoned):
        return zoned
    return list(_Defaults(work, source, begins).followed(zoned))


def in_zone(segment: Segment, zone: str) -> Segment:
    """Give a statement the task's time zone if its session had that of its server, which the target may not share."""
    statement = segment.statement
    if statement is None or statement.time_zone != "SYSTEM":
        return segment
    return replace(segment, statement=replace(statement, time_zone=zone))


def _meant(work: Work, source: str, segment: Segment) -> Segment:
    """Name the types and character sets of a statement that mean something else on the target."""
    statement = segment.statement
    if statement is None or not DEPENDS.search(statement.text) or _read(statement) is None:
        return segment
    text = as_source_means(statement.text, statement.sql_mode, _meanings(work, source))
    return replace(segment, statement=replace(statement, text=text))


def _meanings(work: Work, source: str) -> Meanings:
    of_target = work.shadow.types()
    state = next((state for state in work.meta.sources.all() if state.source == source), None)
    is_mariadb = state is None or state.flavor == "mariadb"
    by_bytes = {name.partition("_")[0] for name in of_target.defaults if name.endswith("_bin")}
    collations: dict[str, str] = {}
    if by_bytes & {"utf8mb4", "utf8mb3"}:
        with contextlib.closing(mysql.connect(work.sources[source], f"source {source}")) as asked:
            found = structures.read_collations(asked, defaults=True) & of_target.collations - of_target.defaults
        collations = {name.partition("_")[0]: name for name in found}
    for old, new in UTF8.items():
        if new in collations:
            collations[old] = collations[new] = collations[new].replace("utf8mb3_", "utf8_")
    national = f"CHARACTER SET utf8 COLLATE {collations['utf8']}" if "utf8" in collations else "CHARACTER SET utf8"
    is_national = of_target.national == UTF8["utf8"]
    return Meanings(is_mariadb and of_target.has_json, "" if is_national else national, collations)


class _Defaults:
    """The schemas' defaults at one location of the binlog, moved on by `followed`."""

    def __init__(self, work: Work, source: str, begins: Location) -> None:
        self._work, self._source = work, source
        changes = work.meta.defaults.of(source)
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
            server = self._work.shadow.server_default(dict(statement.session).get("collation_server", 0))
            default = altered(self._known.get(ddl.database), ddl.text, statement.sql_mode, server)
        else:
            return
        if ddl.database not in self._known or default != self._known[ddl.database]:
            self._work.meta.defaults.add(self._source, DefaultChange(ddl.database, location, default))
        self._known[ddl.database] = default

    def _given(self, ddl: Ddl, statement: Statement) -> Statement:
        if ddl.kind not in (DdlKind.CREATE_TABLE, DdlKind.ALTER) or not relies_on_schema(ddl.text, statement.sql_mode):
            return statement
        return replace(statement, default=self._default(ddl.subjects[0].schema))

    def _default(self, schema: str) -> SchemaDefault | None:
        """Ask the source for what was never seen: a schema in another spelling, or one of before the first snapshot."""
        if self._known.get(schema) is None:
            with contextlib.closing(mysql.connect(self._work.sources[self._source], f"source {self._source}")) as asked:
                found = {name.lower(): default for name, default in structures.read_defaults(asked).items()}
            self._known[schema] = found.get(schema.lower())
        return self._known[schema]


def _read(statement: Statement) -> Ddl | None:
    try:
        return read(statement.text, statement.sql_mode, statement.schema)
    except DdlUnreadable:
        return None  # planning says so, where it concerns a shard
