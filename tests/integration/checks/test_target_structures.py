"""Structures of shards that a target may refuse: `check` names the column and a remedy, or `run` creates the table."""

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.oracle import assert_union
from tests.taskfile import TaskFile, endpoint, task_body, write_sources
from tests.tidbsettings import is_tidb
from unshard.adapters import mysql
from unshard.core.checks.items import Item, Severity
from unshard.core.model import Column, Index, Shard, TableId, TableSchema
from unshard.units.checks.precheck import check
from unshard.units.checks.targetitems import structure_items
from unshard.units.ddl.createtrial import trial_schema
from unshard.units.task.run import CreatedUnlike, Note, RunOutcome, run
from unshard_demo.servers import MariaDb

pytestmark = [pytest.mark.integration, pytest.mark.on_tidb]

UTF8 = "DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci"
REFUSED = {
    "geometry": ("id INT PRIMARY KEY, g GEOMETRY", "column g"),
    "spatial": ("id INT PRIMARY KEY, g POINT NOT NULL, SPATIAL KEY s (g)", "column g"),
    "uuid": ("id INT PRIMARY KEY, u UUID", "column u"),
    "inet4": ("id INT PRIMARY KEY, i INET4", "column i"),
    "inet6": ("id INET6 PRIMARY KEY, n INT", "column id"),
    "text_default": ("id INT PRIMARY KEY, v TEXT DEFAULT 'a'", "column v"),
    "blob_default": ("id INT PRIMARY KEY, v BLOB DEFAULT 'a'", "column v"),
    "json_default": ("id INT PRIMARY KEY, v JSON DEFAULT '{}'", "column v"),
    "default_expression": ("id INT PRIMARY KEY, v INT DEFAULT (1 + 1)", "column v"),
    "default_of_column": ("id INT PRIMARY KEY, v INT DEFAULT (`id` + 1), w UUID", "column v", "column w"),
    "invisible": ("id INT PRIMARY KEY, v INT INVISIBLE", "column v"),
    "compressed": ("id INT PRIMARY KEY, v TEXT COMPRESSED", "column v"),
    "generated": ("id INT PRIMARY KEY, v VARCHAR(9) AS (SOUNDEX(id)) STORED", "column v"),
    "decimal": ("id INT PRIMARY KEY, d DECIMAL(65,38)", "column d"),
    "enum": (f"id INT PRIMARY KEY, e ENUM('{'x' * 260}')", "column e"),
    "ignored_index": ("id INT PRIMARY KEY, v INT, KEY k (v) IGNORED", "index k"),
    "key_parts": (
        f"id INT PRIMARY KEY, {', '.join(f'c{n} INT' for n in range(17))},"
        f" KEY k ({', '.join(f'c{n}' for n in range(17))})",
        "index k",
    ),
    "unique_text": ("id INT PRIMARY KEY, v TEXT, UNIQUE KEY k (v) USING HASH", "index k"),
    "collation": ("id INT PRIMARY KEY, v VARCHAR(9) COLLATE utf8mb4_danish_ci", "column v"),
    "table_collation": ("id INT PRIMARY KEY, v VARCHAR(9)", "COLLATE=utf8mb4_unicode_520_ci"),
    "charset": ("id INT PRIMARY KEY, v VARCHAR(9) CHARACTER SET cp1251", "column v"),
    "page_compressed": ("id INT PRIMARY KEY", "PAGE_COMPRESSED"),
    "many_columns": (", ".join(["id INT PRIMARY KEY", *(f"c{n} TINYINT" for n in range(1017))]), "as a whole"),
}
"""Structures that TiDB 7.5 refuses: columns, keys, and words of the message."""
OPTIONS = {
    "page_compressed": f"{UTF8} PAGE_COMPRESSED=1",
    "many_columns": "ENGINE=MyISAM",
    "table_collation": "DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_520_ci",
}
CREATED = {
    "fulltext": ("id INT PRIMARY KEY, v TEXT, FULLTEXT KEY f (v)", "index f is missing"),
    "check_constraint": ("id INT PRIMARY KEY, v INT, CONSTRAINT c CHECK (v > 0)", "check constraint"),
    "json": ("id INT PRIMARY KEY, v JSON", "check constraint"),
    "versioned": ("id INT PRIMARY KEY, v INT) WITH SYSTEM VERSIONING COMMENT='' -- (", ""),
    "descending": ("id INT PRIMARY KEY, v INT, KEY k (v DESC)", ""),
    "prefix": ("id INT PRIMARY KEY, v VARCHAR(99), b BLOB, KEY k (v(10)), KEY j (b(10))", ""),
    "stored": ("id INT PRIMARY KEY, v INT AS (id + 1) STORED, w INT AS (id + 2) VIRTUAL, KEY k (v)", ""),
    "counter": ("id INT AUTO_INCREMENT PRIMARY KEY, v TIMESTAMP(3) DEFAULT CURRENT_TIMESTAMP(3)", ""),
    "keyless": ("id INT, v YEAR, s SET('a','b') DEFAULT 'a,b', d DATETIME DEFAULT '0000-00-00 00:00:00'", ""),
    "range": (
        "id INT PRIMARY KEY) ENGINE=InnoDB PARTITION BY RANGE (id) (PARTITION a VALUES LESS THAN MAXVALUE) -- (",
        "",
    ),
    "linear": ("id INT PRIMARY KEY) ENGINE=InnoDB PARTITION BY LINEAR HASH (id) PARTITIONS 2 -- (", "LINEAR HASH"),
    "row_format": ("id INT PRIMARY KEY) ENGINE=InnoDB ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE=8 -- (", ""),
}
"""Structures that TiDB 7.5 creates with a change, and a word of its warning."""


