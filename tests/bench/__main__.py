"""`python -m tests.bench [parts] [--rounds n] [--rows n]`: measure, print the table, write build/bench.json.

Without options each backlog has as many changes as its table has rows, which takes a second or two. The page shows
longer backlogs: `--rows 500000 --backlog-seconds 10`. The Makefile lists the runs of the page.
"""

import argparse
import signal
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from tests.bench import (
    besidewindows,
    decode,
    fence,
    fetch,
    fullload,
    longrun,
    manysources,
    replay,
    scale,
    slowwriters,
    switch,
    tidbtarget,
    users,
    windows,
)
from tests.bench.figures import Figure, Group, lines, machine, page, write_json
from tests.bench.settings import PLAIN, Settings, described
from tests.bench.size import Size
from tests.bench.stand import Stand, running

Part = Callable[[Stand, Size], list[Figure]]
WITH_BACKLOG = "abcdmr"
"""Parts whose backlog lasts as long as wanted."""
WITH_DURABLE = "abcde"


def parts(sources: Sequence[int] = users.SOURCES) -> list[tuple[str, str, Part]]:
    """Return letter, title and work of all parts in the order of the run; p and q once for each number of sources."""
    ways = {"p": users.AIRFLOW, "q": users.COMMAND}
    found: list[tuple[str, str, Part]] = [
        (letter, f"{way.title}, {number} sources", partial(users.measure, way, number))
        for letter, way in ways.items()
        for number in sources
    ]
    found += [(letter, title, partial(_replayed, letter)) for letter, title in replay.TITLES.items()]
    others: dict[str, tuple[str, Part]] = {
        "f": ("decoding the binlog", _sized(decode.measure)),
        "g": ("fetching the binlog", _sized(fetch.measure_fetch)),
        "h": ("the fixed cost of a window", _sized(windows.measure_overhead)),
        "i": ("the age of a change", _sized(windows.measure_freshness)),
        "j": ("the cost of exactly-once", _sized(fence.measure_fence)),
        "k": ("many tables", _sized(scale.measure)),
        "l": ("one target table with several sources", manysources.measure),
        "m": ("speed and memory over a long backlog", longrun.measure),
        "n": ("TiDB as the target", _sized(tidbtarget.measure)),
        "o": ("several writers, each round trip 5 ms longer", slowwriters.measure),
        "s": ("a cutover", switch.measure_cutover),
        "r": ("validation, alone and beside windows", besidewindows.measure_validation),
        "e": ("full load", fullload.measure),
    }
    return found + [(letter, title, part) for letter, (title, part) in others.items()]


def _sized(measure: Callable[[Stand, int, int], list[Figure]]) -> Part:
    return lambda stand, size: measure(stand, size.rounds, size.rows)


def _replayed(letter: str, stand: Stand, size: Size) -> list[Figure]:
    return replay.measure_replay(stand, letter, size)


def main(given: list[str] | None = None) -> list[Group]:
    """Measure the given parts (default: all) and write the figures after each part."""
    options = arguments(given)
    settings = Settings(options.buffer_pool, options.durable)
    size = Size(
        options.rounds,
        options.rows,
        options.changes,
        options.backlog_seconds,
        options.part_seconds,
        options.threads,
        options.load_seconds,
        options.idle_seconds,
    )
    found: list[Group] = []
    with running(not options.without_spark, settings) as stand:
        for letter, title, part in parts(options.sources):
            if letter in options.parts and (group := _measured(stand, size, f"{letter}: {title}", part)).figures:
                found.append(group)
                _write(options, found)
    return found


def _measured(stand: Stand, size: Size, title: str, part: Part) -> Group:
    """Run a part; print its figures as soon as they are measured."""
    stand.begin_part(size.part_seconds)
    began = time.monotonic()
    figures = part(stand, size)
    sizes = ", ".join(
        (f"{' and '.join(map(str, dict.fromkeys(stand.ran)))} rounds", f"{size.rows:,} rows", *stand.conditions)
    )
    about = f"{machine()}; {sizes}; {time.monotonic() - began:,.0f} s; {datetime.now(UTC).date()}"
    title = f"{title}, {stand.settings.label}" if stand.settings.label else title
    group = Group(title, about, figures, [*described(stand.reported)], [*stand.notes])
    print("\n".join(("", title, about, *group.settings, *lines(figures), *group.notes)), flush=True)
    return group


def _write(options: argparse.Namespace, groups: list[Group]) -> None:
    write_json(Path(options.out) / "bench.json", groups)
    if options.page:
        path = Path(options.page)
        path.write_text(page(groups, path.read_text() if path.exists() else ""))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


def arguments(given: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    default = Size()
    parser.add_argument("parts", nargs="*", help="letters of the parts to measure; none: all that the settings allow")
    parser.add_argument("--rounds", type=int, default=default.rounds)
    parser.add_argument("--rows", type=int, default=default.rows, help="rows of a table, and the changes of a backlog")
    parser.add_argument("--changes", type=int, default=0, help="changes of a backlog, if they are not as many as rows")
    parser.add_argument(
        "--backlog-seconds",
        type=float,
        default=0.0,
        help=f"choose the changes so that each side needs this long (parts {', '.join(WITH_BACKLOG)})",
    )
    parser.add_argument(
        "--part-seconds",
        type=float,
        default=default.part_seconds,
        help="after its first round, a part begins no round that would end later than so many seconds after its start",
    )
    parser.add_argument(
        "--durable",
        action="store_true",
        help=f"the servers lose no commit, target and replica write a binlog (parts {', '.join(WITH_DURABLE)})",
    )
    parser.add_argument("--buffer-pool", default=PLAIN.pool, help="innodb_buffer_pool_size of source and target")
    parser.add_argument(
        "--threads",
        type=_numbers,
        help="numbers of threads of native replication (1,2; with durable settings 2,8)",
    )
    parser.add_argument(
        "--sources", type=_numbers, default=users.SOURCES, help="numbers of sources of parts p and q (2,16)"
    )
    parser.add_argument(
        "--load-seconds", type=float, default=default.load_seconds, help="how long parts p and q measure each load"
    )
    parser.add_argument(
        "--idle-seconds", type=float, default=default.idle_seconds, help="how long they measure without a load"
    )
    parser.add_argument(
        "--without-spark", action="store_true", help="try the bench out: windows in this process (not p and q)"
    )
    parser.add_argument("--out", default="build", help="folder of bench.json")
    parser.add_argument("--page", help="also write the figures into this page; they replace those of the same parts")
    options = parser.parse_args(given)
    known = WITH_DURABLE if options.durable else dict.fromkeys(letter for letter, _, _ in parts())
    options.parts = options.parts or list(known)
    options.threads = options.threads or ((2, 8) if options.durable else default.threads)
    if unknown := set(options.parts) - set(known):
        parser.error(f"no such part with these settings: {', '.join(sorted(unknown))}")
    return options


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # programs are stopped, folders removed
    main()
    sys.exit(0)
