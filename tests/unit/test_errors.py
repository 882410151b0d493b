"""Every coded error is documented, unique, picklable, and says what to do."""

import ast
import dataclasses
import pickle
import re
from pathlib import Path

import pytest

from tests.codederrors import all_errors
from unshard.errors import UnshardError

ROOT = Path(__file__).parents[2]
LEAVES = all_errors()
PAGE = (ROOT / "docs/errors.md").read_text()
ENTRIES = {
    heading: [" ".join(part.split()) for part in re.split(r"^\* ", text, flags=re.MULTILINE)[1:]]
    for heading, text in re.findall(r"^### (.+)\n((?:\* .*\n(?:  .*\n)*)*)", PAGE, re.MULTILINE)
}
"""The cause, consequence and remedy of each error, each as one line."""
QUOTED = re.compile(r'\*\*Remedy:\*\* "(.*)"')
FIELD = re.compile(r"\{(\w+)(?:!r)?\}")
CODE = re.compile(r"`[^`]+`")


def heading(leaf: type[UnshardError]) -> str:
    return f"{leaf.code} {leaf.__name__}"


def example(leaf: type[UnshardError]) -> UnshardError:
    values = {"str": "x", "int": 1, "float": 1.0, "tuple": (), "bool": False, "bytes": b""}
    arguments = []
    leaf.make()
    for field in dataclasses.fields(leaf):
        kind = field.type if isinstance(field.type, str) else getattr(field.type, "__name__", str(field.type))
        arguments.append(next((v for name, v in values.items() if str(kind).startswith(name)), "x"))
    return leaf(*arguments)


def sentence(hint: str) -> str:
    """Return a hint as a sentence of the page, with its fields as placeholders."""
    text = CODE.sub(lambda code: FIELD.sub(lambda field: field[1].upper(), code[0]), hint)
    text = FIELD.sub(r"*\1*", text)
    is_path = "/" in text.split(" ", 1)[0]
    return f"{text if is_path else text[:1].upper() + text[1:]}."


def test_codes_are_unique() -> None:
    codes = [leaf.code for leaf in LEAVES]
    assert len(codes) == len(set(codes))


def test_errors_survive_pickling_and_say_what_to_do() -> None:
    for leaf in LEAVES:
        error = example(leaf)
        copy = pickle.loads(pickle.dumps(error))
        assert str(copy) == str(error)
        assert str(error).startswith(f"[{leaf.code}] ")
        assert leaf.hint, f"{leaf.code}: an error tells the next step"


def test_the_page_has_the_errors_of_the_code_in_the_order_of_their_codes() -> None:
    assert re.findall(r"^### (.+)$", PAGE, re.MULTILINE) == [heading(leaf) for leaf in LEAVES]


@pytest.mark.slow
def test_every_error_is_used() -> None:
    code = [
        path for room in ("include", "plugins") for path in (ROOT / room).rglob("*.py") if "errors" not in path.parts
    ]
    nodes = [node for path in code for node in ast.walk(ast.parse(path.read_text()))]
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    names |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    assert {leaf.__name__ for leaf in LEAVES} <= names, "delete what nothing raises any more"


def test_the_page_has_cause_consequence_and_remedy() -> None:
    for name, entry in ENTRIES.items():
        assert [line[:4] for line in entry] == ["**Ca", "**Co", "**Re"], name
        assert all(len(line.split("** ", 1)[-1]) > len("Nothing.") for line in entry), name


def test_the_page_says_which_errors_may_disappear() -> None:
    told = {leaf.code for leaf in LEAVES if ENTRIES[heading(leaf)][1].endswith("*Transient.*")}
    assert told == {leaf.code for leaf in LEAVES if leaf.transient}


def test_a_next_step_that_the_page_quotes_is_that_of_the_message() -> None:
    found = {leaf: QUOTED.fullmatch(ENTRIES[heading(leaf)][2]) for leaf in LEAVES}
    quoted = {leaf.code: (match[1], sentence(leaf.hint)) for leaf, match in found.items() if match}
    assert {code: texts for code, texts in quoted.items() if texts[0] != texts[1]} == {}


def test_most_remedies_are_quoted() -> None:
    """So the test before compares something."""
    assert sum(QUOTED.fullmatch(entry[2]) is not None for entry in ENTRIES.values()) > 100


def test_code_on_the_page_has_both_its_quotes() -> None:
    assert [line for entry in ENTRIES.values() for line in entry if line.count("`") % 2] == []
