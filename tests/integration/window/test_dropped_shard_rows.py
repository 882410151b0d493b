"""`drop-shard-rows: delete`: the rows of a dropped or truncated shard go, once and in order; other rows stay."""

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.dying import Died, mortal
from tests.oracle import rows
from tests.taskfile import TaskFile, route, task_body, tidied, write_sources
from unshard.adapters.meta.windowrecords import Windows
from unshard.units.window import sync
from unshard.units.window.sync import run_window
from unshard.units.work import Limits
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration

EXTRACTED: Mapping[str, Any] = {
    "extract-table": {"table-regexp": "_(.+)$", "target-column": "shard"},
    "extract-source": {"source-regexp": "(.+)", "target-column": "origin"},
}
KEYED = "id INT, v INT, shard VARCHAR(9), origin VARCHAR(9), PRIMARY KEY (id, shard, origin)"
KEYLESS = "id INT, v INT, shard VARCHAR(9), origin VARCHAR(9), KEY (id, shard, origin)"
MAPPING = {"schema-pattern": "*", "table-pattern": "t_*", "expression": "partition id", "target-column": "id"}
SMALL = Limits(deleted_rows=2)


@dataclasses.dataclass
class Merge(TaskFile):
    """Two sources with shards `<name>.t_<n>`, and a task that merges them into `<name>_to.t`."""

    name: str
    path: Path
    sources: Mapping[str, MariaDb]
    target: MariaDb
    limits: Limits = SMALL

    def write(self, *, mode: str = "delete", extracted: Mapping[str, Any] = EXTRACTED, **keys: object) -> None:
        write_sources(self.path.parent, self.sources)
        routes = {"t": {**route(self.name, "t_*", f"{self.name}_to", "t"), **extracted}}
        body = task_body(self.name, self.sources, self.target, routes, **{"shard-mode": "pessimistic", **keys})
        body["unshard"] = {"storage-path": str(self.path.parent / "storage"), "drop-shard-rows": mode}
        self.write_body(body)

    def make(self, columns: str = KEYED) -> None:
        """Create the target table by hand and two shards with three rows on each source."""
        self.target.run(f"CREATE DATABASE {self.name}_to", f"CREATE TABLE {self.name}_to.t ({columns})")
        for source, server in self.sources.items():
            server.run(f"CREATE DATABASE {self.name}")
            for shard in ("t_1", "t_2"):
                self.up(f"CREATE TABLE {shard} (id INT PRIMARY KEY, v INT)", source=source)
                self.up(f"INSERT INTO {shard} VALUES (1, 1), (2, 2), (3, 3)", source=source)

    def up(self, *statements: str, source: str = "s1") -> None:
        self.sources[source].run(f"USE {self.name}", *statements)

    def assert_same(self, extracted: bool = True) -> None:
        """Assert that the target has the rows of all shards and no others, each under the name of its shard."""
        want = []
        for source, server in self.sources.items():
            query = f"SELECT table_name FROM information_schema.tables WHERE table_schema = '{self.name}'"
            for (table,) in server.run(f"{query} AND table_name LIKE 't\\_%'"):
                found = rows(server, f"{self.name}.{table}", ("id", "v")).elements()
                want += [(*row, str(table)[2:], source) if extracted else row for row in found]
        columns = ("id", "v", "shard", "origin") if extracted else ("id", "v")
        assert sorted(rows(self.target, f"{self.name}_to.t", columns).elements()) == sorted(want)


@pytest.fixture
def merge(tmp_path: Path, source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str) -> Iterator[Merge]:
    with tidied(source_1, source_2, target):
        made = Merge(unique, tmp_path / "task.yaml", {"s1": source_1, "s2": source_2}, target)
        made.write()
        yield made


@pytest.mark.on_tidb
@pytest.mark.parametrize("columns", [KEYED, KEYLESS])
def test_rows_of_a_truncated_and_a_dropped_shard_go_in_order(merge: Merge, columns: str) -> None:
    merge.make(columns)
    merge.go()
    merge.assert_same()
    merge.up(
        "INSERT INTO t_1 VALUES (4, 4)",
        "TRUNCATE t_1",
        "INSERT INTO t_1 VALUES (1, 10), (5, 5), (6, 6)",
        "UPDATE t_1 SET v = 11 WHERE id = 1",
        "INSERT INTO t_2 VALUES (9, 9)",
        "DROP TABLE t_2",
        "CREATE TABLE t_3 (id INT PRIMARY KEY, v INT)",
        "INSERT INTO t_3 VALUES (1, 1), (2, 2)",
        "TRUNCATE t_3",
        "TRUNCATE t_1",
        "INSERT INTO t_1 VALUES (7, 7)",
    )
    merge.up("INSERT INTO t_2 VALUES (10, 10)", source="s2")
    merge.go()
    merge.assert_same()
    merge.up("CREATE OR REPLACE TABLE t_1 (id INT PRIMARY KEY, v INT)", "INSERT INTO t_1 VALUES (1, 2)")
    merge.up(f"DROP DATABASE {merge.name}", source="s2")
    merge.go()
    merge.assert_same()
    assert merge.verdicts()["t"].equal


