"""The types of keys, with their checks and their names in docs/config.md."""

import re
from base64 import b64decode
from collections.abc import Callable, Mapping
from datetime import timedelta
from enum import StrEnum

from unshard.config.declare import Block, FilePlace, ValueKind, Values, kind_of, read_block
from unshard.config.yamltext import Entries, Items, Node, Scalar
from unshard.errors.config import BadValue, LaterKey, WrongType

INTEGER = re.compile(r"[+-]?(0|[1-9][0-9]{0,17})")
NUMBER = r"(\d{1,12}(?:\.\d{1,9})?)"
DURATION_PART = re.compile(NUMBER + r"(ms|s|m|h|d)")
LONGEST = 10 * 366 * 86400
SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
SIZE = re.compile(NUMBER + r"\s*([KMGT]?)(i?)(B?)", re.IGNORECASE)
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
MASKED = "******"
VECTOR = 16
"""Bytes before the @ in text of `dmctl encrypt`."""
BOOLEANS = {"true": True, "yes": True, "on": True, "y": True, "false": False, "no": False, "off": False, "n": False}

Problem = Callable[[str], str | None]
"""A check: returns None if the text is valid, else a description of a valid text."""


def scalar(node: Node, place: FilePlace, wanted: str) -> str:
    """Return the text as written; a list, a mapping or null is a WrongType."""
    if not isinstance(node, Scalar) or node.text is None:
        raise WrongType(str(place), wanted, kind_of(node))
    return node.text


def text(name: str = "text", check: Problem = lambda _: None, shown: bool = True) -> ValueKind:
    """Any scalar as written; `shown` is false if the value may be a secret by mistake."""

    def read(node: Node, place: FilePlace) -> str:
        value = scalar(node, place, name)
        if wanted := check(value):
            raise BadValue(str(place), value if shown else "the value", wanted)
        return value

    return ValueKind(name, read)


def secret() -> ValueKind:
    """A text that is never shown in a message."""

    def read(node: Node, place: FilePlace) -> str:
        value = scalar(node, place, "text")
        if value == MASKED:
            place.warn("this is not the password: dmctl shows ****** in its place; use conn-id or password-env")
        elif _is_encrypted(value):
            place.warn(
                "the password looks like output of `dmctl encrypt`, which unshard does not decrypt: "
                "`dmctl decrypt` shows the password; use conn-id or password-env for it"
            )
        elif value:
            place.warn("the file contains a password; use conn-id or password-env instead", is_password=True)
        return value

    return ValueKind("text", read)


def _is_encrypted(value: str) -> bool:
    """Whether the text is base64 of 16 random bytes, an @ and at least one byte."""
    try:
        data = b64decode(value, validate=True)
    except ValueError:
        return False
    return len(data) > VECTOR + 1 and data[VECTOR : VECTOR + 1] == b"@"


def integer(low: int, high: int | None = None, zero: int | None = None) -> ValueKind:
    """A whole number within bounds; 0 means `zero`, the default, if it is set."""
    wanted = f"a whole number from {low} to {high}" if high is not None else f"a whole number of at least {low}"

    def read(node: Node, place: FilePlace) -> int:
        value = scalar(node, place, wanted)
        if value == "0" and zero is not None:
            return zero
        if not INTEGER.fullmatch(value) or int(value) < low or (high is not None and int(value) > high):
            raise BadValue(str(place), value, wanted)
        return int(value)

    return ValueKind("integer", read)


def boolean() -> ValueKind:
    """True or false, with YAML's other spellings."""

    def read(node: Node, place: FilePlace) -> bool:
        value = scalar(node, place, "true or false")
        if value.lower() not in BOOLEANS:
            raise BadValue(str(place), value, "true or false")
        return BOOLEANS[value.lower()]

    return ValueKind("boolean", read)


NONE: Mapping[str, str] = {}


def choice(
    values: Mapping[str, str],
    later: Mapping[str, str] = NONE,
    old: Mapping[str, str] = NONE,
    warned: Mapping[str, str] = NONE,
    any_case: bool = False,
) -> ValueKind:
    """One of a few values.

    `later` are values of DM for a later version, `old` values have newer names, `warned` values cause a warning.
    """
    shown = ", ".join(f"`{value}`" for value in values if value)

    def read(node: Node, place: FilePlace) -> str:
        value = scalar(node, place, f"one of {', '.join(values)}")
        value = value.lower() if any_case else value
        if value in later:
            raise LaterKey(str(place), f"{place.path.rpartition('.')[2]}: {value}", later[value])
        if value in warned:
            place.warn(f"'{value}' is not supported: {warned[value]}")
        if value in old:
            place.warn(f"'{value}' is the old name of '{old[value]}'")
            value = old[value]
        if value not in values:
            raise BadValue(str(place), value, f"one of {', '.join(filter(None, values))}")
        return values[value]

    return ValueKind(f"one of {shown}", read)


