"""A loaded task as frozen values, independent of YAML.

Secrets stay references if the file has references. `unshard.config.secrets.resolve` looks them up when a
connection opens, so loading a task needs neither Airflow nor environment variables.
"""

import hashlib
import re
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from unshard.config.sources import Endpoint, Source
from unshard.config.taskkeys import Options, ShardMode, TaskMode
from unshard.config.unitkeys import DumpOptions, LoadOptions, SyncOptions
from unshard.core.ddl.onetoone import Feeds
from unshard.core.ddl.online import DEFAULT_RULES, OnlineRules
from unshard.core.model import Location
from unshard.core.rules.routing import Routing
from unshard.core.rules.shardrows import DropShardRows
from unshard.errors.config import SourceNotInTask

PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
DIGEST = 8
"""Hexadecimal digits at the end of the plain form of a name with special characters."""
BRIEFLY = 2
"""Warnings of one kind that one line replaces."""


def plain(name: str) -> str:
    """Return a name without special characters: they become `_`, and a digest keeps such names distinct."""
    if PLAIN_NAME.fullmatch(name):
        return name
    characters = re.sub(r"[^A-Za-z0-9_.-]", "_", name).lstrip(".-")
    return f"{characters}.{hashlib.sha256(name.encode()).hexdigest()[:DIGEST]}"


@dataclass(frozen=True, slots=True)
class Instance:
    """Settings of one source in a task."""

    source: Source
    routing: Routing
    start: Location | None
    """From `meta`; only in task-mode incremental."""
    start_gtid: str
    """The start as GTIDs; the source resolves them to a position."""
    dump: DumpOptions
    load: LoadOptions
    sync: SyncOptions
    online: OnlineRules | None = DEFAULT_RULES
    """Name rules for tables of online-DDL tools; None treats them as ordinary tables."""
    start_time: datetime | None = None
    """The start as a time; set when the task is started, never in a file."""
    start_unset: str = ""
    """Place of a `meta` without a position: the task begins only with a start time. Empty for any other `meta`."""


@dataclass(frozen=True, slots=True)
class Task:
    """A task file with the source files it uses."""

    name: str
    path: Path
    task_mode: TaskMode
    shard_mode: ShardMode
    meta_schema: str
    timezone: str
    target: Endpoint
    instances: tuple[Instance, ...]
    options: Options
    clean_dump_file: bool = True
    """Whether dumped files are removed after the load."""
    ignored_checks: tuple[str, ...] = ()
    """Prechecks whose errors do not stop the task."""
    warnings: tuple[str, ...] = ()
    """Warnings about accepted values, shown on every start."""
    idle: tuple[str, ...] = ()
    """Those of `warnings` that are about values without effect; only their number is shown, unless asked for."""
    passwords: tuple[str, ...] = ()
    """Those of `warnings` that are about passwords in files; only their number is shown, unless asked for."""
    files: tuple[tuple[Path, int], ...] = field(default=(), compare=False)
    """Its file and those of its sources, with the times of their last changes (`has_changed`)."""

    @property
    def brief_warnings(self) -> tuple[str, ...]:
        """The warnings, with one line for those about values without effect, and one for those about passwords."""
        counted = {
            self.idle: "values of the files have no effect here",
            self.passwords: "passwords are in the files; use conn-id or password-env instead",
        }
        many = {texts: told for texts, told in counted.items() if len(texts) >= BRIEFLY}
        folded = {text for texts in many for text in texts}
        return (
            *(text for text in self.warnings if text not in folded),
            *(f"{self.path}: {len(texts)} {told}; `unshard check -v` lists them" for texts, told in many.items()),
        )

    @property
    def sources(self) -> tuple[str, ...]:
        return tuple(instance.source.id for instance in self.instances)

    @property
    def plain_name(self) -> str:
        """The name for DAG ids and folders."""
        return plain(self.name)

    @property
    def storage(self) -> str:
        return f"{self.options.storage_path.rstrip('/')}/{self.plain_name}"

    @property
    def checks_foreign_keys(self) -> bool:
        values = {name.lower(): value for name, value in self.target.session}
        return values.get("foreign_key_checks", "").lower() in ("1", "on", "true")

    @property
    def feeds(self) -> Feeds:
        """The routes of all sources, which decide which targets are one-to-one."""
        removes_rows = self.options.drop_shard_rows is DropShardRows.DELETE
        routings = tuple(instance.routing for instance in self.instances)
        return Feeds(routings, self.shard_mode is not ShardMode.NONE, removes_rows)

    def instance(self, source: str) -> Instance:
        for instance in self.instances:
            if instance.source.id == source:
                return instance
        raise SourceNotInTask(self.name, source, ", ".join(self.sources))
