"""The active workers of a task: each holds a named lock of the target, on a connection that ends with its process.

The locks do not exclude anything: a second process with the same work runs without the lock, and epochs separate the
two. They only show the removal of a task that a worker is active.
"""

import contextlib
import hashlib
from collections.abc import Iterable, Iterator

from unshard.adapters import mysql, namedlocks
from unshard.adapters.connectionpool import ConnectionPool
from unshard.adapters.meta.database import WHERE, MetaDatabase, Records
from unshard.errors.base import ServerError


def window_of(source: str) -> str:
    """Return the name of the work of a window."""
    return f"a window of {source}"


def live_run_of(source: str) -> str:
    """Return the name of the work of a live run."""
    return f"a live run of {source}"


def dump_of(source: str) -> str:
    """Return the name of the work of a dump."""
    return f"the dump of {source}"


def load_of(source: str) -> str:
    """Return the name of the work of a load."""
    return f"the load of {source}"


class ActiveWorkers(Records):
    """Named locks of one task."""

    def __init__(self, database: MetaDatabase) -> None:
        super().__init__(database)
        self._kept = ConnectionPool(lambda: mysql.connect(database.server, WHERE))

    @contextlib.contextmanager
    def at(self, place: str) -> Iterator[bool]:
        """Hold the lock of some work (`a window of s1`) for the block; False: another process holds it."""
        name, taken = self._name(place), list[bool]()
        with self._kept.lent(lambda connection: taken.append(namedlocks.take(connection, name, 0))) as connection:
            try:
                yield taken[-1]
            finally:
                # The server may notice late that a connection is closed, and a removal would wait for that.
                with contextlib.suppress(ServerError):
                    namedlocks.release(connection, name)

    def seen(self, places: Iterable[str]) -> tuple[str, ...]:
        with self._kept.lent() as connection:
            return tuple(place for place in places if namedlocks.are_held(connection, [self._name(place)])[0])

    def close(self) -> None:
        self._kept.close()

    def _name(self, place: str) -> str:
        said = "\x00".join((self._db.schema, self._db.task, place))
        return f"unshard_at_{hashlib.sha256(said.encode()).hexdigest()[:32]}"
