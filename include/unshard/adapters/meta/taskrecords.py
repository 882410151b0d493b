"""The task itself: its pause state, last prechecks and write path, the files it needs, its active workers, its removal.

Each active worker of a task holds a named lock of the target, on a connection that ends with its process. The locks do
not exclude anything: a second process with the same work runs without the lock, and epochs separate the two. They only
show the removal of a task that a worker is active.
"""

import contextlib
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import compress

from sqlalchemy import select, union_all

from unshard.adapters import mysql, serverstate
from unshard.adapters.connectionpool import ConnectionPool
from unshard.adapters.meta import tables
from unshard.adapters.meta.commandrecords import record_command
from unshard.adapters.meta.database import WHERE, MetaDatabase, Records
from unshard.adapters.meta.gateway import TaskReader
from unshard.adapters.meta.rowvalues import read_stored, target_name
from unshard.core import codec
from unshard.core.checks.items import Item
from unshard.core.ddl.issuedcommands import IssuedCommand
from unshard.core.model import TableId
from unshard.core.rows.writepath import LoadData, Writing
from unshard.core.sql import lastwrites
from unshard.core.task.state import ChunkState, PauseKind, PauseState
from unshard.core.validate.cutoverstate import CutoverPhase
from unshard.errors.base import ServerError
from unshard.errors.meta import TaskPaused

PAUSE, PRECHECK, WRITE_PATH, SOURCE, FENCE = (
    tables.pause,
    tables.precheck,
    tables.write_path,
    tables.source,
    tables.fence,
)
SHARD, HELD_ROWS, LOAD_CHUNK = tables.shard, tables.held_rows, tables.load_chunk
OF_TASKS = tuple(table for table in tables.metadata.tables.values() if "task" in table.c)
WHOLE_TASK = ""
"""The value of `lock_id` for commands about the whole task."""
RESUME = "resume"


@dataclass(frozen=True, slots=True)
class StoredPrechecks:
    """All items of the last prechecks."""

    items: tuple[Item, ...]
    at: datetime


class PauseStates(Records):
    """The row of `pause`, and the rows of `operator_action` that are about the whole task.

    The row is read in the transaction that begins a window, so no window begins after a pause has returned.
    """

    def get(self) -> PauseState | None:
        return halted(self._db)

    def refuse(self) -> None:
        refuse_paused(self._db)

    def pause(self, kind: PauseKind, command: IssuedCommand) -> bool:
        """Pause or stop the task; return False, and change nothing, if it already is."""
        row = {"kind": kind, "who": command.by, "via": command.via, "reason": command.reason, "paused_at": tables.NOW}
        with self._db.transaction() as db:
            # A window that begins locks the row of its source, so the pause comes before or after the whole beginning.
            db.select(SOURCE, lock=True)
            found = halted(db)
            if found is not None and (found.kind is kind or found.kind is PauseKind.STOPPED):
                return False
            db.put(PAUSE, {}, row)
            record_command(db, WHOLE_TASK, command)
        return True

    def resume(self, command: IssuedCommand) -> bool:
        """Let the task go on; a cutover that was done is not valid any more."""
        with self._db.transaction() as db:
            changed = bool(db.delete(PAUSE))
            db.delete(tables.cutover, phase=CutoverPhase.DONE)
            if changed:
                record_command(db, WHOLE_TASK, command)
        return changed

    def record(self, command: IssuedCommand) -> None:
        with self._db.transaction() as db:
            record_command(db, WHOLE_TASK, command)


class Prechecks(Records):
    """The row of `precheck`."""

    def last(self) -> StoredPrechecks | None:
        row = self._db.row(PRECHECK)
        if row is None:
            return None
        return StoredPrechecks(read_stored(tuple[Item, ...], row.items, "the last prechecks"), row.checked_at)

    def store(self, items: tuple[Item, ...]) -> None:
        with self._db.transaction() as db:
            db.put(PRECHECK, {}, {"items": codec.dumps(items), "checked_at": tables.NOW})


