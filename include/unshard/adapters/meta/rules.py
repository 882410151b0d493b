"""The rules by which the windows of each source run, as they were taken from the task file."""

from sqlalchemy import select
from sqlalchemy.dialects.mysql import insert

from unshard.adapters.meta import tables
from unshard.adapters.meta.database import MetaDatabase
from unshard.adapters.meta.rows import location_columns, read
from unshard.core import codec
from unshard.core.model import Location
from unshard.core.rules import Rules

R = tables.rules


class RulesInForce:
    """Rows of `rules`."""

    def __init__(self, database: MetaDatabase) -> None:
        self._database = database
        self._task = database.task

    def get(self, source: str) -> Rules:
        """Return the rules of a source; there must be some."""
        with self._database.reading() as connection:
            text = connection.scalar(select(R.c.body).where(R.c.task == self._task, R.c.source == source))
        return read(Rules, str(text), f"the rules of {source}")

    def put(self, source: str, digest: str, rules: Rules, begins: Location) -> None:
        """Let these rules be in force from a location on."""
        row = {"digest": digest, "body": codec.dumps(rules), **location_columns(begins), "adopted_at": tables.NOW}
        values = {"task": self._task, "source": source, **row}
        with self._database.transaction() as connection:
            connection.execute(insert(R).values(values).on_duplicate_key_update(row))
