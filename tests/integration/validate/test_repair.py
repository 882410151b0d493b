"""`unshard repair` makes proven differences equal to the shards, beside writers, windows and deaths."""

import json
import stat
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.alltypes import TABLES, statements
from tests.dying import Died, mortal
from tests.integration.validate.test_under_load import SETTINGS, judged, loaded, planted, under_load
from tests.lifetask import LifeTask, living, task
from tests.oracle import assert_union
from unshard.adapters import mysql
from unshard.adapters.meta.windowrecords import Windows
from unshard.adapters.target import chunkprogress
from unshard.core.ddl.issuedcommands import IssuedCommand
from unshard.units.validate import repairing
from unshard.units.validate.repairing import TableRepair, plan_repair, repair
from unshard_demo.servers import MariaDb

__all__ = ["loaded", "task"]
pytestmark = [pytest.mark.integration, pytest.mark.on_tidb]
ORDER = IssuedCommand("repair", "ann", "test", "")


def repaired(task: LifeTask) -> TableRepair:
    with task.work() as work:
        (done,) = repair(work, plan_repair(work, settings=SETTINGS), ORDER, SETTINGS)
    return done


def audited(task: LifeTask) -> Counter[str]:
    """Return the first key columns of all rows that the audit has as repaired."""
    with task.work() as work:
        return Counter(
            next(iter(each["key"].values()))
            for one in work.meta.locks.actions()
            if one.action == "repair"
            for each in one.details["keys"]
        )


@pytest.mark.on_mysql
def test_planted_differences_are_repaired_under_load_and_deaths(
    loaded: LifeTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repairing, "MOST_KEYS", 7)
    wrong, left = planted(loaded), True
    deaths = mortal(monkeypatch, Windows, "begin", "commit")
    more = mortal(monkeypatch, chunkprogress, "hold_source", "hold_structure", "record_action")
    with under_load(loaded):
        while left:
            try:
                left = bool(repaired(loaded).planned)
            except Died:
                continue
    monkeypatch.undo()
    assert sum(deaths.values()) > 5 and more["record_action"] > 5
    loaded.go()
    last = judged(loaded)
    assert (last.differences, last.pending) == ((), ())
    loaded.assert_union()
    assert audited(loaded) == Counter(wrong), "each key once, and no other"


