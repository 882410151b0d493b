"""Verify the CRC32 of all events of a range in one pass over its bytes.

Each event ends with its own CRC. So after each intact event the CRC register has the same value, whatever the event
contains. The effect of that value at the end of the range depends only on the number of bytes after it. Therefore the
CRC of the whole range can be computed in advance, and a damaged event changes it as reliably as its own CRC. A byte
changes the register by a linear map, which is stored as tables for one step of 4096 bytes.
"""

from functools import cache
from zlib import crc32

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint32]
RESIDUE = crc32(bytes(4) + crc32(bytes(4)).to_bytes(4, "little"))
"""The CRC32 of any bytes that are followed by their own CRC32."""
STEP_BITS = 12
STEP = 1 << STEP_BITS


def are_whole(data: bytes | memoryview, ends: npt.NDArray[np.int64]) -> bool:
    """Whether the CRC32 at the end of every event is correct; `ends` are the offsets after the events."""
    return crc32(data) == _expected(ends)


def _expected(ends: npt.NDArray[np.int64]) -> int:
    remaining = ends[-1] - ends[:-1]
    if not len(remaining):
        return RESIDUE
    moved, (first, second, third, fourth) = _moved(), _step()
    steps = remaining >> STEP_BITS
    borders = np.append(True, steps[1:] != steps[:-1]).nonzero()[0]
    sums = np.bitwise_xor.reduceat(moved[remaining & (STEP - 1)], borders).tolist()
    register, at = 0, int(steps[0])
    for step, part in zip(steps[borders].tolist(), sums, strict=True):
        for _ in range(at - step):
            register = (
                first[register & 255]
                ^ second[register >> 8 & 255]
                ^ third[register >> 16 & 255]
                ^ fourth[register >> 24]
            )
        register, at = register ^ part, step
    for _ in range(at):
        register = (
            first[register & 255] ^ second[register >> 8 & 255] ^ third[register >> 16 & 255] ^ fourth[register >> 24]
        )
    return RESIDUE ^ register


@cache
def _byte() -> Words:
    """Return the effect of one zero byte on a register, by the register's lowest byte."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, table >> 1 ^ np.uint32(0xEDB88320), table >> 1).astype(np.uint32)
    return table


@cache
def _moved() -> Words:
    """Return, for 0 to 4095 further bytes, the difference between a fresh register and one after an intact event."""
    found, table = [RESIDUE], _byte().tolist()
    for _ in range(STEP - 1):
        found.append(found[-1] >> 8 ^ table[found[-1] & 255])
    return np.array(found, np.uint32)


@cache
def _step() -> tuple[list[int], ...]:
    """Return the tables of the map for 4096 bytes, one per byte of the register: the one-byte map squared 12 times."""
    digits = np.arange(256, dtype=np.uint32)
    tables = np.stack([digits << np.uint32(8 * place) for place in range(4)])
    tables = tables >> np.uint32(8) ^ _byte()[tables & 255]
    for _ in range(STEP_BITS):
        tables = (
            tables[0][tables & 255]
            ^ tables[1][tables >> 8 & 255]
            ^ tables[2][tables >> 16 & 255]
            ^ tables[3][tables >> 24]
        )
    return tuple(table.tolist() for table in tables)
