"""PARTIAL_ROW_DATA: a part of a rows event that is larger than MariaDB's `binlog_row_event_fragment_threshold`.

A segment stores the fragments unchanged, so that positions are those of the binlog file. They are read twice: by the
cutter, which checks that they are complete and counts the rows event for the index, and by the decoder, which joins
them. All fragments of a rows event directly follow each other in one transaction.

The joined fragments are the rows event with its own frame. Its position is not used: the end of the last fragment is
the position of the event. Each fragment has a checksum. The joined event may have one, too.
"""

import struct
from collections.abc import Sequence

from unshard.binlog.events import CHECKSUM, HEADER, MOST_BYTES, ROWS, Buffer, Frame, is_whole, read_frame
from unshard.errors.relay import FragmentsBroken, UnsupportedEvent

SIZED = 1
"""Flag: the size of the joined event follows."""
HEAD_BYTES = HEADER + 8
"""The frame of a rows event, its table id and its flags."""
_NUMBERS = struct.Struct("<IIB")
_SIZE = struct.Struct("<Q")


class Fragments:
    """Checks that fragments follow each other, and collects the beginning of the rows event."""

    def __init__(self, tail: int) -> None:
        self._tail = tail
        """Size of a checksum in this file."""
        self._begin()

    def _begin(self) -> None:
        self._total = self._number = self._announced = self._size = 0
        self._is_total_last = False
        self.head = b""

    @property
    def is_pending(self) -> bool:
        """Whether more fragments must follow."""
        return self._number < self._total

    def add(self, body: Buffer, place: str) -> Buffer:
        """Check the next fragment and return its part of the rows event."""
        if not self.is_pending:
            self._begin()
        announced, chunk = self._numbers(body, place)
        if self._announced and announced not in (0, self._announced):
            raise FragmentsBroken(place, f"their event has {self._announced} bytes, and {announced} in another one")
        self._announced = self._announced or announced
        self._size += len(chunk)
        if self._size > min(self._announced or MOST_BYTES, MOST_BYTES):
            raise FragmentsBroken(place, f"they have {self._size} bytes, their event has {self._announced}")
        if len(self.head) < HEAD_BYTES:
            self.head += bytes(chunk[: HEAD_BYTES - len(self.head)])
        if not self.is_pending:
            self._check_size(place)
        return chunk

    def require_end(self, place: str) -> None:
        """Raise if another event follows before the last fragment."""
        if self.is_pending:
            raise FragmentsBroken(place, f"fragment {self._number + 1} of {self._total} is missing")

    def frame(self) -> Frame:
        """Return the frame of the rows event."""
        return read_frame(self.head)

    def join(self, chunks: Sequence[Buffer]) -> tuple[Frame, bytes]:
        """Return frame and body of the rows event, without its checksum if it has one."""
        whole, frame = b"".join(chunks), self.frame()
        has_checksum = self._tail and frame.size == len(whole) and is_whole(whole)
        body = whole[HEADER : len(whole) - CHECKSUM] if has_checksum else whole[HEADER:]
        return frame._replace(size=HEADER + len(body)), body

    def _numbers(self, body: Buffer, place: str) -> tuple[int, Buffer]:
        """Read the fields before the chunk: total, number, flags, and the size of the joined event, 0 if omitted.

        Descriptions of the format disagree about the order of the first two. The first fragment shows the order,
        because its number is 1.
        """
        try:
            total, number, flags = _NUMBERS.unpack_from(body)
            if flags & ~SIZED:
                raise UnsupportedEvent(place, f"a fragment of a rows event with flags {flags}")
            size = _SIZE.unpack_from(body, _NUMBERS.size)[0] if flags else 0
        except struct.error as error:
            raise FragmentsBroken(place, f"the fragment is cut off: {error}") from error
        if not self._number:
            self._is_total_last = total == 1 < number
        if self._is_total_last:
            total, number = number, total
        if number != self._number + 1:
            raise FragmentsBroken(place, f"fragment {self._number + 1} is expected, this is number {number}")
        if number > total:
            raise FragmentsBroken(place, f"fragment {number} is one of {total}")
        if self._total and total != self._total:
            raise FragmentsBroken(place, f"fragment {number} is one of {total}, the ones before it of {self._total}")
        self._total, self._number = total, number
        return size, body[_NUMBERS.size + (_SIZE.size if flags else 0) :]

    def _check_size(self, place: str) -> None:
        if len(self.head) < HEAD_BYTES:
            raise FragmentsBroken(place, f"they have {self._size} bytes together, too few for a rows event")
        frame = self.frame()
        if frame.type not in ROWS:
            raise FragmentsBroken(place, f"they form an event of type {frame.type}, which has no rows")
        # The sizes may include a checksum that the fragments do not carry, because each has its own.
        for told in (frame.size, self._announced or frame.size):
            if told - self._size not in (0, self._tail):
                raise FragmentsBroken(place, f"they have {self._size} bytes together, their event has {told}")
