"""The columns of a shard that misses DDLs of its target."""

import pytest

from unshard.core.ddl.lineage import ExecutedDdl, names_after

NAMES = ("id", "a", "B", "c")
CASES = [
    ("ALTER TABLE t ADD d INT", {}),
    ("ALTER TABLE `s`.`t` DROP COLUMN a, DROP b", {"a": None, "b": None}),
    ("alter online table if exists t wait 3 drop if exists `A`", {"a": None}),
    ("ALTER TABLE t DROP COLUMN IF EXISTS c, ADD COLUMN c VARCHAR(9)", {"c": None}),
    ("ALTER TABLE t RENAME COLUMN a TO x, RENAME COLUMN IF EXISTS b TO a", {"a": "x", "b": "a"}),
    ("ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a", {"a": "b", "b": "a"}),
    (
        "ALTER TABLE t CHANGE a `X y` INT DEFAULT 5 COMMENT 'change b c', CHANGE COLUMN IF EXISTS c C BIGINT",
        {"a": "x y", "c": "c"},
    ),
    ("ALTER TABLE t MODIFY a BIGINT, ALTER b SET DEFAULT 3, ADD (d INT, e INT)", {}),
    ("ALTER TABLE t DROP INDEX a, DROP KEY b, DROP PRIMARY KEY, DROP CONSTRAINT c, DROP CHECK a", {}),
    ("ALTER TABLE t DROP FOREIGN KEY b", {}),
    ("ALTER TABLE t DROP PARTITION a, b", {}),
    ("ALTER TABLE t RENAME INDEX a TO b", {}),
    ("CREATE INDEX a ON t (b)", {}),
    ("DROP INDEX a ON t", {}),
    ("/* x */ ALTER /*! IGNORE */ TABLE t DROP a", {"a": None}),
    ("ALTER TABLE t DROP `key`, DROP `index`", {}),
    ("TRUNCATE TABLE t", {}),
    ("ALTER TABLE t RENAME TO u", {}),
    ("ALTER TABLE t ENGINE=InnoDB, COMMENT 'DROP a', DROP b", {"b": None}),
]


@pytest.mark.parametrize(("text", "moves"), CASES)
def test_one_statement(text: str, moves: dict[str, str | None]) -> None:
    wanted = {"id": "id", "a": "a", "b": "b", "c": "c"} | moves
    assert names_after(NAMES, (ExecutedDdl(text, 0),)) == {old: new for old, new in wanted.items() if new is not None}


def test_several_statements_one_after_another() -> None:
    texts = ("RENAME COLUMN a TO x", "DROP c", "ADD c INT", "CHANGE x y INT", "ADD a INT", "DROP a")
    assert names_after(NAMES, [ExecutedDdl(f"ALTER TABLE t {text}", 0) for text in texts]) == {
        "id": "id",
        "a": "y",
        "b": "b",
    }


def test_quotes_of_the_session_count() -> None:
    assert names_after(NAMES, (ExecutedDdl('ALTER TABLE "t" DROP "a"', 4),)).keys() == {"id", "b", "c"}


def test_a_column_whose_name_another_one_has_got_is_younger_than_the_statement() -> None:
    specs = "CHANGE a r INT", "CHANGE r q INT", "RENAME COLUMN r TO p"
    ran = [ExecutedDdl(f"ALTER TABLE t {spec}", 0) for spec in specs]
    assert names_after(("a", "r"), ran[:1]) == {"a": "r", "r": "r"}
    assert names_after(("a", "r"), ran[:2]) == {"a": "q", "r": "r"}
    assert names_after(("a", "r"), ran) == {"a": "q", "r": "p"}
    swap = ExecutedDdl("ALTER TABLE t RENAME COLUMN a TO r, RENAME COLUMN r TO a", 0)
    assert names_after(("a", "r"), [swap]) == {"a": "r", "r": "a"}
