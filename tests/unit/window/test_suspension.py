"""Errors that stop one target: kept as values, told again as they were, listed for operators."""

import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.test_errors import example
from unshard.core import codec
from unshard.core.model import TableId
from unshard.core.window.suspension import KINDS, Refusal, refusal_of
from unshard.errors import UnshardError
from unshard.errors.meta import MetaUnreadable
from unshard.errors.rows import RowRefused

TARGET = TableId("shop", "orders")
PAGE = (Path(__file__).parents[3] / "docs/operations.md").read_text()


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_an_error_is_told_again_as_it_was(kind: type[UnshardError]) -> None:
    error = example(kind)
    kept = refusal_of(TARGET, error)
    assert type(kept.error) is kind and str(kept.error) == str(error) and not error.transient
    assert (kept.code, kept.key) == (kind.code, getattr(error, "key", ""))


def test_a_new_process_tells_the_errors_of_others() -> None:
    """In this process the tests above have made the dataclasses of the errors already."""
    kept = [refusal_of(TARGET, example(kind)) for kind in KINDS.values()]
    read = "from unshard.core import codec\nfrom unshard.core.window.suspension import Refusal\n"
    told = "print('\\n'.join(str(each.error) for each in codec.loads(tuple[Refusal, ...], sys.stdin.read())))"
    command = [sys.executable, "-c", f"import sys\n{read}{told}"]
    done = subprocess.run(command, input=codec.dumps(kept), capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [str(each.error) for each in kept], done.stderr


@pytest.mark.parametrize("code", KINDS)
def test_what_helps_is_told_for_every_error(code: str) -> None:
    table = re.search(r"^\| error of a suspended target.*?\n\n", PAGE, re.MULTILINE | re.DOTALL)
    assert table and code in table[0]


def test_the_line_of_a_row_is_not_kept() -> None:
    refused = RowRefused("shop.orders", "v", "id = 1", "too long", b"secret")
    kept = refusal_of(TARGET, refused)
    assert "secret" not in repr(kept) and kept.error.message == refused.message


def test_a_stop_of_before_there_were_kinds_and_one_of_a_later_version() -> None:
    old = Refusal(TARGET, "v", "id = 1", "too long")
    assert str(old.error) == str(RowRefused("shop.orders", "v", "id = 1", "too long"))
    for other in (dataclasses.replace(old, code="US-9999", parts="{}"), dataclasses.replace(old, parts='{"x": 1}')):
        with pytest.raises(MetaUnreadable, match="the error that suspended shop"):
            _ = other.error
