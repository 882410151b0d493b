"""Refuses a meta schema, a target schema or a storage path that is lost or from an older backup than the others.

Runs in the driver, at the start of each command that writes. Writers compare the meta schema with the target in each
transaction too (adapters.target.fence).

| older or lost   | found by                                                                                       |
|-----------------|------------------------------------------------------------------------------------------------|
| meta schema     | its last writes are earlier than those of a target schema                                      |
| target schema   | its last writes are earlier than those of the meta schema                                      |
| storage path    | it lacks held rows or dumped rows that the meta schema names; the relay is pulled again        |
"""

import contextlib
from collections.abc import Iterator

from unshard.adapters import mysql
from unshard.adapters.meta import MetaReader
from unshard.adapters.parquet import Storage
from unshard.adapters.target.fence import differing_writes
from unshard.config import Connections, Task, resolve, storage_access
from unshard.core.checks.items import Item, verdict
from unshard.core.model import Server
from unshard.errors import UnshardError
from unshard.errors.meta import BackupOlder
from unshard.units.begun import existing_meta
from unshard.units.work import Work

DUMP, HELD = "dump", "held"


def refuse_older(work: Work) -> None:
    """Raise BackupOlder if the three places of a task's state do not belong together."""
    for error in _found(work.task, work.target, work.meta, work.storage):
        raise error


def backup_items(task: Task, connections: Connections) -> list[Item]:
    """Check the same before the task runs."""
    server, storage = (
        resolve(task.target, connections),
        Storage(task.storage, storage_access(task.options, connections)),
    )
    errors: list[UnshardError] = []
    try:
        with existing_meta(task, connections) as meta:
            errors += _found(task, server, meta, storage)
    except UnshardError as error:
        errors.append(error)
    return verdict("backups", "task", errors, "meta schema, target schemas and storage path are of one moment")


def _found(task: Task, server: Server, meta: MetaReader | None, storage: Storage) -> Iterator[BackupOlder]:
    with contextlib.closing(mysql.connect(server, "target")) as connection:
        differing = differing_writes(connection, task.meta_schema, task.name)
    if differing:
        yield differing[0].error
    missing = sorted(_missing(meta, storage, dumped=task.task_mode.loads)) if meta is not None else []
    if missing:
        reason = f"{len(missing)} files that the meta schema names are missing, such as {missing[0]}"
        yield BackupOlder(task.name, f"the storage path {storage.path}", reason)


def _missing(meta: MetaReader, storage: Storage, *, dumped: bool) -> frozenset[str]:
    """Return the named files that do not exist. A file is stored before it is named, and deleted after that."""
    named = meta.stored_files.named(dumped=dumped)
    if not named:
        return named
    missing = named.difference(*(storage.list(folder) for folder in (DUMP, HELD)))
    return missing & meta.stored_files.named(dumped=dumped) if missing else missing
