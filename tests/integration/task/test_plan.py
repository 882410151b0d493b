"""`unshard plan` on real servers: it names the next stages with their reasons, and changes nothing."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lifetask import LifeTask
from tests.lifetask import task as life  # noqa: F401  a fixture
from tests.livetask import LiveTask, living
from tests.openlocks import open_locks
from unshard.cli import main
from unshard.units.ddl import coordinate
from unshard.units.window.sync import next_plan
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration


@pytest.fixture
def live(source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> Iterator[LiveTask]:
    columns = dict.fromkeys("tu", "id INT PRIMARY KEY, v INT")
    numbers = {(source, group): (1,) for source in ("s1", "s2") for group in "tu"}
    servers = (source_1, source_2, target)
    with living(unique, tmp_path, servers, "tu", columns=columns, numbers=numbers, window_bytes=1 << 20) as made:
        yield made


def contents(target: MariaDb, schema: str) -> dict[str, Any]:
    """All rows of all tables of a schema."""
    query = f"SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = '{schema}' ORDER BY 1"
    return {name: sorted(map(repr, target.run(f"SELECT * FROM `{schema}`.`{name}`"))) for (name,) in target.run(query)}


def files(folder: Path) -> list[tuple[str, int]]:
    return sorted((str(path), path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file())


def planned(path: Path, target: MariaDb, schema: str, capsys: pytest.CaptureFixture[str], code: int = 0) -> Any:
    """Plan twice, for people and as JSON; no row of the meta schema and no file may change by it."""
    before = contents(target, schema), files(path.parent)
    capsys.readouterr()
    assert main(["plan", str(path)]) == code
    text = capsys.readouterr().out
    assert main(["plan", str(path), "--json"]) == code
    document = json.loads(capsys.readouterr().out)
    assert (contents(target, schema), files(path.parent)) == before
    return document, text


def details(document: Any, source: str, *actions: str) -> list[tuple[str, str | None, str | None, str]]:
    (found,) = (each for each in document["sources"] if each["source"] == source)
    every = [detail for stage in found["stages"] for detail in stage["details"]] + found["held"]
    return [(d["action"], d["shard"], d["lock"], d["text"]) for d in every if d["action"] in actions]


def test_plan_names_the_lock_that_holds_rows_and_then_their_release(
    live: LiveTask, target: MariaDb, unique: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The DDL waits for s2: rows of s1 are held. After s2 has it and the lock is executed they are released."""
    shard = f"{unique}.t_1"
    live.sources["s1"].run(
        f"INSERT INTO {shard} VALUES (1, 1)",
        f"ALTER TABLE {shard} ADD c INT",
        f"INSERT INTO {shard} VALUES (2, 2, 2)",
        f"INSERT INTO {unique}.u_1 VALUES (1, 1)",
    )
    nothing, text = planned(live.path, target, live.meta_schema, capsys)
    assert [each["window"] for each in nothing["sources"]] == [None, None], "plan pulls no binlog"
    assert text.count("no window to run") == 2 and not nothing["used_trial_tables"]

    live.pull("s1")
    first, text = planned(live.path, target, live.meta_schema, capsys)
    assert first["used_trial_tables"] and "dropped again" in text
    assert [stage["stage"] for stage in first["sources"][0]["stages"]] == [
        "begin",
        "create-targets",
        "move",
        "commit",
        "sweep",
    ]
    ((_, _, lock, why),) = details(first, "s1", "hold")
    assert lock is None and "this window queues `ALTER TABLE" in why
    assert [d[:2] for d in details(first, "s1", "queue")] == [("queue", f"s1 {shard}")]
    assert {d[3] for d in details(first, "s1", "apply")} == {
        f"apply new rows of s1 {unique}.{group}_1 to {unique}_to.{group}" for group in "tu"
    }
    assert live.window("s1").rows_held == 1

    opens, text = planned(live.path, target, live.meta_schema, capsys)
    assert [(each["lock"], each["stages"][0]["stage"]) for each in opens["locks"]] == [(None, "open-lock")]
    assert f"a new lock of {unique}_to.t" in text
    (view,) = open_locks(live.work().meta)
    live.sources["s1"].run(f"INSERT INTO {shard} VALUES (3, 3, 3)")
    live.pull("s1")
    waits, text = planned(live.path, target, live.meta_schema, capsys)
    ((_, held, lock, why),) = details(waits, "s1", "hold")
    assert (held, lock) == (f"s1 {shard}", view.id)
    assert f"wait for s2 {shard} to reach the DDL" in why and why in text
    assert [d[1:3] for d in details(waits, "s1", "keep")] == [(f"s1 {shard}", view.id)]
    (shown,) = waits["locks"]
    assert shown["lock"]["id"] == view.id
    assert [stage["stage"] for stage in shown["stages"]] == ["wait-for-shards", "intent", "execute", "resolve"]

    live.sources["s2"].run(f"ALTER TABLE {shard} ADD c INT")
    live.pull("s2")
    live.window("s2")
    due, _ = planned(live.path, target, live.meta_schema, capsys)
    assert [stage["stage"] for stage in due["locks"][0]["stages"]] == ["intent", "execute", "resolve"]
    assert live.coordinate()
    released, text = planned(live.path, target, live.meta_schema, capsys)
    ((_, released_shard, _, why),) = details(released, "s1", "release")
    assert released_shard == f"s1 {shard}" and why in text
    assert not details(released, "s1", "hold", "keep") and released["locks"] == []
    live.run()
    live.assert_settled()


