"""The parts of a window that are decided without a server."""

from dataclasses import replace

from unshard.core.relay.segment import Segment, Statement
from unshard.units.window.statementcontext import in_zone

STATEMENT = Statement("ALTER TABLE t ADD c DATETIME DEFAULT NOW()", "shop", 0, "utf8mb4", 1, "SYSTEM")
SEGMENT = Segment("s1", "mysql-bin.000001", 4, 400, "mysql-bin.000001.4-400.seg", "", 1, 1, (), STATEMENT)


def test_a_statement_of_the_server_s_own_zone_gets_the_task_s() -> None:
    statement = in_zone(SEGMENT, "Asia/Shanghai").statement
    assert statement is not None
    assert (statement.time_zone, statement.text) == ("Asia/Shanghai", STATEMENT.text)


def test_a_statement_that_names_its_zone_keeps_it() -> None:
    named = replace(SEGMENT, statement=replace(STATEMENT, time_zone="+02:00"))
    assert in_zone(named, "Asia/Shanghai") is named
    rows = replace(SEGMENT, statement=None)
    assert in_zone(rows, "Asia/Shanghai") is rows
