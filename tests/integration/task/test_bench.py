"""The bench runs: every part gives figures, and every comparison in it holds. The figures are not asserted."""

import json
from pathlib import Path

import pytest

from tests.bench.__main__ import main
from tests.bench.figures import Figure, page, ratio, with_section
from unshard_demo import tidb

pytestmark = [pytest.mark.integration, pytest.mark.slow]


def test_every_part_gives_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    markdown = tmp_path / "figures.md"
    found = main(
        [
            "d",
            "f",
            "g",
            "h",
            "i",
            "j",
            "k",
            "l",
            "--rounds",
            "1",
            "--rows",
            "240",
            "--without-spark",
            "--out",
            str(tmp_path),
            "--page",
            str(markdown),
        ]
    )
    assert {figure.part for figure in found} == set("dfghijkl" if tidb.is_built() else "dfghijk")
    shown = markdown.read_text()
    assert all(figure.values and figure.name in shown for figure in found)
    stored = json.loads((tmp_path / "bench.json").read_text())
    assert [one["name"] for one in stored["figures"]] == [figure.name for figure in found]
    assert stored["machine"] in capsys.readouterr().out


def test_ratios_are_taken_round_by_round() -> None:
    ours, theirs = Figure("a", "ours", "x/s", (4.0, 9.0, 1.0)), Figure("a", "theirs", "x/s", (2.0, 3.0, 1.0))
    both = ratio("a", "both", ours, theirs, ">= 2")
    assert (both.values, both.median, both.met) == ((2.0, 3.0, 1.0), 2.0, True)
    assert ratio("a", "both", theirs, ours, ">= 2").met is False and ours.met is None
    assert "| 2.000 | x | 1.000 to 3.000 |  | >= 2: yes |" in page([both], "here")


def test_a_part_that_was_measured_by_itself_has_a_section_of_its_own() -> None:
    whole = page([Figure("a", "all", "s", (1.0,))], "machine one")
    first = with_section(whole, [Figure("l", "first", "s", (2.0,)), Figure("k", "other", "s", (4.0,))], "machine two")
    assert first.startswith(whole) and first.index("part k") < first.index("part l")
    again = with_section(first, [Figure("l", "second", "s", (3.0,))], "machine three")
    assert again.startswith(whole) and "first" not in again
    assert all(text in again for text in ("second", "machine three", "other", "machine two"))
