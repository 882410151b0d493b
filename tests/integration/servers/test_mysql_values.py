"""What only MySQL has, from a MySQL into each target: indexes on expressions, and decimal numbers in JSON."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lifetask import LifeTask, living
from tests.versions import MYSQL
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration
COLUMNS = "id INT PRIMARY KEY, a INT, name VARCHAR(20), doc JSON"
KEYS = (
    "KEY k ((lower(name)), a), UNIQUE KEY u (a, (lower(name))), UNIQUE KEY v ((concat(name, a))),"
    " UNIQUE KEY w ((CAST(doc->'$.tags' AS UNSIGNED ARRAY)))"
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDb]:
    with MYSQL.running(tmp_path_factory.mktemp("values") / "mysql") as made:
        yield made


def only(schema: str) -> dict[str, object]:
    """Return the list of tables for a task whose source is its target, too."""
    return {"block-allow-list": {"ours": {"do-dbs": [schema], "ignore-dbs": [f"{schema}_*"]}}}


def make_shards(task: LifeTask, columns: str, *rows: str) -> list[str]:
    """Create a shard of s1 for each row."""
    names = [f"{task.name}.t_{number}" for number, _ in enumerate(rows)]
    task.shards["s1"] = names
    for name, row in zip(names, rows, strict=True):
        task.sources["s1"].run(f"CREATE TABLE {name} ({columns})", f"INSERT INTO {name} VALUES {row}")
    return names


def test_indexes_on_expressions(server: MariaDb, unique: str, tmp_path: Path) -> None:
    with living(unique, tmp_path, {"s1": server}, server, **only(unique)) as task:
        rows = "(1, 1, 'Alice', '{\"tags\": [1, 2]}')", "(2, 1, 'Bob', NULL)"
        one, two = make_shards(task, f"{COLUMNS}, {KEYS}", *rows)
        assert "US-2326" not in task.checked(), "equal numbers are no equal keys"
        task.go()
        assert task.assert_union() == 2
        server.run(
            f"UPDATE {one} SET name = 'Carol', doc = '{{\"tags\": [5]}}'",
            f"INSERT INTO {two} VALUES (3, 1, 'alice', '{{\"tags\": [2]}}')",
            f"ALTER TABLE {one} ADD b INT, ADD KEY ((a + b))",
            f"ALTER TABLE {two} ADD b INT, ADD KEY ((a + b))",
            f"UPDATE {two} SET b = 7",
        )
        task.go()
        assert task.assert_union() == 3


@pytest.mark.parametrize("moment", ["load", "window", "at once"])
@pytest.mark.parametrize(
    ("row", "shown"),
    [
        ("(2, 1, 'ALICE', NULL)", "a = 1, name = ALICE"),
        ("(2, NULL, 'x', '{\"tags\": [7, 2]}')", 'doc = {"tags": [7, 2]}'),
    ],
)
def test_a_collision_on_an_expression_names_the_values(
    server: MariaDb, unique: str, tmp_path: Path, row: str, shown: str, moment: str
) -> None:
    with living(unique, tmp_path, {"s1": server}, server, **only(unique)) as task:
        first = "(1, 1, 'Alice', '{\"tags\": [1, 2]}')"
        one, two = make_shards(task, f"{COLUMNS}, {KEYS}", first, row)
        if moment != "load":
            server.run(f"DELETE FROM {one}", f"DELETE FROM {two}")
            task.go()
            server.run(f"INSERT INTO {one} VALUES {first}")
            if moment == "window":
                task.go()
            server.run(f"INSERT INTO {two} VALUES {row}")
        (error,) = {str(trouble.error) for trouble in task.run().errors}
        assert shown in error and one in error and two in error, error
        server.run(f"DELETE FROM {one}")
        task.command("retry")
        task.go()
        assert task.assert_union() == 1


def decimal(text: str) -> str:
    whole, _, fraction = text.lstrip("-").partition(".")
    return f"CAST('{text}' AS DECIMAL({len(whole) + len(fraction)},{len(fraction)}))"


GREAT, LONG = "12345678901234567890.12345", "-" + "9" * 35 + "." + "123456789" * 3
DOCUMENTS = (
    f"JSON_OBJECT('h', {decimal(GREAT)}, 'other', JSON_ARRAY(JSON_OBJECT('h', 1.5e300), {decimal('9' * 20)}, 'text'))",
    f"JSON_ARRAY({decimal('1.50')}, {decimal(LONG)}, {decimal('0.0000000000000000000100')}, 0.1e0, 1e15, 1e0, -5)",
    "JSON_OBJECT('a\"b\\\\\\\\\\tc: [', CAST('-9.90' AS DECIMAL(3,2)), '日',"
    f" JSON_OBJECT('', JSON_ARRAY(JSON_OBJECT(), {decimal(GREAT)})))",
    f"CAST({decimal(GREAT)} AS JSON)",
    "JSON_OBJECT('d', DATE'2020-01-02', 't', TIME'-838:59:59', 'dt', TIMESTAMP'2020-01-02 03:04:05.123456', 'y',"
    " CAST(2020 AS YEAR), 'bit', b'101', 'blob', x'00ff', 'long', REPEAT(x'00ff', 100), 'p', POINT(1, 2), 'n', NULL,"
    " 'u', 18446744073709551615, 's', '12345678901234567890.12345 \\\\n\\t\\'')",
)


def change_documents(server: MariaDb, table: str) -> None:
    """Write each document in a row of its own, and put decimals into others by partial updates."""
    server.run(
        "SET binlog_row_value_options = PARTIAL_JSON",
        *(f"INSERT INTO {table} VALUES ({number}, {document})" for number, document in enumerate(DOCUMENTS, 100)),
        f"UPDATE {table} SET doc = JSON_REPLACE(doc, '$.h', {decimal('77777777777777777777.70')}) WHERE id IN (0, 100)",
        f"UPDATE {table} SET doc = JSON_REPLACE(doc, '$[0]', {decimal('88888888888888888888.80')}) WHERE id = 101",
        f"UPDATE {table} SET doc = JSON_ARRAY_APPEND(doc, '$', {decimal('1.10')}) WHERE id = 1",
        f"UPDATE {table} SET id = id + 50 WHERE id IN (2, 102)",
        f"DELETE FROM {table} WHERE id IN (3, 103)",
    )


@pytest.mark.parametrize("key", ["PRIMARY KEY (id)", "KEY (id)"])
@pytest.mark.parametrize("to", ["mysql", "mariadb"])
def test_decimals_in_json(
    server: MariaDb, mariadb_target: MariaDb, unique: str, tmp_path: Path, to: str, key: str
) -> None:
    target = server if to == "mysql" else mariadb_target
    with living(unique, tmp_path, {"s1": server}, target, **only(unique)) as task:
        rows = (f"({number}, {document})" for number, document in enumerate(DOCUMENTS))
        (name,) = make_shards(task, f"id INT NOT NULL, doc JSON, {key}", ", ".join(rows))
        task.go()
        assert task.assert_union() == len(DOCUMENTS)
        change_documents(server, name)
        task.go()
        assert task.assert_union() == 2 * len(DOCUMENTS) - 2
        ((shown,),) = target.run(f"SELECT doc FROM {unique}_to.t WHERE id = 0")
        assert '"h": 77777777777777777777.70' in shown
        assert to == "mariadb" or task.command("validate") == 0


def go_without_refused_rows(task: LifeTask) -> None:
    task.body["unshard"]["row-errors"] = "divert"
    task.write()
    task.go()


def test_numbers_in_the_text_of_another_server(source_1: MariaDb, server: MariaDb, unique: str, tmp_path: Path) -> None:
    """A JSON of MariaDB is a text; a number that no JSON of MySQL can hold is refused with its row."""
    with living(unique, tmp_path, {"s1": source_1}, server) as task:
        rows = f"(1, '{{\"a\": 1.50, \"b\": [{GREAT}, 1e3, {'9' * 30}]}}'), (2, '{LONG}'), (3, NULL)"
        (name,) = make_shards(task, "id INT PRIMARY KEY, doc JSON", rows.replace("1e3", "1000.0"))
        server.run(f"CREATE DATABASE {unique}_to", f"CREATE TABLE {unique}_to.t (id INT PRIMARY KEY, doc JSON)")
        task.go()
        assert task.assert_union() == 3
        source_1.run(f"INSERT INTO {name} VALUES (4, '[0.{'1' * 31}]')")
        (error,) = {str(trouble.error) for trouble in task.run().errors}
        assert f"0.{'1' * 31} ($[0] in column doc)" in error and "id = 4" in error, error
        go_without_refused_rows(task)
        source_1.run(f"UPDATE {name} SET doc = '[0.5]' WHERE id = 4")
        task.go()
        assert task.assert_union() == 4


@pytest.mark.tidb_only
@pytest.mark.parametrize("moment", ["load", "window"])
def test_digits_that_tidb_would_lose_are_refused(
    server: MariaDb, target: MariaDb, unique: str, tmp_path: Path, moment: str
) -> None:
    with living(unique, tmp_path, {"s1": server}, target) as task:
        rows = f"(1, JSON_OBJECT('h', {decimal('1.5')})), (2, JSON_OBJECT('h', {decimal(GREAT)}))"
        (name,) = make_shards(task, "id INT PRIMARY KEY, doc JSON", rows)
        if moment == "window":
            server.run(f"DELETE FROM {name} WHERE id = 2")
            task.go()
            server.run(f"INSERT INTO {name} VALUES (2, JSON_OBJECT('h', {decimal(GREAT)}))")
        (error,) = {str(trouble.error) for trouble in task.run().errors}
        assert f'{GREAT} ($."h" in column doc)' in error and "id = 2" in error, error
        go_without_refused_rows(task)
        assert target.run(f"SELECT id FROM {unique}_to.t") == [(1,)]
        server.run(f"UPDATE {name} SET doc = JSON_OBJECT('h', 2.5) WHERE id = 2")
        task.go()
        assert task.assert_union() == 2
