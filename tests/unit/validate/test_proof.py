"""When a difference is proven, and which keys count as the same."""

import pytest

from unshard.core.validate.proof import Touched, Verdict
from unshard.core.validate.rowdifferences import DifferenceKind, RowDifference, folded_key

ROW = RowDifference(DifferenceKind.DIFFERENT, ("7", "Ä "), ("s1 a.t",), 1)


@pytest.mark.parametrize(
    ("touched", "keyed", "want"),
    [
        (Touched(), True, Verdict.PROVEN),
        (Touched(frozenset({("7", "b")})), True, Verdict.PROVEN),
        (Touched(frozenset({("7", "a")})), True, Verdict.PENDING),
        (Touched(anything="a DDL has run"), True, Verdict.PENDING),
        (Touched(), False, Verdict.PROVEN),
        (Touched(frozenset({("8", "b")})), False, Verdict.PENDING),
    ],
)
def test_only_a_key_that_nothing_has_touched_is_proven(touched: Touched, keyed: bool, want: Verdict) -> None:
    assert touched.verdict(ROW, keyed=keyed) is want


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("1.50", "1.5000"),
        ("007", "7"),
        ("-0", "0"),
        ("Straße", "STRASSE"),
        ("é", "E"),
        ("ab", "ab  "),
        ("0xAB", "0xab"),
        ("2026-01-01 10:00:00", "2026-01-01 10:00:00.000000"),
    ],
)
def test_keys_that_a_server_may_take_for_equal_are_folded_alike(one: str, other: str) -> None:
    assert folded_key((one, None)) == folded_key((other, None))


@pytest.mark.parametrize(("one", "other"), [("1", "10"), ("1e1", "1e2"), ("a b", "ab"), ("0x00", "0x"), ("", "0")])
def test_other_keys_stay_apart(one: str, other: str) -> None:
    assert folded_key((one,)) != folded_key((other,))


def test_null_is_no_text() -> None:
    assert folded_key((None,)) != folded_key(("None",))
