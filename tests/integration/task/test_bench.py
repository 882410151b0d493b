"""The bench runs: every part gives figures, and every comparison in it holds. The figures are not asserted."""

import contextlib
import json
import time
from pathlib import Path

import pytest

from tests.bench.__main__ import main
from tests.bench.cpu import Spent
from tests.bench.figures import Figure, Group, page, ratio
from tests.bench.fullload import filled_sources
from tests.bench.livemerge import COLUMNS, Sampler, ages, await_true, merging
from tests.bench.longrun import Stretch, by_tenth
from tests.bench.memory import Peaks
from tests.bench.settings import PLAIN, described
from tests.bench.size import STEP, enough
from tests.bench.workloads import Workload
from unshard_demo import servers
from unshard_demo.servers import MariaDb

pytestmark = [pytest.mark.integration, pytest.mark.slow]

SMALL = ("--rounds", "1", "--rows", "240", "--without-spark")
FLAT = (1.0, 1.0, 1.0, 3.0)


@pytest.mark.test_all("the parts of the bench take minutes; the other tests run those that change")
def test_every_part_gives_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    markdown = tmp_path / "figures.md"
    found = main([*"dfghijklmno", *SMALL, "--out", str(tmp_path), "--page", str(markdown)])
    assert {group.title[0] for group in found} == set("dfghijklmno" if servers.is_tidb_built() else "dfghijklmo")
    shown, stored = markdown.read_text(), json.loads((tmp_path / "bench.json").read_text())
    printed = capsys.readouterr().out
    for group, one in zip(found, stored, strict=True):
        assert f"### {group.title}\n\n{group.about}." in shown
        assert all(figure.values and f"| {figure.name} |" in shown for figure in group.figures)
        assert [each["name"] for each in one["figures"]] == [figure.name for figure in group.figures]
        assert group.about in printed


@pytest.mark.test_all("the part starts unshard twice, with a Spark of its own")
def test_what_users_get(tmp_path: Path) -> None:
    short = ("--rounds", "1", "--rows", "240", "--changes", "100", "--load-seconds", "1", "--idle-seconds", "1")
    (group,) = main(["q", "--sources", "2", *short, "--out", str(tmp_path)])
    assert {figure.name for figure in group.figures} >= {
        "idle: CPU of the command without Spark",
        "200/s: commit upstream to visible downstream, median",
        "2,000/s: commit upstream to visible downstream, 95 of 100",
        "last ALTER of a shard to the target's column",
        "last ALTER of a shard to the last held row",
        "backlog of 100 transactions, from the start",
    }


def test_rows_of_the_writers_are_seen_in_the_target(tmp_path: Path) -> None:
    """The writers continue where they were, and a row is as old as the first sample that shows it."""
    with merging(tmp_path, 2, 4, 40, ()) as merge:
        merge.target.run("CREATE DATABASE live_to", f"CREATE TABLE live_to.orders ({COLUMNS})")
        with Sampler(merge) as sampler:
            with merge.load(100):
                await_true(lambda: sum(merge.written.values()) > 50, 60, "rows", lambda: None)
            merge.write(7)
            assert sum(merge.written.values()) == sum(merge.newest()) - sum(shard.loaded for shard in merge.shards)
            copied = time.time()
            for shard in merge.shards:
                rows = merge.sources[shard.source].run(f"SELECT * FROM {shard.table}")
                with contextlib.closing(merge.target.connect()) as connection, connection.cursor() as cursor:
                    cursor.executemany("INSERT INTO live_to.orders VALUES (%s, %s, %s, %s, %s)", rows)
            await_true(lambda: sampler.newest == merge.newest(), 60, "samples", lambda: None)
        merge.await_equal(60, lambda: None)
        merge.compare()
        made = merge.made(0.0, copied)
        assert sum(map(len, made)) == 40 + sum(merge.written.values())
        assert sampler.seen_at(merge.newest()) >= copied
        assert min(ages(sampler.samples, made)) >= 0


def test_the_age_of_a_row_ends_with_the_first_sample_that_shows_it() -> None:
    samples = [(10.0, (1, 100)), (11.0, (3, 100)), (12.5, (3, 102))]
    made = [[(2, 10.25), (3, 10.5)], [(101, 10.5), (102, 12.0)]]
    assert ages(samples, made) == [0.75, 0.5, 2.0, 0.5]


def test_a_backlog_that_lasts_as_long_as_wanted(tmp_path: Path) -> None:
    (group,) = main(["d", "--backlog-seconds", "0.2", *SMALL, "--threads", "1", "--out", str(tmp_path)])
    changes = int(group.about.partition(" changes in ")[0].rpartition(" ")[2].replace(",", ""))
    assert changes >= STEP and changes % STEP == 0
    assert [figure.name.partition(": ")[2] for figure in group.figures] == [
        "unshard, warm Spark session",
        "native replication, 1 thread",
        "unshard to native replication's best",
    ]


def test_no_round_begins_that_would_end_later_than_its_part(tmp_path: Path) -> None:
    (group,) = main(["g", *SMALL, "--rounds", "3", "--part-seconds", "0", "--out", str(tmp_path)])
    assert "; 1 rounds, " in group.about and {len(figure.values) for figure in group.figures} == {1}


