"""The effect of DDL: the trial table gives the same structure as the real table, step by step."""

import contextlib
import random
import re
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tests.tidbsettings import is_tidb
from tests.versions import MYSQL
from unshard.adapters import targetddl
from unshard.adapters.mysql import connect, query, table_name
from unshard.adapters.structures import read_schema
from unshard.adapters.targetddl import DdlTrialTables
from unshard.core.model import Server, TableId
from unshard.core.relay.segment import Statement
from unshard.core.sql.mode import NAMES, mode_names
from unshard.core.structures.columntypes import read_labels
from unshard.errors.ddl import EffectRefused, StructureUnknown
from unshard.errors.source import ServerReadOnly, StatementRefused
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration

STRICT = 1 << NAMES.index("STRICT_TRANS_TABLES")
ANSI_QUOTES = 0x4
STEPS = 25


def statement(text: str, schema: str = "", sql_mode: int = STRICT, **changes) -> Statement:
    fields = {"charset": "utf8mb4", "timestamp": 1_700_000_000, "time_zone": "+00:00", **changes}
    return Statement(text=text, schema=schema, sql_mode=sql_mode, **fields)


@pytest.fixture
def schema(target: MariaDb, unique: str):
    target.run(f"CREATE DATABASE {unique} CHARACTER SET utf8mb4", f"CREATE DATABASE {unique}_meta")
    yield unique
    target.run(f"DROP DATABASE {unique}", f"DROP DATABASE {unique}_meta")


@pytest.fixture
def connection(target: MariaDb):
    with contextlib.closing(connect(target.server, "target")) as opened:
        yield opened


@pytest.fixture
def shadows(target: MariaDb, schema: str):
    made = DdlTrialTables(target.server, f"{schema}_meta")
    yield made
    assert target.run(f"SHOW TABLES FROM {schema}_meta") == [], "no shadow stays behind"


TYPES = [
    "INT",
    "BIGINT UNSIGNED NOT NULL DEFAULT 7",
    "VARCHAR(30)",
    "TEXT",
    "DECIMAL(12,3)",
    "JSON",
    "BIT(9)",
    "DOUBLE",
    "YEAR",
    "VARCHAR(20) CHARACTER SET latin1 NOT NULL DEFAULT 'x'",
    "DATETIME(6) DEFAULT CURRENT_TIMESTAMP(6)",
    "ENUM('a','b,c','d''e') DEFAULT 'b,c'",
    r"ENUM('\\','a\\b','it''s\\') NOT NULL DEFAULT 'a\\b' COMMENT 'C:\\new\\'",
    "TIMESTAMP NULL",
    "SET('x','y') CHARACTER SET ascii",
    "BINARY(4) DEFAULT x'00FF'",
]
NAMES_OF_COLUMNS = ["pla", "select", "sp ace", "back`quote", "ünïcode", "列", "MiXed", "a.b", "comma,", "'quote", "1st"]


