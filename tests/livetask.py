"""A task between real servers that is run step by step in this process, without Spark and without a full load.

After `restart` every step opens its resources again: only the meta tables, the relay's segments and the held files
remain, as after the death of a process.
"""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.localspark import LocalSpark
from tests.oracle import assert_union
from tests.taskfile import META, route, task_body, using_meta, write_sources
from unshard.adapters import mysql, upstream
from unshard.adapters.structures import read_schemas
from unshard.config import ShardMode, load_task
from unshard.core.ddl.lock import LockState
from unshard.core.model import Location, Shard, TableId
from unshard.core.window.plan import StructureChange
from unshard.errors import UnshardError
from unshard.units.ddl import coordinate
from unshard.units.ddl.execute import create_target
from unshard.units.relay.tasksource import pull_source
from unshard.units.task.optimistic import follow_each
from unshard.units.window import suspending
from unshard.units.window.sync import WindowReport, may_release, run_window
from unshard.units.work import LIMITS, Limits, Work, open_work
from unshard_demo.servers import MariaDb

SEGMENT_BYTES = 4096
NO_OPTIONS: Mapping[str, str] = {}


@dataclass
class LiveTask:
    """Shards `<name>.<group>_<number>` of some sources, merged into `<name>_to.<group>`."""

    name: str
    folder: Path
    sources: Mapping[str, MariaDb]
    target: MariaDb
    groups: Sequence[str]
    shards: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    """The full names of each group's shards, with their sources."""
    _opened: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    _using: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    _work: Work | None = None
    limits: Limits = LIMITS
    mode: ShardMode = ShardMode.PESSIMISTIC

    def __post_init__(self) -> None:
        self._using.enter_context(using_meta(self.target))

    @property
    def path(self) -> Path:
        return self.folder / "task.yaml"

    @property
    def meta_schema(self) -> str:
        return META

    def table(self, group: str) -> str:
        return f"{self.name}_to.{group}"

    # --- creation

    def make(
        self,
        columns: Mapping[str, str],
        numbers: Mapping[tuple[str, str], Sequence[int]],
        window_bytes: int = 30_000,
        on_duplicate: str = "error",
        safe_mode: bool = False,
        options: Mapping[str, str] = NO_OPTIONS,
    ) -> None:
        """Create the shards (`numbers` by source and group), the task's files, and hand over to the windows."""
        for server in self.sources.values():
            server.run(f"CREATE DATABASE {self.name}")
        for (source, group), some in numbers.items():
            names = [f"{self.name}.{group}_{number}" for number in some]
            made = (f"CREATE TABLE {name} ({columns[group]}) {options.get(group, '')}" for name in names)
            self.sources[source].run("DO 1", *made)
            self.shards.setdefault(group, []).extend((source, name) for name in names)
        units = {"loader": {"on-duplicate": on_duplicate}, "syncer": {"safe-mode": safe_mode}}
        self._write_files(window_bytes, units)
        for source in self.sources:
            self._hand_over(source)

    def drop(self) -> None:
        self.restart()
        self._using.close()
        for server in self.sources.values():
            server.run(f"DROP DATABASE IF EXISTS {self.name}")
        # A table that no route accepts is its own target, in a schema of the source's name.
        self.target.run(
            f"DROP DATABASE IF EXISTS {self.name}",
            f"DROP DATABASE IF EXISTS {self.name}_to",
        )

    def _write_files(self, window_bytes: int, units: Mapping[str, object]) -> None:
        write_sources(self.folder, self.sources)
        body = task_body(
            self.name,
            self.sources,
            self.target,
            {group: route(self.name, f"{group}_*", f"{self.name}_to", group) for group in self.groups},
            units,
            **{
                "name": "live",
                "meta-schema": self.meta_schema,
                "task-mode": "incremental",
                "shard-mode": "pessimistic",
                "unshard": {"storage-path": str(self.folder / "storage"), "window-size": str(window_bytes)},
            },
        )
        self.path.write_text(yaml.safe_dump(body))

    def _hand_over(self, source: str) -> None:
        """Create the state after full load and handover for empty shards."""
        work = self.work()
        with contextlib.closing(mysql.connect(work.sources[source])) as connection:
            about = upstream.inspect(connection, source)
            own = [TableId(*name.split(".")) for some in self.shards.values() for at, name in some if at == source]
            found = read_schemas(connection, own)
        work.meta.sources.add(source, about.identity, about.flavor)
        targets = {table: work.task.instance(source).routing.target_of(table) for table in found}
        with contextlib.closing(mysql.connect(work.target)) as connection:
            for target, table in {target: table for table, target in targets.items()}.items():
                create_target(connection, target, found[table])
        for schema in {schema.digest: schema for schema in found.values()}.values():
            work.meta.structures.put(schema)
        work.meta.structures.record_all(
            StructureChange(Shard(source, table), targets[table], about.end, schema.digest)
            for table, schema in found.items()
        )
        work.meta.checkpoints.start(source, about.end, about.gtid)

    # --- execution

    def work(self) -> Work:
        if self._work is None:
            task = dataclasses.replace(load_task(self.path), shard_mode=self.mode)
            opened = self._opened.enter_context(open_work(task))
            self._work = dataclasses.replace(opened, spark=LocalSpark, bulk_spark=LocalSpark, limits=self.limits)
        return self._work

    def restart(self) -> None:
        """Drop all state of the process."""
        self._opened.close()
        self._work = None

    def checkpoint(self, source: str) -> Location:
        found = self.work().meta.checkpoints.get(source)
        assert found is not None
        return found.location

    def upstream_end(self, source: str) -> Location:
        with contextlib.closing(mysql.connect(self.sources[source].server)) as connection:
            return upstream.location(connection, source)

    def pull(self, source: str) -> None:
        work = self.work()
        pull_source(work, source, segment_bytes=SEGMENT_BYTES)

    def damage_segment(self, source: str, number: int) -> None:
        """Change a bit in the last event of a segment."""
        store = self.work().store
        file = store.folder / source / store.segments(source)[number].name
        damaged = bytearray(file.read_bytes())
        damaged[-40] ^= 1
        file.write_bytes(damaged)

    def window(self, source: str) -> WindowReport:
        return run_window(self.work(), source)

    def coordinate(self) -> bool:
        """Judge the locks and execute the due DDL; return whether a lock was resolved."""
        work = self.work()
        moved = follow_each(work).raised()
        scene = coordinate.observe(work.meta)
        for lock in map(scene.facts, scene.locks):
            if lock.is_executable:
                scene = coordinate.executed(work.meta, work.target, lock.id, scene)
                done = coordinate.facts_of(work.meta, lock.id, scene)
                assert done.state is LockState.RESOLVED, done.error
                moved = True
        return moved

    def run(self) -> None:
        """Continue until nothing changes."""
        moved = True
        while moved:
            moved = False
            for source in self.sources:
                self.pull(source)
                while self.window(source).moved:
                    moved = True
            moved = self.coordinate() or moved
        left = [source for source in self.sources if may_release(self.work(), source)]
        assert not left, f"nothing moves, and rows of {left} could be released"

    def stopped(self) -> dict[tuple[str, str], UnshardError]:
        """Return the error of each suspended target, by source."""
        return {
            (stop.source, stop.target.name): stop.refusal.error for stop in self.work().meta.suspended_targets.all()
        }

    def retry(self) -> None:
        """Retry all suspended targets, and continue until nothing changes."""
        suspending.retry(self.work(), self.work().meta.suspended_targets.all())
        self.run()

    # --- assertions

    def executed(self, group: str) -> list[str]:
        """Return the DDLs that were executed on a target, in order."""
        locks = {lock.id for lock in self.work().meta.locks.all(1000) if lock.target.name == group}
        return [one.ddl for one in self.work().meta.locks.executions() if one.lock in locks and one.done_at]

    def assert_union(self, group: str) -> int:
        shards: dict[str, list[str]] = {}
        for source, name in self.shards[group]:
            shards.setdefault(source, []).append(name)
        return assert_union(self.sources, shards, self.target, self.table(group))

    def assert_settled(self) -> None:
        """Assert that nothing waits and that every target is the union of its shards."""
        work = self.work()
        assert [(view.id, view.state, view.missing) for view in coordinate.views(work.meta)] == []
        assert [state for state in work.meta.structures.shards() if state.queue or state.held] == []
        assert not work.storage.list("held")
        for group in self.groups:
            self.assert_union(group)


@contextlib.contextmanager
def living(
    name: str,
    folder: Path,
    servers: Sequence[MariaDb],
    groups: Sequence[str],
    mode: ShardMode = ShardMode.PESSIMISTIC,
    **made: Any,
) -> Iterator[LiveTask]:
    """Make a task between sources (s1, s2, …) and, last of `servers`, a target; `made` is as for `LiveTask.make`."""
    *sources, target = servers
    numbered = {f"s{number}": one for number, one in enumerate(sources, 1)}
    task = LiveTask(name, folder, numbered, target, groups, mode=mode)
    try:
        task.make(**made)
        yield task
    finally:
        task.drop()
