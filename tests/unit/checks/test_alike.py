"""Items that differ in names of tables only become one line with a count and three names."""

import pytest

from unshard.core.checks.items import Item, Severity, problem, summaries
from unshard.errors.checks import KeylessTable, StructureAltered

SOURCE = "source s1"


def keyless(numbers: range, place: str = SOURCE) -> list[Item]:
    return [problem("table_schema", place, KeylessTable(f"a_1.t_{n}"), Severity.WARNING) for n in numbers]


def altered(number: int, changes: str) -> Item:
    error = StructureAltered(f"a.t_{number}", f"s1/a_1.t_{number}", changes)
    return problem("target_structure", f"target a.t_{number}", error, Severity.WARNING)


def test_the_warning_about_500_tables_is_one() -> None:
    items = keyless(range(500))
    (found,) = summaries(items)
    assert found.message == f"{items[0].message}; the same for 499 others, such as a_1.t_1, a_1.t_2, a_1.t_3"
    assert (found.place, found.code, found.severity) == (SOURCE, items[0].code, Severity.WARNING)


def test_results_without_a_problem_are_summarized_by_their_place() -> None:
    items = [Item("target_structure", Severity.OK, f"target a.t_{n}", "can be created") for n in range(9)]
    (found,) = summaries(items)
    assert found.message == "can be created; the same for 8 others, such as a.t_1, a.t_2, a.t_3"


@pytest.mark.parametrize("count", [0, 1, 4])
def test_a_few_are_shown_one_by_one(count: int) -> None:
    assert summaries(keyless(range(count))) == keyless(range(count))


def test_items_that_say_something_else_stay_apart() -> None:
    others = [altered(n, f"column c: INT becomes VARCHAR({n})") for n in range(6)]
    same = [altered(n, "column c: INT becomes BIGINT") for n in range(6)]
    places = keyless(range(3)) + keyless(range(3), "source s2")
    first, *rest = summaries([*same, *others, *places])
    assert first.message.endswith("; the same for 5 others, such as a.t_1, a.t_2, a.t_3")
    assert rest == [*others, *places]
