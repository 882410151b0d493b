"""Find the shards of a source: its base tables that pass the block-allow list and the routes, with their targets.

Runs in the driver.
"""

import contextlib
from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass

from pymysql.connections import Connection

from unshard.adapters import structures
from unshard.config import Instance
from unshard.core.ddl.online import (
    BY_GH_OST,
    BY_RULE,
    BY_TRIGGER,
    CHANGELOG,
    DEFAULT_RULES,
    OnlineTable,
    OnlineTables,
    Role,
    is_of_gh_ost,
    names_word,
)
from unshard.core.model import TableId
from unshard.core.rules.routing import idle_rules
from unshard.errors import UnshardError
from unshard.errors.config import RouteAmbiguous


@dataclass(frozen=True, slots=True)
class FoundShards:
    """The tables of one source: shards, and problems of their routes."""

    targets: Mapping[TableId, TableId]
    engines: Mapping[TableId, str]
    problems: tuple[UnshardError, ...]
    """One error per table that the routes do not send to exactly one target."""
    seen: int
    """Number of tables that the account may see."""
    idle: Mapping[str, bool]
    """Routes and list entries, and whether each matches none of these tables."""
    sequences: tuple[TableId, ...] = ()
    online_tables: OnlineTables = ()
    """Tables of online-DDL tools; they are not shards."""
    doubtful: tuple[tuple[TableId, TableId], ...] = ()
    """Shards with names like shadow tables of other shards, with those shards; no tool is seen at work on them."""


def find_shards(connection: Connection, instance: Instance, recorded: Container[TableId] = ()) -> FoundShards:
    """List the source's tables and route each of them; tables in `recorded` are shards, independent of their names."""
    targets: dict[TableId, TableId] = {}
    problems: list[UnshardError] = []
    engines = structures.read_engines(connection)
    for table in engines:
        try:
            target = instance.routing.target_of(table)
        except UnshardError as error:
            problems.append(error)
            continue
        if target is not None:
            targets[table] = target
    online_tables, doubtful = _online_tables(connection, instance, engines.keys(), targets, recorded)
    for online_table in online_tables:
        targets.pop(online_table.table, None)
    return FoundShards(
        targets,
        {table: engines[table] for table in targets},
        tuple(problems),
        len(engines),
        idle_rules(instance.routing, engines),
        _sequences(connection, instance),
        online_tables,
        tuple((table, real) for table, real in doubtful if table in targets),
    )


def _online_tables(
    connection: Connection,
    instance: Instance,
    tables: Iterable[TableId],
    shards: Collection[TableId],
    recorded: Container[TableId],
) -> tuple[OnlineTables, list[tuple[TableId, TableId]]]:
    rules = instance.online
    if rules is None:
        looks = ((table, DEFAULT_RULES.shadow.real(table, shards)) for table in tables)
        return (), [(table, real) for table, real in looks if real]
    named = [table for table in tables if table not in recorded]
    shadows = {table: real for table in named if (real := rules.shadow.real(table, shards))}
    trash = {table: real for table in named if table not in shadows and (real := rules.trash.real(table, shards))}
    seen = dict.fromkeys(shadows, BY_RULE) if rules.shadow.are_own else _at_work(connection, shadows, trash)
    found = [OnlineTable(table, shadows[table], Role.SHADOW, by, is_whole=False) for table, by in seen.items()]
    found += [OnlineTable(table, real, Role.TRASH, BY_RULE) for table, real in trash.items()]
    return tuple(found), [(table, real) for table, real in shadows.items() if table not in seen]


def _at_work(
    connection: Connection, shadows: Mapping[TableId, TableId], trash: Mapping[TableId, TableId]
) -> dict[TableId, str]:
    """Return the shadow tables that a trigger of their shard fills, or that have a changelog of gh-ost."""
    if not shadows:
        return {}
    triggers = structures.read_triggers(connection, {table.schema for table in shadows})
    logged = {real for table, real in trash.items() if structures.column_names(connection, table) == CHANGELOG}
    filled = {
        table: BY_TRIGGER
        for table, real in shadows.items()
        if any(names_word(body, table.name) for body in triggers.get(real, ()))
    }
    return {table: BY_GH_OST for table, real in shadows.items() if real in logged and is_of_gh_ost(table)} | filled


def _sequences(connection: Connection, instance: Instance) -> tuple[TableId, ...]:
    """List the sequences that lists and routes accept; a sequence that matches several routes is harmless here."""
    found = []
    for table in sorted(structures.read_sequences(connection)):
        with contextlib.suppress(RouteAmbiguous):
            found += [table] if instance.routing.target_of(table) is not None else []
    return tuple(found)
