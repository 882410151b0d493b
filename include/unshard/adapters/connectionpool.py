"""A pool of connections: opening one takes too long for a single query of a window."""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from math import inf

import pymysql
from pymysql.connections import Connection
from pymysql.constants import SERVER_STATUS

from unshard.adapters import mysql
from unshard.errors.source import ConnectionLost

Trial = Callable[[Connection], object]
"""The first use of a connection. If the connection was lost, it runs again on another one."""


def ping(connection: Connection) -> None:
    """Test whether the server still answers on the connection."""
    with mysql.coded_errors(connection, "ping"):
        connection.ping(reconnect=False)


class ConnectionPool:
    """Lends each connection to one thread at a time; a forked process ignores its parent's connections.

    It keeps at most `most` idle connections, and none that is older than `seconds`.
    """

    def __init__(self, connect: Callable[[], Connection], most: int = sys.maxsize, seconds: float = inf) -> None:
        self._connect, self._most, self._seconds = connect, most, seconds
        self._idle: list[tuple[Connection, float]] = []
        """With the time when each was opened."""
        self._process = os.getpid()
        self._changing = threading.Lock()

    @contextlib.contextmanager
    def lent(self, trial: Trial = ping) -> Iterator[Connection]:
        """Lend a connection on which `trial` has run; it is closed if its block raises or leaves a transaction open.

        A trial that the block needs anyway saves the round trip of a ping.
        """
        connection, opened = self._tried(trial)
        try:
            yield connection
        except BaseException:
            _close(connection)
            raise
        with self._changing:
            idle = [*self._idle, (connection, opened)]
            self._idle = [each for each in idle if self._is_fit(*each)][-self._most :]
            left_out = [each for each in idle if each not in self._idle]
        for each, _ in left_out:
            _close(each)

    def close(self) -> None:
        while found := self._next():
            _close(found[0])

    def _tried(self, trial: Trial) -> tuple[Connection, float]:
        """Return the first idle connection that is not lost, else a new one; with the time when it was opened."""
        while found := self._next():
            if self._is_fit(*found):
                with contextlib.suppress(pymysql.err.Error, ConnectionLost):
                    return _used(found[0], trial), found[1]
            else:
                _close(found[0])
        return _used(self._connect(), trial), time.monotonic()

    def _is_fit(self, connection: Connection, opened: float) -> bool:
        is_in_transaction = connection.server_status & SERVER_STATUS.SERVER_STATUS_IN_TRANS
        return not is_in_transaction and time.monotonic() - opened <= self._seconds

    def _next(self) -> tuple[Connection, float] | None:
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
