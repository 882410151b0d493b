"""The write path is shown: `check` tests it, `status` shows the path that the last writing process used."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.livetask import LiveTask, living
from unshard.cli import main
from unshard.core.rows.writepath import MOST_SESSIONS
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration
WORKERS = 16
"""The default of `worker-count`."""
EXPECTED = {
    "mariadb_target": ("bulk", "takes part in the open transaction"),
    "load_data_target": ("load-data", "takes part in the open transaction"),
    "statements_target": ("statements", "is refused"),
    "tidb_target": ("statements", "commits the open transaction"),
}


def told(task: LiveTask, command: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    main([command, str(task.path), "--json"])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize("name", EXPECTED)
def test_check_tries_it_and_status_shows_what_was_used(
    name: str,
    request: pytest.FixtureRequest,
    source_1: MariaDb,
    unique: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    target, expected = request.getfixturevalue(name), EXPECTED[name]
    shards = {"columns": {"t": "id INT PRIMARY KEY"}, "numbers": {("s1", "t"): (1,)}}
    with living(unique, tmp_path, (source_1, target), ("t",), **shards) as task:
        tables = target.run(f"SHOW TABLES FROM {task.meta_schema}")
        (checked,) = [item for item in told(task, "check", capsys)["items"] if item["name"] == "write_path"]
        assert (checked["severity"], checked["place"]) == ("ok", "target")
        assert expected[1] in checked["message"]
        assert ("COM_STMT_BULK_EXECUTE" in checked["message"]) is (expected[0] == "bulk")
        assert target.run(f"SHOW TABLES FROM {task.meta_schema}") == tables, "the table of the trial is dropped"

        found = told(task, "status", capsys)
        assert (found["write_path"], found["load_data"]) == (None, None), "looking starts no trial"
        assert main(["status", str(task.path)]) == 0
        assert "the way of writing rows is not known yet" in capsys.readouterr().out
        assert target.run(f"SHOW TABLES FROM {task.meta_schema}") == tables

        source_1.run(f"INSERT INTO {unique}.t_1 VALUES (1)")
        task.run()
        found = told(task, "status", capsys)
        assert (found["write_path"], found["load_data"]) == expected
        ((source, sessions),) = found["write_sessions"].items()
        assert source == "s1"
        assert sessions in ((WORKERS,) if expected[0] == "statements" else range(1, MOST_SESSIONS + 1))
        assert main(["status", str(task.path)]) == 0
        said = capsys.readouterr().out
        assert expected[1] in said and f"up to {sessions} session" in said
