r"""Name patterns of routes and lists: wildcards, or `~` and a regular expression.

A wildcard pattern matches the whole name: `*` matches any characters, anywhere in the pattern (DM allows it only
at the end), `?` one character, `[a-c]` one character of a class, `[!a-c]` one character that is not in the class. A
regular expression matches any part of the name unless it is anchored. DM's expressions are Go's; the common syntax
is the same, and `\d`, `\w`, `\s` match ASCII only, as in Go. Syntax that Python reads differently is rejected.
"""

import re
import warnings
from dataclasses import dataclass

from unshard.errors.config import PatternInvalid

NUMBER_RANGE = re.compile(r"\d-\d\d+(?![-\d])")


@dataclass(frozen=True, slots=True)
class Pattern:
    """A compiled pattern; `text` is as the user wrote it."""

    text: str
    compiled: re.Pattern[str]

    @property
    def is_literal(self) -> bool:
        """Whether it matches one name only, in any case."""
        return not self.text.startswith("~") and not set("*?[") & set(self.text)

    def matches(self, name: str) -> bool:
        """Whether the pattern matches the whole name (wildcards) or a part of it (regular expression)."""
        return self.compiled.search(name) is not None


def compile_pattern(text: str, case_sensitive: bool, rule: str) -> Pattern:
    """Compile one pattern; raises PatternInvalid, which names `rule`."""
    flags = re.NOFLAG if case_sensitive else re.IGNORECASE
    try:
        if text.startswith("~"):
            return Pattern(text, _compile(text[1:], flags | re.ASCII))
        return Pattern(text, _compile(_wildcards(text), flags | re.DOTALL))
    except (re.error, ValueError, FutureWarning) as error:
        raise PatternInvalid(rule, text, str(error)) from None


def compile_regex(text: str, case_sensitive: bool, rule: str) -> re.Pattern[str]:
    """Compile a regular expression that is not marked with `~`; raises PatternInvalid, which names `rule`."""
    try:
        return _compile(text, (re.NOFLAG if case_sensitive else re.IGNORECASE) | re.ASCII)
    except (re.error, ValueError, FutureWarning) as error:
        raise PatternInvalid(rule, text, str(error)) from None


def _compile(text: str, flags: int) -> re.Pattern[str]:
    if not text:
        raise ValueError("it is empty")
    with warnings.catch_warnings():
        # Python warns if a set like [[:alpha:]] has another meaning than in Go.
        warnings.simplefilter("error", FutureWarning)
        return re.compile(text, flags)


def _wildcards(text: str) -> str:
    if not text:
        return ""
    parts, at = [r"\A"], 0
    while at < len(text):
        end = _class_end(text, at) if text[at] == "[" else at + 1
        parts.append(_part(text[at:end]))
        at = end
    return "".join([*parts, r"\Z"])


def _class_end(text: str, start: int) -> int:
    end = text.find("]", start)
    if end < 0:
        raise ValueError("the [ is never closed")
    return end + 1


def _part(part: str) -> str:
    match part:
        case "*":
            return ".*"
        case "?":
            return "."
        case _ if part[0] == "[":
            return _class(part[1:-1])
        case _:
            return re.escape(part)


def _class(body: str) -> str:
    negated, members = body.startswith("!"), body.removeprefix("!")
    if not members:
        raise ValueError("a class in [ ] is empty")
    if NUMBER_RANGE.search(members):
        raise ValueError(f"[{body}] matches one character, not a range of numbers")
    escaped = re.sub(r"([\\^\[&|~])", r"\\\1", members)
    return f"[{'^' if negated else ''}{escaped}]"
