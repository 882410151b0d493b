"""A TCP proxy on loopback that counts the round trips to a server and can delay each of them.

A round trip is one answer of the server: the first bytes that it sends after a request of the client. The
greeting on a new connection counts too, so a new connection to MySQL costs two round trips before its first statement.
"""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from unshard_demo.servers import MariaDb

READ_BYTES = 1 << 18
COM_QUERY = 3
HEADER_BYTES = 5


@dataclass
class SlowLink:
    """Counters of the traffic through a proxy."""

    seconds: float = 0.0
    """The delay of each round trip."""
    trips: int = 0
    connections: int = 0
    statements: list[str] = field(default_factory=list)
    """The start of each statement that was sent without TLS."""
    keeps_statements: bool = True

    def reset(self) -> None:
        """Count from zero again."""
        self.trips, self.connections = 0, 0
        self.statements.clear()


@contextlib.contextmanager
def linked(server: MariaDb, seconds: float = 0.0, keeps_statements: bool = True) -> Iterator[tuple[MariaDb, SlowLink]]:
    """Yield the server as it is reached through a proxy, and the proxy's counters."""
    link = SlowLink(seconds, keeps_statements=keeps_statements)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="slow link", daemon=True)
    thread.start()
    serving = asyncio.start_server(_Proxy(link, server.port), "127.0.0.1", 0)
    listener = asyncio.run_coroutine_threadsafe(serving, loop).result()
    try:
        yield replace(server, port=listener.sockets[0].getsockname()[1]), link
    finally:
        asyncio.run_coroutine_threadsafe(_stop(listener), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@dataclass(frozen=True)
class _Proxy:
    link: SlowLink
    port: int

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.link.connections += 1
        connection = _Connection(self.link)
        with contextlib.closing(writer), contextlib.suppress(OSError, asyncio.CancelledError):
            answers, commands = await asyncio.open_connection("127.0.0.1", self.port)
            with contextlib.closing(commands):
                await asyncio.gather(connection.send(reader, commands), connection.answer(answers, writer))


@dataclass
class _Connection:
    link: SlowLink
    is_asked: bool = True
    """Whether a request of the client waits for its answer; opening the connection counts as a request."""

    async def send(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward the client's bytes."""
        with contextlib.closing(writer):
            while data := await reader.read(READ_BYTES):
                self.is_asked = True
                keeps = self.link.keeps_statements and len(data) > HEADER_BYTES
                if keeps and data[HEADER_BYTES - 1] == COM_QUERY and not data[HEADER_BYTES - 2]:
                    self.link.statements.append(data[HEADER_BYTES:].decode(errors="replace"))
                writer.write(data)
                await writer.drain()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward the server's bytes; delay the first ones of each answer."""
        with contextlib.closing(writer):
            while data := await reader.read(READ_BYTES):
                if self.is_asked:
                    self.is_asked = False
                    self.link.trips += 1
                    await asyncio.sleep(self.link.seconds)
                writer.write(data)
                await writer.drain()


async def _stop(listener: asyncio.Server) -> None:
    """Accept no more connections and end the open ones."""
    listener.close()
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.sleep(0)  # the loop's next round closes transports
