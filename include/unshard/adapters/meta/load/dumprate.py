"""The rate limit of a dump, which readers in several processes and on several machines share."""

from sqlalchemy import func, insert, select, update
from sqlalchemy.dialects.mysql import DOUBLE

from unshard.adapters.meta import tables
from unshard.adapters.meta.parts import ReadingPart, WritingPart
from unshard.adapters.meta.rows import matches
from unshard.core.full.progress import take

DUMP_RATE = tables.dump_rate


class RateReader(ReadingPart):
    """Rows of `dump_rate`, with the clock of the target."""

    def taken(self, source: str) -> tuple[int, float]:
        """Return how many bytes were read under a limit and how many seconds readers have waited."""
        mine = matches(DUMP_RATE, {"task": self._database.task, "source": source})
        with self._database.reading() as connection:
            row = connection.execute(select(DUMP_RATE.c.bytes, DUMP_RATE.c.waited).where(mine)).one_or_none()
            return (int(row.bytes), float(row.waited)) if row else (0, 0.0)


class Rates(WritingPart, RateReader):
    """Changes rows of `dump_rate`, with the clock of the target."""

    def begin(self, source: str) -> None:
        """Create the row of the source unless it exists; readers lock it."""
        row = {"task": self._database.task, "source": source, "paid": 0, "bytes": 0, "waited": 0}
        with self._database.transaction() as connection:
            connection.execute(insert(DUMP_RATE).prefix_with("IGNORE").values(row))

    def take(self, source: str, size: int, rate: int) -> float:
        """Record that `size` bytes were read; return how many seconds the reader must wait."""
        mine = matches(DUMP_RATE, {"task": self._database.task, "source": source})
        clock = func.unix_timestamp(func.now(6), type_=DOUBLE())
        with self._database.transaction() as connection:
            row = connection.execute(select(DUMP_RATE.c.paid, clock.label("now")).where(mine).with_for_update()).one()
            paid, wait = take(row.paid, float(row.now), size, rate)
            taken = {"paid": paid, "bytes": DUMP_RATE.c.bytes + size, "waited": DUMP_RATE.c.waited + wait}
            connection.execute(update(DUMP_RATE).where(mine).values(taken))
            return wait
