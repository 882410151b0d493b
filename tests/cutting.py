"""Interrupt the work of a window: split it into small transactions, or cut its connection at a COMMIT."""

import contextlib
import dataclasses
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from tests.tidbsettings import is_tidb
from unshard.adapters.target import apply, applyinorder, fencesteps
from unshard_demo.servers import MariaDb

COMMIT = b"\x03COMMIT"
LOOKUP = b"\x03SELECT 1 FROM"
"""The search for a key that is taken; the locks of the write before it are released."""
PATIENCE_SECONDS = 900


def bound_transactions(patch: pytest.MonkeyPatch, bounds: fencesteps.Bounds) -> None:
    """Cut windows into transactions of this size, on every target."""
    for module in (apply, applyinorder):
        patch.setattr(module, "bounds_of", lambda _: bounds)


def waiting_sessions(server: MariaDb) -> list[int]:
    """Return the ids of the server's sessions that wait for a lock of another one."""
    sql = "SELECT trx_mysql_thread_id FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"
    if is_tidb(server):
        sql = "SELECT session_id FROM information_schema.tidb_trx WHERE state = 'LockWaiting'"
    return [int(str(row[0])) for row in server.run(sql)]


def open_transactions(server: MariaDb) -> int:
    """Return the number of open transactions."""
    table = "tidb_trx WHERE session_id <> CONNECTION_ID()" if is_tidb(server) else "innodb_trx"
    ((count,),) = server.run(f"SELECT COUNT(*) FROM information_schema.{table}")
    return int(str(count))


class Way:
    """A connection between client and server that breaks at a COMMIT: before it arrives, or before its answer does.

    It forwards bytes in both directions, packet by packet towards the server, and breaks at the COMMIT with that
    number. With `meanwhile` it calls this function instead of breaking, and forwards the statement, which may be
    another one than COMMIT. A `torn` answer breaks in its middle.
    """

    def __init__(
        self,
        port: int,
        arrives: bool,
        number: int,
        meanwhile: Callable[[], None] | None = None,
        statement: bytes | tuple[bytes, ...] = COMMIT,
        torn: bool = False,
    ) -> None:
        self._to, self._arrives, self._left, self._statement = port, arrives, number, statement
        self._meanwhile, self._torn = meanwhile, torn
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._sockets, self._threads = [self._listening], list[threading.Thread]()
        self.port = int(self._listening.getsockname()[1])
        self.broken, self.answered = threading.Event(), threading.Event()
        self._run(self._accept)

    def close(self) -> None:
        # `close` does not close a socket that another thread reads: the other side would not notice.
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for each in self._sockets:
            each.close()

    def _run(self, work: Callable[..., None], *given: object) -> None:
        self._threads.append(threading.Thread(target=work, args=given))
        self._threads[-1].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = socket.create_connection(("127.0.0.1", self._to))
                self._sockets += [client, server]
                silent = threading.Event()
                self._run(self._answer, server, client, silent)
                self._run(self._ask, client, server, silent)

    def _ask(self, client: socket.socket, server: socket.socket, silent: threading.Event) -> None:
        try:
            with contextlib.suppress(OSError, EOFError):
                self._forward(client, server, silent)
                self.broken.set()
        finally:
            for each in (server, client):
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def _forward(self, client: socket.socket, server: socket.socket, silent: threading.Event) -> None:
        """Forward packets up to the statement at which the connection breaks."""
        while True:
            header = _exactly(client, 4)
            body = _exactly(client, int.from_bytes(header[:3], "little"))
            if body.startswith(self._statement) and self._is_the_one():
                if self._meanwhile is None:
                    break
                self._meanwhile()
            server.sendall(header + body)
        if self._arrives:
            silent.set()
            server.sendall(header + body)
            self.answered.wait(PATIENCE_SECONDS)

    def _is_the_one(self) -> bool:
        self._left -= 1
        return self._left == 0

    def _answer(self, server: socket.socket, client: socket.socket, silent: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(1 << 16):
                if silent.is_set():
                    if self._torn:
                        client.sendall(data[: len(data) // 2 + 1])
                    self.answered.set()
                    return
                client.sendall(data)
            client.shutdown(socket.SHUT_WR)


def _exactly(sock: socket.socket, size: int) -> bytes:
    parts = b""
    while len(parts) < size:
        part = sock.recv(size - len(parts))
        if not part:
            raise EOFError
        parts += part
    return parts


@contextlib.contextmanager
def cut_at_commit(
    server: MariaDb,
    *,
    arrives: bool,
    number: int = 1,
    statement: bytes | tuple[bytes, ...] = COMMIT,
    torn: bool = False,
) -> Iterator[tuple[MariaDb, Way]]:
    """Yield the server behind such a connection; without `arrives` it never receives the COMMIT, or `statement`."""
    way = Way(server.port, arrives, number, statement=statement, torn=torn)
    try:
        yield dataclasses.replace(server, port=way.port), way
    finally:
        way.close()


@contextlib.contextmanager
def interrupted_at(
    server: MariaDb, meanwhile: Callable[[], None], statement: bytes = COMMIT, number: int = 1
) -> Iterator[MariaDb]:
    """Yield the server with a connection that calls `meanwhile` before the statement with that number arrives."""
    way = Way(server.port, arrives=True, number=number, meanwhile=meanwhile, statement=statement)
    try:
        yield dataclasses.replace(server, port=way.port)
    finally:
        way.close()
