"""Situations for which the code of pessimistic mode has names, each played with the group and its ids.

`NOTION` says what it needs besides ids and standing apart: nothing, or a notion that stays.
"""

from collections.abc import Callable

from prototype import group as one
from prototype import paper
from prototype.group import Policy
from prototype.world import Answer, RowWithoutPlace, World
from tests.unit.join.rollout import shards
from unshard.core.model import Shard

A, B, C, D = shards(4)
T = "id INT PRIMARY KEY, a INT, b INT DEFAULT 1"
PLAYED: dict[str, Callable[[], None]] = {}
NOTION: dict[str, str] = {}
KEPT = (
    "DROP a",
    "ADD n INT",
    "ADD n INT DEFAULT 5 FIRST",
    "ADD n VARCHAR(9) NOT NULL DEFAULT 'u'",
    "ADD n INT NOT NULL",
    "ADD n VARCHAR(9) NOT NULL",
    "ADD n ENUM('x','y') NOT NULL",
    "ADD n INT AS (id + 1) STORED",
    "RENAME COLUMN a TO n",
    "CHANGE c n VARCHAR(40)",
    "RENAME COLUMN a TO d, RENAME COLUMN d TO a",
    "RENAME COLUMN id TO n",
    "MODIFY a SMALLINT",
    "MODIFY c VARCHAR(1)",
    "MODIFY d TINYINT NOT NULL",
    "MODIFY a BIGINT",
    "MODIFY c TEXT",
    "MODIFY a VARCHAR(20)",
    "MODIFY c VARCHAR(20) COLLATE utf8mb4_bin",
    "DROP a, ADD a VARCHAR(9) DEFAULT 'other'",
    "DROP a; ADD a VARCHAR(9) DEFAULT 'other'",
    "DROP a, ADD a INT NOT NULL",
    "RENAME COLUMN a TO x; ADD a INT DEFAULT 3",
    "ADD n INT NOT NULL DEFAULT 4, DROP PRIMARY KEY, ADD PRIMARY KEY (id, n)",
    "DROP PRIMARY KEY, ADD PRIMARY KEY (id, d)",
    "DROP PRIMARY KEY",
    "MODIFY a INT NOT NULL",
    "ADD UNIQUE KEY u (d)",
    "ADD INDEX i (d)",
    "ADD CONSTRAINT p CHECK (id > 0)",
    "MODIFY d BIGINT",
)
"""DDL that the target runs before a shard does (tests/integration/ddl/test_rows_after_ddl.py), with narrowing ones."""
LOST = (
    ("MODIFY a TINYINT", {"a": 1000}),
    ("MODIFY c VARCHAR(3)", {"c": "four"}),
    ("MODIFY a INT NOT NULL", {"a": None}),
)
OLD = "id INT PRIMARY KEY, a INT, c VARCHAR(20), d BIGINT NOT NULL DEFAULT 7"


def situation(name: str, notion: str = "") -> Callable[[Callable[[], None]], Callable[[], None]]:
    def noted(play: Callable[[], None]) -> Callable[[], None]:
        PLAYED[name], NOTION[name] = play, notion
        return play

    return noted


def world(columns: str = "id INT PRIMARY KEY, a INT", *others: Shard) -> World:
    table = paper.create(f"CREATE TABLE t ({columns})")
    return World(dict.fromkeys((A, B, *others), table), None, Policy.TOGETHER)


def ran(made: World, shard: Shard, *texts: str) -> None:
    for text in texts:
        made.ddl(shard, f"ALTER TABLE t {text}")


def row(made: World, shard: Shard, key: object, **values: object) -> None:
    own = {c.name.lower(): 7 if "int" in c.type else "v" for c in made.upstream[shard].table.columns}
    made.write(shard, key, {**own, "id": key, **values})


def value(made: World, key: object, name: str) -> object:
    ids = {name: id for id, name in made.target.names.items()}
    return made.rows[key][ids[name]]


def names(made: World) -> set[str]:
    return {*made.target.names.values()}


# --- test_ways_out.py


