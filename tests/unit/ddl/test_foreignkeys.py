"""The foreign keys of an ALTER TABLE: those that the target gets, and those that it has already."""

import pytest

from unshard.core.ddl.foreignkeys import adds_keys, clauses_of, for_present, for_target
from unshard.core.ddl.statement import read, retarget
from unshard.core.model import Index, TableId
from unshard.core.structures.foreignkeys import ForeignKey

SHARD, TARGET = TableId("a", "c_1"), TableId("b", "c")
P, P_R = TableId("a", "p"), TableId("b", "p_r")
BOTH = {SHARD: TARGET, P: P_R}
MADE = (Index("fk", ("p_id",), False), Index("fk2", ("x", "y"), False))


def routed(text: str, parents: dict[TableId, TableId] | None, made: tuple[Index, ...] = ()) -> str:
    ddl = read(text, 0, "a")
    own = for_target(ddl, 0, TARGET, parents, made)
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
    assert adds_keys(read("ALTER TABLE c_1 ADD FOREIGN KEY (p_id) REFERENCES p (id)", 0, "a"), 0)
    assert not adds_keys(read("ALTER TABLE c_1 DROP FOREIGN KEY f", 0, "a"), 0)


def test_a_parent_without_a_schema_is_in_that_of_its_child() -> None:
    ddl = read("ALTER TABLE a.c_1 ADD FOREIGN KEY (p_id) REFERENCES p (id)", 0, "other")
    assert [clause.key.parent for clause in clauses_of(ddl, 0)] == [P]


def test_other_statements_have_no_clauses() -> None:
    for text in ("CREATE TABLE t (a INT REFERENCES p (id))", "DROP TABLE t", "ALTER TABLE t ADD `references` INT"):
        assert clauses_of(read(text, 0, "a"), 0) == ()


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
    ],
)
def test_a_statement_for_what_the_target_has(specs: str, want: str) -> None:
    ddl = read(f"ALTER TABLE `b`.`c` {specs}", 0, "b")
    assert retarget(for_present(ddl, 0, TARGET, HAS), {}) == f"ALTER TABLE `b`.`c` {want}"
