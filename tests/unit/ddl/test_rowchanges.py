"""Changes of rows without row events: which tables they name, and which later statements may hide what they write."""

import pytest

from unshard.core.ddl.names import may_hide, row_change
from unshard.core.model import TableId
from unshard.core.relay.segment import Statement
from unshard.core.sql.mode import ANSI_QUOTES
from unshard.core.sql.tokens import MARIADB, without_values


def statement(text: str, sql_mode: int = 0) -> Statement:
    return Statement(text, "d", sql_mode, "utf8mb4", 0, "")


SINGLE = [
    "INSERT INTO e.x VALUES (1)",
    "insert low_priority ignore e.x select * from d.y, d.z",
    "REPLACE e.x (id) SELECT id FROM y JOIN z USING (id)",
    "UPDATE IGNORE e.x SET v = (SELECT 1 FROM y)",
    "DELETE QUICK FROM e.x WHERE id IN (SELECT id FROM y)",
    "DELETE FROM `e`.`x`",
    "DELETE FROM e.x LIMIT 1",
    "LOAD DATA INFILE 'd.y' REPLACE INTO TABLE e . x",
    "SET STATEMENT max_statement_time = 1 FOR INSERT INTO e.x VALUES (1)",
]


@pytest.mark.parametrize("text", SINGLE)
def test_a_statement_that_writes_one_table(text: str) -> None:
    change = row_change(statement(text))
    assert change is not None and change.written == {TableId("e", "x")}


@pytest.mark.parametrize(
    "text",
    [
        "UPDATE e.x, d.y SET y.v = 1",
        "UPDATE d.y a JOIN e.x b USING (id) SET a.v = 1",
        "DELETE y FROM d.y, e.x",
        "DELETE FROM y USING e.x JOIN d.y",
        "WITH c AS (SELECT 1 FROM d.y) DELETE FROM e.x",
        "SELECT f(d.y.id) FROM e.x",
        "DO f((SELECT 1 FROM y, e.x))",
    ],
)
def test_a_statement_that_may_write_several_tables_may_write_all_that_it_names(text: str) -> None:
    change = row_change(statement(text))
    assert change is not None and {TableId("e", "x"), TableId("d", "y")} <= change.written


@pytest.mark.parametrize(
    "text",
    [
        "CALL e.p()",
        "BINLOG 'x'",
        "INSERT INTO e.x VALUES ('never ended",
        "INSERT INTO e.\ufffd VALUES (1)",
        "\ufffd",
        "",
    ],
)
def test_a_statement_that_does_not_tell_what_it_writes(text: str) -> None:
    assert row_change(statement(text)) is None


def test_quotes_are_those_of_the_session() -> None:
    change = row_change(statement('UPDATE "e"."x" SET v = 1', ANSI_QUOTES))
    assert change is not None and change.written == {TableId("e", "x")}


def test_values_are_not_kept() -> None:
    text = "INSERT INTO `a  1`.b2 /* c */ VALUES (1, -2.5e3, 'it''s', x'41', 0xFF, _utf8'x', v2)"
    want = "INSERT INTO `a  1`.b2 VALUES (0, -0, '', '', '', _utf8'', v2)"
    assert without_values(text, 0, MARIADB) == want
    assert without_values('INSERT INTO "t" VALUES (1)', ANSI_QUOTES, MARIADB) == 'INSERT INTO "t" VALUES (0)'


@pytest.mark.parametrize(
    ("text", "hides"),
    [
        ("DROP TRIGGER g", True),
        ("DROP FUNCTION IF EXISTS f", True),
        ("DROP VIEW w", True),
        ("DROP DATABASE e", True),
        ("RENAME TABLE e.x TO e.y", True),
        ("ALTER TABLE e.x ENGINE = InnoDB", True),
        ("DROP TABLE e.x", True),
        ("CREATE OR REPLACE TABLE E.X (id INT)", True),
        ("ALTER TABLE z DROP FOREIGN KEY k", True),
        ("florble '", True),
        ("DROP TEMPORARY TABLE e.x", False),
        ("DROP TABLE z", False),
        ("ALTER TABLE z DROP COLUMN c", False),
        ("CREATE TRIGGER g BEFORE INSERT ON z FOR EACH ROW SET @a = 1", False),
        ("CREATE TABLE z (id INT)", False),
        ("ALTER TABLE z ADD COLUMN v INT DEFAULT 0", False),
    ],
)
def test_later_statements_that_may_hide_what_was_written(text: str, hides: bool) -> None:
    change = row_change(statement("INSERT INTO e.x VALUES (1)"))
    assert change is not None and may_hide(statement(text), change, routed=False) is hides


def test_a_later_statement_that_removes_a_table_of_the_task_may_hide_its_foreign_key() -> None:
    change = row_change(statement("DELETE FROM e.x"))
    assert change is not None and may_hide(statement("DROP TABLE z"), change, routed=True)
