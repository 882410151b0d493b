"""Clauses about the storage of a shard do not reach the target (docs/security.md)."""

import pytest

from unshard.core.ddl.parsed import DdlKind
from unshard.core.ddl.statement import read_ddl, retarget
from unshard.core.sql.tokens import MARIADB, Dialect
from unshard.core.structures.createtext import normal_create

MYSQL = Dialect(mariadb=False)
PLACES = {
    "directory": ("DATA DIRECTORY='/etc' INDEX DIRECTORY '/x'", "DATA DIRECTORY, INDEX DIRECTORY"),
    "connection": ("CONNECTION='mysql://u:hunter2@h/d/t'", "CONNECTION"),
    "union": ("UNION=(a,`b`) INSERT_METHOD LAST", "UNION, INSERT_METHOD"),
    "tablespace": ("TABLESPACE `ts` STORAGE DISK", "TABLESPACE, STORAGE"),
    "keys": ("ENCRYPTION 'Y' ENCRYPTED=YES ENCRYPTION_KEY_ID=2", "ENCRYPTION, ENCRYPTED, ENCRYPTION_KEY_ID"),
    "attributes": ("ENGINE_ATTRIBUTE='{}' SECONDARY_ENGINE=RAPID", "ENGINE_ATTRIBUTE, SECONDARY_ENGINE"),
    "password": ("PASSWORD='hunter2' AUTOEXTEND_SIZE=4M", "PASSWORD, AUTOEXTEND_SIZE"),
    "connect": ("TABLE_TYPE=CSV `FILE_NAME`='/etc/passwd'", "TABLE_TYPE, FILE_NAME"),
    "comments": ("/*!50100 DATA DIRECTORY='/x' */ /*!CONNECTION 'hunter2'*/", "DATA DIRECTORY, CONNECTION"),
}


def routed(text: str) -> str:
    ddl = read_ddl(text, 0, "d", MYSQL)
    assert ddl.kind in (DdlKind.ALTER, DdlKind.CREATE_TABLE, DdlKind.INDEX)
    found = " ".join(retarget(ddl, {}).split())
    assert "hunter2" not in found + ddl.text and "/x" not in found
    return found


def told(text: str) -> str:
    return ", ".join(read_ddl(text, 0, "d", MYSQL).left_out)


@pytest.mark.parametrize(("clauses", "names"), PLACES.values(), ids=PLACES)
def test_options_of_tables(clauses: str, names: str) -> None:
    create = f"CREATE TABLE t (a INT, connection INT) ENGINE=InnoDB {clauses} COMMENT='x'"
    assert routed(create) == "CREATE TABLE `d`.`t` (a INT, connection INT) ENGINE=InnoDB COMMENT='x'"
    assert told(create) == names
    assert routed(f"CREATE TABLE t (a INT) {clauses}") == "CREATE TABLE `d`.`t` (a INT)"
    assert routed(f"ALTER TABLE t {clauses}") == "ALTER TABLE `d`.`t` ALGORITHM=DEFAULT"
    assert routed(f"ALTER TABLE t ADD b INT, {clauses}, DROP a") == (
        "ALTER TABLE `d`.`t` ADD b INT, ALGORITHM=DEFAULT , DROP a"
    )
    assert routed(f"ALTER TABLE t COMMENT='x' {clauses}, ADD b INT") == "ALTER TABLE `d`.`t` COMMENT='x' , ADD b INT"


@pytest.mark.parametrize(
    ("options", "rest"),
    [
        ("DATA DIRECTORY='/x', INDEX DIRECTORY='/x', ENGINE=InnoDB", "ENGINE=InnoDB"),
        ("ENGINE=MRG_MYISAM, UNION=(a,b), INSERT_METHOD=LAST", "ENGINE=MRG_MYISAM"),
        ("ENGINE=InnoDB, CONNECTION='hunter2' COMMENT='x'", "ENGINE=InnoDB COMMENT='x'"),
        ("COMMENT='x', PASSWORD='hunter2', ROW_FORMAT=DYNAMIC", "COMMENT='x' , ROW_FORMAT=DYNAMIC"),
        ("ENGINE=InnoDB, TABLESPACE ts PARTITION BY HASH (a)", "ENGINE=InnoDB PARTITION BY HASH (a)"),
    ],
)
def test_commas_between_options(options: str, rest: str) -> None:
    assert routed(f"CREATE TABLE t (a INT, b INT) {options}") == f"CREATE TABLE `d`.`t` (a INT, b INT) {rest}"


@pytest.mark.parametrize("words", ["NOWAIT", "WAIT 3"])
def test_after_the_time_to_wait_for_a_lock(words: str) -> None:
    assert routed(f"ALTER TABLE t {words} CONNECTION='hunter2'") == "ALTER TABLE `d`.`t` ALGORITHM=DEFAULT"


