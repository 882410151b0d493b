"""MySQL's character sets in Python's terms: codecs by name, names by collation id.

A character set without a codec still carries ASCII, as all of them contain it; anything else in it is
refused by the caller, never guessed.
"""

from collections.abc import Mapping

CODECS: Mapping[str, str] = {
    "utf8mb4": "utf-8", "utf8mb3": "utf-8", "utf8": "utf-8", "ascii": "ascii", "binary": "ascii",
    "latin1": "cp1252", "latin2": "iso8859-2", "latin5": "iso8859-9", "latin7": "iso8859-13", "greek": "iso8859-7",
    "hebrew": "iso8859-8", "cp1250": "cp1250", "cp1251": "cp1251", "cp1256": "cp1256", "cp1257": "cp1257",
    "cp850": "cp850", "cp852": "cp852", "cp866": "cp866", "koi8r": "koi8-r", "koi8u": "koi8-u",
    "macce": "mac-latin2", "macroman": "mac-roman", "tis620": "tis-620", "big5": "big5", "gb2312": "gb2312",
    "gbk": "gbk", "gb18030": "gb18030", "euckr": "euc-kr", "sjis": "shift_jis", "cp932": "cp932", "ujis": "euc-jp",
    "eucjpms": "euc-jp", "ucs2": "utf-16-be", "utf16": "utf-16-be", "utf16le": "utf-16-le", "utf32": "utf-32-be",
}  # fmt: skip
COLLATIONS: Mapping[str, tuple[int | tuple[int, int], ...]] = {
    "big5": (1, 84), "latin2": (2, 9, 21, 27, 77), "dec8": (3, 69), "cp850": (4, 80), "hp8": (6, 72), "koi8r": (7, 74),
    "latin1": (5, 8, 15, 31, (47, 49), 94), "swe7": (10, 82), "ascii": (11, 65), "ujis": (12, 91), "sjis": (13, 88),
    "cp1251": (14, 23, (50, 52)), "hebrew": (16, 71), "tis620": (18, 89), "euckr": (19, 85), "koi8u": (22, 75),
    "latin7": (20, 41, 42, 79), "gb2312": (24, 86), "greek": (25, 70), "cp1250": (26, 34, 44, 66, 99), "gbk": (28, 87),
    "cp1257": (29, 58, 59), "latin5": (30, 78), "armscii8": (32, 64), "cp866": (36, 68), "keybcs2": (37, 73),
    "macce": (38, 43), "macroman": (39, 53), "cp852": (40, 81), "cp1256": (57, 67), "binary": (63,),
    "geostd8": (92, 93), "cp932": (95, 96), "eucjpms": (97, 98), "gb18030": ((248, 250),),
    "utf8mb3": (33, 76, 83, (192, 215), 223, (576, 578), (2048, 2303)),
    "utf8mb4": (45, 46, (224, 247), (255, 323), (608, 610), (2304, 2559)),
    "ucs2": (35, 90, (128, 151), 159, (640, 642), (2560, 2815)),
    "utf16": (54, 55, (101, 124), (672, 674), (2816, 3071)), "utf16le": (56, 62),
    "utf32": (60, 61, (160, 183), (736, 738), (3072, 3327)),
}  # fmt: skip
NOPAD = 1024
"""MariaDB adds it to the id of a collation that does not pad; its uca1400 collations have own ids from 2048 on."""


def charset_of(collation: int) -> str:
    """Return the character set of a collation id; KeyError if no supported server has that id."""
    return _NAMES[collation - NOPAD if NOPAD <= collation < 2 * NOPAD else collation]


def encode(text: str, charset: str) -> bytes:
    """Return the text as the server stores it in that character set; UnicodeEncodeError if it does not fit."""
    if charset == "latin1":
        return b"".join(map(_latin1, text))
    return text.encode(CODECS.get(charset, "ascii"))


def decode(value: bytes, charset: str) -> str:
    """Return what the bytes of that character set say; UnicodeDecodeError if they are not valid in it."""
    if charset == "latin1":
        return "".join(map(_LATIN1.__getitem__, value))
    return value.decode(CODECS.get(charset, "ascii"))


def _expand() -> dict[int, str]:
    names = {}
    for charset, ids in COLLATIONS.items():
        for entry in ids:
            first, last = entry if isinstance(entry, tuple) else (entry, entry)
            names.update(dict.fromkeys(range(first, last + 1), charset))
    return names


def _latin1(character: str) -> bytes:
    try:
        return character.encode("cp1252")
    except UnicodeEncodeError:
        if ord(character) in _HOLES:
            return bytes((ord(character),))
        raise


_NAMES = _expand()
_HOLES = frozenset((0x81, 0x8D, 0x8F, 0x90, 0x9D))
"""MySQL's latin1 is cp1252 whose five undefined bytes mean the control characters of the same number."""
_LATIN1 = [chr(n) if n in _HOLES else bytes((n,)).decode("cp1252") for n in range(256)]
