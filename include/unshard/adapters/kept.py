"""Connections that stay open between uses: a window is too short to open one for a single question."""

import contextlib
import os
import threading
from collections.abc import Callable, Iterator

import pymysql
from pymysql.connections import Connection


class Kept:
    """Lends connections to threads, each to one at a time; forked processes leave those of their parent alone."""

    def __init__(self, connect: Callable[[], Connection]) -> None:
        self._connect = connect
        self._idle: list[Connection] = []
        self._process = os.getpid()
        self._changing = threading.Lock()

    @contextlib.contextmanager
    def lent(self) -> Iterator[Connection]:
        """Lend a connection that answers; one whose block fails is closed."""
        connection = self._taken() or self._connect()
        try:
            yield connection
        except BaseException:
            _close(connection)
            raise
        with self._changing:
            self._idle.append(connection)

    def close(self) -> None:
        """Close what is idle; another use opens a new one."""
        while connection := self._next():
            _close(connection)

    def _taken(self) -> Connection | None:
        while connection := self._next():
            try:
                connection.ping(reconnect=False)
            except pymysql.err.Error:
                _close(connection)
            else:
                return connection
        return None

    def _next(self) -> Connection | None:
        with self._changing:
            if self._process != os.getpid():
                self._process, self._idle = os.getpid(), []
            return self._idle.pop() if self._idle else None


def _close(connection: Connection) -> None:
    with contextlib.suppress(pymysql.err.Error):
        connection.close()
