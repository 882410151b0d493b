"""What a bench run has found: values by round, their median and spread, ratios, and how they are shown."""

import json
import os
import platform
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

TICK = 0.01
"""What CPU seconds are counted in: less of them is none."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One thing that was measured, once in every round."""

    part: str
    """Letter of the bench's part."""
    name: str
    unit: str
    values: tuple[float, ...]
    cpu: Mapping[str, float] = field(default_factory=dict)
    """CPU seconds (median of the rounds) by what spent them: client, spark, server."""
    goal: str = ""
    """What is wanted, as `>= 1.3` or `<= 10`."""

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def met(self) -> bool | None:
        """Whether the median is what is wanted; None: nothing is."""
        if not self.goal:
            return None
        sign, limit = self.goal.split()
        return self.median >= float(limit) if sign == ">=" else self.median <= float(limit)


def ratio(part: str, name: str, above: Figure, below: Figure, goal: str = "") -> Figure:
    """Divide two figures round by round: what both met in a round cancels out."""
    pairs = zip(above.values, below.values, strict=True)
    return Figure(part, name, "x", tuple(one / max(other, TICK) for one, other in pairs), goal=goal)


def machine() -> str:
    """Name the machine that the figures are of."""
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

Written by `make bench`; nothing here was entered by hand. Each value is the median of the rounds of one run, in which
the contestants take turns; every run that writes ended with the comparison of the target with its source.
"""
SECTION = "\n## Measured by itself: part"


def page(figures: Sequence[Figure], about: str) -> str:
    """Return docs/figures.md: the same table with where it was measured."""
    return f"{HEAD}\n{about}.\n\n{_table(figures)}"


def with_section(text: str, figures: Sequence[Figure], about: str) -> str:
    """Return the page with these parts in sections of their own, in place of earlier sections of the same parts.

    The page's other figures are of another run, so each section says when and where its own were measured.
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
        for f in figures)  # fmt: skip


def write_json(path: Path, figures: Sequence[Figure], about: str) -> None:
    """Store all values for whoever compares runs."""
    body = [{**asdict(figure), "median": figure.median, "met": figure.met} for figure in figures]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"machine": about, "figures": body}, indent=1))


def shown(value: float) -> str:
    """Return a number with about three digits that matter."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.3f}"


def _cpu(figure: Figure) -> str:
    return ", ".join(f"{place} {seconds:.2f}" for place, seconds in figure.cpu.items())


def _verdict(figure: Figure) -> str:
    return "" if figure.met is None else f" wanted {figure.goal}: {'yes' if figure.met else 'NO'}"
