"""The layers and folders: which may import which, how large files and functions may be, one meaning for each name.

docs/architecture.md has the reasons.
"""

import ast
import functools
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from pymysql.connections import Connection as DriverConnection

ROOT = Path(__file__).parents[2]
STDLIB = set(sys.stdlib_module_names)
IMPURE = {
    "os",
    "io",
    "time",
    "random",
    "logging",
    "socket",
    "subprocess",
    "threading",
    "pathlib",
    "shutil",
    "tempfile",
    "secrets",
    "uuid",
    "asyncio",
    "concurrent",
    "urllib",
    "http",
    "ssl",
    "select",
    "signal",
}
PURE = STDLIB - IMPURE
MAX_FILE, MAX_FUNCTION, MAX_FOLDER, MAX_LINE, MAX_WORDS = 1_000, 60, 40, 120, 45

ROOMS: dict[str, set[str]] = {
    "include/unshard/errors": PURE | {"unshard.errors"},
    "include/unshard/core": PURE | {"unshard.errors", "unshard.core"},
    "include/unshard/binlog": PURE
    | {
        "numpy",
        "pyarrow",
        "zlib",
        "socket",
        "unshard.errors",
        "unshard.core",
        "unshard.binlog",
    },
    "include/unshard/config": STDLIB | {"yaml", "unshard.errors", "unshard.core", "unshard.config"},
    "include/unshard/adapters": STDLIB
    | {
        "pymysql",
        "pymysqlreplication",
        "pyarrow",
        "numpy",
        "sqlalchemy",
        "pyspark",
        "fsspec",
        "requests",
        "unshard.errors",
        "unshard.core",
        "unshard.binlog",
        "unshard.adapters",
    },
    "include/unshard/units": STDLIB
    | {
        "pyarrow",
        "numpy",
        "pymysql",
        "unshard.errors",
        "unshard.core",
        "unshard.binlog",
        "unshard.config",
        "unshard.adapters",
        "unshard.units",
    },
    "include/unshard/operate": STDLIB
    | {"unshard.errors", "unshard.core", "unshard.config", "unshard.adapters", "unshard.units", "unshard.operate"},
    "include/unshard/cli": STDLIB | {"rich", "prometheus_client", "unshard"},
    "spark_jobs": STDLIB | {"pyspark", "unshard"},
    "dags": STDLIB | {"airflow", "unshard_airflow", "unshard.config"},
}
ONLY_THERE = {
    "sqlglot": {"include/unshard/core/sql/lexer"},
    "pyspark": {
        "include/unshard/adapters/spark",
        "spark_jobs/",
        "include/unshard_demo/",
        "include/unshard/adapters/ship",
    },
    "airflow": {"dags/", "plugins/", "include/unshard_demo/"},
    "sqlalchemy": {"include/unshard/adapters/meta/"},
    "prometheus_client": {"include/unshard/cli/prometheus"},
    "openlineage": {"plugins/unshard_airflow/lineagefacets"},
    "pymysql.protocol": {"include/unshard/adapters/pymysqlprivate"},
}
SOURCES = sorted(path for room in ("include", "plugins", "dags", "spark_jobs") for path in (ROOT / room).rglob("*.py"))


@functools.cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@functools.cache
def imports(path: Path, *, module_level: bool = False) -> set[str]:
    tree = tree_of(path)
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
        allowed = ROOMS[room] | ({"sqlglot"} if relative(path).startswith("include/unshard/core/sql") else set())
        bad = {name for name in imports(path) if not within(name, allowed)}
        assert not bad, f"{relative(path)} imports {sorted(bad)}"


def test_an_adapter_does_not_import_another() -> None:
    """Adapters share connections (mysql.py, connectionpool.py), locks, structures, positions, object stores."""
    names = "mysql connectionpool serverstate pymysqlprivate structures upstream objectstore hdfs privatefiles"
    shared = {f"unshard.adapters.{name}" for name in names.split()}
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
        "unshard.core.masking",
        "unshard.core.shown",
        "unshard.core.variables",
    }
    page = {"__init__.py", "mount.py"}  # all other modules of the page are imported at the first request
    for path in [*(ROOT / "plugins").rglob("*.py"), *(ROOT / "dags").rglob("*.py")]:
        if path.parent.name == "page" and path.name not in page:
            continue
        bad = {name for name in imports(path, module_level=True) if not within(name, light)}
        assert not bad, f"{relative(path)} imports {sorted(bad)}"


