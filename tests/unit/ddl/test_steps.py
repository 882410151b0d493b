"""An ALTER TABLE is split into statements with one change each."""

import pytest

from unshard.core.ddl.steps import steps

WHOLE = [
    "ALTER TABLE t ADD a INT",
    "ALTER TABLE t ADD a INT, ALGORITHM=INPLACE, LOCK=NONE",
    "CREATE INDEX i ON t (a, b)",
    "ALTER TABLE t DROP PARTITION p0, p1",
    "ALTER TABLE t ADD PARTITION (PARTITION p VALUES LESS THAN (4))",
    "ALTER TABLE t ADD COLUMN IF NOT EXISTS a INT, DROP COLUMN IF EXISTS a",
    "ALTER TABLE t ADD COLUMN IF NOT EXISTS a INT UNIQUE",
    "ALTER TABLE t ADD `unique` INT COMMENT 'UNIQUE' CHECK (`unique` > 0)",
    "ALTER TABLE t ADD UNIQUE (a)",
]
SPLIT = [
    ("ADD a INT, ADD KEY (a)", ["ADD a INT", "ADD KEY (a)"]),
    (
        "ADD a INT DEFAULT 1 /* , */ , ALGORITHM=COPY, ADD UNIQUE u (a, b)",
        ["ADD a INT DEFAULT 1", "ADD UNIQUE u (a, b)"],
    ),
    ("ADD (a INT, b DECIMAL(3,1), KEY k (a, b))", ["ADD a INT", "ADD b DECIMAL(3,1)", "ADD KEY k (a, b)"]),
    ("ADD COLUMN (a INT, `key` INT), DROP c", ["ADD COLUMN a INT", "ADD COLUMN `key` INT", "DROP c"]),
    ("DROP c, ADD c ENUM('x,y', ')')", ["DROP c", "ADD c ENUM('x,y', ')')"]),
    (
        "ADD COLUMN IF NOT EXISTS a INT, ADD KEY IF NOT EXISTS k (a)",
        ["ADD COLUMN IF NOT EXISTS a INT", "ADD KEY IF NOT EXISTS k (a)"],
    ),
    ("ADD COLUMN a INT UNIQUE", ["ADD COLUMN a INT", "ADD UNIQUE KEY (a)"]),
    (
        "ADD `a b` INT DEFAULT (abs(1)) UNIQUE KEY COMMENT 'x' FIRST",
        ["ADD `a b` INT DEFAULT (abs(1)) COMMENT 'x' FIRST", "ADD UNIQUE KEY (`a b`)"],
    ),
    ("ADD (a INT UNIQUE, b INT)", ["ADD a INT", "ADD UNIQUE KEY (a)", "ADD b INT"]),
]


@pytest.mark.parametrize("text", WHOLE)
def test_what_cannot_be_split_stays_as_it_is(text: str) -> None:
    assert steps(text, 0) == (text,)


@pytest.mark.parametrize(("specs", "wanted"), SPLIT)
def test_each_step_is_cut_out_of_the_text(specs: str, wanted: list[str]) -> None:
    assert steps(f"ALTER TABLE `d`.`t` {specs}", 0) == tuple(f"ALTER TABLE `d`.`t` {spec}" for spec in wanted)
