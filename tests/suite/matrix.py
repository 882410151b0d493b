"""`make matrix`: the two wheels in a new environment for each combination of Airflow, Spark and Python.

`python -m tests.suite.matrix [--page FILE] [COMBINATION ...]`; a combination is `3.3.2/4.2.0/3.11`. Each one installs
the wheels of `build/dist` and stock Airflow, asks Airflow for the provider, runs the demo (a full load and a shard DDL
under load, target = union, the page shows it), and uninstalls. `none` in place of Airflow's version runs the tutorial
without Airflow. `/celery` after the versions runs the demo with the CeleryExecutor, Redis and PostgreSQL. The outputs
are in `build/matrix`. The page keeps the results of the combinations that do not run.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests import tutorial
from tests.suite.celeryservers import celery_servers

ROOT = Path(__file__).resolve().parents[2]
DIST = ROOT / "build" / "dist"
FOLDER = ROOT / "build" / "matrix"
COMBINATIONS = (
    "none/4.3.0/3.13",
    "3.1.8/4.0.4/3.11",
    "3.2.2/4.1.3/3.12",
    "3.3.2/4.2.0/3.11",
    "3.3.2/4.2.0/3.12/celery",
    "3.3.2/4.2.0/3.13",
    "3.4.0b2/4.2.0/3.12",
)
BOUNDS = {"3.2.2": ("cadwyn<7", "fastapi<0.137")}
"""Packages of which an Airflow cannot use the newest version; its constraints file says the same for all packages."""
CELERY = ("apache-airflow-providers-celery[redis]", "psycopg2-binary", "asyncpg")
NONE = "none"
MOST_PACKAGES = 12
PROVIDER = "apache-airflow-provider-unshard"
BEGIN, END = "<!-- matrix -->", "<!-- end of matrix -->"
HEAD = (
    "| Airflow | Spark | Python | executor | full load, shard DDL and page from the wheels |",
    "|---|---|---|---|---|",
)


@dataclass(frozen=True, slots=True)
class Combination:
    """Versions that are installed together."""

    airflow: str
    spark: str
    python: str
    executor: str = "local"

    def __str__(self) -> str:
        return f"{self.airflow}/{self.spark}/{self.python}/{self.executor}"


class Failed(Exception):
    """A step of a combination did not end well."""


class Cell:
    """A virtual environment of its own, with the wheels of one combination."""

    def __init__(self, combination: Combination) -> None:
        self.combination = combination
        self.folder = FOLDER / str(combination).replace("/", "-")
        self.bin = self.folder / "venv" / "bin"

    def run(self) -> str:
        """Return a remark; raises Failed at the first step that fails."""
        shutil.rmtree(self.folder, ignore_errors=True)
        # The environment has neither the clone nor its tests; the package that starts servers is linked into it.
        (self.folder / "demo").mkdir(parents=True)
        (self.folder / "demo" / "unshard_demo").symlink_to(ROOT / "include" / "unshard_demo")
        self.call(uv(), "venv", "--python", self.combination.python, str(self.bin.parent))
        remark = self.steps()
        self._uninstall()
        shutil.rmtree(self.folder / "venv")
        return remark

    def steps(self) -> str:
        """Install the wheels and use them."""
        raise NotImplementedError

    def install(self, *packages: str) -> None:
        """Install packages into the environment."""
        self.call(uv(), "pip", "install", "--python", str(self.bin / "python"), "--compile-bytecode", *packages)

    def _uninstall(self) -> None:
        self.call(uv(), "pip", "uninstall", "--python", str(self.bin / "python"), PROVIDER, "unshard")
        if left := [str(path) for path in self.bin.parent.rglob("unshard*") if "__pycache__" not in path.parts]:
            raise Failed(f"pip uninstall leaves {left}")

    def call(self, *command: object, stdin: str = "") -> str:
        """Run a command, and return its output, which is also in the log."""
        words, log = [str(word) for word in command], self.folder / "log"
        foreign = ("AIRFLOW", "_AIRFLOW", "UNSHARD", "PYTHON", "VIRTUAL_ENV")
        own = {"AIRFLOW_HOME": str(self.folder / "home"), "PYTHONPATH": str(self.folder / "demo")}
        own |= {"PATH": f"{self.bin}:{os.environ['PATH']}"}
        done = subprocess.run(
            words,
            env={name: value for name, value in os.environ.items() if not name.startswith(foreign)} | own,
            cwd=self.folder,
            text=True,
            input=stdin,
            capture_output=True,
            check=False,
            timeout=1800,
        )
        with log.open("a") as file:
            file.write(f"$ {' '.join(words)}\n{done.stdout}{done.stderr}\n")
        if done.returncode:
            raise Failed(f"{' '.join(words)[:100]} ended with {done.returncode}: {log}")
        return done.stdout


class WithAirflow(Cell):
    """Both wheels beside stock Airflow: the provider is there, and the demo ends with target = union."""

    def steps(self) -> str:
        versions = self.combination
        spark = f"pyspark=={versions.spark}", f"pyspark-client=={versions.spark}", "pandas<3"
        airflow = f"apache-airflow=={versions.airflow}", *BOUNDS.get(versions.airflow, ())
        self.install(*map(str, sorted(DIST.glob("*.whl"))), *airflow, *spark)
        self.call(self.bin / "airflow", "db", "migrate")
        self._find("providers list", PROVIDER)
        self._find("plugins", "unshard")
        self._find("providers hooks", "UnshardHook")
        self._find("config list --section unshard", "spark_masters")
        if not versions.airflow.startswith("3.1."):  # its command line takes no commands of providers
            self._find("unshard check --help", "usage: unshard check")
        self.demo()
        return "equal"

    def demo(self, *options: object) -> None:
        """Run the demo to its end."""
        command = "python", "-m", "unshard_demo", "run", "--folder", self.folder / "stage", *options
        if "equal: " not in self.call(*command):
            raise Failed("the demo does not say that the target equals the union")

    def _find(self, command: str, text: str) -> None:
        if text not in self.call(self.bin / "airflow", *command.split()):
            raise Failed(f"airflow {command} does not show {text}")


class WithCelery(WithAirflow):
    """The same with the CeleryExecutor: one worker, Redis as broker, and PostgreSQL."""

    def install(self, *packages: str) -> None:
        super().install(*packages, *CELERY)

    def demo(self, *options: object) -> None:
        settings = self.folder / "settings.json"
        settings.touch(mode=0o600)
        with celery_servers() as given:
            settings.write_text(json.dumps(given))
            super().demo("--airflow", settings, *options)


class Alone(Cell):
    """The wheel of the command line without Airflow: few packages, and the tutorial."""

    def steps(self) -> str:
        self.install(str(next(DIST.glob("unshard-*.whl"))), f"pyspark=={self.combination.spark}")
        listed = self.call(uv(), "pip", "list", "--python", str(self.bin / "python"), "--format", "json")
        others = {each["name"] for each in json.loads(listed)} - {"unshard"}
        if len(others) > MOST_PACKAGES:
            raise Failed(f"{len(others)} packages are installed: {', '.join(sorted(others))}")
        page = tutorial.PAGE.read_text().replace("$PWD/.venv/bin", str(self.bin))
        told = self.call("bash", stdin=tutorial.script(page))
        if told.count("target and union of the shards are equal") != page.count("unshard validate"):
            raise Failed("a validation of the tutorial does not say that target and union are equal")
        return f"equal (tutorial); {len(others)} other packages"


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
            results[combination] = cell_of(combination).run()
        except (Failed, subprocess.TimeoutExpired) as error:
            results[combination] = f"**{error}**"
        print(f"{combination}: {results[combination]}, {time.monotonic() - began:.0f} s", flush=True)
    if options.page:
        write(options.page, results)
    return int(any("equal" not in result for result in results.values()))


def cell_of(combination: Combination) -> Cell:
    """Return what tries the combination."""
    if combination.airflow == NONE:
        return Alone(combination)
    return WithCelery(combination) if combination.executor == "celery" else WithAirflow(combination)


def write(page: Path, results: Mapping[Combination, str]) -> None:
    """Replace the rows of these combinations in the table of the page, and add new ones."""
    before, rest = page.read_text().split(BEGIN)
    table, after = rest.split(END)
    rows = dict(re.findall(r"^(\| [^-A].*?\|) ([^|]+) \|$", table, re.MULTILINE))
    rows |= {_versions(each): result for each, result in results.items()}
    body = [f"{versions} {result} |" for versions, result in sorted(rows.items())]
    page.write_text(before + "\n".join((BEGIN, *HEAD, *body, END)) + after)


def _versions(one: Combination) -> str:
    return f"| {one.airflow} | {one.spark} | {one.python} | {one.executor if one.airflow != NONE else '–'} |"


def uv() -> str:
    """Return the path of uv in the environment of the tests."""
    return str(Path(sys.executable).with_name("uv"))


if __name__ == "__main__":
    sys.exit(main())
