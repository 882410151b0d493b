"""The documentation is in step with the code."""

import re
from pathlib import Path

import pytest

import unshard

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")])


def test_changelog_has_this_version() -> None:
    assert f"## {unshard.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_the_two_commands_stand_in_the_first_screen_of_the_readme() -> None:
    first = "\n".join((ROOT / "README.md").read_text().splitlines()[:30])
    assert "make demo" in first and "make test" in first


def test_every_make_target_is_documented() -> None:
    targets = re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)
    page = (ROOT / "docs/development.md").read_text()
    assert targets and not [target for target in targets if f"make {target}" not in page]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
        if "://" not in link:
            assert (page.parent / link).exists(), link


def test_glossary_words_are_used() -> None:
    """A word that nobody uses is a word to forget."""
    words = re.findall(r"^\| \*\*([^*]+)\*\*", (ROOT / "docs/glossary.md").read_text(), re.MULTILINE)
    text = "".join(page.read_text().lower() for page in PAGES if page.name != "glossary.md")
    assert len(words) > 20
    assert not [word for word in words if word.lower() not in text]


def test_adrs_are_numbered_without_a_gap() -> None:
    numbers = sorted(int(path.name[:4]) for path in (ROOT / "docs/adr").glob("0*.md"))
    assert numbers == list(range(1, len(numbers) + 1))
