"""Random windows of several shards against a real server: the target is always the union of the shards.

The tests replace Spark between the stages: batches are compacted in random parts, and all runs of the target come
together.
"""

import contextlib
import os
import random
import signal
import threading
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pytest

from tests.cutting import open_transactions, waiting_sessions
from unshard.adapters import mysql
from unshard.adapters.meta import Meta
from unshard.adapters.parquet import Storage
from unshard.adapters.relayfiles import RelayStore
from unshard.adapters.structures import read_schema
from unshard.adapters.target import Applied, Writer, tried_writer
from unshard.adapters.target.targetrows import LineForm
from unshard.core.ddl.lineage import ExecutedDdl
from unshard.core.model import Location, Shard, TableId, TableSchema
from unshard.core.rows.compaction import CollisionPolicy, Op
from unshard.core.task.state import BegunWindow
from unshard.core.window.plan import Disposition, Plan
from unshard.errors import UnshardError
from unshard.errors.meta import FencedOut
from unshard.errors.rows import Collision, KeyOutOfOrder, RowRefused, RowsMissing
from unshard.units.rows.batchruns import RUNS, BatchOrigin, runs_of
from unshard.units.rows.windowjob import BinlogPart, Rows, WindowJob
from unshard.units.window.tasks import apply_target
from unshard_demo import servers
from unshard_demo.processes import await_true

pytestmark = [pytest.mark.integration, pytest.mark.writes_rows]

Row = tuple[bytes | None, ...]
Change = tuple[Op, Row]
TABLES = {
    "integer": "id int PRIMARY KEY, v varchar(20), n decimal(5,2)",
    "unsigned": "id bigint unsigned PRIMARY KEY, v varchar(20), n decimal(5,2)",
    "composite": "a varchar(5) COLLATE utf8mb4_general_ci, b int, v varbinary(9), PRIMARY KEY (a, b)",
    "ignores case": "id varchar(9) COLLATE utf8mb4_general_ci PRIMARY KEY, v int, w int",
    "unique": "id int PRIMARY KEY, u int NOT NULL, v int, UNIQUE KEY (u)",
    "without key": "a int, b varchar(9) COLLATE utf8mb4_general_ci, c float",
}


@dataclass
class Target:
    """A target table of some shards, with its expected rows."""

    server: servers.MariaDb
    table: TableId
    schema: TableSchema
    meta: str
    shards: tuple[Shard, ...]
    tried: Writer
    collisions: CollisionPolicy = CollisionPolicy.ERROR
    rows: dict[Shard, list[Row]] = field(default_factory=dict)
    window: int = 0
    epoch: int = 1

    @property
    def writer(self) -> Writer:
        return replace(self.tried, server=self.server.server)

    def job(self, safe: bool = False, structure: TableSchema | None = None, behind: str = "") -> WindowJob:
        structure = structure or self.schema
        place = Location("b.000001", 4)
        dispositions = tuple(Disposition(s, self.table, structure.digest, None, None) for s in self.shards)
        plan = Plan("s1", self.window, place, place, safe, (), (), (), (), "", 0)
        return WindowJob(
            "task",
            self.meta,
            BegunWindow(plan, self.epoch),
            self.writer,
            Storage("/nowhere"),
            RelayStore(Path("/nowhere")),
            self.collisions,
            (self.table,),
            (self.schema,),
            self.shards,
            {structure.digest: structure},
            {(s, None): (ExecutedDdl(f"ALTER TABLE t {behind}", 0),) for s in self.shards if behind},
            (BinlogPart(0, "", "", 0, 0, dispositions),),
            form=self.tried.form,
        )

    def apply(self, changes: dict[Shard, list[Change]], chance: random.Random, **options: object) -> Applied:
        self.window += 1
        return apply_target(self.job(**options), 0, self.runs(changes, chance, **options))

    def runs(
        self,
        changes: dict[Shard, list[Change]],
        chance: random.Random,
        safe: bool = False,
        structure: TableSchema | None = None,
        behind: str = "",
    ) -> pa.Table:
        job, structure, batches = self.job(safe, structure, behind), structure or self.schema, []
        for number, shard in enumerate(self.shards):
            conversion, layout = job.conversion(Rows(shard, structure.digest, self.table))
            some, part = list(changes.get(shard, [])), 0
            while some:
                part += 1
                cut = chance.randint(1, len(some))
                origin = BatchOrigin(number, layout, part, safe)
                runs, broken = runs_of(batch_of(structure, some[:cut]), conversion, origin)
                assert broken is None
                batches.append(runs)
                some = some[cut:]
        chance.shuffle(batches)
        return pa.Table.from_batches(batches, RUNS)

    def stored(self) -> Counter[Row]:
        shown = ", ".join(f"{c.name} + 0e0" if c.data_type == "float" else c.name for c in self.schema.written)
        with contextlib.closing(mysql.connect_raw(self.server.server)) as connection:
            return Counter(mysql.query(connection, f"SELECT {shown} FROM {self.table}"))

    def fence(self) -> tuple[int, int]:
        return self.server.run(f"SELECT `window`, epoch FROM {self.meta}.fence WHERE target_table = 't'")[0]


