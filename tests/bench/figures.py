"""The results of a bench run: values by round, their median and spread, ratios, and how they are printed."""

import json
import os
import platform
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

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
largest round. In each round the tools take turns on the same machine. Every run that writes ends with a comparison of
the target with its source.

## Conditions

- **Machine:** source, target, Spark and client share one machine with 2 cores. The machine is named below.
- **Servers:** MariaDB 10.11 on loopback without TLS, with `innodb_buffer_pool_size=512M`, `innodb_log_file_size=256M`,
  `innodb_doublewrite=0`, `innodb_flush_log_at_trx_commit=2` and `performance_schema=OFF`. Sources have a binlog with
  `binlog_format=ROW`, `binlog_row_image=FULL` and `sync_binlog=0`. Targets and replicas write no binlog.
- **TiDB:** one process with its embedded store.
- **Spark:** a running Connect server on `local[2]`. Its start is in no figure.
- **Parts a to d compare different work.** Native replication commits and publishes every transaction of the source. A
  window of unshard publishes only the final state of each row. So a window writes less, above all with skewed keys, and
  readers of the target do not see the intermediate states.
- **Parts a to d measure applying only.** Fetching the binlog is in none of the times: unshard has its segments, the
  replica its relay log, and `mariadb-binlog` reads the files of the source.
- **Native replication** runs with `slave_parallel_mode=optimistic` and 1 or 2 threads. The ratio uses the faster one.
- **Part e** loads eight shards of two sources into one table. `mydumper` and `myloader` run with 2 threads each.
- **Part i** runs windows one after another while one session commits 200 transactions per second.
- **Part j** compares with windows that have no stored plan, epoch, fence or checkpoint, and commit every statement.
- **Part l:** "each round trip 5 ms longer" is measured through a proxy that delays each round trip to TiDB.

## Results
"""
SECTION = "\n## Measured by itself: part"


def page(figures: Sequence[Figure], about: str) -> str:
    """Return docs/figures.md: the same table, and where it was measured."""
    return f"{HEAD}\n{about}.\n\n{_table(figures)}"


def with_section(text: str, figures: Sequence[Figure], about: str) -> str:
    """Return the page with these parts in their own sections, which replace earlier sections of the same parts.

    The page's other figures are from another run, so each section says when and where it was measured.
    """
    whole, *sections = text.split(SECTION)
    kept = {section.split("\n", 1)[0].strip(): section for section in sections}
    for part in dict.fromkeys(figure.part for figure in figures):
        kept[part] = f" {part}\n\n{about}.\n\n{_table([figure for figure in figures if figure.part == part])}"
    return whole + "".join(SECTION + kept[part] for part in sorted(kept))


def _table(figures: Sequence[Figure]) -> str:
    head = "| part | what | median | unit | spread | CPU seconds | wanted |\n|---|---|---:|---|---|---|---|\n"
    return head + "".join(
        f"| {f.part} | {f.name.replace('|', chr(92) + '|')} | {shown(f.median)} | {f.unit} |"
        f" {shown(min(f.values))} to {shown(max(f.values))} | {_cpu(f)} |{_verdict(f).replace(' wanted', '')} |\n"
        for f in figures
    )


def write_json(path: Path, figures: Sequence[Figure], about: str) -> None:
    """Store all values, for comparing runs."""
    body = [{**asdict(figure), "median": figure.median, "met": figure.met} for figure in figures]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"machine": about, "figures": body}, indent=1))


def shown(value: float) -> str:
    """Return a number with about three significant digits."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.3f}"


def _cpu(figure: Figure) -> str:
    return ", ".join(f"{place} {seconds:.2f}" for place, seconds in figure.cpu.items())


def _verdict(figure: Figure) -> str:
    return "" if figure.met is None else f" wanted {figure.goal}: {'yes' if figure.met else 'NO'}"
