"""The results of a bench run: values by round, their median and spread, ratios, and how they are printed."""

import json
import os
import platform
import re
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

FIRST = "pq"
"""Parts whose sections are first on the page, because they are what users get."""
TICK = 0.01
"""Resolution of CPU seconds; a smaller value is zero."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured quantity, with one value per round."""

    part: str
    """Letter of the bench's part."""
    name: str
    unit: str
    values: tuple[float, ...]
    cpu: Mapping[str, float] = field(default_factory=dict)
    """CPU seconds (median of the rounds) by consumer: client, spark, server."""
    goal: str = ""
    """The goal, such as `>= 1.3` or `<= 10`."""

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def met(self) -> bool | None:
        """Whether the median meets the goal; None without a goal."""
        if not self.goal:
            return None
        sign, limit = self.goal.split()
        return self.median >= float(limit) if sign == ">=" else self.median <= float(limit)


def ratio(part: str, name: str, above: Figure, below: Figure, goal: str = "") -> Figure:
    """Divide two figures round by round, which cancels out influences on both in a round."""
    pairs = zip(above.values, below.values, strict=True)
    return Figure(part, name, "x", tuple(one / max(other, TICK) for one, other in pairs), goal=goal)


def machine() -> str:
    """Return a description of the machine."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine()
    )
    memory = next(line.split()[1] for line in Path("/proc/meminfo").read_text().splitlines() if "MemTotal" in line)
    return f"{model}, {os.cpu_count()} cores, {int(memory) >> 20} GiB, Python {platform.python_version()}"


def lines(figures: Iterable[Figure]) -> Iterator[str]:
    """Yield the table for the terminal."""
    yield f"{'':<4}{'':<62}{'median':>12} {'':<10}{'spread':<24}{'CPU seconds'}"
    for figure in figures:
        spread = f"{shown(min(figure.values))} to {shown(max(figure.values))}"
        row = f"{figure.part:<4}{figure.name:<62}{shown(figure.median):>12} {figure.unit:<10}{spread:<24}{_cpu(figure)}"
        yield f"{row}{_verdict(figure)}".rstrip()


HEAD = """# Figures

`make bench` writes this page. Each value is the median of the rounds of one run. The spread is the smallest and the
largest round. A ratio is computed in each round, and its median is shown. In each round the tools take turns on the
same machine. Every run that writes ends with a comparison of the target with its source.

Each section is one run of one part. It names the size of the run, and the settings that the servers reported.
`python -m tests.bench a d --page docs/figures.md` measures two parts again and replaces their sections.

## Conditions

- **Rounds:** after the first round, a part begins no round that would end after its limit (`--part-seconds`). Each
  section names the number of rounds.
- **`mariadb-binlog | mariadb`** (parts a to c) and **`mariadb-dump | mariadb`** (part e) run once, and with less: the
  former replays the beginning of the backlog, the latter loads a tenth of the rows. Their figures say so.
- **Machine:** source, target, Spark and client share one machine with 2 cores. Each section names the machine.
- **Servers:** MariaDB on loopback without TLS. TiDB is one process with its embedded store.
- **Durable settings:** a power failure loses no commit. Target and replica both write a binlog and sync it with each
  commit. The backlog is written with other settings, because that belongs to no measured time.
- **Parts p and q** show what users get. In part p only Airflow's DAGs run the task, with LocalExecutor and a running
  Spark Connect server. In part q `unshard run --follow` does, and the time of its backlog includes the start of the
  command and of its Spark. All other parts measure the engine in a process that already runs.
- **Ages in parts p and q** are of rows that are written later than 5 seconds after the first row of their load was
  visible. The target is sampled every 10 ms. "Idle" begins when the load of the shards is over and nothing moves.