def batch_of(schema: TableSchema, changes: list[Change]) -> pa.RecordBatch:
    ops, rows = zip(*changes, strict=True)
    columns = [pa.array(list(values), pa.binary()) for values in zip(*rows, strict=True)]
    numbers = [pa.array([int(op) for op in ops], pa.int8()), pa.array(range(len(ops)), pa.int64())]
    return pa.RecordBatch.from_arrays([*numbers, *columns], names=["_op", "_seq", *(c.name for c in schema.written)])


@pytest.fixture(params=LineForm, ids=lambda form: form.name.lower())
def make(target: servers.MariaDb, unique: str, request: pytest.FixtureRequest):
    """Make tables whose rows are written in each form of lines that the target has."""
    meta_schema = f"{unique}_meta"
    target.run(f"CREATE DATABASE {unique}")
    meta = Meta(target.server, meta_schema, "task")
    meta.create_tables()
    meta.close()
    tried = tried_writer(target.server, meta_schema)
    if request.param is LineForm.TEXT:
        tried = replace(tried, bulk=False)
    elif not tried.bulk:
        target.run(f"DROP DATABASE {unique}", f"DROP DATABASE {meta_schema}")
        pytest.skip("only MariaDB takes parameters")
    shards = tuple(Shard("s1", TableId("db", f"t_{n}")) for n in (1, 2))

    def made(columns: str, **options: object) -> Target:
        table = TableId(unique, "t")
        target.run(
            f"CREATE TABLE {table} ({columns})",
            f"INSERT INTO {meta_schema}.fence VALUES ('task', 's1', '{unique}', 't', 0, 1, 0)",
        )
        with contextlib.closing(mysql.connect(target.server)) as connection:
            schema = read_schema(connection, table)
        return Target(target, table, schema, meta_schema, shards, tried, rows={s: [] for s in shards}, **options)

    yield made
    target.run(f"DROP DATABASE {unique}", f"DROP DATABASE {meta_schema}")


class Shop:
    """Makes random changes of one shard that its own server would allow."""

    def __init__(self, name: str, target: Target, shard: Shard, chance: random.Random) -> None:
        self.name, self.target, self.shard, self.chance = name, target, shard, chance
        self.number = target.shards.index(shard)

    @property
    def rows(self) -> list[Row]:
        return self.target.rows[self.shard]

    def changes(self, count: int) -> list[Change]:
        return [change for _ in range(count) for change in self._change()]

    def _change(self) -> list[Change]:
        new = self._row()
        kind = self.chance.choice("iiudd" if self.name == "without key" else "iuuudk")
        old = self.chance.choice(self.rows) if self.rows else None
        if kind == "i" or old is None:
            return self._put([(Op.INSERT, new)])
        if kind == "d":
            return self._put([(Op.DELETE, old)])
        if kind == "u" and self.name != "without key":
            width = 2 if self.name == "composite" else 1
            new = old[:width] + new[width:]
        if self.name == "ignores case" and kind == "k":
            new = (old[0].swapcase(), *new[1:])
        return self._put([(Op.BEFORE, old), (Op.AFTER, new)])

    def _put(self, changes: list[Change]) -> list[Change]:
        """Apply the changes, or none of them if a key would exist twice."""
        rows = list(self.rows)
        for op, row in changes:
            if op.adds:
                rows.append(row)
            else:
                rows.remove(row)
        if self._collides(rows):
            return []
        self.target.rows[self.shard] = rows
        return changes

    def _collides(self, rows: list[Row]) -> bool:
        match self.name:
            case "without key":
                return False
            case "composite":
                keys = [(row[0].lower(), row[1]) for row in rows]
            case "unique":
                values = [row[1] for row in rows]
                return len(set(values)) < len(values) or len({row[0] for row in rows}) < len(rows)
            case _:
                keys = [row[0].lower() for row in rows]
        return len(set(keys)) < len(keys)

    def _row(self) -> Row:
        pick, base = self.chance.randint, self.number * 1000
        number = str(base + pick(0, 12)).encode()
        match self.name:
            case "integer":
                return (
                    str(pick(0, 12) * (-1 if self.number else 1) - self.number).encode(),
                    b"a\t%d" % pick(0, 9),
                    b"1.50",
                )
            case "unsigned":
                return str(2**64 - 1 - base - pick(0, 12)).encode(), None, b"-0.01"
            case "composite":
                return self.chance.choice([b"a", b"A", b"b", b"\\"]), number, bytes([0, 9, 10, 92, pick(0, 255)])
            case "ignores case":
                return self.chance.choice([b"a", b"A", b"b", b"B", b"c"]) + number, b"%d" % pick(0, 9), None
            case "unique":
                return number, str(base + pick(0, 9)).encode(), b"%d" % pick(0, 9)
            case _:
                return (
                    self.chance.choice([b"1", None]),
                    self.chance.choice([b"a", b"A", b"", None]),
                    b"1.100000023841858",
                )


