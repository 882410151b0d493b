"""The cutover of a task: one row, which `abort` removes."""

from unshard.adapters.meta import tables
from unshard.adapters.meta.database import Records
from unshard.adapters.meta.rowvalues import read_stored
from unshard.core import codec
from unshard.core.model import Location
from unshard.core.validate.cutoverstate import CutoverPhase, SourceSettings, StoredCutover

CUTOVER = tables.cutover
Checkpoints = tuple[tuple[str, Location], ...]


class Cutovers(Records):
    """The row of `cutover`."""

    def get(self) -> StoredCutover | None:
        row = self._db.row(CUTOVER)
        if row is None:
            return None
        return StoredCutover(
            CutoverPhase(row.phase),
            row.number,
            dict(read_stored(Checkpoints, row.checkpoints, "the checkpoints of the cutover")),
            read_stored(tuple[SourceSettings, ...], row.changed, "the variables of sources"),
            row.read_only_at,
            row.certificate,
        )

    def put(self, cutover: StoredCutover) -> None:
        row = {
            "phase": cutover.phase,
            "number": cutover.number,
            "checkpoints": codec.dumps((*cutover.checkpoints.items(),)),
            "changed": codec.dumps(cutover.changed),
            "read_only_at": cutover.read_only_at,
            "certificate": cutover.certificate,
            "changed_at": tables.NOW,
        }
        with self._db.transaction() as db:
            db.put(CUTOVER, {}, row)

    def remove(self) -> None:
        with self._db.transaction() as db:
            db.delete(CUTOVER)
