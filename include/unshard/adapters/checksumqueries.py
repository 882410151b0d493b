"""The statements that compare tables by checksums; `rows` is a table expression, `hashed` the hash of a row."""

from collections.abc import Iterable, Sequence

from unshard.core.sql.quoting import identifier
from unshard.core.validate.checksum import checksum


def sums(places: Sequence[tuple[str, str]]) -> str:
    """Select number, row count and sum for each of several (hash, rows), numbered from 0."""
    each = (f"SELECT {number}, {checksum(hashed)} FROM {rows}" for number, (hashed, rows) in enumerate(places))  # noqa: S608
    return " UNION ALL ".join(each)


def nth_key(key: Iterable[str], rows: str, number: int) -> str:
    """Select the key of the row with that number, counted from 1 in the order of the key."""
    names = ", ".join(map(identifier, key))
    return f"SELECT {names} FROM {rows} ORDER BY {names} LIMIT 1 OFFSET {number - 1}"  # noqa: S608


def bucket_sums(hashed: str, digits: int, rows: str) -> str:
    """Select row count and sum for each bucket: the first digits of the hash."""
    return f"SELECT LEFT({hashed}, {digits}) AS bucket, {checksum(hashed)} FROM {rows} GROUP BY bucket"  # noqa: S608


def in_bucket(hashed: str, bucket: str) -> str:
    """Return the condition that the hash of a row begins with these digits."""
    return f"LEFT({hashed}, {len(bucket)}) = '{bucket}'"


def hash_counts(hashed: str, rows: str) -> str:
    """Select how often each hash occurs."""
    return f"SELECT {hashed} AS hash, COUNT(*) FROM {rows} GROUP BY hash"  # noqa: S608


def with_hashes(hashed: str, hashes: Iterable[str]) -> str:
    """Return the condition that the hash of a row is one of these."""
    listed = ", ".join(f"'{digest}'" for digest in sorted(hashes))
    return f"{hashed} IN ({listed})"


def hashes_and_columns(hashed: str, columns: Iterable[str], rows: str) -> str:
    """Select the hash and some columns of each row."""
    return f"SELECT {hashed}, {', '.join(columns)} FROM {rows}"  # noqa: S608
