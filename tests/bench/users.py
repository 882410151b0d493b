"""Parts p and q: what users get, through Airflow's DAGs and through `unshard run --follow`.

Each case has its own servers and runs through these steps. Two sources have four shards each, more sources one each.

1. The task loads the shards. Then nothing is written until nothing moves: that time is measured as idle.
2. The sources write 200 one-row transactions per second in all, later 2,000. The age of the first row after the idle
   time is a figure of its own. The other ages are of rows that are written later.
3. With two sources, all shards get a column, one shard after the other, while 200 rows per second are written.
4. The task rests while the sources write a backlog. Then it goes on until the target has all rows.
5. The target is compared with the union of the shards.
"""

import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench import cpu
from tests.bench.cpu import Times
from tests.bench.figures import Figure
from tests.bench.livemerge import LiveMerge, Sampler, ages, await_true, merging, reached
from tests.bench.size import Size
from tests.bench.stand import Stand
from tests.bench.ways import PATIENCE_SECONDS, Way, through_airflow, through_command

SOURCES = (2, 16)
MOST_ROWS = 20_000
"""Rows of all shards before the first change: the load is not measured."""
BACKLOG = 80_000
SLOW, FAST = 200, 2000
"""Transactions per second, in all sources together."""
EIGHT = 8
SETTLE_SECONDS = 5.0
"""A load has run so long since its first row was visible when the measured time begins."""
DDL_GAP_SECONDS = 2.0
HOUR = 3600.0
COLUMN = "channel"
ALTER = f"ALTER TABLE {{table}} ADD COLUMN {COLUMN} VARCHAR(20) NOT NULL DEFAULT 'web'"
Goals = Mapping[str, str]
AIRFLOW_GOALS: Goals = {"median": "<= 0.5", "95 of 100": "<= 1", "own": "<= 0.3", "idle": "<= 0", "lock": "<= 8"}
COMMAND_GOALS: Goals = {"median": "<= 0.15", "95 of 100": "<= 0.3"}
MANY_GOALS: Goals = {"95 of 100": "<= 2"}
PER_HOUR = (
    "DAG runs, task instances, log files and bytes per hour are counted over the measured time and scaled to an hour."
    " A live run lasts up to ten minutes, so a short time has none, or one that counts as many. `All steps` counts from"
    " the end of the load of the shards to the end of the backlog, without scaling."
)


@dataclass(frozen=True, slots=True)
class Kind:
    """A part: a way to run a task."""

    part: str
    title: str
    opened: Callable[[LiveMerge], AbstractContextManager[Way]]
    goals: Goals
    """With two sources."""
    notes: Sequence[str] = ()


AIRFLOW = Kind("p", "what users of Airflow get", through_airflow, AIRFLOW_GOALS, [PER_HOUR])
COMMAND = Kind("q", "what users of `unshard run --follow` get", through_command, COMMAND_GOALS)


@dataclass
class Found:
    """The values of a part so far, by figure."""

    part: str
    values: dict[tuple[str, str, str], list[float]] = field(default_factory=lambda: defaultdict(list))
    """By name, unit and goal."""
    cpu: dict[str, list[Mapping[str, float]]] = field(default_factory=lambda: defaultdict(list))

    def add(self, name: str, unit: str, value: float, goal: str = "", spent: Mapping[str, float] | None = None) -> None:
        self.values[name, unit, goal].append(value)
        self.cpu[name] += [spent] if spent else []

    def figures(self) -> Iterator[Figure]:
        for (name, unit, goal), values in self.values.items():
            each = self.cpu[name]
            spent = {place: statistics.median(one[place] for one in each) for place in each[0]} if each else {}
            yield Figure(self.part, name, unit, tuple(values), spent, goal)


@dataclass(frozen=True, slots=True)
class Span:
    """A measured time: its seconds, CPU seconds by place, and the counts that have risen."""

    seconds: float
    spent: Mapping[str, float]
    counts: Mapping[str, int]


def measure(kind: Kind, sources: int, stand: Stand, size: Size) -> list[Figure]:
    """Return what users of one way get with so many sources."""
    found, backlog, rows = Found(kind.part), size.changes or BACKLOG, min(size.rows, MOST_ROWS)
    shards, goals = max(EIGHT, sources), kind.goals if sources == 2 else MANY_GOALS
    stand.conditions.append(f"{shards} shards with {rows:,} rows, {backlog:,} rows in the backlog")
    stand.conditions.append(f"{size.load_seconds:.0f} s of each load, {size.idle_seconds:.0f} s idle")
    for _ in stand.rounds(size.rounds):
        with tempfile.TemporaryDirectory(dir=stand.folder) as name:
            with merging(Path(name), sources, shards, rows, stand.settings.target) as merge:
                stand.note_settings("target", merge.target)
                stand.note_settings("source", merge.sources["s1"])
                with kind.opened(merge) as way:
                    _Case(merge, way, found, goals).run(size, backlog)
                    merge.compare()
    stand.notes += kind.notes
    return [*found.figures()]


