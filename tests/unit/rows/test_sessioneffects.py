"""The part of a session that decides what a DDL does is a part of its fingerprint."""

from dataclasses import replace

import pytest

from unshard.core.ddl.lineage import ExecutedDdl
from unshard.core.ddl.sessioneffects import converted_in, elsewhere, fixed, noted_columns, session_note, without_note
from unshard.core.ddl.statement import fingerprint
from unshard.core.model import Column, TableSchema
from unshard.core.relay.segment import Statement
from unshard.core.sql.mode import NAMES, NO_BACKSLASH_ESCAPES
from unshard.core.sql.words import TIME_FOR_NULL

LATE = 1_577_919_600
"""2020-01-01 23:00:00 UTC."""


def column(kind: str, extra: str = "") -> Column:
    return Column("b", kind.partition("(")[0], kind, True, None, None, None, extra)


def table(*columns: Column, text: str = "") -> TableSchema:
    return TableSchema(columns, (), text)


def ran(zone: str = "+08:00", mode: str = "") -> ExecutedDdl:
    bits = sum(1 << NAMES.index(each) for each in mode.split(",") if each)
    return ExecutedDdl("ALTER TABLE t MODIFY b INT", bits, zone, LATE)


@pytest.mark.parametrize(
    ("old", "new", "session", "how"),
    [
        ("datetime", "timestamp", ran(), "in '+08:00'"),
        ("timestamp(3)", "varchar(30)", ran("-5:00"), "in '-05:00'"),
        ("timestamp", "timestamp(3)", ran(), ""),
        ("datetime", "datetime(3)", ran(), ""),
        ("datetime(6)", "datetime(3)", ran(), ""),
        ("datetime(6)", "time", ran(mode="TIME_ROUND_FRACTIONAL"), "rounded"),
        ("timestamp(6)", "datetime", ran("UTC", "TIME_ROUND_FRACTIONAL"), "in '+00:00' rounded"),
        ("char(4)", "varchar(4)", ran(mode="PAD_CHAR_TO_FULL_LENGTH"), "padded"),
        ("int", "bigint", ran(), ""),
        ("varchar(30)", "datetime(3)", ran(mode="TIME_ROUND_FRACTIONAL"), "rounded"),
        ("decimal(20,6)", "time", ran(mode="TIME_ROUND_FRACTIONAL"), "rounded"),
        ("bigint", "time", ran(mode="TIME_ROUND_FRACTIONAL"), ""),
        ("time", "datetime", ran("+02:00"), "on '2020-01-02'"),
        ("time(3)", "date", ran("-01:00"), "on '2020-01-01'"),
        ("time", "timestamp", ran("no/zone"), "in 'no/zone' on '2020-01-01'"),
        ("time", "datetime", ran("Asia/Tokyo"), "on '2020-01-02'"),
        ("time", "varchar(30)", ran(), ""),
        ("datetime", "date", ran(mode="ALLOW_INVALID_DATES"), "with invalid dates"),
        ("varchar(30)", "datetime", ran(mode="NO_ZERO_IN_DATE"), "without zeros in dates"),
        ("varchar(30)", "datetime", ran(mode="NO_ZERO_IN_DATE,STRICT_ALL_TABLES"), ""),
        ("timestamp", "datetime(3)", ran("", "ALLOW_INVALID_DATES"), ""),
    ],
)
def test_conversions_that_the_session_decides(old: str, new: str, session: ExecutedDdl, how: str) -> None:
    assert converted_in(column(old), column(new), session) == how


def test_timestamp_not_null_gets_the_time_of_each_server_for_null() -> None:
    new = replace(column("timestamp"), nullable=False)
    assert converted_in(column("datetime"), new, ran("")) == TIME_FOR_NULL
    assert converted_in(replace(column("timestamp"), nullable=False), new, ran("")) == ""


def test_zero_stays_with_no_auto_value_on_zero() -> None:
    session = ran(mode="NO_AUTO_VALUE_ON_ZERO")
    assert converted_in(column("int"), column("int", "auto_increment"), session) == "with 0"


@pytest.mark.parametrize(
    ("zone", "wanted"),
    [
        ("+8:00", "+08:00"),
        ("-00:00", "+00:00"),
        ("UTC", "+00:00"),
        ("Etc/GMT+5", "-05:00"),
        ("Europe/Berlin", "Europe/Berlin"),
        ("no/zone", "no/zone"),
    ],
)
def test_zones_with_one_offset_are_that_offset(zone: str, wanted: str) -> None:
    assert fixed(zone) == wanted


def test_a_note_is_a_comment_with_the_lines_that_another_session_would_not_make() -> None:
    text = "ALTER TABLE t ADD b TIMESTAMP DEFAULT '2019-01-17 14:46:14'"
    statement = Statement(text, "", 0, "utf8mb4", 0, "+08:00")
    before = table(column("int"), text="  `a` int")
    after, other = (
        table(column("int"), text=f"  `a` int,\n  `b` timestamp DEFAULT '{hour}:46:14'\n") for hour in ("06", "11")
    )
    note = session_note(before, after, other, statement, is_tried=True)
    found = fingerprint(text) + note
    assert note == " /* in its session: `b` timestamp DEFAULT '06:46:14' */"
    assert fingerprint(found) == without_note(found) == fingerprint(text)
    assert noted_columns(found) == ("b",) and noted_columns(fingerprint(text)) == ()
    assert session_note(before, after, after, statement, is_tried=True) == ""
    assert "`b` timestamp" in session_note(before, after, None, statement, is_tried=True)


def test_the_fingerprint_of_a_string_has_its_value_in_the_sessions_mode() -> None:
    text = r"ALTER TABLE t ADD b TEXT DEFAULT 'a\n''b'"
    assert fingerprint(text, NO_BACKSLASH_ESCAPES) != fingerprint(text)
    assert fingerprint(text, NO_BACKSLASH_ESCAPES) == fingerprint(text.replace("\\", r"\\"))
    assert fingerprint(fingerprint(text, NO_BACKSLASH_ESCAPES)) == fingerprint(text, NO_BACKSLASH_ESCAPES)


def test_most_statements_need_no_other_session() -> None:
    plain = Statement("ALTER TABLE t ADD b INT, ADD KEY (b)", "", 0, "utf8mb4", 0, "+08:00")
    assert elsewhere(plain) is None
    assert session_note(table(), table(text="  `b` int"), None, plain, is_tried=False) == ""