class Random:
    """A sequence of ALTERs that mostly succeed, generated from the present structure."""

    def __init__(self, seed: int, types: Sequence[str]) -> None:
        self.random = random.Random(seed)
        self.types = types
        self.serial = 0

    def name(self) -> str:
        self.serial += 1
        return f"{self.random.choice(NAMES_OF_COLUMNS)}{self.serial}".replace("`", "``")

    def spec(self, columns: list[str]) -> str:
        some = self.random.choice(columns).replace("`", "``")
        kind = self.random.choice(self.types)
        return self.random.choice(
            [
                f"ADD COLUMN `{self.name()}` {kind}",
                f"ADD `{self.name()}` {kind} AFTER `{some}`",
                f"ADD `{self.name()}` {kind} FIRST",
                f"ADD (`{self.name()}` INT, `{self.name()}` {kind})",
                f"MODIFY `{some}` {kind}",
                f"CHANGE `{some}` `{self.name()}` {kind}",
                f"RENAME COLUMN `{some}` TO `{self.name()}`",
                f"DROP COLUMN `{some}`",
                f"ADD INDEX `{self.name()}` (`{some}`)",
                f"ADD UNIQUE (`{some}`)",
                f"ADD KEY (`{some}`(2))",
                f"ALTER `{some}` SET DEFAULT NULL",
                f"ADD `{self.name()}` INT AS (length(`{some}`)) VIRTUAL",
                f"ADD PRIMARY KEY (`{some}`)",
                f"DROP INDEX `{some}`",
                "CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
                "ENGINE = InnoDB",
                "DEFAULT CHARACTER SET latin1",
                "COMMENT = 'REFERENCES x'",
                "DROP PRIMARY KEY",
            ]
        )

    def alter(self, columns: list[str]) -> str:
        specs = [self.spec(columns) for _ in range(self.random.choice([1, 1, 1, 2]))]
        return f"ALTER TABLE shard /* a , b */ {', '.join(specs)}"


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_following_random_alters(target: MariaDb, connection, shadows: DdlTrialTables, schema: str, seed: int) -> None:
    real = TableId(schema, "shard")
    query(connection, f"CREATE TABLE {table_name(real)} (`pla` INT NOT NULL PRIMARY KEY, `text` VARCHAR(10))")
    types = TYPES[:-1] if is_tidb(target) else TYPES  # TiDB stores other bytes, which is refused
    generator, followed, refused, structure = Random(seed, types), 0, 0, read_schema(connection, real)
    with contextlib.closing(connect(target.server, database=schema)) as session:
        while followed < STEPS and refused < 10 * STEPS:
            event = statement(generator.alter(list(structure.names)), schema)
            query(session, "SET SESSION sql_mode = %s", (mode_names(event.sql_mode),))
            try:
                query(session, event.text)
            except StatementRefused as error:
                refused += 1
                with pytest.raises(EffectRefused) as caught:
                    shadows.effect(structure, event, real)
                assert caught.value.errno == error.errno, event.text
                continue
            structure = shadows.effect(structure, event, real)
            assert structure == read_schema(connection, real), event.text
            followed += 1
    assert followed == STEPS


ODD_NAMES = ["sp ace", "back`quote", "ünïcode列", "select", "dot.ted", 'dou"ble', "per%cent", "1e5"]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_odd_names(connection, shadows: DdlTrialTables, schema: str, name: str) -> None:
    real = TableId(schema, name)
    query(connection, f"CREATE TABLE {table_name(real)} (`%s` INT, `{'`' * 2}` INT)")
    before = read_schema(connection, real)
    event = statement(f"ALTER TABLE {table_name(real)} ADD `%d\\` INT COMMENT '%s', DROP ````")
    query(connection, event.text)
    assert shadows.effect(before, event, real) == read_schema(connection, real)


def test_ansi_quotes(target: MariaDb, connection, shadows: DdlTrialTables, schema: str) -> None:
    real = TableId(schema, 'r"eal')
    query(connection, f"CREATE TABLE {table_name(real)} (a INT)")
    before = read_schema(connection, real)
    event = statement(f'ALTER TABLE "{schema}"."r""eal" ADD "select" INT', sql_mode=ANSI_QUOTES | STRICT)
    assert shadows.effect(before, event, real).names == ("a", "select")


def test_create_table(connection, shadows: DdlTrialTables, schema: str) -> None:
    real = TableId(schema, "shard")
    event = statement(
        "CREATE TABLE IF NOT EXISTS shard (id INT PRIMARY KEY, p INT, KEY (p), "
        "CONSTRAINT f FOREIGN KEY (p) REFERENCES nowhere (x)) CHARSET latin1",
        schema,
    )
    made = shadows.effect(None, event, real)
    query(connection, "SET foreign_key_checks = 0")
    query(connection, event.text.replace("shard", table_name(real)))
    assert made == read_schema(connection, real)


def test_create_like_takes_the_structure_of_the_other(connection, shadows: DdlTrialTables, schema: str) -> None:
    query(connection, f"CREATE TABLE {schema}.a (a INT)")
    like = read_schema(connection, TableId(schema, "a"))
    event = statement("CREATE TABLE b LIKE a", schema)
    assert shadows.effect(like, event, TableId(schema, "b")) == like
    with pytest.raises(StructureUnknown, match=f"{schema}.a"):
        shadows.effect(None, event, TableId(schema, "b"))


