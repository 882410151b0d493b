"""The optional metadata of a TABLE_MAP event, if the server is configured to send them.

With `binlog_row_metadata` NO_LOG (MariaDB's default) the event has no metadata. MINIMAL (MySQL's default) has signs
and character sets; FULL also has names and labels. Fields that are not compared with the tracked structure are skipped:
the format allows new fields, and these do not change how rows are read.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

_T = TypeVar("_T")
_SIGNS, _DEFAULT_CHARSET, _CHARSETS, _NAMES, _SETS, _ENUMS = range(1, 7)
_DEFAULT_LABEL_CHARSET, _LABEL_CHARSETS, _VECTORS = 10, 11, 13


@dataclass(frozen=True, slots=True)
class Collations:
    """Collations of some columns in order: one per column, or a default with exceptions."""

    default: int
    """0: `ids` has one collation per column."""
    ids: tuple[int, ...]
    """With a default: pairs of a column's number and its collation."""

    def of(self, count: int) -> tuple[int, ...]:
        """Return the collations of `count` columns; ValueError if their number differs."""
        if not self.default:
            if len(self.ids) != count:
                raise ValueError(f"{len(self.ids)} character sets for {count} columns")
            return self.ids
        found = [self.default] * count
        for number, collation in zip(self.ids[::2], self.ids[1::2], strict=True):
            if number >= count:
                raise ValueError(f"the character set of column {number} of {count}")
            found[number] = collation
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Metadata:
    """The fields that are compared; each is empty if the server does not send it."""

    unsigned: tuple[bool, ...] = ()
    """For the numeric columns in order."""
    names: tuple[str, ...] = ()
    charsets: Collations | None = None
    label_charsets: Collations | None = None
    """For ENUM and SET columns."""
    set_labels: tuple[tuple[bytes, ...], ...] = ()
    enum_labels: tuple[tuple[bytes, ...], ...] = ()
    dimensions: tuple[int, ...] = ()
    """For VECTOR columns."""


def packed(body: bytes, offset: int) -> tuple[int, int]:
    """Read a length-encoded integer; return it and the offset after it."""
    first = body[offset]
    if first < 251:
        return first, offset + 1
    size = {252: 2, 253: 3, 254: 8}.get(first)
    if size is None or offset + 1 + size > len(body):
        raise ValueError("a packed integer is cut off")
    return int.from_bytes(body[offset + 1 : offset + 1 + size], "little"), offset + 1 + size


def read_metadata(data: bytes) -> Metadata:
    """Read the fields; IndexError or ValueError if they are damaged."""
    fields, offset = {}, 0
    while offset < len(data):
        fields[data[offset]], offset = _bytes(data, offset + 1)
    return Metadata(
        _signs(fields.get(_SIGNS, b"")),
        tuple(name.decode() for name in _all(fields.get(_NAMES, b""), _bytes)),
        _collations(fields.get(_DEFAULT_CHARSET), fields.get(_CHARSETS)),
        _collations(fields.get(_DEFAULT_LABEL_CHARSET), fields.get(_LABEL_CHARSETS)),
        _all(fields.get(_SETS, b""), _labels),
        _all(fields.get(_ENUMS, b""), _labels),
        _all(fields.get(_VECTORS, b""), packed),
    )


def _signs(value: bytes) -> tuple[bool, ...]:
    return tuple(bool(byte >> bit & 1) for byte in value for bit in range(7, -1, -1))


def _collations(default: bytes | None, each: bytes | None) -> Collations | None:
    if default is not None:
        first, *others = _all(default, packed)
        return Collations(first, tuple(others))
    return None if each is None else Collations(0, _all(each, packed))


def _labels(value: bytes, offset: int) -> tuple[tuple[bytes, ...], int]:
    count, offset = packed(value, offset)
    labels = []
    for _ in range(count):
        label, offset = _bytes(value, offset)
        labels.append(label)
    return tuple(labels), offset


def _bytes(value: bytes, offset: int) -> tuple[bytes, int]:
    size, offset = packed(value, offset)
    if offset + size > len(value):
        raise ValueError("the optional metadata is cut off")
    return value[offset : offset + size], offset + size


def _all(value: bytes, read: Callable[[bytes, int], tuple[_T, int]]) -> tuple[_T, ...]:
    found, offset = [], 0
    while offset < len(value):
        item, offset = read(value, offset)
        found.append(item)
    return tuple(found)
