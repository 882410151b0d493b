"""What gh-ost and pt-online-schema-change do, statement by statement.

| the statement                                     | here                                                         |
|---------------------------------------------------|--------------------------------------------------------------|
| CREATE TABLE `_t_new`, a copy of shard t          | `_t_new` is watched (core.online); a second one begins anew  |
| CREATE TRIGGER on t that names `_t_new`           | it is a shadow of pt-osc                                     |
| CREATE TABLE `_t_ghc`, `_t_del` by gh-ost         | they are trash                                               |
| ALTER TABLE `_t_gho`, CREATE INDEX ON `_t_gho`    | is remembered as a DDL of t                                  |
| ALTER TABLE `_t_gho` AUTO_INCREMENT = n           | is gh-ost's own affair: it differs from shard to shard       |
| RENAME t TO `_t_old`, `_t_new` TO t               | cut-over: t has what is remembered; `_t_old` is trash        |
| RENAME t TO `_t_del`; RENAME `_t_gho` TO t        | the same in two statements; in between t is away             |
| RENAME t TO `_t_del`; RENAME `_t_del` TO t        | nothing happened                                             |
| DROP TABLE t; RENAME `_t_new` TO t                | cut-over (pt-osc's drop_swap)                                |
| DROP TABLE t or RENAME away; DROP TABLE `_t_new`  | t leaves its group with the second one                       |
| DROP TABLE `_t_new`                               | given up: forgotten                                          |
| RENAME `_t_new` TO t, and no tool has been seen   | waits for an operator: which rows t has now, nobody can tell |
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from unshard.core.alike import structure_differences
from unshard.core.ddl import Ddl, DdlKind, read, retarget
from unshard.core.ddlevents import parts_of
from unshard.core.ddlnames import changes_rows, mentions, put_in
from unshard.core.effects import Effect, Leaves, Undecided
from unshard.core.model import TableId, TableSchema, shape_of
from unshard.core.online import (
    BY_GH_OST,
    BY_RULE,
    BY_SWAP,
    BY_TRIGGER,
    CHANGELOG,
    GH_OST,
    Ghost,
    Ghosts,
    OnlineRules,
    Role,
    Step,
    Swapped,
    confirmed,
    is_copy,
    is_of_gh_ost,
    names_word,
    shadow_of,
)
from unshard.core.renaming import net_renames
from unshard.core.segment import Statement
from unshard.core.settling import UNKNOWABLE
from unshard.errors.ddl import DdlUnreadable
from unshard.errors.shardddl import ShardDdlRefused
from unshard.units.effects import RENAMED_STEP, Routes, Shadow, Structures

SWAPPED_STEP = (
    "when all shards have it, replace it by what the target needs; for this shard alone, `unshard replace"
    " --shard … --sql …` with the statement that the tool was given; or skip it"
)
BEGAN_BEFORE = "a tool had begun to change it online before the task was there, so its statement is not known"
CHANGED_BESIDE = "what a tool ran on its shadow does not lead from its structure to that of the shadow"
NO_TOOL_SEEN = "a table that looks like the shadow of a tool takes its place, and no tool has been seen at work on it"
NO_SHADOW = "a table of a tool gets the name of a shard"


class OnlineDdl:
    """Follows the tools of one source; fits as `PlanRules.online`."""

    def __init__(self, rules: OnlineRules, shadow: Shadow, structures: Structures, routing: Routes) -> None:
        self._rules, self._shadow, self._structures = rules, shadow, structures
        self._target_of = routing.target_of

    def step(self, statement: Statement, present: Mapping[TableId, str], ghosts: Ghosts) -> Step:
        """Return what the statement means; see the table above."""
        found = self._followed(statement, present, ghosts)
        return replace(found, apart=found.apart | {ghost.table for ghost in (*ghosts, *found.ghosts)})

    def arrival(self, swapped: Swapped, structure: str) -> Undecided | None:
        """Return what an operator must decide if the shadow differs from what the shard's DDL has made of it."""
        ghost, statement = swapped.ghost, swapped.statement
        if not (structure and ghost.structure) or shape_of(structure) == shape_of(ghost.structure):
            return None
        schemas = self._structures.get({structure, ghost.structure})
        differences = structure_differences(schemas[structure], schemas[ghost.structure])
        told = "; ".join(differences) or "indexes, defaults or the order of columns differ"
        why = f"{CHANGED_BESIDE if ghost.is_whole else BEGAN_BEFORE} (before and behind it: {told})"
        reason = str(ShardDdlRefused(str(ghost.real), statement.text, why, SWAPPED_STEP))
        agreement = f"online ddl from {shape_of(structure)} to {shape_of(ghost.structure)}"
        return Undecided(ghost.real, reason, statement.text, agreement, ghost.structure)

    def _followed(self, statement: Statement, present: Mapping[TableId, str], ghosts: Ghosts) -> Step:
        try:
            ddl = read(statement.text, statement.sql_mode, statement.schema)
        except DdlUnreadable:
            return self._unreadable(statement, present, ghosts)
        subject = _find(ghosts, ddl.subjects[0]) if ddl.subjects else None
        match ddl.kind:
            case DdlKind.CREATE_TABLE:
                found = self._created(ddl, statement, present, ghosts)
            case DdlKind.ALTER | DdlKind.INDEX | DdlKind.UNSUPPORTED if subject:
                found = self._altered(ddl, statement, present, ghosts, subject)
            case DdlKind.DROP_TABLE:
                found = self._dropped(ddl, statement, present, ghosts)
            case DdlKind.RENAME | DdlKind.ALTER if ddl.renames:
                found = self._renamed(ddl, statement, present, ghosts)
            case DdlKind.DROP_DATABASE | DdlKind.CREATE_DATABASE if ddl.drops:
                found = Step(tuple(g for g in ghosts if g.table.schema != ddl.database), (statement,))
            case DdlKind.IGNORABLE if ghosts and _makes_trigger(ddl):
                found = Step(confirmed(ghosts, BY_TRIGGER, lambda g: _fills(statement, g)), (statement,))
            case _:
                found = Step(ghosts, (statement,))
        return found

    def _unreadable(self, statement: Statement, present: Mapping[TableId, str], ghosts: Ghosts) -> Step:
        """A statement that names shadows only is remembered; what it means is asked where it happens to the shard."""
        found = mentions(statement)
        named = set(found.named({ghost.table for ghost in ghosts}))
        if not named or not found.is_certain or changes_rows(statement) or any(found.named(present)):
            return Step(ghosts, (statement,))
        return Step(tuple(
            _remembering(ghost, replace(statement, text=put_in(found.text, found.of(ghost.table), ghost.real)), "")
            if ghost.table in named else ghost for ghost in ghosts
        ), ())  # fmt: skip

    def _created(self, ddl: Ddl, statement: Statement, present: Mapping[TableId, str], ghosts: Ghosts) -> Step:
        (table,) = ddl.subjects
        if _find(ghosts, table) and not ddl.or_replace:
            return Step(ghosts, ())  # IF NOT EXISTS
        others = _without(ghosts, table)
        if table not in present and (ghost := self._ghost(ddl, statement, present, others)):
            if ghost.seen == BY_GH_OST:
                others = confirmed(others, BY_GH_OST, lambda g: g.real == ghost.real and is_of_gh_ost(g.table))
            return Step((*others, ghost), ())
        shadow = shadow_of(others, table)
        if shadow is None or not shadow.is_away:
            return Step(others, (statement,))
        return Step(_with(others, replace(shadow, is_away=False)), (Leaves(table), statement))

    def _ghost(self, ddl: Ddl, statement: Statement, present: Mapping[TableId, str], ghosts: Ghosts) -> Ghost | None:
        (table,) = ddl.subjects
        for role, rules in ((Role.SHADOW, self._rules.shadow), (Role.TRASH, self._rules.trash)):
            real = rules.real(table, present)
            if real is None or self._target_of(real) is None:
                continue
            schema = self._structure(ddl, statement, table, present)
            seen = BY_RULE if rules.are_own else ""
            if GH_OST.search(statement.text) or _is_changelog(schema) or _has_changelog(ghosts, real, table):
                seen = BY_GH_OST
            if role is Role.TRASH and seen:
                return Ghost(table, real, role, seen, statement.timestamp)
            structure = self._structures.put(schema) if schema else ""
            if role is Role.SHADOW and (ddl.like == real or (schema and is_copy(structure, present[real]))):
                return Ghost(table, real, role, seen, statement.timestamp, structure, create=statement)
        return None

    def _structure(self, ddl: Ddl, statement: Statement, table: TableId,
                   present: Mapping[TableId, str]) -> TableSchema | None:  # fmt: skip
        like = present.get(ddl.like, "") if ddl.like else ""
        try:
            return self._shadow.effect(self._structures.get({like})[like] if like else None, statement, table)
        except UNKNOWABLE:
            return None

    def _altered(self, ddl: Ddl, statement: Statement, present: Mapping[TableId, str], ghosts: Ghosts,
                 ghost: Ghost) -> Step:  # fmt: skip
        if ghost.role is Role.SHADOW and not _only_numbers(ddl, statement):
            ghosts = _with(ghosts, self._remembered(ghost, ddl, statement))
        return self._renamed(ddl, statement, present, ghosts) if ddl.renames else Step(ghosts, ())

    def _remembered(self, ghost: Ghost, ddl: Ddl, statement: Statement) -> Ghost:
        own = replace(statement, text=retarget(ddl, {ghost.table: ghost.real}))
        if not ghost.structure or ddl.kind is DdlKind.UNSUPPORTED:
            return _remembering(ghost, own, "")
        before = self._structures.get({ghost.structure})[ghost.structure]
        try:
            return _remembering(ghost, own, self._structures.put(self._shadow.effect(before, own, ghost.real)))
        except UNKNOWABLE:
            return _remembering(ghost, own, "")

    def _dropped(self, ddl: Ddl, statement: Statement, present: Mapping[TableId, str], ghosts: Ghosts) -> Step:
        """A real table that is dropped beside its shadow is about to be replaced; without a shadow it has left."""
        dropped = set(ddl.subjects)
        gone = tuple(g for g in ghosts if g.table in dropped)
        left = tuple(g for g in ghosts if g.table not in dropped)
        leaving = tuple(Leaves(g.real) for g in gone if g.is_away)
        away = {g.real: g for table in ddl.subjects if table in present and (g := shadow_of(left, table))}
        for shadow in away.values():
            left = _with(left, replace(shadow, is_away=True))
        rest = () if dropped <= {g.table for g in gone} | away.keys() else (statement,)
        return Step(left, (*leaving, *rest), frozenset(away))

    def _renamed(self, ddl: Ddl, statement: Statement, present: Mapping[TableId, str], ghosts: Ghosts) -> Step:
        moved = net_renames(ddl.renames)
        names = {new: old for old, new in moved.items()}
        happens: list[Effect | Swapped] = []
        consumed: set[TableId] = set()
        for ghost in ghosts:
            new = moved.get(ghost.table)
            if new is None:
                continue
            ghosts = _without(ghosts, ghost.table)
            if new == ghost.real and self._is_swap(ghost, moved):
                happens.append(Swapped(ghost, statement))
                ghosts = (*ghosts, *self._trash(ghost.real, moved.get(ghost.real), statement))
                consumed |= {ghost.table, ghost.real, moved.get(ghost.real, ghost.real)}
            elif ghost.role is Role.TRASH and (shadow := shadow_of(ghosts, new)) and shadow.is_away:
                ghosts = _with(ghosts, replace(shadow, is_away=False))
                consumed |= {ghost.table, new}
            elif self._target_of(new) is not None and new not in consumed:
                happens.append(_strange(ghost, new, ddl))
        for shadow in _left_alone(ghosts, moved, names):
            trash = self._trash(shadow.real, moved[shadow.real], statement)
            if trash:
                ghosts = (*_with(ghosts, replace(shadow, is_away=True)), *trash)
                consumed |= {shadow.real, moved[shadow.real]}
        rest = () if moved.keys() <= consumed else (statement,)
        return Step(ghosts, (*rest, *happens), frozenset(consumed))

    def _is_swap(self, ghost: Ghost, moved: Mapping[TableId, TableId]) -> bool:
        """Whether a table that gets its shard's name is its shadow, and what was there has gone for good."""
        if ghost.role is not Role.SHADOW or not ghost.seen:
            return False
        old = moved.get(ghost.real)
        return ghost.is_away if old is None else self._is_trash(ghost.real, old) or self._target_of(old) is None

    def _is_trash(self, real: TableId, table: TableId) -> bool:
        return self._rules.trash.real(table, (real,)) == real

    def _trash(self, real: TableId, table: TableId | None, statement: Statement) -> Ghosts:
        is_one = table is not None and self._is_trash(real, table)
        return (Ghost(table, real, Role.TRASH, BY_SWAP, statement.timestamp),) if table and is_one else ()