@situation("ways out: unlock of a conflict resolves both, later DDL agree")
def _() -> None:
    made = world()
    ran(made, A, "ADD nc1 INT DEFAULT 0")
    row(made, A, 1)
    ran(made, B, "ADD nc1 INT DEFAULT -1")
    row(made, B, 2, nc1=-1)
    made.run()
    assert made.change().state == "conflict"
    assert made.unlock()
    made.run()
    assert not made.changes() and value(made, 2, "nc1") == -1
    ran(made, A, "ADD nc2 INT")
    row(made, A, 3)
    made.run()
    assert made.change().state == "waiting" and made.change().lacks == (B,)
    ran(made, B, "ADD nc2 INT")
    made.run()
    assert not made.changes() and made.texts == ["ADD nc1 INT DEFAULT 0", "ADD nc2 INT"]
    made.check_rows()


@situation("ways out: two DDL in different order, one unlock executes both")
def _() -> None:
    made = world()
    for shard, texts in (
        (A, ("ADD p INT DEFAULT 1", "ADD q INT DEFAULT 2")),
        (B, ("ADD q INT DEFAULT 2", "ADD p INT DEFAULT 1")),
    ):
        for number, text in enumerate(texts):
            ran(made, shard, text)
            row(made, shard, f"{shard}{number}")
    made.run()
    assert made.change().state == "conflict" and made.unlock()
    made.check_end()
    assert not made.changes() and len(made.texts) == 2 and not made.group.apart


def renamed_otherwise(*queued: str) -> World:
    made = world()
    for number, (shard, name) in enumerate(((A, "c"), (B, "d"))):
        row(made, shard, number)
        ran(made, shard, f"CHANGE a {name} INT")
        row(made, shard, 10 + number)
    ran(made, B, *queued)
    made.run()
    assert made.change().state == "conflict"
    assert made.replace_shard(B, "ALTER TABLE t CHANGE a c INT")
    made.run()
    return made


@situation("own names: a column with another name in one shard stays one column")
def _() -> None:
    made = renamed_otherwise()
    assert not made.changes() and names(made) == {"id", "c"} and made.held() == 0
    made.check_rows()
    ran(made, A, "MODIFY c BIGINT")
    row(made, A, 100, c=1 << 40)
    ran(made, B, "MODIFY d BIGINT")
    row(made, B, 200, d=1 << 41)
    made.run()
    assert not made.changes(), made.changes()
    made.create(C, made.upstream[B].table.copy())
    row(made, C, 300, d=5)
    made.run()
    assert value(made, 300, "c") == 5 and value(made, 200, "c") == 1 << 41
    for shard in (B, C):
        ran(made, shard, "CHANGE d c BIGINT")
        row(made, shard, f"4{shard}")
    made.run()
    assert not made.changes() and len(made.texts) == 2, (made.texts, made.changes())
    for shard in (A, B, C):
        ran(made, shard, "DROP c, ADD d INT")
        row(made, shard, f"5{shard}")
    made.check_end()
    assert not made.group.apart and names(made) == {"id", "d"}


@situation("own names: DDL that were queued before the decision follow it")
def _() -> None:
    made = renamed_otherwise("MODIFY d BIGINT", "CHANGE d c BIGINT")
    row(made, B, 22, c=1 << 41)
    made.run()
    assert made.change().lacks == (A,)
    ran(made, A, "MODIFY c BIGINT")
    made.check_end()
    assert len(made.texts) == 2 and value(made, 22, "c") == 1 << 41


@situation("own names: a statement that may mean both names waits")
def _() -> None:
    made = renamed_otherwise("ADD c INT")
    row(made, B, 21)
    made.run()
    assert made.change().lacks == (A,) and made.held() == 1


@situation("own names: the shard follows a further rename of its group")
def _() -> None:
    made = renamed_otherwise()
    ran(made, B, "CHANGE d e INT")
    ran(made, A, "CHANGE c e INT")
    row(made, B, 50, e=4)
    made.check_end()
    assert names(made) == {"id", "e"} and value(made, 50, "e") == 4


@situation("ways out: a column that the target has under its name is not added again")
def _() -> None:
    made = world()
    ran(made, A, "ADD x INT")
    row(made, A, 1)
    ran(made, B, "COMMENT 'c'", "ADD x BIGINT")
    row(made, B, 2)
    made.run()
    assert made.replace_shard(B, "ALTER TABLE t ADD x INT")
    made.run()
    assert [c.state for c in made.changes()] == ["waiting"], made.changes()
    assert made.unlock()
    made.run()
    assert not made.changes() and made.held() == 0 and (value(made, 1, "x"), value(made, 2, "x")) == (7, 7)
    made.check_rows()


