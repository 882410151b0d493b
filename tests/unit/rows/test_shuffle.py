"""The shuffle: runs arrive unchanged and in order at the applier of their target."""

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from unshard.units.rows import shuffle
from unshard.units.rows.batchruns import RUNS


def batch(numbers: list[int]) -> pa.RecordBatch:
    rows = [
        {
            "shard": 1,
            "layout": 0,
            "seq": n,
            "gone": n % 2,
            "come": 1,
            "safe": n % 3 == 0,
            "blank": False,
            "key": b"%d" % n,
            "line": b"\0\n" * n if n % 5 else None,
        }
        for n in numbers
    ]
    return pa.RecordBatch.from_pylist(rows, RUNS)


RUNS_OF_TARGETS = st.lists(st.tuples(st.integers(0, 3), st.lists(st.integers(0, 30), max_size=5)), max_size=12)


@settings(max_examples=25)
@given(RUNS_OF_TARGETS, st.integers(1, 3), st.sampled_from([1, 300, 1 << 20]))
def test_runs_come_out_as_they_went_in(given_runs, slots, size):
    batches = list(shuffle.payloads(((target, batch(some)) for target, some in given_runs), slots, size))
    batches += [shuffle.message(0, b"\0done"), shuffle.message(slots - 1, b"")]
    found = pa.Table.from_batches(batches, shuffle.PAYLOADS).combine_chunks()
    assert shuffle.messages_in(found) == [b"\0done", b""]
    assert list(shuffle.targets_in(found)) == sorted({target for target, _ in given_runs})
    for target in shuffle.targets_in(found):
        want = pa.Table.from_batches([batch(some) for number, some in given_runs if number == target], RUNS)
        assert shuffle.of_target(found, target).to_pylist() == want.to_pylist()
    for each in batches[:-2]:
        (row,) = each.to_pylist()
        assert row["slot"] == row["target"] % slots
