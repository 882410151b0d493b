"""The cases of DM's optimistic mode on paper: they end with the expected rows, or with a conflict that is named.

`tests/integration/optimistic_cases.json` holds facts: statements in order, expected rows. Each case runs at three
paces: everything after each statement, everything at the end, and random windows.
"""

import json
import random
import re
from pathlib import Path

import pytest

from tests.unit.join.paper import PaperTable, create
from tests.unit.join.rollout import World
from unshard.core.model import Shard, TableId

CASES = json.loads((Path(__file__).parents[2] / "integration/optimistic_cases.json").read_text())
CONFLICTS = {
    "sddl1-restartmaster-o": "type of column c",
    "sddl2-043-o": "expression of column nc1",
}
"""The cases without a join, with the dimension that the conflict names."""
WAYS_OUT = {
    "sddl1-restartmaster-o": {
        "the shard goes back": [("mysql2", "ALTER TABLE shard_1.tb1 DROP COLUMN c, ADD COLUMN c DOUBLE")],
        "the shard drops the column, adds it again": [
            ("mysql2", "ALTER TABLE shard_1.tb1 DROP COLUMN c"),
            ("mysql2", "ALTER TABLE shard_1.tb1 ADD COLUMN c DOUBLE"),
        ],
        "the other one agrees": [("mysql1", "ALTER TABLE shard_1.tb1 MODIFY c TEXT")],
    },
    "sddl2-043-o": {
        "the shards go back": [
            ("mysql2", "ALTER TABLE shard_1.tb1 DROP COLUMN nc1, ADD COLUMN nc1 INT AS (id+1)"),
            ("mysql2", "ALTER TABLE shard_1.tb2 DROP COLUMN nc1, ADD COLUMN nc1 INT AS (id+1)"),
        ],
        "the other one agrees": [("mysql1", "ALTER TABLE shard_1.tb1 DROP COLUMN nc1, ADD COLUMN nc1 INT AS (id+2)")],
    },
}
"""What shards run so that a conflict ends."""
INSERT = re.compile(r"INSERT INTO ([\w.]+)\s*(?:\(([\w, ]+)\))?\s*VALUES\s*(.*)", re.IGNORECASE | re.DOTALL)
VALUE = re.compile(r"'((?:[^'])*)'|(NULL)|(-?\d+\.\d+)|(-?\d+)", re.IGNORECASE)


def shard_of(source: str, name: str) -> Shard:
    schema, table = name.split(".")
    return Shard(source, TableId(schema, table))


def begun(case: dict) -> World:
    tables = {}
    for source, content in case["sources"].items():
        for schema, names in content["schemas"].items():
            for name in names:
                tables[Shard(source, TableId(schema, name))] = create(case["create"])
    return World(tables)


def values(text: str) -> list[object]:
    found = []
    for string, null, decimal, number in VALUE.findall(text):
        found.append(None if null else float(decimal) if decimal else int(number) if number else string)
    return found


def insert(world: World, shard: Shard, columns: str | None, body: str) -> None:
    table: PaperTable = world.upstream[shard].table
    names = (
        [name.strip().lower() for name in columns.split(",")]
        if columns
        else [column.name.lower() for column in table.columns if not column.generated]
    )
    defaults = {c.name.lower(): default_of(c.default) for c in table.columns if not c.generated}
    for group in re.findall(r"\(([^()]*)\)", body):
        given = dict(zip(names, values(group), strict=True))
        world.write(shard, next(iter(values(group))) if not columns else given[names[0]], {**defaults, **given})


def default_of(text: str | None) -> object:
    return values(text)[0] if text and values(text) else text


def step(world: World, source: str, sql: str) -> None:
    if found := INSERT.match(sql):
        insert(world, shard_of(source, found[1]), found[2], found[3])
    elif found := re.match(r"ALTER TABLE ([\w.]+)", sql):
        world.ddl(shard_of(source, found[1]), sql)
    elif found := re.match(r"CREATE TABLE ([\w.]+)", sql):
        world.create(shard_of(source, found[1]), create(sql))
    elif found := re.match(r"DROP TABLE ([\w.]+)", sql):
        world.drop(shard_of(source, found[1]))
    elif found := re.match(r"RENAME TABLE ([\w.]+) TO ([\w.]+)", sql):
        world.rename(shard_of(source, found[1]), shard_of(source, found[2]))
    else:
        assert sql.startswith("TRUNCATE"), sql


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
@pytest.mark.parametrize("pace", ["each", "end", "random"])
def test_case(case: dict, pace: str) -> None:
    world, dice = begun(case), random.Random(case["id"])
    for each in case["steps"]:
        step(world, each["source"], each["sql"])
        if pace == "each":
            world.run()
        elif pace == "random":
            for shard in dice.sample(sorted(world.upstream), dice.randrange(len(world.upstream) + 1)):
                world.window(shard, dice.randrange(1, 4))
            if dice.random() < 0.3:
                world.contract()
    world.run()
    if case["id"] in CONFLICTS:
        assert CONFLICTS[case["id"]] in " ".join(map(str, world.waiting.values()))
        return
    assert not world.waiting
    world.check_rows()
    expected = case["expect"]
    if expected["kind"] == "rows":
        ids = {name: id for id, name in world.target.names.items()}
        found = [[row.get(ids[name]) for name in expected["columns"]] for row in world.rows.values()]
        assert sorted(found, key=repr) == sorted(expected["rows"], key=repr)
        structures = {up.table.structure.shape for up in world.upstream.values()}
        if len(structures) == 1:
            world.check_end()


@pytest.mark.parametrize(("name", "way"), [(name, way) for name, ways in WAYS_OUT.items() for way in ways])
def test_a_conflict_ends(name: str, way: str) -> None:
    case = next(case for case in CASES if case["id"] == name)
    world = begun(case)
    for each in case["steps"]:
        step(world, each["source"], each["sql"])
    world.run()
    assert world.waiting
    for source, sql in WAYS_OUT[name][way]:
        step(world, source, sql)
    world.check_end()
    assert len({up.table.structure.shape for up in world.upstream.values()}) == 1


def test_each_conflict_has_ways_out() -> None:
    assert WAYS_OUT.keys() == CONFLICTS.keys()