def test_keep_is_the_default_and_a_filter_and_a_rename_keep_the_rows(merge: Merge) -> None:
    merge.make()
    merge.write(mode="keep")
    merge.go()
    merge.up("TRUNCATE t_1")
    merge.go()
    everything = merge.target.run(f"SELECT COUNT(*) FROM {merge.name}_to.t")
    assert everything == [(12,)]
    merge.write()
    rule = {"schema-pattern": merge.name, "table-pattern": "t_1", "events": ["truncate table"], "action": "Ignore"}
    text = merge.path.read_text().replace("- block-allow-list: ours", "- block-allow-list: ours\n  filter-rules: [f]")
    merge.path.write_text(text + f"filters: {{f: {rule}}}\n")
    merge.up("TRUNCATE t_1", f"CREATE DATABASE {merge.name}_x", f"RENAME TABLE t_2 TO {merge.name}_x.t_2")
    merge.go()
    assert merge.target.run(f"SELECT COUNT(*) FROM {merge.name}_to.t") == everything


def test_rows_of_a_shard_whose_shadow_table_is_dropped_after_it(merge: Merge) -> None:
    """Only the second DROP shows that no cut-over follows. A shard that was renamed away keeps its rows."""
    merge.make()
    merge.write(**{"online-ddl": True})
    merge.go()
    merge.up("CREATE TABLE _t_1_new LIKE t_1", "DROP TABLE t_1", "INSERT INTO t_2 VALUES (4, 4)")
    merge.go()
    assert merge.target.run(f"SELECT COUNT(*) FROM {merge.name}_to.t") == [(13,)]
    merge.up("DROP TABLE _t_1_new", "INSERT INTO t_2 VALUES (5, 5)")
    merge.go()
    merge.assert_same()
    merge.up("CREATE TABLE _t_2_new LIKE t_2", "RENAME TABLE t_2 TO _t_2_old", "DROP TABLE _t_2_new")
    merge.go()
    assert merge.target.run(f"SELECT COUNT(*) FROM {merge.name}_to.t WHERE shard = 2 AND origin = 's1'") == [(5,)]


def test_ids_of_a_column_mapping_name_the_rows(merge: Merge) -> None:
    mapping = {"map": {**MAPPING, "arguments": ["", "", "t_"]}}
    merge.write(extracted={}, **{"column-mappings": mapping})
    text = merge.path.read_text().replace("- block-allow-list", "- column-mapping-rules: [map]\n  block-allow-list")
    merge.path.write_text(text)
    merge.target.run(
        f"CREATE DATABASE {merge.name}_to", f"CREATE TABLE {merge.name}_to.t (id BIGINT PRIMARY KEY, v INT)"
    )
    numbers = {"s1": (1, 2), "s2": (3, 4)}
    for source, shards in numbers.items():
        merge.sources[source].run(f"CREATE DATABASE {merge.name}")
        for number in shards:
            merge.up(
                f"CREATE TABLE t_{number} (id BIGINT PRIMARY KEY, v INT)",
                f"INSERT INTO t_{number} VALUES (1, {number}), (2, {number}), (3, {number})",
                source=source,
            )
    merge.go()
    merge.up("TRUNCATE t_1", "INSERT INTO t_1 VALUES (8, 1)")
    merge.up("DROP TABLE t_3", source="s2")
    merge.go()
    assert merge.target.run(f"SELECT v, COUNT(*) FROM {merge.name}_to.t GROUP BY v ORDER BY v") == [
        (1, 1),
        (2, 3),
        (4, 3),
    ]
    assert merge.verdicts()["t"].equal


def test_check_rejects_shards_that_nothing_tells_apart(merge: Merge) -> None:
    merge.make()
    only_table = {"extract-table": EXTRACTED["extract-table"]}
    merge.write(extracted=only_table)
    merge.target.run(f"ALTER TABLE {merge.name}_to.t ALTER origin SET DEFAULT 'x'")
    assert "s2" in merge.checked()["US-2370"], "t_1 of both sources has the same value"
    merge.write(mode="keep", extracted=only_table)
    assert "US-2370" not in merge.checked()
    merge.write()
    assert "US-2370" not in merge.checked()


def test_a_shard_like_one_that_has_left_waits_for_an_operator(merge: Merge, capsys: pytest.CaptureFixture[str]) -> None:
    """The pattern extracts 1 from t_1 and from t_1_copy, which was a shard once: its rows are still there."""
    merge.make()
    extracted = {**EXTRACTED, "extract-table": {"table-regexp": "_([0-9]+)", "target-column": "shard"}}
    merge.write(mode="keep", extracted=extracted)
    merge.go()
    merge.up("CREATE TABLE t_1_copy LIKE t_1", "INSERT INTO t_1_copy VALUES (8, 8)", "DROP TABLE t_1_copy")
    merge.go()
    merge.write(extracted=extracted)
    merge.up("TRUNCATE t_1", "INSERT INTO t_1 VALUES (5, 5)", "INSERT INTO t_2 VALUES (5, 5)")
    outcome = merge.run()
    (lock,) = outcome.locks
    assert "US-5071" in lock.reason and "t_1_copy" in lock.reason
    found = merge.target.run(f"SELECT id FROM {merge.name}_to.t WHERE origin = 's1' AND shard = 1 ORDER BY id")
    assert found == [(1,), (2,), (3,), (8,)]
    assert merge.command("skip", lock.id, "--yes") == 0
    merge.go()
    assert merge.target.run(f"SELECT COUNT(*) FROM {merge.name}_to.t") == [(15,)]


