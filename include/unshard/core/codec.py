"""Converts frozen dataclasses to JSON and back, by their type hints.

Plans and queue entries are stored before they are used, so the value that is read must be equal to the
value that was written. Reading is strict: an unknown or a missing field is an error, because a plan of
another version must not be read in part. A field with a default may be missing, so that values that were
written before the field existed can be read.
"""

import json
import re
import types
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")
PLAIN = (str, int, bool, float, type(None))


def dumps(value: object) -> str:
    """Return the JSON text of a dataclass, tuple, enum or plain value."""
    return json.dumps(to_plain(value), ensure_ascii=False, separators=(",", ":"))


def loads(kind: type[T], text: str) -> T:
    """Return the value of type `kind` that `dumps` wrote; raises ValueError if the text does not match the type."""
    return cast(T, from_plain(kind, json.loads(text)))


def to_plain(value: object) -> Any:
    """Return `value` as lists, dicts and plain values."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, re.Pattern):
        return [value.pattern, value.flags]
    if isinstance(value, tuple | list):
        return [to_plain(item) for item in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_plain(getattr(value, field.name)) for field in fields(value)}
    raise TypeError(f"cannot write a {type(value).__name__}")


def from_plain(kind: Any, body: Any) -> Any:
    """Return the value of type `kind` that `to_plain` has converted; raises ValueError."""
    origin = get_origin(kind)
    if kind is Any or origin is re.Pattern:
        return re.compile(*body) if origin else body
    if origin in (Union, types.UnionType):
        return _union(get_args(kind), body)
    if origin is tuple:
        return _tuple(get_args(kind), body)
    if isinstance(kind, type) and is_dataclass(kind):
        return _dataclass(kind, body)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(body)
    return _plain(kind, body)


def _plain(kind: Any, body: Any) -> Any:
    if kind in PLAIN and type(body) is kind:
        return body
    raise ValueError(f"expected {getattr(kind, '__name__', kind)}, found {body!r:.80}")


def _union(kinds: tuple[Any, ...], body: Any) -> Any:
    if body is None and type(None) in kinds:
        return None
    others = [kind for kind in kinds if kind is not type(None)]
    if len(others) == 1:
        return from_plain(others[0], body)
    if not all(isinstance(kind, type) and is_dataclass(kind) for kind in others) or not isinstance(body, dict):
        raise TypeError(f"cannot read a union of {others}")
    # The fields decide which of several dataclasses it is.
    return next((from_plain(kind, body) for kind in others if _shape(kind)[1].keys() == body.keys()), None)


def _tuple(kinds: tuple[Any, ...], body: Any) -> tuple[Any, ...]:
    if not isinstance(body, list):
        raise ValueError(f"expected a list, found {body!r:.80}")
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        return tuple(from_plain(kinds[0], item) for item in body)
    return tuple(from_plain(kind, item) for kind, item in zip(kinds, body, strict=True))


def _dataclass(kind: Any, body: Any) -> Any:
    hints, known = _shape(kind)
    if not isinstance(body, dict) or body.keys() - known.keys():
        raise ValueError(f"not a {kind.__name__}: {body!r:.80}")
    missing = [name for name in known.keys() - body.keys() if known[name].default is MISSING]
    if missing:
        raise ValueError(f"a {kind.__name__} without {', '.join(sorted(missing))}")
    return kind(**{name: from_plain(hints[name], item) for name, item in body.items()})


@cache
def _shape(kind: Any) -> tuple[dict[str, Any], dict[str, Field[Any]]]:
    return get_type_hints(kind), {field.name: field for field in fields(kind)}
