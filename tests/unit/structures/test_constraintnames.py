"""Names of constraints: made from the name of the table, chosen by a user, and found again in a target."""

import pytest

from unshard.core.ddl.statement import fingerprint, read_ddl, retarget
from unshard.core.model import TableId
from unshard.core.structures.constraintnames import (
    CHECK,
    FOREIGN,
    ConstraintsThere,
    checks_of,
    for_table,
    own_name,
    without_absent,
)
from unshard.core.structures.createtext import create_text, normal_create

SHARD, TARGET = TableId("a", "t_1"), TableId("b", "u")
SHOWN = (
    "CREATE TABLE `{0}` (\n  `a` int COMMENT 'CONSTRAINT `t_1_chk_9`',\n  KEY `f` (`a`),\n"
    "  CONSTRAINT `f` FOREIGN KEY (`a`) REFERENCES `p` (`a`),\n  CONSTRAINT `{1}_chk_10` CHECK ((`a` > 0)),\n"
    "  CONSTRAINT `{1}_chk_2` CHECK ((`a` < 9)),\n  CONSTRAINT `u_chk_1` CHECK ((`a` <> 5))\n) ENGINE=InnoDB"
)


def test_equal_texts_for_tables_whose_names_of_constraints_the_server_has_made() -> None:
    one, other = (normal_create(SHOWN.format(name, name)) for name in ("t_1", "t_2"))
    assert one == other
    assert checks_of(one, "x") == ("u_chk_1", "x_chk_10", "x_chk_2")
    assert create_text(one, TableId("s", "T `1")).count("CONSTRAINT `T ``1_chk_") == 2
    assert "`u_chk_1`" in create_text(one, TARGET), "it is a name that a user chose"
    assert normal_create(create_text(one, SHARD).replace("`a`.", "")) == one
    assert normal_create(SHOWN.format("t_1", "t")) != one


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("DROP CHECK t_1_chk_1, ADD b INT", "DROP CHECK `u_chk_1`, ADD b INT"),
        ("DROP CONSTRAINT IF EXISTS `T_1_chk_12`", "DROP CONSTRAINT IF EXISTS `u_chk_12`"),
        ("ALTER CHECK t_1_CHK_3 NOT ENFORCED", "ALTER CHECK `u_chk_3` NOT ENFORCED"),
        ("ALTER CONSTRAINT t_1_chk_3 ENFORCED", "ALTER CONSTRAINT `u_chk_3` ENFORCED"),
        ("ADD CONSTRAINT t_1_chk_7 CHECK (a > 1)", "ADD CONSTRAINT `u_chk_7` CHECK (a > 1)"),
        ("ADD b INT CONSTRAINT t_1_chk_8 CHECK (b > 1)", "ADD b INT CONSTRAINT `u_chk_8` CHECK (b > 1)"),
        ("DROP CONSTRAINT t_1_ibfk_2", "DROP CONSTRAINT `u_ibfk_2`"),
        ("DROP CHECK t_chk_1, DROP CHECK t_11_chk_1, DROP KEY t_1_chk_1", None),
        ("ADD t_1_chk_1 INT, ADD KEY t_1_ibfk_1 (a), ADD CONSTRAINT t_1_chk_1 UNIQUE (a)", None),
        ("COMMENT 'DROP CHECK t_1_chk_1'", None),
    ],
)
def test_a_statement_for_another_table(text: str, want: str | None) -> None:
    ddl = read_ddl(f"ALTER TABLE t_1 {text}", 0, "a")
    assert retarget(ddl, {SHARD: TARGET}) == f"ALTER TABLE `b`.`u` {want or text}"
    assert retarget(ddl, {}) == f"ALTER TABLE `a`.`t_1` {text}"


