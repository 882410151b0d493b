"""The effect of DDL: the trial table gives the same structure as the real table, step by step."""

import contextlib
import random
from collections.abc import Sequence

import pytest

from tests.tidbsettings import is_tidb
from unshard.adapters import trialtables
from unshard.adapters.mysql import connect, query, table_name
from unshard.adapters.structures import read_schema
from unshard.adapters.trialtables import DdlTrialTables
from unshard.core.model import TableId
from unshard.core.relay.segment import Statement
from unshard.core.sql.mode import NAMES, mode_names
from unshard.errors.ddl import EffectRefused, StructureUnknown
from unshard.errors.source import StatementRefused
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


def test_tables_of_dead_processes_are_swept(
    target: MariaDb, connection, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the server sets the time of a table, so the limit is moved to an hour from now."""
    later = trialtables.OLD.replace("NOW() -", "NOW() +")
    assert later != trialtables.OLD
    monkeypatch.setattr(trialtables, "OLD", later)
    for name in ("_shadow_1_old", "_shadow_2_`old", "xshadow_1", "shadow"):
        query(connection, f"CREATE TABLE {table_name(TableId(f'{schema}_meta', name))} (a INT)")
    query(connection, f"CREATE TABLE {schema}.a (a INT)")
    before, table = read_schema(connection, TableId(schema, "a")), TableId(schema, "a")
    DdlTrialTables(target.server, f"{schema}_meta").effect(before, statement("ALTER TABLE a ADD b INT", schema), table)
    assert target.run(f"SHOW TABLES FROM {schema}_meta") == [("shadow",), ("xshadow_1",)]


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
