"""Random rollouts on paper: canaries, reversals, different orders, late rows and deaths; nothing remains at the end.

Each shard runs the migrations of a rollout in its own order, some of them forth and back before. At the end every shard
has run the same. `UNSHARD_EXAMPLES=10000` runs 10,000.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from tests.suite.portions import examples
from tests.unit.join.paper import create
from tests.unit.join.rollout import Play, shards

EXAMPLES = examples(6, 50, 10_000)
TABLE = (
    "CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT NOT NULL, c VARCHAR(9), d DECIMAL(8,2), e ENUM('x','y'), "
    "g INT, UNIQUE KEY u (b), KEY k (c))"
)
COLUMN_OF = {"u": "b", "k": "c"}
"""The columns of the indexes."""
DEFAULTS = ("", " DEFAULT 0", " DEFAULT -1", " DEFAULT now()", " NOT NULL", " NOT NULL DEFAULT 7")


@dataclass(frozen=True)
class Migration:
    """What a shard runs, and what undoes it; each is a list of clauses in one or several statements."""

    forth: Callable[[random.Random], list[str]]
    back: Callable[[random.Random], list[str]]


def fixed(*clauses: str) -> Callable[[random.Random], list[str]]:
    return lambda _: [*clauses]


def added(name: str, kind: str) -> Migration:
    """A new column, which each shard may add with another default."""
    return Migration(
        lambda dice: [f"ADD COLUMN {name} {kind}{dice.choice(DEFAULTS)}", f"MODIFY {name} {kind}"],
        fixed(f"DROP COLUMN {name}"),
    )


def renamed(old: str, new: str) -> Migration:
    return Migration(fixed(f"RENAME COLUMN {old} TO {new}"), fixed(f"RENAME COLUMN {new} TO {old}"))


MIGRATIONS = (
    added("n1", "INT"),
    added("n2", "BIGINT"),
    renamed("a", "a2"),
    Migration(fixed("RENAME COLUMN a TO h", "RENAME COLUMN h TO a3"), fixed("RENAME COLUMN a3 TO a")),
    Migration(fixed("MODIFY g BIGINT"), fixed("MODIFY g INT")),
    Migration(fixed("MODIFY g SMALLINT"), fixed("MODIFY g INT")),
    Migration(fixed("MODIFY c VARCHAR(20)"), fixed("MODIFY c VARCHAR(9)")),
    Migration(fixed("MODIFY c TEXT", "DROP INDEX k"), fixed("MODIFY c VARCHAR(9)", "ADD INDEX k (c)")),
    Migration(fixed("MODIFY d DECIMAL(8,1)"), fixed("MODIFY d DECIMAL(8,2)")),
    Migration(fixed("MODIFY d DECIMAL(8,1)", "MODIFY d DECIMAL(8,0)"), fixed("MODIFY d DECIMAL(8,2)")),
    Migration(fixed("MODIFY a VARCHAR(9)"), fixed()),
    Migration(fixed("MODIFY b INT", "MODIFY a VARCHAR(9)", "MODIFY b INT NOT NULL"), fixed()),
    Migration(fixed("MODIFY e ENUM('x','y','z')"), fixed("MODIFY e ENUM('x','y')")),
    Migration(fixed("MODIFY e ENUM('x','y','w')", "MODIFY e ENUM('x','y','w','z')"), fixed("MODIFY e ENUM('x','y')")),
    Migration(fixed("DROP INDEX u", "ADD UNIQUE KEY u (b, g)"), fixed("DROP INDEX u", "ADD UNIQUE KEY u (b)")),
    Migration(fixed("DROP INDEX k"), fixed("ADD INDEX k (c)")),
    Migration(fixed("MODIFY b INT"), fixed("MODIFY b INT NOT NULL")),
    Migration(fixed("DROP COLUMN g"), lambda dice: [f"ADD COLUMN g INT{dice.choice(('', ' DEFAULT 3'))}"]),
    Migration(fixed("DROP COLUMN g", "ADD COLUMN g INT"), fixed()),
    Migration(fixed("DROP COLUMN a", "RENAME COLUMN g TO a"), fixed("RENAME COLUMN a TO g", "ADD COLUMN a INT")),
    Migration(fixed("RENAME COLUMN a TO s", "RENAME COLUMN g TO a", "RENAME COLUMN s TO g"), fixed("SWAP a g")),
    Migration(fixed("ADD COLUMN m INT AS (id + 1) STORED"), fixed("DROP COLUMN m")),
    Migration(fixed("DROP COLUMN c", "ADD COLUMN c INT"), fixed("DROP COLUMN c", "ADD COLUMN c VARCHAR(9)")),
    Migration(fixed("ADD COLUMN p INT", "DROP COLUMN p", "ADD COLUMN p DECIMAL(6,2)"), fixed("DROP COLUMN p")),
    Migration(fixed("MODIFY g INT NOT NULL"), fixed("MODIFY g INT")),
    Migration(fixed("ADD UNIQUE KEY v (g, id)"), fixed("DROP INDEX v")),
    Migration(fixed("ADD CONSTRAINT positive CHECK (id > 0)"), fixed("DROP CONSTRAINT positive")),
    Migration(
        fixed("RENAME COLUMN d TO d2", "MODIFY d2 DECIMAL(10,3)"),
        fixed("MODIFY d2 DECIMAL(8,2)", "RENAME COLUMN d2 TO d"),
    ),
)


def statements(clauses: list[str], dice: random.Random) -> Iterator[str]:
    """Yield the clauses in one statement or several; MODIFY and RENAME of one column need several."""
    for clause in clauses:
        if clause.startswith("SWAP"):
            _, one, other = clause.split()
            yield f"ALTER TABLE t RENAME COLUMN {one} TO {other}, RENAME COLUMN {other} TO {one}"
    plain = [clause for clause in clauses if not clause.startswith("SWAP")]
    kinds = {clause.split()[0] for clause in plain}
    named = (clause for clause in plain if clause.startswith(("RENAME", "ADD COLUMN", "DROP COLUMN")))
    names = [clause.split()[2].lower() for clause in named]
    is_one = dice.random() < 0.5 and len({*names}) == len(names) and kinds <= {"ADD", "DROP", "RENAME"}
    if is_one and plain and not any("TO h" in each or "TO s" in each for each in plain):
        yield f"ALTER TABLE t {', '.join(plain)}"
    else:
        yield from (f"ALTER TABLE t {clause}" for clause in plain)


class Rollout(Play):
    """A random rollout; its number determines everything."""

    def __init__(self, number: int, sources: int = 2) -> None:
        self.dice = random.Random(number)
        self.shards = shards(self.dice.randrange(1, 5), sources)
        first = self.dice.randrange(len(MIGRATIONS))
        numbers = [first]
        other = self.dice.randrange(len(MIGRATIONS))
        if self.dice.random() < 0.6 and self.is_apart(first, other):
            numbers.append(other)
        super().__init__(create(TABLE), {shard: self.script(numbers) for shard in self.shards}, self.dice)

    @staticmethod
    def is_apart(one: int, other: int) -> bool:
        """Whether two migrations concern different columns; a dropped column takes its index with it."""
        words = [
            {word.strip("(),").lower() for clause in MIGRATIONS[n].forth(random.Random(0)) for word in clause.split()}
            & {*"abcdegkmpu", "n1", "n2"}
            for n in (one, other)
        ]
        words = [{COLUMN_OF.get(word, word) for word in each} for each in words]
        return not words[0] & words[1]

    def script(self, numbers: list[int]) -> list[str]:
        """Return the DDL of one shard: some migrations forth and back, then all of them."""
        texts, order = list[str](), self.dice.sample(numbers, len(numbers))
        for number in order:
            migration = MIGRATIONS[number]
            back = migration.back(self.dice)
            for _ in range(self.dice.choice((0, 0, 0, 1, 1, 2))):
                if back:
                    texts += statements(migration.forth(self.dice), self.dice)
                    texts += statements(migration.back(self.dice), self.dice)
            texts += statements(migration.forth(self.dice), self.dice)
        return texts


def play(number: int) -> None:
    rollout = Rollout(number)
    try:
        rollout.play()
    except Exception as error:
        scripts = "\n".join(f"{shard}: {'; '.join(texts)}" for shard, texts in rollout.texts.items())
        raise AssertionError(f"rollout {number}:\n{scripts}\n{rollout.world.executed}\n{error}") from error


@pytest.mark.parametrize("start", range(0, EXAMPLES, 50))
def test_random_rollouts(start: int) -> None:
    for number in range(start, start + 50):
        play(number)
