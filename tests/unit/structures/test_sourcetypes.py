"""Words of a DDL that have another meaning on the target."""

import pytest

from unshard.core.ddl.schemadefaults import Meanings, as_source_means

TEXT = "LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
NATIONAL = "CHARACTER SET utf8 COLLATE utf8_general_ci"
ALL = Meanings(True, NATIONAL, {"utf8mb4": "utf8mb4_general_ci", "utf8": "utf8_general_ci"})
CASES = [
    ("ALTER TABLE t ADD j JSON", f"ALTER TABLE t ADD j {TEXT}"),
    ("ALTER TABLE t ADD json json NOT NULL AFTER json", f"ALTER TABLE t ADD json {TEXT} NOT NULL AFTER json"),
    ("ALTER TABLE t CHANGE json `json` JSON", f"ALTER TABLE t CHANGE json `json` {TEXT}"),
    ("ALTER TABLE t ADD json INT, DROP json, ADD KEY (json)", None),
    ("ALTER TABLE t ADD c VARCHAR(9) DEFAULT 'a JSON'", None),
    ("CREATE TABLE t (id INT, j JSON, k JSON)", f"CREATE TABLE t (id INT, j {TEXT}, k {TEXT})"),
    ("ALTER TABLE t ADD n NATIONAL VARCHAR(10) NOT NULL", f"ALTER TABLE t ADD n  VARCHAR(10) {NATIONAL} NOT NULL"),
    ("ALTER TABLE t ADD n NCHAR", f"ALTER TABLE t ADD n CHAR {NATIONAL}"),
    ("ALTER TABLE t ADD n NVARCHAR(3)", f"ALTER TABLE t ADD n VARCHAR(3) {NATIONAL}"),
    ("ALTER TABLE t ADD n NATIONAL CHAR VARYING(3)", f"ALTER TABLE t ADD n  CHAR VARYING(3) {NATIONAL}"),
    ("ALTER TABLE t ADD nchar INT", None),
    (
        "ALTER TABLE t ADD c TEXT CHARACTER SET utf8mb4, ADD d TEXT CHARSET utf8 COLLATE utf8_bin",
        "ALTER TABLE t ADD c TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci,"
        " ADD d TEXT CHARSET utf8 COLLATE utf8_bin",
    ),
    (
        "CREATE TABLE t (a CHAR(3) CHARSET latin1) CHARSET = utf8mb4",
        "CREATE TABLE t (a CHAR(3) CHARSET latin1) CHARSET = utf8mb4 COLLATE utf8mb4_general_ci",
    ),
    ("CREATE TABLE t (a CHAR(3)) CHARSET=utf8mb4 COMMENT 'x' COLLATE=utf8mb4_bin", None),
    (
        "ALTER TABLE t CONVERT TO CHARACTER SET 'utf8'",
        "ALTER TABLE t CONVERT TO CHARACTER SET 'utf8' COLLATE utf8_general_ci",
    ),
    ("ALTER TABLE t ALTER c SET DEFAULT 'utf8'", None),
]


@pytest.mark.parametrize(("text", "wanted"), CASES)
def test_words_are_named_as_the_source_means_them(text: str, wanted: str | None) -> None:
    assert as_source_means(text, 0, ALL) == (wanted or text)
    assert as_source_means(text, 0, Meanings()) == text


UTF8 = Meanings(utf8="utf8mb4", collations={"utf8mb4": "utf8mb4_uca1400_ai_ci", "utf8": "utf8_bin"})
RENAMED = [
    (
        "ALTER TABLE t ADD utf8 CHAR(3) CHARACTER SET utf8",
        "ALTER TABLE t ADD utf8 CHAR(3) CHARACTER SET utf8mb4 COLLATE utf8mb4_uca1400_ai_ci",
    ),
    ("CREATE TABLE t (a TEXT COLLATE utf8_bin) COLLATE=`utf8_general_ci`", None),
    ("ALTER TABLE t ADD b CHAR(3) AS (CONVERT(a USING utf8)), ADD c CHAR(4) COLLATE 'utf8_bin'", None),
    ("ALTER TABLE t CHARSET='utf8' COLLATE utf8_bin, ADD d CHAR(4) DEFAULT 'utf8'", None),
    (
        "ALTER TABLE t ADD _utf8 CHAR(4) DEFAULT _utf8'é', ADD e INT AFTER _utf8",
        "ALTER TABLE t ADD _utf8 CHAR(4) DEFAULT _utf8mb4'é', ADD e INT AFTER _utf8",
    ),
]


@pytest.mark.parametrize(("text", "wanted"), RENAMED)
def test_utf8_is_what_the_source_means(text: str, wanted: str | None) -> None:
    found = as_source_means(text, 0, UTF8)
    other = text.replace("`utf8_", "utf8_").replace("`", "").replace("T 'utf8'", "T 'text'")
    other = other.replace("'utf8_bin'", "utf8_bin").replace("'utf8'", "utf8").replace("utf8", "utf8mb4")
    assert found == (wanted or other.replace("'text'", "'utf8'"))
