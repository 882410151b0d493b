"""Names of constraints in trial tables: unique there, and the table's own in everything that is returned."""

import pytest

from unshard.core.model import Index, TableSchema
from unshard.core.structures.trialnames import trial_names

TRIAL = "_shadow_100_ab0"
BEFORE = (
    "CREATE TABLE `t` (\n  `a` int,\n  CONSTRAINT `Pos``itive` CHECK ((`a` > 0)),\n"
    "  CONSTRAINT `t_1_chk_3` CHECK ((`a` <> 5)),\n  UNIQUE KEY `u` (`a`)\n)"
)


@pytest.mark.parametrize(
    ("text", "put"),
    [
        ("ALTER TABLE t DROP CONSTRAINT `pos``itive`", "ALTER TABLE t DROP CONSTRAINT `{}_1_`"),
        ("ALTER TABLE t DROP CHECK t_1_chk_3, ADD CHECK (b)", "ALTER TABLE t DROP CHECK `{}_chk_3`, ADD CHECK (b)"),
        ("ALTER TABLE t ALTER CHECK T_1_CHK_3 NOT ENFORCED", "ALTER TABLE t ALTER CHECK `{}_chk_3` NOT ENFORCED"),
        (
            "ALTER TABLE t ADD CONSTRAINT f FOREIGN KEY (a) REFERENCES p (a), ADD CONSTRAINT FOREIGN KEY (a)",
            "ALTER TABLE t ADD CONSTRAINT `{}_3_` FOREIGN KEY (a) REFERENCES p (a), ADD CONSTRAINT FOREIGN KEY (a)",
        ),
        (
            "ALTER TABLE t ADD CONSTRAINT IF NOT EXISTS n CHECK (a), ADD b INT CONSTRAINT m CHECK (b)",
            "ALTER TABLE t ADD CONSTRAINT IF NOT EXISTS `{}_3_` CHECK (a), ADD b INT CONSTRAINT `{}_4_` CHECK (b)",
        ),
        ("ALTER TABLE t DROP CONSTRAINT IF EXISTS u", "ALTER TABLE t DROP CONSTRAINT IF EXISTS u"),
        ("ALTER TABLE t ADD CONSTRAINT w UNIQUE (a)", "ALTER TABLE t ADD CONSTRAINT w UNIQUE (a)"),
        ("ALTER TABLE t ADD `constraint` INT, ADD PRIMARY KEY (a)",) * 2,
    ],
)
def test_a_statement_uses_the_names_of_the_trial_table(text: str, put: str) -> None:
    names = trial_names("t_1", TRIAL, (BEFORE, 0), (text, 0))
    assert names.put_in(text) == put.replace("{}", TRIAL)


def test_the_structure_has_the_names_of_the_table() -> None:
    names = trial_names(
        "t_1", TRIAL, (BEFORE, 0), ("ALTER TABLE t ADD CONSTRAINT b FOREIGN KEY (a) REFERENCES p (a)", 0)
    )
    shown = names.put_in(BEFORE).replace(
        "\n)", f",\n  CONSTRAINT `{TRIAL}_chk_1` CHECK (1),\n  KEY `{TRIAL}_3_` (`a`)\n)"
    )
    assert "itive" not in shown and "t_1" not in shown
    found = names.restored(TableSchema((), (Index("a", ("a",), False), Index(f"{TRIAL}_3_", ("a",), False)), shown))
    third = "CONSTRAINT `t_1_chk_3` CHECK ((`a` <> 5))"
    sorted_by_name = BEFORE.replace(third, "CONSTRAINT `t_1_chk_1` CHECK (1)")
    assert found.create_sql == sorted_by_name.replace("\n)", f",\n  {third},\n  KEY `b` (`a`)\n)")
    assert [index.name for index in found.indexes] == ["a", "b"]
    assert names.message(f"constraint '{TRIAL}_1_' and {TRIAL}_chk_12") == "constraint 'Pos`itive' and t_1_chk_12"


def test_two_trials_have_no_name_in_common() -> None:
    one, other = (trial_names("t_1", trial, (BEFORE, 0)).named for trial in (TRIAL, "_shadow_100_ab1"))
    assert not {*one.values()} & {*other.values()}