@situation("ways out: the same column of another type")
def _() -> None:
    made = world()
    ran(made, A, "ADD x INT")
    row(made, A, 1)
    ran(made, B, "ADD x BIGINT")
    row(made, B, 2, x=1 << 40)
    made.run()
    assert made.change().state == "conflict" and made.unlock()
    made.run()
    assert not made.changes() and value(made, 2, "x") == 1 << 40
    made.check_rows()


@situation("ways out: a shard in conflict is dropped")
def _() -> None:
    made = world()
    ran(made, A, "CHANGE a c INT")
    row(made, A, 1)
    ran(made, B, "CHANGE a d INT")
    row(made, B, 2)
    made.run()
    made.drop_shard(B)
    made.check_end()
    assert names(made) == {"id", "c"} and 1 in made.rows


@situation("ways out: two renames of one column, unlocked one after the other: the last one is the name")
def _() -> None:
    made = world()
    ran(made, A, "CHANGE a c INT")
    ran(made, B, "CHANGE a d INT")
    made.run()
    assert made.change().others == (B,)
    assert made.unlock()
    made.run()
    row(made, A, 1, c=3)
    row(made, B, 2, d=4)
    assert made.changes() and made.unlock()
    made.run()
    assert not made.changes() and names(made) == {"id", "d"} and (value(made, 1, "d"), value(made, 2, "d")) == (3, 4)


# --- pending skips, exempted shards


@situation("pending skip: a late shard skips the unlocked DDL")
def _() -> None:
    made = world()
    ran(made, A, "ADD c INT DEFAULT 5")
    made.run()
    assert made.unlock()
    row(made, B, 2)
    made.run()
    assert value(made, 2, "c") == 5
    ran(made, B, "ADD c INT DEFAULT 5")
    row(made, B, 3, c=9)
    made.check_end()
    assert made.texts == ["ADD c INT DEFAULT 5"] and not made.group.apart and value(made, 3, "c") == 9


@situation("pending skip: the late shard never runs the narrowing DDL, then all run another one on the column")
def _() -> None:
    made = world()
    ran(made, A, "MODIFY a SMALLINT")
    made.run()
    assert made.unlock() and made.group.apart
    for shard in (A, B):
        ran(made, shard, "MODIFY a BIGINT")
        row(made, shard, f"{shard}", a=1 << 40)
    made.check_end()
    assert not made.changes() and not made.group.apart


@situation("pending skip of `skip`: the target keeps its column, late shards too, a later DDL of all counts again")
def _() -> None:
    made = world("id INT PRIMARY KEY, a INT", C)
    ran(made, A, "MODIFY a BIGINT, ADD c INT")
    row(made, A, 1, a=5, c=6)
    made.run()
    assert made.skip()
    made.run()
    assert made.held() == 0 and names(made) == {"id", "a"} and not made.texts
    ran(made, B, "MODIFY a BIGINT, ADD c INT")
    row(made, B, 2, a=5, c=6)
    made.run()
    assert not made.changes() and names(made) == {"id", "a"} and not made.texts
    for shard in (A, B):
        ran(made, shard, "DROP c, MODIFY a DECIMAL(9,1)")
    ran(made, C, "MODIFY a DECIMAL(9,1)")
    made.check_end()
    assert not made.changes() and not made.group.apart, (made.changes(), made.group.apart)


@situation(
    "pending skip of a statement of unknown effect, for shards that run it later", "fingerprint: an answer by text"
)
def _() -> None:
    made = world()
    made.ddl(A, "ALTER TABLE t florble", is_unknown=True)
    made.run()
    assert made.change().state == "undecided" and made.skip()
    made.run()
    made.ddl(B, "ALTER TABLE t florble", is_unknown=True)
    made.check_end()
    assert not made.changes()


@situation("exempted shard: an open DDL does not wait for it", "exempted shards of an open DDL are stored with it")
def _() -> None:
    made = world("id INT PRIMARY KEY, a INT", C)
    ran(made, A, "ADD c INT")
    made.run()
    assert {*made.change().lacks} == {B, C} and made.skip_shard(C)
    assert made.change().lacks == (B,)
    ran(made, B, "ADD c INT")
    made.run()
    assert not made.changes() and made.texts == ["ADD c INT"] and made.group.apart
    row(made, C, 3)
    ran(made, C, "ADD c INT")
    row(made, C, 4, c=8)
    made.check_end()
    assert not made.group.apart and value(made, 4, "c") == 8


