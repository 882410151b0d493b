"""Rows of a target with columns of its own are followed through a window, however it is cut into batches."""

from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.rows.test_changes import COLUMNS, CUTS, KEYED, KEYLESS, SHARDS, TARGET, TWO_KEYS, batch_of, job_of
from unshard.adapters.target.rendering import values_of
from unshard.adapters.target.targetrows import Changes
from unshard.core.model import Column, Index, TableSchema
from unshard.core.rows.compaction import CollisionPolicy, Op
from unshard.core.structures.tablekeys import as_filled
from unshard.units.rows.batchruns import TRACKED, BatchOrigin, runs_of
from unshard.units.rows.targetwork import changes_of
from unshard.units.rows.windowjob import Rows, WindowJob

OWN = Column("note", "varchar", "varchar(9)", True, "utf8mb4", None, None, "")
Row = tuple[int, bytes]
Steps = list[tuple[str, int, int]]
STEPS = st.lists(st.tuples(st.sampled_from("iudmm"), st.integers(0, 4), st.integers(0, 4)), max_size=25)
START = st.sets(st.integers(0, 4))


def with_own_column(schema: TableSchema) -> TableSchema:
    return as_filled(TableSchema((*COLUMNS, OWN), schema.indexes, ""), {"id", "v"})


def history(start: set[int], steps: Steps) -> tuple[list[tuple[Op, Row]], dict[Row, Row | None]]:
    """Return possible changes of a shard, and of each last row the first one that it was; None: it is new."""
    rows: dict[int, tuple[bytes, Row | None]] = {key: (b"v%d" % key, (key, b"v%d" % key)) for key in start}
    changes: list[tuple[Op, Row]] = []
    for number, (kind, key, other) in enumerate(steps):
        value = b"x%d" % (number % 7)
        if kind == "i" and key not in rows:
            rows[key] = value, None
            changes.append((Op.INSERT, (key, value)))
        elif kind == "u" and key in rows:
            changes += [(Op.BEFORE, (key, rows[key][0])), (Op.AFTER, (key, value))]
            rows[key] = value, rows[key][1]
        elif kind == "d" and key in rows:
            changes.append((Op.DELETE, (key, rows.pop(key)[0])))
        elif kind == "m" and key in rows and other not in rows:
            old, origin = rows.pop(key)
            changes += [(Op.BEFORE, (key, old)), (Op.AFTER, (other, old))]
            rows[other] = old, origin
    return changes, {(key, value): origin for key, (value, origin) in rows.items()}


def applied(
    schema: TableSchema, both: list[list[tuple[Op, Row]]], cuts: list[int], safe: bool
) -> tuple[WindowJob, Changes]:
    plain = job_of(schema, CollisionPolicy.ERROR)
    job = replace(plain, schemas=(with_own_column(schema),))
    assert job.tracked == {0}
    batches, number = [], 0
    for shard, changes in enumerate(both):
        # The keys of the shards differ, except in a table without a key.
        add = 0 if schema is KEYLESS else 10 * shard
        rest = [(op, (b"%d" % (key + add), value)) for op, (key, value) in changes]
        sizes = iter(cuts * 10)
        while rest:
            size = next(sizes)
            size += len(rest) > size and rest[size][0] is Op.AFTER
            conversion, layout = job.conversion(Rows(SHARDS[shard], schema.digest, TARGET))
            batch, broken = runs_of(
                batch_of(rest[:size]), conversion, BatchOrigin(shard, layout, number, safe, tracked=True)
            )
            assert broken is None
            batches.append(batch)
            rest, number = rest[size:], number + size
    return job, changes_of(job, 0, pa.Table.from_batches(batches[::-1], TRACKED))


@settings(max_examples=150)
@given(START, STEPS, START, STEPS, CUTS, st.sampled_from([KEYED, TWO_KEYS]))
def test_rows_with_a_key(start_1, steps_1, start_2, steps_2, cuts, schema):
    both = [history(start_1, steps_1), history(start_2, steps_2)]
    _, done = applied(schema, [changes for changes, _ in both], cuts, False)
    want = {}
    for shard, (_, rows) in enumerate(both):
        for (key, _), origin in rows.items():
            want[b"%d" % (key + 10 * shard)] = None if origin is None else b"%d" % (origin[0] + 10 * shard)
    seen = {}
    for each in done.writes.lines:
        for number, line in enumerate(each.lines.to_pylist()):
            found = each.origins.keys[0][number] if each.origins else None
            seen[values_of(line)[0]] = found[0] if found else None
    assert seen == {key: want[key] for key in seen}
    kept = [origin for origin in seen.values() if origin is not None]
    assert len(kept) == len(set(kept))
    if any(key != origin for key, origin in seen.items() if origin):
        assert done.order is None, "the origins are read before an earlier transaction deletes them"


@settings(max_examples=150)
@given(START, STEPS, START, STEPS, CUTS)
def test_rows_without_a_key(start_1, steps_1, start_2, steps_2, cuts):
    both = [history(start_1, steps_1), history(start_2, steps_2)]
    _, done = applied(KEYLESS, [changes for changes, _ in both], cuts, False)
    starts = (start_1, start_2)
    before = Counter(line(key, b"v%d" % key) for start in starts for key in start)
    after = Counter(line(*row) for _, rows in both for row in rows)
    pairs = Counter(
        (origin and line(*origin), line(*row)) for _, rows in both for row, origin in rows.items() if origin != row
    )
    found: Counter[tuple[bytes | None, bytes]] = Counter()
    gone = Counter({removal.line: removal.count for removal in done.removals})
    for each in done.writes.lines:
        bases = each.origins.removals if each.origins else [None] * len(each.lines)
        for base, written in zip(bases, each.lines.to_pylist(), strict=True):
            found[base and base.line, written] += 1
            gone[base.line if base else None] += bool(base)
    gone.pop(None, None)
    assert found == pairs
    assert +(before - +gone) + Counter(written for _, written in found.elements()) == after
    assert not gone - before


def line(key: int, value: bytes) -> bytes:
    return b"%d\t%s\n" % (key, value)


@pytest.mark.parametrize("safe", [False, True])
def test_in_safe_mode_a_row_may_already_have_its_new_key(safe: bool) -> None:
    changes, _ = history({1}, [("m", 1, 2), ("i", 1, 0)])
    _, done = applied(KEYED, [changes, []], [6] * 30, safe)
    found = {
        values_of(line)[0]: [keys[number] for keys in each.origins.keys] if each.origins else []
        for each in done.writes.lines
        for number, line in enumerate(each.lines.to_pylist())
    }
    if safe:
        assert found == {b"1": [(b"1",), None], b"2": [(b"2",), (b"1",)]}
    else:
        assert found == {b"1": [None], b"2": [(b"1",)]}


def test_a_surrogate_key_of_the_target_finds_no_row() -> None:
    target = TableSchema((*COLUMNS, replace(OWN, name="pk")), (Index("PRIMARY", ("pk",), True),), "")
    assert as_filled(target, {"id", "v"}).key == ()
