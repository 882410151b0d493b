"""Progress of a full load that crashes, its rate limit, and parallel loads of several sources."""

import contextlib
import dataclasses
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from tests.dying import Died, dying_after
from tests.oracle import assert_union
from tests.taskfile import Settings, write_task
from unshard.cli import main
from unshard.config import load_task
from unshard.core.full.fullprogress import Progress
from unshard.units.full import dump as dumps
from unshard.units.full import load as loads
from unshard.units.full import loadchunks
from unshard.units.full.dump import dump
from unshard.units.full.load import load
from unshard.units.full.snapshot import take_snapshot
from unshard.units.task.run import PhaseBegan, Until, run
from unshard.units.task.status import full_progress
from unshard.units.work import Work, open_work
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration
SECONDS = 900.0
RATE = 200_000
TABLE = "CREATE TABLE {} (id INT PRIMARY KEY, c CHAR(60))"
ROWS = "INSERT INTO {} SELECT seq{}, REPEAT('x', 60) FROM mysql.seq_1_to_{}"


def items_here(spark: object, function: Callable[[str], object], items: list[str], parallelism: int) -> Iterator[str]:
    """Run the items in this process, where a test can let a function die."""
    for item in items:
        function(item)
    yield from ()


@pytest.fixture(autouse=True)
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (dumps, loads):
        monkeypatch.setattr(module, "map_items", items_here)


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Work]:
    with open_work(load_task(path)) as work:
        yield dataclasses.replace(work, bulk_spark=lambda: None)


def limited(path: Path) -> Path:
    body = yaml.safe_load(path.read_text())
    body["mydumpers"]["d"]["rate-limit"] = f"{RATE}B"
    path.write_text(yaml.safe_dump(body))
    return path


def test_progress_outlives_deaths_and_growing_tables_and_the_rate_is_kept(
    source_1: MariaDb,
    target: MariaDb,
    unique: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source_1.run(
        f"CREATE DATABASE {unique}",
        TABLE.format(f"{unique}.t_1"),
        ROWS.format(f"{unique}.t_1", "", 4500),
        f"CREATE TABLE {unique}.log_1 (v INT)",
        f"INSERT INTO {unique}.log_1 VALUES (1), (2)",
    )
    path = limited(write_task(tmp_path, unique, {"s1": source_1}, target, {"t": "t_*", "log": "log_*"}))
    seen: list[tuple[Progress, Progress]] = []
    with opened(path) as work:
        take_snapshot(work, "s1")
        for step, name, module in ((dump, "dump_piece", dumps), (load, "load_one_batch", loads)):
            for count in (0, 2, 1):
                with monkeypatch.context() as patch, pytest.raises(Died):
                    patch.setattr(module, name, dying_after(count, getattr(module, name)))
                    step(work, "s1")
                seen.append(full_progress(work.meta, ["s1"])["s1"])
                if step is dump:
                    source_1.run(ROWS.format(f"{unique}.t_1", f" + {10_000 * len(seen)}", 900))
            assert main(["status", str(path), "--json"]) == 0
            shown = json.loads(capsys.readouterr().out)["sources"][0]["dump" if step is dump else "load"]
            assert 0 < shown["percent"] < 100 and shown["done"] == 3 and shown["seconds_left"] > 0
            assert shown["rows_per_second"] > 0 and shown["bytes_per_second"] > 0
            assert main(["status", str(path)]) == 0
            said = f"source s1: {'dumped' if step is dump else 'loaded'} {shown['percent']:g} %"
            assert said in capsys.readouterr().out
            step(work, "s1")
            seen.append(full_progress(work.meta, ["s1"])["s1"])
        ((read, waited),) = target.run(f"SELECT bytes, waited FROM {work.task.meta_schema}.dump_rate")
        assert read == seen[-1][0].bytes == sum(chunk.bytes for chunk in work.meta.chunks.of("s1")) > 4500 * 60
        assert waited > 0, "more than a second's worth was read"
    for part in zip(*seen, strict=True):
        assert [each.percent for each in part] == sorted(each.percent for each in part)
        assert [each.rows for each in part] == sorted(each.rows for each in part)
        assert part[-1].percent == 100 and part[-1].seconds_left == 0


def test_rows_of_an_unfinished_chunk_count(
    source_1: MariaDb, target: MariaDb, unique: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source_1.run(f"CREATE DATABASE {unique}", TABLE.format(f"{unique}.t_1"), ROWS.format(f"{unique}.t_1", "", 45_000))
    path = write_task(tmp_path, unique, {"s1": source_1}, target, {"t": "t_*"}, Settings(chunk_rows=100_000))

    def at_once(job, item):
        return loadchunks.load_one_batch(dataclasses.replace(job, progress_seconds=0), item)

    monkeypatch.setattr(loads, "load_one_batch", at_once)
    with opened(path) as work:
        take_snapshot(work, "s1")
        dump(work, "s1")
        for batches, rows, percent in ((2, 40_000, 88.8), (1, 40_000, 88.8)):
            with monkeypatch.context() as patch, pytest.raises(Died):
                patch.setattr(loadchunks, "_write", dying_after(batches, loadchunks._write))
                load(work, "s1")
            _, found = full_progress(work.meta, ["s1"])["s1"]
            assert (found.done, found.rows, found.rows_under_way, found.percent) == (0, 0, rows, percent)
        load(work, "s1")
        _, found = full_progress(work.meta, ["s1"])["s1"]
        assert (found.done, found.rows, found.rows_under_way, found.percent) == (1, 45_000, 0, 100)
    ((left,),) = target.run(f"SELECT COUNT(*) FROM {unique}_meta.load_progress")
    assert left == 0
    assert assert_union({"s1": source_1}, {"s1": [f"{unique}.t_1"]}, target, f"{unique}_to.t") == 45_000


def test_sources_are_dumped_and_loaded_at_once(
    source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each source waits in the middle of its dump, and of its load, until the other is at the same point."""
    sources = {"s1": source_1, "s2": source_2}
    for number, server in enumerate(sources.values()):
        name = f"{unique}.t_{number}"
        server.run(f"CREATE DATABASE {unique}", TABLE.format(name), ROWS.format(name, f" + {number}00000", 2500))
    meetings = {name: threading.Barrier(len(sources)) for name in ("dump", "load")}

    def meeting(name: str) -> Callable[..., Iterator[str]]:
        def map_items(spark, function, items, parallelism):
            yield from items_here(spark, function, items[:1], 1)
            meetings[name].wait(SECONDS)
            yield from items_here(spark, function, items[1:], 1)

        return map_items

    monkeypatch.setattr(dumps, "map_items", meeting("dump"))
    monkeypatch.setattr(loads, "map_items", meeting("load"))
    began = []
    with opened(write_task(tmp_path, unique, sources, target, {"t": "t_*"}, Settings(chunk_rows=1000))) as work:
        outcome = run(work, Until.FULL, watch=lambda note: began.append(note) if isinstance(note, PhaseBegan) else None)
        progress = full_progress(work.meta, sources)
    assert outcome.exit_code == 0
    assert sorted(note.source for note in began if note.step == "load") == ["s1", "s2"]
    assert {source: (dump.rows, load.percent) for source, (dump, load) in progress.items()} == dict.fromkeys(
        sources, (2500, 100)
    )
    shards = {source: [f"{unique}.t_{number}"] for number, source in enumerate(sources)}
    assert assert_union(sources, shards, target, f"{unique}_to.t") == 5000
