"""Find the shards of a source: its base tables that pass list and routes, and where each one goes."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass

from pymysql.connections import Connection

from unshard.adapters import mysql, structures
from unshard.config import Instance
from unshard.core.idlerules import idle_rules
from unshard.core.model import TableId
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


def find_shards(connection: Connection, instance: Instance) -> Found:
    """List the source's tables and route each of them."""
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
    return Found(targets, {table: engines[table] for table in targets}, tuple(problems), len(rows),
                 idle_rules(instance.routing, engines), _sequences(connection, instance))  # fmt: skip


def _sequences(connection: Connection, instance: Instance) -> tuple[TableId, ...]:
    """List what lists and routes take and is no table; a name that several routes want does no harm here."""
    found = []
    for table in sorted(structures.read_sequences(connection)):
        with contextlib.suppress(RouteAmbiguous):
            found += [table] if instance.routing.target_of(table) is not None else []
    return tuple(found)
