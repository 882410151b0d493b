"""Task and source files in DM's format: strict to read, light to import.

`load_task(path)` gives a `Task`; `resolve(endpoint, connections)` a server with its password. Every
key is declared once (`taskkeys`, `unitkeys`, `sourcekeys`), and docs/config.md is written from that:
`python -m unshard.config.reference`.
"""

from unshard.config.checks import is_spark_master
from unshard.config.model import (
    Consistency,
    DumpOptions,
    Endpoint,
    Flavor,
    Instance,
    LoadOptions,
    OnDuplicate,
    Options,
    PrimaryKey,
    ShardMode,
    Source,
    SyncOptions,
    Task,
    TaskMode,
    UnsupportedIndexes,
)
from unshard.config.reading import load_task
from unshard.config.secrets import Connections, environment_connections, resolve, storage_access

__all__ = [
    "Connections",
    "Consistency",
    "DumpOptions",
    "Endpoint",
    "Flavor",
    "Instance",
    "LoadOptions",
    "OnDuplicate",
    "Options",
    "PrimaryKey",
    "ShardMode",
    "Source",
    "SyncOptions",
    "Task",
    "TaskMode",
    "UnsupportedIndexes",
    "environment_connections",
    "is_spark_master",
    "load_task",
    "resolve",
    "storage_access",
]