@dataclasses.dataclass
class World(TaskFile):
    """A source, a target, and a task that merges every table of one schema."""

    source: MariaDb
    target: MariaDb
    schema: str
    path: Path
    options: dict[str, str] = dataclasses.field(default_factory=dict)
    session: dict[str, str] = dataclasses.field(default_factory=dict)
    """Variables of every session on the target."""

    def task(self, *ignored: str) -> None:
        schema = f"{self.schema}_1"
        left_out = [{"db-name": schema, "tbl-name": name} for name in ignored]
        body = task_body(
            schema,
            ["s1"],
            self.target,
            {"all": {"schema-pattern": schema, "target-schema": self.schema}},
            **{
                "name": "structures",
                "meta-schema": f"{self.schema}x",
                "target-database": {**endpoint(self.target), "session": self.session},
                "block-allow-list": {"ours": {"do-dbs": [schema], "ignore-tables": left_out}},
                "unshard": dict(self.options),
            },
        )
        self.write_body(body)

    def create(self, name: str, definition: str, options: str = UTF8) -> None:
        self.source.run(f"CREATE TABLE {self.schema}_1.{name} ({definition}) {options}")

    def all_items(self) -> list[Item]:
        return list(check(self.load()))

    def items(self, name: str) -> list[Item]:
        return [item for item in self.all_items() if item.code and item.place == f"target {self.schema}.{name}"]

    def noted(self) -> tuple[RunOutcome, list[Note]]:
        """Run without an error; return the notes as well."""
        notes: list[Note] = []
        with self.work() as work:
            outcome = run(work, watch=notes.append)
        assert not outcome.errors, [str(trouble.error) for trouble in outcome.errors]
        return outcome, notes

    def compare(self, name: str) -> int:
        return assert_union(
            {"s1": self.source}, {"s1": [f"{self.schema}_1.{name}"]}, self.target, f"{self.schema}.{name}"
        )


