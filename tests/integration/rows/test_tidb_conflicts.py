"""Transient errors of TiDB, provoked at the COMMIT of a window: the window is retried."""

import contextlib
import random
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from tests.cutting import interrupted_at
from tests.integration.rows.test_target_apply import TABLES, Change, Target, insert, make
from unshard.adapters import mysql
from unshard.adapters.target import session
from unshard.core.rows.compaction import Op
from unshard.errors import UnshardError
from unshard.errors.source import ServerBusy, TableMissing
from unshard_demo.servers import MariaDb

pytestmark = [pytest.mark.integration, pytest.mark.tidb, pytest.mark.parametrize("target", ["tidb"], indirect=True)]
__all__ = ["make"]
OPTIMISTIC = "SET SESSION tidb_txn_mode = 'optimistic', tidb_disable_txn_auto_retry = 1"


@pytest.fixture
def errors(monkeypatch: pytest.MonkeyPatch) -> list[UnshardError]:
    """Collect the errors of sessions in which the server refused a statement."""
    found: list[UnshardError] = []
    translated = mysql.coded

    def coded(*given: object) -> UnshardError:
        error = translated(*given)  # type: ignore[arg-type]
        if not isinstance(error, TableMissing):  # the first write creates the table of last writes
            found.append(error)
        return error

    monkeypatch.setattr(mysql, "coded", coded)
    monkeypatch.setattr(session, "FIRST_PAUSE", 0.01)
    return found


@pytest.fixture
def unlocked_metadata(target: MariaDb) -> Iterator[None]:
    """Permit a DDL while transactions use its table, as TiDB does if this setting is off."""
    target.run("SET GLOBAL tidb_enable_metadata_lock = 0")
    yield
    target.run("SET GLOBAL tidb_enable_metadata_lock = 1")


def applied_with(target: Target, changes: list[Change], meanwhile: Callable[[], None]) -> None:
    """Apply a window; `meanwhile` runs before its first COMMIT."""
    with interrupted_at(target.server, meanwhile) as way:
        target.server, real = way, target.server
        applied = target.apply({target.shards[0]: changes}, random.Random(1))
        target.server = real
    assert not applied.before


def test_a_conflict_at_commit(make: Callable[[str], Target], target: MariaDb, errors: list[UnshardError]) -> None:
    made = make(TABLES["integer"])
    made.tried = replace(made.tried, settings=(OPTIMISTIC,))
    made.apply({made.shards[0]: insert(1, 2)}, random.Random(1))
    (_, old), (_, new) = insert(1)[0], insert(1, v=b"y")[0]
    changes = [(Op.BEFORE, old), (Op.AFTER, new), *insert(3)]
    applied_with(made, changes, lambda: target.run(f"UPDATE {made.table} SET n = 2 WHERE id = 1"))  # type: ignore[func-returns-value]
    assert [type(error) for error in errors] == [ServerBusy] and "rite conflict" in str(errors[0])
    assert dict(made.stored()) == {new: 1, insert(2)[0][1]: 1, insert(3)[0][1]: 1}
    assert made.fence() == (2, 1)


@pytest.mark.usefixtures("unlocked_metadata")
def test_a_structure_that_changes_before_commit(
    make: Callable[[str], Target], target: MariaDb, errors: list[UnshardError]
) -> None:
    made = make(TABLES["without key"])
    bag = [(Op.INSERT, (b"1", b"x", b"1"))] * 2
    applied_with(made, bag, lambda: target.run(f"ALTER TABLE {made.table} ADD COLUMN later INT"))  # type: ignore[func-returns-value]
    assert [type(error) for error in errors] == [ServerBusy] and "nformation schema is changed" in str(errors[0])
    with contextlib.closing(mysql.connect(target.server)) as connection:
        assert mysql.query(connection, f"SELECT COUNT(*) FROM {made.table}") == [(2,)], "not lost and not twice"
    assert made.fence() == (1, 1)