def _find(ghosts: Iterable[Ghost], table: TableId) -> Ghost | None:
    return next((ghost for ghost in ghosts if ghost.table == table), None)


def _without(ghosts: Ghosts, table: TableId) -> Ghosts:
    return tuple(ghost for ghost in ghosts if ghost.table != table)


def _with(ghosts: Ghosts, changed: Ghost) -> Ghosts:
    return tuple(changed if ghost.table == changed.table else ghost for ghost in ghosts)


def _remembering(ghost: Ghost, statement: Statement, structure: str) -> Ghost:
    if ghost.role is Role.TRASH:
        return ghost
    return replace(ghost, statements=(*ghost.statements, statement), structure=structure)


def _is_changelog(schema: TableSchema | None) -> bool:
    return schema is not None and schema.names == CHANGELOG


def _has_changelog(ghosts: Ghosts, real: TableId, table: TableId) -> bool:
    return is_of_gh_ost(table) and any(g.real == real and g.seen == BY_GH_OST for g in ghosts)


def _only_numbers(ddl: Ddl, statement: Statement) -> bool:
    """Whether an ALTER TABLE sets nothing but where numbering goes on."""
    parts = parts_of(ddl, statement.sql_mode)
    return bool(parts) and all("rebase auto id" in part.event.names for part in parts)


def _makes_trigger(ddl: Ddl) -> bool:
    return ddl.text[:6].upper() == "CREATE" and names_word(ddl.text.upper(), "TRIGGER")


def _fills(statement: Statement, ghost: Ghost) -> bool:
    """Whether a trigger names both the shard and what looks like its shadow."""
    return set(mentions(statement).named({ghost.table, ghost.real})) == {ghost.table, ghost.real}


def _left_alone(
    ghosts: Ghosts, moved: Mapping[TableId, TableId], names: Mapping[TableId, TableId]
) -> tuple[Ghost, ...]:
    """Return the shadows whose shard gets another name, and nothing gets its."""
    found = (shadow_of(ghosts, real) for real in moved if real not in names)
    return tuple(shadow for shadow in found if shadow and not shadow.is_away)


def _strange(ghost: Ghost, new: TableId, ddl: Ddl) -> Undecided:
    why = NO_SHADOW if ghost.seen else NO_TOOL_SEEN
    reason = str(ShardDdlRefused(str(new), ddl.text, why, RENAMED_STEP))
    return Undecided(new, reason, ddl.text, ddl.text, is_new=True)
