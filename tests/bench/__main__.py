"""`python -m tests.bench [parts] [--rounds n] [--rows n]`: measure, print the table, write build/bench.json."""

import argparse
import signal
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from tests.bench import decode, fence, fetch, fullload, replay, scale, tidbtarget, windows
from tests.bench.figures import Figure, lines, machine, page, with_section, write_json
from tests.bench.stand import Stand, running

ROUNDS, ROWS = 3, 200_000
Part = Callable[[Stand, int, int], list[Figure]]


def parts() -> dict[str, Part]:
    """Return all parts by letter, in the order of the run."""
    found: dict[str, Part] = {letter: partial(_replayed, letter) for letter in replay.NAMES}
    found |= {"f": decode.measure, "g": fetch.measure_fetch, "h": windows.measure_overhead}
    found |= {"i": windows.measure_freshness, "j": fence.measure_fence, "k": scale.measure}
    return found | {"l": tidbtarget.measure, "e": _full_load}


def _replayed(letter: str, stand: Stand, rounds: int, rows: int) -> list[Figure]:
    return replay.measure_replay(stand, letter, rounds, rows)


def _full_load(_: Stand, rounds: int, rows: int) -> list[Figure]:
    return fullload.measure(rounds, rows)


def main(given: list[str] | None = None) -> list[Figure]:
    """Measure the given parts (default: all) and write the figures."""
    options = arguments(given)
    began = time.monotonic()
    found: list[Figure] = []
    with running(not options.without_spark) as stand:
        for letter, part in parts().items():
            if letter in (options.parts or parts()):
                found += shown(part(stand, options.rounds, options.rows))
    about = f"{machine()}; {options.rounds} rounds, {options.rows:,} rows; {time.monotonic() - began:,.0f} s"
    print(f"\n{about}\n" + "\n".join(lines(found)))
    write_json(Path(options.out) / "bench.json", found, about)
    if options.page:
        Path(options.page).write_text(page(found, about))
    if options.add_to:
        Path(options.add_to).write_text(with_section(Path(options.add_to).read_text(), found, f"{about}; {today()}"))
    return found


def shown(figures: list[Figure]) -> list[Figure]:
    """Print a part's figures as soon as they are measured."""
    print("\n".join(lines(figures)), flush=True)
    return figures


def arguments(given: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("parts", nargs="*", help="letters of the parts to measure; none: all")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--rows", type=int, default=ROWS, help="rows of a table, and about so many changes")
    parser.add_argument("--without-spark", action="store_true", help="try the bench out: windows in this process")
    parser.add_argument("--out", default="build", help="folder of bench.json")
    parser.add_argument("--page", help="also write the figures as Markdown to this file")
    parser.add_argument("--add-to", help="add the figures to this page of an earlier run, in a section of their own")
    return parser.parse_args(given)


def today() -> str:
    return datetime.now(UTC).date().isoformat()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # programs are stopped, folders removed
    main()
    sys.exit(0)