class WritePaths(Records):
    """The row of `write_path`: of the last process that wrote rows. `status` reads it instead of making a trial."""

    def last(self) -> Writing | None:
        """Return the result of the last trial; None if no process has written rows."""
        row = self._db.row(WRITE_PATH)
        return Writing(LoadData[row.load_data], row.processors, bool(row.bulk)) if row else None

    def record(self, writing: Writing) -> None:
        newer = {
            "load_data": writing.load_data.name,
            "processors": writing.processors,
            "bulk": writing.bulk,
            "tried_at": tables.NOW,
        }
        with self._db.transaction() as db:
            db.put(WRITE_PATH, {}, newer)


class StoredFiles(Records):
    """The files of the storage path that the meta tables name: held rows, and dumped chunks that are not loaded."""

    def named(self, *, dumped: bool) -> frozenset[str]:
        """Return their paths relative to the storage path; with those of the dump if the task loads them."""
        queries = [select(HELD_ROWS.c.path).where(self._db.mine(HELD_ROWS))]
        if dumped:
            waiting = self._db.mine(LOAD_CHUNK, LOAD_CHUNK.c.path != "", state=ChunkState.DUMPED)
            queries.append(select(LOAD_CHUNK.c.path).where(waiting))
        return frozenset(path for (path,) in self._db.fetch(union_all(*queries)))


class Removal(Records):
    """Removes all rows of a task in one transaction.

    The epochs are raised first. A writer that was given up for dead finds no fence, or one of a later task of that
    name, whose epochs are higher than all of this one (see Sources.add).
    """

    def targets(self) -> tuple[TableId, ...]:
        """Return the targets that the task has written to or prepared."""
        return tuple(sorted({TableId(*row) for row in self._db.select(SHARD, only=target_name(SHARD))}))

    def count(self) -> int:
        return sum(map(self._db.count, OF_TASKS))

    def remove(self, schemas: Iterable[str] = ()) -> int:
        """Delete all rows of the task, and its last writes in these target schemas; return the number of rows."""
        with self._db.transaction() as db:
            db.select(SOURCE, lock=True)
            for table in (SOURCE, FENCE):
                db.update(table, {"epoch": table.c.epoch + 1})
            for schema in schemas:
                forget = lastwrites.delete_copies(schema.replace("%", "%%"))
                db.connection.exec_driver_sql(forget, (self._db.schema, db.task, schema))
            return sum(map(db.delete, OF_TASKS))


def halted(db: TaskReader) -> PauseState | None:
    """Return the pause state of the task."""
    row = db.row(PAUSE)
    return PauseState(PauseKind(row.kind), row.who, row.via, row.reason, row.paused_at) if row else None


def refuse_paused(db: TaskReader) -> None:
    """Raise TaskPaused if the task is paused or stopped."""
    pause = halted(db)
    if pause is not None:
        raise TaskPaused(db.task, str(pause))


def window_of(source: str) -> str:
    """Return the name of the work of a window."""
    return f"a window of {source}"


def live_run_of(source: str) -> str:
    """Return the name of the work of a live run."""
    return f"a live run of {source}"


def dump_of(source: str) -> str:
    """Return the name of the work of a dump."""
    return f"the dump of {source}"


def load_of(source: str) -> str:
    """Return the name of the work of a load."""
    return f"the load of {source}"


class ActiveWorkers(Records):
    """Named locks of one task."""

    def __init__(self, database: MetaDatabase) -> None:
        super().__init__(database)
        self._kept = ConnectionPool(lambda: mysql.connect(database.server, WHERE))

    @contextlib.contextmanager
    def at(self, place: str) -> Iterator[bool]:
        """Hold the lock of some work (`a window of s1`) for the block; False: another process holds it."""
        name, taken = self._name(place), list[bool]()
        with self._kept.lent(lambda connection: taken.append(serverstate.take_lock(connection, name, 0))) as connection:
            try:
                yield taken[-1]
            finally:
                # The server may notice late that a connection is closed, and a removal would wait for that.
                with contextlib.suppress(ServerError):
                    serverstate.release_lock(connection, name)

    def seen(self, places: Sequence[str]) -> tuple[str, ...]:
        with self._kept.lent() as connection:
            held = serverstate.are_locks_held(connection, [*map(self._name, places)])
        return tuple(compress(places, held))

    def close(self) -> None:
        self._kept.close()

    def _name(self, place: str) -> str:
        said = "\x00".join((self._db.schema, self._db.task, place))
        return f"unshard_at_{hashlib.sha256(said.encode()).hexdigest()[:32]}"