@pytest.mark.parametrize(
    "value", ['\'srv "x", password "hunter2"\'', "= 'password ''hunter2'''", "=\"Password 'hunter2'\""]
)
def test_a_password_in_the_comment_of_a_table_whose_engine_the_statement_does_not_name(value: str) -> None:
    assert routed(f"ALTER TABLE t COMMENT {value}") == "ALTER TABLE `d`.`t` ALGORITHM=DEFAULT"
    assert routed(f"CREATE TABLE t (a INT COMMENT 'x') COMMENT {value}") == "CREATE TABLE `d`.`t` (a INT COMMENT 'x')"
    assert told(f"ALTER TABLE t COMMENT {value}") == "COMMENT"


PARTS = "(PARTITION p VALUES LESS THAN (1) {0} ENGINE=InnoDB (SUBPARTITION s {0}, SUBPARTITION r {0}))"
REST = "(PARTITION p VALUES LESS THAN (1) ENGINE=InnoDB (SUBPARTITION s , SUBPARTITION r ))"


@pytest.mark.parametrize("clauses", [PLACES[name][0] for name in ("directory", "tablespace", "comments")])
@pytest.mark.parametrize(
    "head",
    [
        "CREATE TABLE t (a INT) PARTITION BY RANGE (a) SUBPARTITION BY HASH (a) SUBPARTITIONS 2",
        "ALTER TABLE t ADD b INT PARTITION BY RANGE (a)",
        "ALTER TABLE t ADD PARTITION",
        "ALTER TABLE t REORGANIZE PARTITION q INTO",
    ],
)
def test_options_of_partitions(head: str, clauses: str) -> None:
    quoted = head.replace("TABLE t", "TABLE `d`.`t`")
    assert routed(f"{head} {PARTS.format(clauses)}") == f"{quoted} {REST}"


def test_attributes_of_columns_and_indexes() -> None:
    attribute = "ENGINE_ATTRIBUTE='{\"a\": 1}' SECONDARY_ENGINE_ATTRIBUTE = 'x'"
    found = routed(f"CREATE TABLE t (a INT STORAGE DISK {attribute}, KEY k (a) {attribute}) CHARACTER SET = utf8mb4")
    assert found == "CREATE TABLE `d`.`t` (a INT , KEY k (a) ) CHARACTER SET = utf8mb4"
    assert routed(f"ALTER TABLE t ADD b INT {attribute}, ADD c INT") == "ALTER TABLE `d`.`t` ADD b INT , ADD c INT"
    assert routed(f"CREATE INDEX k ON t (a) {attribute}") == "CREATE INDEX k ON `d`.`t` (a)"


@pytest.mark.parametrize(
    "text",
    [
        "CREATE TABLE `d`.`t` (connection VARCHAR(9) DEFAULT 'x', data INT, tablespace INT, union_ INT)",
        "CREATE TABLE `d`.`t` (a INT) DEFAULT CHARACTER SET = utf8mb4 COLLATE = utf8mb4_bin ROW_FORMAT = DYNAMIC",
        "ALTER TABLE `d`.`t` ADD tablespace INT, ADD COLUMN encryption INT, ADD (storage INT, password TEXT)",
        "ALTER TABLE `d`.`t` ALTER connection SET DEFAULT 'x', MODIFY password VARCHAR(9) DEFAULT 'x'",
        "ALTER TABLE `d`.`t` ADD CHECK (connection = 'x'), ALGORITHM = INPLACE, LOCK = NONE",
        "ALTER TABLE `d`.`t` COMMENT 'DATA DIRECTORY=''/y'' CONNECTION=''z'''",
        "ALTER TABLE `d`.`t` PARTITION BY KEY ALGORITHM = 2 (connection) PARTITIONS 4",
        "ALTER TABLE `d`.`t` PARTITION BY RANGE COLUMNS (tablespace, password) (PARTITION p VALUES LESS THAN (1, 'x'))",
        "CREATE INDEX k ON `d`.`t` (connection, password) COMMENT 'x'",
    ],
)
def test_everything_else_stays(text: str) -> None:
    assert retarget(read_ddl(text, 0, "d", MARIADB), {}) == text
    assert told(text) == ""


def test_a_printed_structure() -> None:
    head = "CREATE TABLE `x` (\n  `a` int(11) NOT NULL,\n  PRIMARY KEY (`a`)\n) ENGINE={} DEFAULT CHARSET=latin1"
    kept = head.replace("`x`", "`t`")
    for engine, tail in (
        ("InnoDB", " DATA DIRECTORY='/x' `ENCRYPTED`=YES `encryption_key_id`=2"),
        ("FEDERATED", " CONNECTION='mysql://u:hunter2@h/d/t'"),
        ("SPIDER", ' COMMENT=\'host "h", password "hunter2"\' `WRAPPER`=mysql'),
        ("MRG_MyISAM", " INSERT_METHOD=LAST UNION=(`a`,`b`)"),
    ):
        assert normal_create(head.format(engine) + tail) == kept.format(engine)
    parts = "\n PARTITION BY HASH (`a`)\n(PARTITION `p0`{} ENGINE = InnoDB)"
    found = normal_create(head.format("InnoDB") + parts.format(" DATA DIRECTORY = '/x' INDEX DIRECTORY = '/y'"))
    assert found == kept.format("InnoDB") + parts.format("")