def test_target_is_asked_once(target: MariaDb, connection, shadows: DdlTrialTables, schema: str) -> None:
    query(connection, f"CREATE TABLE {schema}.a (a INT)")
    before = read_schema(connection, TableId(schema, "a"))
    first = shadows.effect(before, statement("ALTER TABLE a ADD b INT", schema), TableId(schema, "a"))
    count = "SHOW GLOBAL STATUS LIKE 'Com_create_table'"
    asked = target.run(count)
    assert shadows.effect(before, statement("alter table z ADD `b` INT", schema), TableId(schema, "z")) is first
    assert target.run(count) == asked


def test_refusal_has_the_words_of_the_target(connection, shadows: DdlTrialTables, schema: str) -> None:
    query(connection, f"CREATE TABLE {schema}.a (a INT)")
    before = read_schema(connection, TableId(schema, "a"))
    with pytest.raises(EffectRefused, match="Duplicate column name") as caught:
        shadows.effect(before, statement("ALTER TABLE a ADD a INT", schema), TableId(schema, "a"))
    assert caught.value.errno == 1060
    assert "shadow" not in str(caught.value)


def test_session_of_the_statement_counts(connection, shadows: DdlTrialTables, schema: str) -> None:
    query(connection, f"CREATE TABLE {schema}.a (a INT)")
    before, table = read_schema(connection, TableId(schema, "a")), TableId(schema, "a")
    text = "ALTER TABLE a ADD d DATE DEFAULT '2020-02-31'"
    with pytest.raises(EffectRefused):
        shadows.effect(before, statement(text, schema), table)
    lenient = 1 << NAMES.index("ALLOW_INVALID_DATES")
    assert shadows.effect(before, statement(text, schema, lenient), table).column("d").default == "'2020-02-31'"


@pytest.mark.parametrize(
    ("changes"),
    [
        {"charset": "latin1"},
        {"charset": "gbk"},
        {"charset": "unheard"},
        {"charset": ""},
        {"time_zone": "SYSTEM"},
        {"time_zone": "Europe/Berlin"},
        {"time_zone": "-03:30"},
        {"timestamp": 0},
        {"sql_mode": sum(1 << n for n in range(35))},
    ],
)
def test_sessions_of_all_kinds(connection, shadows: DdlTrialTables, schema: str, changes) -> None:
    query(connection, f"CREATE TABLE {schema}.a (a INT)")
    before, table = read_schema(connection, TableId(schema, "a")), TableId(schema, "a")
    event = statement("ALTER TABLE a ADD `ü列` VARCHAR(9) DEFAULT 'ü'", schema, **changes)
    assert shadows.effect(before, event, table).column("ü列").default == "'ü'"


def test_old_shadows_are_swept(target: MariaDb, connection, schema: str) -> None:
    query(connection, f"CREATE TABLE {schema}_meta._shadow_1_old (a INT)")
    query(connection, f"CREATE TABLE {schema}_meta.xshadow_1 (a INT)")
    query(connection, f"CREATE TABLE {schema}.a (a INT)")
    before, table = read_schema(connection, TableId(schema, "a")), TableId(schema, "a")
    DdlTrialTables(target.server, f"{schema}_meta").effect(before, statement("ALTER TABLE a ADD b INT", schema), table)
    names = [name for (name,) in query(connection, f"SHOW TABLES FROM {schema}_meta")]
    assert names == ["_shadow_1_old", "xshadow_1"], "young ones may be in use"


@pytest.mark.tidb_only
def test_a_label_that_tidb_prints_in_two_meanings_is_refused(connection, shadows: DdlTrialTables, schema: str) -> None:
    query(connection, f"CREATE TABLE {schema}.a (a ENUM('x\\ny'))")
    before, table = read_schema(connection, TableId(schema, "a")), TableId(schema, "a")
    known = shadows.effect(before, statement(r"ALTER TABLE a ADD b ENUM('\n','\\x')", schema), table)
    assert read_labels(known.column("b").column_type) == ("\n", "\\x")
    with pytest.raises(EffectRefused, match="backslash before 0, n or r"):
        shadows.effect(before, statement(r"ALTER TABLE a ADD b ENUM('\\n')", schema), table)
    with pytest.raises(EffectRefused, match="backslash before 0, n or r"):
        verbatim = 1 << NAMES.index("NO_BACKSLASH_ESCAPES")
        shadows.effect(before, statement(r"ALTER TABLE a ADD b SET('\r')", schema, verbatim), table)


