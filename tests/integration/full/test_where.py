"""A dump of some rows only: checked, read in chunks and whole, followed by windows, compared with its condition."""

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.dying import Died, dying_after
from tests.taskfile import TaskFile, route, task_body, write_sources
from tests.tidbsettings import CHOSEN_KEY, is_tidb
from unshard.cli.app import main
from unshard.errors.full import ConditionChanged, ConditionRefused
from unshard.errors.rows import ChangedRowMissing, DeferredRowMissing
from unshard.units.full import dump as dumps
from unshard.units.full.dump import dump
from unshard.units.full.dumpchunks import DumpJob, dump_piece
from unshard.units.full.snapshot import take_snapshot
from unshard.units.validate.validate import Settings, TableResult
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration
CI = "COLLATE utf8mb4_general_ci"
TABLES = {
    "k": "id INT PRIMARY KEY, v VARCHAR(9) CHARACTER SET latin1, t TIMESTAMP NULL",
    "u": f"id INT PRIMARY KEY, v VARCHAR(9) {CI}, t TIMESTAMP NULL, w INT UNIQUE",
}
KEYLESS = {"n": f"id INT, v VARCHAR(9) {CI}, t TIMESTAMP NULL"}
WHERE = "v = 'Ä' AND t < '2020-01-01 00:00:05' OR id % 100 = 1"
"""It depends on the column's charset and collation, on UTC, and on parentheses around the `OR`."""
CHUNK_ROWS = 4


