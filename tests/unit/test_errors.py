"""Every coded error is documented, unique, picklable, and keeps its code for ever."""

import ast
import dataclasses
import pickle
import re
from pathlib import Path

import pytest

from unshard.errors import UnshardError
from unshard.errors.reference import all_errors, page
from unshard.errors.retired import RETIRED

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests/unit/golden/error_codes.txt"
LEAVES, PAGE = all_errors(), page()
NAMES = {f"{leaf.code} {leaf.__name__}" for leaf in LEAVES}


def example(leaf: type[UnshardError]) -> UnshardError:
    values = {"str": "x", "int": 1, "float": 1.0, "tuple": (), "bool": False, "bytes": b""}
    arguments = []
    leaf.make()
    for field in dataclasses.fields(leaf):
        kind = field.type if isinstance(field.type, str) else getattr(field.type, "__name__", str(field.type))
        arguments.append(next((v for name, v in values.items() if str(kind).startswith(name)), "x"))
    return leaf(*arguments)


def test_codes_are_unique() -> None:
    codes = [leaf.code for leaf in LEAVES]
    assert len(codes) == len(set(codes))


@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: leaf.code)
def test_error_survives_pickling_and_says_what_to_do(leaf: type[UnshardError]) -> None:
    error = example(leaf)
    copy = pickle.loads(pickle.dumps(error))
    assert str(copy) == str(error)
    assert str(error).startswith(f"[{leaf.code}] ")
    assert leaf.hint, "an error tells the next step"


@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: leaf.code)
def test_error_is_documented(leaf: type[UnshardError]) -> None:
    page = (ROOT / "docs/errors.md").read_text()
    assert re.search(rf"^### {leaf.code} {leaf.__name__}$", page, re.MULTILINE)


def test_no_code_changes_its_meaning() -> None:
    """A new error is added to the golden file; its lines never change, and a code is never reused."""
    golden = GOLDEN.read_text().splitlines()
    assert len({line.split()[0] for line in golden}) == len(golden)
    assert set(golden) == NAMES | set(RETIRED)


def test_every_error_is_used() -> None:
    code = [
        path for room in ("include", "plugins") for path in (ROOT / room).rglob("*.py") if "errors" not in path.parts
    ]
    nodes = [node for path in code for node in ast.walk(ast.parse(path.read_text()))]
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    names |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    assert {leaf.__name__ for leaf in LEAVES} <= names, "what nothing raises any more is RETIRED"


def test_the_page_is_the_one_that_make_docs_writes() -> None:
    assert (ROOT / "docs/errors.md").read_text() == PAGE, "run `make docs`"


@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: leaf.code)
def test_the_page_has_cause_consequence_and_remedy(leaf: type[UnshardError]) -> None:
    entry = PAGE.split(f"### {leaf.code} {leaf.__name__}\n")[1].split("\n\n")[0].splitlines()
    assert [line[:6] for line in entry] == ["* **Ca", "* **Co", "* **Re"]
    assert all(len(line.split("** ", 1)[-1]) > len("Nothing.") for line in entry)


def test_documentation_names_no_error_that_is_gone() -> None:
    page = (ROOT / "docs/errors.md").read_text()
    documented = set(re.findall(r"^### (US-\d{4} \w+)$", page, re.MULTILINE))
    assert documented == NAMES | set(RETIRED)


def test_code_on_the_page_has_both_its_quotes() -> None:
    assert [line for line in PAGE.splitlines() if line.count("`") % 2] == []
