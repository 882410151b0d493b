"""The rules that the windows of each source use, taken from the task file."""

from sqlalchemy import select
from sqlalchemy.dialects.mysql import insert

from unshard.adapters.meta import tables
from unshard.adapters.meta.parts import ReadingPart, WritingPart
from unshard.adapters.meta.rows import location_columns, read
from unshard.core import codec
from unshard.core.model import Location
from unshard.core.window.rulechanges import Rules

RULES = tables.rules


class RulesReader(ReadingPart):
    """Rows of `rules`."""

    def get(self, source: str) -> Rules:
        """Return the rules of a source, which must exist."""
        with self._database.reading() as connection:
            text = connection.scalar(select(RULES.c.body).where(RULES.c.task == self._task, RULES.c.source == source))
        return read(Rules, str(text), f"the rules of {source}")


class RulesInForce(WritingPart, RulesReader):
    """Changes rows of `rules`."""

    def put(self, source: str, digest: str, rules: Rules, begins: Location) -> None:
        """Set the rules that apply from a location on."""
        row = {"digest": digest, "body": codec.dumps(rules), **location_columns(begins), "adopted_at": tables.NOW}
        values = {"task": self._task, "source": source, **row}
        with self._database.transaction() as connection:
            connection.execute(insert(RULES).values(values).on_duplicate_key_update(row))
