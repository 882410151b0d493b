"""Random rollouts in optimistic mode on real servers: canaries, reversals, other orders, restarts; rows all the time.

The migrations are those of `tests/unit/join/test_rollouts.py`. `UNSHARD_EXAMPLES=100` plays 100 rollouts.
"""

import contextlib
import random
import re
from pathlib import Path

import pymysql
import pytest

from tests.joinedtask import JoinedTask
from tests.suite.portions import examples
from tests.unit.join.rollout import Play
from tests.unit.join.test_rollouts import Rollout
from unshard.core.join.decision import wanted
from unshard.core.join.difference import is_equal
from unshard.core.model import Shard
from unshard_demo.servers import MariaDb

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.mariadb_only("the migrations are in the dialect of MariaDB"),
]

EXAMPLES = examples(0, 3, 100)
COLUMNS = (
    "id INT PRIMARY KEY, a INT, b INT NOT NULL, c VARCHAR(9), d DECIMAL(8,2), e ENUM('x','y'), g INT, "
    "UNIQUE KEY u (b), KEY k (c)"
)


class Game:
    """A rollout; its number determines everything but the moments of locks."""

    value = Play.value

    def __init__(self, task: JoinedTask, number: int) -> None:
        made = Rollout(number)
        self.task, self.dice, self.key = task, random.Random(f"server {number}"), 0
        self.texts = {shard: [*texts] for shard, texts in made.texts.items()}
        self.keys = {shard: list[int]() for shard in self.texts}

    def run(self, shard: Shard, sql: str) -> None:
        with contextlib.suppress(pymysql.err.Error):  # the source refuses it
            self.task.sources[shard.source].run(sql.replace("TABLE t ", f"TABLE {self.name(shard)} ", 1))

    def name(self, shard: Shard) -> str:
        return f"{self.task.name}.t_{shard.table.name[1:]}"

    def rows(self, shard: Shard) -> None:
        keys = self.keys[shard]
        if keys and self.dice.random() < 0.2:
            self.run(shard, f"DELETE FROM {self.name(shard)} WHERE id = {keys.pop(0)}")
            return
        if not keys or self.dice.random() < 0.6:
            self.key += 1
            keys.append(self.key)
        key = self.dice.choice(keys)
        shown = self.task.sources[shard.source].run(f"SHOW COLUMNS FROM {self.name(shard)}")
        fields = {row[0]: self.value(str(row[1]), row[2] == "YES", key) for row in shown if "GENERATED" not in row[5]}
        values = ", ".join("NULL" if each is None else f"'{each}'" for each in fields.values())
        self.run(shard, f"REPLACE INTO {self.name(shard)} ({', '.join(fields)}) VALUES ({values})")

    def ddl(self, shard: Shard, text: str) -> None:
        """Change a shard; first the values that the server would not convert."""
        if found := re.search(r"MODIFY (b|g) INT NOT NULL", text):
            self.run(shard, f"UPDATE {self.name(shard)} SET {found[1]} = id WHERE {found[1]} IS NULL")
        if found := re.search(r"MODIFY e ENUM(\(.*?\))", text):
            self.run(shard, f"UPDATE {self.name(shard)} SET e = 'x' WHERE e NOT IN {found[1]}")
        self.run(shard, text)

    def play(self) -> None:
        while any(self.texts.values()):
            shard = self.dice.choice(sorted(self.texts))
            match self.dice.randrange(8):
                case 0 | 1 | 2 if self.texts[shard]:
                    self.ddl(shard, self.texts[shard].pop(0))
                case 3 | 4 | 5:
                    self.rows(shard)
                case 6:
                    self.task.pull(shard.source)
                    self.task.window(shard.source)
                case 7:
                    self.task.restart()
                    self.task.coordinate()
        for shard in self.texts:
            self.rows(shard)
        self.task.run()
        self.check()

    def check(self) -> None:
        joined, present = self.task.joined("t")
        assert not [state for state in self.task.states() if state.queue or state.held]
        assert not [member.reloads for member in joined.group.members.values() if member.reloads]
        assert is_equal(present, wanted(joined.group))
        self.task.assert_union("t")


@pytest.mark.parametrize("number", range(EXAMPLES))
def test_rollout(
    number: int, source_1: MariaDb, source_2: MariaDb, target: MariaDb, unique: str, tmp_path: Path
) -> None:
    task = JoinedTask(unique, tmp_path, {"s1": source_1, "s2": source_2}, target, ["t"])
    game = Game(task, number)
    numbers = {
        (source, "t"): [int(s.table.name[1:]) for s in sorted(game.texts) if s.source == source]
        for source in task.sources
    }
    try:
        task.make({"t": COLUMNS}, numbers)
        game.play()
    finally:
        task.drop()
