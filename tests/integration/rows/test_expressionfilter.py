"""Expression filters on real servers: checked, in the load, in windows and for released rows."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.taskfile import TaskFile, route, schemas, task_body, write_sources
from unshard.errors.rows import RowFilterFailed
from unshard.units.task.run import Outcome
from unshard_demo.servers import MariaDb

pytestmark = [pytest.mark.integration, pytest.mark.writes_rows]
COLUMNS = (
    "id INT PRIMARY KEY, a VARCHAR(9) COLLATE utf8mb4_general_ci, t TIMESTAMP NULL, e ENUM('x', 'y'), d DECIMAL(5,2)"
)


@dataclasses.dataclass
class World(TaskFile):
    """Two sources with one shard each; one source has filters."""

    name: str
    sources: tuple[MariaDb, MariaDb]
    target: MariaDb
    path: Path

    def write(self, load: bool, *filters: dict[str, str]) -> None:
        write_sources(self.path.parent, {f"s{number}": server for number, server in enumerate(self.sources, 1)})
        named = {f"e{n}": {"schema": self.name, "table": "t_1", **rule} for n, rule in enumerate(filters)}
        body = task_body(
            self.name,
            ("s1", "s2"),
            self.target,
            {"r": route(self.name, "t_*", f"{self.name}_to", "t")},
            **{
                "name": "filtered",
                "timezone": "+08:00",
                "expression-filter": named,
                "unshard": {"filter-load": load},
            },
        )
        body["mysql-instances"][0]["expression-filters"] = list(named)
        self.write_body(body)

    def ids(self) -> list[int]:
        return [id for (id,) in self.target.run(f"SELECT id FROM {self.name}_to.t ORDER BY id")]


@pytest.fixture
def world(source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> Iterator[World]:
    with schemas(unique, (source_1, source_2), target):
        yield World(unique, (source_1, source_2), target, tmp_path / "task.yaml")


def counts(outcome: Outcome) -> tuple[int, ...]:
    one, _ = outcome.sources
    return one.rows_applied, one.rows_filtered, one.rows_held, one.rows_released


def test_rows_that_an_expression_is_true_for_do_not_come(world: World) -> None:
    name, (s1, s2) = world.name, world.sources
    s1.run(
        f"CREATE TABLE {name}.t_1 ({COLUMNS})", f"INSERT INTO {name}.t_1 (id, a) VALUES (1, 'x'), (2, 'y'), (3, NULL)"
    )
    s2.run(f"CREATE TABLE {name}.t_2 ({COLUMNS})", f"INSERT INTO {name}.t_2 (id, a) VALUES (101, 'x')")
    insert = {"insert-value-expr": "a = 'X ' OR t < '2020-01-01 08:00:01' OR e = 2 OR d % 1 = 0.5"}
    world.write(True, insert, {"insert-value-expr": "nope = 1"}, {"delete-value-expr": "a LIKE '%'", "table": "t_9"})
    found = world.checked()
    assert {"US-6024", "US-6025"} <= found.keys() and "nope" in found["US-6024"] and "t_9" in found["US-6025"]
    update = {"update-old-value-expr": "id > 10", "update-new-value-expr": "a = 'gone'"}
    world.write(True, insert, update, {"delete-value-expr": "id % 2 = 0"})
    assert not {"US-6024", "US-6025"} & world.checked().keys()
    world.go()
    assert "US-6025" not in world.checked(), "the shards of a source that is followed are shards"
    assert world.ids() == [2, 3, 101], "of the load, and only of the source that has the rule"

    rows = """(11, 'x', NULL, 'x', 1), (12, 'y', '2020-01-01 00:00:00', 'x', 1),
              (13, 'y', '2020-01-01 00:00:01', NULL, 1), (14, 'y', NULL, 'y', 1),
              (15, 'y', NULL, '', 1.5), (16, 'z', NULL, NULL, 1.25)"""
    s1.run(
        f"USE {name}",
        "SET time_zone = '+00:00', sql_mode = ''",
        f"INSERT INTO t_1 VALUES {rows}",
        "UPDATE t_1 SET a = 'gone' WHERE id IN (3, 13)",
        "UPDATE t_1 SET a = 'kept' WHERE id = 16",
        "DELETE FROM t_1 WHERE id IN (2, 3)",
        "ALTER TABLE t_1 ADD n INT",
        "INSERT INTO t_1 VALUES (17, 'x', NULL, NULL, 1, 1), (18, 'y', NULL, NULL, 1, 1)",
    )
    outcome = world.go()
    assert len(outcome.locks) == 1 and counts(outcome) == (5, 6, 2, 0), "inserts, an update and a delete are left out"
    read = f"SELECT id, a FROM {name}_to.t WHERE id < 100 ORDER BY id"
    assert world.target.run(read) == [(2, "y"), (13, "y"), (16, "kept")]
    s2.run(f"ALTER TABLE {name}.t_2 ADD n INT")
    outcome = world.go()
    assert not outcome.locks and counts(outcome) == (1, 1, 0, 2)
    assert world.ids() == [2, 13, 16, 18, 101], "released rows are filtered, too"

    s1.run(f"ALTER TABLE {name}.t_1 DROP d", f"INSERT INTO {name}.t_1 (id, a) VALUES (19, 'y')")
    s2.run(f"ALTER TABLE {name}.t_2 DROP d")
    (trouble,) = world.run().errors
    assert isinstance(trouble.error, RowFilterFailed) and "'d'" in str(trouble.error)
