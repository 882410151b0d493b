"""Someone between unshard and its servers requests a file in answer to any command of a whole task.

No byte of the file leaves the process, the command ends in a coded error, and a later run without the attacker brings
the target to the union of its shards.
"""

import dataclasses
from pathlib import Path

import pytest

from tests.lifetask import LifeTask, living
from tests.suite.portions import portion
from tests.unit.servers.hostile import Between, serving
from unshard.errors import UnshardError
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration
SECRET = b"what only this process may read"


@pytest.mark.mariadb_only("TiDB offers TLS, through which the attacker of this test does not look")
@pytest.mark.parametrize("role", ["source", "target"])
def test_no_command_of_a_task_gives_a_file_away(
    role: str, source_1: MariaDb, target: MariaDb, unique: str, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_bytes(SECRET)
    real = source_1 if role == "source" else target
    attacker = Between(real.port, b"\xfb" + bytes(tmp_path / "secret"))
    with serving(attacker) as hostile:
        reached = dataclasses.replace(real, port=hostile.port)
        servers = (reached, target) if role == "source" else (source_1, reached)
        with living(unique, tmp_path, {"s1": servers[0]}, servers[1]) as task:
            shard = task.make_shard("s1", 1, 1, 2)
            task.go()
            found: set[str] = set()
            began, times, width = len(attacker.commands), portion(2, 3, 60), 0
            for attacked in range(times + 1):  # the first run is not attacked; it shows how many commands a run has
                task.insert("s1", shard, attacked + 3)
                if attacked:
                    attacker.number = len(attacker.commands) + (attacked - 1) * width // times
                    found |= codes_of_a_run(task)
                    assert SECRET not in b"".join(attacker.heard)
                    attacker.number = -1
                task.go()
                assert task.assert_union() == attacked + 3
                width = width or len(attacker.commands) - began
    assert "US-2013" in found and "US-7012" not in found


def codes_of_a_run(task: LifeTask) -> set[str]:
    """Run a task that may fail; any error without a code fails the test."""
    try:
        return {trouble.error.code for trouble in task.run().errors}
    except UnshardError as error:
        return {error.code}