def test_a_lost_answer_to_the_commit_repairs_nothing_twice(loaded: LifeTask, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded.target.run(f"DELETE FROM {loaded.name}_to.t WHERE id IN (50, 51)")
    mortal(monkeypatch, mysql, "commit")
    while True:
        try:
            repaired(loaded)
        except Died:
            continue
        break
    monkeypatch.undo()
    assert judged(loaded).equal and audited(loaded) == Counter(["50", "51"])
    loaded.assert_union()


def test_a_row_that_changes_during_the_repair_is_left_to_the_windows(
    loaded: LifeTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    (shard,) = loaded.shards["s1"]
    loaded.target.run(f"UPDATE {loaded.name}_to.t SET v = 'wrong' WHERE id IN (50, 51, 52)")
    hold, write = chunkprogress.hold_structure, repairing._Repair._writes

    def held(*given, **named) -> None:
        loaded.sources["s1"].run(f"UPDATE {shard} SET v = 'later' WHERE id = 50")
        hold(*given, **named)

    def late(*given):
        loaded.sources["s1"].run(f"UPDATE {shard} SET v = 'too late' WHERE id = 51")
        return write(*given)

    monkeypatch.setattr(chunkprogress, "hold_structure", held)
    monkeypatch.setattr(repairing._Repair, "_writes", late)
    done = repaired(loaded)
    assert [each.key for each in done.repaired] == [("52",)] and not done.is_done
    assert {each.difference.key for each in done.left} == {("50",), ("51",)}
    loaded.go()
    loaded.assert_union()


def test_rows_behind_a_lock_are_left(loaded: LifeTask) -> None:
    (shard,) = loaded.shards["s1"]
    loaded.sources["s1"].run(f"ALTER TABLE {shard} ADD w INT", f"INSERT INTO {shard} VALUES (700001, 'held', 1)")
    loaded.target.run(f"DELETE FROM {loaded.name}_to.t WHERE id = 50")
    loaded.go()
    done = repaired(loaded)
    assert not done.planned and {each.difference.key for each in done.left} == {("50",), ("700001",)}
    assert all("waits" in each.why or "held" in each.why for each in done.left)


def test_the_command(loaded: LifeTask, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    into = f"{loaded.name}_to.t"
    loaded.target.run(f"DELETE FROM {into} WHERE id IN (50, 51)", f"INSERT INTO {into} VALUES (900000, 'extra')")
    assert loaded.command("repair", "--dry-run") == 0
    told = capsys.readouterr().out
    assert f"{into}: delete 1, insert 2" in told and "insert id=50 of s1 " in told and "dry run" in told
    assert loaded.command("validate", "--json") == 2, "nothing was done"
    found = json.loads(capsys.readouterr().out)
    (table,) = found["tables"]
    table["differences"] = [each for each in table["differences"] if each["key"] != {"id": "51"}]
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps(found))
    assert loaded.command("repair", "--keys", str(keys)) == 1, "nobody has confirmed it"
    assert loaded.command("repair", "--keys", str(keys), "--yes") == 0
    assert "2 rows are repaired" in capsys.readouterr().out
    assert [each.key for each in judged(loaded).differences] == [("51",)]
    assert loaded.command("repair", "--yes", "--json") == 0
    (done,) = json.loads(capsys.readouterr().out)["tables"]
    assert [each["key"] for each in done["repaired"]] == [{"id": "51"}]
    assert loaded.command("repair", "--yes") == 0 and "nothing to repair" in capsys.readouterr().out
    keys.write_text("id=51")
    assert loaded.command("repair", "--keys", str(keys)) == 1 and "validate --json" in capsys.readouterr().err
    loaded.assert_union()


OTHER_TABLES = {
    "swapped": ("id INT PRIMARY KEY, u INT, UNIQUE (u)", "(1, 10)", "(2, 20)", "(3, 30)"),
    "collated": ("name VARCHAR(20) COLLATE utf8mb4_general_ci PRIMARY KEY, v INT", "('ann', 1)", "('bob', 2)"),
    "made": ("id INT PRIMARY KEY, v INT, g INT AS (v + 1) STORED", "(1, 2)", "(2, 3)", "(3, 4)"),
    "keyless": ("v INT, w VARCHAR(9)", "(1, 'a')", "(1, 'a')", "(1, 'a')", "(2, NULL)"),
    "several": ("a INT, b VARBINARY(9), v INT, PRIMARY KEY (a, b)", "(1, x'00ff', 1)", "(1, x'27', 2)"),
}
SPOILT = {
    "swapped": ("UPDATE {} SET u = -u", "UPDATE {} SET u = 20 WHERE id = 1", "UPDATE {} SET u = 10 WHERE id = 2"),
    "collated": ("UPDATE {} SET name = 'ANN' WHERE v = 1", "DELETE FROM {} WHERE v = 2"),
    "made": ("UPDATE {} SET v = 9 WHERE id = 1", "DELETE FROM {} WHERE id = 2", "INSERT INTO {} (id, v) VALUES (7, 7)"),
    "keyless": ("DELETE FROM {} WHERE v = 1 LIMIT 2", "INSERT INTO {} VALUES (2, NULL), (3, 'c')"),
    "several": ("UPDATE {} SET v = 7 WHERE b = x'27'", "INSERT INTO {} VALUES (1, x'00', 3)"),
}


@pytest.fixture
def types(source_1: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> Iterator[LifeTask]:
    """A target with one shard for each table."""
    tables = TABLES | OTHER_TABLES
    where = {"schema-pattern": f"{unique}*", "target-schema": f"{unique}_to"}
    routes = {name: {**where, "table-pattern": name, "target-table": name} for name in tables}
    with living(unique, tmp_path, {"s1": source_1}, target, routes=routes) as made:
        made.body["mysql-instances"][0]["route-rules"] = list(routes)
        made.write()
        yield made


@pytest.mark.mariadb_only
@pytest.mark.parametrize("how", ["written", "statements"])
@pytest.mark.sample(reason="both ways of writing")
def test_values_of_every_type_come_back(types: LifeTask, how: str) -> None:
    server, into = types.sources["s1"], f"{types.name}_to"
    server.run(*statements(types.name))
    for name, (columns, *rows) in OTHER_TABLES.items():
        given = " (id, v)" if name == "made" else ""
        server.run(
            f"CREATE TABLE {types.name}.{name} ({columns})",
            f"INSERT INTO {types.name}.{name}{given} VALUES {', '.join(rows)}",
        )
    types.go()
    for name in TABLES:
        types.target.run(
            "SET sql_mode = ''",
            f"DELETE FROM {into}.{name} WHERE id = 1",
            f"UPDATE {into}.{name} SET {'v' if name == 'generated' else 'a'} = NULL WHERE id = 2",
            f"INSERT IGNORE INTO {into}.{name} (id) VALUES (99)",
        )
    for name, spoiling in SPOILT.items():
        types.target.run(*(statement.format(f"{into}.{name}") for statement in spoiling))
    if how == "statements":
        file = types.folder / "repair.sql"
        assert types.command("repair", "--sql", str(file)) == 0
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        client = ["mariadb", "--host=127.0.0.1", f"--port={types.target.port}", "--user=admin", "--password=unshard"]
        subprocess.run(client, input=file.read_bytes(), check=True)
    else:
        with types.work() as work:
            done = repair(work, plan_repair(work), ORDER)
        assert {each.target.name: [one.why for one in each.left] for each in done if not each.is_done} == {}
    for name in TABLES | OTHER_TABLES:
        assert_union(types.sources, {"s1": [f"{types.name}.{name}"]}, types.target, f"{into}.{name}")


def test_a_column_that_only_the_target_has_keeps_its_value(loaded: LifeTask) -> None:
    into = f"{loaded.name}_to.t"
    loaded.target.run(
        f"ALTER TABLE {into} ADD note VARCHAR(20) DEFAULT 'none'",
        f"UPDATE {into} SET note = 'mine', v = 'wrong' WHERE id = 50",
    )
    assert repaired(loaded).is_done
    assert loaded.target.run(f"SELECT v, note FROM {into} WHERE id = 50") == [("row 49", "mine")]


def test_a_target_that_follows_the_join_of_its_shards(loaded: LifeTask) -> None:
    loaded.body["shard-mode"] = "optimistic"
    loaded.write()
    (first,), (second,) = loaded.shards["s1"], loaded.shards["s2"]
    loaded.sources["s1"].run(
        f"ALTER TABLE {first} ADD w INT NOT NULL DEFAULT 7, CHANGE v name VARCHAR(20)",
        f"UPDATE {first} SET w = 8 WHERE id = 51",
    )
    loaded.go()
    into = f"{loaded.name}_to.t"
    columns = {name for name, *_ in loaded.target.run(f"SHOW COLUMNS FROM {into}")}
    loaded.target.run(
        f"DELETE FROM {into} WHERE id IN (50, 1000050)",
        f"UPDATE {into} SET w = 9 WHERE id IN (51, 1000051)",
        f"INSERT INTO {into} (id) VALUES (900000)",
    )
    assert "w" in columns and len(judged(loaded).differences) >= 4
    done = repaired(loaded)
    assert done.is_done, done.left
    assert judged(loaded).equal
    loaded.sources["s2"].run(f"ALTER TABLE {second} ADD w INT NOT NULL DEFAULT 7, CHANGE v name VARCHAR(20)")
    loaded.go()
    loaded.assert_union()


@pytest.mark.mariadb_only
def test_rows_that_the_task_reshapes(task: LifeTask) -> None:
    """Columns are extracted from names, and ids are mapped."""
    task.body["routes"]["all"]["extract-table"] = {"table-regexp": "t_(.*)", "target-column": "c_table"}
    task.body["column-mappings"] = {
        "ids": {
            "schema-pattern": f"{task.name}*",
            "table-pattern": "t_*",
            "expression": "partition id",
            "source-column": "id",
            "target-column": "id",
            "arguments": ["", "", "t", "_"],
        }
    }
    for instance in task.body["mysql-instances"]:
        instance["column-mapping-rules"] = ["ids"]
    task.write()
    into = f"{task.name}_to.t"
    columns = "id BIGINT, v VARCHAR(20), c_table VARCHAR(20), PRIMARY KEY (id, c_table)"
    task.target.run(f"CREATE DATABASE IF NOT EXISTS {task.name}_to", f"CREATE TABLE {into} ({columns})")
    task.go()
    before = task.target.run(f"SELECT * FROM {into} ORDER BY id")
    (first, *_), (second, *_), (third, *_) = before
    task.target.run(
        f"DELETE FROM {into} WHERE id = {first}",
        f"UPDATE {into} SET v = 'wrong', c_table = '7' WHERE id = {second}",
        f"UPDATE {into} SET v = 'wrong' WHERE id = {third}",
        f"INSERT INTO {into} VALUES ({first} + 1, 'extra', '9')",
    )
    done = repaired(task)
    assert done.is_done and len(done.repaired) == 5
    assert task.target.run(f"SELECT * FROM {into} ORDER BY id") == before
