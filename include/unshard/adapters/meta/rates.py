"""What the readers of a source have taken of the rate of its dump; they are in several processes, maybe machines."""

from sqlalchemy import func, insert, select, update
from sqlalchemy.dialects.mysql import DOUBLE

from unshard.adapters.meta import tables
from unshard.adapters.meta.database import MetaDatabase
from unshard.adapters.meta.rows import matches
from unshard.core.ratelimit import take

R = tables.dump_rate


class Rates:
    """Rows of `dump_rate`; the clock is the target's."""

    def __init__(self, database: MetaDatabase) -> None:
        self._database = database

    def begin(self, source: str) -> None:
        """See that the source has its row, so that readers need only lock it; what was taken stays taken."""
        row = {"task": self._database.task, "source": source, "paid": 0, "bytes": 0, "waited": 0}
        with self._database.transaction() as connection:
            connection.execute(insert(R).prefix_with("IGNORE").values(row))

    def take(self, source: str, size: int, rate: int) -> float:
        """Note that so many bytes were read; return for how many seconds to wait."""
        mine = matches(R, {"task": self._database.task, "source": source})
        clock = func.unix_timestamp(func.now(6), type_=DOUBLE())
        with self._database.transaction() as connection:
            row = connection.execute(select(R.c.paid, clock.label("now")).where(mine).with_for_update()).one()
            paid, wait = take(row.paid, float(row.now), size, rate)
            taken = {"paid": paid, "bytes": R.c.bytes + size, "waited": R.c.waited + wait}
            connection.execute(update(R).where(mine).values(taken))
            return wait

    def taken(self, source: str) -> tuple[int, float]:
        """Return how many bytes were read under a limit, and for how many seconds readers were made to wait."""
        mine = matches(R, {"task": self._database.task, "source": source})
        with self._database.reading() as connection:
            row = connection.execute(select(R.c.bytes, R.c.waited).where(mine)).one_or_none()
            return (int(row.bytes), float(row.waited)) if row else (0, 0.0)
