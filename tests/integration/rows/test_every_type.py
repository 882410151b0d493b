"""Every type with its extreme values, from the dump and from the binlog into each target, and `unshard validate`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lifetask import LifeTask, living
from tests.versions import MYSQL
from unshard.core.validate.checksum import Reason
from unshard.core.validate.rowdifferences import DifferenceKind
from unshard.units.validate.validate import TableResult, validate
from unshard_demo.servers import MariaDb

pytestmark = [pytest.mark.integration, pytest.mark.on_tidb]
LENIENT = "SET SESSION sql_mode = 'NO_AUTO_VALUE_ON_ZERO', time_zone = '+00:00'"
TEXT = {
    "latin1": "CHARACTER SET latin1 COLLATE latin1_bin",
    "gbk": "CHARACTER SET gbk COLLATE gbk_chinese_ci",
    "utf8mb4": "CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
    "utf8mb3": "CHARACTER SET utf8mb3 COLLATE utf8mb3_general_ci",
    "ascii": "CHARACTER SET ascii COLLATE ascii_bin",
}
TYPES = {
    "i1": ("TINYINT", ["-128", "127"]),
    "u1": ("TINYINT UNSIGNED", ["255", "0"]),
    "i3": ("MEDIUMINT", ["-8388608", "8388607"]),
    "i8": ("BIGINT", ["-9223372036854775808", "9223372036854775807"]),
    "u8": ("BIGINT UNSIGNED", ["18446744073709551615", "0"]),
    "zf": ("INT(6) ZEROFILL", ["42", "1234567"]),
    "dc": ("DECIMAL(65,30)", ["-12345678901234567890123456789012345.123456789012345678901234567891", "0", "1e-30"]),
    "ds": ("DECIMAL(5,5)", ["-0.00001", "0.99999"]),
    "fl": ("FLOAT", ["3.4e38", "-0e0", "1.1", "16777217", "1.401298464324817e-45", "1e15"]),
    "db": ("DOUBLE", ["1.7976931348623157e308", "-0e0", "1e15", "0.1", "-1.5e-7", "123456789012345678", "5e-324"]),
    "dm": ("DOUBLE(10,3)", ["-1234567.891", "0.001"]),
    "b1": ("BIT(1)", ["1", "0"]),
    "b9": ("BIT(9)", ["b'100000011'", "0"]),
    "b64": ("BIT(64)", ["~0", "b'101'"]),
    "yr": ("YEAR", ["1901", "2155", "0"]),
    "da": ("DATE", ["'0000-00-00'", "'2020-00-15'", "'9999-12-31'", "'1000-01-01'"]),
    "dt": ("DATETIME(6)", ["'0000-00-00 00:00:00'", "'9999-12-31 23:59:59.999999'", "'0001-01-01 00:00:00.000001'"]),
    "ts": ("TIMESTAMP(6) NULL", ["'0000-00-00'", "'1970-01-01 00:00:01'", "'2038-01-19 03:14:07.999999'"]),
    "ti": ("TIME(6)", ["'-00:00:00.000001'", "'838:59:59'", "'-838:59:58.999999'"]),
    "la": (f"VARCHAR(40) {TEXT['latin1']}", ["'é€'", "x'818d8f909d'", "'a\\'b\\\\\\0%s'", "'?'"]),
    "lc": (f"CHAR(8) {TEXT['latin1']}", ["'é'", "''", "'a  '"]),
    "lt": (f"TEXT {TEXT['latin1']}", ["REPEAT('é', 3000)", "''", "'\\n\\t\\\\N'"]),
    "le": (f"ENUM('é','it''s',',','') {TEXT['latin1']}", ["'é'", "'it''s'", "','", "''"]),
    "ls": (f"SET('ä','a b','''') {TEXT['latin1']}", ["'ä,a b'", "''''", "''"]),
    "gb": (f"VARCHAR(40) {TEXT['gbk']}", ["'漢字é'", "x'815c'", "'a''b'", "''"]),
    "gt": (f"TEXT {TEXT['gbk']}", ["REPEAT('漢', 3000)", "''"]),
    "ge": (f"ENUM('漢','b') {TEXT['gbk']}", ["'漢'", "'b'"]),
    "uc": (f"VARCHAR(40) {TEXT['utf8mb4']}", ["'😀é'", "'a '", "'\\0\\Z\\'\"'"]),
    "u3": (f"VARCHAR(40) {TEXT['utf8mb3']}", ["'日é'", "''"]),
    "ul": (f"LONGTEXT {TEXT['utf8mb4']}", ["REPEAT('😀', 20000)", "'NULL'", "'\\\\N'"]),
    "ue": (f"ENUM('ü','日','a;b') {TEXT['utf8mb4']}", ["'ü'", "'日'", "'a;b'"]),
    "eb": (
        f"ENUM('a\\\\b','\\\\','it''s\\\\','\\\\\\\\x') {TEXT['utf8mb4']} DEFAULT '\\\\'",
        ["'a\\\\b'", "'\\\\'", "'it''s\\\\'"],
    ),
    "sb": (f"SET('p\\\\q','r') {TEXT['latin1']}", ["'p\\\\q,r'", "'r'"]),
    "us": (f"SET('ü','日') {TEXT['utf8mb4']}", ["'ü,日'", "''"]),
    "ac": (f"VARCHAR(40) {TEXT['ascii']}", ["'ascii'", "''"]),
    "vb": ("VARBINARY(40)", ["x'00ff800a5c27'", "''", "x'e9'"]),
    "bn": ("BINARY(6)", ["x'0102'", "x'ff0000000000'"]),
    "bl": ("LONGBLOB", ["REPEAT(x'00ff', 33000)", "''", "x'5c30'"]),
}
JSON = ['\'{"b": [1, 2.5, null, true, "é😀"], "a": {}}\'', "'[]'", "'\"\\\\u0001\"'", "'18446744073709551615'"]
ROWS = max(len(values) for _, values in TYPES.values())


@pytest.fixture(scope="module")
def mysql_source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDb]:
    with MYSQL.running(tmp_path_factory.mktemp("types") / "mysql") as server:
        yield server


def make_shard(task: LifeTask, source: str, number: int, key: str, more: dict[str, tuple[str, list[str]]]) -> str:
    name = f"{task.name}.t_{number}"
    definitions = ", ".join(f"{column} {kind}" for column, (kind, _) in {**TYPES, **more}.items())
    task.shards.setdefault(source, []).append(name)
    task.sources[source].run(LENIENT, f"CREATE TABLE {name} (id INT NOT NULL, {definitions}{key})")
    return name


def inserts(name: str, first: int, more: dict[str, tuple[str, list[str]]]) -> list[str]:
    """Return statements that insert a row for each value, and one of NULLs."""
    types = {**TYPES, **more}
    rows = [", ".join(values[row % len(values)] for _, values in types.values()) for row in range(ROWS)]
    rows.append(", ".join(["NULL"] * len(types)))
    return [f"INSERT INTO {name} VALUES ({first + row}, {values})" for row, values in enumerate(rows)]


def verdict_of(task: LifeTask) -> TableResult:
    with task.work() as work:
        (found,) = validate(work)
    return found


def change(task: LifeTask, source: str, name: str, first: int, more: dict[str, tuple[str, list[str]]]) -> None:
    """Insert all values again, change the values of a row, remove rows."""
    names = ", ".join({**TYPES, **more})
    moved = ", ".join(f"new.{column} = old.{column}" for column in {**TYPES, **more})
    task.sources[source].run(
        LENIENT,
        *inserts(name, first, more),
        f"UPDATE {name} AS new JOIN {name} AS old ON old.id = {first} SET {moved} WHERE new.id = {first + ROWS}",
        f"INSERT INTO {name} (id, {names}) SELECT id + 100, {names} FROM {name}"
        f" WHERE id BETWEEN {first} AND {first + 2}",
        f"DELETE FROM {name} WHERE id IN ({first + 1}, {first + 100})",
    )


def follow(task: LifeTask, source: str, key: str, more: dict[str, tuple[str, list[str]]]) -> None:
    """Load a shard, apply its changes, and compare."""
    name = make_shard(task, source, 1, key, more)
    task.sources[source].run(LENIENT, *inserts(name, 1, more))
    task.go()
    assert task.assert_union() == ROWS + 1
    change(task, source, name, 1000, more)
    task.sources[source].run(f"DELETE FROM {name} WHERE id < 4")
    task.go()
    assert task.assert_union() == 2 * (ROWS + 1) - 2
    verdict = verdict_of(task)
    assert verdict.equal, verdict.differences
    assert [(each.column, each.reason) for each in verdict.left_out] in ([], [("j", Reason.JSON)])


@pytest.mark.parametrize("key", [", PRIMARY KEY (id)", ""], ids=["key", "no-key"])
def test_types_of_mariadb(source_1: MariaDb, target: MariaDb, unique: str, tmp_path: Path, key: str) -> None:
    with living(unique, tmp_path, {"s1": source_1}, target) as task:
        follow(task, "s1", key, {"j": ("JSON", JSON)})


@pytest.mark.parametrize("key", [", PRIMARY KEY (id)", ""], ids=["key", "no-key"])
def test_types_of_mysql(mysql_source: MariaDb, target: MariaDb, unique: str, tmp_path: Path, key: str) -> None:
    with living(unique, tmp_path, {"s1": mysql_source}, target) as task:
        follow(task, "s1", key, {"j": ("JSON", JSON)})


def test_keys_of_every_character_set(source_1: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> None:
    columns = ", ".join(f"{charset} VARCHAR(20) {text}" for charset, text in TEXT.items())
    keys = "PRIMARY KEY (latin1, gbk, utf8mb4), UNIQUE KEY (gbk(2), n), UNIQUE KEY (latin1, n)"
    texts = ["'é'", "'b'", "'c\\\\'", "'漢'"]
    of_latin1 = [*texts[:3], "''"]
    with living(unique, tmp_path, {"s1": source_1}, target) as task:
        name = f"{unique}.t_1"
        task.shards["s1"] = [name]
        rows = [
            f"({n}e15, {n}, {latin1}, {text}, {text}, {text}, 'a')"
            for n, (latin1, text) in enumerate(zip(of_latin1, texts, strict=True))
        ]
        source_1.run(
            LENIENT,
            f"CREATE TABLE {name} (n DOUBLE, v INT, {columns}, {keys})",
            f"INSERT INTO {name} VALUES {', '.join(rows)}",
        )

        task.go()
        assert task.assert_union() == len(texts)
        source_1.run(
            LENIENT,
            f"UPDATE {name} SET v = 9 WHERE gbk = '漢'",
            f"DELETE FROM {name} WHERE latin1 = 'é'",
            f"UPDATE {name} SET gbk = '字字', n = n + 1 WHERE latin1 = 'b'",
            f"INSERT INTO {name} SELECT n + 1, v, 'ü', gbk, utf8mb4, utf8mb3, ascii FROM {name} WHERE gbk = '漢'",
        )
        task.go()
        assert task.assert_union() == len(texts)
        assert verdict_of(task).equal


def test_validate_finds_text_that_is_no_text(source_1: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> None:
    """TiDB accepts any bytes as latin1, also those of a shard, which it does not read as the shard's text."""
    with living(unique, tmp_path, {"s1": source_1}, target) as task:
        name = f"{unique}.t_1"
        source_1.run(
            f"CREATE TABLE {name} (id INT PRIMARY KEY, v VARCHAR(9) {TEXT['latin1']})",
            f"INSERT INTO {name} VALUES (1, 'é'), (2, 'a')",
        )
        task.go()
        assert verdict_of(task).equal
        wrong = "_binary x'e9'" if "TiDB" in target.run("SELECT VERSION()")[0][0] else "_binary x'c3a9'"
        target.run("DO 1", f"UPDATE {unique}_to.t SET v = {wrong} WHERE id = 1")
        (found,) = verdict_of(task).differences
        assert found.kind is DifferenceKind.DIFFERENT and found.key == ("1",)
