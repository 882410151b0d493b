"""The arguments of the demo, and how it counts windows."""

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from unshard.config import ShardMode, load_task
from unshard.core.ddl.queue import HeldFile
from unshard.core.model import Location, Shard, TableId
from unshard.core.window.plan import Disposition, Plan, Read, Release
from unshard_demo import stage
from unshard_demo.__main__ import main
from unshard_demo.airflow import components
from unshard_demo.story import JOIN, ReachedDdl, dags, held_shards

ROOT = Path(__file__).parents[2]
TARGET = TableId("shop", "orders")
CANARY, OTHER = (Shard("shop-1", TableId("shop_01", name)) for name in ("orders_1", "orders_2"))
DDL = ReachedDdl(CANARY, 1, 5, "after")


@pytest.mark.parametrize("mode", ["pessimistic", "optimistic"])
def test_the_task_has_the_mode(mode: str, tmp_path: Path) -> None:
    stage.write_tasks(tmp_path, mode)
    task = load_task(tmp_path / "tasks" / f"{stage.TASK}.yaml")
    assert task.shard_mode == ShardMode(mode)
    assert (JOIN in dags(task)) == (mode == "optimistic")


def test_an_unknown_mode_is_rejected_with_the_known_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["run", "--folder", str(tmp_path / "demo"), "--mode", "strict"])
    assert ended.value.code == 2 and not (tmp_path / "demo").exists()
    message = capsys.readouterr().err
    assert "'strict'" in message and "pessimistic" in message and "optimistic" in message


@pytest.mark.parametrize("goal", ["demo", "demo-up"])
@pytest.mark.parametrize(("given", "mode"), [((), "pessimistic"), (("MODE=optimistic",), "optimistic")])
def test_make_passes_the_mode_on(goal: str, given: tuple[str, ...], mode: str) -> None:
    lines = subprocess.run(["make", "--dry-run", goal, *given], cwd=ROOT, text=True, capture_output=True, check=True)
    (command,) = re.findall(r"-m unshard_demo .*", lines.stdout)
    assert command.endswith(f"--mode {mode}")


def test_only_celery_has_a_worker() -> None:
    """The last component is stopped first."""
    assert components("CeleryExecutor") == ["api-server", "dag-processor", "triggerer", "worker", "scheduler"]
    assert components("LocalExecutor") == ["api-server", "dag-processor", "triggerer", "scheduler"]


# --- windows


def plan(number: int, *, hold: Shard | None = None, write: Shard | None = None, release: Shard | None = None) -> Plan:
    """Return a window that holds, writes or releases rows of a shard after its first DDL."""
    at = Location("mysql-bin.000001", number)
    rows = [Disposition(shard, TARGET, "after", held, None) for shard, held in ((hold, 1), (write, None)) if shard]
    files = (HeldFile(release, 1, number - 1, 0, "held", 1, 1, "after"),) if release else ()
    releases = (Release(release, files, TARGET),) if release else ()
    reads = (Read("segment", at.file, ((0, 1),), tuple(rows)),)
    return Plan("shop-1", number, at, replace(at, position=number + 1), False, releases, reads, (), (), "", 0)


def test_rows_that_wait_for_one_window_take_two() -> None:
    plans = [plan(5, hold=CANARY, write=OTHER), plan(6, release=CANARY), plan(7, write=CANARY)]
    assert DDL.windows(plans) == 2
    assert held_shards(plans) == {CANARY}


def test_rows_that_wait_longer_take_more() -> None:
    plans = [plan(5, hold=CANARY), plan(6, hold=CANARY), plan(7, write=OTHER), plan(8, release=CANARY)]
    assert DDL.windows(plans[:3]) is None
    assert DDL.windows(plans) == 4


def test_rows_that_come_later_do_not_wait() -> None:
    assert DDL.windows([plan(4, write=CANARY), plan(5), plan(6), plan(7, write=CANARY)]) == 1
    assert DDL.windows([plan(5, hold=OTHER)]) is None
