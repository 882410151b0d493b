"""The files of the storage path that the meta tables name: held rows, and dumped chunks that are not loaded."""

from sqlalchemy import select, union_all

from unshard.adapters.meta import tables
from unshard.adapters.meta.parts import ReadingPart
from unshard.core.task.state import ChunkState

HELD, CHUNK = tables.held_rows, tables.load_chunk


class StoredFiles(ReadingPart):
    """Names of files that must exist."""

    def named(self, *, dumped: bool) -> frozenset[str]:
        """Return their paths relative to the storage path; with those of the dump if the task loads them."""
        queries = [select(HELD.c.path).where(HELD.c.task == self._task)]
        if dumped:
            waiting = CHUNK.c.state == ChunkState.DUMPED.value, CHUNK.c.path != ""
            queries.append(select(CHUNK.c.path).where(CHUNK.c.task == self._task, *waiting))
        with self._database.reading() as connection:
            return frozenset(path for (path,) in connection.execute(union_all(*queries)))