@situation("exempted shard: it has the DDL and goes on after it", "exempted shards of an open DDL are stored with it")
def _() -> None:
    made = world("id INT PRIMARY KEY, a INT", C)
    ran(made, A, "ADD c INT")
    made.run()
    assert made.skip_shard(A)
    ran(made, A, "ADD d INT")
    row(made, A, 1)
    for shard in (B, C):
        ran(made, shard, "ADD c INT")
    made.run()
    assert made.texts == ["ADD c INT"] and {*made.change().lacks} == {B, C}
    for shard in (B, C):
        ran(made, shard, "ADD d INT")
    made.check_end()


@situation("skip --shard at another DDL: the shard is waited for again")
def _() -> None:
    made = world()
    ran(made, A, "ADD c INT")
    ran(made, B, "ADD z INT")
    row(made, B, 2, z=4)
    made.run()
    assert made.change().others == (B,) and made.skip_shard(B)
    made.run()
    assert made.change().lacks == (B,) and "z" not in names(made) and value(made, 2, "a") == 7
    ran(made, B, "ADD c INT")
    made.run()
    assert not made.changes() and names(made) == {"id", "a", "c"}
    for shard in (A, B):
        made.check_rows()


@situation("pending skip: a late shard runs an unlocked DDL after the others have reversed it")
def _() -> None:
    made = world()
    ran(made, A, "ADD c INT")
    made.run()
    assert made.unlock()
    ran(made, A, "DROP c")
    made.run()
    assert not made.changes() and names(made) == {"id", "a"}
    ran(made, B, "ADD c INT")
    row(made, B, 2)
    made.run()
    assert made.changes() and made.held() == 1, "its own reversal must follow; today a pending skip is stored"
    ran(made, B, "DROP c")
    made.check_end()
    assert not made.changes() and value(made, 2, "a") == 7 and not made.group.apart


@situation(
    "a DDL of which the structure shows nothing is waited for and executed", "fingerprint: the statement is the subject"
)
def _() -> None:
    made = world()
    for text in ("ENGINE=innodb", "FORCE"):
        ran(made, A, text)
        row(made, A, text)
        made.run()
        assert made.change().lacks == (B,) and made.held() == 1
        ran(made, B, text)
        made.run()
        assert not made.changes() and made.texts[-1] == text
    ran(made, A, "FORCE")
    made.run()
    assert made.unlock()
    ran(made, A, "ADD c INT")
    ran(made, B, "FORCE", "ADD c INT")
    made.check_end()
    assert made.texts[-2:] == ["FORCE", "ADD c INT"] and not made.group.apart


# --- replace


@situation("replace: the target gets two statements, late shards are resolved by them")
def _() -> None:
    made = world("id INT PRIMARY KEY, a INT", C)
    ran(made, A, "ADD c INT")
    row(made, A, 1)
    made.run()
    assert made.replace_all("ALTER TABLE t ADD d INT", "ALTER TABLE t ADD c INT") and made.unlock()
    made.run()
    assert names(made) == {"id", "a", "c", "d"} and made.held() == 0
    for shard in (B, C):
        ran(made, shard, "ADD c INT")
        row(made, shard, f"{shard}", c=3)
    made.run()
    assert not made.changes() and value(made, f"{B}", "c") == 3 and value(made, f"{B}", "d") is None


@situation("replace by other columns: the rows of the shards go where the statements put them")
def _() -> None:
    made = world()
    ran(made, A, "ADD c INT")
    ran(made, B, "ADD c INT")
    made.refuses = True
    row(made, A, 1, c=5)
    made.run()
    assert made.is_failed
    made.refuses = False
    assert made.replace_all("ALTER TABLE t ADD c BIGINT DEFAULT 0")
    made.run()
    assert not made.changes() and value(made, 1, "c") == 5


# --- new shards, unknown effects


@situation("mismatched new shard: its columns are an open change, the others are exempted by one command")
def _() -> None:
    made = world()
    made.create(C, paper.create("CREATE TABLE t (id INT PRIMARY KEY, a INT, weird INT)"))
    row(made, C, 3, weird=5)
    made.run()
    assert made.changes() and 3 not in made.rows and made.unlock()
    made.run()
    assert value(made, 3, "weird") == 5
    made.create(D, paper.create("CREATE TABLE t (id INT PRIMARY KEY, a INT)"))
    row(made, D, 4)
    made.check_rows()
    made.run()
    assert 4 in made.rows and not made.changes()