def test_a_table_that_is_created_for_another_one() -> None:
    ddl = read_ddl("CREATE TABLE t_1 (a INT CONSTRAINT t_1_chk_1 CHECK (a > 0), CONSTRAINT c CHECK (a < 9))", 0, "a")
    assert "`u_chk_1`" in retarget(ddl, {SHARD: TARGET}) and "t_1" not in retarget(ddl, {SHARD: TARGET})


def test_shards_agree_about_names_of_their_own() -> None:
    texts = (
        retarget(read_ddl(f"ALTER TABLE t_{n} DROP CHECK t_{n}_chk_1", 0, "a"), {TableId("a", f"t_{n}"): TARGET})
        for n in (1, 2)
    )
    assert len({fingerprint(text) for text in texts}) == 1


THERE = ConstraintsThere(
    frozenset({"c", "u_d", "u_chk_1"}),
    frozenset({"f", "u_g"}),
    frozenset({"primary", "k"}),
    frozenset({(CHECK, "taken"), (FOREIGN, "taken_key")}),
)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("ADD CONSTRAINT new CHECK (a)", None),
        ("ADD CONSTRAINT Taken CHECK (a)", "ADD CONSTRAINT `u_Taken` CHECK (a)"),
        ("ADD CONSTRAINT taken FOREIGN KEY (a) REFERENCES p (a)", None),
        (
            "ADD CONSTRAINT taken_key FOREIGN KEY (a) REFERENCES p (a)",
            "ADD CONSTRAINT `u_taken_key` FOREIGN KEY (a) REFERENCES p (a)",
        ),
        ("ADD b INT CONSTRAINT taken CHECK (b)", "ADD b INT CONSTRAINT `u_taken` CHECK (b)"),
        ("ADD CONSTRAINT taken UNIQUE (a)", None),
        ("DROP CHECK c, ALTER CHECK D NOT ENFORCED", "DROP CHECK c, ALTER CHECK `u_D` NOT ENFORCED"),
        ("DROP CHECK absent", None),
        ("DROP FOREIGN KEY f, DROP FOREIGN KEY IF EXISTS g", "DROP FOREIGN KEY f, DROP FOREIGN KEY IF EXISTS `u_g`"),
        ("DROP CONSTRAINT c, DROP CONSTRAINT d", "DROP CONSTRAINT c, DROP CONSTRAINT `u_d`"),
        ("DROP CONSTRAINT f, DROP CONSTRAINT g", "DROP FOREIGN KEY f, DROP FOREIGN KEY `u_g`"),
        ("DROP CONSTRAINT u_ibfk_3", "DROP FOREIGN KEY u_ibfk_3"),
        ("DROP CONSTRAINT k, DROP CONSTRAINT `PRIMARY`", None),
        ("DROP CONSTRAINT absent, ADD b INT", "ALGORITHM=DEFAULT, ADD b INT"),
        (
            "DROP CONSTRAINT taken, ADD CONSTRAINT taken CHECK (a)",
            "ALGORITHM=DEFAULT, ADD CONSTRAINT `u_taken` CHECK (a)",
        ),
    ],
)
def test_a_statement_with_the_names_that_the_target_has(text: str, want: str | None) -> None:
    assert for_table(f"ALTER TABLE b.u {text}", 0, "u", THERE) == f"ALTER TABLE b.u {want or text}"


def test_a_foreign_key_is_dropped_from_a_table_that_has_none() -> None:
    text = "ALTER TABLE t DROP CONSTRAINT c, DROP CONSTRAINT IF EXISTS `F`, DROP CHECK x, DROP FOREIGN KEY y"
    assert without_absent(text, 0, {"c"}) == (
        "ALTER TABLE t DROP CONSTRAINT c, ALGORITHM=DEFAULT, DROP CHECK x, DROP FOREIGN KEY y"
    )


def test_a_long_name_stays_one_that_a_server_takes() -> None:
    names = {own_name("t" * 60, name) for name in ("a" * 60, "b" * 60, "a" * 59)}
    assert {len(name) for name in names} == {64} and len(names) == 3