@pytest.fixture
def world(source_1: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> Iterator[World]:
    write_sources(tmp_path, {"s1": source_1})
    source_1.run(f"CREATE DATABASE {unique}_1")
    world = World(source_1, target, unique, tmp_path / "task.yaml")
    world.task()
    yield world
    source_1.run(f"DROP DATABASE {unique}_1")
    target.run(*(f"DROP DATABASE IF EXISTS {unique}{end}" for end in ("", "x")))


def created(server: MariaDb) -> int:
    """Return the number of tables that the server was told to create."""
    ((_, count),) = server.run("SHOW GLOBAL STATUS LIKE 'Com_create_table'")
    return int(str(count))


def test_check_names_what_the_target_refuses_and_run_loads_the_rest(world: World) -> None:
    for name, (definition, *_) in REFUSED.items():
        world.create(name, definition, OPTIONS.get(name, UTF8))
    for name, (definition, _) in CREATED.items():
        world.create(name, definition)
        world.source.run(f"INSERT INTO {world.schema}_1.{name} (id) VALUES (1), (2)")
    found = check(world.load())
    refused: dict[str, list[Item]] = {}
    for item in found:
        if item.severity is Severity.ERROR:
            refused.setdefault(item.place.rpartition(".")[2], []).append(item)
    if is_tidb(world.target):
        assert {item.code for item in refused.pop("target")} == {"US-2330"}, "the collations, once more by name"
        for name, (_, *words) in REFUSED.items():
            items = refused.pop(name, [])
            told = [item.message for item in items]
            assert len(told) >= len(words) and all(any(word in text for text in told) for word in words), (name, told)
            assert not any("\n" in text for text in told) and all(item.remedy for item in items), items
        for name, (_, word) in CREATED.items():
            told = [item.message for item in found if item.place.endswith(f".{name}") and item.code == "US-2355"]
            assert bool(word) == bool(told) and all(word in text for text in told), (name, told)
        left = list(REFUSED)
    else:
        left = ["many_columns"]
        assert [item.code for item in refused.pop("many_columns")] == ["US-2353"], "InnoDB has at most 1017 columns"
    assert refused == {}
    world.task(*left)
    outcome, _ = world.noted()
    assert outcome.exit_code == 0
    for name in [*CREATED, *(name for name in REFUSED if name not in left)]:
        assert world.compare(name) == (2 if name in CREATED else 0)
    assert [name for (name,) in world.target.run(f"SHOW TABLES FROM {world.schema}x") if "shadow" in name] == []


def test_check_leaves_nothing_behind(world: World) -> None:
    world.create("t", "id INT PRIMARY KEY, v INT INVISIBLE")
    before = world.target.run("SHOW DATABASES")
    world.all_items()
    assert world.target.run("SHOW DATABASES") == before


@pytest.mark.mariadb_only("TiDB counts no statements")
def test_a_structure_is_tried_once_however_many_shards_have_it(world: World) -> None:
    for number in range(12):
        world.create(f"t_{number}", "id INT PRIMARY KEY, v INT")
    before = created(world.target)
    check(world.load())
    assert created(world.target) - before == 3, "the probe, one structure and the trial of LOAD DATA"


def test_a_key_that_the_target_would_shorten_is_an_error(world: World) -> None:
    """Without it TiDB would create PRIMARY KEY (v(768)), and rows that differ after that would collide."""
    column = Column("v", "varchar", "varchar(1000)", False, "utf8mb4", "utf8mb4_general_ci", None, "")
    text = f"CREATE TABLE `t` (\n  `v` varchar(1000) NOT NULL,\n  PRIMARY KEY (`v`)\n) {UTF8}"
    shard = TableSchema((column,), (Index("PRIMARY", ("v",), True),), text, "utf8mb4_general_ci")
    groups = {TableId(world.schema, "t"): {Shard("s1", TableId("x", "t")): shard}}
    task = world.load()
    with contextlib.closing(mysql.connect(world.target.server)) as connection:
        with trial_schema(connection, task.meta_schema):
            items = structure_items(task, connection, groups, {})
    (item,) = [item for item in items if item.severity is Severity.ERROR]
    assert item.code == ("US-2356" if is_tidb(world.target) else "US-2353") and "PRIMARY" in item.message


def test_a_table_that_was_created_by_hand_takes_the_rows(world: World) -> None:
    world.create("t", "id INT PRIMARY KEY, i INET6, u UUID")
    world.source.run(f"INSERT INTO {world.schema}_1.t VALUES (1, '::1', '123e4567-e89b-12d3-a456-426655440000')")
    world.target.run(
        f"CREATE DATABASE {world.schema}",
        f"CREATE TABLE {world.schema}.t (id INT PRIMARY KEY, i VARCHAR(39), u VARCHAR(36))",
    )
    found = world.items("t")
    assert [item.code for item in found if item.severity is Severity.ERROR] == []
    assert ["US-2354" in item.code for item in found].count(True) == (2 if is_tidb(world.target) else 0)
    world.noted()
    assert world.compare("t") == 1
    world.source.run(
        f"INSERT INTO {world.schema}_1.t VALUES (2, '::2', NULL)", f"DELETE FROM {world.schema}_1.t WHERE id = 1"
    )
    world.noted()
    assert world.compare("t") == 1


ENGINES = {
    "fixed": "ENGINE=MyISAM ROW_FORMAT=FIXED CHECKSUM=1 PACK_KEYS=1",
    "packed": "ENGINE=MyISAM ROW_FORMAT=COMPRESSED",
    "pages": "ENGINE=Aria ROW_FORMAT=PAGE TRANSACTIONAL=1 COMMENT='ENGINE=Aria ROW_FORMAT=PAGE'",
    "memory": "ENGINE=MEMORY",
    "parted": "ENGINE=MyISAM PARTITION BY RANGE (id) (PARTITION a VALUES LESS THAN (1) COMMENT='b', PARTITION b VALUES"
    " LESS THAN MAXVALUE)",
}


@pytest.mark.parametrize("name", ENGINES)
def test_a_shard_without_transactions_gets_a_target_that_has_them(world: World, name: str) -> None:
    world.create("t", "id INT PRIMARY KEY, v VARCHAR(9), KEY k (v)", f"{UTF8} {ENGINES[name]}")
    world.source.run(f"INSERT INTO {world.schema}_1.t VALUES (0, 'a'), (2, 'b')")
    found = world.items("t")
    assert [item for item in found if item.severity is Severity.ERROR] == []
    (replaced,) = [item for item in found if item.code == "US-2390"]
    _, notes = world.noted()
    assert replaced.message in [note.message for note in notes if isinstance(note, CreatedUnlike)]
    world.source.run(f"UPDATE {world.schema}_1.t SET v = 'c'", f"ALTER TABLE {world.schema}_1.t ADD w INT DEFAULT 7")
    world.source.run(f"INSERT INTO {world.schema}_1.t VALUES (3, 'd', 8)")
    world.noted()
    assert world.compare("t") == 3
    ((_, text),) = world.target.run(f"SHOW CREATE TABLE {world.schema}.t")
    assert ") ENGINE=InnoDB" in str(text)
