"""One command reads the state of all shards once, and once more after each change; it simulates what it shows."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.calls import Counts, counted
from tests.integration.ddl.test_lockcommands import AT, FIRST, SECOND, Service, sitting_at
from tests.integration.task.test_cli import World
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration


class Desk(Service):
    """An operator at a lock in conflict."""

    def conflict(self) -> str:
        """Let both shards add a column, each with its own type; return the lock."""
        self.ddl(FIRST, "ADD a VARCHAR(20)")
        self.ddl(SECOND, "ADD a VARCHAR(30)")
        found = self.lock()
        assert found is not None and found["state"] == "conflict"
        return str(found["id"])

    def counts(self, *given: str, code: int = 0) -> Counts:
        """Return the counts of a command of the command line."""
        codes: list[int] = []
        found = counted(lambda: codes.append(self.run(*given)[0]))
        assert codes == [code]
        return found

    @property
    def same(self) -> tuple[str, str]:
        """The statement of the first shard as the one of the second."""
        return "--sql", f"ALTER TABLE {self.world.schema}_1.{SECOND[1]} ADD a VARCHAR(20)"


@pytest.fixture
def desk(
    source_1: MariaDb,
    source_2: MariaDb,
    target: MariaDb,
    unique: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[Desk]:
    monkeypatch.setenv("UNSHARD_DB_PASSWORD", "unshard")
    with sitting_at(Desk, World(source_1, source_2, target, unique, tmp_path), capsys) as found:
        yield found


def test_a_look_reads_the_shards_once_and_simulates_what_it_shows(desk: Desk) -> None:
    lock, shard = desk.conflict(), ("--shard", desk.shard(SECOND))
    assert desk.counts("status") == (1, 0)
    assert desk.counts("locks", code=3) == (1, 1)
    assert desk.counts("unlock", lock, "--dry-run") == (1, 1)
    assert desk.counts("skip", lock, *shard, "--dry-run") == (1, 1)
    assert desk.counts("replace", lock, *shard, *desk.same, "--dry-run") == (1, 1)
    assert desk.counts("drop-shard", lock, *shard, "--dry-run") == (1, 1)


def test_unlock_in_a_conflict_reads_the_shards_once_after_each_change(desk: Desk) -> None:
    """For the preview, for the command, after it, and for the execution; then no lock is open."""
    assert desk.counts("unlock", desk.conflict(), *AT) == (4, 1)
    assert desk.executed() == [("ADD a VARCHAR(20)", "executed")]


def test_skip_in_a_conflict_reads_the_shards_three_times(desk: Desk) -> None:
    """For the preview, for the command, and after it."""
    assert desk.counts("skip", desk.conflict(), "--shard", desk.shard(SECOND), *AT) == (3, 1)
    assert desk.executed() == []


def test_replace_in_a_conflict_reads_the_shards_once_after_each_change(desk: Desk) -> None:
    """For the preview, for the command, after it, and for the execution; then no lock is open."""
    assert desk.counts("replace", desk.conflict(), "--shard", desk.shard(SECOND), *desk.same, *AT) == (4, 1)
    assert desk.executed() == [("ADD a VARCHAR(20)", "executed")]