class _Case:
    """The steps of one round."""

    def __init__(self, merge: LiveMerge, way: Way, found: Found, goals: Goals) -> None:
        self._merge, self._way, self._found, self._goals = merge, way, found, goals

    def run(self, size: Size, backlog: int) -> None:
        self._way.load()
        self._way.await_idle()
        span = self._span(lambda: self._steps(size, backlog))
        for name, count in span.counts.items():
            self._found.add(f"all steps: {name}", "in all", count)
        if span.counts:
            self._found.add("all steps", "s", span.seconds)

    def _steps(self, size: Size, backlog: int) -> None:
        self._measure_idle(size.idle_seconds)
        self._measure_load(SLOW, size.load_seconds)
        self._measure_load(FAST, size.load_seconds)
        if len(self._merge.sources) == 2:
            self._measure_ddl()
        self._measure_backlog(backlog)

    def _measure_idle(self, seconds: float) -> None:
        span = self._span(lambda: time.sleep(seconds))
        self._add_span(span, "idle", "", self._goals.get("idle", ""))

    def _measure_load(self, per_second: int, seconds: float) -> None:
        merge, at = self._merge, f"{per_second:,}/s"
        before, began = merge.newest(), time.time()
        with Sampler(merge) as sampler, merge.load(per_second):
            self._await(lambda: sampler.newest != before, "the first row of a load")
            if per_second == SLOW:
                (first, *_) = sorted(when for rows in merge.made(began, time.time()) for _, when in rows)
                self._found.add(f"{at}: first row after the idle time", "s", sampler.samples[1][0] - first)
            time.sleep(SETTLE_SECONDS)
            since = time.time()
            span = self._span(lambda: time.sleep(seconds))
            until = time.time()
            wanted = merge.newest(until)
            self._await(lambda: reached(sampler.newest, wanted), "the rows of a load")
        made = merge.made(since, until)
        found = sorted(ages(sampler.samples, made))
        goals = self._goals if per_second == SLOW else {}
        name = f"{at}: commit upstream to visible downstream"
        self._found.add(f"{name}, median", "s", statistics.median(found), goals.get("median", ""), span.spent)
        self._found.add(f"{name}, 95 of 100", "s", found[len(found) * 95 // 100], goals.get("95 of 100", ""))
        self._found.add(f"{at}: rows written", "/s", len(found) / (until - since))
        self._add_span(span, at, goals.get("own", ""))
        merge.await_equal(PATIENCE_SECONDS, self._way.check)

    def _measure_ddl(self) -> None:
        merge = self._merge
        before = merge.newest()
        with Sampler(merge) as sampler, merge.load(SLOW):
            self._await(lambda: sampler.newest != before, "the first row of a load")
            time.sleep(SETTLE_SECONDS)
            first = time.time()
            for number, shard in enumerate(merge.shards):
                time.sleep(DDL_GAP_SECONDS if number else 0.0)
                merge.sources[shard.source].run(ALTER.format(table=shard.table))
            last = time.time()
            held = merge.newest(last)
            self._await(lambda: merge.has_column(COLUMN), "the column of the target")
            column = time.time()
            self._await(lambda: reached(sampler.newest, held), "the held rows")
        self._found.add("last ALTER of a shard to the target's column", "s", column - last, "<= 3")
        self._found.add("last ALTER of a shard to the last held row", "s", sampler.seen_at(held) - last, "<= 5")
        if (run := self._way.lock_run_at()) is not None:
            self._found.add("first ALTER of a shard to the lock's DAG run", "s", run - first, self._goals["lock"])
        merge.await_equal(PATIENCE_SECONDS, self._way.check)

    def _measure_backlog(self, rows: int) -> None:
        merge = self._merge
        self._way.rest()
        merge.write(rows)
        began = time.time()
        self._way.go()
        merge.await_equal(PATIENCE_SECONDS, self._way.check)
        seconds = time.time() - began
        name = f"backlog of {rows:,} transactions, {self._way.begins}"
        self._found.add(name, "s", seconds)
        self._found.add(name, "/s", rows / seconds)

    def _span(self, passes: Callable[[], None]) -> Span:
        counts, spent, began = self._way.counts(), self._spent(), time.monotonic()
        passes()
        seconds, spent_now, counts_now = time.monotonic() - began, self._spent(), self._way.counts()
        self._way.check()
        return Span(
            seconds,
            {place: cpu.seconds(spent[place], spent_now[place]) for place in spent},
            {name: counts_now[name] - counts[name] for name in counts},
        )

    def _spent(self) -> dict[str, Mapping[int, Times]]:
        merge = self._merge
        sources = [pid for server in merge.sources.values() for pid in server.program.members()]
        places = {**self._way.pids(), "sources": sources, "target": merge.target.program.members()}
        return {place: cpu.times(pids) for place, pids in places.items()}

    def _add_span(self, span: Span, when: str, own: str, counted: str = "") -> None:
        """Add the cores and the counts of a measured time."""
        for place, name in ((self._way.own, self._way.name), ("spark", "CPU of Spark")):
            goal = own if place == self._way.own else ""
            self._found.add(f"{when}: {name}", "cores", span.spent[place] / span.seconds, goal)
        for name, count in span.counts.items():
            goal = counted if name in ("DAG runs", "task instances") else ""
            self._found.add(f"{when}: {name}", "per hour", count * HOUR / span.seconds, goal)

    def _await(self, condition: Callable[[], bool], what: str) -> None:
        await_true(condition, PATIENCE_SECONDS, what, self._way.check)
