"""The sources of a task: identity, phase, P0 and P1, epoch, checkpoint, rules, and facts of their binlogs.

Rows of `schema_default` are facts of the binlog and never change, so planning may write them at any time and
repeatedly. Sequences, ignored statements and shadow tables of online DDL change in the transaction that commits a
window.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import func

from unshard.adapters.meta import tables
from unshard.adapters.meta.database import Records
from unshard.adapters.meta.gateway import TaskWriter
from unshard.adapters.meta.rowvalues import Persisted, location_columns, read_stored
from unshard.core import codec
from unshard.core.ddl.online import OnlineTable, OnlineTables
from unshard.core.model import Location, TableId
from unshard.core.relay.segment import SchemaDefault
from unshard.core.task.state import Checkpoint, Phase, SourceState
from unshard.core.window.plan import Plan, UnreadStatement
from unshard.core.window.rulechanges import Rules
from unshard.errors.meta import PhaseFellBack, UnknownSource

SOURCE, CHECKPOINT, RULES, SCHEMA_DEFAULT = tables.source, tables.checkpoint, tables.rules, tables.schema_default
SEQUENCE, IGNORED_STATEMENT, ONLINE_DDL = tables.sequence, tables.ignored_statement, tables.online_ddl
FIRST_EPOCH = func.unix_timestamp() * 1000
"""A task that is removed and begun again must not reach the epochs of writers that survived the removal."""
SHOWN = 20


@dataclass(frozen=True, slots=True)
class DefaultChange:
    """From `location` on the schema has this default; None means dropped or unknown."""

    schema: str
    location: Location
    default: SchemaDefault | None


@dataclass(frozen=True, slots=True)
class IgnoredStatement:
    """A statement of a source that could not be parsed and concerns no shard."""

    source: str
    passed: UnreadStatement
    at: datetime
    """When its window was committed."""


STATE = Persisted(SourceState, snapshot="snapshot_", dump_end="dump_end_")


class Sources(Records):
    """Rows of `source`."""

    def get(self, source: str) -> SourceState | None:
        row = self._db.row(SOURCE, source=source)
        return STATE.of(row) if row else None

    def all(self) -> tuple[SourceState, ...]:
        return tuple(map(STATE.of, self._db.select(SOURCE, order=SOURCE.c.source)))

    def add(self, source: str, identity: str, flavor: str) -> SourceState:
        """Record a source in phase NEW and return it; a recorded source stays unchanged."""
        row = {
            "source": source,
            "identity": identity,
            "flavor": flavor,
            "phase": Phase.NEW,
            "snapshot_gtid": "",
            "epoch": FIRST_EPOCH,
            "added_at": tables.NOW,
            "updated_at": tables.NOW,
        }
        with self._db.transaction() as db:
            db.add(SOURCE, row)
            return STATE.of(db.one(SOURCE, source=source))

    def follow(self, source: str, identity: str) -> None:
        with self._db.transaction() as db:
            lock_source(db, source)
            db.update(SOURCE, {"identity": identity, "updated_at": tables.NOW}, source=source)

    def set_phase(
        self,
        source: str,
        phase: Phase,
        *,
        snapshot: Location | None = None,
        snapshot_gtid: str | None = None,
        dump_end: Location | None = None,
    ) -> SourceState:
        values: dict[str, Any] = {"phase": phase, "updated_at": tables.NOW}
        values |= location_columns(snapshot, "snapshot_") if snapshot else {}
        values |= {} if snapshot_gtid is None else {"snapshot_gtid": snapshot_gtid}
        values |= location_columns(dump_end, "dump_end_") if dump_end else {}
        with self._db.transaction() as db:
            state = lock_source(db, source)
            if phase.order < state.phase.order:
                raise PhaseFellBack(source, state.phase, phase)
            db.update(SOURCE, values, source=source)
            return STATE.of(db.one(SOURCE, source=source))


CHECKED = Persisted(Checkpoint, location="")


class Checkpoints(Records):
    """Rows of `checkpoint`; the handover creates them, windows move them."""

    def get(self, source: str) -> Checkpoint | None:
        """Return the checkpoint of a source; None before the handover."""
        row = self._db.row(CHECKPOINT, source=source)
        return None if row is None else CHECKED.of(row)

    def locations(self) -> dict[str, Location]:
        """Return the location of the checkpoint of each source."""
        return {row.source: Location(row.file, row.position) for row in self._db.select(CHECKPOINT)}

    def one(self, source: str) -> Checkpoint:
        """Return the checkpoint of a source, which must be handed over."""
        found = self.get(source)
        assert found is not None
        return found

    def start(self, source: str, location: Location, gtid: str = "") -> Checkpoint:
        """Set the first checkpoint and the phase SYNC in one transaction; an existing checkpoint stays."""
        counts = {"window": 0, "last_time": 0, "windows": 0, "rows_applied": 0, "millis": 0}
        first = {"gtid": gtid, **counts, "paces": "", "committed_at": tables.NOW}
        with self._db.transaction() as db:
            lock_source(db, source)
            db.add(CHECKPOINT, {"source": source, **location_columns(location), **first})
            db.update(SOURCE, {"phase": Phase.SYNC, "updated_at": tables.NOW}, source=source)
        return self.one(source)


class RulesInForce(Records):
    """Rows of `rules`: the rules that the windows of each source use, taken from the task file."""

    def get(self, source: str) -> Rules:
        """Return the rules of a source, which must exist."""
        return read_stored(Rules, str(self._db.value(RULES, RULES.c.body, source=source)), f"the rules of {source}")

    def put(self, source: str, digest: str, rules: Rules, begins: Location) -> None:
        row = {"digest": digest, "body": codec.dumps(rules), **location_columns(begins), "adopted_at": tables.NOW}
        with self._db.transaction() as db:
            db.put(RULES, {"source": source}, row)


class Defaults(Records):
    """Rows of `schema_default`: the default character set of each schema, with the location from which on it applies.

    The snapshot writes the first ones. A source that begins again deletes all.
    """

    def of(self, source: str) -> tuple[DefaultChange, ...]:
        """Return all changes in the order of the binlog."""
        found = [
            DefaultChange(
                row.shard_schema,
                Location(row.file, row.position),
                SchemaDefault(row.charset, row.collation) if row.charset else None,
            )
            for row in self._db.select(SCHEMA_DEFAULT, source=source)
        ]
        return tuple(sorted(found, key=lambda change: change.location.order))

    def begin(self, source: str, location: Location, defaults: Mapping[str, SchemaDefault]) -> None:
        """Replace the rows of the source by those of a snapshot."""
        with self._db.transaction() as db:
            db.delete(SCHEMA_DEFAULT, source=source)
            for schema, default in sorted(defaults.items()):
                db.insert(SCHEMA_DEFAULT, _default_row(source, DefaultChange(schema, location, default)))

    def add(self, source: str, change: DefaultChange) -> None:
        """Add the change of a statement; idempotent."""
        with self._db.transaction() as db:
            db.add(SCHEMA_DEFAULT, _default_row(source, change))


class IgnoredRecords(Records):
    """Rows of `sequence` and `ignored_statement`."""

    def sequences(self, source: str) -> frozenset[TableId]:
        return frozenset(TableId(row.shard_schema, row.shard_table) for row in self._db.select(SEQUENCE, source=source))

    def newest(self, number: int = SHOWN) -> tuple[IgnoredStatement, ...]:
        c = IGNORED_STATEMENT.c
        order = c.ignored_at.desc(), c.source, c.file.desc(), c.position.desc()
        return tuple(
            IgnoredStatement(
                row.source, UnreadStatement(Location(row.file, row.position), row.statement), row.ignored_at
            )
            for row in self._db.select(IGNORED_STATEMENT, order=order, limit=number)
        )

    def begin(self, source: str, sequences: Iterable[TableId]) -> None:
        with self._db.transaction() as db:
            _set_sequences(db, source, sequences)


class OnlineTableRecords(Records):
    """Rows of `online_ddl`: shadow tables of online-DDL tools at the checkpoint."""

    def of(self, source: str) -> OnlineTables:
        rows = self._db.select(ONLINE_DDL, source=source, order=(ONLINE_DDL.c.online_schema, ONLINE_DDL.c.online_name))
        return tuple(read_stored(OnlineTable, row.online_table, f"the online DDL of {source}") for row in rows)

    def begin(self, source: str, online_tables: Sequence[OnlineTable]) -> None:
        with self._db.transaction() as db:
            _set_online_tables(db, source, online_tables)


def lock_source(db: TaskWriter, source: str) -> SourceState:
    """Lock the source's row until the end of the transaction; every change of a source does this first."""
    row = db.row(SOURCE, source=source, lock=True)
    if row is None:
        raise UnknownSource(db.task, source)
    return STATE.of(row)


