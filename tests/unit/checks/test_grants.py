"""The privileges of an account, read from SHOW GRANTS."""

import pytest

from unshard.core.checks.items import missing_privileges, parse_grants

CASES = [
    ("GRANT ALL PRIVILEGES ON *.* TO `a`@`%` IDENTIFIED BY PASSWORD '*97' WITH GRANT OPTION", "SELECT", "x", True),
    ("GRANT SELECT, BINLOG MONITOR ON *.* TO `a`@`%`", "REPLICATION CLIENT", "*", True),
    ("GRANT REPLICATION REPLICA ON *.* TO `a`@`%`", "REPLICATION SLAVE", "*", True),
    ("GRANT USAGE ON *.* TO `a`@`%`", "SELECT", "*", False),
    ("GRANT SELECT ON `shop\\_1`.* TO `a`@`%`", "SELECT", "shop_1", True),
    ("GRANT SELECT ON `shop\\_1`.* TO `a`@`%`", "SELECT", "shopx1", False),
    ("GRANT SELECT ON `shop_1`.* TO `a`@`%`", "SELECT", "shopx1", True),
    ("GRANT SELECT ON `shop%`.* TO `a`@`%`", "SELECT", "shop_12", True),
    ("GRANT SELECT ON `shop`.* TO `a`@`%`", "SELECT", "*", False),
    ("GRANT SELECT ON `shop`.`t` TO `a`@`%`", "SELECT", "shop", False),
    ("GRANT SELECT (`id`, `c`) ON `shop`.* TO `a`@`%`", "SELECT", "shop", False),
    ("GRANT `role` TO `a`@`%`", "SELECT", "shop", False),
    ("GRANT SELECT ON `we``ird.name`.* TO `a`@`%`", "SELECT", "we`ird.name", True),
]


@pytest.mark.parametrize(("line", "privilege", "schema", "allowed"), CASES)
def test_reads_a_grant(line: str, privilege: str, schema: str, allowed: bool) -> None:
    assert (missing_privileges(parse_grants([line]), [privilege], schema) == ()) is allowed


def test_names_only_what_no_grant_gives() -> None:
    grants = parse_grants(["GRANT SELECT ON *.* TO `a`@`%`", "GRANT INSERT ON `x`.* TO `a`@`%`"])
    assert missing_privileges(grants, ("SELECT", "INSERT", "DELETE"), "x") == ("DELETE",)
