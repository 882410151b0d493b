"""The foreign keys of an ALTER TABLE: those that the target gets, and those that it has already."""

import pytest

from unshard.core.ddl.foreignkeyclauses import (
    adds_keys,
    clauses_of,
    for_present,
    for_target,
    made_indexes,
    with_index_names,
)
from unshard.core.ddl.statement import read_ddl, retarget
from unshard.core.model import Index, TableId, TableSchema
from unshard.core.structures.foreignkeys import ForeignKey

SHARD, TARGET = TableId("a", "c_1"), TableId("b", "c")
P, P_R = TableId("a", "p"), TableId("b", "p_r")
BOTH = {SHARD: TARGET, P: P_R}
MADE = (Index("fk", ("p_id",), False), Index("fk2", ("x", "y"), False))


def routed(text: str, parents: dict[TableId, TableId] | None, made: tuple[Index, ...] = ()) -> str:
    ddl = read_ddl(text, 0, "a")
    own = for_target(ddl, 0, parents, made)
    return retarget(own, {**(parents or {}), SHARD: TARGET}).replace("ALTER TABLE `b`.`c` ", "")


@pytest.mark.parametrize(
    ("specs", "checked", "unchecked"),
    [
        (
            "ADD CONSTRAINT fk FOREIGN KEY (p_id) REFERENCES p (id) ON DELETE SET NULL, ADD w INT",
            "ADD CONSTRAINT fk FOREIGN KEY (p_id) REFERENCES `b`.`p_r` (id) ON DELETE SET NULL, ADD w INT",
            "ALGORITHM=DEFAULT, ADD w INT",
        ),
        (
            "ADD w INT, ADD FOREIGN KEY i (w) REFERENCES a.c_1 (id)",
            "ADD w INT, ADD FOREIGN KEY i (w) REFERENCES `b`.`c` (id)",
            "ADD w INT, ALGORITHM=DEFAULT",
        ),
        (
            "ADD w INT REFERENCES p (id) MATCH FULL ON UPDATE NO ACTION COMMENT 'x'",
            "ADD w INT REFERENCES `b`.`p_r` (id) MATCH FULL ON UPDATE NO ACTION COMMENT 'x'",
            "ADD w INT  COMMENT 'x'",
        ),
        (
            "ADD (w INT, CONSTRAINT fk FOREIGN KEY (w) REFERENCES p (id), v INT)",
            "ADD (w INT, CONSTRAINT fk FOREIGN KEY (w) REFERENCES `b`.`p_r` (id), v INT)",
            "ADD (w INT, v INT)",
        ),
        (
            "ADD (FOREIGN KEY (w) REFERENCES p (id), v INT)",
            "ADD (FOREIGN KEY (w) REFERENCES `b`.`p_r` (id), v INT)",
            "ADD (v INT)",
        ),
        ("DROP FOREIGN KEY fk, DROP w", "DROP FOREIGN KEY fk, DROP w", "ALGORITHM=DEFAULT, DROP w"),
        (
            "DROP FOREIGN KEY IF EXISTS `c_1_ibfk_3`",
            "DROP FOREIGN KEY IF EXISTS `c_ibfk_3`",
            "ALGORITHM=DEFAULT",
        ),
        (
            "ADD CONSTRAINT c_1_ibfk_7 FOREIGN KEY (w) REFERENCES p (id)",
            "ADD CONSTRAINT `c_ibfk_7` FOREIGN KEY (w) REFERENCES `b`.`p_r` (id)",
            "ALGORITHM=DEFAULT",
        ),
        (
            "ADD CONSTRAINT fk FOREIGN KEY (w) REFERENCES elsewhere.q (id)",
            "ALGORITHM=DEFAULT",
            "ALGORITHM=DEFAULT",
        ),
        ("ADD CONSTRAINT CHECK (w > 0)", "ADD CONSTRAINT CHECK (w > 0)", "ADD CONSTRAINT CHECK (w > 0)"),
    ],
)
def test_a_statement_for_the_target(specs: str, checked: str, unchecked: str) -> None:
    text = f"ALTER TABLE c_1 {specs}"
    assert routed(text, BOTH) == checked
    assert routed(text, None) == unchecked


