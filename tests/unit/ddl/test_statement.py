"""Parsing DDL: kind, tables and their spans; the same statement for another table; fingerprints."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unshard.core.ddl.eventnames import view_of
from unshard.core.ddl.parsed import DdlKind, Role
from unshard.core.ddl.statement import alter_specs, fingerprint, read_ddl, retarget
from unshard.core.model import TableId
from unshard.core.sql.quoting import identifier, qualified
from unshard.core.sql.tokens import MARIADB, Dialect, tokenize
from unshard.core.structures.createtext import with_collation
from unshard.errors import UnshardError
from unshard.errors.ddl import DdlUnreadable

ANSI_QUOTES = 0x4
NO_BACKSLASH_ESCAPES = 0x100000
MYSQL = Dialect(mariadb=False)
SHARD = TableId("db", "t1")
TARGET = TableId("all", "t")

GOLDEN = Path(__file__).parents[1] / "golden" / "ddl_forms.txt"
FORMS = [line.split(" | ") for line in GOLDEN.read_text().splitlines()[1:]]


def described(tables, database) -> str:
    names = [f"{ref.role.replace(' ', '_')}:{ref.table}" for ref in tables] + [f"database:{database}"] * bool(database)
    return " ".join(names) or "-"


@pytest.mark.parametrize(("dialect", "kind", "tables", "sql", "want"), FORMS, ids=[form[3][:60] for form in FORMS])
def test_forms(dialect: str, kind: str, tables: str, sql: str, want: str) -> None:
    ddl = read_ddl(sql.replace("⏎", "\n"), 0, "db", MYSQL if dialect == "mysql" else Dialect())
    assert (str(ddl.kind), described(ddl.tables, ddl.database)) == (kind, tables)
    for ref in ddl.tables:
        assert ddl.text[ref.start : ref.end].endswith((ref.table.name, identifier(ref.table.name)))
    if ddl.tables:
        assert retarget(ddl, {ddl.tables[0].table: TARGET}).replace("\n", "⏎") == want


CASES = [
    ("quoted dots and backquotes", "ALTER TABLE `d.b`.`t``1` ADD c INT", 0, DdlKind.ALTER, [TableId("d.b", "t`1")]),
    ("blanks around the dot", "ALTER TABLE db . t1 ADD c INT", 0, DdlKind.ALTER, [SHARD]),
    ("digits first", "ALTER TABLE 2024_orders ADD c INT", 0, DdlKind.ALTER, [TableId("x", "2024_orders")]),
    ("digits after the dot", "ALTER TABLE db.2t ADD c INT", 0, DdlKind.ALTER, [TableId("db", "2t")]),
    ("like a number", "ALTER TABLE 1e5 ADD c INT", 0, DdlKind.ALTER, [TableId("x", "1e5")]),
    ("keyword as a name", "ALTER TABLE status ADD `add` INT", 0, DdlKind.ALTER, [TableId("x", "status")]),
    ("ansi quotes", 'ALTER TABLE "db"."t""1" ADD c INT', ANSI_QUOTES, DdlKind.ALTER, [TableId("db", 't"1')]),
    (
        "backslash is plain",
        r"ALTER TABLE db.t1 ADD c CHAR COMMENT 'x\', ADD d INT",
        NO_BACKSLASH_ESCAPES,
        DdlKind.ALTER,
        [SHARD],
    ),
    (
        "backslash escapes",
        r"ALTER TABLE db.t1 ADD c CHAR COMMENT 'x\', RENAME TO y', ADD d INT",
        0,
        DdlKind.ALTER,
        [SHARD],
    ),
    ("comma in a string", "ALTER TABLE db.t1 ADD c CHAR COMMENT ',RENAME TO y'", 0, DdlKind.ALTER, [SHARD]),
    ("comment in a string", "ALTER TABLE db.t1 COMMENT '/*!50000 x */ -- '", 0, DdlKind.ALTER, [SHARD]),
    ("quote in a comment", "ALTER TABLE db.t1 /* it's */ ADD c INT", 0, DdlKind.ALTER, [SHARD]),
    ("set statement", "SET STATEMENT max_statement_time=9 FOR ALTER TABLE db.t1 ADD c INT", 0, DdlKind.ALTER, [SHARD]),
    ("column named system", "ALTER TABLE db.t1 ADD system INT, DROP system", 0, DdlKind.ALTER, [SHARD]),
    ("system versioning", "ALTER TABLE db.t1 ADD c INT, ADD SYSTEM VERSIONING", 0, DdlKind.UNSUPPORTED, [SHARD]),
    ("unknown change", "ALTER TABLE db.t1 ADD c INT, FROBNICATE x", 0, DdlKind.UNSUPPORTED, [SHARD]),
    ("convert partition", "ALTER TABLE db.t1 CONVERT PARTITION p TO TABLE y", 0, DdlKind.UNSUPPORTED, [SHARD]),
    ("name of signs", "CREATE TABLE db.€ (a INT)", 0, DdlKind.CREATE_TABLE, [TableId("db", "€")]),
    (
        "column named rename",
        "ALTER TABLE db.t1 ADD COLUMN `rename` INT, RENAME COLUMN a TO b",
        0,
        DdlKind.ALTER,
        [SHARD],
    ),
    ("rename in a list", "ALTER TABLE db.t1 ADD c INT, RENAME AS y.z", 0, DdlKind.ALTER, [SHARD]),
    ("index named on", "CREATE INDEX `on` ON db.t1 (`on`)", 0, DdlKind.INDEX, [SHARD]),
    (
        "select as default",
        "CREATE TABLE db.t1 (`select` INT, a INT DEFAULT (SELECT 1))",
        0,
        DdlKind.CREATE_TABLE,
        [SHARD],
    ),
    ("create from query", "CREATE TABLE db.t1 (a INT) SELECT 1 AS b", 0, DdlKind.UNSUPPORTED, [SHARD]),
    ("versioned table", "CREATE TABLE db.t1 (a INT) WITH SYSTEM VERSIONING", 0, DdlKind.CREATE_TABLE, [SHARD]),
    ("nothing but a comment", "/* dummy */", 0, DdlKind.IGNORABLE, []),
    ("empty", "", 0, DdlKind.IGNORABLE, []),
    (
        "body with semicolons",
        "CREATE TRIGGER a BEFORE INSERT ON t FOR EACH ROW BEGIN SET @a=1; SET @b=2; END",
        0,
        DdlKind.IGNORABLE,
        [],
    ),
    (
        "definer named like an object",
        "CREATE DEFINER=event@localhost PROCEDURE p() BEGIN END",
        0,
        DdlKind.IGNORABLE,
        [],
    ),
]


@pytest.mark.parametrize(("sql", "mode", "kind", "subjects"), [case[1:] for case in CASES], ids=[c[0] for c in CASES])
def test_read(sql: str, mode: int, kind: DdlKind, subjects: list[TableId]) -> None:
    ddl = read_ddl(sql, mode, "x")
    assert (ddl.kind, list(ddl.subjects)) == (kind, subjects)
    assert (kind is DdlKind.UNSUPPORTED) == bool(ddl.reason)


@pytest.mark.parametrize(
    ("specs", "numbers"),
    [
        ("ORDER BY a, b DESC", 1),
        ("ORDER BY `order`, `by` ASC, c, ADD d INT", 2),
        ("ORDER BY a, ENGINE=InnoDB, COMMENT 'x', FORCE", 4),
        ("ADD c INT, ORDER BY a DESC, b, ALGORITHM=COPY", 3),
    ],
)
def test_the_specifications_of_an_alter_table(specs: str, numbers: int) -> None:
    text = f"ALTER TABLE t {specs}"
    assert len(alter_specs(*tokenize(text, 0, MARIADB))) == numbers
    assert read_ddl(text, 0, "d").kind is DdlKind.ALTER


OTHER_OBJECTS = [
    "CREATE DEFINER=`root`@`%` AGGREGATE FUNCTION IF NOT EXISTS f (x INT) RETURNS INT BEGIN RETURN 1; END",
    "CREATE OR REPLACE DEFINER = CURRENT_USER() AGGREGATE FUNCTION f (x INT) RETURNS INT RETURN 1",
    "CREATE OR REPLACE AGGREGATE FUNCTION IF NOT EXISTS f RETURNS STRING SONAME 'f.so'",
    "CREATE AGGREGATE FUNCTION f RETURNS REAL SONAME 'f.so'",
    "CREATE /* a */ DEFINER /* b */ = /* c */ 'table' @ 'h' /* d */ PROCEDURE t () DROP TABLE t",
    "CREATE DEFINER=root@db1.example.com TRIGGER g BEFORE INSERT ON t FOR EACH ROW SET NEW.a = 1",
    "CREATE DEFINER=root@10.0.0.1 EVENT IF NOT EXISTS e ON SCHEDULE EVERY 1 DAY DO TRUNCATE TABLE t",
    "CREATE DEFINER=CURRENT_ROLE PACKAGE BODY p AS PROCEDURE q AS BEGIN DROP TABLE t; END; END",
    "CREATE OR REPLACE DEFINER=`a`@`b` PACKAGE IF NOT EXISTS p AS PROCEDURE q; END",
    "/*!50003 CREATE*/ /*!50017 DEFINER=`a`@`b`*/ /*!50003 TRIGGER g AFTER DELETE ON t FOR EACH ROW BEGIN END */",
    "CREATE ALGORITHM=MERGE DEFINER=`a`@`b` SQL SECURITY INVOKER VIEW v AS SELECT * FROM t",
    "CREATE ALGORITHM=UNDEFINED MATERIALIZED DEFINER=`a`@`b` SQL SECURITY DEFINER VIEW v AS SELECT * FROM t",
    "CREATE TRIGGER g BEFORE INSERT ON t FOR EACH ROW FOLLOWS h SET NEW.view = NEW.table",
    "CREATE PROCEDURE p () SELECT view, 1 FROM t",
    "ALTER DEFINER=`a`@`b` EVENT e RENAME TO f",
    "ALTER FUNCTION f SQL SECURITY INVOKER COMMENT 'DROP TABLE t'",
    "DROP FUNCTION /*!50000 IF EXISTS */ f",
    "DROP PACKAGE BODY IF EXISTS p",
    "DROP TRIGGER IF EXISTS x.t",
    "CREATE FUNCTION f () RETURNS INT LANGUAGE JAVASCRIPT AS $$ // don't\n return `a` $$",
    "CREATE DEFINER='event'@'%' PROCEDURE p () LANGUAGE JAVASCRIPT AS $js$ 'it $js$",
    "CREATE LIBRARY IF NOT EXISTS l LANGUAGE JAVASCRIPT AS $$ \"it's $$",
]


@pytest.mark.parametrize("sql", OTHER_OBJECTS)
def test_routines_and_other_objects_concern_no_table(sql: str) -> None:
    ddl = read_ddl(sql, 0, "x")
    assert (ddl.kind, ddl.tables) == (DdlKind.IGNORABLE, ())
    assert bool(view_of(ddl, 0, "x")) == (" VIEW " in sql)


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO t VALUES (1)",
        "CREATE DEFINER=`a`@`b` GIZMO function",
        "CREATE TABLE event (a CHAR COMMENT 'open)",
        "ALTER TABLE t ADD function INT COMMENT 'open",
        "SET STATEMENT a=1 FOR ALTER TABLE t ADD event INT COMMENT 'open",
        "FROBNICATE TABLE t",
        "CREATE GIZMO x",
        "ALTER TABLE",
        "ALTER TABLE 'x' ADD c INT",
        "ALTER TABLE t ADD c INT COMMENT 'open",
        "RENAME TABLE a b",
        "DROP TABLE",
        "ALTER TABLE t ADD c INT; DROP TABLE u",
    ],
)
def test_what_is_not_understood_is_an_error(sql: str) -> None:
    with pytest.raises(DdlUnreadable, match="US-4001"):
        read_ddl(sql, 0, "x")


def test_flags_of_create() -> None:
    ddl = read_ddl("CREATE OR REPLACE TABLE t (a INT)", 0, "x")
    assert (ddl.or_replace, ddl.if_not_exists) == (True, False)
    assert read_ddl("CREATE TABLE IF NOT EXISTS t LIKE u", 0, "x").if_not_exists
    assert read_ddl("CREATE TABLE t LIKE y.u", 0, "x").like == TableId("y", "u")


def test_pairs_of_rename() -> None:
    ddl = read_ddl("RENAME TABLE a TO y.b, y.c TO a", 0, "x")
    assert ddl.renames == ((TableId("x", "a"), TableId("y", "b")), (TableId("y", "c"), TableId("x", "a")))


INDEXED = "CREATE OR REPLACE UNIQUE INDEX IF NOT EXISTS i USING BTREE ON `all`.`t` ((a + b))"


@pytest.mark.parametrize(
    ("sql", "mode", "want"),
    [
        (
            "alter table t1 add `t1` int, add check (t1 > 0)",
            0,
            "alter table `all`.`t` add `t1` int, add check (t1 > 0)",
        ),
        ("ALTER /* a */ TABLE t1 ADD c INT -- end", 0, "ALTER   TABLE `all`.`t` ADD c INT"),
        ('ALTER TABLE "t1" ADD "c" INT', ANSI_QUOTES, 'ALTER TABLE `all`.`t` ADD "c" INT'),
        ("CREATE UNIQUE INDEX t1 ON db.t1 (a);", 0, "CREATE UNIQUE INDEX t1 ON `all`.`t` (a)"),
        ("CREATE INDEX i ON t1 ((lower(t1.a)))", 0, "CREATE INDEX i ON `all`.`t` ((lower(a)))"),
        ("CREATE OR REPLACE UNIQUE INDEX IF NOT EXISTS i USING BTREE ON .t1 ((db.t1.a + `t1`.b))", 0, INDEXED),
        ("ALTER TABLE t1 ORDER BY t1.a DESC, b", 0, "ALTER TABLE `all`.`t` ORDER BY a DESC, b"),
        (
            "ALTER TABLE t1 ADD FOREIGN KEY (a) REFERENCES t1 (b)",
            0,
            "ALTER TABLE `all`.`t` ADD FOREIGN KEY (a) REFERENCES `all`.`t` (b)",
        ),
        ("DROP TABLE t1, t2, y.t1", 0, "DROP TABLE `all`.`t`, `db`.`t2`, `y`.`t1`"),
        ("ALTER TABLE t1 /*!50000 ADD c INT */", 0, "ALTER TABLE `all`.`t`   ADD c INT"),
        ("ALTER TABLE t1 ADD c INT /*!80023 INVISIBLE */", 0, "ALTER TABLE `all`.`t` ADD c INT   INVISIBLE"),
        ("ALTER TABLE t1 ADD c INT /* 110000 , ADD d INT */", 0, "ALTER TABLE `all`.`t` ADD c INT"),
        ("/*!40101 ALTER TABLE t1 ADD c INT */", 0, "  ALTER TABLE `all`.`t` ADD c INT"),
        (
            "ALTER TABLE t1 ADD /*!50000 (k INT, */ l INT /*!50000 ) */",
            0,
            "ALTER TABLE `all`.`t` ADD   (k INT,   l INT   )",
        ),
        (
            "ALTER TABLE t1 /*!40000 ADD h /* in */ INT, */ ADD i INT COMMENT '/*!80000 x */'",
            0,
            "ALTER TABLE `all`.`t`   ADD h   INT,   ADD i INT COMMENT '/*!80000 x */'",
        ),
        ("ALTER TABLE t1 ADD c INT -- /*!80000 x */", 0, "ALTER TABLE `all`.`t` ADD c INT"),
        (
            "ALTER TABLE t1 DROP FOREIGN KEY `f k`, DROP INDEX i, DROP FOREIGN KEY t1",
            0,
            "ALTER TABLE `all`.`t` ALGORITHM=DEFAULT, DROP INDEX i, ALGORITHM=DEFAULT",
        ),
        ("SET STATEMENT lock_wait_timeout=1 FOR ALTER TABLE t1 FORCE", 0, "ALTER TABLE `all`.`t` FORCE"),
    ],
)
def test_retarget(sql: str, mode: int, want: str) -> None:
    assert retarget(read_ddl(sql, mode, "db"), {SHARD: TARGET}) == want


BMP = st.characters(exclude_characters="\x00\uffff", exclude_categories=["Cs"], max_codepoint=0xFFFF)
NAMES = st.text(BMP, min_size=1)


@given(NAMES, NAMES, NAMES, NAMES)
def test_any_name_survives(schema: str, name: str, new_schema: str, new_name: str) -> None:
    ddl = read_ddl(f"ALTER TABLE {qualified(schema, name)} ADD `{'c'}` INT COMMENT ''''", 0, "x")
    old, new = TableId(schema, name), TableId(new_schema, new_name)
    assert ddl.subjects == (old,)
    assert read_ddl(retarget(ddl, {old: new}), 0, "x").subjects == (new,)


SOUP = st.lists(
    st.sampled_from(
        [
            "ALTER",
            "TABLE",
            "t",
            "`q`",
            "ADD",
            "COLUMN",
            "(",
            ")",
            ",",
            "'s'",
            ".",
            "RENAME",
            "TO",
            "CREATE",
            "DROP",
            "INDEX",
            "ON",
            "/*!",
            "*/",
            "/*",
            "-- ",
            "\n",
            "'",
            '"',
            "`",
            ";",
            "REFERENCES",
            "PARTITION",
            "=",
            "1",
            "@",
            "DEFINER",
            "LIKE",
        ]
    )
)


@given(SOUP, st.sampled_from([0, ANSI_QUOTES, NO_BACKSLASH_ESCAPES]))
def test_soup_is_read_or_refused(pieces: list[str], mode: int) -> None:
    try:
        ddl = read_ddl(" ".join(pieces), mode, "x")
    except UnshardError as error:
        assert error.code == "US-4001"
    else:
        assert ddl.kind is DdlKind.IGNORABLE or ddl.tables or ddl.database


AGREEING = [
    ("ADD COLUMN `c` INT", "add column c int"),
    ("ADD COLUMN C INT", "ADD COLUMN `c`   INT -- why"),
    ('ADD COLUMN c INT COMMENT "it\'s"', "ADD COLUMN c INT COMMENT 'it''s'"),
    ("ADD COLUMN c DECIMAL(10,2)", "ADD COLUMN c DECIMAL ( 10 , 2 )"),
    ("ADD COLUMN c INT /*!50000 NOT NULL */", "ADD COLUMN c INT NOT NULL"),
    ("ADD COLUMN `naïve` INT", "ADD COLUMN NAÏVE INT"),
    ("ADD COLUMN c INT, DROP d", "ADD c INT, DROP COLUMN d"),
    ("ADD COLUMN (c INT, d INT)", "ADD (c INT, d INT)"),
]
DIFFERING = [
    ("ADD COLUMN c INT", "ADD COLUMN c INT FIRST"),
    ("ADD COLUMN c CHAR DEFAULT 'a'", "ADD COLUMN c CHAR DEFAULT 'A'"),
    ("ADD COLUMN c CHAR DEFAULT 'a'", "ADD COLUMN c CHAR DEFAULT a"),
    ("ADD COLUMN c CHAR DEFAULT ' a'", "ADD COLUMN c CHAR DEFAULT 'a'"),
    ("ADD COLUMN `c d` INT", "ADD COLUMN c d INT"),
    ("ADD `column` INT", "ADD COLUMN INT"),
    ("RENAME COLUMN c TO d", "RENAME c TO d"),
    ("ADD COLUMN `a``b` INT", "ADD COLUMN `ab` INT"),
    ("ADD `index` (a)", "ADD index (a)"),
    ("ADD COLUMN c BIT DEFAULT b'1'", "ADD COLUMN c BIT DEFAULT '1'"),
    (r"ADD COLUMN c CHAR DEFAULT '\n'", "ADD COLUMN c CHAR DEFAULT 'n'"),
]


@pytest.mark.parametrize(("one", "other"), AGREEING)
def test_agreeing(one: str, other: str) -> None:
    assert fingerprint(f"ALTER TABLE t {one}") == fingerprint(f"ALTER TABLE `t` {other}")


@pytest.mark.parametrize(("one", "other"), DIFFERING)
def test_differing(one: str, other: str) -> None:
    assert fingerprint(f"ALTER TABLE t {one}") != fingerprint(f"ALTER TABLE t {other}")


def test_agreement_across_sql_modes() -> None:
    assert fingerprint('ALTER TABLE t ADD "c" INT', ANSI_QUOTES) == fingerprint("ALTER TABLE t ADD c INT")


@given(SOUP)
def test_agreement_is_stable(pieces: list[str]) -> None:
    try:
        once = fingerprint(" ".join(pieces))
    except UnshardError:
        return
    assert fingerprint(once) == once


def test_roles() -> None:
    ddl = read_ddl("ALTER TABLE a ADD FOREIGN KEY (x) REFERENCES y.p (id)", 0, "d")
    assert ddl.of(Role.REFERENCED) == (TableId("y", "p"),)


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (") ENGINE=InnoDB DEFAULT CHARSET=latin1", ") ENGINE=InnoDB DEFAULT CHARSET=latin1 COLLATE=latin1_german1_ci"),
        (") DEFAULT CHARSET=latin1 COLLATE=latin1_bin", ") DEFAULT CHARSET=latin1 COLLATE=latin1_bin"),
        (
            ") DEFAULT CHARSET=latin1 COMMENT='x'\n/*!50100 PARTITION BY KEY (a)\n() */",
            ") DEFAULT CHARSET=latin1 COLLATE=latin1_german1_ci COMMENT='x'\n/*!50100 PARTITION BY KEY (a)\n() */",
        ),
    ],
)
def test_collation_that_a_server_does_not_print_is_written_out(text: str, options: str) -> None:
    head = "CREATE TABLE `t` (\n  `a` int COMMENT ' DEFAULT CHARSET=latin1 COLLATE='\n"
    assert with_collation(head + text, "latin1_german1_ci") == head + options


@pytest.mark.parametrize(
    ("version", "runs"),
    [(50699, True), (50700, False), (80036, False), (99999, False), (100000, True), (101104, False)],
)
def test_a_mariadb_leaves_out_what_only_mysql_runs(version: int, runs: bool) -> None:
    assert Dialect(version=101103).runs("!", version) is runs
