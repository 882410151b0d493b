"""What a statement of the binlog does to the shards of a source: the planner's question, answered by reading
the statement and asking the target.

Whatever a plan will name by digest is stored first, so a plan that exists can always be carried out.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol, assert_never

from unshard.core.ddl import Ddl, DdlKind, Role, agreement, read, retarget
from unshard.core.ddlevents import NOT_KNOWN, Around, parts_of, view_of
from unshard.core.ddlgrammar import IGNORE_REASON, without_specs
from unshard.core.ddlnames import changes_rows, concerned, created, loose_agreement, mentions, put_in
from unshard.core.ddltokens import MARIADB, tokenize
from unshard.core.ddlwords import VERSIONS
from unshard.core.effects import (
    Coordinated,
    Effect,
    Follows,
    Ignored,
    Joins,
    Leaves,
    PassedOver,
    Renamed,
    Undecided,
)
from unshard.core.eventfilter import Action, Event, EventFilter
from unshard.core.mapping import overlaps, touched_mapping
from unshard.core.model import TableId, TableSchema
from unshard.core.renaming import net_renames
from unshard.core.reshape import Reshaping
from unshard.core.schemadefaults import with_default
from unshard.core.segment import Statement
from unshard.core.settling import UNKNOWABLE
from unshard.errors.ddl import DdlFiltered, DdlUnreadable
from unshard.errors.shardddl import ShardDdlRefused
from unshard.errors.target import MappingOverlap

RENAMED_STEP = "skip it to let the rows that it gets from now on follow, or drop the shard; or load it as a new task"
OTHER_STEP = "see docs/limits.md for what it does: skip it, or replace it by what should happen on the target"
MAPPED_STEP = (
    "see docs/config.md, column mapping: when all shards have it, correct the rule and replace the DDL by what the"
    " target needs; or skip it"
)
IGNORED_UNKNOWN = "a filter ignores it, and what the shard's rows look like before it is not known yet"
WHOLE = (
    DdlKind.CREATE_TABLE, DdlKind.DROP_TABLE, DdlKind.TRUNCATE, DdlKind.RENAME, DdlKind.CREATE_DATABASE,
    DdlKind.DROP_DATABASE, DdlKind.ALTER_DATABASE,
)  # fmt: skip
"""Statements that are one change and are never executed on the target as they are."""


class Shadow(Protocol):
    """Finds the structure behind a statement."""

    def effect(
        self, before: TableSchema | None, statement: Statement, table: TableId, target: TableId | None = None
    ) -> TableSchema:
        """Return the structure of `table` after the statement; raise the server's message if it refuses.

        The server treats it as it treats the primary key of `target`.
        """


class Structures(Protocol):
    """Keeps structures by digest."""

    def put(self, schema: TableSchema) -> str:
        """Store a structure and return its digest."""

    def get(self, digests: Iterable[str]) -> dict[str, TableSchema]:
        """Return the structures of those digests."""


class Routes(Protocol):
    """Says where the tables of the source go."""

    def target_of(self, table: TableId) -> TableId | None:
        """Return the target table, None when the table is not migrated."""

    def target_schema_of(self, schema: str) -> str | None:
        """Return where a schema goes, None when it is not migrated."""

    def reshaping(self, table: TableId) -> Reshaping:
        """Return what the task does to the rows of a shard."""

    @property
    def events(self) -> EventFilter:
        """Return which changes are passed over."""


class DdlEffects:
    """Answers for one source; fits as `PlanRules.effects`."""

    def __init__(self, shadow: Shadow, structures: Structures, routing: Routes, *, filters: bool = True) -> None:
        """`filters`: whether the task's event filters are asked."""
        self._shadow, self._structures, self._routing = shadow, structures, routing
        self._target_of, self._filters = routing.target_of, filters

    def __call__(self, statement: Statement, present: Mapping[TableId, str]) -> tuple[Effect | PassedOver, ...]:
        """Return what the statement does to routed tables; `present` has their structures before it."""
        try:
            ddl = read(statement.text, statement.sql_mode, statement.schema)
        except DdlUnreadable as error:
            return tuple(self._unreadable(statement, present, error))
        self._refuse(ddl, statement)
        return tuple(self._effects(ddl, statement, present))

    def _is_ignored(self, table: TableId, event: Event) -> bool:
        """Whether the task's filters ignore a change; raises where they ask for an error."""
        if not self._filters:
            return False
        judged = self._routing.events.judge(table, event)
        if judged.action is Action.ERROR:
            raise DdlFiltered(judged.rule, str(table) if table.name else table.schema, event.text)
        return judged.action is Action.IGNORE

    def _refuse(self, ddl: Ddl, statement: Statement) -> None:
        """Raise where filters ask for an error at what nothing is executed for on the target anyhow."""
        if found := view_of(ddl, statement.sql_mode, statement.schema):
            if self._target_of(found[0]) is not None:
                self._is_ignored(*found)
        elif ddl.kind in WHOLE:
            is_migrated = ddl.database and self._routing.target_schema_of(ddl.database) is not None
            places = [TableId(ddl.database, "")] if is_migrated else self._routed(ddl.subjects)
            for part in parts_of(ddl, statement.sql_mode):
                for table in places:
                    self._is_ignored(table, part.event)

    def _left_out(
        self, ddl: Ddl, statement: Statement, table: TableId, around: Around = NOT_KNOWN
    ) -> tuple[bool, tuple[int, ...]]:
        """Return whether filters ignore all of an ALTER TABLE or INDEX statement, else the specifications they ignore.

        RENAME TO is none of them: it is followed and never executed.
        """
        parts = parts_of(ddl, statement.sql_mode, around)
        ignored = [part for part in parts if self._is_ignored(table, part.event)]
        changes = [part for part in parts if "rename table" not in part.event.names]
        left_out = [part for part in ignored if part in changes]
        return bool(changes) and len(left_out) == len(changes), tuple(p.spec for p in left_out if p.spec is not None)

    def _unreadable(self, statement: Statement, present: Mapping[TableId, str],
                    error: DdlUnreadable) -> Iterator[Effect | PassedOver]:  # fmt: skip
        """Put the statement before an operator for each shard that it may concern; without one it is passed over."""
        found = mentions(statement)
        shards = frozenset(present) if changes_rows(statement) else concerned(statement, present)
        for table in sorted(shards):
            target = self._target_of(table)
            assert target is not None
            if self._is_ignored(table, Event((), found.text)):
                yield Ignored(table)
                continue
            routed = put_in(found.text, found.of(table), target)
            yield Undecided(table, str(error), routed, loose_agreement(routed, statement.sql_mode))
        made = created(statement)
        if made is not None and made not in present and (target := self._target_of(made)) is not None:
            routed = put_in(found.text, found.of(made), target)
            yield Undecided(made, str(error), routed, loose_agreement(routed, statement.sql_mode), is_new=True)
        elif not shards:
            self._is_ignored(TableId(statement.schema, ""), Event((), found.text))
            yield PassedOver()

    def _effects(self, ddl: Ddl, statement: Statement, present: Mapping[TableId, str]) -> Iterator[Effect]:
        subjects = self._routed(ddl.subjects)
        match ddl.kind:
            case DdlKind.ALTER | DdlKind.INDEX:
                yield from self._altered(ddl, statement, present)
            case DdlKind.CREATE_TABLE:
                for table in subjects:
                    yield from self._created(ddl, statement, table, present)
            case DdlKind.DROP_TABLE | DdlKind.CREATE_SEQUENCE if ddl.drops:
                yield from map(Leaves, subjects)
            case DdlKind.DROP_DATABASE | DdlKind.CREATE_DATABASE if ddl.drops:
                yield from (Leaves(table) for table in sorted(present) if table.schema == ddl.database)
            case DdlKind.TRUNCATE:
                yield from map(Ignored, subjects)
            case DdlKind.RENAME:
                yield from self._renamed(ddl, present)
            case DdlKind.UNSUPPORTED:
                touched = self._routed(ref.table for ref in ddl.tables if ref.role is not Role.REFERENCED)
                yield from (self._unsupported(ddl, statement, table, present) for table in dict.fromkeys(touched))
            case (DdlKind.CREATE_DATABASE | DdlKind.ALTER_DATABASE | DdlKind.DROP_DATABASE | DdlKind.DROP_TABLE
                  | DdlKind.CREATE_SEQUENCE | DdlKind.DROP_SEQUENCE | DdlKind.IGNORABLE):  # fmt: skip
                return
            case _:
                assert_never(ddl.kind)

    def _routed(self, tables: Iterable[TableId]) -> tuple[TableId, ...]:
        return tuple(table for table in tables if self._target_of(table) is not None)

    def _coordinated(self, ddl: Ddl, statement: Statement, table: TableId, before: str | None) -> Effect:
        routed, agreed = self._agreed(ddl, statement, table)
        if not before:
            # A table that is not known is the planner's error, and on an unknown structure nothing can be tried out.
            if any(self._left_out(ddl, statement, table)):
                reason = str(ShardDdlRefused(str(table), ddl.text, IGNORED_UNKNOWN, OTHER_STEP))
                return Undecided(table, reason, routed, agreed)
            return Coordinated(table, routed, agreed, "")
        try:
            found = self._shadow.effect(self._schema(before), statement, table, self._target_of(table))
        except UNKNOWABLE as error:
            is_filtered = any(self._left_out(ddl, statement, table))
            why = f"{error.message}, and a filter ignores a part of it"
            refused = ShardDdlRefused(str(table), ddl.text, why, OTHER_STEP) if is_filtered else error
            return Undecided(table, str(refused), routed, agreed)
        after = self._structures.put(found)
        everything, specs = self._left_out(ddl, statement, table, Around(self._schema(before), found))
        if everything:
            return Follows(table, after)
        if specs:
            rest = without_specs(ddl, tokenize(ddl.text, statement.sql_mode, MARIADB)[1], specs)
            routed, agreed = self._agreed(rest, statement, table)
        if touched := touched_mapping(self._routing.reshaping(table).mapped, self._schema(before), found):
            reason = str(ShardDdlRefused(str(table), ddl.text, touched, MAPPED_STEP))
            return Undecided(table, reason, routed, agreed, after)
        return Coordinated(table, routed, agreed, after)

    def _agreed(self, ddl: Ddl, statement: Statement, table: TableId) -> tuple[str, str]:
        routed = with_default(self._retargeted(ddl, table), statement)
        return routed, agreement(routed, statement.sql_mode)

    def _unsupported(self, ddl: Ddl, statement: Statement, table: TableId, present: Mapping[TableId, str]) -> Effect:
        """Nothing is tried out: such a statement may move rows between tables that exist."""
        creates = ddl.text.split(maxsplit=1)[0].upper() == "CREATE"
        if creates and table in present and ddl.if_not_exists:
            return Ignored(table)
        if not creates and self._left_out(ddl, statement, table)[0]:
            return self._followed(ddl, statement, table, present.get(table))
        if ddl.reason == VERSIONS and (after := self._versioned(ddl, statement, table, present.get(table))):
            return Follows(table, after)
        routed = self._retargeted(ddl, table)
        reason = str(ShardDdlRefused(str(table), ddl.text, ddl.reason, OTHER_STEP))
        return Undecided(table, reason, routed, agreement(routed, statement.sql_mode),
                         is_new=table not in present and (creates or table not in ddl.subjects))  # fmt: skip

    def _versioned(self, ddl: Ddl, statement: Statement, table: TableId, before: str | None) -> str:
        """Return the structure behind a statement that changes nothing but whether a table keeps its history."""
        with contextlib.suppress(*UNKNOWABLE):
            found = (
                self._shadow.effect(self._schema(before), statement, table, self._target_of(table)) if before else None
            )
            if found is not None and before is not None and found.shape == self._schema(before).shape:
                return self._structures.put(found)
        return ""

    def _followed(self, ddl: Ddl, statement: Statement, table: TableId, before: str | None) -> Effect:
        """An unsupported statement is ignored: only ALTER IGNORE, which changes a structure, can be tried out."""
        if ddl.reason == IGNORE_REASON and before:
            with contextlib.suppress(*UNKNOWABLE):
                found = self._shadow.effect(self._schema(before), statement, table, self._target_of(table))
                return Follows(table, self._structures.put(found))
        return Ignored(table)

    def _retargeted(self, ddl: Ddl, table: TableId) -> str:
        target = self._target_of(table)
        assert target is not None
        return retarget(ddl, {table: target})

    def _altered(self, ddl: Ddl, statement: Statement, present: Mapping[TableId, str]) -> Iterator[Effect]:
        """A change is coordinated under the old name; a shard that leaves its group takes it along."""
        moved = net_renames(ddl.renames)
        for table in self._routed(ddl.subjects):
            if self._target_of(moved.get(table, table)) == self._target_of(table):
                yield self._coordinated(ddl, statement, table, present.get(table))
        yield from self._renamed(ddl, present)

    def _renamed(self, ddl: Ddl, present: Mapping[TableId, str]) -> Iterator[Effect]:
        """Shards leave, or get their new names, before others come to theirs."""
        moved = net_renames(ddl.renames)
        strange = {new: why for table, new in moved.items() if (why := self._not_followed(table, new, present))}
        yield from (Leaves(table) for table, new in moved.items()
                    if table in present and (new in strange or self._target_of(new) is None))  # fmt: skip
        for table, new in moved.items():
            if new in strange:
                continue
            if table in present and self._target_of(new) is not None:
                yield Renamed(table, new)
            elif self._target_of(table) is not None and self._target_of(new) is not None:
                yield Ignored(table)  # a view, or IF EXISTS and there was none: a table is known
        for new, why in strange.items():
            reason = str(ShardDdlRefused(str(new), ddl.text, why, RENAMED_STEP))
            yield Undecided(new, reason, ddl.text, ddl.text, is_new=True)

    def _not_followed(self, table: TableId, new: TableId, present: Mapping[TableId, str]) -> str:
        """Return why a table that gets the name of a shard is not simply that shard."""
        target, new_target = self._target_of(table), self._target_of(new)
        if new_target is None or (target is not None and table not in present):
            return ""
        if target is None:
            return "a table that was no shard gets the name of one"
        if target != new_target:
            return f"a shard of {target} gets the name of one of {new_target}"
        if self._routing.reshaping(table).by_name != self._routing.reshaping(new).by_name:
            return f"its name says what columns of {target} hold, and the new one says otherwise"
        return ""

    def _created(self, ddl: Ddl, statement: Statement, table: TableId,
                 present: Mapping[TableId, str]) -> Iterator[Effect]:  # fmt: skip
        if table in present and not ddl.or_replace:
            yield Ignored(table)
            return
        if table in present:
            yield Leaves(table)
        routed = self._retargeted(ddl, table)
        try:
            like = present.get(ddl.like) if ddl.like else None
            before = self._schema(like) if like else None
            found = self._shadow.effect(before, statement, table, self._target_of(table))
        except UNKNOWABLE as error:
            yield Undecided(table, str(error), routed, agreement(routed, statement.sql_mode), is_new=True)
            return
        if clash := self._clash(table, found, present):
            # Without a structure: one that is like its group's would let it in by itself.
            yield Undecided(table, clash, routed, agreement(routed, statement.sql_mode), is_new=True)
        else:
            makes_target = not self._is_ignored(table, Event(("create table",), ddl.text))
            yield Joins(table, self._structures.put(found), routed, makes_target)

    def _clash(self, table: TableId, created: TableSchema, present: Mapping[TableId, str]) -> str:
        """Return why a new shard's mapped ids may meet those of a shard that is there."""
        target = self._target_of(table)
        own = self._routing.reshaping(table).mapped
        if not own or target is None:
            return ""
        group = [other for other in present if other != table and self._target_of(other) == target]
        schemas = self._structures.get({present[other] for other in group if present[other]})
        shards = {str(other): (schemas[present[other]], self._routing.reshaping(other).mapped)
                  for other in group if present[other]}  # fmt: skip
        for column, found in overlaps({**shards, str(table): (created, own)}).items():
            return str(MappingOverlap(str(target), column, found.first, found.second, found.start))
        return ""

    def _schema(self, digest: str) -> TableSchema:
        return self._structures.get({digest})[digest]
