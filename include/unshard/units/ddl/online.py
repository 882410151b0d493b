"""Follow gh-ost and pt-online-schema-change, statement by statement. Runs in the driver.

| statement                                         | meaning                                                      |
|---------------------------------------------------|--------------------------------------------------------------|
| CREATE TABLE `_t_new`, a copy of shard t          | `_t_new` is watched (core.ddl.online); a second one starts over  |
| CREATE TRIGGER on t that names `_t_new`           | `_t_new` is an online-DDL shadow table of pt-osc             |
| CREATE TABLE `_t_ghc`, `_t_del` by gh-ost         | these tables are trash                                       |
| ALTER TABLE `_t_gho`, CREATE INDEX ON `_t_gho`    | is remembered as a DDL of t                                  |
| ALTER TABLE `_t_gho` AUTO_INCREMENT = n           | is ignored: it differs from shard to shard                   |
| RENAME t TO `_t_old`, `_t_new` TO t               | cut-over: the remembered DDL applies to t; `_t_old` is trash |
| RENAME t TO `_t_del`; RENAME `_t_gho` TO t        | the same in two statements; between them t is away           |
| RENAME t TO `_t_del`; RENAME `_t_del` TO t        | has no effect                                                |
| DROP TABLE t; RENAME `_t_new` TO t                | cut-over (pt-osc's drop_swap)                                |
| DROP TABLE t or RENAME away; DROP TABLE `_t_new`  | t leaves its group with the second statement                 |
| DROP TABLE `_t_new`                               | the change was abandoned: it is forgotten                    |
| RENAME `_t_new` TO t, and no tool has been seen   | waits for an operator: the rows of t are unknown             |
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from unshard.core.ddl.effects import Effect, Leaves, Undecided
from unshard.core.ddl.events import parts_of
from unshard.core.ddl.names import changes_rows, mentions, put_in
from unshard.core.ddl.onetoone import NO_FEEDS, Feeds
from unshard.core.ddl.online import (
    BY_GH_OST,
    BY_RULE,
    BY_SWAP,
    BY_TRIGGER,
    CHANGELOG,
    GH_OST,
    OnlineRules,
    OnlineStep,
    OnlineTable,
    OnlineTables,
    Role,
    Swapped,
    confirmed,
    is_copy,
    is_of_gh_ost,
    names_word,
    shadow_of,
)
from unshard.core.ddl.parsed import Ddl, DdlKind
from unshard.core.ddl.queue import WholeChange
from unshard.core.ddl.reconcile import UNKNOWABLE
from unshard.core.ddl.renaming import net_renames
from unshard.core.ddl.statement import read, retarget
from unshard.core.model import TableId, TableSchema, shape_of
from unshard.core.relay.segment import Statement
from unshard.core.rules.filters import Action, Event
from unshard.core.structures.comparison import structure_differences
from unshard.errors.ddl import DdlUnreadable
from unshard.errors.locks import ShardDdlRefused
from unshard.units.ddl.effects import RENAMED_STEP

if TYPE_CHECKING:
    from unshard.adapters.meta.shardrecords import Structures
    from unshard.adapters.targetddl import DdlTrialTables
    from unshard.core.rules.routing import Routing

SWAPPED_STEP = (
    "when all shards have it, replace it by what the target needs; for this shard alone, `unshard replace"
    " --shard … --sql …` with the statement that the tool was given; or skip it"
)
BEGAN_BEFORE = "a tool began to change it online before the task existed, so its statement is unknown"
CHANGED_OTHERWISE = (
    "the statements that a tool ran on its shadow table do not produce the structure of the shadow table"
)
NO_TOOL_SEEN = "a table that looks like the shadow table of a tool replaces it, and no tool has been seen at work on it"
NO_SHADOW = "a table of a tool gets the name of a shard"


class OnlineDdl:
    """Follows the tools of one source; implements `PlanRules.online`."""

    def __init__(
        self,
        rules: OnlineRules,
        trial: "DdlTrialTables",
        structures: "Structures",
        routing: "Routing",
        feeds: Feeds = NO_FEEDS,
    ) -> None:
        self._rules, self._trial, self._structures = rules, trial, structures
        self._routing, self._feeds, self._target_of = routing, feeds, routing.target_of

    def step(self, statement: Statement, present: Mapping[TableId, str], online_tables: OnlineTables) -> OnlineStep:
        found = self._followed(statement, present, online_tables)
        return replace(
            found, apart=found.apart | {online_table.table for online_table in (*online_tables, *found.online_tables)}
        )

    def arrival(self, swapped: Swapped, structure: str) -> Undecided | None:
        """Return an operator's decision if the shadow table differs from the result of the shard's DDL; else None."""
        online_table, statement = swapped.online_table, swapped.statement
        if not (structure and online_table.structure) or shape_of(structure) == shape_of(online_table.structure):
            return None
        schemas = self._structures.get({structure, online_table.structure})
        differences = structure_differences(schemas[structure], schemas[online_table.structure])
        difference = "; ".join(differences) or "indexes, defaults or the order of columns differ"
        why = f"{CHANGED_OTHERWISE if online_table.is_whole else BEGAN_BEFORE} (difference: {difference})"
        reason = str(ShardDdlRefused(str(online_table.real), statement.text, why, SWAPPED_STEP))
        fingerprint = f"online ddl from {shape_of(structure)} to {shape_of(online_table.structure)}"
        return Undecided(online_table.real, reason, statement.text, fingerprint, online_table.structure)

    def _followed(
        self, statement: Statement, present: Mapping[TableId, str], online_tables: OnlineTables
    ) -> OnlineStep:
        try:
            ddl = read(statement.text, statement.sql_mode, statement.schema)
        except DdlUnreadable:
            return self._unreadable(statement, present, online_tables)
        subject = _find(online_tables, ddl.subjects[0]) if ddl.subjects else None
        match ddl.kind:
            case DdlKind.CREATE_TABLE:
                found = self._created(ddl, statement, present, online_tables)
            case DdlKind.ALTER | DdlKind.INDEX | DdlKind.UNSUPPORTED if subject:
                found = self._altered(ddl, statement, present, online_tables, subject)
            case DdlKind.DROP_TABLE:
                found = self._dropped(ddl, statement, present, online_tables)
            case DdlKind.RENAME | DdlKind.ALTER if ddl.renames:
                found = self._renamed(ddl, statement, present, online_tables)
            case DdlKind.DROP_DATABASE | DdlKind.CREATE_DATABASE if ddl.drops:
                found = OnlineStep(tuple(g for g in online_tables if g.table.schema != ddl.database), (statement,))
            case DdlKind.IGNORABLE if online_tables and _makes_trigger(ddl):
                found = OnlineStep(confirmed(online_tables, BY_TRIGGER, lambda g: _fills(statement, g)), (statement,))
            case _:
                found = OnlineStep(online_tables, (statement,))
        return found

    def _unreadable(
        self, statement: Statement, present: Mapping[TableId, str], online_tables: OnlineTables
    ) -> OnlineStep:
        """Remember a statement that names only shadow tables; its effect is determined when it reaches the shard."""
        found = mentions(statement)
        named = set(found.named({online_table.table for online_table in online_tables}))
        if not named or not found.is_certain or changes_rows(statement) or any(found.named(present)):
            return OnlineStep(online_tables, (statement,))
        return OnlineStep(
            tuple(
                _remembering(
                    online_table,
                    replace(statement, text=put_in(found.text, found.of(online_table.table), online_table.real)),
                    "",
                )
                if online_table.table in named
                else online_table
                for online_table in online_tables
            ),
            (),
        )

    def _created(
        self, ddl: Ddl, statement: Statement, present: Mapping[TableId, str], online_tables: OnlineTables
    ) -> OnlineStep:
        (table,) = ddl.subjects
        if _find(online_tables, table) and not ddl.or_replace:
            return OnlineStep(online_tables, ())  # IF NOT EXISTS
        others = _without(online_tables, table)
        if table not in present and (online_table := self._online_table(ddl, statement, present, others)):
            if online_table.seen == BY_GH_OST:
                others = confirmed(others, BY_GH_OST, lambda g: g.real == online_table.real and is_of_gh_ost(g.table))
            return OnlineStep((*others, online_table), ())
        shadow = shadow_of(others, table)
        if shadow is None or not shadow.is_away:
            return OnlineStep(others, (statement,))
        return OnlineStep(_with(others, replace(shadow, is_away=False)), (self._left(table), statement))

    def _online_table(
        self, ddl: Ddl, statement: Statement, present: Mapping[TableId, str], online_tables: OnlineTables
    ) -> OnlineTable | None:
        (table,) = ddl.subjects
        for role, rules in ((Role.SHADOW, self._rules.shadow), (Role.TRASH, self._rules.trash)):
            real = rules.real(table, present)
            if real is None or self._target_of(real) is None:
                continue
            schema = self._structure(ddl, statement, table, present)
            seen = BY_RULE if rules.are_own else ""
            is_changelog = schema is not None and schema.names == CHANGELOG
            if GH_OST.search(statement.text) or is_changelog or _has_changelog(online_tables, real, table):
                seen = BY_GH_OST
            if role is Role.TRASH and seen:
                return OnlineTable(table, real, role, seen, statement.timestamp)
            structure = self._structures.put(schema) if schema else ""
            if role is Role.SHADOW and (ddl.like == real or (schema and is_copy(structure, present[real]))):
                return OnlineTable(table, real, role, seen, statement.timestamp, structure, create=statement)
        return None

    def _structure(
        self, ddl: Ddl, statement: Statement, table: TableId, present: Mapping[TableId, str]
    ) -> TableSchema | None:
        like = present.get(ddl.like, "") if ddl.like else ""
        try:
            return self._trial.effect(self._structures.get({like})[like] if like else None, statement, table)
        except UNKNOWABLE:
            return None

    def _altered(
        self,
        ddl: Ddl,
        statement: Statement,
        present: Mapping[TableId, str],
        online_tables: OnlineTables,
        online_table: OnlineTable,
    ) -> OnlineStep:
        if online_table.role is Role.SHADOW and not _only_numbers(ddl, statement):
            online_tables = _with(online_tables, self._remembered(online_table, ddl, statement))
        return self._renamed(ddl, statement, present, online_tables) if ddl.renames else OnlineStep(online_tables, ())

    def _remembered(self, online_table: OnlineTable, ddl: Ddl, statement: Statement) -> OnlineTable:
        own = replace(statement, text=retarget(ddl, {online_table.table: online_table.real}))
        if not online_table.structure or ddl.kind is DdlKind.UNSUPPORTED:
            return _remembering(online_table, own, "")
        before = self._structures.get({online_table.structure})[online_table.structure]
        try:
            return _remembering(
                online_table, own, self._structures.put(self._trial.effect(before, own, online_table.real))
            )
        except UNKNOWABLE:
            return _remembering(online_table, own, "")

    def _dropped(
        self, ddl: Ddl, statement: Statement, present: Mapping[TableId, str], online_tables: OnlineTables
    ) -> OnlineStep:
        """Follow a DROP: a table with a shadow table is about to be replaced; without a shadow table it has left."""
        dropped = set(ddl.subjects)
        gone = tuple(g for g in online_tables if g.table in dropped)
        left = tuple(g for g in online_tables if g.table not in dropped)
        kept = {g.real for g in online_tables if g.role is Role.TRASH}  # the shard was renamed, not dropped
        left_shards = tuple(Leaves(g.real) if g.real in kept else self._left(g.real) for g in gone if g.is_away)
        away = {g.real: g for table in ddl.subjects if table in present and (g := shadow_of(left, table))}
        for shadow in away.values():
            left = _with(left, replace(shadow, is_away=True))
        rest = () if dropped <= {g.table for g in gone} | away.keys() else (statement,)
        return OnlineStep(left, (*left_shards, *rest), frozenset(away))

    def _left(self, real: TableId) -> Leaves:
        """Return the effect on a shard that was dropped or renamed and is created again without its shadow table."""
        target = self._target_of(real)
        if target is None or self._routing.events.judge(real, Event(("drop table",))).action is not Action.DO:
            return Leaves(real)
        whole = WholeChange.DROP if self._feeds.is_single(target) else WholeChange.NONE
        return Leaves(real, whole, self._feeds.removes_rows)

    def _renamed(
        self, ddl: Ddl, statement: Statement, present: Mapping[TableId, str], online_tables: OnlineTables
    ) -> OnlineStep:
        moved = net_renames(ddl.renames)
        names = {new: old for old, new in moved.items()}
        happens: list[Effect | Swapped] = []
        consumed: set[TableId] = set()
        for online_table in online_tables:
            new = moved.get(online_table.table)
            if new is None:
                continue
            online_tables = _without(online_tables, online_table.table)
            if new == online_table.real and self._is_swap(online_table, moved):
                happens.append(Swapped(online_table, statement))
                online_tables = (
                    *online_tables,
                    *self._trash(online_table.real, moved.get(online_table.real), statement),
                )
                consumed |= {online_table.table, online_table.real, moved.get(online_table.real, online_table.real)}
            elif online_table.role is Role.TRASH and (shadow := shadow_of(online_tables, new)) and shadow.is_away:
                online_tables = _with(online_tables, replace(shadow, is_away=False))
                consumed |= {online_table.table, new}
            elif self._target_of(new) is not None and new not in consumed:
                why = NO_SHADOW if online_table.seen else NO_TOOL_SEEN
                reason = str(ShardDdlRefused(str(new), ddl.text, why, RENAMED_STEP))
                happens.append(Undecided(new, reason, ddl.text, ddl.text, is_new=True))
        for shadow in _moved_away(online_tables, moved, names):
            trash = self._trash(shadow.real, moved[shadow.real], statement)
            if trash:
                online_tables = (*_with(online_tables, replace(shadow, is_away=True)), *trash)
                consumed |= {shadow.real, moved[shadow.real]}
        rest = () if moved.keys() <= consumed else (statement,)
        return OnlineStep(online_tables, (*rest, *happens), frozenset(consumed))

    def _is_swap(self, online_table: OnlineTable, moved: Mapping[TableId, TableId]) -> bool:
        """Whether a table that gets its shard's name is the shard's shadow table, and the old one is gone for good."""
        if online_table.role is not Role.SHADOW or not online_table.seen:
            return False
        old = moved.get(online_table.real)
        return (
            online_table.is_away
            if old is None
            else self._is_trash(online_table.real, old) or self._target_of(old) is None
        )

    def _is_trash(self, real: TableId, table: TableId) -> bool:
        return self._rules.trash.real(table, (real,)) == real

    def _trash(self, real: TableId, table: TableId | None, statement: Statement) -> OnlineTables:
        is_trash = table is not None and self._is_trash(real, table)
        return (OnlineTable(table, real, Role.TRASH, BY_SWAP, statement.timestamp),) if table and is_trash else ()


def _find(online_tables: Iterable[OnlineTable], table: TableId) -> OnlineTable | None:
    return next((online_table for online_table in online_tables if online_table.table == table), None)


def _without(online_tables: OnlineTables, table: TableId) -> OnlineTables:
    return tuple(online_table for online_table in online_tables if online_table.table != table)


def _with(online_tables: OnlineTables, changed: OnlineTable) -> OnlineTables:
    return tuple(changed if online_table.table == changed.table else online_table for online_table in online_tables)


def _remembering(online_table: OnlineTable, statement: Statement, structure: str) -> OnlineTable:
    if online_table.role is Role.TRASH:
        return online_table
    return replace(online_table, statements=(*online_table.statements, statement), structure=structure)


def _has_changelog(online_tables: OnlineTables, real: TableId, table: TableId) -> bool:
    return is_of_gh_ost(table) and any(g.real == real and g.seen == BY_GH_OST for g in online_tables)


def _only_numbers(ddl: Ddl, statement: Statement) -> bool:
    parts = parts_of(ddl, statement.sql_mode)
    return bool(parts) and all("rebase auto id" in part.event.names for part in parts)


def _makes_trigger(ddl: Ddl) -> bool:
    return ddl.text[:6].upper() == "CREATE" and names_word(ddl.text.upper(), "TRIGGER")


def _fills(statement: Statement, online_table: OnlineTable) -> bool:
    """Whether a trigger names both the shard and the table that looks like its shadow table."""
    return set(mentions(statement).named({online_table.table, online_table.real})) == {
        online_table.table,
        online_table.real,
    }


def _moved_away(
    online_tables: OnlineTables, moved: Mapping[TableId, TableId], names: Mapping[TableId, TableId]
) -> tuple[OnlineTable, ...]:
    """Return the shadow tables whose shard is renamed while no table takes over the shard's name."""
    found = (shadow_of(online_tables, real) for real in moved if real not in names)
    return tuple(shadow for shadow in found if shadow and not shadow.is_away)
