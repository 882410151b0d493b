"""Real servers of other versions: as sources, all at once, and as targets."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.lifetask import LifeTask, living
from tests.versions import VERSIONS, Version
from unshard.config import load_task
from unshard.core.prechecks import Severity
from unshard.units.precheck import precheck
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration
COLUMNS = (
    "id bigint NOT NULL PRIMARY KEY, a int unsigned, b varchar(50) CHARACTER SET utf8 COLLATE utf8_bin,"
    " c decimal(30,10), d datetime(6), e timestamp(3) NULL, f double, g float, h text, i blob, j enum('x','y','z'),"
    " k set('p','q'), l year, m time(2), n bit(9), o date, p tinyint(1), q char(7), r varbinary(20), s mediumint,"
    " t bigint unsigned, u binary(3), v timestamp NOT NULL DEFAULT '2020-01-01 00:00:01', w longtext, KEY (a)"
)
OPTIONS = "DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci"
GREAT = (
    "4294967295, 'é日', -12345678901234567890.0123456789, '2024-02-29 23:59:59.123456', '2024-01-01 00:00:00.5', 1e300,"
    " 1.5, repeat('ü', 1000), x'00ff0a5c', 'y', 'p,q', 2155, '-12:34:56.78', b'101010101', '9999-12-31', 1, 'ab',"
    " x'0001', -8388608, 18446744073709551615, x'ff', '2037-12-31 23:59:59', repeat('😀', 20000)"
)
SMALL = (
    "0, '', 0, '1000-01-01', '1970-01-01 00:00:01', -0e0, 0.1, '\\\\N', '', 'x', '', 1901, '838:59:59', 0,"
    " '1000-01-01', -128, '', '', 8388607, 0, '', '1970-01-01 00:00:01', '\\t\\n\\\\'"
)
EMPTY = ", ".join(["NULL"] * 21) + ", '2024-02-29', NULL"
COPIED = "a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, more"
LENIENT = "SET SESSION sql_mode = '', time_zone = '+00:00'"
ZERO = "(id, d, e, o, m) VALUES ({}, '2020-00-00', '0000-00-00', '0000-00-00', '-00:00:00.01')"


@pytest.fixture(scope="module")
def others(server_folder: Path) -> Iterator[dict[str, MariaDb]]:
    """All versions that are unpacked; those that are not skip the tests that need them."""
    with contextlib.ExitStack() as stack:
        yield {
            version.name: stack.enter_context(version.running(server_folder / version.name))
            for version in VERSIONS
            if version.is_there
        }


def server_of(version: Version, others: Mapping[str, MariaDb]) -> MariaDb:
    version.need()
    return others[version.name]


def make_shard(task: LifeTask, source: str, number: int) -> str:
    """Create a shard with rows, of which none is like those of other numbers."""
    name = f"{task.name}.t_{number}"
    rows = enumerate((GREAT, SMALL, EMPTY))
    task.shards.setdefault(source, []).append(name)
    task.sources[source].run(
        LENIENT, f"CREATE TABLE {name} ({COLUMNS}) {OPTIONS}",
        *(f"INSERT INTO {name} VALUES ({100 * number + n}, {values})" for n, values in rows),
        f"INSERT INTO {name} {ZERO.format(100 * number + 3)}",
    )  # fmt: skip
    return name


def change(task: LifeTask, source: str, number: int) -> None:
    """Let a shard have every kind of change, a column more, and a new shard beside it."""
    name, first = f"{task.name}.t_{number}", 100 * number
    task.sources[source].run(
        LENIENT,
        *(f"INSERT INTO {name} VALUES ({first + 10 + n}, {v})" for n, v in enumerate((GREAT, SMALL, EMPTY))),
        f"INSERT INTO {name} {ZERO.format(first + 13)}",
        f"UPDATE {name} SET b = 'changed', c = c + 1, w = NULL WHERE id IN ({first}, {first + 11})",
        f"UPDATE {name} SET id = {first + 20} WHERE id = {first + 10}",
        f"DELETE FROM {name} WHERE id = {first + 1}",
        "BEGIN", f"INSERT INTO {name} {ZERO.format(first + 30)}", "ROLLBACK",
        "BEGIN", f"INSERT INTO {name} {ZERO.format(first + 31)}", "SAVEPOINT one",
        f"INSERT INTO {name} {ZERO.format(first + 32)}", "ROLLBACK TO one",
        f"INSERT INTO {name} {ZERO.format(first + 33)}", "COMMIT",
    )  # fmt: skip


def alter(task: LifeTask, source: str, number: int) -> None:
    name, first = f"{task.name}.t_{number}", 100 * number
    task.sources[source].run(
        LENIENT, f"ALTER TABLE {name} ADD COLUMN more varchar(20) NOT NULL DEFAULT 'dflt', ADD INDEX (b)",
        f"INSERT INTO {name} (id, more) VALUES ({first + 40}, 'neu')", f"DELETE FROM {name} WHERE id = {first + 13}",
        f"UPDATE {name} SET more = 'é' WHERE id = {first + 2}",
    )  # fmt: skip


def add_shard(task: LifeTask, source: str, number: int) -> None:
    name = f"{task.name}.t_{number}"
    old = task.shards[source][0]
    task.shards[source].append(name)
    task.sources[source].run(
        LENIENT, f"CREATE TABLE {name} LIKE {old}", f"INSERT INTO {name} {ZERO.format(100 * number)}",
        f"INSERT INTO {name} SELECT 100 * {number} + id % 10 + 1, {COPIED} FROM {old} WHERE id % 100 = 20",
    )  # fmt: skip


def assert_followed(task: LifeTask) -> None:
    """Check, load, and follow everything that the sources do; the target is their union, as `validate` finds, too."""
    numbers = {source: number for number, source in enumerate(task.sources, 1)}
    for source, number in numbers.items():
        make_shard(task, source, number)
    items = precheck(load_task(task.path))
    assert not [item for item in items if item.severity is Severity.ERROR]
    assert not [item for item in items if item.name == "version" and item.severity is not Severity.OK]
    task.go()
    assert task.assert_union() == 4 * len(numbers)
    for source, number in numbers.items():
        change(task, source, number)
    task.go()
    assert task.assert_union() == 9 * len(numbers)
    for source, number in numbers.items():
        alter(task, source, number)
        task.go()
    for source, number in numbers.items():
        add_shard(task, source, number + 50)
    task.go()
    assert task.assert_union() == 11 * len(numbers)
    with task.work() as work:
        assert len([one for one in work.meta.locks.executions() if one.done_at]) == 1
    assert task.command("validate") == 0


def test_sources_of_all_versions_are_merged(others, source_1, target, unique, tmp_path):
    sources = {f"s{version.server_id}": server_of(version, others) for version in VERSIONS}
    with living(unique, tmp_path, {"s1": source_1, **sources}, target) as task:
        assert_followed(task)


@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.name)
def test_a_target_of_another_version(others, source_1, source_2, unique, tmp_path, version):
    with living(unique, tmp_path, {"s1": source_1, "s2": source_2}, server_of(version, others)) as task:
        assert_followed(task)
