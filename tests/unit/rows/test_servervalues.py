"""New columns that get another value on every server: the table in the module's docstring, and similar DDL."""

import pytest

from unshard.core.ddl.lineage import ExecutedDdl
from unshard.core.ddl.sessioneffects import filled_by_each

SPECS = [
    ("ADD c INT DEFAULT 5", []),
    ("ADD COLUMN c DATETIME DEFAULT CURRENT_TIMESTAMP", ["c"]),
    ("ADD c DATETIME(6) NOT NULL DEFAULT NOW(6) ON UPDATE NOW(6) COMMENT 'now' AFTER id", ["c"]),
    ("ADD c DATETIME NULL ON UPDATE CURRENT_TIMESTAMP", []),
    ("ADD c DATETIME DEFAULT NULL ON UPDATE CURRENT_TIMESTAMP", []),
    ("ADD c DATETIME DEFAULT '2026-01-01' ON UPDATE NOW()", []),
    ("ADD COLUMN IF NOT EXISTS `c d` CHAR(36) DEFAULT (CONCAT('a', UUID()))", ["c d"]),
    ("ADD c CHAR(36) DEFAULT uuid()", ["c"]),
    ("ADD c DOUBLE DEFAULT (a + rand())", ["c"]),
    ("ADD c INT DEFAULT (a + 1)", []),
    ("ADD c INT DEFAULT NEXT VALUE FOR s", ["c"]),
    ("ADD c INT DEFAULT (NEXTVAL(s))", ["c"]),
    ("ADD c VARCHAR(9) DEFAULT 'now()' COMMENT 'UUID()'", []),
    ("ADD c BIGINT AUTO_INCREMENT PRIMARY KEY", ["c"]),
    ("ADD c SERIAL", ["c"]),
    ("ADD (a INT DEFAULT (1), b DATETIME DEFAULT (NOW()), c INT, d CHAR(36) DEFAULT (UUID()))", ["b", "d"]),
    ("ADD a INT, ADD b DATE DEFAULT (CURRENT_DATE), DROP c", ["b"]),
    ("ADD c DATETIME CHECK (c < '2030-01-01') DEFAULT 0", []),
    ("ADD c INT DEFAULT 1 CHECK (c <> unix_timestamp('2026-01-01'))", []),
    ("ADD INDEX now (a), ADD CONSTRAINT c CHECK (a > 0), ADD PRIMARY KEY (id)", []),
    ("MODIFY c DATETIME DEFAULT NOW(), ALTER d SET DEFAULT (UUID()), CHANGE e e INT AUTO_INCREMENT", []),
    ("ADD c TIMESTAMP", []),
]


@pytest.mark.sample(reason="each starts a process", every=3)
@pytest.mark.parametrize(("specs", "want"), SPECS, ids=[specs for specs, _ in SPECS])
def test_columns_that_each_server_fills_by_itself(specs: str, want: list[str]) -> None:
    assert list(filled_by_each(ExecutedDdl(f"ALTER TABLE `d`.`t` {specs}", 0))) == want


@pytest.mark.parametrize(
    ("kind", "is_own"),
    [("TIMESTAMP", True), ("TIMESTAMP(3) NOT NULL", True), ("TIMESTAMP NULL", False), ("DATETIME", False)],
)
def test_a_timestamp_has_a_default_of_its_own_where_that_is_not_explicit(kind: str, is_own: bool) -> None:
    assert bool(filled_by_each(ExecutedDdl(f"ALTER TABLE t ADD c {kind}", 0), explicit_timestamps=False)) == is_own


@pytest.mark.parametrize(
    "text", ["CREATE INDEX i ON t (a)", "ALTER TABLE t ADD c DATETIME DEFAULT NOW() COMMENT 'open"]
)
def test_other_statements_fill_nothing(text: str) -> None:
    assert filled_by_each(ExecutedDdl(text, 0)) == ()
