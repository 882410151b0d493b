"""Progress of a task: its meta tables, if they exist, and the phases of its sources."""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from unshard.adapters import mysql
from unshard.adapters.meta import Meta, MetaReader
from unshard.adapters.structures import has_table
from unshard.config import Connections, Task, environment_connections, resolve
from unshard.core.model import Server, TableId
from unshard.core.task.state import Phase

AnyMeta = TypeVar("AnyMeta", bound=MetaReader)


@dataclass(frozen=True, slots=True)
class Begun:
    """Progress of the full load of a task."""

    phases: Mapping[str, Phase] = field(default_factory=dict)
    is_new: bool = False
    """No source has a snapshot yet: rows in target tables are not the task's."""

    def phase(self, source: str) -> Phase:
        return self.phases.get(source, Phase.NEW)

    @property
    def loaded(self) -> frozenset[str]:
        return frozenset(source for source, phase in self.phases.items() if phase.order >= Phase.LOADED.order)


NOT_KNOWN = Begun()


@contextlib.contextmanager
def opened(
    kind: type[AnyMeta], task: Task, connections: Connections = environment_connections
) -> Iterator[AnyMeta | None]:
    """Open the meta tables of a task; None if the task has never begun. Raises MetaTooOld; migrates nothing."""
    server = resolve(task.target, connections)
    if not _has_begun(task, server):
        yield None
        return
    with contextlib.closing(kind(server, task.meta_schema, task.name)) as meta:
        meta.refuse_other_version()
        yield meta


def existing_meta(
    task: Task, connections: Connections = environment_connections
) -> contextlib.AbstractContextManager[MetaReader | None]:
    """Open the meta tables of a task for reading; see `opened`."""
    return opened(MetaReader, task, connections)


@contextlib.contextmanager
def migrated_meta(task: Task, connections: Connections = environment_connections) -> Iterator[Meta | None]:
    """Bring the meta tables of a task to this version and open them; None if the task has never begun."""
    server = resolve(task.target, connections)
    if not _has_begun(task, server):
        yield None
        return
    with contextlib.closing(Meta(server, task.meta_schema, task.name)) as meta:
        meta.migrate()
        yield meta


def _has_begun(task: Task, server: Server) -> bool:
    with contextlib.closing(mysql.connect(server, "target")) as connection:
        return has_table(connection, TableId(task.meta_schema, "source"))


def begun_in(meta: MetaReader | None) -> Begun:
    """Return how far the task has begun that the meta tables are of."""
    phases = {state.source: state.phase for state in meta.sources.all()} if meta else {}
    return Begun(phases, is_new=not phases)