def move_source(db: TaskWriter, plan: Plan) -> None:
    """Store the ignored statements, sequences and shadow tables of a window, in its transaction."""
    for passed in plan.unread:
        row = {"statement": passed.text, "window": plan.number, "ignored_at": tables.NOW}
        db.insert(IGNORED_STATEMENT, {"source": plan.source, **location_columns(passed.location), **row})
    if plan.sequences is not None:
        _set_sequences(db, plan.source, plan.sequences)
    if plan.online_tables is not None:
        _set_online_tables(db, plan.source, plan.online_tables)


def _default_row(source: str, change: DefaultChange) -> dict[str, object]:
    default = change.default or SchemaDefault("")
    return {
        "source": source,
        "shard_schema": change.schema,
        **location_columns(change.location),
        "charset": default.charset,
        "collation": default.collation,
        "added_at": tables.NOW,
    }


def _set_sequences(db: TaskWriter, source: str, sequences: Iterable[TableId]) -> None:
    db.delete(SEQUENCE, source=source)
    rows = [{"source": source, "shard_schema": table.schema, "shard_table": table.name} for table in sorted(sequences)]
    db.insert_all(SEQUENCE, rows)


def _set_online_tables(db: TaskWriter, source: str, online_tables: Sequence[OnlineTable]) -> None:
    db.delete(ONLINE_DDL, source=source)
    rows = [
        {
            "source": source,
            "online_schema": shadow.table.schema,
            "online_name": shadow.table.name,
            "online_table": codec.dumps(shadow),
        }
        for shadow in online_tables
    ]
    db.insert_all(ONLINE_DDL, rows)