def duration() -> ValueKind:
    """Go's notation as in DM, or a number of seconds."""
    wanted = "a duration above zero like 1h, 90s or 1h30m, or a number of seconds"

    def read(node: Node, place: FilePlace) -> timedelta:
        value = scalar(node, place, wanted)
        seconds = seconds_in(value)
        if seconds is None or not 0 < seconds <= LONGEST:
            raise BadValue(str(place), value, wanted)
        return timedelta(seconds=seconds)

    return ValueKind("duration", read)


def seconds_in(value: str) -> float | None:
    """Return the seconds of a duration in Go's notation, or of a number; None if it is neither."""
    if re.fullmatch(NUMBER, value):
        return float(value)
    parts = DURATION_PART.findall(value)
    if not parts or "".join(number + unit for number, unit in parts) != value:
        return None
    return sum(float(number) * SECONDS[unit] for number, unit in parts)


def byte_size() -> ValueKind:
    """Bytes, with KiB, MiB, GiB (powers of 1024) or KB, MB, GB (powers of 1000)."""
    wanted = "a size above zero like 64MiB, or a number of bytes"

    def read(node: Node, place: FilePlace) -> int:
        value = scalar(node, place, wanted)
        found = SIZE.fullmatch(value)
        number = _bytes(*found.groups()) if found else 0
        if number < 1:
            raise BadValue(str(place), value, wanted)
        return number

    return ValueKind("size", read)


def _bytes(number: str, unit: str, binary: str, byte: str) -> int:
    if unit and not byte and not binary:
        return 0
    power = "KMGT".find(unit.upper()) + 1 if unit else 0
    return int(float(number) * (1024 if binary else 1000) ** power)


def texts(item: ValueKind | None = None) -> ValueKind:
    """A list of texts."""
    item = item or text()

    def read(node: Node, place: FilePlace) -> tuple[str, ...]:
        return tuple(item.read(child, place.item(number, child.line)) for number, child in _items(node, place))

    return ValueKind(f"list of {item.name}s", read)


def variables(refused: Mapping[str, str], idle: Mapping[str, str]) -> ValueKind:
    """Session variables; `refused` and `idle` are set by unshard itself and map to the reason."""

    def read(node: Node, place: FilePlace) -> tuple[tuple[str, str], ...]:
        found = []
        for name, child, line in _entries(node, place):
            at = place.at(name, line)
            if not VARIABLE.fullmatch(name):
                raise BadValue(str(at), name, "the name of a session variable")
            if name.lower() in refused:
                raise BadValue(str(at), name, refused[name.lower()])
            if name.lower() in idle:
                at.warn_idle(name, idle[name.lower()])
            found.append((name, scalar(child, at, "a single value")))
        return tuple(found)

    return ValueKind("mapping of texts", read)


def nested(block: Block) -> ValueKind:
    """A mapping with declared keys."""
    return ValueKind("mapping", lambda node, place: read_block(block, node, place), block)


def blocks(block: Block) -> ValueKind:
    """A list of mappings with declared keys."""

    def read(node: Node, place: FilePlace) -> tuple[Values, ...]:
        return tuple(read_block(block, child, place.item(number, child.line)) for number, child in _items(node, place))

    return ValueKind("list of mappings", read, block)


def named(block: Block) -> ValueKind:
    """Mappings with declared keys, under names of the user's choice."""

    def read(node: Node, place: FilePlace) -> dict[str, Values]:
        return {name: read_block(block, child, place.at(name, line)) for name, child, line in _entries(node, place)}

    return ValueKind("named mappings", read, block)


def _items(node: Node, place: FilePlace) -> list[tuple[int, Node]]:
    if not isinstance(node, Items):
        raise WrongType(str(place), "a list", kind_of(node))
    return list(enumerate(node.items))


def _entries(node: Node, place: FilePlace) -> list[tuple[str, Node, int]]:
    if not isinstance(node, Entries):
        raise WrongType(str(place), "a mapping", kind_of(node))
    return [(name, child, node.lines[name]) for name, child in node.entries.items()]


def words(values: type[StrEnum]) -> dict[str, StrEnum]:
    """Return the values of an enumeration by their text."""
    return {value.value: value for value in values}
