"""Deadlocks, lock waits and lost connections are tried again a few times, in a session of its own each time."""

import contextlib
import itertools
import random
import time
from collections.abc import Callable
from typing import TypeVar

from pymysql.connections import Connection

from unshard.adapters.target.session import Writer, open_session
from unshard.errors import UnshardError

ATTEMPTS = 6
FIRST_PAUSE = 0.1
T = TypeVar("T")


def repeated(once: Callable[[], T]) -> T:
    """Call until it ends without an error that may pass by itself, with longer and longer pauses."""
    for attempt in itertools.count(1):
        try:
            return once()
        except UnshardError as error:
            if not error.transient or attempt == ATTEMPTS:
                raise
        time.sleep(FIRST_PAUSE * 2 ** (attempt - 1) * random.uniform(0.5, 1.5))
    raise AssertionError


def in_sessions(writer: Writer, once: Callable[[Connection], T]) -> T:
    """Call with a new session of the target each time."""

    def in_session() -> T:
        with contextlib.closing(open_session(writer)) as connection:
            return once(connection)

    return repeated(in_session)
