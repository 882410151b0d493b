"""Determine what a binlog statement does to the shards of a source. Runs in the driver.

The planner calls this module. It reads the statement and tries it on the target. Every structure that a plan names by
digest is stored first, so an existing plan can always be carried out.

If the effect of a statement cannot be found, an operator decides (`UnreadEffects`).

| the statement                                         | waits for an operator                               |
|-------------------------------------------------------|-----------------------------------------------------|
| cannot be read or processed                           | the shards that it may concern (core.ddl.names)     |
| changes rows, and its events have no rows             | the shards whose rows it may have changed           |
| the same, and its tables are not known                | all shards of the source                            |
| concerns no shard                                     | none: it is ignored                                 |
"""

import contextlib
import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from types import MappingProxyType
from typing import TYPE_CHECKING, assert_never

from unshard.core.ddl.columnnames import as_own, in_target, otherwise, own_names
from unshard.core.ddl.effects import (
    Coordinated,
    Effect,
    Follows,
    IgnoredEffect,
    Joins,
    Leaves,
    Moves,
    Renamed,
    SchemaStatement,
    ShardlessEffect,
    Together,
    Truncates,
    Undecided,
    UnreadIgnored,
)
from unshard.core.ddl.eventnames import UNKNOWN_CHANGE, TableChange, event_parts, view_of
from unshard.core.ddl.foreignkeyclauses import adds_keys, for_target
from unshard.core.ddl.lineage import ExecutedDdl
from unshard.core.ddl.names import (
    Mentions,
    changes_rows,
    concerned_tables,
    created,
    loose_fingerprint,
    mentions,
    put_in,
)
from unshard.core.ddl.onetoone import NO_FEEDS, Feeds
from unshard.core.ddl.parsed import Ddl, DdlKind, Role
from unshard.core.ddl.queue import WholeChange
from unshard.core.ddl.reconcile import UNKNOWABLE
from unshard.core.ddl.renaming import cycles, in_turn, net_renames
from unshard.core.ddl.schemadefaults import with_default
from unshard.core.ddl.sessioneffects import elsewhere, session_note
from unshard.core.ddl.statement import (
    IGNORE_REASON,
    alter_specs,
    changes_without,
    engine_options,
    fingerprint,
    read_ddl,
    retarget,
    without_specs,
)
from unshard.core.model import Index, TableId, TableSchema
from unshard.core.relay.segment import Statement
from unshard.core.rules.columnmapping import overlaps, touched_mapping
from unshard.core.rules.filters import Action, Event
from unshard.core.rules.reshaping import AS_IT_IS
from unshard.core.sql.tokens import MARIADB, tokenize
from unshard.core.sql.words import VERSIONS
from unshard.core.structures.createtext import create_text
from unshard.core.structures.hiddencolumns import unversioned
from unshard.errors import UnshardError
from unshard.errors.base import DdlError, ShardDdlError, SourceError
from unshard.errors.ddl import DdlFiltered, DdlUnreadable, StatementFailed
from unshard.errors.locks import ShardDdlRefused
from unshard.errors.relay import StatementDml
from unshard.errors.rows import MappingOverlap

if TYPE_CHECKING:
    from unshard.adapters.meta.shardrecords import Structures
    from unshard.adapters.targetddl import DdlTrialTables
    from unshard.core.rules.routing import Routing

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
        found, shards = mentions(statement), concerned_tables(statement, present)
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
            return IgnoredEffect(table)
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


log = logging.getLogger(__name__)

