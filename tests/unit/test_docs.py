"""The documentation matches the code."""

import re
import tomllib
from pathlib import Path

import pytest

import unshard
from unshard.adapters.meta import reference as meta_tables
from unshard.cli import app

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
MOST_FILES = 15
"""How many files a maintainer has to open to follow one thing through the code."""
MOST_OF_A_COMMAND = 8
WAYS = {
    "The files of a dumped row, in order": "docs/life-of-a-row.md",
    "The files of a binlog change, in order": "docs/life-of-a-row.md",
    "The files of a DDL, in order": "docs/life-of-a-shard-ddl.md",
    "The files of an unlock on the command line, in order": "docs/life-of-a-command.md",
    "The files of an unlock on the page, in order": "docs/life-of-a-command.md",
    "The files of a cleared unlock, in order": "docs/life-of-a-command.md",
}
"""Headings of the lists of files, with their pages."""
LISTED = re.compile(r"^(\d+)\. `([^`]+\.py)` – .+$", re.MULTILINE)
MENTIONED = re.compile(r"`((?:(?:adapters|binlog|cli|config|core|errors|operate|units)/)[\w/]+\.py)`")


def test_changelog_has_this_version() -> None:
    assert f"## {unshard.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_the_two_commands_are_in_the_first_screen_of_the_readme() -> None:
    first = "\n".join((ROOT / "README.md").read_text().splitlines()[:30])
    assert "make demo" in first and "make test" in first


def test_every_make_target_is_documented() -> None:
    targets = re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)
    page = (ROOT / "CONTRIBUTING.md").read_text()
    assert targets and not [target for target in targets if f"make {target}" not in page]


def test_page_of_the_meta_tables_is_in_step() -> None:
    assert (ROOT / "docs/meta-tables.md").read_text() == meta_tables.meta_tables_page(), "generate it again: make docs"


def test_the_manual_lists_the_packages_of_sparks_executors() -> None:
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    (sentence,) = re.findall(
        r"^Spark's executors .*?;", (ROOT / "docs/install.md").read_text(), re.MULTILINE | re.DOTALL
    )
    listed = set(re.findall(r"`([\w-]+)[^`]*`", sentence))
    assert listed - {"cryptography"} == {re.split(r"[=<>]", name)[0] for name in wanted} - {"pyspark"}


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for link, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)", page.read_text()):
            if "://" not in link:
                target = page.parent / link if link else page
                assert target.exists(), f"{page}: {link}"
                assert not anchor or anchor in anchors_of(target), f"{page}: {link}#{anchor}"


def anchors_of(page: Path) -> set[str]:
    """Return the anchors that GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_glossary_words_are_used() -> None:
    """Every word of the glossary occurs in the documentation."""
    words = re.findall(r"^\| \*\*([^*]+)\*\*", (ROOT / "docs/glossary.md").read_text(), re.MULTILINE)
    text = "".join(page.read_text().lower() for page in PAGES if page.name not in ("glossary.md", "CHANGELOG.md"))
    assert len(words) > 20
    assert not [word for word in words if word.lower() not in text]


def test_adrs_are_numbered_without_a_gap() -> None:
    numbers = sorted(int(path.name[:4]) for path in (ROOT / "docs/adr").glob("0*.md"))
    assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize("heading", WAYS)
def test_the_files_to_follow_one_thing_are_listed_in_order(heading: str) -> None:
    page = (ROOT / WAYS[heading]).read_text()
    section = re.split(r"^#", page.partition(f"# {heading}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    listed = LISTED.findall(section)
    assert [int(number) for number, _ in listed] == list(range(1, len(listed) + 1))
    assert 5 < len(listed) <= (MOST_OF_A_COMMAND if WAYS[heading] == "docs/life-of-a-command.md" else MOST_FILES)
    assert not [path for _, path in listed if not (ROOT / path).is_file()]


def test_mentioned_modules_exist() -> None:
    package = ROOT / "include/unshard"
    texts = {page: page.read_text() for page in PAGES if page.name != "CHANGELOG.md"}
    mentioned = [(page, path) for page, text in texts.items() for path in MENTIONED.findall(text)]
    assert [each for each in mentioned if not (package / each[1]).is_file()] == []


def test_the_commands_of_the_tutorial_can_be_parsed() -> None:
    page = (ROOT / "docs/tutorial.md").read_text()
    lines = re.findall(
        r"^unshard (?!--version)([^;\n]+)", "\n".join(re.findall(r"```sh\n(.*?)```", page, re.DOTALL)), re.M
    )
    assert {line.split()[0] for line in lines} >= {"check", "run", "locks", "status", "validate", "stop"}
    for line in lines:
        app.parser().parse_args(line.split())


def test_each_key_of_dm_has_one_line_in_its_section() -> None:
    page = (ROOT / "docs/migrating-from-dm.md").read_text()
    for section in re.split(r"^## ", page, flags=re.MULTILINE):
        first_cells = re.findall(r"^\| (?:`\w+`: )?(`[^|]+)\|", section, re.MULTILINE)
        keys = [key for cell in first_cells for key in re.findall(r"`([^`]+)`", cell)]
        assert not [key for key in keys if keys.count(key) > 1], section.partition("\n")[0]


def test_the_tests_of_dms_directories_exist() -> None:
    page = (ROOT / "docs/dm-tests.md").read_text()
    named = re.findall(r"`(\w+/test_\w+\.py)(?:::(\w+))?`", page)
    assert len(named) > 60
    for path, test in named:
        text = (ROOT / "tests/integration" / path).read_text()
        assert not test or f"def {test}(" in text, f"{path}::{test}"


def test_each_measure_of_security_has_a_test() -> None:
    """A row without a function names a file, or files by a pattern."""
    page = (ROOT / "docs/security.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| ") and "test" in line and "| test |" not in line]
    assert all("test_" in row or "trusted" in row for row in rows)
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", page)
    assert len(named) > 25
    for path, test in named:
        assert f"def {test}(" in (ROOT / path).read_text() if test else (ROOT / path).exists(), f"{path}::{test}"


def test_the_list_of_pages_has_each_page_once() -> None:
    pages = [path.name for path in (ROOT / "docs").glob("*.md") if path.name != "README.md"]
    listed = re.findall(r"\]\(([\w-]+\.md)\)", (ROOT / "docs/README.md").read_text())
    assert sorted(listed) == sorted(pages)
