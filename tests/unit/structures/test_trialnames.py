"""Names of constraints in trial tables: unique there, and the table's own in everything that is returned."""

import pytest

from unshard.core.model import Index, TableSchema
from unshard.core.structures.constraintnames import trial_names

TRIAL = "_shadow_100_ab0"
BEFORE = (
    "CREATE TABLE `t` (\n  `a` int,\n  CONSTRAINT `Pos``itive` CHECK ((`a` > 0)),\n"
    "  CONSTRAINT `*_chk_3` CHECK ((`a` <> 5)),\n  UNIQUE KEY `u` (`a`)\n)"
)


@pytest.mark.parametrize(
    ("text", "put"),
    [
        ("ALTER TABLE t DROP CONSTRAINT `pos``itive`", "ALTER TABLE t DROP CONSTRAINT `{}_1_`"),
        ("ALTER TABLE t DROP CHECK `{}_chk_3`, ADD CHECK (b)", "ALTER TABLE t DROP CHECK `{}_chk_3`, ADD CHECK (b)"),
        (
            "ALTER TABLE t ADD CONSTRAINT f FOREIGN KEY (a) REFERENCES p (a), ADD CONSTRAINT FOREIGN KEY (a)",
            "ALTER TABLE t ADD CONSTRAINT `{}_2_` FOREIGN KEY (a) REFERENCES p (a), ADD CONSTRAINT FOREIGN KEY (a)",
        ),
        (
            "ALTER TABLE t ADD CONSTRAINT IF NOT EXISTS n CHECK (a), ADD b INT CONSTRAINT m CHECK (b)",
            "ALTER TABLE t ADD CONSTRAINT IF NOT EXISTS `{}_2_` CHECK (a), ADD b INT CONSTRAINT `{}_3_` CHECK (b)",
        ),
        (
            "ALTER TABLE t ADD CONSTRAINT {}_ibfk_7 FOREIGN KEY (a) REFERENCES p (a)",
            "ALTER TABLE t ADD CONSTRAINT `{}_2_` FOREIGN KEY (a) REFERENCES p (a)",
        ),
        ("ALTER TABLE t DROP CONSTRAINT IF EXISTS u", "ALTER TABLE t DROP CONSTRAINT IF EXISTS u"),
        ("ALTER TABLE t ADD CONSTRAINT w UNIQUE (a)", "ALTER TABLE t ADD CONSTRAINT w UNIQUE (a)"),
        ("ALTER TABLE t ADD `constraint` INT, ADD PRIMARY KEY (a)",) * 2,
    ],
)
def test_a_statement_uses_the_names_of_the_trial_table(text: str, put: str) -> None:
    text = text.replace("{}", TRIAL)  # the trial table has taken the place of the table in it
    names = trial_names("t_1", TRIAL, (BEFORE, 0), (text, 0))
    assert names.put_in(text) == put.replace("{}", TRIAL)


def test_the_structure_has_the_names_of_the_table() -> None:
    foreign = f"ADD CONSTRAINT b FOREIGN KEY (a) REFERENCES p (a), ADD CONSTRAINT {TRIAL}_ibfk_7 FOREIGN KEY (b)"
    names = trial_names("t_1", TRIAL, (BEFORE, 0), (f"ALTER TABLE t {foreign}", 0))
    shown = names.put_in(BEFORE).replace("\n)", f",\n  CONSTRAINT `*_chk_1` CHECK (1),\n  KEY `{TRIAL}_2_` (`a`)\n)")
    assert "itive" not in shown and "t_1" not in shown
    made = tuple(Index(name, ("a",), False) for name in ("a", f"{TRIAL}_2_", f"{TRIAL}_3_"))
    found = names.restored(TableSchema((), made, shown))
    third, first = "CONSTRAINT `*_chk_3` CHECK ((`a` <> 5))", "CONSTRAINT `*_chk_1` CHECK (1)"
    positive = "CONSTRAINT `Pos``itive` CHECK ((`a` > 0))"
    assert [line.strip(", ") for line in found.create_sql.splitlines()[2:5]] == [first, third, "UNIQUE KEY `u` (`a`)"]
    assert found.create_sql.splitlines()[5:7] == [f"  {positive},", "  KEY `b` (`a`)"]
    assert [index.name for index in found.indexes] == ["a", "b", "t_1_ibfk_7"]
    assert names.message(f"constraint '{TRIAL}_1_' and {TRIAL}_chk_12") == "constraint 'Pos`itive' and t_1_chk_12"


def test_two_trials_have_no_name_in_common() -> None:
    one, other = (trial_names("t_1", trial, (BEFORE, 0)).named for trial in (TRIAL, "_shadow_100_ab1"))
    assert one and not {*one.values()} & {*other.values()}