@pytest.mark.sample(reason="seeds, tables and ways of writing do not interact")
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("safe", [False, True], ids=["", "safe"])
@pytest.mark.parametrize("name", TABLES)
def test_random_windows_end_in_the_union(make, name, seed, safe):
    chance = random.Random(f"{name}{seed}{safe}")
    target = make(TABLES[name])
    shops = {shard: Shop(name, target, shard, chance) for shard in target.shards}
    for _ in range(6):
        changes = {shard: shop.changes(chance.choice([1, 5, 40])) for shard, shop in shops.items()}
        target.apply(changes, chance, safe=safe)
        assert target.stored() == Counter(row for rows in target.rows.values() for row in rows)
        assert target.fence() == (target.window, 1)


@pytest.mark.sample(reason="the tables and the way of writing do not interact")
@pytest.mark.parametrize("name", TABLES)
def test_safe_mode_repairs_what_the_dump_saw_of_keyed_tables(make, name):
    if name == "without key":
        pytest.skip("such tables are dumped in one snapshot")
    chance = random.Random(name)
    target = make(TABLES[name])
    shops = {shard: Shop(name, target, shard, chance) for shard in target.shards}
    changes = {shard: shop.changes(30) for shard, shop in shops.items()}
    target.apply(changes, chance)
    target.apply(changes, chance, safe=True)
    assert target.stored() == Counter(row for rows in target.rows.values() for row in rows)


def insert(*ids: int, v: bytes = b"x") -> list[Change]:
    return [(Op.INSERT, (b"%d" % number, v, b"1.00")) for number in ids]


@pytest.mark.parametrize("name", ["integer", "without key"])
def test_the_same_window_again_changes_nothing(make, name):
    chance = random.Random(1)
    target = make(TABLES[name])
    changes = {target.shards[0]: Shop(name, target, target.shards[0], chance).changes(20)}
    target.apply(changes, chance)
    before = target.stored()
    target.window -= 1
    assert target.apply(changes, chance).before
    target.window -= 1
    target.epoch += 1
    assert target.apply(changes, chance).before, "a retry with a newer epoch sees it too"
    assert target.stored() == before


def test_another_epoch_is_fenced_out_and_writes_nothing(make):
    target = make(TABLES["integer"])
    target.server.run(f"UPDATE {target.meta}.fence SET epoch = 2")
    with pytest.raises(FencedOut):
        target.apply({target.shards[0]: insert(1)}, random.Random(1))
    assert not target.stored()


def test_a_writer_that_is_overtaken_inside_its_transaction_writes_nothing(make):
    """The fence is checked before the rows and again, conditionally, after them."""
    target = make(TABLES["integer"])
    with contextlib.closing(target.server.connect()) as blocker:
        blocker.begin()
        with blocker.cursor() as cursor:
            cursor.execute(f"INSERT INTO {target.table} VALUES (7, 'b', 1)")
        caught: list[UnshardError] = []
        writer = threading.Thread(target=_catch, args=(target, {target.shards[0]: insert(6, 7)}, caught))
        writer.start()
        _until(lambda: waiting_sessions(target.server))
        target.server.run(f"UPDATE {target.meta}.fence SET epoch = 2")
        blocker.rollback()
        writer.join()
    assert [type(error) for error in caught] == [FencedOut]
    assert not target.stored()


