"""All scenarios again, and random play, with the real meta tables under the same windows and locks."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.scenario.language import parse
from tests.scenario.test_cases import CASES, Player
from tests.scenario.test_random import Game
from tests.scenario.test_random_commands import OrderedGame
from tests.scenario.world import EVENT_BYTES, World
from unshard.adapters.meta import Meta
from unshard.core.model import TableId
from unshard.core.task.state import BegunWindow
from unshard.errors.locks import LockBusy, UnknownLock
from unshard.errors.meta import FencedOut
from unshard_demo.processes import await_true
from unshard_demo.servers import MariaDb

pytestmark = pytest.mark.integration

CLAIM = """UPDATE {}.fence SET `window` = %s WHERE task = %s AND source = %s AND target_schema = %s
AND target_table = %s AND epoch = %s AND `window` < %s"""


class RealMeta(Meta):
    """The meta store with the fence that the data writer takes."""

    database: MariaDb

    def claim(self, target: TableId, begun: BegunWindow) -> bool:
        key = self.task, begun.plan.source, target.schema, target.name, begun.epoch
        with self.database.connect() as connection, connection.cursor() as cursor:
            if cursor.execute(CLAIM.format(self.schema), (begun.plan.number, *key, begun.plan.number)):
                return True
            cursor.execute(f"SELECT epoch FROM {self.schema}.fence WHERE task = %s AND source = %s", key[:2])
            ((found,), *_) = cursor.fetchall()
        if found != begun.epoch:
            raise FencedOut(begun.plan.source, begun.plan.number, begun.epoch, found)
        return False


@pytest.fixture
def meta(target: MariaDb, unique: str) -> Iterator[RealMeta]:
    made = RealMeta(target.server, unique, "sim")
    made.database = target
    made.create_tables()
    yield made
    made.close()
    target.run(f"DROP DATABASE {unique}")


@pytest.mark.sample(reason="all cases run in memory, a part on the real meta tables", every=12)
@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_case(path: Path, meta: RealMeta) -> None:
    scenario = parse(path)
    Player(scenario, 0, make=lambda tick: World(scenario.routes, tick, meta, 3 * EVENT_BYTES)).play()


@pytest.mark.sample(reason="all games run in memory, a part on the real meta tables", every=12)
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("forces", [False, True])
def test_random_play(meta: RealMeta, seed: int, forces: bool) -> None:
    game = Game(Random(seed), forces, meta)
    game.play()
    game.check()


@pytest.mark.parametrize("seed", [228, 676])
def test_random_play_with_orders_of_every_kind(meta: RealMeta, seed: int) -> None:
    game = OrderedGame(Random(seed), meta)
    game.play()
    game.check()


def test_one_executor_at_a_time(meta: RealMeta, target: MariaDb) -> None:
    with pytest.raises(UnknownLock):
        meta.locks.get("sim-shard.t-1")
    target.run(f"INSERT INTO {meta.schema}.ddl_lock_guard VALUES ('sim', 'x')")
    with meta.locks.exclusive("x"):
        with pytest.raises(LockBusy):
            with meta.locks.exclusive("x"):
                pytest.fail("two at once")
    with meta.locks.exclusive("x"):
        pass


def test_a_dead_executor_leaves_the_lock_free(meta: RealMeta, target: MariaDb) -> None:
    target.run(f"INSERT INTO {meta.schema}.ddl_lock_guard VALUES ('sim', 'x')")
    dead = target.connect()
    dead.begin()
    with dead.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {meta.schema}.ddl_lock_guard WHERE lock_id = 'x' FOR UPDATE")
    with pytest.raises(LockBusy):
        meta.locks.exclusive("x").__enter__()
    dead._force_close()  # as the end of a process closes its socket

    def is_free() -> bool:
        with contextlib.suppress(LockBusy), meta.locks.exclusive("x"):
            return True
        return False

    await_true(is_free, 900, [target.program], "the server to notice the dead connection")
