"""Refusals of the relay: each is a coded error that names the place, and nothing is stored partially."""

import pytest

from tests.binlogs import FIRST, SOURCE, assert_equal_to_server, end_of, fill, purge
from unshard.adapters.relayfiles import RelayStore
from unshard.errors.relay import (
    BinlogOff,
    BinlogPurged,
    BinlogReplaced,
    BinlogSettingRefused,
    PositionBeyondEnd,
    RelayUnwritable,
    SourceReplaced,
)
from unshard.units.relay.pull import pull
from unshard_demo.processes import await_true

pytestmark = pytest.mark.integration

SECOND = "SELECT UNIX_TIMESTAMP()"


def test_purged_binlog_of_the_source(upstream_server, tmp_path):
    store = RelayStore(tmp_path)
    begins = end_of(upstream_server)
    upstream_server.run("FLUSH LOGS", "FLUSH LOGS")
    purge(upstream_server, "mysql-bin.000003")
    with pytest.raises(BinlogPurged) as caught:
        pull(SOURCE, upstream_server.server, store, begins)
    assert caught.value.oldest == "mysql-bin.000003"
    assert store.segments(SOURCE) == ()


def test_a_reset_binlog_is_noticed(upstream_server, tmp_path):
    store = RelayStore(tmp_path)
    fill(upstream_server, 100)
    begins = pull(SOURCE, upstream_server.server, store, FIRST).ends
    upstream_server.run("RESET MASTER")
    created = upstream_server.run(SECOND)
    with pytest.raises(PositionBeyondEnd):
        pull(SOURCE, upstream_server.server, store, FIRST)
    # The creation time of the binlog file has whole seconds.
    await_true(lambda: upstream_server.run(SECOND) != created, 900, [upstream_server.program], "another second")
    upstream_server.run("RESET MASTER")
    fill(upstream_server, 2000)
    assert end_of(upstream_server) > begins
    # The position may or may not be a border in the new file; in both cases nothing of it is stored.
    before = store.segments(SOURCE)
    with pytest.raises((BinlogReplaced, PositionBeyondEnd)):
        pull(SOURCE, upstream_server.server, store, FIRST)
    assert store.segments(SOURCE) == before


def test_another_identity_is_refused(upstream_server, tmp_path):
    with pytest.raises(SourceReplaced):
        pull(SOURCE, upstream_server.server, RelayStore(tmp_path), FIRST, identity="mariadb:1:000000000000")


def test_settings_are_checked(upstream_server, tmp_path):
    variable = "binlog_format"
    upstream_server.run(f"SET GLOBAL {variable} = MIXED")
    with pytest.raises(BinlogSettingRefused) as caught:
        pull(SOURCE, upstream_server.server, RelayStore(tmp_path), FIRST)
    assert variable in str(caught.value)


def test_a_server_without_binlog(target, tmp_path):
    with pytest.raises(BinlogOff):
        pull(SOURCE, target.server, RelayStore(tmp_path), FIRST)


def test_changes_of_rows_without_row_events_are_kept_with_their_names(upstream_server, tmp_path):
    store = RelayStore(tmp_path)
    fill(upstream_server, 3)
    upstream_server.run(
        "SET SESSION binlog_format=STATEMENT",
        "INSERT INTO d.t(v) VALUES ('a')",
        "INSERT INTO d.t(v) VALUES ('b')",
        "/* hint */ UPDATE d.t SET v='b' LIMIT 7",
        "INSERT INTO d.t(v) VALUES (RAND())",
    )
    fill(upstream_server, 3)
    pull(SOURCE, upstream_server.server, store, FIRST)
    run = assert_equal_to_server(upstream_server, store)
    assert run[-1].ends == end_of(upstream_server)
    assert [change.text for segment in run for change in segment.changes] == [
        "INSERT INTO d.t(v) VALUES ('')",
        "UPDATE d.t SET v='' LIMIT 0",
        "INSERT INTO d.t(v) VALUES (RAND())",
    ]


def test_a_place_that_is_no_folder(upstream_server, tmp_path):
    (tmp_path / "relay").write_text("somebody's file")
    store = RelayStore(tmp_path / "relay")
    with pytest.raises(RelayUnwritable, match="Not a directory"):
        store.segments(SOURCE)
    with pytest.raises(RelayUnwritable, match="Not a directory"):
        pull(SOURCE, upstream_server.server, store, FIRST)
