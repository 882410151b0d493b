"""Runs every case file with small and large windows, and with a death at every point."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from tests.scenario.language import Change, Expect, LockCommand, Restart, Scenario, Step, parse
from tests.scenario.world import EVENT_BYTES, Killed, World
from tests.suite.portions import portion
from unshard.core.model import Shard, TableId
from unshard.errors import UnshardError
from unshard.errors.locks import LockResolved
from unshard.operate import command as commands
from unshard.operate import issuing as giving
from unshard.operate.command import DropShard, Force, Replace, Skip
from unshard.units.ddl import coordinate

T = TypeVar("T")
CASES = sorted((Path(__file__).parent / "cases").glob("*.txt"))
DEATHS_EVERY = portion(24, 9, 1)
SIZES = (EVENT_BYTES, 3 * EVENT_BYTES, 1000 * EVENT_BYTES)


def table(name: str) -> TableId:
    return TableId(*name.split("."))


class Player:
    """Runs a scenario in a world; the process dies at the ticks in `fatal`."""

    def __init__(
        self,
        scenario: Scenario,
        window_bytes: int,
        fatal: frozenset[int] = frozenset(),
        make: Callable[[Callable[[str], None]], World] | None = None,
    ) -> None:
        self.ticks, self.fatal, self.told = 0, fatal, 0
        self.world = make(self.tick) if make else World(scenario.routes, self.tick, window_bytes=window_bytes)
        self.scenario = scenario
        for source, name, columns in scenario.tables:
            self.world.add_table(source, table(name), columns)

    def tick(self, name: str) -> None:
        self.ticks += 1
        if self.ticks in self.fatal:
            raise Killed(name)

    def run(self) -> dict[str, UnshardError]:
        return self.again(self.world.run)

    @staticmethod
    def again(action: Callable[[], T]) -> T:
        """Repeat the action until the process does not die in it, as people and Airflow do."""
        while True:
            try:
                return action()
            except Killed:
                continue

    def play(self) -> World:
        for step in self.scenario.steps:
            self.do(step)
        last = self.scenario.steps[-1]
        if not isinstance(last, Expect) or last.what not in ("error", "rows", "union"):
            self.do(Expect("union", ""))
        return self.world

    def do(self, step: Step) -> None:
        match step:
            case Change(source, name, op, body):
                self.world.change(source, table(name), op, body)
            case LockCommand("unlock", name):
                self.run()
                self.issue(Force(self.lock(name)))
            case LockCommand("skip" | "replace" | "drop" as what, body):
                self.issue(self.command(what, body))
            case LockCommand("refuse" | "accept" as what, _):
                self.run()
                self.world.refuses = what == "refuse"
            case Restart():
                self.run()
            case Expect(what, body):
                self.check(what, body, self.run())
            case _:
                raise AssertionError(step)

    def command(self, what: str, body: str) -> commands.LockCommand:
        """Read `shard.t` or `shard.t s1 shard_1.t_1`, each optionally with statements after a colon."""
        names, _, ddl = body.partition(" : ")
        target, *names = names.split()
        lock, shard = self.lock(target), Shard(names[0], table(names[1])) if names else None
        match what:
            case "skip":
                return Skip(lock, shard)
            case "replace":
                return Replace(lock, tuple(f"alter table {target} {one}" for one in ddl.split(" | ")), shard)
            case _:
                assert shard is not None
                return DropShard(lock, shard)

    def lock(self, target: str) -> str:
        self.run()
        return self.world.lock(table(target)).id

    def issue(self, command: commands.LockCommand) -> None:
        """Issue a command until the process does not die in it; the second time it may be executed already."""
        command = giving.pinned(self.world.meta, command)
        with contextlib.suppress(LockResolved):
            self.again(lambda: self.world.order(command))

    def check(self, what: str, body: str, errors: dict[str, UnshardError]) -> None:
        if what == "error":
            assert {error.code for error in errors.values()} == {body}
            return
        assert not errors, errors
        getattr(self, f"check_{what}")(body)

    def check_lock(self, body: str) -> None:
        name, state, *shards = body.split(" ", 2)
        (view,) = [view for view in coordinate.views(self.world.meta) if view.target == table(name)]
        waits = view.conflicts if state == "conflict" else view.missing
        assert (view.state.value, ", ".join(map(str, waits))) == (state, shards[0] if shards else "")

    def check_nolock(self, body: str) -> None:
        assert not [view for view in coordinate.views(self.world.meta) if view.target == table(body)]

    def check_held(self, body: str) -> None:
        held = [file.rows for state in self.world.meta.structures.shards() for file in state.held]
        assert sum(held) == int(body)

    def check_ddl(self, body: str) -> None:
        new = [ddl for _, ddl in self.world.executed[self.told :]]
        self.told = len(self.world.executed)
        assert new == [ddl.strip() for ddl in body.split("|") if ddl.strip()]

    def check_rows(self, body: str) -> None:
        name, _, rows = body.partition(" ")
        found = self.world.target[table(name)]
        listed = {",".join(row[c] for c in found.schema.names) for row in found.rows.values()}
        assert listed == {row.strip() for row in rows.split("|") if row.strip()}

    def check_union(self, body: str) -> None:
        for target, found in self.world.target.items():
            assert found.listing() == self.world.union(target), target


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_case(path: Path, size: int) -> None:
    Player(parse(path), size).play()


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_case_with_a_death_at_every_point(path: Path) -> None:
    scenario = parse(path)
    whole = Player(scenario, SIZES[1])
    rows = {name: found.listing() for name, found in whole.play().target.items()}
    for tick in range(1, whole.ticks + 1, DEATHS_EVERY):
        player = Player(scenario, SIZES[1], frozenset({tick}))
        assert {name: found.listing() for name, found in player.play().target.items()} == rows, tick
        assert player.world.executed == whole.world.executed, tick


def test_a_line_that_is_not_a_step_is_named_in_the_error() -> None:
    from tests.scenario.language import parse_text

    with pytest.raises(SyntaxError, match="text:3"):
        parse_text("# title\n\ns1 shard.t multiply 7")
