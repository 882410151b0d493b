"""`unshard check --decoder`: our decoder and mysql-replication over the binlogs of real servers."""

import contextlib
import json

import pytest

from tests.alltypes import statements
from tests.binlogs import end_of
from tests.running import while_up
from tests.taskfile import write_task
from tests.versions import MYSQL
from unshard.adapters import mysql
from unshard.adapters.structures import read_schemas
from unshard.cli import main
from unshard.core.checks.decoding import NotCompared, compare
from unshard.core.model import TableId
from unshard.units.checks.decoderrows import BinlogLimits, compare_part
from unshard_demo import servers

pytestmark = pytest.mark.integration

REPLICA = 4_000_000_001
ALL = BinlogLimits()


@pytest.fixture(scope="module", params=["mariadb", "mysql"])
def source(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("decoder") / "server"
    with (
        while_up(servers.start_server(folder, server_id=811))
        if request.param == "mariadb"
        else MYSQL.running(folder) as server
    ):
        yield server


def compared(server, begins, *statements, limits=ALL, **options):
    """Run statements; return the comparison of all tables from a location on."""
    server.run("DO 1", *statements)
    with contextlib.closing(mysql.connect(server.server)) as connection:
        tables = [TableId("d", name) for (name,) in mysql.query(connection, "SHOW TABLES FROM d")]
        schemas = read_schemas(connection, tables)
    return compare_part("s1", server.server, (begins, end_of(server)), schemas, limits, REPLICA, **options)


@pytest.fixture
def begins(source):
    source.run("DROP DATABASE IF EXISTS d", "CREATE DATABASE d")
    return end_of(source)


def test_all_types_are_equal(source, begins):
    """Also UPDATE and DELETE; what is not compared is counted."""
    report = compared(
        source,
        begins,
        *statements("d"),
        "UPDATE d.ints SET b = 7",
        "UPDATE d.texts SET a = CONCAT(a, '.')",
        "DELETE FROM d.decimals",
    )
    assert report.differences == () and report.error is None and report.is_equal
    assert report.rows > 40 and report.values > 300 and report.tables == 9
    assert set(report.not_compared) == {NotCompared.ZERO_DATE, NotCompared.NEGATIVE_TIME}
    assert report.ends > begins


def test_structures_of_another_time_are_counted(source, begins):
    report = compared(
        source,
        begins,
        "CREATE TABLE d.t(id int PRIMARY KEY, v int)",
        "INSERT INTO d.t VALUES (1, 1), (2, 2)",
        "INSERT INTO d.t VALUES (3, 3)",
        "ALTER TABLE d.t ADD COLUMN w varchar(9)",
        "INSERT INTO d.t VALUES (4, 4, 'four')",
    )
    assert report.is_equal and (report.events, report.rows) == (1, 1)
    assert report.not_compared == {NotCompared.OTHER_STRUCTURE: 2}


def test_transactions(source, begins):
    """Rows of a savepoint that was rolled back are no difference; prepared XA transactions are compared."""
    report = compared(
        source,
        begins,
        "CREATE TABLE d.t(id int PRIMARY KEY)",
        "BEGIN",
        "INSERT INTO d.t VALUES (1)",
        "SAVEPOINT s",
        "INSERT INTO d.t VALUES (2)",
        "ROLLBACK TO s",
        "INSERT INTO d.t VALUES (3)",
        "COMMIT",
        "XA START 'x'",
        "INSERT INTO d.t VALUES (4)",
        "XA END 'x'",
        "XA PREPARE 'x'",
        "XA COMMIT 'x'",
    )
    assert report.is_equal and report.rows == 3


def test_sparse_images_leave_values_out(source, begins):
    report = compared(
        source,
        begins,
        "CREATE TABLE d.t(id int PRIMARY KEY, v int DEFAULT 5, w varchar(9))",
        "SET SESSION binlog_row_image = MINIMAL",
        "INSERT INTO d.t(id) VALUES (1)",
        "UPDATE d.t SET w = 'x'",
        "DELETE FROM d.t",
    )
    assert report.is_equal and report.rows == 4
    assert report.not_compared[NotCompared.ABSENT] > 4


def test_limits_end_the_part_at_a_border(source, begins):
    many = [f"INSERT INTO d.t VALUES ({number})" for number in range(300)]
    some = compared(source, begins, "CREATE TABLE d.t(id int PRIMARY KEY)", *many, limits=BinlogLimits(10_000))
    assert some.is_equal and 0 < some.rows < 300
    assert begins < some.ends < end_of(source)


def test_a_difference_is_reported_with_both_values(source, begins):
    """A decoder that reads one value wrong, from the view of the comparison."""

    def wrong(ours, theirs, column):
        return compare(b"8" if ours == b"7" and column.name == "v" else ours, theirs, column)

    report = compared(
        source,
        begins,
        "CREATE TABLE d.t(id int PRIMARY KEY, v int)",
        "INSERT INTO d.t VALUES (1, 6)",
        "INSERT INTO d.t VALUES (2, 7)",
        "INSERT INTO d.t VALUES (7, 7)",
        compare_values=wrong,
    )
    (difference,) = report.differences
    assert not report.is_equal and report.rows == 3
    assert (difference.shard, difference.column) == ("s1 d.t", "column v")
    assert (difference.ours, difference.theirs) == ("b'7'", "7")
    assert "[US-2362]" in str(difference) and difference.location.startswith(begins.file)


@pytest.fixture
def task(source, unique, tmp_path):
    """A task with one shard; a table of another schema is none of its own."""
    source.run(
        f"CREATE DATABASE {unique}",
        f"CREATE DATABASE {unique}_other",
        f"CREATE TABLE {unique}.t_1(id int PRIMARY KEY, v varchar(20) CHARACTER SET latin1)",
        f"CREATE TABLE {unique}_other.t_1(id int PRIMARY KEY)",
        f"INSERT INTO {unique}.t_1 VALUES (1, 'é'), (2, NULL)",
        f"INSERT INTO {unique}_other.t_1 VALUES (1)",
    )
    yield write_task(tmp_path, unique, {"s1": source}, source, {"t": "t_*"})
    source.run(f"DROP DATABASE {unique}", f"DROP DATABASE {unique}_other")


def test_the_command(source, task, capsys):
    before = source.run("SHOW DATABASES")
    assert main(["check", str(task), "--decoder"]) == 0
    shown = capsys.readouterr().out
    assert "2 rows and 4 values of 1 tables: equal" in shown and "no value differs" in shown
    assert main(["check", str(task), "--decoder", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["sources"]
    assert found["equal"] and (found["events"], found["rows"], found["values"]) == (1, 2, 4)
    assert source.run("SHOW DATABASES") == before and not (task.parent / "storage").exists()


def test_the_command_fails_if_a_value_differs(task, capsys, monkeypatch):
    monkeypatch.setattr("unshard.units.checks.decoderrows.compare", lambda ours, theirs, column: column.name != "v")
    assert main(["check", str(task), "--decoder"]) == 1
    shown = capsys.readouterr().out
    assert "1 columns DIFFER" in shown and "[US-2362]" in shown and "column v: unshard reads b'\\xe9'" in shown
    assert main(["check", str(task), "--decoder", "--json"]) == 1
    (found,) = json.loads(capsys.readouterr().out)["sources"]
    assert not found["equal"] and found["differences"][0]["code"] == "US-2362"


def test_the_command_without_rows(source, task, capsys):
    source.run("FLUSH BINARY LOGS")
    assert main(["check", str(task), "--decoder", "--decoder-bytes", "600"]) == 0
    assert "no rows" in capsys.readouterr().out
