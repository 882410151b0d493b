"""The page of a task with 10 and with 1,000 shards: its statements, its lists, and its charts after real windows."""

import contextlib
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from html import unescape
from pathlib import Path

import pytest
from sqlalchemy import Engine, event

from tests.integration.ddl.test_intent import lock_for
from tests.integration.task.test_lock_page import SOURCE, TASK, browse, browse_json
from tests.livetask import LiveTask, living
from unshard.adapters.meta import Meta, tables, windowrecords
from unshard.adapters.meta.rowvalues import HELD_FILE, entry_columns
from unshard.config import ShardMode
from unshard.core.ddl.queue import HeldFile
from unshard.core.model import Location, Shard, TableId
from unshard.core.task.state import Phase
from unshard_demo.servers import MariaDb

pytestmark = [pytest.mark.integration, pytest.mark.on_tidb]

LOCKS = 50
READS = ("", "/shards", "/shards?search=t_7", "/changes", "/events", "/lock/{lock}")
API = ("", "/locks", "/locks/{lock}", "/commands", "/shards", "/history", "/history?hours=24", "/events")


@dataclass
class Crowd:
    """A task whose targets all have an open lock: one shard of each has reached its DDL."""

    meta: Meta
    lock: str

    def paths(self) -> list[str]:
        page = [f"/task/{self.meta.task}{path}" for path in READS]
        api = [f"/api/tasks/{self.meta.task}{path}" for path in API]
        return ["/", "/api/tasks", *(path.format(lock=self.lock) for path in (*page, *api))]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    if "airflow" not in sys.modules:
        monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    monkeypatch.setenv("UNSHARD_DB_PASSWORD", "unshard")
    monkeypatch.setenv("UNSHARD_TASKS", str(tmp_path))
    return tmp_path


@contextlib.contextmanager
def crowd(source: MariaDb, target: MariaDb, folder: Path, name: str, locks: int, shards: int) -> Iterator[Crowd]:
    """Make the meta tables of a task that has read all binlog of its source."""
    schema = f"{name}_meta"
    ((file, position, *_),) = source.run("SHOW MASTER STATUS")
    (folder / "sources").mkdir(exist_ok=True)
    (folder / "sources/s1.yaml").write_text(SOURCE.format(port=source.port))
    (folder / "task.yaml").write_text(TASK.format(name=name, schema=schema, port=target.port, folder=folder))
    with contextlib.closing(Meta(target.server, schema, name)) as meta:
        meta.create_tables()
        try:
            lock = lock_for(meta, TableId("shop", "orders_0"), "ADD COLUMN c int")
            meta.sources.set_phase("s1", Phase.SYNC)
            add_shards(meta, locks, shards)
            target.run(f"UPDATE {schema}.checkpoint SET file = '{file}', position = {position}")
            yield Crowd(meta, lock)
        finally:
            target.run(f"DROP DATABASE {schema}")


def add_shards(meta: Meta, locks: int, shards: int) -> None:
    """Add locks with a shard each, then shards that lack the DDL, in few statements."""
    (first,) = meta.structures.shards()
    each = [Shard("s1", TableId(f"shard_{number}", f"t_{number}")) for number in range(2, shards + 1)]
    targets = {shard: TableId("shop", f"orders_{(number + 1) % locks}") for number, shard in enumerate(each)}
    entries = [replace(first.queue[0], shard=shard, target=targets[shard]) for shard in each[: locks - 1]]
    has = {entry.shard for entry in entries}
    same = {"digest": first.structure, "has_left": False, "dropped": False, "start_file": None, "start_position": None}
    rows = [
        {**same, "shard": shard, "target": target, "last_seq": shard in has, "shard_uid": str(shard)}
        for shard, target in targets.items()
    ]
    queue = [{**entry_columns(entry), "window": 1, "seen_at": tables.NOW} for entry in entries]
    with meta._database.transaction() as db:
        db.insert_all(tables.shard, rows)
        db.insert_all(tables.shard_ddl, queue)
        for shard in (first.shard, *has):
            file = HeldFile(shard, 1, 1, 0, f"held/{shard}", 100, 5000, "", first_time=1_700_000_000)
            db.insert(tables.held_rows, {**HELD_FILE.columns(file), "held_at": tables.NOW})
    for entry in entries:
        meta.locks.create(entry.target, entry)


@contextlib.contextmanager
def statements() -> Iterator[list[str]]:
    found: list[str] = []

    def note(connection: object, cursor: object, text: str, *_: object) -> None:
        found.append(text)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        event.remove(Engine, "before_cursor_execute", note)


def counted(crowd: Crowd) -> dict[str, int]:
    found = {}
    for path in crowd.paths():
        with statements() as some:
            browse(("GET", path, {}))
        found[path.replace(crowd.meta.task, "T").replace(crowd.lock, "L")] = len(some)
    return found


def test_no_page_has_more_statements_for_more_shards_or_locks(
    source_1: MariaDb, target: MariaDb, folder: Path, unique: str
) -> None:
    with crowd(source_1, target, folder, unique, 1, 10) as few:
        expected = counted(few)
    with crowd(source_1, target, folder, unique, LOCKS, 1000) as many:
        assert counted(many) == expected
        page, changes = browse(("GET", f"/task/{unique}", {}), ("GET", f"/task/{unique}/changes", {}))
    assert max(expected.values()) < 60, expected
    assert len(re.findall(r'class="state waiting"', page)) == LOCKS and "run the DDL of lock" in page
    assert changes.count('<section class="matrix">') == LOCKS and "19 shards" in changes


