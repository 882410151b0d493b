"""A session that is opened in advance or when it is needed."""

import contextlib
import threading
from collections.abc import Iterator

import pytest

from unshard.adapters import spark
from unshard.errors.meta import SparkUnavailable
from unshard.units.work import LazySpark, open_ahead


class Sessions:
    """Replaces the opening of sessions; each waits until it may go on."""

    def __init__(self) -> None:
        self.may_open, self.asked = threading.Event(), threading.Event()
        self.opened = self.closed = 0
        self.error: Exception | None = None

    @contextlib.contextmanager
    def session(self, *_: object) -> Iterator[object]:
        self.asked.set()
        self.may_open.wait()
        if self.error:
            raise self.error
        self.opened += 1
        yield object()
        self.closed += 1


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> Sessions:
    found = Sessions()
    monkeypatch.setattr(spark, "session", found.session)
    monkeypatch.setattr(spark, "is_usable", lambda _: True)
    return found


def lazy(stack: contextlib.ExitStack, connection: str = "local[2]") -> LazySpark:
    return LazySpark(stack, connection, {}.__getitem__, "shop", lambda: None)


def test_a_session_in_advance_is_the_one_that_a_job_gets(sessions: Sessions) -> None:
    with contextlib.ExitStack() as stack:
        session = lazy(stack)
        open_ahead(session)
        sessions.asked.wait()
        sessions.may_open.set()
        assert session() is session()
        open_ahead(session)
        assert (sessions.opened, sessions.closed) == (1, 0)
    assert (sessions.opened, sessions.closed) == (1, 1)


def test_a_session_that_nobody_needed_is_closed(sessions: Sessions) -> None:
    with contextlib.ExitStack() as stack:
        stack.callback(sessions.may_open.set)
        open_ahead(lazy(stack))
        stack.callback(sessions.may_open.set)
    assert (sessions.opened, sessions.closed) == (1, 1)


def test_the_job_meets_an_error_of_the_start(sessions: Sessions) -> None:
    sessions.error = SparkUnavailable("local[2]", "no Java")
    sessions.may_open.set()
    with contextlib.ExitStack() as stack:
        session = lazy(stack)
        open_ahead(session)
        with pytest.raises(SparkUnavailable, match="no Java"):
            session()


def test_a_session_that_is_lost_is_followed_by_another_one(sessions: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    sessions.may_open.set()
    with contextlib.ExitStack() as stack:
        session = lazy(stack)
        lost = session()
        monkeypatch.setattr(spark, "is_usable", lambda found: found is not lost)
        assert session() is not lost and session() is session()
        assert (sessions.opened, sessions.closed) == (2, 0)
    assert (sessions.opened, sessions.closed) == (2, 2)


def test_what_is_local() -> None:
    with contextlib.ExitStack() as stack:
        found = [lazy(stack, each).is_local for each in ("local", "local[2]", "local[*]", "yarn", "sc://127.0.0.1:1")]
        by_id = {"a": {"conn_type": "spark", "host": "local[2]"}}.__getitem__
        assert LazySpark(stack, "a", by_id, "shop", lambda: None).is_local
    assert found == [True, True, True, False, False]