@pytest.mark.parametrize(
    ("specs", "checked", "unchecked"),
    [
        (
            "ADD CONSTRAINT fk FOREIGN KEY (p_id) REFERENCES p (id), ADD w INT",
            "ADD INDEX `fk` (`p_id`), ADD INDEX `fk2` (`x`, `y`),"
            " ADD CONSTRAINT fk FOREIGN KEY (p_id) REFERENCES `b`.`p_r` (id), ADD w INT",
            "ADD INDEX `fk` (`p_id`), ADD INDEX `fk2` (`x`, `y`), ADD w INT",
        ),
        (
            "ADD w INT REFERENCES p (id), ADD v INT",
            "ADD w INT REFERENCES `b`.`p_r` (id), ADD INDEX `fk` (`p_id`), ADD INDEX `fk2` (`x`, `y`), ADD v INT",
            "ADD w INT , ADD INDEX `fk` (`p_id`), ADD INDEX `fk2` (`x`, `y`), ADD v INT",
        ),
    ],
)
def test_the_target_gets_the_indexes_of_foreign_keys(specs: str, checked: str, unchecked: str) -> None:
    assert routed(f"ALTER TABLE c_1 {specs}", BOTH, MADE) == checked
    assert routed(f"ALTER TABLE c_1 {specs}", None, MADE) == unchecked


def test_a_statement_that_adds_foreign_keys() -> None:
    assert adds_keys(read_ddl("ALTER TABLE c_1 ADD FOREIGN KEY (p_id) REFERENCES p (id)", 0, "a"), 0)
    assert not adds_keys(read_ddl("ALTER TABLE c_1 DROP FOREIGN KEY f", 0, "a"), 0)


def test_a_parent_without_a_schema_is_in_that_of_its_child() -> None:
    ddl = read_ddl("ALTER TABLE a.c_1 ADD FOREIGN KEY (p_id) REFERENCES p (id)", 0, "other")
    assert [clause.key.parent for clause in clauses_of(ddl, 0)] == [P]


def test_other_statements_have_no_clauses() -> None:
    for text in ("CREATE TABLE t (a INT REFERENCES p (id))", "DROP TABLE t", "ALTER TABLE t ADD `references` INT"):
        assert clauses_of(read_ddl(text, 0, "a"), 0) == ()


HAS = (
    ForeignKey(TARGET, ("p_id",), P_R, ("id",), "Fk", "CASCADE"),
    ForeignKey(TARGET, ("q_id",), P_R, ("id",), "fk_2"),
    ForeignKey(P_R, ("x",), TARGET, ("id",), "of_parent"),
)


@pytest.mark.parametrize(
    ("specs", "want"),
    [
        ("DROP FOREIGN KEY fk", "DROP FOREIGN KEY fk"),
        ("DROP FOREIGN KEY of_parent, DROP w", "ALGORITHM=DEFAULT, DROP w"),
        ("DROP FOREIGN KEY c_ibfk_2", "DROP FOREIGN KEY `fk_2`"),
        (
            "ADD CONSTRAINT x FOREIGN KEY (P_ID) REFERENCES b.p_r (ID) ON DELETE CASCADE ON UPDATE RESTRICT",
            "ALGORITHM=DEFAULT",
        ),
        (
            "ADD CONSTRAINT x FOREIGN KEY (p_id) REFERENCES b.p_r (id)",
            "ADD CONSTRAINT x FOREIGN KEY (p_id) REFERENCES b.p_r (id)",
        ),
        (
            "DROP FOREIGN KEY fk, ADD CONSTRAINT y FOREIGN KEY (p_id) REFERENCES b.p_r (id) ON DELETE CASCADE",
            "DROP FOREIGN KEY fk, ADD CONSTRAINT y FOREIGN KEY (p_id) REFERENCES b.p_r (id) ON DELETE CASCADE",
        ),
        (
            "ADD FOREIGN KEY (w) REFERENCES b.p_r (id), ADD CONSTRAINT FOREIGN KEY (p_id) REFERENCES b.p_r (id)",
            "ADD CONSTRAINT `c_ibfk_1` FOREIGN KEY (w) REFERENCES b.p_r (id),"
            " ADD CONSTRAINT `c_ibfk_2` FOREIGN KEY (p_id) REFERENCES b.p_r (id)",
        ),
        ("ADD FOREIGN KEY i (w) REFERENCES b.p_r (id)", "ADD FOREIGN KEY i (w) REFERENCES b.p_r (id)"),
    ],
)
def test_a_statement_for_what_the_target_has(specs: str, want: str) -> None:
    ddl = read_ddl(f"ALTER TABLE `b`.`c` {specs}", 0, "b")
    assert retarget(for_present(ddl, 0, TARGET, HAS), {}) == f"ALTER TABLE `b`.`c` {want}"