@dataclasses.dataclass
class World(TaskFile):
    """Shards 1 of source s1 and 2 of source s2, per group."""

    name: str
    sources: Mapping[str, MariaDb]
    target: MariaDb
    path: Path

    def make(self, tables: Mapping[str, str]) -> None:
        """Create ten rows per shard; the condition is true for the rows 1 to 4 (by text and time) and 1 (by id)."""
        if is_tidb(self.target):  # latin1 has no collation there in which ä equals Ä
            folds = "utf8 COLLATE utf8_unicode_ci"
            tables = {group: columns.replace("latin1", folds) for group, columns in tables.items()}
        for number, server in enumerate(self.sources.values(), 1):
            server.run(f"CREATE DATABASE {self.name}")
            for group, columns in tables.items():
                table, w = f"{self.name}.{group}_{number}", f", {number}00 + seq" if group == "u" else ""
                rows = f"SELECT {number}00 + seq, IF(seq % 2, 'ä', 'Ä'), FROM_UNIXTIME(1577836800 + seq){w}"
                server.run(
                    "SET time_zone = '+05:00'",
                    f"CREATE TABLE {table} ({columns})",
                    f"INSERT INTO {table} {rows} FROM mysql.seq_1_to_10",
                )

    def write(self, *wheres: str, mode: str = "all", consistency: str = "auto", **task: Any) -> None:
        """Write the files; one condition for all sources, or one for each."""
        write_sources(self.path.parent, self.sources)
        routes = {group: route(self.name, f"{group}_*", f"{self.name}_to", group) for group in "knu"}
        chosen = dict(CHOSEN_KEY) if is_tidb(self.target) else {}
        keys = {"name": "some", "task-mode": mode, "timezone": "+08:00", "unshard": chosen, **task}
        body = task_body(self.name, self.sources, self.target, routes, **keys)
        for instance, where in zip(body["mysql-instances"], wheres * (2 // len(wheres)), strict=True):
            instance["mydumper"] = {"rows": CHUNK_ROWS, "threads": 1, "consistency": consistency, "where": where}
        self.write_body(body)

    def ids(self, group: str) -> list[int]:
        return [id for (id,) in self.target.run(f"SELECT id FROM {self.name}_to.{group} ORDER BY id")]

    def compared(self) -> dict[str, TableResult]:
        return self.verdicts(Settings(chunk_rows=3))


def one_by_one(spark: object, function: Callable[[str], Iterable[str]], items: list[str], _: int) -> Iterator[str]:
    for item in items:
        yield from function(item)


@pytest.fixture
def world(source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> Iterator[World]:
    yield World(unique, {"s1": source_1, "s2": source_2}, target, tmp_path / "task.yaml")
    for server in (source_1, source_2, target):
        server.run(*(f"DROP DATABASE IF EXISTS {unique}{end}" for end in ("", "_to", "_meta")))


DUMPED = [101, 102, 103, 104, 201, 202, 203, 204]


def test_rows_that_the_condition_is_not_true_for_are_not_dumped_and_come_when_they_change(world: World) -> None:
    name, s1 = world.name, world.sources["s1"]
    world.make(TABLES)
    world.write(WHERE)
    assert not {"US-2205", "US-2351", "US-2352"} & world.checked().keys()
    world.go()
    assert (world.ids("k"), world.ids("u")) == (DUMPED, DUMPED)
    for group in TABLES:
        s1.run(
            f"USE {name}",
            f"UPDATE {group}_1 SET v = 'new' WHERE id IN (101, 107)",
            f"DELETE FROM {group}_1 WHERE id IN (102, 108)",
            f"UPDATE {group}_1 SET id = 199 WHERE id = 109",
            f"INSERT INTO {group}_1 (id, v) VALUES (108, 'again'), (150, 'none')",
        )
    s1.run(
        f"UPDATE {name}.u_1 SET w = NULL WHERE id = 110",
        f"UPDATE {name}.u_1 SET w = 110 WHERE id = 107",
        f"UPDATE {name}.u_1 SET w = 107 WHERE id = 110",
    )
    world.go()
    changed = [101, 103, 104, 107, 108, 150, 199, *DUMPED[4:]]
    assert (world.ids("k"), world.ids("u")) == (changed, sorted([*changed, 110]))
    assert s1.run(f"SELECT * FROM {name}.k_1 WHERE id IN (107, 108)") == world.target.run(
        f"SELECT * FROM {name}_to.k WHERE id IN (107, 108)"
    )


def test_shards_and_target_are_compared_through_the_condition(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    name, s1 = world.name, world.sources["s1"]
    world.make(TABLES | KEYLESS)
    world.write(WHERE, mode="full")
    assert not {"US-2205", "US-2351", "US-2352"} & world.checked().keys(), "nothing has to be applied without a key"
    world.go()
    assert {group: world.ids(group) for group in "knu"} == dict.fromkeys("knu", DUMPED)
    for verdict in world.compared().values():
        assert (verdict.equal, verdict.rows_target, verdict.rows_union) == (True, 8, 8)
        assert (verdict.through.condition, verdict.through.why_not) == (WHERE, "")
    s1.run(f"UPDATE {name}.k_1 SET v = 'x' WHERE id = 107", f"INSERT INTO {name}.n_1 (id) VALUES (301)")
    world.target.run(f"UPDATE {name}_to.k SET t = NULL WHERE id = 203", f"DELETE FROM {name}_to.n WHERE id = 104")
    found = world.compared()
    named = {group: [(each.kind.value, each.key[0]) for each in found[group].differences] for group in "knu"}
    assert named == {"k": [("missing", "203")], "n": [("missing", "104"), ("missing", "301")], "u": []}
    assert main(["validate", str(world.path), "--table", f"{name}_to.u"]) == 0
    assert f"where: only rows were compared for which `{WHERE}` is true" in capsys.readouterr().out
    assert main(["validate", str(world.path), "--json", "--table", f"{name}_to.u"]) == 0
    assert json.loads(capsys.readouterr().out)["tables"][0]["where"] == {"condition": WHERE, "not_looked_through": ""}


def test_a_condition_that_says_something_else_in_the_target_is_not_looked_through(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.make(TABLES)
    world.write("id <> 105", "id <> 206", mode="full")
    world.go()
    for verdict in world.compared().values():
        assert {each.key for each in verdict.differences} == {("105",), ("206",)}, "all rows are compared"
        assert verdict.through.why_not == "the sources have different conditions (s1: `id <> 105`, s2: `id <> 206`)"
    assert main(["validate", str(world.path)]) == 2
    assert "the condition of the dump was not applied: the sources have diff" in capsys.readouterr().out


def test_a_condition_over_columns_that_the_target_has_otherwise_is_not_looked_through(world: World) -> None:
    world.make({"k": TABLES["k"].replace(" PRIMARY KEY", "") + ", PRIMARY KEY (id, v)", "u": TABLES["u"]})
    world.write(
        "v <> 'q' AND id <> 105",
        mode="full",
        **{
            "column-mappings": {
                "m": {
                    "schema-pattern": world.name,
                    "table-pattern": "k_*",
                    "expression": "add prefix",
                    "source-column": "v",
                    "target-column": "v",
                    "arguments": ["x"],
                }
            },
        },
    )
    body = yaml.safe_load(world.path.read_text())
    for instance in body["mysql-instances"]:
        instance["column-mapping-rules"] = ["m"]
    world.path.write_text(yaml.safe_dump(body))
    world.go()
    world.target.run(f"ALTER TABLE {world.name}_to.u DROP v")
    mapped, lacking = world.compared()["k"], world.compared()["u"]
    assert [each.key for each in mapped.differences] == [("105", "xä")]
    assert mapped.through.why_not == "`v <> 'q' AND id <> 105` names columns whose values differ in the target: v"
    assert "target cannot evaluate" in lacking.through.why_not and "'v'" in lacking.through.why_not


def test_a_condition_that_a_source_cannot_evaluate_is_named_by_its_place(world: World) -> None:
    world.make(TABLES | KEYLESS)
    world.write("nope = 1 AND id < 5")
    found = world.checked()
    assert "Unknown column 'nope'" in found["US-2205"] and "mysql-instances[1].mydumper.where" in found["US-2205"]
    assert f"s2 {world.name}.n_2" in found["US-2351"]
    world.write("k_1.id = 1")
    assert "k_1.id" in world.checked()["US-2205"], "a condition is about all shards"
    only_values_tell = "EXP(id * 100) > 1"
    world.write(only_values_tell)
    assert "US-2205" not in world.checked()
    cases = [
        ("nope = 1", "Unknown column 'nope'", "auto"),
        ("nope = 1", "Unknown column 'nope'", "lock"),
        (only_values_tell, "out of range", "lock"),
    ]
    for where, words, consistency in cases:
        world.write(where, consistency=consistency)
        with world.work() as work:
            take_snapshot(work, "s1")
            with pytest.raises(ConditionRefused, match=words) as caught:
                dump(work, "s1")
        assert f"`{where}`" in str(caught.value) and "task.yaml:" in str(caught.value)
    world.write("id < 103")
    with world.work() as work:
        dump(work, "s1")
        assert sum(chunk.rows for chunk in work.meta.chunks.of("s1")) == 6, "no row was read by the wrong one"


def test_keys_of_rows_that_never_come_do_not_overlap(world: World) -> None:
    world.make({"k": TABLES["k"]})
    for server, table in zip(world.sources.values(), ("k_1", "k_2"), strict=True):
        server.run(f"INSERT INTO {world.name}.{table} (id, v) VALUES (999, 'both')")
    world.write("v <> 'both'", mode="full")
    assert "US-2326" not in world.checked()
    world.go()
    world.write("v LIKE 'b%'", mode="full", name="another")
    assert "999" in world.checked()["US-2326"]
    world.write("v <> 'both'", name="another")
    assert "999" in world.checked()["US-2326"], "their changes come"


def test_all_rows_of_a_source_are_dumped_by_one_condition(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.make({"k": TABLES["k"]})
    monkeypatch.setattr(dumps, "map_items", one_by_one)
    world.write("id < 108")
    with world.work() as work, monkeypatch.context() as patch:
        take_snapshot(work, "s1")
        patch.setattr(dumps, "dump_piece", dying_after(1, dump_piece))
        with pytest.raises(Died):
            dump(work, "s1")
    world.write("id < 109")
    with world.work() as work, pytest.raises(ConditionChanged, match=r"`where: id < 108`.*`id < 109`"):
        dump(work, "s1")
    world.write("id < 108")
    with world.work() as work, monkeypatch.context() as patch:
        patch.setattr(dumps, "dump_piece", by_a_former_condition)
        with pytest.raises(ConditionChanged, match=r"`where: id < 1000`.*`id < 108`"):
            dump(work, "s1")


def by_a_former_condition(job: DumpJob, item: str) -> Iterable[str]:
    """Read a chunk as a process does that was considered dead before the task file was changed."""
    return dump_piece(dataclasses.replace(job, where="id < 1000"), item)


def test_a_table_that_rules_let_in_is_dumped_by_the_same_condition(world: World) -> None:
    name, s1 = world.name, world.sources["s1"]
    world.make({"k": TABLES["k"]})
    s1.run(f"CREATE TABLE {name}.k_3 LIKE {name}.k_1", f"INSERT INTO {name}.k_3 (id) VALUES (305), (306)")
    lists = {n: {"ours": {"do-tables": [{"db-name": name, "tbl-name": f"k_[1-{n}]"}]}} for n in (2, 3)}
    world.write("id NOT IN (105, 305)", **{"block-allow-list": lists[2]})
    world.go()
    world.write("id <> 306", **{"block-allow-list": lists[3]})
    found = {type(trouble.error) for trouble in world.run().errors}
    assert found == {ConditionChanged}
    assert world.compared()["k"].through.condition == "id NOT IN (105, 305)", "by which the rows were dumped"
    world.write("id NOT IN (105, 305)", **{"block-allow-list": lists[3]})
    world.go()
    assert {105, 305, 306} & {*world.ids("k")} == {306} and world.compared()["k"].equal


def test_changes_of_rows_that_were_left_out_need_all_columns(world: World) -> None:
    name, s1 = world.name, world.sources["s1"]
    world.make({"k": TABLES["k"]})
    world.write(WHERE)
    s1.run("SET GLOBAL binlog_row_image = MINIMAL")
    try:
        assert "s1 has binlog_row_image = MINIMAL" in world.checked()["US-2352"]
    finally:
        s1.run("SET GLOBAL binlog_row_image = FULL")
    world.go()
    s1.run(
        "SET binlog_row_image = MINIMAL",
        f"UPDATE {name}.k_1 SET v = 'new' WHERE id = 104",
        f"DELETE FROM {name}.k_1 WHERE id = 108",
        f"INSERT INTO {name}.k_1 (id) VALUES (108)",
    )
    world.go()
    assert world.ids("k") == sorted([*DUMPED, 108])
    s1.run("SET binlog_row_image = MINIMAL", f"UPDATE {name}.k_1 SET v = 'new' WHERE id = 107")
    (trouble,) = world.run().errors
    assert isinstance(trouble.error, ChangedRowMissing) and "id = 107" in str(trouble.error)


def test_changes_of_rows_that_are_left_out_while_they_are_dumped_are_awaited(world: World) -> None:
    world.make({"k": TABLES["k"]})
    world.write(WHERE)
    with world.work() as work:
        take_snapshot(work, "s1")
    world.sources["s1"].run("SET binlog_row_image = MINIMAL", f"UPDATE {world.name}.k_1 SET v = 'n' WHERE id = 107")
    (trouble,) = world.run().errors
    assert isinstance(trouble.error, DeferredRowMissing) and "id = 107" in str(trouble.error)
    world.sources["s1"].run(f"UPDATE {world.name}.k_1 SET v = 'm' WHERE id = 107")
    world.go()
    assert 107 in world.ids("k")
