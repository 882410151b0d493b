"""The table of docs/compatibility.md after a run of some combinations."""

from pathlib import Path

from tests.suite.matrix import BEGIN, END, Combination, write


def test_a_run_replaces_its_rows_and_keeps_the_others(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\n{END}\nafter\n")
    old, failed, alone = (Combination(*text.split("/")) for text in ("3.1/4.0/3.11", "3.2/4.1/3.12", "none/4.3/3.13"))
    write(page, {failed: "**failed: 1**", alone: "equal (tutorial); 12 others"})
    write(page, {old: "equal", failed: "equal", Combination("3.2", "4.1", "3.12", "celery"): "equal"})
    before, *rows, end, after = page.read_text().splitlines()[:1] + page.read_text().splitlines()[4:]
    assert (before, end, after) == ("before", END, "after")
    assert rows == [
        "| 3.1 | 4.0 | 3.11 | local | equal |",
        "| 3.2 | 4.1 | 3.12 | celery | equal |",
        "| 3.2 | 4.1 | 3.12 | local | equal |",
        "| none | 4.3 | 3.13 | – | equal (tutorial); 12 others |",
    ]
