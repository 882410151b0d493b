"""Keys of rows as the meta tables store them: the digest of a key does not depend on where the row was read."""

import hashlib
import json
from collections.abc import Iterator, Sequence

from unshard.adapters.target.changes import Changes
from unshard.adapters.target.destination import Destination
from unshard.core.model import Column
from unshard.core.sql.literals import INTEGERS

Key = tuple[bytes | None, ...]


def key_of_line(destination: Destination, line: bytes) -> Key:
    """Return the values of the key in a line."""
    values = dict(zip((column.name for column in destination.columns), destination.values(line), strict=True))
    return tuple(values.get(name) for name in destination.key)


def changed_keys(changes: Changes) -> Iterator[Key]:
    """Yield the keys of all rows that changes delete or write; a key may occur twice."""
    yield from (tuple(key) for key in changes.deletes)
    for each in changes.writes.lines:
        yield from (key_of_line(each.destination, line) for line in each.lines.to_pylist())


def digest_of(columns: Sequence[Column], key: Key) -> str:
    """Return 32 hexadecimal digits that identify a key of these columns."""
    text = json.dumps([_packed(column, value) for column, value in zip(columns, key, strict=True)])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _packed(column: Column, value: bytes | None) -> str | None:
    if value is None:
        return None
    # Only some forms of a key contain the zeros that ZEROFILL prints.
    return (str(int(value)).encode() if column.data_type in INTEGERS else value).hex()
