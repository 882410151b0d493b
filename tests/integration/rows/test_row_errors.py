"""A row that a target cannot take suspends that target for that source; everything else continues."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.cutting import bound_transactions
from tests.dying import Died, died
from tests.livetask import LiveTask, living
from tests.tidbsettings import takes_load_data
from unshard.adapters.meta.windowrecords import Windows
from unshard.adapters.target import fencesteps
from unshard.cli import main
from unshard.core.rows.rowerrors import RowError
from unshard.units.ddl import coordinate
from unshard.units.task.run import run
from unshard.units.window.suspending import retry
from unshard.units.window.sync import next_plan
from unshard_demo.servers import MariaDb

pytestmark = [pytest.mark.integration, pytest.mark.writes_rows]

COLUMNS = "id INT PRIMARY KEY, v VARCHAR(20)"


@pytest.fixture
def task(source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path) -> Iterator[LiveTask]:
    columns = {"a": COLUMNS, "b": COLUMNS}
    numbers = {("s1", "a"): (1, 2), ("s2", "a"): (3,), ("s1", "b"): (1,)}
    with living(unique, tmp_path, (source_1, source_2, target), "ab", columns=columns, numbers=numbers) as opened:
        yield opened


def put(task: LiveTask, source: str, shard: str, number: int, value: str = "x") -> None:
    task.sources[source].run(f"REPLACE INTO {task.name}.{shard} VALUES ({number}, '{value}')")


def ids(task: LiveTask, group: str) -> list[int]:
    return [row[0] for row in task.target.run(f"SELECT id FROM {task.table(group)} ORDER BY id")]


def stopped(task: LiveTask) -> list[tuple[str, str, str, int]]:
    return [
        (stop.source, stop.target.name, stop.refusal.key, stop.times)
        for stop in task.work().meta.suspended_targets.all()
    ]


def test_one_target_stops_and_goes_on_when_it_can_take_the_row(task: LiveTask) -> None:
    task.target.run(f"ALTER TABLE {task.table('a')} MODIFY v VARCHAR(3)")
    put(task, "s1", "a_1", 1)
    task.run()
    put(task, "s1", "a_1", 10)
    put(task, "s1", "a_2", 20, "too long")
    put(task, "s1", "b_1", 1)
    put(task, "s2", "a_3", 30)
    task.run()
    assert stopped(task) == [("s1", "a", "id = 20", 1)]
    (stop,) = task.work().meta.suspended_targets.all()
    says = "truncated" if takes_load_data(task.target) else "Data too long"
    assert stop.refusal.column == "v" and says in stop.refusal.words
    assert (ids(task, "a"), ids(task, "b")) == ([1, 30], [1])
    assert task.checkpoint("s1") == task.upstream_end("s1")

    task.restart()
    put(task, "s1", "a_1", 11)
    put(task, "s1", "b_1", 2)
    task.sources["s1"].run(f"DELETE FROM {task.name}.a_1 WHERE id = 1")
    task.run()
    assert (ids(task, "a"), ids(task, "b")) == ([1, 30], [1, 2])
    assert next_plan(task.work(), "s1").is_empty and not task.window("s1").more

    task.target.run(f"ALTER TABLE {task.table('a')} MODIFY v VARCHAR(20)")
    task.run()
    assert stopped(task) == [] and ids(task, "a") == [10, 11, 20, 30]
    task.assert_settled()


def test_a_row_that_is_corrected_in_its_shard_needs_a_retry_only(task: LiveTask) -> None:
    task.target.run(f"ALTER TABLE {task.table('a')} MODIFY v VARCHAR(3)")
    put(task, "s1", "a_1", 1, "too long")
    task.run()
    retry(task.work(), task.work().meta.suspended_targets.all())
    task.run()
    assert stopped(task) == [("s1", "a", "id = 1", 2)] and ids(task, "a") == []
    put(task, "s1", "a_1", 1, "ok")
    task.run()
    assert ids(task, "a") == []
    outcome = run(task.work())
    assert outcome.exit_code == 0 and stopped(task) == []
    put(task, "s1", "a_1", 2, "too long")
    outcome = run(task.work())
    assert [str(trouble.error.code) for trouble in outcome.errors] == ["US-6002"] and outcome.exit_code == 4
    assert stopped(task) == [("s1", "a", "id = 2", 1)]
    task.sources["s1"].run(f"DELETE FROM {task.name}.a_1 WHERE id = 2")
    assert run(task.work()).exit_code == 0
    task.assert_settled()


def test_ddl_waits_behind_the_rows_of_a_stopped_target(task: LiveTask) -> None:
    put(task, "s1", "a_1", 1)
    task.run()
    task.target.run(f"ALTER TABLE {task.table('a')} MODIFY v VARCHAR(3)")
    put(task, "s1", "a_1", 2, "too long")
    for source, shard in (("s1", "a_1"), ("s1", "a_2"), ("s2", "a_3")):
        task.sources[source].run(
            f"ALTER TABLE {task.name}.{shard} ADD w INT DEFAULT 5",
            f"INSERT INTO {task.name}.{shard} VALUES (1{shard[-1]}, 'y', 6)",
        )
    task.sources["s1"].run(f"RENAME TABLE {task.name}.a_2 TO {task.name}.a_9")
    task.run()
    assert [str(view.state) for view in coordinate.views(task.work().meta)] == ["draining"]
    assert ids(task, "a") == [1]
    task.target.run(f"ALTER TABLE {task.table('a')} MODIFY v VARCHAR(20)")
    task.run()
    task.shards["a"] = [("s1", f"{task.name}.a_1"), ("s1", f"{task.name}.a_9"), ("s2", f"{task.name}.a_3")]
    task.assert_settled()
    assert ids(task, "a") == [1, 2, 11, 12, 13]


def test_a_death_behind_the_stop_and_rows_that_were_written_in_part(task: LiveTask, monkeypatch) -> None:
    """The window is cut into transactions of two rows; the first is done when a row does not fit."""
    bound_transactions(monkeypatch, fencesteps.Bounds(2, 1 << 20, 1))
    for number in range(5):
        put(task, "s1", "a_1", number)
    task.run()
    task.target.run(f"ALTER TABLE {task.table('a')} MODIFY v VARCHAR(3)")
    task.sources["s1"].run(
        f"UPDATE {task.name}.a_1 SET v = IF(id = 4, 'too long', 'y')",
        f"INSERT INTO {task.name}.a_1 VALUES (-1, 'z')",
        f"DELETE FROM {task.name}.a_1 WHERE id = 0",
        f"INSERT INTO {task.name}.b_1 VALUES (1, 'x')",
    )
    task.pull("s1")
    with monkeypatch.context() as patch:
        patch.setattr(Windows, "commit", died)
        with pytest.raises(Died):
            task.window("s1")
    (stop,) = task.work().meta.suspended_targets.all()
    assert stop.is_partial and 0 not in ids(task, "a") and ids(task, "b") == [1]
    task.restart()
    assert task.window("s1").stopped
    assert {file.safe for state in task.work().meta.structures.shards() for file in state.held} == {True}
    put(task, "s1", "a_1", 2, "w")
    task.run()
    held = set(task.work().storage.list("held"))
    named = {file.path for state in task.work().meta.structures.shards() for file in state.held}
    assert held == named
    task.target.run(f"ALTER TABLE {task.table('a')} MODIFY v VARCHAR(30)")
    task.run()
    task.assert_settled()


def explained(task: LiveTask, capsys) -> dict[str, str | None]:
    capsys.readouterr()
    assert main(["validate", str(task.path), "--json"]) == 2
    tables = json.loads(capsys.readouterr().out)["tables"]
    return {each["key"]["id"]: each["because"] for table in tables for each in table["differences"]}


def test_status_tells_and_the_command_line_lets_it_go_on(task: LiveTask, capsys, monkeypatch) -> None:
    monkeypatch.setenv("UNSHARD_DB_PASSWORD", "unshard")
    task.target.run(f"ALTER TABLE {task.table('a')} MODIFY v VARCHAR(3)")
    put(task, "s1", "a_1", 1, "too long")
    task.run()
    capsys.readouterr()
    task.target.run(f"INSERT INTO {task.table('a')} VALUES (9, 'x')")
    assert explained(task, capsys) == {"1": "target suspended", "9": None}
    task.target.run(f"DELETE FROM {task.table('a')}")
    assert main(["validate", str(task.path)]) == 2
    assert "1 rows of 1 shards are held: the target is suspended for s1\n" in capsys.readouterr().out
    assert main(["status", str(task.path)]) == 0
    assert "id = 1" in (said := capsys.readouterr().out) and "'v'" in said and "unshard retry" in said
    assert main(["retry", str(task.path), "--dry-run"]) == 0 and stopped(task)
    assert main(["retry", str(task.path), "--table", "no.such", "--yes"]) == 0 and stopped(task)
    assert main(["retry", str(task.path), "--table", task.table("a"), "--reason", "why", "--yes"]) == 0
    assert stopped(task) == []
    found = task.target.run(f"SELECT action, reason, details FROM {task.meta_schema}.operator_action")
    assert [(action, reason) for action, reason, _ in found] == [("retry", "why")] and "id = 1" in found[0][2]


def test_rows_are_put_aside_if_the_task_says_so(task: LiveTask, capsys, monkeypatch) -> None:
    body = yaml.safe_load(task.path.read_text())
    body["unshard"]["row-errors"] = "divert"
    task.path.write_text(yaml.safe_dump(body))
    task.restart()
    bound_transactions(monkeypatch, fencesteps.Bounds(3, 1 << 20, 1))
    for number in range(8):
        put(task, "s1", "a_1", number)
    task.run()
    task.target.run(f"ALTER TABLE {task.table('a')} MODIFY v VARCHAR(3)")
    task.sources["s1"].run(
        f"UPDATE {task.name}.a_1 SET v = IF(id IN (2, 3, 7), 'too long', 'y')",
        f"INSERT INTO {task.name}.a_2 VALUES (20, 'long too')",
    )
    put(task, "s2", "a_3", 30, "longer")
    task.pull("s1")
    with monkeypatch.context() as patch:
        patch.setattr(Windows, "commit", died)
        with pytest.raises(Died):
            task.window("s1")
    task.restart()
    before = task.work().meta.checkpoints.get("s1").rows_applied
    report = task.window("s1")
    assert (report.rows_diverted, report.rows_applied) == (4, 9 - 4), "also of what the attempt before has put aside"
    assert task.work().meta.checkpoints.get("s1").rows_applied == before + 5
    outcome = run(task.work())
    assert [(each.rows_applied, each.rows_diverted) for each in outcome.sources] == [(0, 0), (0, 1)]
    assert stopped(task) == [] and ids(task, "a") == [0, 1, 4, 5, 6]
    assert [(e.key, e.column, e.shard.table.name, e.row, e.times) for e in errors(task)] == [
        ("id = 2", "v", "a_1", '{"id": "2", "v": "too long"}', 1),
        ("id = 20", "v", "a_2", '{"id": "20", "v": "long too"}', 1),
        ("id = 3", "v", "a_1", '{"id": "3", "v": "too long"}', 1),
        ("id = 30", "v", "a_3", '{"id": "30", "v": "longer"}', 1),
        ("id = 7", "v", "a_1", '{"id": "7", "v": "too long"}', 1),
    ]
    capsys.readouterr()
    assert main(["row-errors", str(task.path), "--json"]) == 3
    assert len(json.loads(capsys.readouterr().out)["row_errors"]) == 5
    assert main(["status", str(task.path)]) == 0 and "5 rows were diverted" in capsys.readouterr().out
    because = {"2": "diverted", "3": "diverted", "7": "diverted", "20": "diverted", "30": "diverted"}
    assert explained(task, capsys) == because
    task.target.run(f"DELETE FROM {task.table('a')} WHERE id = 4")
    assert main(["validate", str(task.path)]) == 2
    said = capsys.readouterr().out
    assert f"missing: id=2 [s1 {task.name}.a_1], was diverted\n" in said and "5 rows, see `unshard row-errors`" in said
    assert f"missing: id=4 [s1 {task.name}.a_1]\n" in said
    put(task, "s1", "a_1", 4, "y")

    put(task, "s1", "a_1", 2, "ok")
    put(task, "s1", "a_1", 3, "too long again")
    task.sources["s1"].run(f"DELETE FROM {task.name}.a_1 WHERE id = 7")
    task.target.run(f"ALTER TABLE {task.table('a')} MODIFY v VARCHAR(8)")
    put(task, "s1", "a_2", 20, "fits")
    put(task, "s2", "a_3", 30, "fits, too")
    task.run()
    states = {e.key: (str(e.state), e.times) for e in errors(task)}
    assert states == {
        "id = 2": ("mended", 1),
        "id = 20": ("mended", 1),
        "id = 7": ("mended", 1),
        "id = 3": ("open", 2),
        "id = 30": ("open", 2),
    }
    task.target.run(f"ALTER TABLE {task.table('a')} MODIFY v VARCHAR(20)")
    for source, shard in (("s1", "a_1"), ("s2", "a_3")):
        task.sources[source].run(f"UPDATE {task.name}.{shard} SET v = CONCAT(v, '!')")
    task.run()
    assert {str(e.state) for e in errors(task)} == {"mended"}
    task.assert_settled()


def errors(task: LiveTask) -> list[RowError]:
    return sorted(task.work().meta.row_errors.all(), key=lambda error: error.key)
