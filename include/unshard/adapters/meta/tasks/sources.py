"""The sources of a task: identity, phase, P0 and P1, epoch; and their checkpoints."""

from typing import Any

from sqlalchemy import Connection, func, insert, select, update

from unshard.adapters.meta import tables
from unshard.adapters.meta.parts import ReadingPart, WritingPart
from unshard.adapters.meta.rows import AnyRow, location_columns, location_of
from unshard.core.model import Location
from unshard.core.task.state import Checkpoint, Phase, SourceState
from unshard.errors.meta import PhaseFellBack, UnknownSource

SOURCE, CHECKPOINT = tables.source, tables.checkpoint
FIRST_EPOCH = func.unix_timestamp() * 1000
"""A task that is removed and begun again must not reach the epochs of writers that survived the removal."""


class SourceReader(ReadingPart):
    """Rows of `source`."""

    def get(self, source: str) -> SourceState | None:
        """Return the source; None if the task has not recorded it."""
        with self._database.reading() as connection:
            row = connection.execute(self._one(source)).one_or_none()
        return _state(row) if row else None

    def all(self) -> tuple[SourceState, ...]:
        """Return all recorded sources by name."""
        query = select(SOURCE).where(SOURCE.c.task == self._database.task).order_by(SOURCE.c.source)
        with self._database.reading() as connection:
            return tuple(map(_state, connection.execute(query)))

    def _one(self, source: str) -> Any:
        return select(SOURCE).where(SOURCE.c.task == self._database.task, SOURCE.c.source == source)


class Sources(WritingPart, SourceReader):
    """Changes rows of `source`."""

    def add(self, source: str, identity: str, flavor: str) -> SourceState:
        """Record a source in phase NEW and return it; a recorded source stays unchanged."""
        with self._database.transaction() as connection:
            values = {
                "task": self._database.task,
                "source": source,
                "identity": identity,
                "flavor": flavor,
                "phase": Phase.NEW.value,
                "snapshot_gtid": "",
                "epoch": FIRST_EPOCH,
                "added_at": tables.NOW,
                "updated_at": tables.NOW,
            }
            connection.execute(insert(SOURCE).prefix_with("IGNORE").values(values))
            return _state(connection.execute(self._one(source)).one())

    def follow(self, source: str, identity: str) -> None:
        """Record that another server has replaced the source's server."""
        with self._database.transaction() as connection:
            lock_source(connection, self._database.task, source)
            mine = (SOURCE.c.task == self._database.task, SOURCE.c.source == source)
            connection.execute(update(SOURCE).where(*mine).values(identity=identity, updated_at=tables.NOW))

    def set_phase(
        self,
        source: str,
        phase: Phase,
        *,
        snapshot: Location | None = None,
        snapshot_gtid: str | None = None,
        dump_end: Location | None = None,
    ) -> SourceState:
        """Set the phase of a source and its locations; the same phase again changes only the locations."""
        with self._database.transaction() as connection:
            state = lock_source(connection, self._database.task, source)
            if phase.order < state.phase.order:
                raise PhaseFellBack(source, state.phase, phase)
            values: dict[str, Any] = {"phase": phase.value, "updated_at": tables.NOW}
            values |= location_columns(snapshot, "snapshot_") if snapshot else {}
            values |= {} if snapshot_gtid is None else {"snapshot_gtid": snapshot_gtid}
            values |= location_columns(dump_end, "dump_end_") if dump_end else {}
            connection.execute(
                update(SOURCE).where(SOURCE.c.task == self._database.task, SOURCE.c.source == source).values(values)
            )
            return _state(connection.execute(self._one(source)).one())


class CheckpointReader(ReadingPart):
    """Rows of `checkpoint`; the handover creates them, windows move them."""

    def get(self, source: str) -> Checkpoint | None:
        """Return the checkpoint of a source; None before the handover."""
        query = select(CHECKPOINT).where(CHECKPOINT.c.task == self._database.task, CHECKPOINT.c.source == source)
        with self._database.reading() as connection:
            row = connection.execute(query).one_or_none()
        if row is None:
            return None
        location, totals = Location(row.file, row.position), (row.windows, row.rows_applied)
        return Checkpoint(location, row.gtid, row.window, row.last_time, row.committed_at, *totals)


class Checkpoints(WritingPart, CheckpointReader):
    """Changes rows of `checkpoint`; the handover creates them, windows move them."""

    def start(self, source: str, location: Location, gtid: str = "") -> Checkpoint:
        """Set the first checkpoint and the phase SYNC in one transaction; an existing checkpoint stays."""
        with self._database.transaction() as connection:
            lock_source(connection, self._database.task, source)
            values = {
                "task": self._database.task,
                "source": source,
                **location_columns(location),
                "gtid": gtid,
                "window": 0,
                "last_time": 0,
                "windows": 0,
                "rows_applied": 0,
                "paces": "",
                "committed_at": tables.NOW,
            }
            connection.execute(insert(CHECKPOINT).prefix_with("IGNORE").values(values))
            mine = (SOURCE.c.task == self._database.task, SOURCE.c.source == source)
            connection.execute(update(SOURCE).where(*mine).values(phase=Phase.SYNC.value, updated_at=tables.NOW))
        found = self.get(source)
        assert found is not None
        return found


def lock_source(connection: Connection, task: str, source: str) -> SourceState:
    """Lock the source's row until the end of the transaction; every change of a source does this first."""
    query = select(SOURCE).where(SOURCE.c.task == task, SOURCE.c.source == source).with_for_update()
    row = connection.execute(query).one_or_none()
    if row is None:
        raise UnknownSource(task, source)
    return _state(row)


def _state(row: AnyRow) -> SourceState:
    return SourceState(
        row.source,
        row.identity,
        row.flavor,
        Phase(row.phase),
        location_of(row, "snapshot_"),
        location_of(row, "dump_end_"),
        row.epoch,
        row.added_at,
        row.snapshot_gtid,
    )