def test_no_page_has_more_statements_for_more_shards_in_optimistic_mode(
    source_1: MariaDb, target: MariaDb, folder: Path, unique: str
) -> None:
    found = []
    for count in (2, 12):
        name = f"{unique}_{count}"
        shards = {"columns": {"t": "id INT PRIMARY KEY"}, "numbers": {("s1", "t"): range(1, count + 1)}}
        with living(
            name, folder, (source_1, target), "t", ShardMode.OPTIMISTIC, window_bytes=1 << 20, **shards
        ) as task:
            task.path.write_text(task.path.read_text().replace("pessimistic", "optimistic"))
            run(task, "INSERT INTO {}.t_1 VALUES (1)", "ALTER TABLE {}.t_1 ADD COLUMN c INT")
            found.append({})
            for path in ("", "/changes", "/shards"):
                with statements() as some:
                    (page,) = browse(("GET", f"/task/live{path}", {}))
                found[-1][path] = len(some)
                assert path == "/shards" or "column c" in page
            assert "2 columns" in page and f"{count} shards" in page
    assert found[0] == found[1]


def test_search_and_pages_of_a_thousand_shards(source_1: MariaDb, target: MariaDb, folder: Path, unique: str) -> None:
    with crowd(source_1, target, folder, unique, 2, 1000) as many:
        first, found, last, none = (
            unescape(page)
            for page in browse(
                ("GET", f"/task/{unique}/shards", {}),
                ("GET", f"/task/{unique}/shards?search=S1%20SHARD_77.t", {}),
                ("GET", f"/task/{unique}/shards?first=900", {}),
                ("GET", f"/task/{unique}/shards?search=100%25", {}),
            )
        )
        assert "1,000 shards, 1 to 100" in first and first.count("<tr id=") == 100
        assert ">s1 shard_77.t_77<" in found and found.count("<tr id=") == 1
        assert "901 to 1,000" in last and 'rel="next"' not in last and 'rel="prev"' in last
        assert "0 shards" in none, "a percent sign is no wildcard"
        (shard,) = many.meta.structures.listed("shard_77.", 0, 10)[1]
        assert (shard.queued, shard.position, shard.held_rows) == (0, None, 0)
        waiting = [each for each in many.meta.structures.listed("", 0, 1000)[1] if each.queued]
        expected = [(1, Location("b.000001", 100), 100, 5000)] * 2
        assert [(each.queued, each.position, each.held_rows, each.held_bytes) for each in waiting] == expected


def test_charts_and_events_after_real_windows(
    source_1: MariaDb, target: MariaDb, unique: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windowrecords, "RATE_SECONDS", 300)  # no machine is so slow
    shards = {"columns": {"t": "id INT PRIMARY KEY, v INT"}, "numbers": {("s1", "t"): (1, 2)}, "window_bytes": 1 << 20}
    with living(unique, folder, (source_1, target), "t", **shards) as task:
        run(task, "INSERT INTO {}.t_1 VALUES (1, 1)")
        run(task, "INSERT INTO {}.t_1 VALUES (2, 2)")
        run(task, "ALTER TABLE {}.t_1 ADD COLUMN c INT", "INSERT INTO {}.t_1 VALUES (3, 3, 3)")
        charts = browse_json("/api/tasks/live/history")
        assert (len(charts["at"]), sum(filter(None, charts["rows_per_second"])) > 0) == (61, True)
        assert max(lag for lag in charts["lag_seconds"] if lag is not None) < 600
        assert browse_json("/api/tasks/live/history?hours=24")["at"][1] - charts["at"][0] < 86400
        status = browse_json("/api/tasks/live")
        assert status["rows_per_second"] > 0 and status["rows_held"] == 1 and status["sources"][0]["windows"] >= 2
        (shard,) = browse_json("/api/tasks/live/shards?search=t_1")["shards"]
        assert (shard["queued"], shard["held_rows"]) == (1, 1) and shard["position"] != status["sources"][0]["position"]
        assert [event["kind"] for event in browse_json("/api/tasks/live/events")] == ["lock opened", "DDL seen"]
        run(task, "ALTER TABLE {}.t_2 ADD COLUMN c INT")
        kinds = {event["kind"]: event for event in browse_json("/api/tasks/live/events")}
        assert kinds.keys() == {"DDL seen", "lock opened", "executed", "lock resolved"}
        assert len(kinds["DDL seen"]["shards"]) == 2
        lock = browse_json(f"/api/tasks/live/locks/{kinds['executed']['lock']}")
        assert [arrival["shard"].rpartition(".")[2] for arrival in lock["arrivals"]] == ["t_1", "t_2"]
        task.assert_settled()


def run(task: LiveTask, *statements: str) -> None:
    for text in statements:
        task.sources["s1"].run(text.format(task.name))
    task.run()
    task.restart()


def test_samples_are_once_a_minute_and_kept_for_a_day(
    source_1: MariaDb, target: MariaDb, unique: str, folder: Path
) -> None:
    shards = {"columns": {"t": "id INT PRIMARY KEY, v INT"}, "numbers": {("s1", "t"): (1,)}, "window_bytes": 1 << 20}
    with living(unique, folder, (source_1, target), "t", **shards) as task:
        windows = task.work().meta.windows
        for number in range(3):
            windows._sampled.clear()  # as if each window were the first of its process
            task.sources["s1"].run(f"INSERT INTO {unique}.t_1 VALUES ({number}, 1)")
            task.run()
        stored, present = windows.samples(60, 1)[:-1], windows.samples(60, 1)[-1]
        assert 1 <= len(stored) <= 3 and stored[0].rows_applied == 1 and present.rows_applied == 3
        assert present.windows == 3 and present.millis > 0 and present.lag_seconds is None
        at = f"{task.meta_schema}.sample"
        target.run(f"UPDATE {at} SET minute = minute - 3000 WHERE task = 'live'")
        assert windows.samples(60, 1) == (replace(present, minute=windows.samples(60, 1)[0].minute),)
