"""MySQL's binary JSON: every type in both sizes, partial updates, and contradictory bytes."""

import json
import struct
from random import Random

import pytest

from unshard.binlog.values import json_text, patched_text

LARGE = 1 << 16


def document(value, large=False) -> bytes:
    """Return a document as the server encodes it, optionally in the large format."""
    kind, body = encode(value, large)
    return bytes((kind,)) + body


def encode(value, large=False) -> tuple[int, bytes]:  # noqa: PLR0911
    match value:
        case None | True | False:
            return 4, bytes(([None, True, False].index(value),))
        case bytes():
            return 15, value[:1] + size(len(value) - 1) + value[1:]
        case str():
            return 12, size(len(value.encode())) + value.encode()
        case float():
            return 11, struct.pack("<d", value)
        case int():
            return number(value)
        case list():
            return container(2 + large, [], value, large)
        case dict():
            keys = sorted((key.encode() for key in value), key=lambda key: (len(key), key))
            return container(0 + large, keys, [value[key.decode()] for key in keys], large)


def number(value: int) -> tuple[int, bytes]:
    for kind, code in ((5, "<h"), (6, "<H"), (7, "<i"), (8, "<I"), (9, "<q"), (10, "<Q")):
        try:
            return kind, struct.pack(code, value)
        except struct.error:
            continue
    raise ValueError(value)


def size(length: int) -> bytes:
    data = b""
    while True:
        length, low = divmod(length, 128)
        data += bytes((low | (128 if length else 0),))
        if not length:
            return data


def container(kind: int, keys: list[bytes], values: list, large: bool) -> tuple[int, bytes]:
    code, width = ("<I", 4) if large else ("<H", 2)
    start = 2 * width + len(keys) * (width + 2) + len(values) * (width + 1)
    entries, tail = b"", b"".join(keys)
    for n, key in enumerate(keys):
        entries += struct.pack(code, start + sum(map(len, keys[:n]))) + struct.pack("<H", len(key))
    for value in values:
        child, body = encode(value, large)
        if child == 4 or child in (5, 6) or (child in (7, 8) and large):
            entries += bytes((child,)) + body.ljust(width, b"\0")
        else:
            entries += bytes((child,)) + struct.pack(code, start + len(tail))
            tail += body
    return kind, struct.pack(code, len(values)) + struct.pack(code, start + len(tail)) + entries + tail


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (False, "false"),
        (0, "0"),
        (-1, "-1"),
        (32768, "32768"),
        (-40000, "-40000"),
        (4294967295, "4294967295"),
        (-(1 << 63), "-9223372036854775808"),
        ((1 << 64) - 1, "18446744073709551615"),
        (1.0, "1.0"),
        (-0.0, "-0.0"),
        (2.5, "2.5"),
        (1e100, "1e100"),
        (1e15, "1e15"),
        (123456789012345.0, "123456789012345.0"),
        ("", '""'),
        ('a"\\/\b\f\n\r\t\x01\x1f\x7fü😀', '"a\\"\\\\/\\b\\f\\n\\r\\t\\u0001\\u001f\x7fü😀"'),
        ("x" * 300, '"' + "x" * 300 + '"'),
        ([], "[]"),
        ({}, "{}"),
        ([[], {}, [1]], "[[], {}, [1]]"),
        ({"bb": 1, "a": {"": None}, "c": 70000}, '{"a": {"": null}, "c": 70000, "bb": 1}'),
        (b"\x0f\xff\0", '"base64:type15:/wA="'),
        (b"\xfdtext", '"text"'),
        (b"\xfc" + b"x" * 60, '"base64:type252:' + "eHh4" * 19 + "\\n" + 'eHh4"'),
        (b"\xf6\x0b\x02\x80\0\0\x012", "1.50"),
        (b"\xf6\x03\x03\x80\x05", "0.005"),
        (b"\x0a" + struct.pack("<q", (2020 * 13 + 1) << 46 | 2 << 41), '"2020-01-02"'),
        (
            b"\x0c" + struct.pack("<q", ((2020 * 13 + 1) << 5 | 2) << 41 | (3 << 12 | 4 << 6 | 5) << 24 | 7),
            '"2020-01-02 03:04:05.000007"',
        ),
        (b"\x07" + struct.pack("<q", 0), '"0000-00-00 00:00:00.000000"'),
        (b"\x0b" + struct.pack("<q", -((838 << 12 | 59 << 6 | 59) << 24 | 1)), '"-838:59:59.000001"'),
    ],
)
def test_prints_as_the_server(value, text, large):
    assert json_text(document(value, large)).decode() == text
    assert json_text(document([value, value], large)).decode() == f"[{text}, {text}]"


