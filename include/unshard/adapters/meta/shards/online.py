"""Shadow tables of online-DDL tools at the checkpoint; they change in the transaction that commits a window."""

from collections.abc import Sequence

from sqlalchemy import Connection, delete, insert, select

from unshard.adapters.meta import tables
from unshard.adapters.meta.parts import ReadingPart, WritingPart
from unshard.adapters.meta.rows import read
from unshard.core import codec
from unshard.core.ddl.online import OnlineTable, OnlineTables
from unshard.core.window.plan import Plan

ONLINE_DDL = tables.online_ddl


class OnlineReader(ReadingPart):
    """Rows of `online_ddl`."""

    def of(self, source: str) -> OnlineTables:
        """Return the shadow tables of a source."""
        query = (
            select(ONLINE_DDL)
            .where(ONLINE_DDL.c.task == self._task, ONLINE_DDL.c.source == source)
            .order_by(ONLINE_DDL.c.online_schema, ONLINE_DDL.c.online_name)
        )
        with self._database.reading() as connection:
            return tuple(
                read(OnlineTable, row.online_table, f"the online DDL of {source}") for row in connection.execute(query)
            )


class Online(WritingPart, OnlineReader):
    """Changes rows of `online_ddl`."""

    def begin(self, source: str, online_tables: Sequence[OnlineTable]) -> None:
        """Set the shadow tables that a snapshot has found."""
        with self._database.transaction() as connection:
            _set(connection, self._task, source, online_tables)


def move_online(connection: Connection, task: str, plan: Plan) -> None:
    """Store the result of a window, in its transaction."""
    if plan.online_tables is not None:
        _set(connection, task, plan.source, plan.online_tables)


def _set(connection: Connection, task: str, source: str, online_tables: Sequence[OnlineTable]) -> None:
    connection.execute(delete(ONLINE_DDL).where(ONLINE_DDL.c.task == task, ONLINE_DDL.c.source == source))
    rows = [
        {
            "task": task,
            "source": source,
            "online_schema": online_table.table.schema,
            "online_name": online_table.table.name,
            "online_table": codec.dumps(online_table),
        }
        for online_table in online_tables
    ]
    if rows:
        connection.execute(insert(ONLINE_DDL), rows)