@pytest.mark.test_all("the other test loads a tenth by the same rule")
def test_a_peer_that_nobody_would_choose_replays_a_tenth_once(tmp_path: Path) -> None:
    (group,) = main(["b", *SMALL, "--rounds", "2", "--threads", "1", "--out", str(tmp_path)])
    assert "; 2 rounds, " in group.about and " 240 changes in " in group.about
    assert {figure.name.partition(": ")[2]: len(figure.values) for figure in group.figures} == {
        "unshard, warm Spark session": 2,
        "native replication, 1 thread": 2,
        "mariadb-binlog | mariadb, 24 changes, once": 1,
        "unshard to native replication's best": 2,
    }


def test_a_peer_that_nobody_would_choose_loads_a_tenth() -> None:
    with filled_sources(240, PLAIN) as load:
        load.contend("theirs", load.pipe, 24)
        assert load.loaded == {"theirs": 8 * 24}


@pytest.mark.parametrize("name", ["mixed", "wide"])
def test_a_table_may_have_millions_of_rows(source_1: MariaDb, unique: str, name: str) -> None:
    few, many = (Workload(name, rows, 4, unique) for rows in (0, 20_000_004))
    source_1.run(f"CREATE DATABASE {unique}", *few.prepare(), *many.fill(20_000_001, 20_000_004))
    assert source_1.run(f"SELECT COUNT(*) FROM {many.table}") == [(4,)]
    source_1.run(f"DROP DATABASE {unique}")


@pytest.mark.test_all("only the options of the servers differ")
def test_durable_servers(tmp_path: Path) -> None:
    (group,) = main(["b", "--durable", *SMALL, "--out", str(tmp_path)])
    assert group.title == "b: inserts, durable settings"
    shared, *own = group.settings
    for setting in ("innodb_doublewrite=ON", "innodb_flush_log_at_trx_commit=1", "sync_binlog=1", "log_bin=ON"):
        assert f"`{setting}`" in shared
    updates = {line.partition(":")[0]: "`log_slave_updates=ON`" in line for line in own}
    assert updates == {
        "target": True,
        "native replication, 2 threads": True,
        "native replication, 8 threads": True,
        "source": False,
    }


def test_ratios_are_taken_round_by_round() -> None:
    ours, theirs = Figure("a", "ours", "x/s", (4.0, 9.0, 1.0)), Figure("a", "theirs", "x/s", (2.0, 3.0, 1.0))
    both = ratio("a", "both", ours, theirs, ">= 2")
    assert (both.values, both.median, both.met) == ((2.0, 3.0, 1.0), 2.0, True)
    assert ratio("a", "both", theirs, ours, ">= 2").met is False and ours.met is None
    assert "| 2.000 | x | 1.000 to 3.000 |  | >= 2: yes |" in page([Group("a: all", "here", [both])])


def test_the_page_begins_with_what_users_get() -> None:
    shown = page([_group(f"{letter}: part", "name", "here") for letter in "aqbp"])
    assert [line[4] for line in shown.splitlines() if line.startswith("### ")] == ["p", "q", "a", "b"]
    shown = page([_group(f"p: part, {sources} sources", "name", "here") for sources in (16, 2)])
    assert shown.index(" 2 sources") < shown.index(" 16 sources")


def test_a_run_replaces_the_sections_of_its_own_parts() -> None:
    one = [_group("l: links", "first", "machine one"), _group("a: all", "other", "machine one")]
    page_of_one = page(one)
    assert page_of_one.index("### a: all") < page_of_one.index("### l: links")
    both = page(
        [_group("l: links", "second", "machine two"), _group("l: links, durable", "safe", "machine two")], page_of_one
    )
    assert "| first |" not in both and both.count("machine one") == 1
    assert [line for line in both.splitlines() if line.startswith("### ")] == [
        "### a: all",
        "### l: links",
        "### l: links, durable",
    ]
    assert page([], both) == both


def _group(title: str, name: str, about: str) -> Group:
    return Group(title, about, [Figure(title[0], name, "s", (1.0,))], ["source: `a=1`"], ["a note."])


def test_settings_that_all_servers_share_are_in_one_line() -> None:
    assert [*described({"source": {"a": "1", "b": "2"}, "target": {"a": "1", "b": "3"}})] == [
        "all servers: `a=1`",
        "source: `b=2`",
        "target: `b=3`",
    ]
    assert [*described({})] == []


@pytest.mark.parametrize(
    ("speeds", "seconds", "changes"),
    [
        ((100_000.0, 100_000.0), 60.0, 6_600_000),
        ((100_000.0, 50_000.0), 60.0, 6_600_000),
        ((50_000.0, 100_000.0), 60.0, 6_600_000),
        ((100_000.0, 1_000.0), 60.0, 264_000),
        ((10.0, 10.0), 1.0, 4_000),
    ],
)
def test_the_changes_that_take_the_wanted_time(speeds: tuple[float, float], seconds: float, changes: int) -> None:
    assert enough(speeds, seconds) == changes


def window(changes: int, wall: float, server: float = 1.0, peaks: Peaks = FLAT) -> Stretch:
    return Stretch(changes, Spent(wall, {"server": server}), peaks)


def test_windows_belong_to_the_tenth_that_has_their_middle() -> None:
    peaks = (5.0, 1.0, 1.0, 7.0)
    tenths = by_tenth([window(10, 1.0), window(10, 2.0, 2.0, peaks), window(80, 4.0), window(95, 5.0), window(5, 1.0)])
    assert [tenth.rate for tenth in tenths] == [20 / 3.0, 20.0, 19.0, 5.0]
    assert [tenth.cost(["server"]) for tenth in tenths] == [3e6 / 20, 1e6 / 80, 1e6 / 95, 1e6 / 5]
    assert [tenth.peaks for tenth in tenths] == [peaks, FLAT, FLAT, FLAT]
