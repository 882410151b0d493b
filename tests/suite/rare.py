"""The tests of which `make test` runs only a part or nothing, with the reasons: `make docs` writes them into README.md.

They are read from the marks `test_all` and `sample` in the source, so that servers and imports are not needed.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]
README = TESTS / "README.md"
BEGIN, END = "<!-- begin of the list: make docs -->\n", "<!-- end of the list -->\n"
HEAD = "| file | test | `make test` runs | reason |\n|---|---|---|---|\n"


def marks(node: ast.expr) -> Iterator[tuple[str, str]]:
    """Yield the part that `make test` runs and the reason, for each of the two marks in a decorator or `pytestmark`."""
    for call in ast.walk(node):
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)):
            continue
        given = {str(one.arg): one.value for one in call.keywords} | dict(
            zip(("reason", "every"), call.args, strict=False)
        )
        match call.func.attr:
            case "test_all":
                yield "nothing", ast.literal_eval(given["reason"])
            case "sample":
                every = f"every {ast.literal_eval(given['every'])}th" if "every" in given else "each value once"
                yield every, ast.literal_eval(given["reason"])


def rows() -> Iterator[str]:
    """Yield the rows of the table."""
    for path in sorted(TESTS.rglob("test_*.py")):
        file = path.relative_to(TESTS)
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Assign) and any(getattr(one, "id", "") == "pytestmark" for one in node.targets):
                yield from (f"| `{file}` | all | {part} | {reason} |" for part, reason in marks(node.value))
            elif isinstance(node, ast.FunctionDef):
                found = [mark for decorator in node.decorator_list for mark in marks(decorator)]
                yield from (f"| `{file}` | `{node.name}` | {part} | {reason} |" for part, reason in found)


def page() -> str:
    """Return README.md with the list of today."""
    text = README.read_text()
    before, after = text.partition(BEGIN)[0], text.partition(END)[2]
    return f"{before}{BEGIN}{HEAD}" + "".join(f"{row}\n" for row in rows()) + f"{END}{after}"


if __name__ == "__main__":
    README.write_text(page())
