"""Python's codecs for MySQL's character sets, and the character sets of collation ids.

A character set without a codec can still be used for ASCII, which all of them except swe7 contain; callers reject any
other character. Where a codec differs from the server, the tables here follow the server.
"""

from collections.abc import Collection, Mapping
from functools import cache

from unshard.core.sql.words import words_of

CODECS: Mapping[str, str] = {
    **{name: name for name in words_of("ascii big5 cp1250 cp1251 cp1256 cp1257 cp850 cp852 cp866 cp932")},
    **{name: name for name in words_of("gb18030 gb2312 gbk")},
    **dict.fromkeys(("utf8mb4", "utf8mb3", "utf8"), "utf-8"),
    "binary": "ascii",
    "latin1": "cp1252",
    "latin2": "iso8859-2",
    "latin5": "iso8859-9",
    "latin7": "iso8859-13",
    "greek": "iso8859-7",
    "hebrew": "iso8859-8",
    "koi8r": "koi8-r",
    "koi8u": "koi8-u",
    "macce": "mac-latin2",
    "macroman": "mac-roman",
    "tis620": "tis-620",
    "euckr": "cp949",
    "sjis": "shift_jis",
    **dict.fromkeys(("ujis", "eucjpms"), "euc-jp"),
    **dict.fromkeys(("ucs2", "utf16"), "utf-16-be"),
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
}
COLLATIONS: Mapping[str, tuple[int | tuple[int, int], ...]] = {
    "big5": (1, 84),
    "latin2": (2, 9, 21, 27, 77),
    "dec8": (3, 69),
    "cp850": (4, 80),
    "hp8": (6, 72),
    "koi8r": (7, 74),
    "latin1": (5, 8, 15, 31, (47, 49), 94),
    "swe7": (10, 82),
    "ascii": (11, 65),
    "ujis": (12, 91),
    "sjis": (13, 88),
    "cp1251": (14, 23, (50, 52)),
    "hebrew": (16, 71),
    "tis620": (18, 89),
    "euckr": (19, 85),
    "koi8u": (22, 75),
    "latin7": (20, 41, 42, 79),
    "gb2312": (24, 86),
    "greek": (25, 70),
    "cp1250": (26, 34, 44, 66, 99),
    "gbk": (28, 87),
    "cp1257": (29, 58, 59),
    "latin5": (30, 78),
    "armscii8": (32, 64),
    "cp866": (36, 68),
    "keybcs2": (37, 73),
    "macce": (38, 43),
    "macroman": (39, 53),
    "cp852": (40, 81),
    "cp1256": (57, 67),
    "binary": (63,),
    "geostd8": (92, 93),
    "cp932": (95, 96),
    "eucjpms": (97, 98),
    "gb18030": ((248, 250),),
    "utf8mb3": (33, 76, 83, (192, 215), 223, (576, 578), (2048, 2303)),
    "utf8mb4": (45, 46, (224, 247), (255, 323), (608, 610), (2304, 2559)),
    "ucs2": (35, 90, (128, 151), 159, (640, 642), (2560, 2815)),
    "utf16": (54, 55, (101, 124), (672, 674), (2816, 3071)),
    "utf16le": (56, 62),
    "utf32": (60, 61, (160, 183), (736, 738), (3072, 3327)),
}
WIDE = frozenset({"ucs2", "utf16", "utf16le", "utf32"})
"""The character sets that store ASCII in more than one byte."""
MOST_BYTES: Mapping[str, int] = {
    **dict.fromkeys(("utf8mb4", "gb18030", "utf16", "utf16le", "utf32"), 4),
    **dict.fromkeys(("utf8mb3", "utf8", "ujis", "eucjpms"), 3),
    **dict.fromkeys(("ucs2", "big5", "gb2312", "gbk", "euckr", "sjis", "cp932"), 2),
}
"""The most bytes of a character; one byte in the other character sets."""
NOPAD = 1024
"""MariaDB adds this to the id of a collation without padding; its uca1400 collations have own ids from 2048 on."""


def canonical(collation: str) -> str:
    """Return the current name of a collation: `utf8_*` is `utf8mb3_*` on current servers."""
    return collation.replace("utf8_", "utf8mb3_", 1) if collation.startswith("utf8_") else collation


def is_stored_alike(text_in: str, other: str) -> bool:
    """Whether every text has the same bytes in the other character set, which contains all its characters."""
    inner, outer = _current(text_in), _current(other)
    if inner == outer or (inner, outer) == ("utf8mb3", "utf8mb4"):
        return True
    return inner == "ascii" and outer not in WIDE | {"swe7"}


