"""The files, variables and addresses that a task file may name.

The author of a task file is trusted with the rows of its task, and not with the secrets of the processes that run it
(docs/security.md). Environment variables of these processes replace the lists; values have blanks between them, and
are quoted as in a shell.
"""

import os
import re
import shlex
from pathlib import Path

from unshard.config.textchecks import is_spark_master
from unshard.core.variables import (
    DEFAULTS,
    SECRET_FOLDERS,
    SECRET_PREFIXES,
    SOURCE_FOLDERS,
    SPARK_MASTERS,
    STORAGE_PATHS,
)
from unshard.errors.config import NotAllowed

OWN_MASTER = re.compile(r"local(\[[^]/]*\])?|(spark|sc)://(127\.0\.0\.1|localhost|\[::1\])(:\d+)?/?")
"""Spark of this machine."""


def secret_file(path: Path) -> Path:
    """Return the real path of a file with a password, certificate or key."""
    return _below("file with a secret", path, SECRET_FOLDERS, _listed(SECRET_FOLDERS))


def source_file(path: Path, *homes: Path) -> Path:
    """Return the path of a source file: below the folders of the task, else below those of the variable."""
    _below("source file", path, SOURCE_FOLDERS, [*map(str, homes), *_listed(SOURCE_FOLDERS)])
    return path


def variable(name: str) -> str:
    """Return the name of an environment variable with a password."""
    prefixes = _listed(SECRET_PREFIXES)
    _require(name.startswith(tuple(prefixes)), "variable with a password", name, SECRET_PREFIXES, prefixes)
    return name


def allowed_spark_connection(value: str) -> str:
    """Return the id of a connection or the address of Spark, which gets the passwords of the task."""
    masters = _listed(SPARK_MASTERS)
    is_allowed = not is_spark_master(value) or value in masters or OWN_MASTER.fullmatch(value) is not None
    _require(is_allowed, "address of Spark", value, SPARK_MASTERS, [*masters, "a connection"])
    return value


def storage(path: str) -> str:
    """Return the storage path of a task; without the variable any is allowed."""
    paths = _listed(STORAGE_PATHS)
    if paths and "://" not in path:
        _below("storage path", Path(path), STORAGE_PATHS, [each for each in paths if "://" not in each])
    elif paths:
        is_allowed = any(f"{path}/".startswith(f"{each.rstrip('/')}/") for each in paths) and ".." not in path
        _require(is_allowed, "storage path", path, STORAGE_PATHS, paths)
    return path


def _listed(name: str) -> list[str]:
    return shlex.split(os.environ.get(name, "").strip() or DEFAULTS.get(name, ""))


def _below(what: str, path: Path, name: str, folders: list[str]) -> Path:
    """Return the path without links; it must be in one of the folders."""
    real = Path(os.path.realpath(path))
    _require(any(real.is_relative_to(os.path.realpath(each)) for each in folders), what, str(path), name, folders)
    return real


def _require(is_allowed: bool, what: str, value: str, name: str, allowed: list[str]) -> None:
    if not is_allowed:
        raise NotAllowed(what, value, ", ".join(allowed) or "nothing", name)
