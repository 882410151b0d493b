"""Charts and the timeline of a task, from samples and events."""

from datetime import UTC, datetime, timedelta

from unshard.core.model import Shard, TableId
from unshard.core.task.history import EventKind, Sample, TaskEvent, charts_of, timeline

NOW = datetime(2026, 11, 28, 12, 0, tzinfo=UTC)
TARGET = TableId("shop", "orders")


def sample(minute: int, rows: int, lag: int | None = 1, held: int | None = 0, source: str = "s1") -> Sample:
    return Sample(source, minute, windows=rows // 10, rows_applied=rows, millis=rows, lag_seconds=lag, rows_held=held)


def test_rows_between_two_samples_belong_to_the_minute_of_the_first() -> None:
    samples = [sample(100, 0), sample(101, 600), sample(104, 1200, lag=9), sample(105, 1800, None, None)]
    found = charts_of(samples, 105, 5, 1)
    assert found.at == [60 * minute for minute in range(100, 106)]
    assert found.rows_per_second == [10, 10, 0, 0, 10, None], "nothing came after the rows of minute 101"
    assert found.lag_seconds == [1, 1, None, None, 9, None]
    assert found.window_millis == [10, 10, None, None, 10, None]


def test_the_present_checkpoint_counts_in_its_minute() -> None:
    found = charts_of([sample(105, 0), sample(105, 120, None, None)], 105, 1, 1)
    assert found.rows_per_second == [None, 2]


def test_sources_are_added_and_the_longest_lag_counts() -> None:
    both = [sample(100, 0, 3, 5), sample(101, 60, 1, 5), sample(100, 0, 7, 2, "s2"), sample(101, 120, 1, 2, "s2")]
    found = charts_of(both, 101, 1, 1)
    assert (found.rows_per_second[0], found.lag_seconds, found.rows_held[0]) == (3, [7, 1], 7)


def test_intervals_of_a_day_have_ten_minutes() -> None:
    found = charts_of([sample(100, 0), sample(115, 6000), sample(140, 6600)], 140, 40, 10)
    assert found.at == [6000, 6600, 7200, 7800, 8400]
    assert found.rows_per_second == [10, 1, 0, 0, None]


def test_a_task_that_began_again_has_no_negative_rows() -> None:
    assert charts_of([sample(100, 6000), sample(101, 60), sample(102, 120)], 102, 2, 1).rows_per_second == [
        None,
        1,
        None,
    ]


def test_no_sample_is_an_empty_chart() -> None:
    assert charts_of([], 105, 2, 1).rows_per_second == [None] * 3


def seen(minutes: int, number: int, text: str = "ALTER") -> TaskEvent:
    shard = Shard("s1", TableId("shop", f"t_{number}"))
    return TaskEvent(NOW - timedelta(minutes=minutes), EventKind.DDL_SEEN, text, TARGET, shards=(shard,))


def test_a_ddl_of_many_shards_is_one_event() -> None:
    command = TaskEvent(NOW - timedelta(minutes=5), EventKind.COMMAND, "unlock", lock="l")
    other = seen(8, 1, "DROP")
    found = timeline([seen(9, 1), seen(3, 3), command, seen(7, 2), other, command], 10)
    assert [(event.kind, event.text) for event in found] == [
        (EventKind.DDL_SEEN, "ALTER"),
        (EventKind.COMMAND, "unlock"),
        (EventKind.COMMAND, "unlock"),
        (EventKind.DDL_SEEN, "DROP"),
    ]
    assert [shard.table.name for shard in found[0].shards] == ["t_3", "t_2", "t_1"] and found[0].at == seen(3, 3).at
    assert timeline([command] * 7, 3) == (command,) * 3
