"""Files with the traceback of an unexpected error, which contain no password of a connection.

A traceback shows source lines, not values. Only the messages of the exceptions may contain a password, so these are
searched for every secret with which this process has opened a connection.
"""

import os
import platform
import re
import sys
import tempfile
import traceback
import urllib.parse
from collections.abc import Iterator
from datetime import UTC, datetime

import unshard
from unshard.errors import UnshardError
from unshard.errors.meta import PackageMissing, UnexpectedError

SHOWN_MESSAGE = 300
HIDDEN = "***"
SHORT = 3
"""A secret of so few characters is hidden as a whole word only: hidden anywhere, it would make a text unreadable."""
USER_INFO = re.compile(r"(://[^/\s:@]*):[^@\s/]+@")
_secrets: set[str] = set()


def hide(*secrets: str) -> None:
    """Remember passwords that no text of this module may contain."""
    _secrets.update(form for secret in secrets if secret for form in (secret, urllib.parse.quote(secret, safe="")))


def coded(error: BaseException) -> UnshardError:
    """Write the traceback into a new file and return the coded error that names it; a missing package needs none."""
    if isinstance(error, ModuleNotFoundError) and error.name and not error.name.startswith("unshard"):
        return PackageMissing(error.name)
    message = " ".join(_message_of(error).split())[:SHOWN_MESSAGE]
    try:
        place = f"its traceback is in {_write(error)}"
    except OSError as refused:
        place = f"its traceback could not be written ({refused})"
    return UnexpectedError(message, place)


def text_of(error: BaseException) -> str:
    """Return the traceback with all causes, the first one first."""
    return "\nThis led to the next exception:\n\n".join(
        f"Traceback (most recent call last):\n{''.join(traceback.format_tb(each.__traceback__))}{_message_of(each)}"
        for each in reversed([*_causes(error)])
    )


def _write(error: BaseException) -> str:
    now = datetime.now(UTC)
    command = " ".join(["unshard", *sys.argv[1:]])
    about = f"unshard {unshard.__version__}, Python {platform.python_version()}, {now:%Y-%m-%d %H:%M:%S} UTC"
    handle, path = tempfile.mkstemp(".txt", f"unshard-error-{now:%Y%m%dT%H%M%S}-")
    with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(f"{about}\n{_without_secrets(command)}\n\n{text_of(error)}")
    return path


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _message_of(error: BaseException) -> str:
    return _without_secrets("".join(traceback.format_exception_only(error)))


def _without_secrets(text: str) -> str:
    text = USER_INFO.sub(rf"\1:{HIDDEN}@", text)
    for secret in sorted(_secrets, key=len, reverse=True):
        pattern = re.escape(secret)
        text = re.sub(pattern if len(secret) > SHORT else rf"(?<!\w){pattern}(?!\w)", HIDDEN, text)
    return text
