"""The steps of changes that are written in the order of the binlog."""

from collections.abc import Sequence

from unshard.core.rows.compaction import Op, StepImages, image_steps

INSERT, DELETE, BEFORE, AFTER = Op


def made(rows: Sequence[tuple[Op, str]], alone: str = "", most: int = 200) -> list[tuple[str, tuple[int, ...]]]:
    ops, names = [int(op) for op, _ in rows], [name for _, name in rows]
    found: list[StepImages] = list(image_steps(ops, names, [name in alone for name in names], most))
    return [(step.kind.value, step.rows) for step in found]


def test_rows_of_one_table_and_kind_are_one_step() -> None:
    rows = [(INSERT, "p"), (INSERT, "p"), (INSERT, "c"), (DELETE, "c"), (DELETE, "c"), (DELETE, "p")]
    assert made(rows) == [("insert", (0, 1)), ("insert", (2,)), ("delete", (3, 4)), ("delete", (5,))]


def test_both_images_of_an_update_are_one_step() -> None:
    rows = [(INSERT, "p"), (BEFORE, "p"), (AFTER, "p"), (BEFORE, "p"), (AFTER, "p"), (DELETE, "p")]
    assert made(rows) == [("insert", (0,)), ("update", (1, 2)), ("update", (3, 4)), ("delete", (5,))]


def test_a_delete_and_the_images_of_an_update_are_different_steps() -> None:
    assert made([(DELETE, "p"), (BEFORE, "p"), (AFTER, "p")]) == [("delete", (0,)), ("update", (1, 2))]


def test_a_single_image_of_an_update_is_an_insert_or_a_delete() -> None:
    assert made([(BEFORE, "p"), (INSERT, "p"), (AFTER, "p")]) == [("delete", (0,)), ("insert", (1, 2))]


def test_deletes_of_a_table_that_references_itself_are_single_steps() -> None:
    assert made([(DELETE, "s"), (DELETE, "s"), (INSERT, "s"), (INSERT, "s")], alone="s") == [
        ("delete", (0,)),
        ("delete", (1,)),
        ("insert", (2, 3)),
    ]


def test_a_step_has_a_limited_number_of_rows() -> None:
    assert made([(INSERT, "p")] * 5, most=2) == [("insert", (0, 1)), ("insert", (2, 3)), ("insert", (4,))]
