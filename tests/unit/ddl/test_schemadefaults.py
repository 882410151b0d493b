"""The default character set of a schema: added to statements that depend on it, followed through CREATE and ALTER."""

import pytest

from unshard.core.ddl.schemadefaults import altered, naming_default, relies_on_schema
from unshard.core.relay.segment import SchemaDefault

LATIN = SchemaDefault("latin1", "latin1_bin")
SERVER = SchemaDefault("latin2", "latin2_bin")
GIVEN = " DEFAULT CHARACTER SET latin1 COLLATE latin1_bin"

RELYING = [
    ("create table t (a int)", "create table t (a int)" + GIVEN),
    (
        "CREATE TABLE `t` (`a` int, KEY (a)) ENGINE=InnoDB COMMENT 'CHARSET latin2'",
        f"CREATE TABLE `t` (`a` int, KEY (a)){GIVEN} ENGINE=InnoDB COMMENT 'CHARSET latin2'",
    ),
    (
        "create table t (a varchar(9) character set utf8mb3 collate utf8mb3_bin)",
        f"create table t (a varchar(9) character set utf8mb3 collate utf8mb3_bin){GIVEN}",
    ),
    (
        "create table if not exists `a``(b`.t (a enum('x)', 'charset'), check (a in ('(', ')')))",
        f"create table if not exists `a``(b`.t (a enum('x)', 'charset'), check (a in ('(', ')'))){GIVEN}",
    ),
    (
        "create or replace table t (a int default (1 + (2))) partition by hash (a) partitions 2",
        f"create or replace table t (a int default (1 + (2))){GIVEN} partition by hash (a) partitions 2",
    ),
    (
        "create table t (a int) /* charset latin2 */ row_format=dynamic",
        f"create table t (a int){GIVEN}   row_format=dynamic",
    ),
    ("create table t (a int) -- x", "create table t (a int)" + GIVEN),
    ("create table t (`collate` int) charset default", "create table t (`collate` int) charset latin1"),
    (
        "create table t (a int) default character set = default collate latin1_general_cs",
        "create table t (a int) default character set = latin1 collate latin1_general_cs",
    ),
    ("create table t (a int) collate default", "create table t (a int) DEFAULT CHARACTER SET latin1 collate default"),
    ("alter table t convert to character set default", "alter table t convert to character set latin1"),
    ("alter table t add b int, charset = default", "alter table t add b int, charset = latin1"),
]
ALONE = [
    "create table t (a int) charset=utf8mb4",
    "create table t (a int) COLLATE 'utf8mb4_bin'",
    "create table t (a int) engine=innodb, default character set binary",
    "create table t like u",
    "create table t (like u)",
    "create table t (a int) char set latin2",
    "alter table t add b varchar(9)",
    "alter table t alter a set default 5",
    "alter table t modify a set('x') default 'x'",
    "alter table t add c varchar(9) character set latin2 default 'x', convert to character set utf8mb4",
    "create table t select 1",
    "create table t as (select 1)",
]


@pytest.mark.parametrize(("text", "want"), RELYING)
def test_statements_that_rely_on_their_schema_name_its_default(text: str, want: str) -> None:
    assert naming_default(text, 0, LATIN) == want
    assert relies_on_schema(text, 0)


@pytest.mark.parametrize("text", ALONE)
def test_other_statements_stay_as_they_are(text: str) -> None:
    assert naming_default(text, 0, LATIN) == text
    assert not relies_on_schema(text, 0)


def test_quotes_of_the_session_count() -> None:
    assert naming_default('create table "t(" (a int)', 4, LATIN) == 'create table "t(" (a int)' + GIVEN


DATABASES = [
    (None, "create database d", SERVER),
    (None, "CREATE SCHEMA IF NOT EXISTS d", SERVER),
    (LATIN, "create database if not exists d charset utf8mb4", LATIN),
    (LATIN, "create or replace database d", SERVER),
    (None, "create database d default character set = utf8mb4", SchemaDefault("utf8mb4")),
    (None, "create database `charset` charset utf8mb4 collate utf8mb4_bin", SchemaDefault("utf8mb4", "utf8mb4_bin")),
    (None, "create database d collate 'UTF8MB4_bin'", SchemaDefault("utf8mb4", "utf8mb4_bin")),
    (None, "create database d collate = uca1400_ai_ci", SchemaDefault("latin2", "uca1400_ai_ci")),
    (None, "create database d charset default", SchemaDefault("latin2")),
    (LATIN, "alter database d comment 'character set utf8mb4'", LATIN),
    (LATIN, "alter database d character set default", SchemaDefault("latin2")),
    (LATIN, "alter database character set utf8mb4", SchemaDefault("utf8mb4")),
    (LATIN, "alter schema d collate default", SchemaDefault("latin1")),
    (LATIN, "alter database d collate latin1_general_cs", SchemaDefault("latin1", "latin1_general_cs")),
    (None, "alter database d comment 'x'", None),
]


@pytest.mark.parametrize(("before", "text", "want"), DATABASES)
def test_a_schemas_default_is_followed(before: SchemaDefault | None, text: str, want: SchemaDefault | None) -> None:
    assert altered(before, text, 0, SERVER) == want
