"""Find the shards of a source: its base tables that pass list and routes, and where each one goes."""

import contextlib
from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass

from pymysql.connections import Connection

from unshard.adapters import mysql, structures
from unshard.config import Instance
from unshard.core.idlerules import idle_rules
from unshard.core.model import TableId
from unshard.core.online import (
    BY_GH_OST,
    BY_RULE,
    BY_TRIGGER,
    CHANGELOG,
    DEFAULT_RULES,
    Ghost,
    Ghosts,
    Role,
    is_of_gh_ost,
    names_word,
)
from unshard.errors import UnshardError
from unshard.errors.config import RouteAmbiguous

SYSTEM_SCHEMAS = ("mysql", "sys", "information_schema", "performance_schema", "metrics_schema")


@dataclass(frozen=True, slots=True)
class Found:
    """The tables of one source, sorted into shards and routing problems."""

    targets: Mapping[TableId, TableId]
    """Target of every shard."""
    engines: Mapping[TableId, str]
    problems: tuple[UnshardError, ...]
    """One per table that the routes do not send to exactly one place."""
    seen: int
    """Tables that the account may see."""
    idle: Mapping[str, bool]
    """Routes and entries of lists, and whether they match none of these tables."""
    sequences: tuple[TableId, ...] = ()
    """Sequences that would be shards if they were tables."""
    ghosts: Ghosts = ()
    """Tables of tools that change shards online; they are no shards."""
    doubtful: tuple[tuple[TableId, TableId], ...] = ()
    """Shards that are called like shadows of others, with those, and no tool is seen at work on them."""


def find_shards(connection: Connection, instance: Instance, recorded: Container[TableId] = ()) -> Found:
    """List the source's tables and route each of them; `recorded` are known to be shards, whatever they are called."""
    rows = mysql.query(connection, (
        "SELECT TABLE_SCHEMA, TABLE_NAME, COALESCE(ENGINE, '') FROM information_schema.TABLES"  # noqa: S608
        " WHERE TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED')"
        f" AND TABLE_SCHEMA NOT IN ({', '.join(['%s'] * len(SYSTEM_SCHEMAS))}) ORDER BY 1, 2"
    ), SYSTEM_SCHEMAS)  # fmt: skip
    targets: dict[TableId, TableId] = {}
    problems: list[UnshardError] = []
    engines = {TableId(schema, name): engine for schema, name, engine in rows}
    for table in engines:
        try:
            target = instance.routing.target_of(table)
        except UnshardError as error:
            problems.append(error)
            continue
        if target is not None:
            targets[table] = target
    ghosts, doubtful = _ghosts(connection, instance, engines.keys(), targets, recorded)
    for ghost in ghosts:
        targets.pop(ghost.table, None)
    return Found(targets, {table: engines[table] for table in targets}, tuple(problems), len(rows),
                 idle_rules(instance.routing, engines), _sequences(connection, instance), ghosts,
                 tuple((table, real) for table, real in doubtful if table in targets))  # fmt: skip


def _ghosts(connection: Connection, instance: Instance, tables: Iterable[TableId], shards: Collection[TableId],
            recorded: Container[TableId]) -> tuple[Ghosts, list[tuple[TableId, TableId]]]:  # fmt: skip
    """Return the tables of tools, and those that only their names make shadows."""
    rules = instance.online
    if rules is None:
        looks = ((table, DEFAULT_RULES.shadow.real(table, shards)) for table in tables)
        return (), [(table, real) for table, real in looks if real]
    named = [table for table in tables if table not in recorded]
    shadows = {table: real for table in named if (real := rules.shadow.real(table, shards))}
    trash = {table: real for table in named if table not in shadows and (real := rules.trash.real(table, shards))}
    seen = dict.fromkeys(shadows, BY_RULE) if rules.shadow.are_own else _at_work(connection, shadows, trash)
    found = [Ghost(table, shadows[table], Role.SHADOW, by, is_whole=False) for table, by in seen.items()]
    found += [Ghost(table, real, Role.TRASH, BY_RULE) for table, real in trash.items()]
    return tuple(found), [(table, real) for table, real in shadows.items() if table not in seen]


def _at_work(connection: Connection, shadows: Mapping[TableId, TableId],
             trash: Mapping[TableId, TableId]) -> dict[TableId, str]:  # fmt: skip
    """Return the shadows that a trigger of their shard fills, or beside which gh-ost keeps its log."""
    if not shadows:
        return {}
    triggers = structures.read_triggers(connection, {table.schema for table in shadows})
    logged = {real for table, real in trash.items() if structures.column_names(connection, table) == CHANGELOG}
    filled = {table: BY_TRIGGER for table, real in shadows.items()
              if any(names_word(body, table.name) for body in triggers.get(real, ()))}  # fmt: skip
    return {table: BY_GH_OST for table, real in shadows.items() if real in logged and is_of_gh_ost(table)} | filled


def _sequences(connection: Connection, instance: Instance) -> tuple[TableId, ...]:
    """List what lists and routes take and is no table; a name that several routes want does no harm here."""
    found = []
    for table in sorted(structures.read_sequences(connection)):
        with contextlib.suppress(RouteAmbiguous):
            found += [table] if instance.routing.target_of(table) is not None else []
    return tuple(found)