def test_a_document_of_no_bytes_is_null():
    assert json_text(b"") == b"null"


def test_more_than_64_kilobytes():
    value = {f"key {n}": ["x" * 50, n] for n in range(2000)}
    assert json.loads(json_text(document(value, large=True))) == value


def changed(before, *changes) -> str:
    diffs = b""
    for operation, path, *value in changes:
        diffs += bytes((operation,)) + b"\xfc" + struct.pack("<H", len(path.encode())) + path.encode()
        for one in value:
            diffs += b"\xfc" + struct.pack("<H", len(document(one))) + document(one)
    return patched_text(document(before), diffs).decode()


REPLACE, INSERT, REMOVE = range(3)


@pytest.mark.parametrize(
    ("before", "changes", "after"),
    [
        ({"a": [1, 2]}, [(REPLACE, "$.a[0]", 99)], '{"a": [99, 2]}'),
        ({"a": 1, "cc": 2}, [(INSERT, "$.b", "x"), (REMOVE, "$.a")], '{"b": "x", "cc": 2}'),
        ([1, [2, 3]], [(REMOVE, "$[1][0]"), (INSERT, "$[1][1]", {}), (INSERT, "$[9]", 4)], "[1, [3, {}], 4]"),
        ([1, 2, 3], [(REPLACE, "$[last]", 9), (REPLACE, "$[last-2]", 7)], "[7, 2, 9]"),
        ([1, 2, 3], [(REMOVE, "$[last-1]")], "[1, 3]"),
        ({'a b.["': {"é": 1}}, [(REPLACE, '$."a b.[\\""."é"', 2)], '{"a b.[\\"": {"é": 2}}'),
        ({"ключ": 1}, [(REPLACE, "$.ключ", None)], '{"ключ": null}'),
        ({"a": 1}, [(REPLACE, "$.a", {"b": 1}), (INSERT, "$.a.c", 2)], '{"a": {"b": 1, "c": 2}}'),
        ({"a": 1}, [], '{"a": 1}'),
    ],
)
def test_partial_updates(before, changes, after):
    assert changed(before, *changes) == after


@pytest.mark.parametrize(
    "change",
    [
        (REPLACE, "$.b", 1),
        (REMOVE, "$.b"),
        (INSERT, "$.a", 1),
        (REPLACE, "$.a[0]", 1),
        (INSERT, "$[0]", 1),
        (REPLACE, "$", 1),
        (REMOVE, "$.a.b"),
        (REPLACE, "$.*", 1),
        (REPLACE, "$[*]", 1),
        (REPLACE, "a", 1),
        (3, "$.a", 1),
        (REPLACE, "$**.a", 1),
        (REPLACE, "", 1),
    ],
)
def test_changes_that_do_not_fit_the_document(change):
    with pytest.raises(ValueError, match=r"JSON"):
        changed({"a": 1}, change)


def test_mangled_documents_end_in_text_or_in_an_error_that_is_known():
    value = {"a": [1, 2.5, None, "text", {"b": -70000}], "cc": b"\xf6\x0b\x02\x80\0\0\x012", "d": b"\x0c" + bytes(8)}
    random, refused = Random(4), 0
    for large in (False, True):
        whole = document(value, large)
        for _ in range(1500):
            mangled = bytearray(whole)
            mangled[random.randrange(len(whole))] = random.randrange(256)
            try:
                json.loads(json_text(bytes(mangled)[: random.choice((None, None, random.randrange(len(whole))))]))
            except (ValueError, IndexError, struct.error):
                refused += 1
    assert 800 < refused < 3000


def test_depth_is_bounded():
    value: list = []
    for _ in range(99):
        value = [value]
    assert json_text(document(value)).count(b"[") == 100
    with pytest.raises(ValueError, match="deeply"):
        json_text(document([value]))