@situation("new shard ahead of its group: it joins when the group has its structure")
def _() -> None:
    made = world()
    made.create(C, paper.create("CREATE TABLE t (id INT PRIMARY KEY, a INT, c INT)"))
    row(made, C, 3, c=5)
    for shard in (A, B):
        made.run()
        assert 3 not in made.rows
        ran(made, shard, "ADD c INT")
    made.check_end()
    assert value(made, 3, "c") == 5


@situation("new shards like a late one have its place, and skip the DDL with it")
def _() -> None:
    made = world(T)
    ran(made, A, "DROP b, RENAME COLUMN a TO x")
    made.run()
    assert made.unlock()
    for shard in (C, D):
        made.create(shard, made.upstream[B].table.copy())
        row(made, shard, f"{shard}", a=30)
    made.run()
    assert value(made, f"{C}", "x") == 30 and "b" not in names(made)
    for shard in (B, C, D):
        ran(made, shard, "DROP b, RENAME COLUMN a TO x")
    made.check_end()
    assert len(made.texts) == 1 and not made.group.apart


@situation("a source that comes when a narrowing DDL is resolved stands apart where it differs from the target")
def _() -> None:
    made = world(T)
    for shard in (A, B):
        ran(made, shard, "DROP b")
    made.run()
    late = paper.create(f"CREATE TABLE t ({T})")
    made.create(C, late)
    row(made, C, 3, a=4)
    made.run()
    assert 3 not in made.rows, "it is new: its column b is an open change"
    assert made.give_late(C)
    made.run()
    assert value(made, 3, "a") == 4 and "b" not in names(made)
    ran(made, C, "DROP b")
    made.check_end()
    assert len(made.texts) == 1 and not made.group.apart


@situation(
    "undecided: DDL after one of unknown effect, and its rows, are decided with it", "undecided: unknown structures"
)
def _() -> None:
    made = world()
    made.ddl(A, "ALTER TABLE t ADD c INT", is_unknown=True)
    row(made, A, 1, c=5)
    ran(made, A, "ADD d INT")
    row(made, A, 2, c=5, d=6)
    made.run()
    assert made.change().state == "undecided"
    made.replace_shard(A, "ALTER TABLE t ADD c INT")
    ran(made, B, "ADD c INT", "ADD d INT")
    made.check_end()
    assert value(made, 2, "d") == 6


@situation("unlogged DDL: the statement is stated, then it joins that of its group", "undecided: unknown structures")
def _() -> None:
    made = world()
    ran(made, A, "ADD c INT")
    ran(made, B, "ADD c INT")
    made.ddl(B, "ALTER TABLE t ADD d INT", is_unknown=True)
    row(made, B, 2, c=1, d=2)
    made.run()
    made.answer(B, Answer(statements=("ALTER TABLE t ADD d INT",)))
    made.run()
    assert made.change().lacks == (A,)
    ran(made, A, "ADD d INT")
    made.check_end()
    assert value(made, 2, "d") == 2


# --- rows of a shard that has not run the DDL


def late_rows(texts: str) -> None:
    made = world(OLD)
    for text in texts.split("; "):
        ran(made, A, text)
        made.run()
        assert made.unlock(), text
    made.run()
    assert not made.changes(), made.changes()
    for key, values in (
        (1, {"a": 100, "c": "a", "d": 5}),
        (2, {"a": 2, "c": "", "d": 6}),
        (3, {"a": -1, "c": "x", "d": 9}),
    ):
        row(made, B, key, **values)
    made.run()
    assert made.held() == 0 and {1, 2, 3} <= made.rows.keys()
    before = {key: dict(made.rows[key]) for key in (1, 2, 3)}
    executed = len(made.texts)
    ran(made, B, *texts.split("; "))
    while made.window(B):  # without a reload: the rows must be there already
        pass
    assert not made.changes(), made.changes()
    assert {key: made.rows[key] for key in before} == before
    up = made.upstream[B].rows
    ids = {name: id for id, name in made.target.names.items()}
    for key, own in before.items():
        for name, found in up[key].items():
            assert own[ids[name]] == found, (name, own, up[key])
    made.check_end()
    assert len(made.texts) == executed and not made.group.apart


for _text in KEPT:
    situation(f"rows of a late shard: {_text}")(lambda text=_text: late_rows(text))


