"""Texts in other character sets: transcoded as the server does it, or refused."""

from collections.abc import Iterator

import pytest

from unshard.core.sql import charsets
from unshard_demo.servers import MariaDb

pytestmark = [pytest.mark.integration, pytest.mark.writes_rows]
UNICODE = ("utf8mb4", "utf8mb3", "ucs2", "utf16", "utf16le", "utf32", "binary", "filename")
NO_CHARACTER = ("?", "\ufffd")
LARGE = ("big5", "ujis", "sjis", "euckr", "gb2312", "gbk", "cp932", "eucjpms")


def codes(charset: str) -> Iterator[bytes]:
    yield from (bytes((first,)) for first in range(256))
    if charset in LARGE:
        yield from (bytes((first, second)) for first in range(0x80, 256) for second in range(0x40, 256))
    if charset in ("ujis", "eucjpms"):
        yield from (bytes((0x8F, second, third)) for second in range(0xA1, 255) for third in range(0xA1, 255))


@pytest.mark.mariadb_only("TiDB has six character sets; tests/integration/rows/test_every_type.py has theirs")
def test_every_character_is_the_servers(target: MariaDb, unique: str) -> None:
    asked = "SELECT CHARACTER_SET_NAME FROM information_schema.CHARACTER_SETS"
    known = [name for (name,) in target.run(asked) if name not in UNICODE]
    assert len(known) > 30
    target.run(f"CREATE DATABASE {unique}", f"CREATE TABLE {unique}.t (b VARBINARY(3) PRIMARY KEY)")
    found: dict[str, list[tuple[bytes, str, str]]] = {}
    for charset in known:
        values = ", ".join(f"(x'{code.hex()}')" for code in codes(charset))
        said, again = f"CONVERT(b USING {charset})", f"CONVERT(CONVERT(b USING {charset}) USING utf8mb4)"
        rows = target.run(
            f"TRUNCATE {unique}.t",
            f"INSERT INTO {unique}.t VALUES {values}",
            f"SELECT b, HEX({again}) FROM {unique}.t WHERE HEX({said}) = HEX(b) AND CHAR_LENGTH({said}) = 1",
        )
        meant = {bytes(code): bytes.fromhex(text).decode() for code, text in rows}
        for code, text in meant.items():
            if text not in NO_CHARACTER and (wrong := differing(charset, code, text, meant)):
                found.setdefault(charset, []).append((code, text, wrong))
    target.run(f"DROP DATABASE {unique}")
    assert found == {}


def differing(charset: str, code: bytes, text: str, meant: dict[bytes, str]) -> str:
    """Return the differences; a refusal is not a difference, nor is another code for the same character."""
    try:
        if charsets.decode(code, charset) != text:
            return charsets.decode(code, charset)
        written = charsets.encode(text, charset)
    except UnicodeError:
        return ""
    return "" if meant.get(written) == text else written.hex()
