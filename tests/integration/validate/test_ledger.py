"""`unshard validate` remembers each range that it has compared, so it goes on where it stopped."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tests.dying import Died
from tests.integration.validate.test_under_load import ROWS, SETTINGS, loaded
from tests.lifetask import LifeTask, task
from unshard.core.validate.ledger import Proof
from unshard.units.validate.validate import Chunked, TableResult, validate

__all__ = ["loaded", "task"]
pytestmark = [pytest.mark.integration, pytest.mark.on_tidb]
ALL = 2 * ROWS
DAY = timedelta(hours=24)


def validated(task: LifeTask, dies_after: int = 0, **options: object) -> TableResult:
    chunks = []

    def watch(told: object) -> None:
        chunks.append(told)
        if len(chunks) == dies_after:
            raise Died

    with task.work() as work:
        (found,) = validate(work, settings=replace(SETTINGS, **{"rows_per_shard": 1, **options}), watch=watch)
    return found


def proof(task: LifeTask) -> Proof:
    with task.work() as work:
        (found,) = work.meta.judged_ranges.proofs()
    return found


def test_a_validation_that_died_goes_on(loaded: LifeTask) -> None:
    with pytest.raises(Died):
        validated(loaded, dies_after=3)
    assert (proof(loaded).rows, proof(loaded).percent) == (300, 100)
    found = validated(loaded, resumes=True)
    assert found.equal and (found.left_out_rows, found.rows_target) == (300, ALL - 300)
    assert (proof(loaded).rows, proof(loaded).fresh_rows, proof(loaded).different) == (ALL, ALL, 0)
    again = validated(loaded, resumes=True)
    assert again.equal and (again.left_out_rows, again.chunks) == (ALL, 0), "it had ended"
    whole = validated(loaded)
    assert whole.equal and (whole.left_out_chunks, whole.rows_target) == (0, ALL), "a new one compares all"


def test_only_old_ranges_and_those_that_differ_are_compared(loaded: LifeTask) -> None:
    assert validated(loaded).equal
    loaded.target.run(f"DELETE FROM {loaded.name}_to.t WHERE id = 50")
    assert validated(loaded, older_than=DAY).chunks == 0, "all are proven, as of a moment ago"
    loaded.target.run(
        f"UPDATE {loaded.meta_schema}.judged_range SET compared_at = compared_at - INTERVAL 25 HOUR"
        f" WHERE target_schema = '{loaded.name}_to' AND range_lower = 'null'"
    )
    assert proof(loaded).percent == 100 * (ALL - 100) // ALL and proof(loaded).age > DAY
    found = validated(loaded, older_than=DAY)
    assert (found.chunks, [each.key for each in found.differences]) == (1, [("50",)])
    assert proof(loaded).different == 1
    found = validated(loaded, older_than=DAY)
    assert (found.chunks, found.differs) == (1, True), "a range that differs has no proof"


def test_ranges_that_have_grown_are_divided_wherever_it_dies(loaded: LifeTask) -> None:
    assert validated(loaded, chunk_rows=1000).equal
    before = proof(loaded).rows
    for dies_after in (1, 2, 3, 5):
        with pytest.raises(Died):
            validated(loaded, dies_after=dies_after, chunk_rows=100 - dies_after)
    loaded.target.run(f"DELETE FROM {loaded.name}_to.t WHERE id IN (1, 300, 1000599)")
    found = validated(loaded, chunk_rows=100)
    assert {each.key for each in found.differences} >= {("1",), ("300",)}
    assert before == ALL and proof(loaded).rows == found.rows_target == ALL - len(found.differences)


def test_ranges_of_another_key_prove_nothing(loaded: LifeTask) -> None:
    assert validated(loaded).equal
    loaded.target.run(
        f"UPDATE {loaded.meta_schema}.judged_range SET key_columns = '[\"v\"]'"
        f" WHERE target_schema = '{loaded.name}_to' AND range_lower != 'null'"
    )
    assert validated(loaded, resumes=True, chunk_rows=70).rows_target == ALL - 100
    assert (proof(loaded).rows, proof(loaded).percent) == (ALL, 100)


def test_time_and_rate_are_kept(loaded: LifeTask) -> None:
    late = validated(loaded, until=datetime.now(UTC) - timedelta(seconds=1))
    assert late.is_cut and not (late.equal or late.differs) and late.chunks == 0
    told = []
    with loaded.work() as work:
        validate(work, settings=replace(SETTINGS, rate=3000, rows_per_shard=1), watch=told.append)
    assert isinstance(told[-1], Chunked) and told[-1].seconds >= (ALL - 100) / 3000


def test_the_commands(loaded: LifeTask, capsys: pytest.CaptureFixture[str]) -> None:
    assert loaded.command("validate", "--chunk-rows", "1") == 0
    assert loaded.command("validate", "--resume", "--rate", "100000", "--until", "23:59", "--older-than", "1h") == 0
    assert f"proven earlier: {ALL:,} rows" in capsys.readouterr().out
    loaded.command("status")
    assert "100 % of the rows proven equal within 24 h" in capsys.readouterr().out
    loaded.command("status", "--json")
    (shown,) = json.loads(capsys.readouterr().out)["validated"]
    assert (shown["rows_equal"], shown["ranges_different"]) == (ALL, 0)
    for wrong in (("--until", "25:00"), ("--older-than", "soon")):
        assert loaded.command("validate", *wrong) == 1
        assert wrong[0] in capsys.readouterr().err
