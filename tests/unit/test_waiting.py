"""What explains that a target differs from its shards."""

import json
from datetime import datetime

import pytest

from unshard.core.differences import Difference, Kind
from unshard.core.model import Shard, TableId
from unshard.core.rowerrors import RowError, RowErrorState
from unshard.core.stops import Refusal, Stop
from unshard.core.waiting import Because, Waiting

TARGET, NOW = TableId("shop", "t"), datetime(2026, 1, 1)
ASIDE = RowError(TARGET, Shard("s1", TableId("a", "t_1")), "ID = 007", "v", "too long",
                 json.dumps({"ID": "007", "n": None, "v": "x"}), 1, RowErrorState.OPEN, 1, NOW, NOW)  # fmt: skip
STOP = Stop("s1", Refusal(TARGET, "v", "id = 1", "too long"), 1, "", 1, NOW)
S1, S2 = "s1 a.t_1", "s2 a.t_1"


def missing(key: str, *shards: str) -> Difference:
    return Difference(Kind.MISSING, (key,), shards, 1)


@pytest.mark.parametrize(
    ("waiting", "difference", "want"),
    [
        (Waiting(), missing("7", S1), None),
        (Waiting(aside=(ASIDE,)), missing("7", S1), Because.ASIDE),
        (Waiting(aside=(ASIDE,)), missing("7", S2), None),
        (Waiting(aside=(ASIDE,)), missing("8", S1), None),
        (Waiting(shards=(S1,)), missing("7", S1), Because.HELD),
        (Waiting(shards=(S1,)), missing("7", S2), None),
        (Waiting(shards=(S1,)), missing("7", S2, S1), Because.HELD),
        (Waiting(shards=(S1,), stops=(STOP,)), missing("7", S1), Because.STOPPED),
        (Waiting(shards=(S2,), stops=(STOP,)), missing("7", S2), Because.HELD),
        (Waiting(stops=(STOP,)), missing("7", S1), None),
        (Waiting(shards=(S1,), stops=(STOP,), aside=(ASIDE,)), missing("7", S1), Because.ASIDE),
        (Waiting(shards=(S1,), aside=(ASIDE,)), missing("7"), None),
    ],
)
def test_a_difference_is_explained_by_what_is_known_of_its_shard(
    waiting: Waiting, difference: Difference, want: Because | None
) -> None:
    assert waiting.because(("id",), difference) is want


def test_a_row_that_was_put_aside_is_told_by_all_columns_of_its_key() -> None:
    both = Difference(Kind.MISSING, ("7", None), (S1,), 1)
    assert Waiting(aside=(ASIDE,)).because(("id", "n"), both) is Because.ASIDE
    assert Waiting(aside=(ASIDE,)).because(("id", "v"), both) is None
    assert Waiting(aside=(ASIDE,)).because(("id", "other"), both) is None
    assert Waiting(aside=(ASIDE,)).because((), Difference(Kind.MISSING, (), (S1,), 1)) is None