def lost_value(text: str, values: dict[str, object]) -> None:
    made = world(OLD)
    ran(made, A, text)
    made.run()
    assert made.unlock()
    row(made, B, 1, **values)
    try:
        made.run()
    except RowWithoutPlace:
        return
    raise AssertionError("a value was written that the target cannot hold")


for _text, _values in LOST:
    situation(f"a value of a late shard that would be lost is an error: {_text}")(
        lambda text=_text, values=_values: lost_value(text, values)
    )


@situation("lineage: three unlocked DDL, then the late shard runs them one by one")
def _() -> None:
    made = world(T)
    changes = ("RENAME COLUMN a TO x", "DROP b, ADD b VARCHAR(9) DEFAULT 'anew'", "ADD n INT NOT NULL")
    row(made, A, 1, a=10, b=100)
    row(made, B, 2, a=20, b=200)
    for text in changes:
        ran(made, A, text)
        made.run()
        assert made.unlock()
    row(made, B, 4, a=40, b=400)
    made.run()
    assert value(made, 4, "x") == 40 and value(made, 4, "b") == "anew" and value(made, 4, "n") == 0
    for text in changes:
        ran(made, B, text)
        row(made, B, f"r{text}")
        made.run()
    made.check_end()
    assert made.texts == [*changes] and not made.group.apart


# --- modes


@situation("change of mode with an open difference: optimistic to pessimistic and back")
def _() -> None:
    made = world()
    made.policy = Policy.JOIN
    ran(made, A, "ADD c INT")
    row(made, A, 1)
    made.run()
    assert made.held() == 0 and names(made) == {"id", "a", "c"}
    made.policy = Policy.TOGETHER
    ran(made, B, "ADD c INT")
    ran(made, A, "ADD d INT")
    row(made, A, 2)
    made.run()
    assert made.change().lacks == (B,) and made.held() == 1
    made.policy = Policy.JOIN
    made.waiting.clear()
    made.run()
    assert made.held() == 0
    ran(made, B, "ADD d INT")
    made.check_end()


@situation("change of mode with a shard that stands apart: pessimistic unlock, then optimistic")
def _() -> None:
    made = world()
    ran(made, A, "DROP a, ADD c INT")
    made.run()
    assert made.unlock()
    made.policy = Policy.JOIN
    row(made, B, 2)
    made.run()
    assert names(made) == {"id", "c"} and 2 in made.rows
    ran(made, B, "DROP a, ADD c INT")
    made.run()
    made.group = one.tidy(made.group)
    made.check_end()


@situation("barrier: a primary key is changed when all shards have it, in optimistic mode")
def _() -> None:
    made = world("id INT PRIMARY KEY, b INT")
    made.policy = Policy.JOIN
    text = "CHANGE id id INT, DROP PRIMARY KEY, ADD PRIMARY KEY (id, b)"
    ran(made, A, text)
    row(made, A, "one")
    row(made, B, "two")
    made.run()
    assert A in made.waiting and "two" in made.rows and "one" not in made.rows
    ran(made, B, text)
    made.run()
    assert not made.waiting and "one" in made.rows
    assert made.target.table.primary == made.group.members[A].table.primary
    assert made.texts == [text]


@situation("strict: a DDL whose own text does not lead to the join waits")
def _() -> None:
    made = world("id INT PRIMARY KEY, a INT, b INT")
    made.policy, made.is_strict = Policy.JOIN, True
    ran(made, A, "ADD c INT")
    made.run()
    assert not made.waiting
    ran(made, B, "ADD c BIGINT")
    made.run()
    assert not made.waiting, "its own text changes INT to BIGINT"
    ran(made, A, "DROP b, ADD d INT")
    row(made, A, 1)
    made.run()
    assert A in made.waiting and 1 not in made.rows
    ran(made, B, "DROP b, ADD d INT")
    made.run()
    assert not made.waiting and 1 in made.rows


@situation("a DDL is not accepted with a larger one of another shard")
def _() -> None:
    made = world()
    ran(made, A, "ADD c INT")
    ran(made, B, "ADD c INT, ADD d INT")
    row(made, B, 1)
    made.run()
    assert made.change().others == (B,) and made.held() == 1 and names(made) == {"id", "a"}
    ran(made, A, "ADD d INT")
    made.run()
    assert made.changes(), "in order, each shard has one DDL at a time"
    assert made.unlock()
    made.run()
    if made.changes():
        assert made.unlock()
    made.check_end()
    assert names(made) == {"id", "a", "c", "d"} and not made.group.apart
