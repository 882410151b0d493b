"""A row of `load_chunk` in the transaction that loads the rows of the chunk; runs in executors."""

from dataclasses import dataclass

from pymysql.connections import Connection

from unshard.adapters import mysql
from unshard.core.model import TableId
from unshard.core.task.state import ChunkState

OURS = "WHERE task = %s AND id = %s"


@dataclass(frozen=True, slots=True)
class ChunkRow:
    """Names a row of `load_chunk`."""

    meta_schema: str
    task: str
    chunk: int

    @property
    def table(self) -> str:
        """The quoted name of `load_chunk`."""
        return mysql.table_name(TableId(self.meta_schema, "load_chunk"))


def lock(connection: Connection, row: ChunkRow) -> ChunkState | None:
    """Lock the row until the end of the transaction; return the chunk's state, None if the row does not exist."""
    sql = f"SELECT state FROM {row.table} {OURS} FOR UPDATE"  # noqa: S608
    rows = mysql.query(connection, sql, (row.task, row.chunk))
    return ChunkState(rows[0][0]) if rows else None


def mark_loaded(connection: Connection, row: ChunkRow, rows: int, millis: int) -> None:
    """Record that the rows of the chunk are in the target, and how long the load has taken."""
    sql = (
        f"UPDATE {row.table} SET state = %s, loaded_rows = %s, load_millis = %s, loaded_at = UTC_TIMESTAMP(6),"  # noqa: S608
        f" updated_at = UTC_TIMESTAMP(6) {OURS}"
    )
    mysql.query(connection, sql, (ChunkState.LOADED.value, rows, millis, row.task, row.chunk))
    under_way = mysql.table_name(TableId(row.meta_schema, "load_progress"))
    mysql.query(connection, f"DELETE FROM {under_way} WHERE task = %s AND chunk = %s", (row.task, row.chunk))  # noqa: S608


def mark_dumped(connection: Connection, row: ChunkRow) -> None:
    """Record that the rows of the chunk were removed from the target."""
    sql = f"UPDATE {row.table} SET state = %s, loaded_rows = 0, updated_at = UTC_TIMESTAMP(6) {OURS}"  # noqa: S608
    mysql.query(connection, sql, (ChunkState.DUMPED.value, row.task, row.chunk))
