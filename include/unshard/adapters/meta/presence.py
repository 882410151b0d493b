"""Who works on a task now: a named lock of the target per place, held by a connection that dies with its process.

It keeps nobody out: a second process at the same place works without the lock (epochs keep the two apart). It
only tells whoever wants to remove a task that somebody is at it.
"""

import contextlib
import hashlib
from collections.abc import Iterable, Iterator

from pymysql.connections import Connection

from unshard.adapters import mysql
from unshard.adapters.kept import Kept
from unshard.adapters.meta.database import MetaDatabase
from unshard.errors.source import ServerError


def window_of(source: str) -> str:
    """Name the place of whoever runs a window."""
    return f"a window of {source}"


def dump_of(source: str) -> str:
    """Name the place of whoever dumps."""
    return f"the dump of {source}"


def load_of(source: str) -> str:
    """Name the place of whoever loads."""
    return f"the load of {source}"


class Presence:
    """Named locks of one task."""

    def __init__(self, database: MetaDatabase) -> None:
        self._database = database
        self._kept = Kept(self._connect)

    @contextlib.contextmanager
    def at(self, place: str) -> Iterator[None]:
        """Be seen at a place (`window of s1`) for the block."""
        name = (self._name(place),)
        with self._kept.lent(lambda connection: mysql.query(connection, "SELECT GET_LOCK(%s, 0)", name)) as connection:
            try:
                yield
            finally:
                # A server takes its time to notice that a connection is closed, and a removal would wait for that.
                with contextlib.suppress(ServerError):
                    mysql.query(connection, "SELECT RELEASE_LOCK(%s)", name)

    def seen(self, places: Iterable[str]) -> tuple[str, ...]:
        """Return those of the places at which somebody is."""
        with self._kept.lent() as connection:
            return tuple(place for place in places if self._is_held(connection, place))

    def close(self) -> None:
        """Close the connections that were kept."""
        self._kept.close()

    def _connect(self) -> Connection:
        return mysql.connect(self._database.server, "target (meta tables)")

    def _is_held(self, connection: Connection, place: str) -> bool:
        ((holder,),) = mysql.query(connection, "SELECT IS_USED_LOCK(%s)", (self._name(place),))
        return holder is not None

    def _name(self, place: str) -> str:
        said = "\x00".join((self._database.schema, self._database.task, place))
        return f"unshard_at_{hashlib.sha256(said.encode()).hexdigest()[:32]}"