RENAMED_STEP = (
    "`unshard locks` shows how to migrate its rows from now on; or drop the shard, or load the table as a new task"
)
OR_REPLACE = re.compile(r"\A\s*CREATE\s+OR\s+REPLACE\b", re.IGNORECASE)
OTHER_STEP = "docs/limits.md describes its effect: skip it, or replace it with the statements for the target"
MAPPED_STEP = (
    "see docs/config.md, column mapping: when all shards have it, correct the rule and replace the DDL with what the"
    " target needs; or skip it"
)
IGNORED_UNKNOWN = "a filter ignores it, and the shard's structure before it is not known yet"
DEFECTS = (AssertionError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Errors of Python in the code for one statement: they hold its shards, not the whole source."""
WHOLE = (
    DdlKind.CREATE_TABLE,
    DdlKind.DROP_TABLE,
    DdlKind.TRUNCATE,
    DdlKind.RENAME,
    DdlKind.CREATE_DATABASE,
    DdlKind.DROP_DATABASE,
    DdlKind.ALTER_DATABASE,
)
"""Statements that are one change and are never executed on the target as they are."""


class DdlEffects:
    """Determines the effects for one source; implements `PlanRules.effects`."""

    def __init__(  # noqa: PLR0913
        self,
        trial: "DdlTrialTables",
        structures: "Structures",
        routing: "Routing",
        *,
        filters: bool = True,
        feeds: Feeds = NO_FEEDS,
        foreign_keys: bool = False,
        changed: ChangedTables = lambda _, __: None,
    ) -> None:
        """Keep what the effects need; `filters` is whether to apply the task's event filters.

        `feeds` says which targets are one-to-one; without it, none is. `foreign_keys` is whether targets get those of
        their shards. `changed` tells which tables a change of rows without row events may have changed.
        """
        self._trial, self._structures, self._routing, self._feeds = trial, structures, routing, feeds
        self._target_of, self._filters, self._foreign_keys = routing.target_of, filters, foreign_keys
        self._unread = UnreadEffects(routing.target_of, self._is_ignored, changed)

    def __call__(self, statement: Statement, present: Mapping[TableId, str]) -> tuple[Effect | ShardlessEffect, ...]:
        """Return the effects of the statement on routed tables; `present` has their structures before it.

        An error that only this statement can have holds the shards that it may concern.
        """
        try:
            return tuple(self._found(statement, present))
        except (DdlError, ShardDdlError, SourceError) as error:
            if error.transient or isinstance(error, DdlFiltered):
                raise
            if isinstance(error, DdlUnreadable) and changes_rows(statement):
                return tuple(self._unread.of_rows(statement, present))
            return tuple(self._unread.unreadable(statement, present, error))
        except DEFECTS as error:
            log.exception("cannot process a statement schema=%s", statement.schema)
            return tuple(self._unread.unreadable(statement, present, StatementFailed(statement.text, repr(error))))

    def _found(self, statement: Statement, present: Mapping[TableId, str]) -> Iterator[Effect | ShardlessEffect]:
        ddl = read_ddl(statement.text, statement.sql_mode, statement.schema)
        self._refuse(ddl, statement)
        if ddl.left_out and (routed := self._routed(ddl.subjects)):
            names = ", ".join(ddl.left_out)
            log.warning("clauses of shards are left out table=%s clauses=%s", routed[0], names)
        yield from self._effects(ddl, statement, present)
        yield from self._apart(ddl, statement)

    def _is_ignored(self, table: TableId, event: Event) -> bool:
        """Whether the task's filters ignore a change; raises if they demand an error."""
        if not self._filters:
            return False
        judged = self._routing.events.judge(table, event)
        if judged.action is Action.ERROR:
            place = str(table) if table.name else table.schema
            raise DdlFiltered(judged.rule, place, event.text, judged.event or "sql-pattern")
        return judged.action is Action.IGNORE

    def _refuse(self, ddl: Ddl, statement: Statement) -> None:
        """Raise if filters demand an error for a statement that is never executed on the target."""
        if found := view_of(ddl, statement.sql_mode, statement.schema):
            if self._target_of(found[0]) is not None:
                self._is_ignored(*found)
        elif ddl.kind in WHOLE:
            is_migrated = ddl.database and self._routing.target_schema_of(ddl.database) is not None
            places = [TableId(ddl.database, "")] if is_migrated else self._routed(ddl.subjects)
            for part in event_parts(ddl, statement.sql_mode):
                for table in places:
                    self._is_ignored(table, part.event)

    def _left_out(
        self, ddl: Ddl, statement: Statement, table: TableId, change: TableChange = UNKNOWN_CHANGE
    ) -> tuple[bool, tuple[int, ...]]:
        """Return whether filters ignore all of an ALTER TABLE or INDEX statement, else the specifications they ignore.

        RENAME TO is not among them: it is followed and never executed.
        """
        parts = event_parts(ddl, statement.sql_mode, change)
        ignored = [part for part in parts if self._is_ignored(table, part.event)]
        changes = [part for part in parts if "rename table" not in part.event.names]
        left_out = [part for part in ignored if part in changes]
        return bool(changes) and len(left_out) == len(changes), tuple(p.spec for p in left_out if p.spec is not None)

    def _effects(self, ddl: Ddl, statement: Statement, present: Mapping[TableId, str]) -> Iterator[Effect]:
        subjects = self._routed(ddl.subjects)
        match ddl.kind:
            case DdlKind.ALTER | DdlKind.INDEX:
                yield from self._altered(ddl, statement, present)
            case DdlKind.CREATE_TABLE:
                for table in subjects:
                    yield from self._created(ddl, statement, table, present)
            case DdlKind.CREATE_SEQUENCE if ddl.drops:
                yield from map(Leaves, subjects)
            case DdlKind.DROP_TABLE | DdlKind.DROP_DATABASE | DdlKind.CREATE_DATABASE if ddl.drops:
                gone = subjects or tuple(table for table in sorted(present) if table.schema == ddl.database)
                yield from (self._dropped(ddl, statement, table) for table in gone)
            case DdlKind.TRUNCATE:
                yield from (self._truncated(ddl, statement, table) for table in subjects)
            case DdlKind.RENAME:
                yield from self._renamed(ddl, statement, present)
            case DdlKind.UNSUPPORTED:
                touched = self._routed(ref.table for ref in ddl.tables if ref.role is not Role.REFERENCED)
                yield from (self._unsupported(ddl, statement, table, present) for table in dict.fromkeys(touched))
            case (
                DdlKind.CREATE_DATABASE
                | DdlKind.ALTER_DATABASE
                | DdlKind.DROP_DATABASE
                | DdlKind.DROP_TABLE
                | DdlKind.CREATE_SEQUENCE
                | DdlKind.DROP_SEQUENCE
                | DdlKind.IGNORABLE
            ):
                return
            case _:
                assert_never(ddl.kind)

    def _apart(self, ddl: Ddl, statement: Statement) -> Iterator[Effect | ShardlessEffect]:
        """Yield the effect of a statement about a view, which is counted, or about a schema."""
        if found := view_of(ddl, statement.sql_mode, statement.schema):
            yield from map(IgnoredEffect, self._routed((found[0],)))
        schema = self._routing.target_schema_of(ddl.database) if ddl.database else None
        if schema is None or not self._feeds.is_single_schema(schema, strictly=ddl.drops):
            return
        if not any(
            self._is_ignored(TableId(ddl.database, ""), part.event) for part in event_parts(ddl, statement.sql_mode)
        ):
            yield SchemaStatement(ddl.kind, schema, statement.default)

    def _dropped(self, ddl: Ddl, statement: Statement, table: TableId) -> Effect:
        whole = WholeChange.DROP if self._is_replicated(ddl, statement, table) else WholeChange.NONE
        return Leaves(table, whole, self._removes_rows(ddl, statement, table))

    def _truncated(self, ddl: Ddl, statement: Statement, table: TableId) -> Effect:
        is_whole = self._is_replicated(ddl, statement, table)
        removes_rows = self._removes_rows(ddl, statement, table)
        return Truncates(table, is_whole, removes_rows) if is_whole or removes_rows else IgnoredEffect(table)

    def _is_replicated(self, ddl: Ddl, statement: Statement, table: TableId) -> bool:
        """Whether the routes and filters let a statement about a whole table reach the target."""
        target = self._target_of(table)
        return target is not None and self._feeds.is_single(target) and self._lets_through(ddl, statement, table)

    def _removes_rows(self, ddl: Ddl, statement: Statement, table: TableId) -> bool:
        return self._feeds.removes_rows and self._lets_through(ddl, statement, table)

    def _lets_through(self, ddl: Ddl, statement: Statement, table: TableId) -> bool:
        """Whether no filter ignores a statement about a whole table."""
        place = TableId(ddl.database, "") if ddl.database else table
        return not any(self._is_ignored(place, part.event) for part in event_parts(ddl, statement.sql_mode))

    def _routed(self, tables: Iterable[TableId]) -> tuple[TableId, ...]:
        return tuple(table for table in tables if self._target_of(table) is not None)

    def _coordinated(self, ddl: Ddl, statement: Statement, table: TableId, before: str | None) -> Effect:
        routed, agreed = self._agreed(ddl, statement, table)
        if not before:
            # The planner reports an unknown table, and nothing can be tried on an unknown structure.
            if any(self._left_out(ddl, statement, table)):
                reason = str(ShardDdlRefused(str(table), ddl.text, IGNORED_UNKNOWN, OTHER_STEP))
                return Undecided(table, reason, routed, agreed)
            return Coordinated(table, routed, agreed, "")
        known = self._schema(before)
        try:
            found = self._trial.effect(as_own(known), statement, table, self._target_of(table))
            made = self._made_by_keys(ddl, statement, table, as_own(known), found)
        except UNKNOWABLE as error:
            is_filtered = any(self._left_out(ddl, statement, table))
            why = f"{error.message}, and a filter ignores a part of it"
            refused = ShardDdlRefused(str(table), ddl.text, why, OTHER_STEP) if is_filtered else error
            return Undecided(table, str(refused), routed, agreed)
        everything, specs = self._left_out(ddl, statement, table, TableChange(as_own(known), found))
        tokens, cuts = tokenize(ddl.text, statement.sql_mode, MARIADB), tuple[tuple[int, int], ...]()
        if ddl.left_out and ddl.kind is DdlKind.ALTER and not changes_without(alter_specs(*tokens), ()):
            everything = True  # only clauses about storage
        if known.lacks_transactions or found.lacks_transactions:
            about_engine, cuts = engine_options(alter_specs(*tokens), specs)
            specs = tuple(sorted({*specs, *about_engine}))
            everything = everything or (bool(specs) and not changes_without(alter_specs(*tokens), specs))
        if (specs or made or cuts) and not everything:
            rest = without_specs(ddl, tokens[1], specs) if specs else ddl
            rest = replace(rest, cuts=(*rest.cuts, *cuts))
            routed, agreed = self._agreed(rest, statement, table, made, specs)
        change = in_target(known, found, ExecutedDdl(statement.text, statement.sql_mode), routed, agreed)
        after = self._structures.put(change.after)
        if everything or change.is_nothing:
            return Follows(table, after)
        reason = "" if change.is_certain else otherwise(str(table), ddl.text, own_names(known))
        if touched := touched_mapping(self._routing.reshaping(table).mapped, known, change.after):
            reason = str(ShardDdlRefused(str(table), ddl.text, touched, MAPPED_STEP))
        if reason:
            return Undecided(table, reason, change.routed, change.fingerprint, after)
        note = self._session_note(as_own(known), found, statement, table)
        return Coordinated(table, change.routed, change.fingerprint + note, after)

    def _session_note(self, before: TableSchema, after: TableSchema, statement: Statement, table: TableId) -> str:
        other = elsewhere(statement)
        found: TableSchema | None = None
        with contextlib.suppress(*UNKNOWABLE):
            found = self._trial.effect(before, other, table, self._target_of(table)) if other else None
        return session_note(before, after, found, statement, is_tried=other is not None)

    def _agreed(
        self, ddl: Ddl, statement: Statement, table: TableId, made: Sequence[Index] = (), specs: Collection[int] = ()
    ) -> tuple[str, str]:
        """Return the statement for the target, without the specifications `specs`, and its fingerprint."""
        target = self._target_of(table)
        assert target is not None
        own = for_target(ddl, statement.sql_mode, self._parents(ddl), made, specs)
        routed = with_default(self._retargeted(own, table), statement)
        return routed, fingerprint(routed, statement.sql_mode)

    def _made_by_keys(
        self, ddl: Ddl, statement: Statement, table: TableId, before: TableSchema, after: TableSchema
    ) -> tuple[Index, ...]:
        if not adds_keys(ddl, statement.sql_mode):
            return ()
        bare = retarget(for_target(ddl, statement.sql_mode, None), {})
        without = self._trial.effect(before, replace(statement, text=bare), table, self._target_of(table))
        names = {index.name for index in without.indexes}
        return tuple(index for index in after.indexes if index.name not in names)

    def _parents(self, ddl: Ddl) -> dict[TableId, TableId] | None:
        """Return the targets of the tables that the statement references; None if targets get no foreign keys."""
        if not self._foreign_keys:
            return None
        found = {parent: self._target_of(parent) for parent in ddl.of(Role.REFERENCED)}
        return {parent: target for parent, target in found.items() if target is not None}

    def _unsupported(self, ddl: Ddl, statement: Statement, table: TableId, present: Mapping[TableId, str]) -> Effect:
        """Return the effect without a trial: such a statement may move rows between existing tables."""
        creates = ddl.text.split(maxsplit=1)[0].upper() == "CREATE"
        if creates and table in present and ddl.if_not_exists:
            return IgnoredEffect(table)
        if not creates and self._left_out(ddl, statement, table)[0]:
            return self._followed(ddl, statement, table, present.get(table))
        if ddl.reason == VERSIONS and (after := self._versioned(ddl, statement, table, present.get(table))):
            return Follows(table, after)
        routed = self._retargeted(ddl, table)
        reason = str(ShardDdlRefused(str(table), ddl.text, ddl.reason, OTHER_STEP))
        return Undecided(
            table,
            reason,
            routed,
            fingerprint(routed, statement.sql_mode),
            is_new=table not in present and (creates or table not in ddl.subjects),
        )

    def _versioned(self, ddl: Ddl, statement: Statement, table: TableId, before: str | None) -> str:
        """Return the structure after a statement that only changes whether a table keeps its history; else empty."""
        with contextlib.suppress(*UNKNOWABLE):
            found = (
                self._trial.effect(self._schema(before), statement, table, self._target_of(table)) if before else None
            )
            if found is not None and before is not None and found.shape == self._schema(before).shape:
                return self._structures.put(found)
        return ""

    def _followed(self, ddl: Ddl, statement: Statement, table: TableId, before: str | None) -> Effect:
        """Return the effect of an ignored unsupported statement; only ALTER IGNORE changes a structure and can be
        tried.
        """
        if ddl.reason == IGNORE_REASON and before:
            with contextlib.suppress(*UNKNOWABLE):
                found = self._trial.effect(self._schema(before), statement, table, self._target_of(table))
                return Follows(table, self._structures.put(found))
        return IgnoredEffect(table)

    def _retargeted(self, ddl: Ddl, table: TableId) -> str:
        target = self._target_of(table)
        assert target is not None
        return retarget(ddl, {**(self._parents(ddl) or {}), table: target})

    def _altered(self, ddl: Ddl, statement: Statement, present: Mapping[TableId, str]) -> Iterator[Effect]:
        """Coordinate a change under the old name; a shard that leaves its group takes the change along."""
        moved = net_renames(ddl.renames)
        for table in self._routed(ddl.subjects):
            if self._target_of(moved.get(table, table)) == self._target_of(table):
                yield self._coordinated(ddl, statement, table, present.get(table))
        found = tuple(self._renamed(ddl, statement, present))
        for table, new in moved.items():
            if self._is_moved(ddl, statement, (table, new), present, moved):
                change = self._coordinated(ddl, statement, table, present[table])
                if isinstance(change, Coordinated) and change.after:
                    found = (self._together(found, change, self._move(ddl, table, new, change.after)),)
        yield from found

    def _renamed(self, ddl: Ddl, statement: Statement, present: Mapping[TableId, str]) -> Iterator[Effect]:
        """Yield the shards that leave or get new names before those that take over their old names."""
        moved = net_renames(ddl.renames)
        conflicts = {new: why for table, new in moved.items() if (why := self._not_followed(table, new, present))}
        if ddl.kind is DdlKind.RENAME:
            replicated = [pair for pair in in_turn(moved) if self._is_moved(ddl, statement, pair, present, moved)]
            for table, new in replicated:
                yield self._move(ddl, table, new, present[table])
                del moved[table], conflicts[new]
            for cycle in cycles(moved):
                if all(self._is_moved(ddl, statement, pair, present, moved) for pair in cycle):
                    yield self._swapped(ddl, statement, cycle, present, conflicts)
                    moved = {table: new for table, new in moved.items() if (table, new) not in cycle}
        yield from (
            Leaves(table)
            for table, new in moved.items()
            if table in present and (new in conflicts or self._target_of(new) is None)
        )
        for table, new in moved.items():
            if new in conflicts:
                continue
            if table in present and self._target_of(new) is not None:
                yield Renamed(table, new)
            elif self._target_of(table) is not None and self._target_of(new) is not None:
                yield IgnoredEffect(table)  # a view, or a missing table with IF EXISTS
        known = {new: present.get(table, "") for table, new in moved.items()} if ddl.kind is DdlKind.RENAME else {}
        yield from (self._taken_name(ddl, new, why, known.get(new, "")) for new, why in conflicts.items())

    def _taken_name(self, ddl: Ddl, new: TableId, why: str, structure: str) -> Undecided:
        """Return the decision about a table that gets the name of a shard; `structure` is empty if it is unknown."""
        reason = str(ShardDdlRefused(str(new), ddl.text, why, RENAMED_STEP))
        after = self._structures.put(as_own(self._schema(structure))) if structure else ""
        return Undecided(new, reason, ddl.text, ddl.text, after, is_new=True)

    def _swapped(
        self,
        ddl: Ddl,
        statement: Statement,
        cycle: list[tuple[TableId, TableId]],
        present: Mapping[TableId, str],
        conflicts: dict[TableId, str],
    ) -> Together:
        """Return the renames of a cycle, one after another: the first table gets a name of unshard in between.

        So each rename has a free name, and the two names show whether it was executed.
        """
        otherwise: tuple[Effect, ...] = (
            *(Leaves(table) for table, _ in cycle),
            *(self._taken_name(ddl, new, conflicts.pop(new), present[table]) for table, new in cycle),
        )
        (first, last), *others = cycle
        place = sha256(f"{statement.timestamp} {first} {ddl.text}".encode()).hexdigest()[:16]
        between, target = TableId(first.schema, f"_unshard_{place}"), self._target_of(first)
        assert target is not None
        temporary = replace(target, name=between.name)
        away = self._move(ddl, first, between, present[first], temporary)
        moves = (self._move(ddl, table, new, present[table]) for table, new in others)
        back = self._move(ddl, between, last, present[first])
        return self._together(otherwise, away, *moves, back, targets={between: temporary})

    def _together(
        self,
        otherwise: Sequence[Effect],
        *steps: Coordinated | Moves,
        targets: Mapping[TableId, TableId] = MappingProxyType({}),
    ) -> Together:
        def target_of(table: TableId) -> TableId:
            target = targets.get(table) or self._target_of(table)
            assert target is not None
            return target

        with_targets = tuple((step, target_of(step.table)) for step in steps)
        return Together(steps[0].table, with_targets, tuple((each, target_of(each.table)) for each in otherwise))

    def _is_moved(
        self,
        ddl: Ddl,
        statement: Statement,
        pair: tuple[TableId, TableId],
        present: Mapping[TableId, str],
        moved: Mapping[TableId, TableId],
    ) -> bool:
        """Whether the rename moves one one-to-one target to another one, which is free."""
        table, new = pair
        target, new_target = self._target_of(table), self._target_of(new)
        if not present.get(table) or new_target in (None, target):
            return False
        is_free = new not in present or new in moved
        fills = {self._routing.reshaping(each).by_name for each in pair} != {AS_IT_IS.by_name}
        return (
            is_free
            and not fills
            and self._feeds.is_single(new_target or new)
            and self._is_replicated(ddl, statement, table)
        )

    def _move(self, ddl: Ddl, table: TableId, new: TableId, structure: str, to: TableId | None = None) -> Moves:
        target = to or self._target_of(new)
        assert target is not None
        why = f"a shard of {self._target_of(table)} gets the name of a shard of {target}"
        routed = create_text(unversioned(self._schema(structure).create_sql), target, if_not_exists=True)
        return Moves(table, new, target, self._taken_name(ddl, new, why, structure), routed)

    def _not_followed(self, table: TableId, new: TableId, present: Mapping[TableId, str]) -> str:
        """Return why a table that gets the name of a shard is not simply that shard; empty if it is."""
        target, new_target = self._target_of(table), self._target_of(new)
        if new_target is None or (target is not None and table not in present):
            return ""
        if target is None:
            return "a table that is not a shard gets the name of a shard"
        if target != new_target:
            return f"a shard of {target} gets the name of a shard of {new_target}"
        if self._routing.reshaping(table).by_name != self._routing.reshaping(new).by_name:
            return f"columns of {target} are filled from its name, and the new name gives other values"
        return ""

    def _created(
        self, ddl: Ddl, statement: Statement, table: TableId, present: Mapping[TableId, str]
    ) -> Iterator[Effect]:
        if table in present and not ddl.or_replace:
            yield IgnoredEffect(table)
            return
        if table in present:
            yield self._dropped(ddl, statement, table)
        routed = self._retargeted(ddl, table)
        try:
            like = present.get(ddl.like) if ddl.like else None
            before = self._schema(like) if like else None
            # The trial table does not exist, and TiDB and MySQL do not know OR REPLACE.
            tried = replace(statement, text=OR_REPLACE.sub("CREATE", statement.text))
            found = self._trial.effect(before, tried, table, self._target_of(table))
        except UNKNOWABLE as error:
            yield Undecided(table, str(error), routed, fingerprint(routed, statement.sql_mode), is_new=True)
            return
        if overlap := self._overlap(table, found, present):
            # Without a structure: a structure equal to that of its group would admit it automatically.
            yield Undecided(table, overlap, routed, fingerprint(routed, statement.sql_mode), is_new=True)
        else:
            makes_target = not self._is_ignored(table, Event(("create table",), ddl.text))
            yield Joins(table, self._structures.put(found), routed, makes_target)

    def _overlap(self, table: TableId, created: TableSchema, present: Mapping[TableId, str]) -> str:
        """Return why a new shard's mapped ids may collide with those of an existing shard; empty if they cannot."""
        target = self._target_of(table)
        own = self._routing.reshaping(table).mapped
        if not own or target is None:
            return ""
        group = [other for other in present if other != table and self._target_of(other) == target]
        schemas = self._structures.get({present[other] for other in group if present[other]})
        shards = {
            str(other): (schemas[present[other]], self._routing.reshaping(other).mapped)
            for other in group
            if present[other]
        }
        for column, found in overlaps({**shards, str(table): (created, own)}).items():
            return str(MappingOverlap(str(target), column, found.first, found.second, found.start))
        return ""

    def _schema(self, digest: str) -> TableSchema:
        return self._structures.get({digest})[digest]