def _catch(target: Target, changes: dict[Shard, list[Change]], caught: list[UnshardError]) -> None:
    try:
        target.apply(changes, random.Random(1))
    except UnshardError as error:
        caught.append(error)


def _until(condition, what: str = "a session that waits for a lock") -> None:
    # InnoDB refreshes its tables of transactions only if they were not read for 0.1 s.
    await_true(condition, 900, [], what, pause=0.15)


def test_a_process_killed_in_its_transaction_leaves_nothing_and_a_retry_does_it_once(make):
    target = make(TABLES["without key"])
    changes = {target.shards[0]: [(Op.INSERT, (b"%d" % n, b"x", b"1")) for n in range(200)]}
    with contextlib.closing(target.server.connect()) as blocker:
        blocker.begin()
        with blocker.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {target.meta}.fence FOR UPDATE")
        if not (child := os.fork()):
            try:
                target.apply(changes, random.Random(1))
            finally:
                os._exit(0)
        _until(lambda: waiting_sessions(target.server))
        os.kill(child, signal.SIGKILL)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL
        blocker.rollback()
    target.server.run(f"UPDATE {target.meta}.fence SET epoch = 2")
    target.epoch = 2
    _until(lambda: not open_transactions(target.server), "the end of the transaction")
    once = Counter(row for _, row in changes[target.shards[0]])
    if not target.stored():
        target.apply(changes, random.Random(1))
    assert target.stored() == once


@pytest.mark.mariadb_only("TiDB ends a killed session with error 1317, which says that somebody wanted it to end")
def test_a_lost_connection_is_tried_again(make):
    target = make(TABLES["without key"])
    changes = {target.shards[0]: [(Op.INSERT, (b"1", b"x", b"1"))]}
    with contextlib.closing(target.server.connect()) as blocker:
        blocker.begin()
        with blocker.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {target.meta}.fence FOR UPDATE")
        writer = threading.Thread(target=target.apply, args=(changes, random.Random(1)))
        writer.start()
        _until(lambda: waiting_sessions(target.server))
        target.server.run(f"KILL {waiting_sessions(target.server)[0]}")
        blocker.rollback()
        writer.join()
    assert target.stored() == {(b"1", b"x", b"1"): 1}


@pytest.mark.parametrize("shape", ["integer", "unique"])
def test_a_new_row_whose_key_is_taken_is_a_collision(make, shape):
    target = make(TABLES[shape])
    first, second = target.shards
    row, other = (b"5", b"7", b"1"), (b"6", b"7", b"1")
    if shape == "integer":
        row, other = (b"5", b"x", b"1.00"), (b"5", b"y", b"2.00")
    target.apply({first: [(Op.INSERT, row)]}, random.Random(1))
    with pytest.raises(Collision) as raised:
        target.apply({second: [(Op.INSERT, (b"1", b"1", b"1.00")), (Op.INSERT, other)]}, random.Random(1))
    assert (raised.value.key, raised.value.shard) == ("id = 5" if shape == "integer" else "u = 7", str(second))
    assert raised.value.condition == ("`id` IN (5)" if shape == "integer" else "`u` IN (7)")
    assert target.stored() == {row: 1}


def test_a_key_that_two_shards_bring_in_one_window_names_both(make):
    target = make(TABLES["integer"])
    with pytest.raises(Collision) as raised:
        target.apply({shard: insert(1, 5) for shard in target.shards}, random.Random(1))
    assert (raised.value.shard, raised.value.owner) == ("s1 db.t_2", "shard s1 db.t_1")
    assert not target.stored()


@pytest.mark.parametrize(("policy", "left"), [(CollisionPolicy.REPLACE, b"new"), (CollisionPolicy.IGNORE, b"old")])
def test_collisions_by_policy(make, policy, left):
    target = make(TABLES["integer"], collisions=policy)
    target.apply({target.shards[0]: insert(1, v=b"old")}, random.Random(1))
    applied = target.apply({target.shards[1]: insert(1, 2, v=b"new")}, random.Random(1))
    assert target.stored() == {(b"1", left, b"1.00"): 1, (b"2", b"new", b"1.00"): 1}
    assert applied.skipped == (policy is CollisionPolicy.IGNORE)


