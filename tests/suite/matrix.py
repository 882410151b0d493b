"""`make matrix`: the two wheels in a new environment for each combination of Airflow, Spark and Python.

`python -m tests.suite.matrix [--page FILE] [COMBINATION ...]`; a combination is `3.3.2/4.2.0/3.11`. Each one installs
the wheels of `build/dist` and stock Airflow, asks Airflow for the provider, runs the demo (a full load and a shard DDL
under load, target = union), and uninstalls. The outputs are in `build/matrix`.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DIST = ROOT / "build" / "dist"
FOLDER = ROOT / "build" / "matrix"
COMBINATIONS = (
    "3.1.8/4.0.4/3.11",
    "3.2.2/4.1.3/3.12",
    "3.3.2/4.2.0/3.11",
    "3.3.2/4.2.0/3.12",
    "3.3.2/4.2.0/3.13",
)
PROVIDER = "apache-airflow-provider-unshard"
BEGIN, END = "<!-- matrix -->", "<!-- end of matrix -->"


@dataclass(frozen=True, slots=True)
class Combination:
    """Versions that are installed together."""

    airflow: str
    spark: str
    python: str

    def __str__(self) -> str:
        return f"{self.airflow}/{self.spark}/{self.python}"


class Failed(Exception):
    """A step of a combination did not end well."""


class Cell:
    """One combination in its own virtual environment."""

    def __init__(self, combination: Combination) -> None:
        self._combination = combination
        self._folder = FOLDER / str(combination).replace("/", "-")
        self._bin = self._folder / "venv" / "bin"
        self._log = self._folder / "log"

    def run(self) -> None:
        """Raise Failed at the first step that fails."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        self._install()
        self._ask()
        self._demo()
        self._uninstall()
        shutil.rmtree(self._folder / "venv")

    def _install(self) -> None:
        versions = self._combination
        self._call(_uv(), "venv", "--python", versions.python, str(self._bin.parent))
        wanted = [
            *map(str, sorted(DIST.glob("*.whl"))),
            f"apache-airflow=={versions.airflow}",
            f"pyspark=={versions.spark}",
            f"pyspark-client=={versions.spark}",
            "pandas<3",
        ]
        self._call(_uv(), "pip", "install", "--python", str(self._bin / "python"), "--compile-bytecode", *wanted)
        # The environment has neither the clone nor its tests; the demo alone is linked into it.
        (self._folder / "demo").mkdir()
        (self._folder / "demo" / "unshard_demo").symlink_to(ROOT / "include" / "unshard_demo")

    def _ask(self) -> None:
        self._call(self._bin / "airflow", "db", "migrate")
        self._find("providers list", PROVIDER)
        self._find("plugins", "unshard")
        self._find("config list --section unshard", "spark_masters")
        self._find("unshard -- --version", "unshard 0.1.0")

    def _demo(self) -> None:
        command = "run", "--folder", str(self._folder / "stage")
        told = self._call(self._bin / "python", "-m", "unshard_demo", *command)
        if "equal: " not in told:
            raise Failed("the demo does not say that the target equals the union")

    def _uninstall(self) -> None:
        self._call(_uv(), "pip", "uninstall", "--python", str(self._bin / "python"), PROVIDER, "unshard")
        if left := [str(path) for path in self._bin.parent.rglob("unshard*") if "__pycache__" not in path.parts]:
            raise Failed(f"pip uninstall leaves {left}")
        if PROVIDER in self._airflow("providers list"):
            raise Failed("Airflow still lists the provider")

    def _find(self, command: str, text: str) -> None:
        if text not in self._airflow(command):
            raise Failed(f"airflow {command} does not show {text}")

    def _airflow(self, command: str) -> str:
        return self._call(self._bin / "airflow", *command.split())

    def _call(self, *command: object) -> str:
        """Run a command, and return its output, which is also in the log."""
        words = [str(word) for word in command]
        done = subprocess.run(
            words, env=self._environment(), cwd=self._folder, text=True, capture_output=True, check=False, timeout=1800
        )
        with self._log.open("a") as log:
            log.write(f"$ {' '.join(words)}\n{done.stdout}{done.stderr}\n")
        if done.returncode:
            raise Failed(f"{' '.join(words)[:100]} ended with {done.returncode}: {self._log}")
        return done.stdout

    def _environment(self) -> Mapping[str, str]:
        foreign = ("AIRFLOW", "_AIRFLOW", "UNSHARD", "PYTHON", "VIRTUAL_ENV")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        return {**kept, "AIRFLOW_HOME": str(self._folder / "home"), "PYTHONPATH": str(self._folder / "demo")}


def main() -> int:
    """Try the combinations, print a line for each, and write the page; return 1 if one fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", type=Path, help="the page that gets the table")
    parser.add_argument("combinations", nargs="*", default=COMBINATIONS)
    options = parser.parse_args()
    results: dict[Combination, str] = {}
    for text in options.combinations:
        began, combination = time.monotonic(), Combination(*text.split("/"))
        try:
            Cell(combination).run()
            results[combination] = "equal"
        except (Failed, subprocess.TimeoutExpired) as error:
            results[combination] = f"**{error}**"
        print(f"{combination}: {results[combination]}, {time.monotonic() - began:.0f} s", flush=True)
    if options.page:
        write(options.page, results)
    return int(any(result != "equal" for result in results.values()))


def write(page: Path, results: Mapping[Combination, str]) -> None:
    """Replace the table of the page."""
    text = page.read_text()
    pattern = re.compile(f"{re.escape(BEGIN)}.*{re.escape(END)}", re.DOTALL)
    page.write_text(pattern.sub(lambda _: "\n".join((BEGIN, *_table(results), END)), text))


def _table(results: Mapping[Combination, str]) -> Iterator[str]:
    yield "| Airflow | Spark | Python | full load and shard DDL from the wheels |"
    yield "|---|---|---|---|"
    for each, result in results.items():
        yield f"| {each.airflow} | {each.spark} | {each.python} | {result} |"


def _uv() -> str:
    return str(Path(sys.executable).with_name("uv"))


if __name__ == "__main__":
    sys.exit(main())