def common_charset(names: Collection[str]) -> str | None:
    """Return the smallest character set that contains all of these; None if no known one does.

    It is one of them if it contains the others, else utf8mb4, if a text of each can be converted to Unicode.
    """
    current = {_current(name) for name in names}
    found = next((o for o in sorted(current) if all(is_stored_alike(name, o) for name in current)), None)
    if found is None and all(name in CODECS and name != "binary" for name in current):
        return "utf8mb4"
    return found


def _current(charset: str) -> str:
    return "utf8mb3" if charset == "utf8" else charset


def charset_of(collation: int) -> str:
    """Return the character set of a collation id; raises KeyError if no supported server has the id."""
    return _NAMES[collation - NOPAD if NOPAD <= collation < 2 * NOPAD else collation]


def encode(text: str, charset: str) -> bytes:
    """Return the bytes with which the server stores the text; raises UnicodeEncodeError for an unknown character."""
    if charset in _OWN_BYTES:
        return _by_table(text, charset)
    codec = CODECS.get(charset, "ascii")
    value = text.translate(_AS_CODEC.get(charset, {})).encode(codec)
    if charset in _AS_SERVER and decode(value, charset) != text:
        raise UnicodeEncodeError(codec, text, 0, len(text), f"{charset} has no such character")
    return value


def decode(value: bytes, charset: str) -> str:
    """Return the text of bytes in the character set; raises UnicodeDecodeError if they are not valid."""
    if charset in _OWN_BYTES:
        text = "".join(map(_tables(charset)[0].__getitem__, value))
        return text if len(text) == len(value) else value.decode(CODECS.get(charset, "ascii"))
    if charset == "eucjpms":
        value = value.replace(*_OTHER_TILDE)
    return value.decode(CODECS.get(charset, "ascii")).translate(_AS_SERVER.get(charset, {}))


def _expand() -> dict[int, str]:
    names = {}
    for charset, ids in COLLATIONS.items():
        for entry in ids:
            first, last = entry if isinstance(entry, tuple) else (entry, entry)
            names.update(dict.fromkeys(range(first, last + 1), charset))
    return names


def _by_table(text: str, charset: str) -> bytes:
    table, codec = _tables(charset)[1], CODECS.get(charset, "ascii")
    for position, character in enumerate(text):
        if character not in table:
            raise UnicodeEncodeError(codec, text, position, position + 1, f"{charset} has no such character")
    return b"".join(map(table.__getitem__, text))


@cache
def _tables(charset: str) -> tuple[list[str], dict[str, bytes]]:
    """Return the character of each byte (empty if the codec has none) and the byte of each character."""
    codec, own = CODECS.get(charset, "ascii"), _OWN_BYTES[charset]
    known = [own.get(n) or bytes((n,)).decode(codec, "ignore") for n in range(256)]
    return known, {character: bytes((n,)) for n, character in enumerate(known) if character}


_NAMES = _expand()
_OWN_BYTES: Mapping[str, Mapping[int, str]] = {
    "latin1": {n: chr(n) for n in (0x81, 0x8D, 0x8F, 0x90, 0x9D)},
    "hebrew": {0xAF: "\u203e"},
    "koi8u": {0x95: "\u2022"},
    "cp866": {0xFC: "\u207f", 0xFD: "\xb2"},
    "greek": {0xA1: "\u02bd", 0xA2: "\u02bc"},
    "swe7": dict(zip(b"@[\\]^`{|}~", "ÉÄÖÅÜéäöåü", strict=True)),
}
"""Bytes that MySQL decodes differently from Python: its latin1 is cp1252 with control characters for 5 unused bytes."""
_AS_SERVER = {
    charset: str.maketrans(*pair)
    for charset, pair in {
        "sjis": ("\uff3c", "\\"),
        "ujis": ("\uff3c", "\\"),
        "eucjpms": ("\u301c\u2016\u2212\xa2\xa3\xac\xa6", "\uff5e\u2225\uff0d\uffe0\uffe1\uffe2\uffe4"),
    }.items()
}
"""Characters of multi-byte sets: from Python's character to MySQL's."""
_AS_CODEC = {charset: {new: old for old, new in pairs.items() if new > 0x7F} for charset, pairs in _AS_SERVER.items()}
_OTHER_TILDE = b"\x8f\xa2\xb7", b"\xa1\xc1"
"""The second and the first code of the tilde in eucjpms; Python decodes the second as ASCII."""
