"""Late indexes: which indexes may be created after the rows, and the statements for it."""

import pytest

from unshard.core.full.lateindexes import LateIndex, add_statement, drop_statement, late_indexes, missing_indexes
from unshard.core.model import Column, Index, TableId, TableSchema

TABLE = TableId("s", "t`t")
A, N = (Column(name, "int", "int(11)", False, None, None, None, "auto_increment" * (name == "a")) for name in "an")
TEXT = """CREATE TABLE `t` (
  `a` int(11) NOT NULL AUTO_INCREMENT,
  `n` int(11) NOT NULL COMMENT 'KEY `no` (`n`)',
  {keys}
) ENGINE={engine} DEFAULT CHARSET=utf8mb4"""
PLAIN = "KEY `k,(``` (`n` DESC) COMMENT 'a, )''b'"


def schema(keys: str, *indexes: Index, engine: str = "InnoDB") -> TableSchema:
    return TableSchema((A, N), indexes, TEXT.format(keys=keys, engine=engine))


PRIMARY, OTHER = Index("PRIMARY", ("a",), True), Index("k,(`", ("n",), False)


@pytest.mark.parametrize(
    ("table", "want"),
    [
        (schema(f"PRIMARY KEY (`a`),\n  {PLAIN}", PRIMARY, OTHER), (LateIndex("k,(`", PLAIN),)),
        (schema(f"PRIMARY KEY (`a`),\n  {PLAIN}", PRIMARY, OTHER, engine="MyISAM"), ()),
        (schema("UNIQUE KEY `u` (`n`)", Index("u", ("n",), True)), ()),
        (schema("FULLTEXT KEY `f` (`n`)", Index("f", ("n",), False)), ()),
        (schema("KEY `own` (`a`,`n`)", Index("own", ("a", "n"), False)), ()),
    ],
)
def test_which_are_late(table: TableSchema, want: tuple[LateIndex, ...]) -> None:
    assert late_indexes(table) == want


def test_statements_name_all_of_them() -> None:
    two = (LateIndex("i`j", "KEY `i``j` (`n`)"), LateIndex("k", "KEY `k` (`n`)"))
    assert drop_statement(TABLE, two) == "ALTER TABLE `s`.`t``t` DROP INDEX `i``j`, DROP INDEX `k`"
    assert add_statement(TABLE, two) == "ALTER TABLE `s`.`t``t` ADD KEY `i``j` (`n`), ADD KEY `k` (`n`)"


def test_what_is_there_is_not_made_again() -> None:
    assert missing_indexes(
        schema(PLAIN, PRIMARY, Index("K", ("n",), False)), (LateIndex("k", ""), LateIndex("l", ""))
    ) == (LateIndex("l", ""),)
