"""Which tests belong to a run: `make fast` and `make test` run a part, `make test-all` runs all.

| `UNSHARD_TESTS` | command | what runs |
|---|---|---|
| `fast` | `make fast` | tests without servers; few random examples, few deaths |
| `usual` (default) | `make test` | what shows that a change is right, on 2 cores in 15 minutes |
| `all` | `make test-all` | all tests and all their parameters, many random examples |

A test says by its mark how much of it `make test` runs; `tests/README.md` lists them with the reasons. A test that is
named on the command line (`file.py::test`) always runs.
"""

import os
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from unshard_demo import servers

FAST, USUAL, ALL = "fast", "usual", "all"
RUN = os.environ.get("UNSHARD_TESTS", USUAL)
IS_ALL = RUN == ALL
EXAMPLES = os.environ.get("UNSHARD_EXAMPLES", "")
"""A number of random examples that replaces that of each random test."""

ON_TIDB_TOO = 32
"""Of the tests that run on MariaDB, too, TiDB gets one of so many: it creates the tables of a task slowly."""
PARAMETERS = 10
"""A test on servers runs with one of so many of its parameters, unless its mark `sample` says how many."""
LEFT_OUT = pytest.StashKey[int]()

if RUN not in (FAST, USUAL, ALL):
    raise pytest.UsageError(f"UNSHARD_TESTS={RUN}: it must be {FAST}, {USUAL} or {ALL}")


def portion(fast: int, usual: int, everything: int) -> int:
    """Return the number for this run."""
    return {FAST: fast, USUAL: usual, ALL: everything}[RUN]


def examples(fast: int, usual: int, everything: int) -> int:
    """Return the number of random examples of a test, which UNSHARD_EXAMPLES replaces."""
    return int(EXAMPLES) if EXAMPLES else portion(fast, usual, everything)


def leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Remove the tests that this run leaves to `make test-all`, unless a test is named on the command line."""
    left = set() if any("::" in argument for argument in config.args) else set(left_out(items))
    if left:
        items[:] = [item for item in items if item not in left]
        config.hook.pytest_deselected(items=list(left))
    config.stash[LEFT_OUT] = len(left)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tell the first process of a distributed run how many tests this one has left out."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = session.config.stash.get(LEFT_OUT, 0)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    node.config.stash[LEFT_OUT] = getattr(node, "workeroutput", {}).get("left_out", 0)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say how many tests did not run, and how to run them."""
    skipped = terminalreporter.stats.get("skipped", ())
    if without := [report for report in skipped if servers.TIDB_NOT_BUILT in str(report.longrepr)]:
        terminalreporter.write_line(f"left out: {len(without)} tests with TiDB. To run them: make tidb, then make test")
    if number := config.stash.get(LEFT_OUT, 0):
        terminalreporter.write_line(f"left out: {number} tests that run rarely. To run them too: make test-all")


def left_out(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return the tests that this run leaves to `make test-all`."""
    if IS_ALL:
        return []
    found = [item for item in items if item.get_closest_marker("test_all")]
    groups: dict[tuple[str, bool], list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("test_all"):
            continue
        if item.get_closest_marker("sample") or item.get_closest_marker("integration"):
            is_on_tidb = item.get_closest_marker("tidb") is not None
            groups.setdefault((item.nodeid.partition("[")[0], is_on_tidb), []).append(item)
    for group in groups.values():
        mark = group[0].get_closest_marker("sample")
        every = mark.kwargs.get("every") if mark else PARAMETERS
        kept = group[::every] if every else each_value(group)
        found += [item for item in group if item not in kept]
    left = set(items) - set(found)
    twice = [item for item in items if item in left and item.get_closest_marker("on_tidb")]
    on_tidb = [item for item in twice if item.get_closest_marker("tidb")]
    return found + [item for number, item in enumerate(on_tidb) if number % ON_TIDB_TOO]


def each_value(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return few items that together have each value of each parameter, and each value about as often as others."""
    values = {item: _values(item).items() for item in items}
    used: Counter[tuple[str, str]] = Counter()
    left, kept = list(items), []
    while not kept or any(not used[value] for item in left for value in values[item]):
        best = max(
            left, key=lambda item: (sum(not used[one] for one in values[item]), -sum(used[one] for one in values[item]))
        )
        left.remove(best)
        kept.append(best)
        used.update(values[best])
    return kept


def _values(item: pytest.Item) -> dict[str, str]:
    """Return the value of each parameter as text, by which it is compared."""
    return {name: repr(value) for name, value in item.callspec.params.items()} if hasattr(item, "callspec") else {}
