"""Executes statements on the targets of optimistic mode, each once; implements `joining.JoinExecutor`.

The guard of the target is held from the comparison of the structure to the end of the statement. So a statement of a
process that is given up for dead either has ended before the next process looks, or is not executed any more.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace

from unshard.adapters.mysql import connect
from unshard.adapters.structures import read_schema, read_schemas
from unshard.adapters.target.fence import NO_SOURCE, Pair, record_ddl
from unshard.adapters.targetddl import DdlTrialTables
from unshard.core.ddl.queue import QueueEntry
from unshard.core.join.difference import IN_TASK_ZONE
from unshard.core.join.joined import JoinStatement
from unshard.core.join.tables import features
from unshard.core.model import Server, TableId, TableSchema
from unshard.core.relay.segment import Statement
from unshard.core.sql.mode import STRICT
from unshard.errors.ddl import EffectRefused, TargetChanged
from unshard.units.ddl.execute import run_statement, target_guard, with_own_names, with_present_keys


class OnTarget:
    """Reads and changes target tables on their server."""

    def __init__(self, server: Server, meta_schema: str, time_zone: str = "+00:00", task: str = "") -> None:
        """Keep the target; it converts times in `time_zone`, the task's. Only `execute` needs the task."""
        self._server, self._time_zone = server, time_zone
        self._place = meta_schema, task, NO_SOURCE
        self._trials = DdlTrialTables(server, meta_schema)
        self._features: frozenset[str] | None = None

    def present(self, target: TableId) -> TableSchema | None:
        """Return the structure of a target; None if the table does not exist."""
        with contextlib.closing(connect(self._server, "target")) as connection:
            return read_schemas(connection, [target]).get(target)

    @contextlib.contextmanager
    def at_rest(self, target: TableId) -> Iterator[TableSchema]:
        """Return the structure after the DDL of another session has ended; none begins inside the block."""
        with contextlib.closing(connect(self._server, "target")) as connection, target_guard(connection, target):
            yield read_schema(connection, target)

    def own(self, entry: QueueEntry, before: TableSchema, *, in_steps: bool = False) -> TableSchema | None:
        """Return the structure after a shard's own statement; None if the target rejects it.

        `in_steps`: also if the target takes it only one change after another.
        """
        with contextlib.closing(connect(self._server, "target")) as connection:
            text = with_own_names(connection, entry.target, entry.routed, entry.statement.sql_mode)
        statement = replace(entry.statement, text=text)
        try:
            tried = self._trials.tried(before, statement, entry.target, entry.target)
        except EffectRefused:
            return None
        is_usable = not entry.replacement and (in_steps or not tried.is_split)
        return tried.after if is_usable else None

    def tried(self, target: TableId, text: str, before: TableSchema) -> TableSchema | None:
        """Return the structure after a statement; None if the target takes it only in steps; raises EffectRefused."""
        with contextlib.closing(connect(self._server, "target")) as connection:
            text = with_own_names(connection, target, text)
        tried = self._trials.tried(before, _own_statement(text), target, target)
        return None if tried.is_split else tried.after

    def lacks(self, asked: frozenset[str]) -> frozenset[str]:
        """Return those of these features that the server leaves out (core.join.tables.FEATURES)."""
        if self._features is None:
            self._features = features(self._trials.with_features().create_sql)
        return asked - self._features

    def execute(
        self, target: TableId, statement: JoinStatement, entry: QueueEntry | None, is_open: Callable[[], bool]
    ) -> bool:
        """Execute a statement unless the target has it; return False if its change is not open any more."""
        connection = connect(self._server, "target", database=target.schema)
        with contextlib.closing(connection), target_guard(connection, target):
            if not is_open():
                return False
            found = read_schema(connection, target)
            if statement.is_after(found):
                self._record(target)
                return True
            if not statement.is_before(found):
                raise TargetChanged(str(target), f"it is now {found.create_sql}", statement.text)
            text = with_own_names(connection, target, statement.text)
            run = _own_statement(text, self._time_zone if IN_TASK_ZONE in text else "+00:00")
            if entry is not None:
                run = replace(entry.statement, text=with_present_keys(connection, target, entry))
            run_statement(connection, target, run)
            self._record(target)
        return True

    def _record(self, target: TableId) -> None:
        record_ddl(self._server, Pair(*self._place, target))


def _own_statement(text: str, time_zone: str = "+00:00") -> Statement:
    """Return a statement of unshard: in a strict mode, so that it changes no value without an error."""
    return Statement(text, "", STRICT, "utf8mb4", 0, time_zone)
