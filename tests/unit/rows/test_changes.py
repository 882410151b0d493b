"""Compaction on columns follows the rule of core/rows/compaction, for any division of the changes into batches."""

from collections import Counter
from pathlib import Path

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.compaction import compact, compact_multiset
from unshard.adapters.parquet import Storage
from unshard.adapters.relayfiles import RelayStore
from unshard.adapters.target import Mode, Writer
from unshard.adapters.target.rendering import values_of
from unshard.core.model import Column, Index, Location, Server, Shard, TableId, TableSchema
from unshard.core.rows.compaction import CollisionPolicy, Op, Write, action
from unshard.core.task.state import BegunWindow
from unshard.core.window.plan import Disposition, Plan
from unshard.units.rows.batchruns import RUNS, BatchOrigin, runs_of
from unshard.units.rows.targetwork import changes_of
from unshard.units.rows.windowjob import BinlogPart, Rows, WindowJob

TARGET = TableId("db", "t")
SHARDS = tuple(Shard("s1", TableId("db", f"t_{n}")) for n in (1, 2))
COLUMNS = (
    Column("id", "int", "int(11)", False, None, None, None, ""),
    Column("v", "varchar", "varchar(9)", True, "utf8mb4", None, None, ""),
)
KEYED = TableSchema(COLUMNS, (Index("PRIMARY", ("id",), True),), "")
TWO_KEYS = TableSchema(COLUMNS, (Index("PRIMARY", ("id",), True), Index("v", ("v",), True)), "")
KEYLESS = TableSchema(COLUMNS, (), "")

Row = tuple[bytes, bytes | None]
VALUES = st.none() | st.sampled_from([b"", b"a", b"\\N", b"\t\n\\"])


@st.composite
def changes(draw: st.DrawFn, shard: int) -> list[tuple[Op, Row]]:
    """Generate possible changes of one shard; the keys of shards differ."""
    known: dict[int, Row | None] = {}
    found: list[tuple[Op, Row]] = []
    for _ in range(draw(st.integers(0, 15))):
        key = draw(st.integers(0, 4))
        row = (b"%d" % (key * (1 - 2 * shard) - shard), draw(VALUES))
        if key not in known:
            known[key] = row if draw(st.booleans()) else None
        old = known[key]
        if old is None:
            found.append((Op.INSERT, row))
        elif draw(st.booleans()):
            found += [(Op.BEFORE, old), (Op.AFTER, row)]
        else:
            found.append((Op.DELETE, old))
            row = None
        known[key] = row
    return found


BOTH = st.tuples(changes(0), changes(1))
CUTS = st.lists(st.integers(1, 6), min_size=30, max_size=30)


def job_of(schema: TableSchema, collisions: CollisionPolicy) -> WindowJob:
    place = Location("b.1", 4)
    part = BinlogPart(0, "", "", 0, 0, tuple(Disposition(s, TARGET, schema.digest, None, None) for s in SHARDS))
    plan = Plan("s1", 1, place, place, False, (), (), (), (), "", 0)
    writer, relay = Writer(Server("h", 1, "u", "p")), RelayStore(Path("/x"))
    begun, digest = BegunWindow(plan, 1), schema.digest
    return WindowJob(
        "task",
        "meta",
        begun,
        writer,
        Storage("/x"),
        relay,
        collisions,
        (TARGET,),
        (schema,),
        SHARDS,
        {digest: schema},
        {},
        (part,),
    )


def runs(job: WindowJob, both: tuple[list[tuple[Op, Row]], ...], cuts: list[int], safe: bool) -> pa.Table:
    batches = []
    for number, some in enumerate(both):
        rest, sizes = list(some), iter(cuts * 2)
        while rest:
            size = next(sizes)
            conversion, layout = job.conversion(Rows(SHARDS[number], job.schemas[0].digest, TARGET))
            batch, broken = runs_of(batch_of(rest[:size]), conversion, BatchOrigin(number, layout, len(batches), safe))
            assert broken is None
            batches.append(batch)
            rest = rest[size:]
    return pa.Table.from_batches(batches[::-1], RUNS)


def batch_of(some: list[tuple[Op, Row]]) -> pa.RecordBatch:
    ops, rows = zip(*some, strict=True)
    ids, values = zip(*rows, strict=True)
    columns = [
        pa.array(list(map(int, ops)), pa.int8()),
        pa.array(range(len(ops)), pa.int64()),
        pa.array(ids, pa.binary()),
        pa.array(values, pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, names=["_op", "_seq", "id", "v"])


@settings(max_examples=50)
@given(BOTH, CUTS, st.booleans(), st.sampled_from(CollisionPolicy), st.sampled_from([KEYED, TWO_KEYS]))
def test_keyed_changes_follow_the_rule(both, cuts, safe, collisions, schema):
    job = job_of(schema, collisions)
    done = changes_of(job, 0, runs(job, both, cuts, safe))
    want = {
        (run.row or (key, None))[0]: (
            run.row,
            action(run.existed, run.exists, safe, schema is TWO_KEYS),
        )
        for some in both
        for key, run in compact((row[0], op, row) for op, row in some).items()
    }
    assert [key for (key,) in done.deletes] == sorted((k for k, (_, act) in want.items() if act.delete), key=int)
    for write, mode in ((Write.PLAIN, Mode.PLAIN), (Write.REPLACE, Mode.REPLACE)):
        lines = [line for part in done.writes.lines if part.mode is mode for line in part.lines.to_pylist()]
        rows = [row for row, act in want.values() if act.write is write]
        assert [tuple(values_of(line)) for line in lines] == sorted(rows, key=lambda row: int(row[0]))


@settings(max_examples=50)
@given(BOTH, CUTS)
def test_changes_of_a_multiset_are_its_difference(both, cuts):
    job = job_of(KEYLESS, CollisionPolicy.ERROR)
    done = changes_of(job, 0, runs(job, both, cuts, False))
    want = compact_multiset(change for some in both for change in some)
    gone = {tuple(values_of(removal.line)): -removal.count for removal in done.removals}
    come = Counter(tuple(values_of(line)) for part in done.writes.lines for line in part.lines.to_pylist())
    assert gone | come == want
