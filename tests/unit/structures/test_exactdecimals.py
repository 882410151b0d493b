"""A DECIMAL has up to 65 digits, 30 of them after the point; Python rounds to 28 unless it is told otherwise."""

import pytest

from tests.unit.join.paper import create
from unshard.binlog.sparse import Default, default_of
from unshard.core.join.jointables import table_with_ids
from unshard.core.model import Column
from unshard.core.structures.createtext import normal_column
from unshard.core.validate.rowdifferences import folded_key

LONG = "1234567890123456789012345678901.123456789012345678901234567891"


def decimal(default: str) -> Column:
    return Column("c", "decimal", "decimal(65,30)", True, None, None, default, "")


@pytest.mark.parametrize(("default", "whole"), [("1.5", "1.5" + "0" * 29), (LONG, LONG)])
def test_defaults_have_all_digits_of_their_type(default: str, whole: str) -> None:
    assert normal_column(decimal(default), f"  `c` decimal(65,30) DEFAULT '{default}'", str).default == whole
    structure = create(f"CREATE TABLE t (id INT PRIMARY KEY, c DECIMAL(65,30) DEFAULT {default})").structure
    assert default_of(decimal(default), structure) == Default(whole.encode())


def test_defaults_and_keys_that_differ_in_the_last_digit_are_different() -> None:
    one, other = (
        table_with_ids(
            create(f"CREATE TABLE t (id INT PRIMARY KEY, c DECIMAL(65,30) DEFAULT {text})").structure, {"id": 1, "c": 2}
        )
        for text in (LONG, f"{LONG[:-1]}2")
    )
    assert one != other
    assert folded_key((LONG,)) != folded_key((f"{LONG[:-1]}2",))
    assert folded_key(("1.50",)) == folded_key(("1.5",))
