"""Determine what statements do to shards whose effect cannot be found: an operator decides. Runs in the driver.

| the statement                                         | waits for an operator                               |
|-------------------------------------------------------|-----------------------------------------------------|
| cannot be read or processed                           | the shards that it may concern (core.ddl.names)     |
| changes rows, and its events have no rows             | the shards whose rows it may have changed           |
| the same, and its tables are not known                | all shards of the source                            |
| concerns no shard                                     | none: it is ignored                                 |
"""

from collections.abc import Callable, Collection, Iterator, Mapping

from unshard.core.ddl.effects import Effect, Ignored, ShardlessEffect, Undecided, UnreadIgnored
from unshard.core.ddl.names import Mentions, concerned, created, loose_fingerprint, mentions, put_in
from unshard.core.model import TableId
from unshard.core.relay.segment import Statement
from unshard.core.rules.filters import Event
from unshard.errors import UnshardError
from unshard.errors.relay import StatementDml

ChangedTables = Callable[[Statement, Collection[str]], frozenset[TableId] | None]
"""Returns the tables whose rows a statement may have changed, None if unknown; takes the schemas of the shards."""
TargetOf = Callable[[TableId], TableId | None]
IsIgnored = Callable[[TableId, Event], bool]


class UnreadEffects:
    """Determines the effects of such statements for one source."""

    def __init__(self, target_of: TargetOf, is_ignored: IsIgnored, changed: ChangedTables) -> None:
        self._target_of, self._is_ignored, self._changed = target_of, is_ignored, changed

    def unreadable(
        self, statement: Statement, present: Mapping[TableId, str], error: UnshardError
    ) -> Iterator[Effect | ShardlessEffect]:
        """Yield the effects of a statement that cannot be read or processed because of an error."""
        found, shards = mentions(statement), concerned(statement, present)
        for table in sorted(shards):
            yield self._effect(table, statement, found, error)
        made = created(statement)
        if made is not None and made not in present and self._target_of(made) is not None:
            yield self._undecided(made, statement, found, error, is_new=True)
        elif not shards:
            self._is_ignored(TableId(statement.schema, ""), Event((), found.text))
            yield UnreadIgnored()

    def of_rows(self, statement: Statement, present: Mapping[TableId, str]) -> Iterator[Effect]:
        """Yield the effects of a change of rows whose events have no rows; it changes no structure."""
        tables = self._changed(statement, {table.schema for table in present})
        folded = None if tables is None else {table.folded for table in tables}
        known = {table.folded for table in present}
        found, error = mentions(statement), StatementDml(statement.text)
        for table in sorted(present):
            if folded is None or table.folded in folded:
                yield self._effect(table, statement, found, error, present[table])
        for table in sorted(tables or ()):
            if table.folded not in known and self._target_of(table) is not None:
                yield self._undecided(table, statement, found, error, is_new=True)

    def _effect(
        self, table: TableId, statement: Statement, found: Mentions, error: UnshardError, after: str = ""
    ) -> Effect:
        if self._is_ignored(table, Event((), found.text)):
            return Ignored(table)
        return self._undecided(table, statement, found, error, after)

    def _undecided(
        self,
        table: TableId,
        statement: Statement,
        found: Mentions,
        error: UnshardError,
        after: str = "",
        *,
        is_new: bool = False,
    ) -> Undecided:
        target = self._target_of(table)
        assert target is not None
        routed = put_in(found.text, found.of(table), target)
        agreed = loose_fingerprint(routed, statement.sql_mode)
        return Undecided(table, str(error), routed, agreed, after, is_new=is_new)
