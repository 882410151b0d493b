"""How the tests of `make test` are chosen and distributed."""

from tests.suite import rare
from tests.suite.distribution import LONGEST_UNIT, units
from tests.suite.portions import each_value


class Item:
    """A test with its parameters."""

    def __init__(self, **values: int) -> None:
        self.callspec, self.params = self, values


def test_each_value_of_each_parameter_is_there_and_about_as_often_as_the_others() -> None:
    items = [Item(case=case, way=way) for case in range(6) for way in range(2)]
    kept = [one.params for one in each_value(items)]
    assert sorted(one["case"] for one in kept) == [0, 1, 2, 3, 4, 5]
    assert sorted(one["way"] for one in kept) == [0, 0, 0, 1, 1, 1]


def test_a_test_without_parameters_is_kept() -> None:
    alone = Item()
    assert each_value([alone]) == [alone]


def test_a_long_file_is_divided_unless_its_tests_share_a_fixture() -> None:
    names = [f"{file}::test[{number}]" for file in ("a.py", "b.py") for number in range(4)]
    seconds = {f"{file}::test": LONGEST_UNIT for file in ("a.py", "b.py")}
    found = units(names, seconds, {"b.py"})
    assert len({found[name] for name in names[:4]}) == 2
    assert len({found[name] for name in names[4:]}) == 1


def test_tests_with_tidb_are_units_of_their_own() -> None:
    found = units(["tests/integration/a.py::test[mariadb]", "tests/integration/a.py::test[tidb]"], {}, ())
    assert len(set(found.values())) == 2


def test_readme_lists_what_make_test_leaves_out_with_the_reasons() -> None:
    assert rare.page() == rare.README.read_text(), "run `make docs`"
