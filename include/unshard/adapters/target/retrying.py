"""Retry after deadlocks, lock waits and lost connections: a few times, each time in another session."""

import itertools
import random
import time
from collections.abc import Callable
from typing import TypeVar

from pymysql.connections import Connection

from unshard.adapters.target.session import Writer, kept_session
from unshard.errors import UnshardError

ATTEMPTS = 6
FIRST_PAUSE = 0.1
T = TypeVar("T")


def repeated(once: Callable[[], T]) -> T:
    """Call `once` until it succeeds or fails with a permanent error, with growing pauses between attempts."""
    for attempt in itertools.count(1):
        try:
            return once()
        except UnshardError as error:
            if not error.transient or attempt == ATTEMPTS:
                raise
        time.sleep(FIRST_PAUSE * 2 ** (attempt - 1) * random.uniform(0.5, 1.5))
    raise AssertionError


def in_sessions(writer: Writer, once: Callable[[Connection], T]) -> T:
    """Call `once` with a session of the target, and after an error with another one."""

    def in_session() -> T:
        with kept_session(writer) as connection:
            return once(connection)

    return repeated(in_session)
