"""Server errors without their own number are identified by their message."""

import pymysql
import pytest
from pymysql.connections import Connection

from unshard.adapters.mysql import coded
from unshard.errors import UnshardError
from unshard.errors.source import ServerBusy, StatementRefused


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("tikv aborts txn: pessimistic lock not found", ServerBusy),
        (
            "tikv aborts txn: Error(Txn(Error(Mvcc(Error(PessimisticLockNotFound { start_ts: TimeStamp(4) })))))",
            ServerBusy,
        ),
        ("can't find column c", StatementRefused),
    ],
)
def test_transaction_that_tidb_aborts_is_tried_again(words: str, kind: type[UnshardError]) -> None:
    error = coded(pymysql.err.OperationalError(1105, words), Connection(defer_connect=True), "COMMIT")
    assert type(error) is kind
    assert error.transient is (kind is ServerBusy)
