"""Build DAGs from the folder of task files: every `*.yaml` in it is a task.

An invalid file must not remove the DAGs of the others. It becomes a DAG that shows the error, and that DAG disappears
when the file is valid.
"""

import logging
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, BaseOperator, get_parsing_context

from unshard.config import load_task
from unshard.config.model import DIGEST
from unshard.errors import UnshardError
from unshard_airflow.graph import PREFIXES, dags_of
from unshard_airflow.outcome import failures_told

INVALID = "unshard_invalid__"
WITH_DIGEST = re.compile(rf"\.[0-9a-f]{{{DIGEST}}}$")
"""The end of the plain name of a task with special characters, which its file does not contain."""
VARIABLE = "UNSHARD_TASKS"
DEFAULT = Path(__file__).resolve().parents[2] / "include" / "tasks"

log = logging.getLogger(__name__)


def all_dags() -> dict[str, DAG]:
    """Build the DAGs of every task file; in the process of a task only the DAG of that task."""
    folder = Path(os.environ.get(VARIABLE) or DEFAULT)
    wanted = get_parsing_context().dag_id
    dags: dict[str, DAG] = {}
    for path in sorted(folder.glob("*.yaml")):
        if wanted is None or _may_hold(path, wanted):
            dags |= {dag.dag_id: dag for dag in _dags_in(path, dags, wanted)}
    return dags


def _dags_in(path: Path, others: dict[str, DAG], wanted: str | None) -> Iterator[DAG]:
    try:
        task = load_task(path.resolve())
    except UnshardError as error:
        yield invalid_dag(path, str(error))
        return
    if any(prefix + task.plain_name in others for prefix in PREFIXES):
        yield invalid_dag(path, f"another task file has the name {task.name!r} already")
        return
    for warning in task.brief_warnings:
        log.warning("task file has a warning file=%s warning=%s", path, warning)
    yield from dags_of(task, wanted)


def _may_hold(path: Path, dag: str) -> bool:
    """Whether the file may define that DAG: it contains the task's name, or the name has special characters."""
    if dag == invalid_dag_id(path):
        return True
    name = next((dag.removeprefix(prefix) for prefix in PREFIXES if dag.startswith(prefix)), dag)
    if WITH_DIGEST.search(name):
        return True
    try:
        return name in path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return True


class CheckTaskFile(BaseOperator):
    """Reads a task file that was invalid when the DAG was built; succeeds if it is valid now."""

    def __init__(self, *, task_file: str, told: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.task_file = task_file
        self.told = told

    def execute(self, context: Any) -> str:
        with failures_told():
            return f"{load_task(Path(self.task_file)).name} is valid now; its DAGs appear with the next parsing"


def invalid_dag(path: Path, error: str) -> DAG:
    """Build the DAG of a file that is not a valid task."""
    with DAG(
        invalid_dag_id(path),
        schedule=None,
        is_paused_upon_creation=False,
        tags=["unshard", "invalid"],
        doc_md=f"`{path}` is not a valid task file:\n\n```\n{error}\n```\n",
    ) as dag:
        CheckTaskFile(task_id="check", task_file=str(path), told=error, retries=0)
    return dag


def invalid_dag_id(path: Path) -> str:
    """Return the id of the DAG of a file that is not a valid task."""
    return INVALID + _dag_part(path)


def _dag_part(path: Path) -> str:
    return "".join(c if c.isascii() and (c.isalnum() or c in "_.-") else "_" for c in path.stem)
