"""Build DAGs from the folder of task files: every `*.yaml` in it is a task.

An invalid file must not remove the DAGs of the others. It has no DAGs, and its errors are the import error of another
DAG file, unshard_task_files.py: Airflow hides all DAGs of a file that has an import error.
"""

import logging
import re
from collections.abc import Iterator
from pathlib import Path

from airflow.sdk import DAG, get_parsing_context

from unshard.config.task import DIGEST
from unshard.core.masking import statement
from unshard.core.shown import visible
from unshard.errors import UnshardError
from unshard_airflow.graph import PREFIXES, dags_of
from unshard_airflow.options import task_with_options, tasks_folder

WITH_DIGEST = re.compile(rf"\.[0-9a-f]{{{DIGEST}}}$")
"""The end of the plain name of a task with special characters, which its file does not contain."""

log = logging.getLogger(__name__)


class InvalidTaskFiles(Exception):
    """The errors of all task files that are not valid."""


def task_files() -> list[Path]:
    """Return all task files, by their names."""
    return sorted(tasks_folder().glob("*.yaml"))


def all_dags() -> dict[str, DAG]:
    """Build the DAGs of every valid task file; in the process of a task only the DAG of that task."""
    wanted = get_parsing_context().dag_id
    dags: dict[str, DAG] = {}
    for path in task_files():
        if wanted is None or _may_hold(path, wanted):
            dags |= {dag.dag_id: dag for dag in _dags_in(path, dags, wanted)}
    return dags


def _dags_in(path: Path, others: dict[str, DAG], wanted: str | None) -> Iterator[DAG]:
    try:
        task = task_with_options(path.absolute())
    except UnshardError:
        return  # see refuse_invalid
    if any(prefix + task.plain_name in others for prefix in PREFIXES):
        return
    for warning in task.brief_warnings:
        log.warning("task file has a warning file=%s warning=%s", path, warning)
    yield from dags_of(task, wanted)


def _may_hold(path: Path, dag: str) -> bool:
    """Whether the file may define that DAG: it contains the task's name, or the name has special characters."""
    name = next((dag.removeprefix(prefix) for prefix in PREFIXES if dag.startswith(prefix)), dag)
    if WITH_DIGEST.search(name):
        return True
    try:
        return name in path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return True


def refuse_invalid() -> None:
    """Raise all errors of all task files, which Airflow then shows in its list of import errors."""
    names: dict[str, Path] = {}
    problems: list[str] = []
    for path in task_files():
        try:
            task = task_with_options(path.absolute())
        except UnshardError as error:
            problems.append(visible(statement(str(error))))
            continue
        if (first := names.setdefault(task.plain_name, path)) != path:
            problems.append(f"{path}: {first} has the name {task.name!r} already")
    if problems:
        raise InvalidTaskFiles("\n" + "\n".join(problems))
