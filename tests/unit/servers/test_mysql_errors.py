"""Error numbers and messages of a server become coded errors; transient errors of TiDB must be retried."""

import pymysql
import pytest
from pymysql.connections import Connection

from unshard.adapters import mysql
from unshard.adapters.target import session
from unshard.errors import UnshardError
from unshard.errors.source import ConnectionLost, ServerBusy, StatementRefused

PASSING = (1205, 1213, 8002, 8005, 8022, 8028, *range(9001, 9008))
UNKNOWN_OUTCOME = 8501


def coded(errno: int, message: str = "words") -> UnshardError:
    connection = Connection(host="h", user="u", defer_connect=True)
    return mysql.coded(pymysql.err.OperationalError(errno, message), connection, "COMMIT")


def tries(error: UnshardError) -> int:
    """Return how often work is tried whose first attempt raises the error."""
    tried: list[int] = []

    def work() -> int:
        tried.append(1)
        if len(tried) == 1:
            raise error
        return len(tried)

    try:
        return session.repeated(work)
    except UnshardError:
        return len(tried)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "FIRST_PAUSE", 0)


@pytest.mark.parametrize("errno", PASSING)
def test_a_conflict_is_tried_again(errno: int) -> None:
    error = coded(errno)
    assert type(error) is ServerBusy
    assert tries(error) == 2


def test_a_commit_with_an_unknown_outcome_is_looked_after_in_a_new_session() -> None:
    error = coded(UNKNOWN_OUTCOME)
    assert type(error) is ConnectionLost
    assert tries(error) == 2


@pytest.mark.parametrize(
    ("errno", "message", "is_read_only"),
    [
        (1290, "The MariaDB server is running with the --read-only option so it cannot execute this statement", True),
        (1290, "The MySQL server is running with the --super-read-only option so it cannot execute this", True),
        (1836, "Running in read-only mode", True),
        (1792, "Cannot execute statement in a READ ONLY transaction", True),
        (1290, "The MySQL server is running with the --secure-file-priv option so it cannot execute this", False),
    ],
)
def test_a_server_that_is_read_only_is_named(errno: int, message: str, is_read_only: bool) -> None:
    error = coded(errno, message)
    assert isinstance(error, StatementRefused) and error.errno == errno
    assert (error.code == "US-2365") == is_read_only == error.transient
    assert ("flavor" in str(error)) != is_read_only


@pytest.mark.parametrize("errno", [1064, 1105, 8003, 8200, 9008, 9010])
def test_any_other_error_is_not_tried_again(errno: int) -> None:
    error = coded(errno)
    assert type(error) is StatementRefused
    assert tries(error) == 1


def test_no_other_number_is_a_conflict() -> None:
    assert {errno for errno, kind in mysql.CAUSES.items() if kind is ServerBusy} == set(PASSING)


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("tikv aborts txn: pessimistic lock not found", ServerBusy),
        (
            "tikv aborts txn: Error(Txn(Error(Mvcc(Error(PessimisticLockNotFound { start_ts: TimeStamp(4) })))))",
            ServerBusy,
        ),
        ("can't find column c", StatementRefused),
    ],
)
def test_a_transaction_that_tidb_aborts_is_tried_again(message: str, kind: type[UnshardError]) -> None:
    """Such an error has no number of its own."""
    error = coded(1105, message)
    assert type(error) is kind
    assert error.transient is (kind is ServerBusy)