def test_sizes() -> None:
    for path in SOURCES:
        lines = path.read_text().splitlines()
        assert len(lines) <= MAX_FILE, f"split {relative(path)}"
        for number, line in enumerate(lines, 1):
            assert len(line) <= MAX_LINE, f"{relative(path)}:{number}, also with a comment at its end"
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.FunctionDef):
                length = (node.end_lineno or 0) - node.lineno + 1
                assert length <= MAX_FUNCTION, f"{relative(path)}: {node.name} has {length} lines"


def repeated(names: Iterable[str]) -> list[str]:
    return sorted(name for name, count in Counter(names).items() if count > 1)


@pytest.mark.parametrize("kind", [ast.ClassDef, ast.FunctionDef])
def test_a_public_name_is_defined_once(kind: type[ast.ClassDef | ast.FunctionDef]) -> None:
    """Each program has its own `main`. A name that Airflow or the command line looks up is a method or has a suffix."""
    defined = [node.name for path in SOURCES for node in tree_of(path).body if isinstance(node, kind)]
    assert not repeated(name for name in defined if name[0] != "_" and name != "main")


def test_a_file_name_occurs_once() -> None:
    assert not repeated(path.name for path in SOURCES if not path.name.startswith("__"))


def test_the_glossary_is_short() -> None:
    words = re.findall(r"^\| \*\*([^*]+)\*\*", (ROOT / "docs/glossary.md").read_text(), re.MULTILINE)
    assert 20 < len(words) <= MAX_WORDS, "use a word of MySQL, Airflow or Spark, or one that is there already"


def test_no_swallowed_exception() -> None:
    """`except Exception: pass` hides errors that the user must see."""
    for path, node in ((source, node) for source in SOURCES for node in ast.walk(tree_of(source))):
        if isinstance(node, ast.ExceptHandler) and [type(s) for s in node.body] == [ast.Pass]:
            name = ast.unparse(node.type) if node.type else "everything"
            assert name not in ("Exception", "BaseException", "everything"), f"{relative(path)}:{node.lineno}"


@pytest.mark.slow
def test_private_parts_of_pymysql_are_used_in_one_module() -> None:
    private = {name for name in {*dir(DriverConnection), *vars(DriverConnection(defer_connect=True))} if name[0] == "_"}
    private |= {"_rfile", "_next_seq_id", "write_packet"}
    private = {name for name in private if not name.startswith("__")}
    for path in (ROOT / "include/unshard").rglob("*.py"):
        if path.name == "pymysqlprivate.py":
            continue
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Attribute) and node.attr in private:
                assert ast.unparse(node.value) in ("self", "cls"), f"{relative(path)}:{node.lineno} {node.attr}"


STATEMENTS = (
    r"SELECT\b.*\bFROM\b",
    r"SELECT (?:[\d@'(%*]|[A-Z_]+\()",
    r"SHOW (?:GLOBAL|SESSION|FULL|CREATE|MASTER|BINARY|BINLOG|WARNINGS|GRANTS|PROCESSLIST|VARIABLES|TABLES)\b",
    r"(?:INSERT|REPLACE)\b.* INTO\b",
    r"UPDATE \S+ SET\b",
    r"DELETE FROM\b",
    r"SET (?:SESSION|GLOBAL|NAMES|TRANSACTION|@)",
    r"(?:CREATE|DROP|ALTER|TRUNCATE|RENAME) (?:TABLE|DATABASE|SCHEMA|INDEX)\s+\S",
    r"LOCK TABLES?\s+\S",
    r"(?:UNLOCK|FLUSH) TABLES",
    r"START TRANSACTION",
    r"(?:SAVEPOINT|KILL) \S",
    r"LOAD DATA (?:LOCAL )?INFILE",
    r"(?:BEGIN|COMMIT|ROLLBACK)$",
)
CLAUSES = r"\s(?:FROM|WHERE|ORDER BY|GROUP BY|UNION ALL|LIMIT)\s|information_schema\.|_LOCK\("
SQL = re.compile(rf"^\s*(?:{'|'.join(STATEMENTS)})|{CLAUSES}", re.DOTALL)
"""A text that begins like a statement or has clauses of one; names of privileges and prose are not matched."""


def texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the string constants that are not docstrings; an f-string is one text, with {} for its values."""
    skipped: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            skipped.add(id(node.value))
        elif isinstance(node, ast.JoinedStr):
            skipped |= {id(each) for each in node.values}
            parts = (each.value if isinstance(each, ast.Constant) else "{}" for each in node.values)
            yield node.lineno, "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            yield node.lineno, node.value


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1 FROM {} WHERE {} LIMIT 1",
        "SELECT @@max_allowed_packet",
        "SELECT GET_LOCK(%s, %s)",
        "SHOW WARNINGS",
        "SET SESSION sql_mode = ''",
        "DROP TABLE {}",
        "COMMIT",
        " AND TABLE_SCHEMA = %s ORDER BY 1, 2",
        "UPDATE {} SET state = %s",
        "FLUSH TABLES WITH READ LOCK",
    ],
)
def test_sql_is_recognised(text: str) -> None:
    assert SQL.search(text)


@pytest.mark.parametrize("text", ["SELECT", "SELECT on {} shards", "LOCK TABLES", "CREATE TEMPORARY TABLES", "DROP"])
def test_names_of_privileges_are_no_sql(text: str) -> None:
    assert not SQL.search(text)


def test_units_have_no_sql() -> None:
    """SQL is in `adapters`; pure rendering of SQL is in `core`."""
    for path in sorted((ROOT / "include/unshard/units").rglob("*.py")):
        found = [f"{relative(path)}:{line}: {text}" for line, text in texts(tree_of(path)) if SQL.search(text)]
        assert not found


FOLDERS: dict[str, set[str]] = {
    "core/sql": set(),
    "core/relay": set(),
    "core/structures": {"core/sql"},
    "core/rules": {"core/sql"},
    "core/ddl": {"core/sql", "core/structures", "core/rules", "core/relay"},
    "core/rows": {"core/sql", "core/ddl", "core/structures"},
    "core/join": {"core/sql", "core/structures", "core/rows", "core/ddl", "core/window"},
    "core/window": {"core/relay", "core/rules", "core/ddl"},
    "core/full": {"core/sql", "core/structures"},
    "core/task": {"core/window"},
    "core/validate": {"core/sql", "core/ddl", "core/structures", "core/rules", "core/rows", "core/join", "core/window"},
    "core/checks": {"core/sql", "core/ddl"},
    "units/ddl": set(),
    "units/relay": set(),
    "units/rows": set(),
    "units/full": {"units/ddl", "units/relay", "units/rows"},
    "units/window": {"units/ddl", "units/relay", "units/rows", "units/full"},
    "units/validate": {"units/ddl", "units/full", "units/relay", "units/rows", "units/window"},
    "units/checks": {"units/ddl", "units/relay", "units/rows", "units/full", "units/window"},
    "units/task": {"units/checks", "units/ddl", "units/relay", "units/full", "units/window", "units/validate"},
}
"""The folders of its own layer that a folder may import. Modules that lie directly in the layer are open to all."""


def folder_of(module: str) -> str:
    """Return the folder of a module, such as `core/ddl`; "" if it is not in one of FOLDERS."""
    path = module.removeprefix("unshard.").replace(".", "/")
    return next((folder for folder in FOLDERS if path == folder or path.startswith(folder + "/")), "")


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_imports_only_what_it_may(folder: str) -> None:
    paths = list((ROOT / "include/unshard" / folder).rglob("*.py"))
    assert paths
    layer = folder.rsplit("/", 1)[0]
    for path in paths:
        found = {folder_of(name) for name in imports(path)} - {"", folder}
        bad = {each for each in found if each.rsplit("/", 1)[0] == layer} - FOLDERS[folder]
        assert not bad, f"{relative(path)} imports {sorted(bad)}"


def test_no_folder_is_missing_in_the_table() -> None:
    below = [path for layer in ("core", "units") for path in (ROOT / "include/unshard" / layer).iterdir()]
    assert {
        str(path.relative_to(ROOT / "include/unshard")) for path in below if (path / "__init__.py").exists()
    } == set(FOLDERS)


def test_folders_do_not_import_each_other_in_a_circle() -> None:
    TopologicalSorter(FOLDERS).prepare()


@pytest.mark.parametrize("room", ["include", "plugins", "dags", "spark_jobs", "tests"])
def test_folder_sizes(room: str) -> None:
    folders = {path.parent for path in (ROOT / room).rglob("*.py")}
    assert folders
    for folder in folders:
        modules = [path for path in folder.glob("*.py") if path.name != "__init__.py"]
        assert len(modules) <= MAX_FOLDER, f"{relative(folder)} has {len(modules)} modules"


FAST = ("unit", "scenario")
"""The folders of tests that `make fast` collects; the modules of other folders have one of these marks."""
MARK = re.compile(r"^pytestmark = [^=]*?\.(integration|spark|e2e|slow)\b", re.MULTILINE)


def test_no_fast_test_is_in_another_folder() -> None:
    tests = ROOT / "tests"
    others = [path for path in tests.rglob("test_*.py") if path.relative_to(tests).parts[0] not in FAST]
    assert others and not [relative(path) for path in others if not MARK.search(path.read_text())]
