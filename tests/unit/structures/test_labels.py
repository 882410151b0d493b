"""Labels of ENUM and SET as TiDB prints them: a backslash is not escaped there, but only in labels."""

import pytest

from unshard.core.model import Column, TableSchema
from unshard.core.rows.missingcolumns import implicit_value
from unshard.core.structures.columntypes import as_escaped, is_ambiguous, read_labels


@pytest.mark.parametrize(
    ("printed", "labels"),
    [
        (r"enum('a\b','\','it''s\')", ("a\\b", "\\", "it's\\")),
        (r"set('\\','x,\)','),')", ("\\\\", "x,\\)", "),")),
        (r"enum('x\ny','\0','\r\')", ("x\ny", "\0", "\r\\")),
        ("enum('plain')", ("plain",)),
    ],
)
def test_labels_of_tidb(printed: str, labels: tuple[str, ...]) -> None:
    assert read_labels(as_escaped(printed)) == labels
    line = "  `e enum('\\\\')` {} CHARACTER SET latin1 DEFAULT 'a\\\\b' COMMENT 'enum(''\\\\'')',\n  `c` int\n)"
    assert as_escaped("CREATE TABLE `t` (\n" + line.format(printed)) == "CREATE TABLE `t` (\n" + line.format(
        as_escaped(printed)
    )


def column(column_type: str) -> Column:
    return Column("e", column_type.partition("(")[0], column_type, False, "latin1", None, None, "")


def test_a_control_character_may_be_a_backslash_and_a_letter() -> None:
    def table(column_type: str) -> TableSchema:
        return TableSchema((column(column_type),), (), "")

    assert is_ambiguous(table(r"enum('\n')"), r"ALTER TABLE t ADD e ENUM('\\n')")
    assert not is_ambiguous(table(r"enum('\n')"), r"ALTER TABLE t ADD e ENUM('\n')")
    assert not is_ambiguous(table(r"enum('\\x')"), r"ALTER TABLE t ADD e ENUM('\\x') COMMENT '\\n'")
    assert not is_ambiguous(table(r"varchar(9)"), r"ALTER TABLE t ADD e VARCHAR(9) DEFAULT '\\n'")


def test_a_row_without_a_value_has_the_first_label() -> None:
    assert implicit_value(column(r"enum('a\\b','c')")) == rb"a\b"