def test_plan_shows_a_begun_window_a_pause_and_a_suspended_target(
    live: LiveTask, target: MariaDb, unique: str, capsys: pytest.CaptureFixture[str]
) -> None:
    target.run(f"ALTER TABLE {unique}_to.t MODIFY v TINYINT")
    live.sources["s1"].run(f"INSERT INTO {unique}.t_1 VALUES (1, 1000)", f"INSERT INTO {unique}.u_1 VALUES (1, 1)")
    live.run()
    assert set(live.stopped()) == {("s1", "t")}
    live.sources["s1"].run(f"INSERT INTO {unique}.t_1 VALUES (2, 2)")
    live.pull("s1")
    document, text = planned(live.path, target, live.meta_schema, capsys)
    assert [each["target"] for each in document["sources"][0]["suspended_targets"]] == [f"{unique}_to.t"]
    assert [d[0] for d in details(document, "s1", "hold", "keep")] == ["hold", "keep"]
    assert "the target is suspended" in text

    target.run(f"ALTER TABLE {unique}_to.t MODIFY v INT")
    mended, _ = planned(live.path, target, live.meta_schema, capsys)
    assert details(mended, "s1", "release") and not details(mended, "s1", "hold", "keep")
    assert set(live.stopped()) == {("s1", "t")}, "only the window itself lets it go on"

    work = live.work()
    work.meta.windows.begin("s1", next_plan(work, "s1"))
    assert main(["pause", str(live.path), "--reason", "a break"]) == 0
    begun, text = planned(live.path, target, live.meta_schema, capsys)
    assert begun["sources"][0]["window"]["is_begun"] and begun["pause"]["kind"] == "paused"
    assert "it runs again" in text and text.startswith("task live is paused")
    assert main(["resume", str(live.path)]) == 0
    live.run()
    live.assert_settled()


def test_undecided_ddl_waits_for_an_operator_and_its_answer_is_tried_without_being_stored(
    live: LiveTask, target: MariaDb, unique: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The target lacks the sequence of the new column. The command `replace` names the DDL of the shard."""
    shard = f"{unique}.t_1"
    live.sources["s1"].run(
        f"CREATE SEQUENCE {unique}.numbers",
        f"ALTER TABLE {shard} ADD n INT DEFAULT (NEXT VALUE FOR {unique}.numbers)",
        f"INSERT INTO {shard} VALUES (1, 1, 7)",
    )
    live.sources["s2"].run(f"ALTER TABLE {shard} ADD n INT")
    live.run()
    document, text = planned(live.path, target, live.meta_schema, capsys)
    ((_, _, lock, why),) = details(document, "s1", "keep")
    assert [stage["stage"] for stage in document["locks"][0]["stages"]] == ["wait-for-operator"]
    assert lock == document["locks"][0]["lock"]["id"] and "wait for an operator" in why and why in text

    change = f"ALTER TABLE {shard} ADD n INT"
    assert main(["replace", str(live.path), lock, "--shard", f"s1/{shard}", "--sql", change, "--yes"]) == 0
    answered, _ = planned(live.path, target, live.meta_schema, capsys)
    assert answered["used_trial_tables"] and not answered["sources"][0]["error"]
    assert live.work().meta.structures.unknown_shards("s1"), "the plan stores nothing of what it has found out"
    live.run()
    live.assert_settled()


def test_plan_does_not_read_the_source_of_a_new_shard_whose_structure_only_the_source_tells(
    source_1: MariaDb, target: MariaDb, unique: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Reading the structure is only certain after a pull, which the next window does and a plan must not do."""
    made = {"columns": {"t": "id INT PRIMARY KEY, v INT"}, "numbers": {("s1", "t"): (1,)}}
    with living(unique, tmp_path, (source_1, target), "t", **made) as alone:
        other = f"{unique}_else"
        source_1.run(
            f"CREATE DATABASE {other}",
            f"CREATE TABLE {other}.new LIKE {unique}.t_1",
            f"RENAME TABLE {unique}.t_1 TO {other}.old, {other}.new TO {unique}.t_1",
            f"INSERT INTO {unique}.t_1 VALUES (1, 1)",
        )
        try:
            alone.run()
            (view,) = coordinate.views(alone.work().meta)
            assert main(["skip", str(alone.path), view.id, "--yes"]) == 0
            source_1.run(f"INSERT INTO {unique}.t_1 VALUES (2, 2)")
            document, text = planned(alone.path, target, alone.meta_schema, capsys)
            assert not document["sources"][0]["error"] and details(document, "s1", "keep")
            assert "the next window finds their structure first" in text
            alone.run()
            alone.assert_settled()
        finally:
            source_1.run(f"DROP DATABASE {other}")


def test_task_that_has_not_begun_shows_its_full_load(
    life: LifeTask,  # noqa: F811
    target: MariaDb,
    capsys: pytest.CaptureFixture[str],
) -> None:
    target.run(f"DROP DATABASE IF EXISTS {life.meta_schema}")
    document, text = planned(life.path, target, life.meta_schema, capsys)
    for each in document["sources"]:
        assert [stage["stage"] for stage in each["stages"]] == ["snapshot", "dump", "load"]
    assert document["handover"]["stage"] == "handover" and "full load, phase new" in text
    assert target.run(f"SHOW DATABASES LIKE '{life.meta_schema}'") == [], "the meta schema is not created"
