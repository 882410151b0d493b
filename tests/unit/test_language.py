"""Plain English: docstrings, comments, messages and documents must not contain typical unclear phrases."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PHRASES = {
    r"\bis none\b|\bare none\b": "say what it is not: `is not a …`",
    r"\bis such\b|\bare such\b|\bis one here\b": "repeat the noun",
    r"\bnobody (?:but|can|could|knows|may|has|says|said|else|asked|would|waits)\b": "write `unknown`, `only a …`",
    r"\b[Ww]hoever\b|\bwhomever\b|\bof whom\b": "name who: `a caller that`",
    r"\b(?:stands?|stood|standing) (?:behind|before|beside|in|at|there|with|for|where|on|alone)\b": "write `is`",
    r"\bbehind (?:a|an|the|it|them|this|that|one|its|each|undecided|queued|which|whose)\b"
    r"(?! (?:proxy|firewall|load balancer))": "write `after`, or say which lag is meant",
    r"(?:^|[.:;] )What (?!is\b[^.]*\?|happens\b|to do\b|it is\b)\w+[^?\n]*?"
    r"\b(?:is|are|was|were|has|have|does|do)\b[^?\n]*\.": "do not use a clause as subject: name the thing",
    r"(?:^|[.:;] )Who (?!is\b[^.]*\?)\w+ [^?\n]*\.": "do not use a clause as subject",
    r"\bas (?:nobody|none|no one) \b": "say it positively",
    r"\bother than (?:nobody|none)\b": "say it positively",
    r"\bbrings? with (?:it|them)\b": "write `contains`",
    r"\bis to be (?!0|1|equal)\w+": "write `must be …` or use a verb with a subject",
    r"\bare to be (?!equal)\w+": "write `must be …` or use a verb with a subject",
    r"\bin (?:which|what) words\b|\bits words\b|\b(?:target|server)'s words\b": "write `message`",
    r"\bno(?:body)? matter whose\b": "say it directly",
    r"\bowes?\b|\bowed\b|\bdebts?\b|\bforgiven\b": "write `pending skip`, `waived`",
    r"\bstrangers?\b|\bexcused?\b|\bobey(?:s|ed)?\b": "write `mismatched shard`, `exempted`, `applied`",
    r"\bnett(?:ed|ing)\b": "write `compacted`, `compaction`",
    r"\bput aside\b|\bputs aside\b": "write `diverted` or `renamed`",
    r"\bghosts?\b(?!-| ?ost)": "write `online-DDL shadow table`",
    r"\bawaited\b": "write `deferred`",
    r"\bparcels?\b": "write `batch`, `shuffle payload`",
}
SHOWN = 40


def prose_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the docstrings, comments and sentences of one Python file, with line numbers."""
    text = path.read_text()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("# ")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            for number, line in enumerate(re.split(r"\n", node.value)):
                yield node.lineno + number, line


def violations(path: Path) -> list[str]:
    """Return the phrases of one file that PHRASES rejects, with line and remedy."""
    lines = prose_of(path) if path.suffix == ".py" else enumerate(path.read_text().splitlines(), 1)
    return [
        f"{path.relative_to(ROOT)}:{number}: {match.group(0)[:SHOWN]!r}: {remedy}"
        for number, line in lines
        for phrase, remedy in PHRASES.items()
        for match in re.finditer(phrase, line)
    ]


FOLDERS = {
    "include": ("*.py",),
    "plugins": ("*.py", "*.html"),
    "dags": ("*.py",),
    "spark_jobs": ("*.py",),
    "docs": ("*.md",),
}
PAGES = sorted(ROOT.glob("*.md"))


@pytest.mark.parametrize("folder", FOLDERS)
def test_plain_english(folder: str) -> None:
    paths = sorted(path for kind in FOLDERS[folder] for path in (ROOT / folder).rglob(kind))
    assert [each for path in paths for each in violations(path)] == []


def test_plain_english_of_pages_outside_docs() -> None:
    assert [each for path in PAGES for each in violations(path)] == []
