"""The command line on real servers: check, status, locks, unlock, validate; no Spark."""

import json
import re
from dataclasses import asdict
from pathlib import Path

import pytest

from unshard.adapters.meta import Meta
from unshard.adapters.meta.database import MIGRATIONS
from unshard.cli import main
from unshard.config import load_task
from unshard.core.model import Location
from unshard.core.task.state import Phase
from unshard.units.task.status import refuse_paused

pytestmark = pytest.mark.integration

TASK = """
name: {schema}
task-mode: all
shard-mode: pessimistic
meta-schema: {schema}_meta
target-database: {{host: 127.0.0.1, port: {target}, user: admin, password-env: UNSHARD_DB_PASSWORD}}
mysql-instances:
  - {{source-id: s1, route-rules: [all], block-allow-list: all}}
  - {{source-id: s2, route-rules: [all], block-allow-list: all}}
routes:
  all: {{schema-pattern: "{schema}_*", table-pattern: "t_*", target-schema: {schema}, target-table: t}}
block-allow-list:
  all: {{do-dbs: ["{schema}_*"]}}
unshard:
  storage-path: {folder}/storage
"""
SOURCE = "source-id: {name}\nfrom: {{host: 127.0.0.1, port: {port}, user: admin, password-env: UNSHARD_DB_PASSWORD}}\n"
TABLE = "CREATE TABLE {} (id int PRIMARY KEY, v varchar(9))"


class World:
    """A task of two sources with a shard each."""

    def __init__(self, source_1, source_2, target, schema: str, folder: Path) -> None:
        self.s1, self.s2, self.target, self.schema, self.folder = source_1, source_2, target, schema, folder
        self.path = folder / "task.yaml"
        self.path.write_text(TASK.format(schema=schema, target=target.port, folder=folder))
        (folder / "sources").mkdir()
        for name, source in (("s1", source_1), ("s2", source_2)):
            (folder / f"sources/{name}.yaml").write_text(SOURCE.format(name=name, port=source.port))
            source.run(f"CREATE DATABASE {schema}_1", TABLE.format(f"{schema}_1.t_{name}"))
        target.run(f"CREATE DATABASE {schema}", TABLE.format(f"{schema}.t"))

    def meta(self) -> Meta:
        meta = Meta(self.target.server, f"{self.schema}_meta", self.schema)
        meta.migrate()
        return meta


@pytest.fixture
def world(source_1, source_2, target, unique, tmp_path, monkeypatch) -> World:
    monkeypatch.setenv("UNSHARD_DB_PASSWORD", "unshard")
    return World(source_1, source_2, target, unique, tmp_path)


@pytest.fixture
def command(world: World, capsys):
    """Run a command with --json; return exit code and document."""

    def run(*given: str):
        code = main([*given[0].split(), str(world.path), *given[1:], "--json"])
        return code, json.loads(capsys.readouterr().out)

    return run


def test_check_lists_items(world: World, command, capsys) -> None:
    code, found = command("check")
    assert (code, found["ok"], found["errors"]) == (0, True, 0)
    places = {"source s1", "source s2", "task", "target", f"target {world.schema}.t"}
    assert {item["place"] for item in found["items"]} == places
    world.s1.run(f"ALTER TABLE {world.schema}_1.t_s1 ADD COLUMN w int")
    assert world.target.run(f"SHOW DATABASES LIKE '{world.schema}_meta'") == [], "looking makes nothing"
    meta = world.meta()
    code, found = command("check")
    stored = meta.prechecks.last()
    assert stored and [asdict(item) for item in stored.items] == found["items"], "what the page shows"
    assert code == 1 and "US-2307" in {item["code"] for item in found["items"]}
    assert main(["check", str(world.path)]) == 1
    said = capsys.readouterr().out
    assert "[US-2307]" in said and "-> give all shards" in said and "cannot run yet: 2 error(s)" in said


def test_checks_without_a_problem_are_one_line(world: World, capsys, monkeypatch) -> None:
    assert main(["check", str(world.path)]) == 0
    count, verdict = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"\d+ checks are OK; `-v` lists them", count) and "can run: 0 error(s)" in verdict
    assert main(["check", str(world.path), "-v"]) == 0
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.startswith("RESULT") and len([line for line in lines if line[:3] == "OK "]) == int(count.split()[0])
    for source in ("s1", "s2"):
        file = world.folder / f"sources/{source}.yaml"
        file.write_text(re.sub(r"port: \d+", "port: 1", file.read_text()))
    world.path.write_text(re.sub(r"port: \d+", "port: 1", world.path.read_text(), count=1))
    assert main(["check", str(world.path)]) == 1
    said = capsys.readouterr().out
    assert "OK" not in said and said.count("US-2001") == 3 and ", 0 ok" in said


def test_status_before_anything(world: World, command) -> None:
    code, found = command("status")
    assert code == 0
    assert [(each["source"], each["phase"], each["position"]) for each in found["sources"]] == [
        ("s1", "new", None),
        ("s2", "new", None),
    ]
    assert found["sources"][0]["upstream_position"].startswith("mysql-bin.")


def test_status_of_a_source_that_syncs(world: World, command, capsys) -> None:
    meta = world.meta()
    ((file, position, *_),) = world.s1.run("SHOW MASTER STATUS")
    for source in ("s1", "s2"):
        meta.sources.add(source, "x", "mariadb")
    meta.sources.set_phase("s1", Phase.SYNC)
    meta.checkpoints.start("s1", Location(file, position))
    code, found = command("status")
    s1, s2 = found["sources"]
    assert (code, s1["phase"], s1["lag_seconds"], s1["lag_bytes"]) == (0, "sync", 0, 0)
    assert (s2["phase"], s2["position"], s2["lag_seconds"]) == ("new", None, None)
    world.s1.run(f"INSERT INTO {world.schema}_1.t_s1 VALUES (1, 'x')")
    s1 = command("status")[1]["sources"][0]
    assert s1["lag_bytes"] > 0
    world.s1.run("FLUSH BINARY LOGS")
    assert command("status")[1]["sources"][0]["lag_bytes"] > s1["lag_bytes"]
    assert main(["status", str(world.path)]) == 0
    assert capsys.readouterr().out.startswith("SOURCE")


