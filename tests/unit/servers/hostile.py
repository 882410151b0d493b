"""A hostile server on loopback: it answers as a test says, and keeps what its clients sent."""

import contextlib
import itertools
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from unshard.core.model import Server, Tls

PASSWORD = "pa55-wörd-of-unshard"
OK = b"\0\0\0\2\0\0\0"
EOF = b"\xfe\0\0\2\0"
TLS, PLUGINS, LOCAL_FILES, NEW_PROTOCOL, SALTED, MYSQL = 1 << 11, 1 << 19, 1 << 7, 1 << 9, 1 << 15, 1
CAPABILITIES = PLUGINS | LOCAL_FILES | NEW_PROTOCOL | SALTED | MYSQL
COM_QUERY, COM_QUIT = 3, 1
BINARY = 63
VAR_STRING = 253


@dataclass
class Talk:
    """One connection of a client."""

    socket: socket.socket
    heard: list[bytes]
    number: int = 0

    def send(self, *payloads: bytes) -> None:
        """Send packets with the numbers that the client expects."""
        for payload in payloads:
            self.raw(struct.pack("<I", len(payload) | self.number << 24) + payload)
            self.number = (self.number + 1) % 256

    def raw(self, data: bytes) -> None:
        self.socket.sendall(data)

    def hear(self) -> bytes:
        """Return the client's next packet."""
        head = self._read(4)
        self.number = (head[3] + 1) % 256
        payload = self._read(int.from_bytes(head[:3], "little"))
        self.heard.append(payload)
        return payload

    def log_in(self, **options: Any) -> None:
        """Accept whoever comes."""
        self.send(greeting(**options))
        self.hear()
        self.send(OK)

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise EOFError
            data += more
        return data


Script = Callable[[Talk], None]
Answer = Callable[[bytes, int], bytes | tuple[bytes, ...]]


@dataclass
class Hostile:
    """A running server."""

    port: int
    heard: list[bytes] = field(default_factory=list)
    """The payloads of all packets of all clients."""

    def server(self, password: str = PASSWORD, tls: Tls | None = None) -> Server:
        return Server("127.0.0.1", self.port, "u", password, tls=tls)

    @property
    def everything(self) -> bytes:
        return b"\n".join(self.heard)


@contextlib.contextmanager
def serving(script: Script) -> Iterator[Hostile]:
    """Let `script` talk to each client that connects."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        hostile = Hostile(listener.getsockname()[1])
        threading.Thread(target=_accept, args=(listener, script, hostile.heard), daemon=True).start()
        yield hostile
        listener.shutdown(socket.SHUT_RDWR)


def _accept(listener: socket.socket, script: Script, heard: list[bytes]) -> None:
    with contextlib.suppress(OSError):
        while True:
            client, _ = listener.accept()
            threading.Thread(target=_talk, args=(client, script, heard), daemon=True).start()


def _talk(client: socket.socket, script: Script, heard: list[bytes]) -> None:
    talk = Talk(client, heard)
    with contextlib.suppress(OSError, EOFError):
        script(talk)
    with contextlib.suppress(OSError):
        talk.socket.close()


def greeting(plugin: bytes = b"mysql_native_password", version: bytes = b"8.0.36", capabilities: int = 0) -> bytes:
    """Return the first packet of a server."""
    flags = CAPABILITIES | capabilities
    head = b"\x0a" + version + b"\0" + struct.pack("<I", 7) + b"12345678\0" + struct.pack("<H", flags & 0xFFFF)
    return head + struct.pack("<BHHB", 45, 2, flags >> 16, 21) + bytes(10) + b"123456789012\0" + plugin + b"\0"


def answering(answer: Answer) -> Script:
    """Log each client in, and answer its commands; `answer` gets the command and its number."""

    def script(talk: Talk) -> None:
        talk.log_in()
        for number in itertools.count():
            command = talk.hear()
            if command[:1] == bytes((COM_QUIT,)):
                return
            found = answer(command, number)
            talk.send(*(found if isinstance(found, tuple) else (found,)))

    return script


def encrypted(talk: Talk, context: ssl.SSLContext) -> None:
    """Continue with TLS, after the client's request for it."""
    talk.socket = context.wrap_socket(talk.socket, server_side=True)


def counted(data: bytes) -> bytes:
    """Return bytes with their length before them."""
    return bytes((len(data),)) + data


def column(name: bytes = b"c", kind: int = VAR_STRING) -> bytes:
    """Return the definition of a column."""
    names = b"".join(map(counted, (b"def", b"", b"t", b"t", name, name)))
    return names + b"\x0c" + struct.pack("<HIBHB", BINARY, 255, kind, 0, 0) + b"\0\0"


def result(*rows: tuple[bytes, ...], columns: int = 1) -> tuple[bytes, ...]:
    """Return the packets of a result set."""
    lines = (b"".join(map(counted, row)) for row in rows)
    return (bytes((columns,)), *(column() for _ in range(columns)), EOF, *lines, EOF)


@dataclass
class Between:
    """Someone between a client and its server, who answers one command in place of the server."""

    real: int
    """The server's port."""
    answer: bytes
    number: int = -1
    """Which command of all clients to answer; -1: none."""
    commands: list[bytes] = field(default_factory=list)
    heard: list[bytes] = field(default_factory=list)
    """What the client sent after the answer."""

    def __call__(self, talk: Talk) -> None:
        with socket.create_connection(("127.0.0.1", self.real)) as server:
            threading.Thread(target=_pass_on, args=(server, talk.socket), daemon=True).start()
            try:
                self._listen(talk, server)
            finally:
                # Closing alone would not end the other thread's reading, and so not the session.
                server.shutdown(socket.SHUT_RDWR)

    def _listen(self, talk: Talk, server: socket.socket) -> None:
        while True:
            payload = talk.hear()
            if talk.number == 1 and payload[:1] != bytes((COM_QUIT,)):
                self.commands.append(payload)
                # Such a request is right after LOAD DATA LOCAL; the client would wait for the answer to its rows.
                self.number += len(self.commands) - 1 == self.number and b"LOCAL INFILE" in payload
                if len(self.commands) - 1 == self.number:
                    break
            server.sendall(struct.pack("<I", len(payload) | (talk.number - 1) % 256 << 24) + payload)
        talk.send(self.answer)
        while True:
            self.heard.append(talk.hear())


def _pass_on(server: socket.socket, client: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := server.recv(1 << 16):
            client.sendall(data)
    with contextlib.suppress(OSError):
        client.shutdown(socket.SHUT_RDWR)
