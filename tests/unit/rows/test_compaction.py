"""Properties of compaction: the compacted run has the same effect on a table as the whole run."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.compaction import combine, compact, compact_multiset, follows, run_of
from unshard.core.rows.compaction import Op, RowOperations, Write, action, row_operations

KEYS = st.integers(0, 5)
Changes = list[tuple[int, Op, str]]


@st.composite
def histories(draw: st.DrawFn) -> tuple[dict[int, str], Changes]:
    """Generate a table and a possible sequence of changes of it, key changes included."""
    table = draw(st.dictionaries(KEYS, st.text("ab", max_size=2)))
    rows, changes = dict(table), []
    for number in range(draw(st.integers(0, 12))):
        key, new = draw(KEYS), f"v{number}"
        if key not in rows:
            changes.append((key, Op.INSERT, new))
            rows[key] = new
            continue
        moved = draw(st.none() | st.sampled_from([k for k in range(6) if k == key or k not in rows]))
        if moved is None:
            changes.append((key, Op.DELETE, rows.pop(key)))
        else:
            changes += [(key, Op.BEFORE, rows.pop(key)), (moved, Op.AFTER, new)]
            rows[moved] = new
    return table, changes


def apply(table: dict[int, str], changes: Changes) -> dict[int, str]:
    rows = dict(table)
    for key, op, row in changes:
        if op.adds:
            assert key not in rows
            rows[key] = row
        else:
            del rows[key]
    return rows


def write(table: dict[int, str], runs, safe: bool, several: bool) -> dict[int, str]:
    rows, decided = dict(table), {key: action(run.existed, run.exists, safe, several) for key, run in runs.items()}
    for key, act in decided.items():
        if act.delete:
            assert safe or key in rows
            rows.pop(key, None)
    for key, act in decided.items():
        assert act.write is not Write.PLAIN or key not in rows, "a collision where there is none"
        if act.write is not Write.NOTHING:
            rows[key] = runs[key].row
    return rows


RULES = st.booleans()


@given(histories(), RULES, st.booleans())
def test_the_net_changes_do_what_all_changes_do(history, rule, safe):
    table, changes = history
    assert write(table, compact(changes), safe, rule) == apply(table, changes)


@given(histories(), RULES, st.data())
def test_safe_mode_repairs_a_table_that_has_seen_some_of_the_changes(history, rule, data):
    table, changes = history
    runs = compact(changes)
    seen = data.draw(st.integers(0, len(changes)))
    after = apply(
        table, changes[:seen] if seen == len(changes) or changes[seen][1] is not Op.AFTER else changes[: seen + 1]
    )
    assert write(after, runs, True, rule) == apply(table, changes)


@given(histories(), st.data())
def test_runs_combine_in_any_grouping(history, data):
    _, changes = history
    cut = data.draw(st.integers(0, len(changes)))
    first, second = compact(changes[:cut]), compact(changes[cut:])
    both = {
        key: combine(first[key], second[key]) if key in first and key in second else first.get(key) or second[key]
        for key in first | second
    }
    assert both == compact(changes)
    assert all(follows(first[key], second[key]) for key in first.keys() & second.keys())


def test_a_key_that_comes_twice_does_not_follow():
    assert not follows(run_of(Op.INSERT, "a"), run_of(Op.INSERT, "b"))
    assert not follows(run_of(Op.DELETE, "a"), run_of(Op.BEFORE, "b"))


@given(st.lists(st.tuples(st.sampled_from(Op), st.integers(0, 3))))
def test_a_multiset_nets_to_its_difference(changes):
    come = Counter(row for op, row in changes if op.adds)
    go = Counter(row for op, row in changes if not op.adds)
    come.subtract(go)
    assert compact_multiset(changes) == {row: count for row, count in come.items() if count}


@pytest.mark.parametrize(
    ("existed", "exists", "safe", "several", "want"),
    [
        (False, False, False, False, RowOperations(False, Write.NOTHING)),
        (False, False, True, False, RowOperations(True, Write.NOTHING)),
        (False, True, False, False, RowOperations(False, Write.PLAIN)),
        (True, True, False, False, RowOperations(False, Write.REPLACE)),
        (True, True, False, True, RowOperations(True, Write.PLAIN)),
        (True, True, True, True, RowOperations(False, Write.REPLACE)),
        (True, False, True, True, RowOperations(True, Write.NOTHING)),
    ],
)
def test_actions(existed, exists, safe, several, want):
    assert action(existed, exists, safe, several) == want
    assert row_operations(several)[4 * safe + 2 * existed + exists] == want
