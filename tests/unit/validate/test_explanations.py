"""The causes of expected differences between a target and its shards."""

import json
from datetime import datetime

import pytest

from unshard.core.model import Shard, TableId
from unshard.core.rows.rowerrors import RowError, RowErrorState
from unshard.core.validate.rowdifferences import Because, DifferenceKind, NotYetInTarget, RowDifference
from unshard.core.window.suspension import Refusal, SuspendedTarget

TARGET, NOW = TableId("shop", "t"), datetime(2026, 1, 1)
DIVERTED = RowError(
    TARGET,
    Shard("s1", TableId("a", "t_1")),
    "ID = 007",
    "v",
    "too long",
    json.dumps({"ID": "007", "n": None, "v": "x"}),
    1,
    RowErrorState.OPEN,
    1,
    NOW,
    NOW,
)
STOP = SuspendedTarget("s1", Refusal(TARGET, "v", "id = 1", "too long"), 1, "", 1, NOW)
S1, S2 = "s1 a.t_1", "s2 a.t_1"


def missing(key: str, *shards: str) -> RowDifference:
    return RowDifference(DifferenceKind.MISSING, (key,), shards, 1)


@pytest.mark.parametrize(
    ("waiting", "difference", "want"),
    [
        (NotYetInTarget(), missing("7", S1), None),
        (NotYetInTarget(diverted=(DIVERTED,)), missing("7", S1), Because.DIVERTED),
        (NotYetInTarget(diverted=(DIVERTED,)), missing("7", S2), None),
        (NotYetInTarget(diverted=(DIVERTED,)), missing("8", S1), None),
        (NotYetInTarget(shards=(S1,)), missing("7", S1), Because.HELD),
        (NotYetInTarget(shards=(S1,)), missing("7", S2), None),
        (NotYetInTarget(shards=(S1,)), missing("7", S2, S1), Because.HELD),
        (NotYetInTarget(shards=(S1,), suspended=(STOP,)), missing("7", S1), Because.SUSPENDED),
        (NotYetInTarget(shards=(S2,), suspended=(STOP,)), missing("7", S2), Because.HELD),
        (NotYetInTarget(suspended=(STOP,)), missing("7", S1), None),
        (NotYetInTarget(shards=(S1,), suspended=(STOP,), diverted=(DIVERTED,)), missing("7", S1), Because.DIVERTED),
        (NotYetInTarget(shards=(S1,), diverted=(DIVERTED,)), missing("7"), None),
    ],
)
def test_a_difference_is_explained_by_what_is_known_of_its_shard(
    waiting: NotYetInTarget, difference: RowDifference, want: Because | None
) -> None:
    assert waiting.because(("id",), difference) is want


def test_a_diverted_row_is_identified_by_all_columns_of_its_key() -> None:
    both = RowDifference(DifferenceKind.MISSING, ("7", None), (S1,), 1)
    assert NotYetInTarget(diverted=(DIVERTED,)).because(("id", "n"), both) is Because.DIVERTED
    assert NotYetInTarget(diverted=(DIVERTED,)).because(("id", "v"), both) is None
    assert NotYetInTarget(diverted=(DIVERTED,)).because(("id", "other"), both) is None
    assert NotYetInTarget(diverted=(DIVERTED,)).because((), RowDifference(DifferenceKind.MISSING, (), (S1,), 1)) is None