def test_a_name_follows_those_that_the_target_has() -> None:
    ddl = read_ddl("ALTER TABLE c DROP FOREIGN KEY c_ibfk_4, ADD FOREIGN KEY (w) REFERENCES p_r (id)", 0, "b")
    has = [ForeignKey(TARGET, ("q",), P_R, ("id",), name) for name in ("C_IBFK_4", "d_ibfk_9", "fk_7")]
    assert "ADD CONSTRAINT `c_ibfk_5` FOREIGN KEY (w)" in retarget(for_present(ddl, 0, TARGET, has), {})


@pytest.mark.parametrize(
    ("specs", "want"),
    [
        ("ADD FOREIGN KEY (a) REFERENCES p (id)", [("a", ("a",))]),
        ("ADD CONSTRAINT FOREIGN KEY i (a) REFERENCES p (id)", [("i", ("a",))]),
        ("ADD CONSTRAINT n FOREIGN KEY i (a) REFERENCES p (id)", [("n", ("a",))]),
        (
            "ADD CONSTRAINT n FOREIGN KEY (a) REFERENCES p (id), ADD CONSTRAINT m FOREIGN KEY (a) REFERENCES p (id)",
            [("m", ("a",))],
        ),
        ("ADD FOREIGN KEY (a) REFERENCES p (id), ADD FOREIGN KEY (a, b) REFERENCES q (a, b)", [("a", ("a", "b"))]),
        ("ADD FOREIGN KEY (a, b) REFERENCES q (a, b), ADD FOREIGN KEY (a) REFERENCES p (id)", [("a", ("a", "b"))]),
        ("ADD FOREIGN KEY (d) REFERENCES p (id)", [("d_2", ("d",))]),
        ("ADD FOREIGN KEY (C) REFERENCES p (id)", []),
        ("DROP FOREIGN KEY x, ADD w INT REFERENCES p (id)", []),
    ],
)
def test_the_indexes_that_the_source_makes(specs: str, want: list[tuple[str, tuple[str, ...]]]) -> None:
    """As MariaDB 10.11 has made them; TiDB would call each one `fk_1`."""
    without = TableSchema((), (Index("D", ("c", "e"), False),), "")
    ddl = read_ddl(f"ALTER TABLE a.c_1 {specs}", 0, "a")
    assert [(index.name, index.columns) for index in made_indexes(ddl, 0, without)] == want


def test_foreign_keys_of_a_new_table_get_the_names_of_their_indexes() -> None:
    keys = (
        "FOREIGN KEY (a) REFERENCES p (id), CONSTRAINT FOREIGN KEY (a) REFERENCES q (id), FOREIGN KEY i (b) REFERENCES"
    )
    text = f"CREATE TABLE t (a INT DEFAULT (1), b INT REFERENCES p (id), {keys} p (id), CONSTRAINT n FOREIGN KEY (b)"
    text += " REFERENCES p (id))"
    named = retarget(with_index_names(read_ddl(text, 0, "a"), 0), {})
    want = text.replace("CONSTRAINT FOREIGN KEY (a)", "CONSTRAINT `a_2` foreign key (a)")
    want = want.replace(" FOREIGN KEY (a)", " CONSTRAINT `a` FOREIGN KEY (a)").replace("foreign key", "FOREIGN KEY")
    want = want.replace("FOREIGN KEY i", "CONSTRAINT `i` FOREIGN KEY i").replace("TABLE t", "TABLE `a`.`t`")
    assert named == want
    other = read_ddl("CREATE TABLE t (a INT)", 0, "a")
    assert with_index_names(other, 0) is other
