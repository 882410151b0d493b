"""A pool of connections: opening one takes too long for a single query of a window."""

import contextlib
import os
import threading
from collections.abc import Callable, Iterator

import pymysql
from pymysql.connections import Connection

from unshard.adapters import mysql
from unshard.errors.source import ConnectionLost

Trial = Callable[[Connection], object]
"""The first use of a connection. If the connection was lost, it runs again on another one."""


def ping(connection: Connection) -> None:
    """Test whether the server still answers on the connection."""
    with mysql.coded_errors(connection, "ping"):
        connection.ping(reconnect=False)


class ConnectionPool:
    """Lends each connection to one thread at a time; a forked process ignores its parent's connections."""

    def __init__(self, connect: Callable[[], Connection]) -> None:
        self._connect = connect
        self._idle: list[Connection] = []
        self._process = os.getpid()
        self._changing = threading.Lock()

    @contextlib.contextmanager
    def lent(self, trial: Trial = ping) -> Iterator[Connection]:
        """Lend a connection on which `trial` has run; a connection whose block raises is closed.

        A trial that the block needs anyway saves the round trip of a ping.
        """
        connection = self._tried(trial)
        try:
            yield connection
        except BaseException:
            _close(connection)
            raise
        with self._changing:
            self._idle.append(connection)

    def close(self) -> None:
        """Close the idle connections; the next use opens a new one."""
        while connection := self._next():
            _close(connection)

    def _tried(self, trial: Trial) -> Connection:
        """Return the first idle connection that is not lost, else a new one."""
        while connection := self._next():
            with contextlib.suppress(pymysql.err.Error, ConnectionLost):
                return _used(connection, trial)
        return _used(self._connect(), trial)

    def _next(self) -> Connection | None:
        with self._changing:
            if self._process != os.getpid():
                self._process, self._idle = os.getpid(), []
            return self._idle.pop() if self._idle else None


def _close(connection: Connection) -> None:
    with contextlib.suppress(pymysql.err.Error):
        connection.close()


def _used(connection: Connection, trial: Trial) -> Connection:
    try:
        trial(connection)
    except BaseException:
        _close(connection)
        raise
    return connection
