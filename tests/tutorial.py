"""Runs the commands of docs/tutorial.md in order and writes their output into that page: `python -m tests.tutorial`.

A block marked `sh` is run by one Bash for the whole page, from the root of the clone. The block marked `text` after it
is replaced by the output of its commands, stdout and stderr together. Paths, ports and passwords are those of the page.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/tutorial.md"
FOLDER = Path("/tmp/unshard-tutorial")
BLOCKS = re.compile(r"```sh\n(.*?)```\n(?:\n```text\n(.*?)```\n)?", re.DOTALL)
END = "--- end of block ---"


def script(page: str) -> str:
    """Return all commands of the page as one Bash script, with a mark after each block."""
    return "".join(f"{match.group(1)}echo; echo '{END}'\n" for match in BLOCKS.finditer(page))


def outputs(page: str) -> list[str]:
    """Run the commands and return the output of each block."""
    paths = {"PYTHONPATH": f"{ROOT / 'include'}:{ROOT / 'plugins'}:{ROOT}", "COLUMNS": "120"}
    done = subprocess.run(
        ["bash"],
        input=script(page),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        cwd=ROOT,
        env=os.environ | paths,
    )
    return [block.strip("\n") for block in done.stdout.split(END)]


def with_outputs(page: str, found: list[str]) -> str:
    """Return the page with the outputs; a block that printed nothing has no output block."""
    numbered = iter(found)

    def block(match: re.Match[str]) -> str:
        text = next(numbered)
        shown = f"\n```text\n{text}\n```\n" if text else ""
        return f"```sh\n{match.group(1)}```\n{shown}"

    return BLOCKS.sub(block, page)


def main() -> None:
    """Run the page in an empty folder and write it."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    page = PAGE.read_text()
    PAGE.write_text(with_outputs(page, outputs(page)))
    sys.stdout.write(f"{PAGE}: written\n")


if __name__ == "__main__":
    main()
