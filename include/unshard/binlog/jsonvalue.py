"""Convert MySQL's binary JSON to the text that the server prints, and apply partial updates.

A document is read into dicts, lists, and scalars that are already printed. The server orders the keys of an object by
length, then by bytes, and allows no duplicates; a document that violates this is damaged. A contradiction raises
ValueError or IndexError, which the decoder turns into a coded error.
"""

import itertools
import json
import re
import struct
from base64 import b64encode
from collections.abc import Callable

from unshard.binlog.metadata import packed
from unshard.binlog.values import date_of, datetime_of, decimal_bytes, decimal_text, number_text, time_of

Node = dict[bytes, "Node"] | list["Node"] | bytes
Leg = bytes | int
MAX_DEPTH = 100
_SMALL_OBJECT, _LARGE_OBJECT, _SMALL_ARRAY, _LARGE_ARRAY, _LITERAL = range(5)
_STRING, _OPAQUE = 12, 15
_LITERALS = (b"null", b"true", b"false")
_NUMBERS = {
    5: struct.Struct("<h"),
    6: struct.Struct("<H"),
    7: struct.Struct("<i"),
    8: struct.Struct("<I"),
    9: struct.Struct("<q"),
    10: struct.Struct("<Q"),
    11: struct.Struct("<d"),
}
_DOUBLE = 11
_INLINE = {2: frozenset((_LITERAL, 5, 6)), 4: frozenset((_LITERAL, 5, 6, 7, 8))}
"""Types whose value is stored in place of an offset, by the size of offsets."""
_DATE, _TIME, _DATETIME, _TIMESTAMP, _DECIMAL, _VAR_STRING = 10, 11, 12, 7, 246, 253
_LINE = 76
"""Characters of base64 after which the server starts a new line."""
_REPLACE, _INSERT, _REMOVE = range(3)
_SPECIAL = re.compile(rb'[\x00-\x1f"\\]')
_ESCAPES = {b'"': b'\\"', b"\\": b"\\\\", b"\b": b"\\b", b"\f": b"\\f", b"\n": b"\\n", b"\r": b"\\r", b"\t": b"\\t"}
_LEG = re.compile(r'\[(?:(\d+)|(last)(?:-(\d+))?)\]|\.(?:"((?:[^"\\]|\\.)*)"|([^.\["]+))')


def json_text(data: bytes) -> bytes:
    """Print a document."""
    return text_of(read(data))


def patched_text(before: bytes, diffs: bytes) -> bytes:
    """Print a document after applying the changes of a partial update in order."""
    root, offset = read(before), 0
    while offset < len(diffs):
        operation = diffs[offset]
        path, offset = _counted(diffs, offset + 1)
        value: Node = b""
        if operation != _REMOVE:
            document, offset = _counted(diffs, offset)
            value = read(document)
        _apply(root, operation, _legs(path.decode()), value)
    return text_of(root)


def read(data: bytes) -> Node:
    """Read a document; an empty value is null, as in the server."""
    return _value(data[0], data[1:], MAX_DEPTH) if data else _LITERALS[0]


def text_of(node: Node) -> bytes:
    """Print a document that was read."""
    match node:
        case bytes():
            return node
        case list():
            return b"[" + b", ".join(map(text_of, node)) + b"]"
        case dict():
            return b"{" + b", ".join(_quoted(key) + b": " + text_of(value) for key, value in node.items()) + b"}"


def _value(kind: int, data: bytes, depth: int) -> Node:
    if kind <= _LARGE_ARRAY:
        if depth == 0:
            raise ValueError("JSON is nested too deeply")
        return _container(kind, data, depth)
    if kind in _NUMBERS:
        (number,) = _NUMBERS[kind].unpack_from(data)
        return _double(number) if kind == _DOUBLE else b"%d" % number
    match kind:
        case _ if kind == _LITERAL:
            return _LITERALS[data[0]]
        case _ if kind == _STRING:
            return _quoted(_sized(data, 0))
        case _ if kind == _OPAQUE:
            return _opaque(data[0], _sized(data, 1))
        case _:
            raise ValueError(f"JSON of type {kind}")


def _container(kind: int, data: bytes, depth: int) -> Node:
    """Read an object or array: counts, entries of keys and values, then the data at their offsets."""
    width = 4 if kind in (_LARGE_OBJECT, _LARGE_ARRAY) else 2
    is_object = kind <= _LARGE_OBJECT
    count, size = _integer(data, 0, width), _integer(data, width, width)
    values = 2 * width + (count * (width + 2) if is_object else 0)
    entries_end = values + count * (1 + width)
    if not entries_end <= size <= len(data):
        raise ValueError(f"JSON of {size} bytes in {len(data)}")
    data = data[:size]
    found: list[Node] = []
    for entry in range(values, entries_end, 1 + width):
        child, at = data[entry], entry + 1
        if child not in _INLINE[width]:
            at = _integer(data, at, width)
            if not entries_end <= at < size:
                raise ValueError("JSON points outside itself")
        found.append(_value(child, data[at:], depth - 1))
    if not is_object:
        return found
    return dict(zip(_keys(data, count, width, entries_end), found, strict=True))