- **CPU of Airflow** is that of its four components with all their descendants, which include the processes of tasks.
- **Spark:** a running Connect server on `local[2]`. Its start is in no figure, except in part q.
- **Parts a to d compare different work.** Native replication commits and publishes every transaction of the source. A
  window of unshard publishes only the final state of each row. So a window writes less, above all with skewed keys, and
  readers of the target do not see the intermediate states.
- **Parts a to d measure applying only.** Fetching the binlog is in none of the times: unshard has its segments, the
  replica its relay log, and `mariadb-binlog` reads the files of the source.
- **The length of a backlog** in parts a to d and m follows from the speeds in a short one. The faster side needs at
  least the wanted seconds. If the slower side would need more than four times as long, only the slower side does.
- **Native replication** runs with `slave_parallel_mode=optimistic` and several numbers of threads. The ratio uses the
  fastest one.
- **Part e** loads eight shards of two sources into one table. `mydumper` and `myloader` run with 2 threads each.
- **Part i** runs windows one after another while one session commits 200 transactions per second.
- **Part j** compares with windows that have no stored plan, epoch, fence or checkpoint, and commit every statement.
- **Part l** spreads the same eight shards with the same changes over 1, 2, 4 and 8 sources.
- **Part m** measures memory as proportional set size: a page that two processes share counts half in each.
- **Part r** applies inserts while the rows that were there before are compared, with the default settings. A share of
  100 % is one core.
- **Parts n and o:** "each round trip 5 ms longer" is measured through a proxy that delays each round trip to the
  target.

## Results
"""
SECTION = "\n### "


@dataclass(frozen=True, slots=True)
class Group:
    """The figures of one part in one run, and the conditions of that run."""

    title: str
    """Letter and subject of the part, and the label of the settings. The page has one section for each title."""
    about: str
    """Machine, size, duration and day."""
    figures: Sequence[Figure]
    settings: Sequence[str] = ()
    """The settings of the servers, in lines."""
    notes: Sequence[str] = ()


def page(groups: Iterable[Group], text: str = "") -> str:
    """Return docs/figures.md: the sections of an earlier page, of which these groups replace those of their titles."""
    sections = {part.partition("\n")[0]: part.partition("\n")[2] for part in text.split(SECTION)[1:]}
    sections |= {group.title: _section(group) for group in groups}
    return HEAD + "".join(f"{SECTION}{title}\n{sections[title]}" for title in sorted(sections, key=_place))


def _place(title: str) -> tuple[bool, str]:
    """Return the place of a section on the page, by its title."""
    return title[0] not in FIRST, re.sub(r"\d+", lambda number: number[0].zfill(4), title)


def _section(group: Group) -> str:
    settings = "".join(f"- Settings of {line}.\n" for line in group.settings)
    notes = "".join(f"- {note}\n" for note in group.notes)
    return f"\n{group.about}.\n\n" + (f"{settings}\n" if settings else "") + _table(group) + (notes and f"\n{notes}")


def _table(group: Group) -> str:
    head = "| what | median | unit | spread | CPU seconds | wanted |\n|---|---:|---|---|---|---|\n"
    return head + "".join(
        f"| {f.name.replace('|', chr(92) + '|')} | {shown(f.median)} | {f.unit} |"
        f" {shown(min(f.values))} to {shown(max(f.values))} | {_cpu(f)} |{_verdict(f).replace(' wanted', '')} |\n"
        for f in group.figures
    )


def write_json(path: Path, groups: Iterable[Group]) -> None:
    """Store all values, for comparing runs."""
    body = [
        {
            **asdict(group),
            "figures": [{**asdict(each), "median": each.median, "met": each.met} for each in group.figures],
        }
        for group in groups
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(body, indent=1))


def shown(value: float) -> str:
    """Return a number with about three significant digits."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.3f}"


def _cpu(figure: Figure) -> str:
    return ", ".join(f"{place} {seconds:.2f}" for place, seconds in figure.cpu.items())


def _verdict(figure: Figure) -> str:
    return "" if figure.met is None else f" wanted {figure.goal}: {'yes' if figure.met else 'NO'}"
