"""The commands of docs/tutorial.md work as the page says."""

import re
import shutil
import sys
from pathlib import Path

import pytest

from tests import tutorial

PROGRESS = {"window"}
pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.integration]


def test_each_command_of_the_tutorial_does_what_the_page_shows() -> None:
    """Times, positions, sizes, and lines of progress differ from run to run; the other words do not."""
    shutil.rmtree(tutorial.FOLDER, ignore_errors=True)
    page = tutorial.PAGE.read_text()
    found = tutorial.outputs(page.replace("$PWD/.venv/bin", str(Path(sys.executable).parent)))
    blocks = list(zip(tutorial.BLOCKS.findall(page), found, strict=False))
    lacking = [(words(shown) - words(text) - PROGRESS, text) for (_, shown), text in blocks]
    assert [each for each in lacking if each[0]] == [] and len(blocks) > 10


def words(text: str) -> set[str]:
    return set(re.findall(r"[A-Za-z]{3,}", text))
