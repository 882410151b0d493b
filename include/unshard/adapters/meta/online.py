"""The tables by which tools change shards online, at the checkpoint: they move with the windows."""

from collections.abc import Sequence

from sqlalchemy import Connection, delete, insert, select

from unshard.adapters.meta import tables
from unshard.adapters.meta.database import MetaDatabase
from unshard.adapters.meta.rows import read
from unshard.core import codec
from unshard.core.online import Ghost, Ghosts
from unshard.core.window import Plan

G = tables.online_ddl


class Online:
    """Rows of `online_ddl`."""

    def __init__(self, database: MetaDatabase) -> None:
        self._database = database
        self._task = database.task

    def of(self, source: str) -> Ghosts:
        """Return the tables of tools on a source."""
        query = (
            select(G).where(G.c.task == self._task, G.c.source == source).order_by(G.c.ghost_schema, G.c.ghost_table)
        )
        with self._database.reading() as connection:
            return tuple(read(Ghost, row.ghost, f"the online DDL of {source}") for row in connection.execute(query))

    def begin(self, source: str, ghosts: Sequence[Ghost]) -> None:
        """Set those that a snapshot has seen."""
        with self._database.transaction() as connection:
            _set(connection, self._task, source, ghosts)


def move_online(connection: Connection, task: str, plan: Plan) -> None:
    """Take over what a window has found, in its transaction."""
    if plan.ghosts is not None:
        _set(connection, task, plan.source, plan.ghosts)


def _set(connection: Connection, task: str, source: str, ghosts: Sequence[Ghost]) -> None:
    connection.execute(delete(G).where(G.c.task == task, G.c.source == source))
    rows = [{"task": task, "source": source, "ghost_schema": ghost.table.schema, "ghost_table": ghost.table.name,
             "ghost": codec.dumps(ghost)} for ghost in ghosts]  # fmt: skip
    if rows:
        connection.execute(insert(G), rows)
