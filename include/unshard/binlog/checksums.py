"""The CRC32 of all events of a range in one pass over its bytes.

An event is followed by its own CRC, so behind each whole event the register of the CRC is the same number, whatever
the event was. What is left of that number at the end of the range depends on the lengths of the events behind it
only: the CRC of the whole range is known beforehand, and a damaged event makes it another, as surely as its own CRC.
A register moves over a byte by a linear map, which is kept as tables for one step of 4096 bytes.
"""

from functools import cache
from zlib import crc32

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint32]
RESIDUE = crc32(bytes(4) + crc32(bytes(4)).to_bytes(4, "little"))
"""What CRC32 gives for any bytes that are followed by their CRC32."""
STEP_BITS = 12
STEP = 1 << STEP_BITS


def are_whole(data: bytes | memoryview, ends: npt.NDArray[np.int64]) -> bool:
    """Whether the CRC32 at the end of every event is right; `ends` are the places behind the events."""
    return crc32(data) == _expected(ends)


def _expected(ends: npt.NDArray[np.int64]) -> int:
    behind = ends[-1] - ends[:-1]
    if not len(behind):
        return RESIDUE
    moved, (first, second, third, fourth) = _moved(), _step()
    steps = behind >> STEP_BITS
    borders = np.append(True, steps[1:] != steps[:-1]).nonzero()[0]
    sums = np.bitwise_xor.reduceat(moved[behind & (STEP - 1)], borders).tolist()
    register, at = 0, int(steps[0])
    for step, part in zip(steps[borders].tolist(), sums, strict=True):
        for _ in range(at - step):
            register = (first[register & 255] ^ second[register >> 8 & 255] ^ third[register >> 16 & 255]
                        ^ fourth[register >> 24])  # fmt: skip
        register, at = register ^ part, step
    for _ in range(at):
        register = (first[register & 255] ^ second[register >> 8 & 255] ^ third[register >> 16 & 255]
                    ^ fourth[register >> 24])  # fmt: skip
    return RESIDUE ^ register


@cache
def _byte() -> Words:
    """Return what one byte of zeros makes of a register, by the register's lowest byte."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, table >> 1 ^ np.uint32(0xEDB88320), table >> 1).astype(np.uint32)
    return table


@cache
def _moved() -> Words:
    """Return what the difference between a fresh register and the one behind an event is after 0 to 4095 bytes."""
    found, table = [RESIDUE], _byte().tolist()
    for _ in range(STEP - 1):
        found.append(found[-1] >> 8 ^ table[found[-1] & 255])
    return np.array(found, np.uint32)


@cache
def _step() -> tuple[list[int], ...]:
    """Return the tables of the map of 4096 bytes, for each byte of the register: that of one byte, squared 12 times."""
    digits = np.arange(256, dtype=np.uint32)
    tables = np.stack([digits << np.uint32(8 * place) for place in range(4)])
    tables = tables >> np.uint32(8) ^ _byte()[tables & 255]
    for _ in range(STEP_BITS):
        tables = (tables[0][tables & 255] ^ tables[1][tables >> 8 & 255] ^ tables[2][tables >> 16 & 255]
                  ^ tables[3][tables >> 24])  # fmt: skip
    return tuple(table.tolist() for table in tables)