def test_held_rows_of_a_dropped_shard_do_not_come_back(merge: Merge) -> None:
    merge.make()
    merge.go()
    merge.up(
        "ALTER TABLE t_1 ADD w INT",
        "INSERT INTO t_1 VALUES (4, 4, 4)",
        "ALTER TABLE t_2 ADD w INT",
        "INSERT INTO t_2 VALUES (4, 4, 4)",
    )
    assert merge.run().locks
    merge.up("TRUNCATE t_1", "INSERT INTO t_1 VALUES (5, 5, 5)", "DROP TABLE t_2")
    assert merge.run().locks, "s2 has not run the DDL"
    assert merge.target.run(f"SELECT id FROM {merge.name}_to.t WHERE origin = 's1'") == []
    merge.up("ALTER TABLE t_1 ADD w INT", "ALTER TABLE t_2 ADD w INT", "TRUNCATE t_1", source="s2")
    merge.go()
    merge.assert_same()
    with merge.work() as work:
        assert not work.storage.list("held")


def test_a_process_that_dies_after_each_step_deletes_no_later_row(
    merge: Merge, monkeypatch: pytest.MonkeyPatch
) -> None:
    merge.make()
    merge.go()
    calls = mortal(monkeypatch, sync, "delete_rows_of")
    mortal(monkeypatch, Windows, "begin", "commit")
    for number in range(6):
        merge.up(
            f"INSERT INTO t_1 VALUES ({10 + number}, 1)",
            "TRUNCATE t_1",
            f"INSERT INTO t_1 VALUES (1, {number}), (2, 2), (3, 3)",
            "DROP TABLE t_2",
            "CREATE TABLE t_2 (id INT PRIMARY KEY, v INT)",
            f"INSERT INTO t_2 VALUES (7, {number})",
        )
    deaths = 0
    while True:
        try:
            merge.go()
            break
        except Died:
            deaths += 1
    assert deaths > 10 and calls["delete_rows_of"] > 12
    merge.assert_same()


def test_a_slow_process_deletes_nothing_after_another_one_has_taken_over(
    merge: Merge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stops before its first transaction; meanwhile another one finishes that window and the next."""
    merge.make()
    merge.go()
    merge.up("TRUNCATE t_1", "INSERT INTO t_1 VALUES (1, 10), (2, 20)")
    delete = sync.delete_rows_of
    raised: list[str] = []

    def slowly(*given: Any) -> int:
        monkeypatch.setattr(sync, "delete_rows_of", delete)
        merge.go()
        merge.assert_same()
        try:
            return delete(*given)
        except Exception as error:
            raised.append(error.code)  # type: ignore[attr-defined]
            raise

    monkeypatch.setattr(sync, "delete_rows_of", slowly)
    merge.run()
    assert raised == ["US-7004"]
    merge.go()
    merge.assert_same()


@pytest.mark.mariadb_only("TiDB has no triggers")
def test_a_target_that_refuses_stops_the_source_until_the_cause_is_gone(merge: Merge) -> None:
    merge.make()
    merge.go()
    table = f"{merge.name}_to.t"
    merge.up("TRUNCATE t_1", "INSERT INTO t_1 VALUES (5, 5)")
    merge.up("INSERT INTO t_1 VALUES (6, 6)", source="s2")
    merge.target.run(f"ALTER TABLE {table} RENAME COLUMN shard TO other")
    assert "US-6080" in [trouble.error.code for trouble in merge.run().errors]
    merge.target.run(f"ALTER TABLE {table} RENAME COLUMN other TO shard")
    merge.target.run(f"CREATE TRIGGER {merge.name}_to.no BEFORE DELETE ON {table} FOR EACH ROW SIGNAL SQLSTATE '45000'")
    assert "US-6081" in [trouble.error.code for trouble in merge.run().errors]
    merge.target.run(f"DROP TRIGGER {merge.name}_to.no")
    merge.go()
    merge.assert_same()


def test_plan_and_status_show_the_deletion(merge: Merge, capsys: pytest.CaptureFixture[str]) -> None:
    merge.make()
    merge.go()
    merge.up("TRUNCATE t_1")
    with merge.work() as work:
        from unshard.units.relay.tasksource import pull_source

        pull_source(work, "s1")
    assert merge.command("plan") == 0
    assert f"delete the rows of s1 {merge.name}.t_1 from {merge.name}_to.t" in capsys.readouterr().out
    with merge.work() as work:
        while run_window(work, "s1").moved:
            pass
    assert merge.command("status") == 0
    assert f"3 rows of shard s1 {merge.name}.t_1 were deleted" in capsys.readouterr().out
    merge.assert_same()