def test_a_row_moves_from_one_shard_to_another_in_one_window(make):
    target = make(TABLES["unique"])
    first, second = target.shards
    row = (b"1", b"1", b"1")
    target.apply({first: [(Op.INSERT, row)]}, random.Random(1))
    target.apply({second: [(Op.INSERT, row)], first: [(Op.DELETE, row)]}, random.Random(1))
    assert target.stored() == {row: 1}


def test_a_key_that_comes_twice_from_one_shard_is_out_of_order(make):
    target = make(TABLES["integer"])
    runs = pa.concat_tables([target.runs({target.shards[0]: insert(3)}, random.Random(1)) for _ in range(2)])
    target.window = 1
    with pytest.raises(KeyOutOfOrder) as raised:
        apply_target(target.job(), 0, runs)
    assert raised.value.key == "id = 3"


def test_rows_of_a_multiset_that_are_not_there_are_an_error(make):
    target = make(TABLES["without key"])
    gone = (b"1", b"a", b"1.5")
    target.apply({target.shards[0]: [(Op.INSERT, gone), (Op.INSERT, (b"1", b"A", b"1.5"))]}, random.Random(1))
    with pytest.raises(RowsMissing) as raised:
        target.apply({target.shards[0]: [(Op.DELETE, gone), (Op.DELETE, gone)]}, random.Random(1))
    assert (raised.value.wanted, raised.value.found) == (2, 1)
    assert sum(target.stored().values()) == 2


def test_a_row_that_does_not_fit_rolls_everything_back(make):
    target = make(TABLES["integer"])
    with pytest.raises(RowRefused) as raised:
        target.apply({target.shards[0]: [*insert(1), *insert(2, v=b"x" * 21)]}, random.Random(1))
    assert (raised.value.column, raised.value.key) == ("v", "id = 2")
    assert not target.stored()
    assert target.fence() == (0, 1)


def test_a_shard_that_is_behind_is_written_by_name(make):
    """After a forced unlock the target has one column more and one less than the shard."""
    target = make("id int PRIMARY KEY, added varchar(9) NOT NULL DEFAULT 'new', v varchar(20)")
    target.server.run(f"CREATE TABLE {target.table}_old (id int PRIMARY KEY, v varchar(20), dropped int)")
    with contextlib.closing(mysql.connect(target.server.server)) as connection:
        old = read_schema(connection, TableId(target.table.schema, "t_old"))
    row, moved = (b"1", b"x", b"9"), (b"2", b"y", b"9")
    changes = {target.shards[0]: [(Op.INSERT, row), (Op.BEFORE, row), (Op.AFTER, moved)]}
    target.apply(changes, random.Random(1), structure=old, behind="DROP dropped")
    assert target.stored() == {(b"2", b"new", b"y"): 1}


@pytest.mark.mariadb_only("TiDB lacks some of the types")
def test_a_multiset_of_every_type_goes_away_again(make):
    """Each row is found by its values, including long ones and NULLs; a similar row stays."""
    kinds = {
        "int": b"-1",
        "double": b"0.1",
        "float": b"1.100000023841858",
        "decimal(9,3)": b"1.500",
        "bit(10)": b"\x01\xff",
        "varchar(9)": b"a",
        "varchar(9) character set ucs2": b"\0a",
        "text": b"\xc3\xa4" * 3000,
        "longblob": bytes(9000),
        "binary(3)": b"a\0\0",
        "date": b"0000-00-00",
        "datetime(3)": b"2020-01-01 00:00:00.001",
        "timestamp(6) null": b"2020-01-01 00:00:00.000001",
        "time(1)": b"-838:59:59.0",
        "year": b"0000",
        "enum('a','b')": b"",
        "set('x','y')": b"x,y",
        "json": b'{"a": 1}',
        "int unsigned": None,
        "point": b"\0\0\0\0\x01\x01\0\0\0\0\0\0\0\0\0\xf0?\0\0\0\0\0\0\0@",
    }
    target = make(", ".join(f"c{number} {kind}" for number, kind in enumerate(kinds)))
    row = tuple(kinds.values())
    other = (*row[:5], b"A", *row[6:])
    shard = target.shards[0]
    target.apply({shard: [(Op.INSERT, row), (Op.INSERT, row), (Op.INSERT, other)]}, random.Random(1))
    assert target.stored() == {row: 2, other: 1}
    target.apply({shard: [(Op.DELETE, row)]}, random.Random(1))
    assert target.stored() == {row: 1, other: 1}