def test_status_shows_a_source_that_does_not_answer_and_the_others(world: World, command) -> None:
    path = world.folder / "sources/s1.yaml"
    path.write_text(path.read_text().replace(str(world.s1.port), "1"))
    code, found = command("status")
    assert code == 1
    assert found["sources"][0]["error"]["code"] == "US-2001"
    assert found["sources"][1]["error"] is None and found["sources"][1]["upstream_position"]


READING = (
    ("check",),
    ("status",),
    ("collisions",),
    ("row-errors",),
    ("locks",),
    ("validate",),
    ("stop", "--dry-run"),
    ("retry", "--dry-run"),
    ("skip", "a-lock", "--dry-run"),
    ("ddl list",),
    ("ddl revert", "--number", "1", "--dry-run"),
)


def test_after_an_upgrade_who_only_reads_says_what_to_do_and_leaves_the_tables(world: World, command) -> None:
    world.meta()
    newest = missing = MIGRATIONS[-1].number
    older = (f"USE {world.schema}_meta", f"DELETE FROM migration WHERE number >= {missing}", "DROP TABLE row_error")
    world.target.run(*older)
    before = world.target.run(f"SHOW TABLES FROM {world.schema}_meta")
    for name, *given in READING:
        code, found = command(name, *given)
        assert (name, code, found["error"]["code"]) == (name, 1, "US-7011")
        assert f"version {missing - 1}" in found["error"]["message"] and "unshard migrate" in found["error"]["hint"]
    assert world.target.run(f"SHOW TABLES FROM {world.schema}_meta") == before
    assert command("migrate")[1]["version"] == newest == command("migrate")[1]["version"]
    assert command("row-errors")[0] == command("status")[0] == 0
    world.target.run(*older)
    refuse_paused(load_task(world.path))
    assert command("row-errors")[0] == 0, "the full load's first task works on the task"
    world.target.run(f"INSERT INTO {world.schema}_meta.migration VALUES (99, 'later', UTC_TIMESTAMP())")
    assert {command(name)[1]["error"]["code"] for name in ("status", "migrate", "locks")} == {"US-7002"}


def test_no_locks_and_no_orders(world: World, command, capsys) -> None:
    assert command("locks") == (
        0,
        {"task": world.schema, "locks": [], "differences": [], "commands": [], "warnings": []},
    )
    assert command("ddl list") == (0, {"task": world.schema, "commands": [], "warnings": []})
    assert not world.target.run(f"SHOW DATABASES LIKE '{world.schema}_meta'"), "who only looks makes nothing"
    assert main(["unlock", str(world.path), "no-such-lock"]) == 1
    assert "[US-5" in capsys.readouterr().err


def test_validate(world: World, command, capsys) -> None:
    code, found = command("validate")
    assert (code, found["equal"], found["rows"]) == (0, True, 0)
    world.s1.run(f"INSERT INTO {world.schema}_1.t_s1 VALUES (1, 'a'), (2, 'b')")
    world.s2.run(f"INSERT INTO {world.schema}_1.t_s2 VALUES (3, 'c')")
    world.target.run(f"INSERT INTO {world.schema}.t VALUES (1, 'a'), (2, 'B'), (4, 'd')")
    code, found = command("validate", "--table", f"{world.schema}.t")
    assert (code, found["equal"], found["rows"]) == (2, False, 3)
    (table,) = found["tables"]
    assert (table["rows_target"], table["rows_shards"], table["shards"]) == (3, 3, 2)
    assert table["differences"] == [
        {"kind": "different", "key": {"id": "2"}, "shards": [f"s1 {world.schema}_1.t_s1"], "rows": 1, "because": None},
        {"kind": "missing", "key": {"id": "3"}, "shards": [f"s2 {world.schema}_1.t_s2"], "rows": 1, "because": None},
        {"kind": "extra", "key": {"id": "4"}, "shards": [], "rows": 1, "because": None},
    ]
    assert main(["validate", str(world.path), "--limit", "1"]) == 2
    said = capsys.readouterr().out
    assert "DIFFERS" in said and "different: id=2" in said and "use --limit to list more" in said


def test_validate_refuses_what_is_no_target(world: World, command) -> None:
    assert command("validate", "--table", "nowhere.t")[1]["error"]["code"] == "US-6804"
    assert command("validate", "--table", "nowhere")[1]["error"]["code"] == "US-1901"


def test_a_column_that_the_target_has_lost_is_a_difference(world: World, command) -> None:
    world.s1.run(f"ALTER TABLE {world.schema}_1.t_s1 ADD COLUMN w int")
    code, found = command("validate")
    (table,) = found["tables"]
    assert (code, table["lost_columns"], table["differences"]) == (2, ["w"], [])
    assert table["left_out"] == [
        {"column": "w", "reason": "not in the target", "places": ["target", f"s2 {world.schema}_1.t_s2"]}
    ]


def test_a_column_that_only_the_target_has_is_named_and_fine(world: World, command) -> None:
    world.target.run(f"ALTER TABLE {world.schema}.t ADD COLUMN at timestamp DEFAULT NOW()")
    code, found = command("validate")
    assert (code, found["tables"][0]["left_out"][0]["column"]) == (0, "at")
