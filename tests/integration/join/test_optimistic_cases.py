"""The cases of DM's optimistic mode on real servers, with full load, windows and restarts.

`optimistic_cases.json` holds facts: statements in order, expected rows. Each case runs in two ways: all steps at once,
and with a run after each step. Every run has only the state in the meta tables.
"""

import contextlib
import dataclasses
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.integration.ddl.test_cases import create_shards, drop_schemas, plain, write_task
from tests.localspark import LocalSpark
from tests.unit.join.test_cases import CONFLICTS, WAYS_OUT
from unshard.config import ShardMode, load_task
from unshard.core.join.decision import wanted
from unshard.core.join.difference import is_equal, target_with_ids
from unshard.units.task.run import RunOutcome, run
from unshard.units.work import Work, open_work
from unshard_demo.servers import MariaDb

pytestmark = [pytest.mark.integration, pytest.mark.slow]

CASES = {case["id"]: case for case in json.loads((Path(__file__).parents[1] / "optimistic_cases.json").read_text())}

TELLING = ("sddl1-add_drop_columns-o", "sddl1-column_index-o")
"""Cases with several changes in one statement, in which TiDB differs from MariaDB. They run on TiDB every time."""


@dataclasses.dataclass
class Case:
    """One case on its servers."""

    case: Mapping[str, Any]
    servers: Mapping[str, MariaDb]
    target: MariaDb
    path: Path
    is_strict: bool = False

    @contextlib.contextmanager
    def work(self) -> Iterator[Work]:
        task = dataclasses.replace(load_task(self.path), shard_mode=ShardMode.OPTIMISTIC)
        task = dataclasses.replace(task, options=dataclasses.replace(task.options, is_strict=self.is_strict))
        with open_work(task) as work:
            yield dataclasses.replace(work, spark=LocalSpark, bulk_spark=LocalSpark)

    def run(self) -> RunOutcome:
        with self.work() as work:
            outcome = run(work)
        assert not outcome.errors, [str(trouble.error) for trouble in outcome.errors]
        return outcome

    def play(self, each: bool) -> RunOutcome:
        self.run()
        for step in self.case["steps"]:
            self.servers[step["source"]].run(step["sql"])
            if each:
                self.run()
        return self.run()

    def check_rows(self) -> None:
        """Compare the target with the union of its shards, by the columns of each shard."""
        with self.work() as work:
            for joined in work.meta.joins.all():
                total = 0
                for shard, member in joined.group.members.items():
                    own = ", ".join(f"`{name}`" for name in member.ids)
                    there = ", ".join(f"`{joined.names[id]}`" for id in member.ids.values())
                    mine = self.servers[shard.source].run(f"SELECT {own} FROM {shard.table}")
                    found = Counter(self.target.run(f"SELECT {there} FROM {joined.target}"))
                    assert not Counter(mine) - found, (shard, mine, found)
                    total += len(mine)
                if not any(text in str(self.case["steps"]) for text in ("DROP TABLE", "TRUNCATE")):
                    assert self.target.run(f"SELECT count(*) FROM {joined.target}") == [(total,)]

    def check_equal(self) -> None:
        """If all shards are equal, so is the target."""
        with self.work() as work:
            for joined in work.meta.joins.all():
                if len({member.structure.shape for member in joined.group.members.values()}) == 1:
                    present = target_with_ids(work.target_schema(joined.target), joined.names)
                    assert is_equal(present, wanted(joined.group)), joined.target
            assert not [state for state in work.meta.structures.shards() if state.queue or state.held]


Maker = Callable[[str], Case]


@pytest.fixture
def make(source_1: MariaDb, source_2: MariaDb, target: MariaDb, tmp_path: Path) -> Maker:
    def made(name: str) -> Case:
        case = CASES[name]
        servers = dict(zip(sorted(case["sources"]), (source_1, source_2), strict=False))
        for server in (source_1, source_2, target):
            drop_schemas(server)
        create_shards(case, servers)
        return Case(case, servers, target, write_task(case, servers, target, tmp_path))

    return made


@pytest.mark.sample(reason="a sixteenth of cases and ways; in memory all of them run", every=16)
@pytest.mark.parametrize("each", [False, True], ids=["at once", "step by step"])
@pytest.mark.parametrize("name", [name for name in CASES if name not in TELLING])
def test_case(name: str, each: bool, make: Maker) -> None:
    play(make(name), each)


@pytest.mark.on_tidb
@pytest.mark.parametrize("name", TELLING)
def test_telling_case(name: str, make: Maker) -> None:
    play(make(name), each=False)


@pytest.mark.test_all("in memory it runs step by step; on servers the other cases do")
@pytest.mark.parametrize("name", TELLING)
def test_telling_case_step_by_step(name: str, make: Maker) -> None:
    play(make(name), each=True)


def play(played: Case, each: bool) -> None:
    outcome = played.play(each)
    if played.case["id"] in CONFLICTS:
        (lock,) = outcome.locks
        assert lock.ready or lock.conflicts
        return
    assert not outcome.locks, [f"{lock.ddl}: {lock.state} {lock.reason}" for lock in outcome.locks]
    played.check_rows()
    played.check_equal()
    expected = played.case["expect"]
    if expected["kind"] == "rows":
        columns = ", ".join(f"`{column}`" for column in expected["columns"])
        rows = played.target.run(f"SELECT {columns} FROM {expected['downstream']}")
        assert Counter(tuple(map(plain, row)) for row in rows) == Counter(
            tuple(map(plain, row)) for row in expected["rows"]
        )


@pytest.mark.parametrize(("name", "way"), [(name, way) for name, ways in WAYS_OUT.items() for way in ways])
def test_a_conflict_ends(name: str, way: str, make: Maker) -> None:
    """The way out is followed to its end: the target equals the union of its shards."""
    played = make(name)
    assert len(played.play(each=False).locks) == 1
    for source, sql in WAYS_OUT[name][way]:
        played.servers[source].run(sql)
    outcome = played.run()
    assert not outcome.locks, [f"{lock.ddl}: {lock.state} {lock.reason}" for lock in outcome.locks]
    played.check_rows()
    played.check_equal()
    with played.work() as work:
        (joined,) = work.meta.joins.all()
        columns = ", ".join(f"`{name}`" for name in work.target_schema(joined.target).names)
    union = Counter[tuple[object, ...]]()
    for shard in joined.group.members:
        union += Counter(played.servers[shard.source].run(f"SELECT {columns} FROM {shard.table}"))
    assert Counter(played.target.run(f"SELECT {columns} FROM {joined.target}")) == union


def test_the_case_of_dm_s_strict_mode(make: Maker) -> None:
    """DM has a conflict here. The shard's own statements lead to the join, so nothing waits in strict mode either."""
    played = make("sddl4_1-strict_optimistic_double_source-o")
    played.is_strict = True
    assert not played.play(each=True).locks
    played.check_rows()
