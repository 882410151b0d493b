"""Structures that are read again only where they have changed, over connections that stay open."""

import os
import threading
from collections.abc import Iterator

import pytest

from tests.tidbsettings import is_tidb
from unshard.adapters.connectionpool import ConnectionPool
from unshard.adapters.mysql import connect, query
from unshard.adapters.structures import PresentStructures
from unshard.core.model import TableId
from unshard.errors.source import StatementRefused
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration

CREATE = "CREATE TABLE {}.t (id INT PRIMARY KEY AUTO_INCREMENT, v TEXT, w VARCHAR(20) DEFAULT 'a') COMMENT='x\n) y'"


@pytest.fixture
def schema(target: MariaDb, unique: str) -> Iterator[str]:
    target.run(f"CREATE DATABASE {unique} CHARACTER SET utf8mb4")
    yield unique
    target.run(f"DROP DATABASE {unique}")


@pytest.fixture
def kept(target: MariaDb) -> Iterator[ConnectionPool]:
    made = ConnectionPool(lambda: connect(target.server, "target"))
    yield made
    made.close()


def connection_id(kept: ConnectionPool) -> int:
    with kept.lent() as connection:
        return int(query(connection, "SELECT CONNECTION_ID()")[0][0])


def test_what_was_read_is_read_again_only_after_a_ddl(
    target: MariaDb, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from unshard.adapters import structures

    read: list[str] = []

    def noted(connection, tables, original=structures.read_schemas):
        read.extend(table.name for table in tables)
        return original(connection, tables)

    monkeypatch.setattr(structures, "read_schemas", noted)
    table, gone = TableId(schema, "t"), TableId(schema, "none")
    view, nowhere = TableId(schema, "v"), TableId(f"{schema}_x", "t")
    target.run(CREATE.format(schema), f"CREATE VIEW {schema}.v AS SELECT 1 AS id")
    found = PresentStructures(target.server)
    assert found.read([table, gone, view, nowhere]).keys() == {table} and read.count("t") == 2, "one is elsewhere"
    cases = (
        ("DO 0", False),
        (f"INSERT INTO {schema}.t (v) VALUES ('x'), ('y')", False),
        (f"ALTER TABLE {schema}.t AUTO_INCREMENT = 77", False),
        (f"ALTER TABLE {schema}.t ALTER w SET DEFAULT 'AUTO_INCREMENT=5'", True),
        (f"ALTER TABLE {schema}.t ALTER w SET DEFAULT 'AUTO_INCREMENT=6'", True),
        (f"ALTER TABLE {schema}.t ADD u INT INVISIBLE UNIQUE", True),
        (f"ALTER TABLE {schema}.t MODIFY w VARCHAR(20) COLLATE utf8mb4_bin", True),
        (f"ALTER TABLE {schema}.t MODIFY w VARBINARY(20) DEFAULT x'00FF80'", True),
        (f"ALTER TABLE {schema}.t DEFAULT CHARACTER SET latin1", True),
        (f"DROP TABLE {schema}.t", True),
        (f"CREATE VIEW {schema}.t AS SELECT 1 AS id", True),
    )
    refused = ("INVISIBLE", "VARBINARY", "latin1") if is_tidb(target) else ()
    for statement, is_changed in cases:
        if any(word in statement for word in refused):
            continue
        target.run(statement)
        read.clear()
        seen, is_read = found.read([table]), bool(read)
        assert is_read == is_changed, statement
        assert seen == PresentStructures(target.server).read([table]), statement
    found.close()


def test_a_connection_is_kept_until_it_is_lost(target: MariaDb, kept: ConnectionPool) -> None:
    first = connection_id(kept)
    assert connection_id(kept) == first
    target.run(f"KILL {first}")
    second = connection_id(kept)
    assert second != first
    with pytest.raises(StatementRefused), kept.lent() as connection:
        query(connection, "SELECT nothing_such")
    assert connection_id(kept) != second, "what it was in the middle of, nobody knows"


def test_a_trial_runs_again_on_a_new_connection_if_the_kept_one_is_lost(target: MariaDb, kept: ConnectionPool) -> None:
    first, tried = connection_id(kept), list[int]()
    target.run(f"KILL {first}")
    with kept.lent(lambda lent: tried.append(query(lent, "SELECT CONNECTION_ID()")[0][0])) as connection:
        assert tried == [query(connection, "SELECT CONNECTION_ID()")[0][0]] and tried != [first]
    with pytest.raises(StatementRefused), kept.lent(lambda lent: query(lent, "SELECT nothing_such")):
        pytest.fail("a trial that the server refuses ends the use")
    assert connection_id(kept) not in (first, *tried)


def test_each_thread_and_each_process_has_its_own(kept: ConnectionPool) -> None:
    mine = connection_id(kept)
    with kept.lent():
        found: list[int] = []
        thread = threading.Thread(target=lambda: found.append(connection_id(kept)))
        thread.start()
        thread.join()
    assert found and found[0] != mine
    child = os.fork()
    if not child:
        os._exit(int(connection_id(kept) in (mine, found[0])))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert connection_id(kept) in (mine, found[0])
