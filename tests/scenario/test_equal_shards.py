"""Shards that come to one structure in different ways have equal columns in the target in the end."""

from tests.scenario.joinedworld import JoinedWorld
from tests.unit.join.paper import create
from unshard.core.model import Shard, TableId

ONE, TWO, THREE = (Shard(f"s{n}", TableId("d", f"t{n}")) for n in (1, 2, 3))
NEW = Shard("s1", TableId("d", "new"))
SWAP = "RENAME COLUMN a TO g, RENAME COLUMN g TO a"


def world() -> JoinedWorld:
    table = create("CREATE TABLE t (id INT PRIMARY KEY, a INT, g INT)")
    made = JoinedWorld(dict.fromkeys((ONE, TWO, THREE), table))
    made.run()
    for key, shard in enumerate((ONE, TWO, THREE)):
        made.write(shard, key, {"id": key, "a": 10 + key, "g": 20 + key})
    return made


def test_a_new_shard_is_like_one_whose_swap_is_not_accepted_yet():
    made = world()
    made.ddl(ONE, SWAP)
    made.create(NEW, made.sources["s1"].tables[ONE.table].table)
    made.write(NEW, 9, {"id": 9, "a": 29, "g": 19})
    made.run()
    for shard in (TWO, THREE):
        made.ddl(shard, SWAP)
        made.run()
    made.check_end()
    assert made.rows[9] == {"id": 9, "a": 29, "g": 19}


def test_one_shard_drops_a_column_and_renames_another_to_it_while_others_drop_that_one():
    made = world()
    made.ddl(ONE, "DROP COLUMN a, RENAME COLUMN g TO a")
    made.run()
    for shard in (TWO, THREE):
        made.ddl(shard, "DROP COLUMN g")
        made.run()
    made.check_end()
    assert made.rows == {0: {"id": 0, "a": 20}, 1: {"id": 1, "a": 11}, 2: {"id": 2, "a": 12}}


def test_a_statement_of_a_shard_that_would_rename_the_other_column_of_the_target():
    """The target still has the names that the first shard has left, so the shard's own words mean other columns."""
    made = world()
    made.drop(THREE)
    for text in ("RENAME COLUMN a TO s", "RENAME COLUMN g TO a", "RENAME COLUMN s TO g"):
        made.ddl(ONE, text)
    made.run()
    made.drop(ONE)
    made.ddl(TWO, "RENAME COLUMN a TO s")
    made.run()
    made.check_end()
    assert made.rows[1] == {"id": 1, "s": 11, "g": 21}


def test_a_column_whose_default_only_a_server_knows_and_then_without_one():
    """The target has given all rows what its own clock said, also those of the shard that adds the column later."""
    made = world()
    made.ddl(ONE, "ADD COLUMN n BIGINT DEFAULT now()")
    made.run()
    for shard in (TWO, THREE):
        made.ddl(shard, "ADD COLUMN n BIGINT")
    made.ddl(ONE, "MODIFY n BIGINT")
    made.run()
    made.check_end()
    assert made.rows[1]["n"] is None