def test_tables_of_dead_processes_are_swept(
    target: MariaDb, connection, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the server sets the time of a table, so that limit is moved to an hour from now; a name has its own time."""
    later = targetddl.OLD.replace("NOW() -", "NOW() +")
    assert later != targetddl.OLD
    monkeypatch.setattr(targetddl, "OLD", later)
    young = targetddl.trial_table("").name
    for name in ("_shadow_1_old", "_shadow_2_`old", "xshadow_1", "shadow", young):
        query(connection, f"CREATE TABLE {table_name(TableId(f'{schema}_meta', name))} (a INT)")
    query(connection, f"CREATE TABLE {schema}.a (a INT)")
    before, table = read_schema(connection, TableId(schema, "a")), TableId(schema, "a")
    DdlTrialTables(target.server, f"{schema}_meta").effect(before, statement("ALTER TABLE a ADD b INT", schema), table)
    assert target.run(f"SHOW TABLES FROM {schema}_meta") == [(young,), ("shadow",), ("xshadow_1",)]


@pytest.mark.mariadb_only("the statements run on the target itself, too, and TiDB refuses some")
@pytest.mark.parametrize(
    "specs",
    [
        "DROP FOREIGN KEY f",
        "DROP FOREIGN KEY f, DROP INDEX f, DROP COLUMN p",
        "DROP COLUMN q, DROP FOREIGN KEY IF EXISTS f, ALGORITHM=COPY",
        "ADD FOREIGN KEY (q) REFERENCES nowhere (x)",
        "ADD COLUMN r INT, ADD CONSTRAINT g FOREIGN KEY (r) REFERENCES nowhere (x)",
    ],
)
def test_foreign_keys_of_shards(connection, shadows: DdlTrialTables, schema: str, specs: str) -> None:
    real = TableId(schema, "orders")
    query(connection, "SET foreign_key_checks = 0")
    query(
        connection,
        f"CREATE TABLE {table_name(real)} (id INT PRIMARY KEY, p INT, q INT, "
        "CONSTRAINT f FOREIGN KEY (p) REFERENCES nowhere (x))",
    )
    before = read_schema(connection, real)
    event = statement(f"ALTER TABLE orders {specs}", schema)
    query(connection, f"USE {schema}")
    query(connection, event.text)
    assert shadows.effect(before, event, real) == read_schema(connection, real)


def effects_at_once(server: MariaDb, schema: str) -> None:
    """Try statements with named constraints from several processes at once: their names are unique in a schema."""
    table = TableId(schema, "shard")
    server.run(
        "SET foreign_key_checks = 0",
        f"CREATE TABLE {table_name(table)} (a INT, CONSTRAINT positive CHECK (a > 0), CONSTRAINT small CHECK (a < 9))",
    )
    with contextlib.closing(connect(server.server)) as connection:
        before = read_schema(connection, table)

    def tried(number: int) -> list[set[str]]:
        trial = DdlTrialTables(server.server, f"{schema}_meta")
        key = f"ADD b INT, ADD CONSTRAINT f FOREIGN KEY (b) REFERENCES p (b), COMMENT '{number}'"
        changes = (key, f"DROP CONSTRAINT small, COMMENT '{number}'", f"ADD CONSTRAINT n CHECK (a <> {number})")
        made = [trial.effect(before, statement(f"ALTER TABLE shard {each}", schema), table) for each in changes]
        assert "_shadow_" not in "".join(each.create_sql for each in made)
        assert [index.name for index in made[0].indexes] == ["f"]
        return [{*re.findall(r"CONSTRAINT `(\w+)`", each.create_sql)} for each in made]

    with ThreadPoolExecutor(4) as pool:
        both = {"positive", "small"}
        assert all(names == [both, {"positive"}, {*both, "n"}] for names in pool.map(tried, range(8)))


@pytest.mark.mariadb_only("TiDB knows no CHECK constraints")
def test_constraints_of_statements_at_once(target: MariaDb, schema: str) -> None:
    effects_at_once(target, schema)


NAMED = (
    "ADD b INT CHECK (b > 1)",
    "ADD c INT, ADD CONSTRAINT other CHECK (c > b), ADD CHECK (b <> c)",
    "ALTER CHECK other NOT ENFORCED",
    "DROP CHECK shard_chk_1",
    "DROP CONSTRAINT positive, ADD CONSTRAINT u UNIQUE (b), ADD FOREIGN KEY (c) REFERENCES p (c)",
    "ADD CHECK (b < 100), ADD KEY f ((a + b)), ADD UNIQUE g (a, (lower(b)))",
    "DROP CONSTRAINT u, ADD d INT",
)


def test_constraints_of_mysql(tmp_path: Path) -> None:
    with MYSQL.running(tmp_path / "mysql") as server:
        server.run("CREATE DATABASE d", "CREATE DATABASE d_meta")
        names = [f"_shadow_{int(time.time()) - age}_x" for age in (0, 7200)]
        server.run("SET timestamp = 1700000000", *(f"CREATE TABLE d_meta.{name} (a INT)" for name in names))
        effects_at_once(server, "d")
        assert server.run("SHOW TABLES FROM d_meta") == [(names[0],)], "a trial is in use whatever the time of its DDL"
        server.run(f"DROP TABLE d_meta.{names[0]}")
        table, trial = TableId("d", "shard"), DdlTrialTables(server.server, "d_meta")
        for text in NAMED:
            event = statement(f"ALTER TABLE shard {text}", "d")
            with contextlib.closing(connect(server.server, database="d")) as connection:
                query(connection, "SET foreign_key_checks = 0")
                before = read_schema(connection, table)
                query(connection, event.text)
                assert trial.effect(before, event, table) == read_schema(connection, table), text
        with pytest.raises(EffectRefused, match="shard_chk_77"):
            trial.effect(before, statement("ALTER TABLE shard DROP CHECK shard_chk_77", "d"), table)
        assert server.run("SHOW TABLES FROM d_meta") == []


def test_a_statement_that_the_account_may_not_run_is_refused_like_any_other(target: MariaDb, schema: str) -> None:
    """On MariaDB it may not use a sequence. TiDB lets no column that is added have a sequence, so it may not alter."""
    account, column = f"a{schema[-12:]}", f"n INT DEFAULT (NEXT VALUE FOR {schema}.numbers)"
    may, column = ("CREATE, DROP, SELECT, INSERT", "n INT") if is_tidb(target) else ("ALL", column)
    target.run(
        f"CREATE SEQUENCE {schema}.numbers",
        f"CREATE USER {account}@'%' IDENTIFIED BY 'x'",
        f"GRANT {may} ON {schema}_meta.* TO {account}@'%'",
        f"CREATE TABLE {schema}.t (id INT)",
    )
    with contextlib.closing(connect(target.server)) as connection:
        before = read_schema(connection, TableId(schema, "t"))
    shadows = DdlTrialTables(replace(target.server, user=account, password="x"), f"{schema}_meta")
    ddl = statement(f"ALTER TABLE t ADD {column}", schema)
    try:
        with pytest.raises(EffectRefused, match=r"error 1\d\d\d, .*denied"):
            shadows.effect(before, ddl, TableId(schema, "t"))
    finally:
        target.run(f"DROP USER {account}@'%'")


def test_a_target_that_is_read_only_has_no_opinion(target: MariaDb, schema: str) -> None:
    """It is tried again, for instance after a failover."""
    account = f"r{schema[-12:]}"
    target.run(
        f"CREATE USER {account}@'%' IDENTIFIED BY 'x'",
        f"GRANT ALL ON {schema}_meta.* TO {account}@'%'",
        f"CREATE TABLE {schema}.t (id INT)",
    )
    with contextlib.closing(connect(target.server)) as connection:
        before = read_schema(connection, TableId(schema, "t"))
    server = replace(target.server, user=account, password="x")
    with read_only(target, server) as refusing:
        with pytest.raises(ServerReadOnly):
            DdlTrialTables(refusing, f"{schema}_meta").effect(
                before, statement("ALTER TABLE t ADD n INT", schema), TableId(schema, "t")
            )
    target.run(f"DROP USER {account}@'%'")


@contextlib.contextmanager
def read_only(target: MariaDb, server: Server) -> Iterator[Server]:
    """Let the server, or on MariaDB the session of an account, refuse statements that write."""
    if not is_tidb(target):
        yield replace(server, session=(("tx_read_only", "1"),))
        return
    target.run("SET GLOBAL tidb_super_read_only = ON")
    try:
        yield server
    finally:
        target.run("SET GLOBAL tidb_super_read_only = OFF")
