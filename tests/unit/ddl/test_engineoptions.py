"""Options about the storage engine in an ALTER TABLE: a target keeps its engine."""

from dataclasses import replace

import pytest

from unshard.core.ddl.statement import alter_specs, changes_without, engine_options, read, retarget, without_specs
from unshard.core.sql.tokens import MARIADB, tokenize

ALONE = [
    "ENGINE=MyISAM",
    "ENGINE MyISAM",
    "ENGINE = 'Aria' TRANSACTIONAL=0",
    "TYPE=MyISAM",
    "ENGINE=MyISAM ROW_FORMAT=FIXED, ALGORITHM=COPY",
    "ENGINE=MyISAM, ROW_FORMAT=FIXED, DATA DIRECTORY='/x'",
    "ENGINE=MERGE UNION=(a, b) INSERT_METHOD=LAST",
    "LOCK=NONE, ENGINE=MyISAM",
]
REST = [
    ("ENGINE=MyISAM, ADD COLUMN c INT", "ADD COLUMN c INT"),
    ("ADD COLUMN c INT, ENGINE=MyISAM", "ADD COLUMN c INT"),
    ("ADD c INT, ENGINE=MyISAM, DROP d", "ADD c INT, DROP d"),
    ("ENGINE=MyISAM COMMENT='ENGINE=Aria'", "COMMENT='ENGINE=Aria'"),
    ("COMMENT='x' ENGINE=MyISAM ROW_FORMAT=FIXED, ADD c INT", "COMMENT='x' , ADD c INT"),
    ("DEFAULT CHARSET=utf8mb4 ENGINE=MyISAM", "DEFAULT CHARSET=utf8mb4"),
    ("ADD COLUMN engine INT, MODIFY `engine` INT DEFAULT 1", "ADD COLUMN engine INT, MODIFY `engine` INT DEFAULT 1"),
    ("ALTER engine SET DEFAULT 1", "ALTER engine SET DEFAULT 1"),
    ("ENGINE=MyISAM, RENAME COLUMN a TO b", "RENAME COLUMN a TO b"),
]


def without_engine(specs: str) -> str:
    text = f"ALTER TABLE db.t {specs}"
    plain, tokens = tokenize(text, 0, MARIADB)
    each = alter_specs(plain, tokens)
    whole, cuts = engine_options(each, ())
    if whole and not changes_without(each, whole):
        return ""
    ddl = read(text, 0, "db")
    rest = without_specs(ddl, tokens, whole) if whole else ddl
    found = retarget(replace(rest, cuts=(*rest.cuts, *cuts)), {})
    return " ".join(found.removeprefix("ALTER TABLE `db`.`t` ").split())


@pytest.mark.parametrize("specs", ALONE)
def test_nothing_else_is_changed(specs: str) -> None:
    assert without_engine(specs) == ""


@pytest.mark.parametrize(("specs", "rest"), REST)
def test_the_rest_of_the_statement_stays(specs: str, rest: str) -> None:
    assert without_engine(specs) == rest


def test_a_specification_that_a_filter_leaves_out_is_not_cut_twice() -> None:
    specs = alter_specs(*tokenize("ALTER TABLE t ENGINE=MyISAM COMMENT='x', ADD c INT", 0, MARIADB))
    assert engine_options(specs, (0,)) == (frozenset(), ())
