"""Read the packets of a binlog dump, as many at once as have arrived, and return their events back to back.

A packet is the length of its payload in three bytes, a sequence number, and the payload. The payload is a zero byte and
an event, or the message that ends the dump. A payload of 16 MiB or more continues in the next packet. A read may end
anywhere, also inside a packet. Complete packets are passed on immediately; another read happens only if more bytes are
already available.
"""

import struct
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from unshard.binlog.events import HEADER, MOST_BYTES, read_frame
from unshard.binlog.runs import Numbers, Run

OK, EOF, ERROR = 0x00, 0xFE, 0xFF
FULL_PACKET = 0xFFFFFF
HEAD = 4
BUFFER_BYTES = 1 << 20
"""Large enough for NumPy, and small enough for the processor's cache."""
NOTHING = Run(memoryview(b""), np.zeros(1, np.int64))
_LENGTH = struct.Struct("<I")
Receive = Callable[[memoryview], int]


class Packets:
    """Reads packets: `receive` fills a part of a buffer, `has_more` tells whether a read returns at once."""

    def __init__(
        self, receive: Receive, has_more: Callable[[], bool], buffer_bytes: int = BUFFER_BYTES, pauses: bool = False
    ) -> None:
        self._receive, self._has_more, self._size, self._pauses = receive, has_more, buffer_bytes, pauses
        self._buffer = bytearray(buffer_bytes)
        self._filled = 0
        self._failure: Exception | None = None
        self.last = b""
        """The packet that ended the dump."""

    def runs(self) -> Iterator[Run]:
        """Yield the events up to the packet that ends the dump; EOFError if there is no such packet.

        With `pauses`, an empty run says that the next read may wait.
        """
        while not self.last:
            starts, end = self._whole()
            if not end:
                if self._pauses and not self._failure and not self._has_more():
                    yield NOTHING
                self._fill()
            if starts:
                run, end_of_dump = _opened(self._buffer, starts, end)
                if len(run):
                    yield run
                if end_of_dump == b"":
                    raise EOFError("received an empty packet")
                self.last = end_of_dump or b""
            elif end:
                yield from self._large(end)
            if end:
                self._drop(end)

    def _fill(self) -> None:
        """Read the available bytes, at least one."""
        if self._failure:
            raise self._failure
        if self._filled == len(self._buffer):
            self._check_size()
            self._resize(2 * self._filled)
        self._read()
        while self._filled < len(self._buffer) and not self._failure and self._has_more():
            self._read()

    def _check_size(self) -> None:
        """Raise ValueError if an incomplete payload is larger than its event."""
        if self._filled < HEAD + 1 + HEADER:
            return
        head = memoryview(self._buffer)[HEAD:]
        size = read_frame(head, 1).size if head[0] == OK else 0
        received = self._filled - 1 - HEAD * (1 + self._filled // (HEAD + FULL_PACKET))
        if received > min(size, MOST_BYTES):
            raise ValueError(f"an event of {size} bytes has more than {received} in its packets")

    def _read(self) -> None:
        """Read once. An error of the connection is raised only after all bytes before it have been processed."""
        try:
            count = self._receive(memoryview(self._buffer)[self._filled :])
            if not count:
                raise EOFError("the server closed the connection")
            self._filled += count
        except (OSError, EOFError) as error:
            self._failure = error

    def _whole(self) -> tuple[list[int], int]:
        """Return the offsets of the complete packets and the end of the last one;

        none for a packet that continues in others.
        """
        starts, at, filled, buffer = list[int](), 0, self._filled - HEAD, self._buffer
        length_at, add = _LENGTH.unpack_from, starts.append
        while at <= filled:
            size = length_at(buffer, at)[0] & FULL_PACKET
            if size == FULL_PACKET or at + size > filled:
                break
            add(at)
            at += HEAD + size
        return (starts, at) if starts else (starts, self._end_of_large())

    def _end_of_large(self) -> int:
        """Return the end of a payload that spans several packets, 0 if it is incomplete."""
        at, size = 0, FULL_PACKET
        while size == FULL_PACKET:
            if at + HEAD > self._filled:
                return 0
            size = _LENGTH.unpack_from(self._buffer, at)[0] & FULL_PACKET
            at += HEAD + size
        return at if at <= self._filled else 0

    def _large(self, end: int) -> Iterator[Run]:
        heads = range(0, end, HEAD + FULL_PACKET)
        payload = b"".join(memoryview(self._buffer)[at + HEAD : min(at + HEAD + FULL_PACKET, end)] for at in heads)
        if payload[0] == OK:
            yield Run(memoryview(payload)[1:], np.array([0, len(payload) - 1]))
        else:
            self.last = payload

    def _drop(self, end: int) -> None:
        """Move the remaining bytes to the beginning of the buffer."""
        left = self._filled - end
        if len(self._buffer) > self._size > left:
            self._resize(self._size, end)
        elif end:
            self._buffer[:left] = self._buffer[end : self._filled]
        self._filled = left

    def _resize(self, size: int, begin: int = 0) -> None:
        old, self._buffer = self._buffer, bytearray(size)
        self._buffer[: self._filled - begin] = old[begin : self._filled]


def _opened(buffer: bytearray, packets: list[int], end: int) -> tuple[Run, bytes | None]:
    """Return the events up to the first packet without an event, and that packet."""
    starts = np.array([*packets, end], np.int64)
    seen = np.frombuffer(buffer, np.uint8)
    sizes = np.diff(starts) - HEAD
    others = np.flatnonzero((sizes == 0) | (seen[np.minimum(starts[:-1] + HEAD, end - 1)] != OK))
    end_of_dump = None
    if len(others):
        first = int(others[0])
        end_of_dump = bytes(buffer[packets[first] + HEAD : int(starts[first + 1])])
        starts, sizes = starts[: first + 1], sizes[:first]
    return Run(_without_heads(seen, starts), np.append(0, np.cumsum(sizes - 1))), end_of_dump


def _without_heads(seen: npt.NDArray[np.uint8], starts: Numbers) -> memoryview:
    mask = np.ones(int(starts[-1]), np.bool_)
    for byte in range(HEAD + 1):
        mask[starts[:-1] + byte] = False
    return seen[: len(mask)][mask].data
