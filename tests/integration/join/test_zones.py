"""Optimistic mode converts stored times as the shards have, in whatever time zone their sessions were."""

from pathlib import Path

import pytest

from tests.joinedtask import FIRST, SECOND, JoinedTask, joined_task, run
from unshard_demo.servers import MariaDb

pytestmark = [pytest.mark.integration, pytest.mark.writes_rows]

TIME = "'2020-01-01 12:00:00'"
CASES = {
    "to timestamp": ("d DATETIME", "MODIFY d TIMESTAMP NULL"),
    "to timestamp with a default": ("d DATETIME", "MODIFY d TIMESTAMP DEFAULT '2021-02-03 04:05:06'"),
    "to datetime": ("d TIMESTAMP NULL", "MODIFY d DATETIME"),
    "to varchar": ("d TIMESTAMP NULL", "MODIFY d VARCHAR(30)"),
    "rounded": ("d DATETIME(6)", "MODIFY d DATETIME"),
}
ROUNDS, KEEPS = "TIME_ROUND_FRACTIONAL", "ALLOW_INVALID_DATES"
DAYS = ("timestamp = 1577880000", "timestamp = 1609502400")
SESSION_DECIDES = {
    "a text is rounded": (
        "d VARCHAR(30)",
        "MODIFY d DATETIME",
        "sql_mode = ''",
        f"sql_mode = {ROUNDS}",
        "'2020-01-01 12:00:00.7'",
    ),
    "a day": ("d TIME", "MODIFY d DATETIME", *DAYS, "'10:00:00'"),
    "a day in another column": ("d TIME", "MODIFY d DATE", *DAYS, "'10:00:00'"),
    "a day of a default": ("d INT", "ADD e DATETIME DEFAULT TIME'10:00:00'", *DAYS, "1"),
    "padding": ("d CHAR(4)", "MODIFY d VARCHAR(8)", "sql_mode = PAD_CHAR_TO_FULL_LENGTH", "sql_mode = ''", "'x'"),
    "invalid dates": (
        "d DATETIME",
        "MODIFY d DATETIME(3)",
        f"sql_mode = {KEEPS}",
        "sql_mode = ''",
        "'2020-02-31 10:00:00'",
    ),
    "zeros in dates": ("d DATETIME", "MODIFY d DATE", "sql_mode = ''", "sql_mode = NO_ZERO_IN_DATE", "'2020-00-10'"),
    "a time for NULL": ("d DATETIME", "MODIFY d TIMESTAMP NOT NULL DEFAULT '2021-01-01'", *DAYS, "NULL"),
    "no strict mode": ("d INT", "MODIFY d INT NOT NULL DEFAULT 0", "sql_mode = ''", "sql_mode = ''", "NULL"),
}


def in_zone(task: JoinedTask, zone: str) -> None:
    """Give the task a time zone."""
    task.restart()
    text = task.path.read_text()
    task.path.write_text(f"timezone: '{zone}'\n" + text)


def follow(task: JoinedTask, ddl: str, first: str, second: str, value: str = TIME) -> None:
    for shard, session in ((FIRST, first), (SECOND, second)):
        kept = f"{session}, sql_mode = {KEEPS}"
        run(task, shard, f"SET SESSION {kept}", f"INSERT INTO {{}} (id, d) VALUES ({shard[1]}, {value})")
    task.run()
    for shard, session in ((FIRST, first), (SECOND, second)):
        run(
            task,
            shard,
            f"SET SESSION {session}",
            f"ALTER TABLE {{}} {ddl}",
            f"INSERT INTO {{}} (id) VALUES (1{shard[1]})",
        )
        task.run()
    task.assert_equal("t")


SESSIONS = ("alike", "different")


@pytest.mark.on_tidb
@pytest.mark.sample(reason="the change and the sessions do not interact")
@pytest.mark.parametrize("name", [name for name in CASES if name != "rounded"])
@pytest.mark.parametrize("sessions", SESSIONS)
def test_values_are_those_of_the_shards(
    source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path, name: str, sessions: str
) -> None:
    assert_values((source_1, source_2, target), unique, tmp_path, name, sessions)


@pytest.mark.mariadb_only("TiDB rounds fractions that MariaDB cuts off: see docs/limits.md")
@pytest.mark.parametrize("sessions", SESSIONS)
def test_fractions_are_rounded_or_cut_off_as_in_the_shards(
    source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path, sessions: str
) -> None:
    assert_values((source_1, source_2, target), unique, tmp_path, "rounded", sessions)


@pytest.mark.mariadb_only("TiDB has other conversions of times")
@pytest.mark.sample(reason="the parts of a session do not interact")
@pytest.mark.parametrize("name", SESSION_DECIDES)
def test_values_that_the_session_decides_are_those_of_the_shards(
    source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path, name: str
) -> None:
    columns, ddl, first, second, value = SESSION_DECIDES[name]
    servers = (source_1, source_2, target)
    with joined_task(unique, tmp_path, servers, f"id INT PRIMARY KEY, {columns}", shards=1) as task:
        follow(task, ddl, first, second, value)


def assert_values(servers: tuple[MariaDb, ...], unique: str, tmp_path: Path, name: str, sessions: str) -> None:
    columns, ddl = CASES[name]
    east, west = "time_zone = '+08:00'", "time_zone = '-05:00'"
    if name == "rounded":
        east, west = f"{east}, sql_mode = ''", f"{west}, sql_mode = 'TIME_ROUND_FRACTIONAL'"
    value = "'2020-01-01 12:00:00.7'" if name == "rounded" else TIME
    with joined_task(unique, tmp_path, servers, f"id INT PRIMARY KEY, {columns}", shards=1) as task:
        in_zone(task, "+08:00")
        follow(task, ddl, east, east if sessions == "alike" else west, value)
        rows = [
            row
            for source in ("s1", "s2")
            for row in task.sources[source].run(
                f"SELECT id, UNIX_TIMESTAMP(d), d FROM {task.name}.t_{1 if source == 's1' else 2}1"
            )
        ]
        assert sorted(rows) == sorted(task.target.run(f"SELECT id, UNIX_TIMESTAMP(d), d FROM {task.table('t')}"))