def _keys(data: bytes, count: int, width: int, begins: int) -> list[bytes]:
    keys: list[bytes] = []
    for entry in range(2 * width, 2 * width + count * (width + 2), width + 2):
        at, size = _integer(data, entry, width), _integer(data, entry + width, 2)
        if at < begins or at + size > len(data):
            raise ValueError("a JSON key is outside its document")
        keys.append(data[at : at + size])
    if any(_order(one) >= _order(other) for one, other in itertools.pairwise(keys)):
        raise ValueError("JSON keys are out of order")
    return keys


def _order(key: bytes) -> tuple[int, bytes]:
    return len(key), key


def _integer(data: bytes, offset: int, width: int) -> int:
    if offset + width > len(data):
        raise IndexError("JSON is cut off")
    return int.from_bytes(data[offset : offset + width], "little")


def _sized(data: bytes, offset: int) -> bytes:
    """Read bytes that follow their length, which has seven bits in each byte."""
    size = shift = 0
    while True:
        byte = data[offset]
        size |= (byte & 127) << shift
        offset, shift = offset + 1, shift + 7
        if not byte & 128:
            break
        if shift > 28:
            raise ValueError("a length in JSON has too many bytes")
    if offset + size > len(data):
        raise IndexError("JSON is cut off")
    return data[offset : offset + size]


def _quoted(value: bytes) -> bytes:
    value.decode()
    return b'"' + (_SPECIAL.sub(_escaped, value) if _SPECIAL.search(value) else value) + b'"'


def _escaped(found: re.Match[bytes]) -> bytes:
    return _ESCAPES.get(found[0]) or b"\\u%04x" % ord(found[0])


def _double(value: float) -> bytes:
    """Print a double in a form that is read back as a double."""
    if value - value:
        raise ValueError("a JSON number is not finite")
    text = number_text(value)
    return text if b"." in text or b"e" in text else text + b".0"


def _opaque(kind: int, data: bytes) -> bytes:
    """Print a value that JSON has no type for; all but decimals and times become base64 with the type's number."""
    if kind in _TIMES:
        if len(data) != 8:
            raise ValueError(f"a time of {len(data)} bytes in JSON")
        return b'"' + _TIMES[kind](int.from_bytes(data, "little", signed=True)) + b'"'
    if kind == _DECIMAL:
        return _decimal(data)
    if kind == _VAR_STRING:
        return _quoted(data)
    encoded = b64encode(data)
    lines = b"\n".join(encoded[start : start + _LINE] for start in range(0, len(encoded), _LINE))
    return _quoted(b"base64:type%d:" % kind + lines)


def _decimal(data: bytes) -> bytes:
    precision, scale = data[0], data[1]
    if not 0 < precision <= 65 or scale > min(precision, 30) or len(data) != 2 + decimal_bytes(precision, scale):
        raise ValueError(f"DECIMAL({precision},{scale}) of {len(data)} bytes in JSON")
    return decimal_text(precision, scale)(data, 2)


_TIMES: dict[int, Callable[[int], bytes]] = {
    _DATE: date_of,
    _TIME: time_of,
    _DATETIME: datetime_of,
    _TIMESTAMP: datetime_of,
}


def _counted(data: bytes, offset: int) -> tuple[bytes, int]:
    size, offset = packed(data, offset)
    if offset + size > len(data):
        raise IndexError("a JSON change is cut off")
    return data[offset : offset + size], offset + size


def _legs(path: str) -> list[Leg]:
    """Parse a path without wildcards:

    keys as bytes, array indexes as numbers, indexes from the end as negative numbers.
    """
    legs: list[Leg] = []
    offset = 1
    while offset < len(path) and (found := _LEG.match(path, offset)):
        cell, last, back, quoted, name = found.groups()
        if cell:
            legs.append(int(cell))
        elif last:
            legs.append(-1 - int(back or 0))
        else:
            legs.append((name or json.loads(f'"{quoted}"')).encode())
        offset = found.end()
    if path[:1] != "$" or offset != len(path) or not legs:
        raise ValueError(f"the path {path} of a change of JSON")
    return legs


def _apply(root: Node, operation: int, legs: list[Leg], value: Node) -> None:
    """Apply one change; its path must exist, or must not exist for an insert."""
    node = root
    for leg in legs[:-1]:
        node = _child(node, leg)
    last = legs[-1]
    if operation == _INSERT:
        _insert(node, last, value)
        return
    _child(node, last)
    if operation not in (_REPLACE, _REMOVE):
        raise ValueError(f"operation {operation} on JSON")
    if isinstance(node, dict) and isinstance(last, bytes):
        if operation == _REPLACE:
            node[last] = value
        else:
            del node[last]
    elif isinstance(node, list) and isinstance(last, int):
        node[last : last + 1 or None] = [value] if operation == _REPLACE else []


def _child(node: Node, leg: Leg) -> Node:
    if isinstance(node, dict) and isinstance(leg, bytes) and leg in node:
        return node[leg]
    if isinstance(node, list) and isinstance(leg, int) and -len(node) <= leg < len(node):
        return node[leg]
    raise ValueError(f"a JSON change refers to {leg!r}, which does not exist")


def _insert(node: Node, leg: Leg, value: Node) -> None:
    if isinstance(node, dict) and isinstance(leg, bytes) and leg not in node:
        node[leg] = value
        ordered = sorted(node.items(), key=lambda item: _order(item[0]))
        node.clear()
        node.update(ordered)
    elif isinstance(node, list) and isinstance(leg, int):
        node.insert(leg, value)
    else:
        raise ValueError(f"a change of JSON inserts {leg!r}, which cannot be")
