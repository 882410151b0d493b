"""The rooms of the house: who may import whom, and how large things may grow (docs/architecture.md)."""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STDLIB = set(sys.stdlib_module_names)
IMPURE = {"os", "io", "time", "random", "logging", "socket", "subprocess", "threading", "pathlib", "shutil", "tempfile",
          "secrets", "uuid", "asyncio", "concurrent", "urllib", "http", "ssl", "select", "signal"}  # fmt: skip
PURE = STDLIB - IMPURE
MAX_FILE, MAX_FUNCTION = 500, 60

ROOMS: dict[str, set[str]] = {
    "include/unshard/errors": PURE | {"unshard.errors"},
    "include/unshard/core": PURE | {"unshard.errors", "unshard.core"},
    "include/unshard/binlog": PURE | {
        "numpy", "pyarrow", "zlib", "socket", "unshard.errors", "unshard.core", "unshard.binlog",
    },
    "include/unshard/config": STDLIB | {"yaml", "unshard.errors", "unshard.core", "unshard.config"},
    "include/unshard/adapters": STDLIB | {
        "pymysql", "pymysqlreplication", "pyarrow", "numpy", "sqlalchemy", "pyspark", "fsspec", "requests",
        "unshard.errors", "unshard.core", "unshard.binlog", "unshard.adapters",
    },
    "include/unshard/units": STDLIB | {
        "pyarrow", "numpy", "pymysql",
        "unshard.errors", "unshard.core", "unshard.binlog", "unshard.config", "unshard.adapters", "unshard.units",
    },
    "spark_jobs": STDLIB | {"pyspark", "unshard"},
    "dags": STDLIB | {"airflow", "unshard_airflow", "unshard.config"},
}  # fmt: skip
ONLY_THERE = {
    "sqlglot": {"include/unshard/core/ddl"},
    "pyspark": {
        "include/unshard/adapters/spark",
        "spark_jobs/",
        "include/unshard_demo/",
        "include/unshard/adapters/ship",
    },
    "airflow": {"dags/", "plugins/", "include/unshard_demo/"},
    "sqlalchemy": {"include/unshard/adapters/meta/"},
}
SOURCES = sorted(path for room in ("include", "plugins", "dags", "spark_jobs") for path in (ROOT / room).rglob("*.py"))


def imports(path: Path, *, module_level: bool = False) -> set[str]:
    tree = ast.parse(path.read_text())
    nodes = tree.body if module_level else ast.walk(tree)
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return found


def within(name: str, allowed: set[str]) -> bool:
    # The bare package has a version and a path only.
    return name == "unshard" or any(name == room or name.startswith(room + ".") for room in allowed)


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("room", ROOMS)
def test_room_imports_only_what_it_may(room: str) -> None:
    paths = list((ROOT / room).rglob("*.py"))
    assert paths
    for path in paths:
        allowed = ROOMS[room] | ({"sqlglot"} if relative(path).startswith("include/unshard/core/ddl") else set())
        bad = {name for name in imports(path) if not within(name, allowed)}
        assert not bad, f"{relative(path)} imports {sorted(bad)}"


def test_an_adapter_does_not_import_another() -> None:
    """All that adapters share: connections (mysql.py, kept.py), structures, a source's place, object stores."""
    shared = {f"unshard.adapters.{name}" for name in ("mysql", "kept", "structures", "upstream", "objectstore", "hdfs")}
    for path in (ROOT / "include/unshard/adapters").rglob("*.py"):
        own = "unshard.adapters." + path.relative_to(ROOT / "include/unshard/adapters").parts[0].removesuffix(".py")
        others = {n for n in imports(path) if n.startswith("unshard.adapters.")}
        bad = {n for n in others if not within(n, {own, *shared})}
        assert not bad, f"{relative(path)} imports {sorted(bad)}"


@pytest.mark.parametrize("library", ONLY_THERE)
def test_library_stays_in_its_room(library: str) -> None:
    for path in SOURCES:
        if any(name == library or name.startswith(library + ".") for name in imports(path)):
            assert any(relative(path).startswith(place) for place in ONLY_THERE[library]), relative(path)


def test_plugins_import_nothing_heavy_at_module_level() -> None:
    light = STDLIB | {
        "airflow",
        "unshard.config",
        "unshard.errors",
        "unshard_airflow",
        "fastapi",
        "yaml",
        "unshard.core.model",
        "unshard.core.orders",
    }
    page = {"__init__.py", "mount.py"}  # all else of the page is imported at the first request
    for path in [*(ROOT / "plugins").rglob("*.py"), *(ROOT / "dags").rglob("*.py")]:
        if path.parent.name == "page" and path.name not in page:
            continue
        bad = {name for name in imports(path, module_level=True) if not within(name, light)}
        assert not bad, f"{relative(path)} imports {sorted(bad)}"


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_sizes(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= MAX_FILE, "split the file"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            length = (node.end_lineno or 0) - node.lineno + 1
            assert length <= MAX_FUNCTION, f"{node.name} has {length} lines"


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_no_swallowed_exception(path: Path) -> None:
    """`except Exception: pass` hides what the user must know."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ExceptHandler) and [type(s) for s in node.body] == [ast.Pass]:
            name = ast.unparse(node.type) if node.type else "everything"
            assert name not in ("Exception", "BaseException", "everything"), f"line {node.lineno}"
