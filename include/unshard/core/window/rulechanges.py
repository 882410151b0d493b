"""The stored rules of a source, and the effect of changed rules on its shards.

| the new rules                                        | result                                                  |
|------------------------------------------------------|---------------------------------------------------------|
| send a shard to another target                       | refused: its rows are in the old one                    |
| map or extract other values of a shard               | refused: its rows in the target have the old ones       |
| follow a DDL that renames a mapped column            | taken at once: the values are mapped as before          |
| leave a shard out                                    | it leaves its group; its rows in the target stay        |
| leave out other rows or DDL of a shard               | from the checkpoint on                                  |
| take a table that exists                             | it is loaded by itself, and joins its group             |
| know other tables as those of online DDL tools       | refused while a tool fills a shadow; then from the      |
|                                                      | checkpoint on, for migrations that begin there          |

New rules are refused while a DDL of a concerned group is pending or rows of the group are held, because these were
queued and held by the old rules.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from unshard.core.codec import dumps
from unshard.core.ddl.online import DEFAULT_RULES, OnlineRules
from unshard.core.ddl.queue import ShardState
from unshard.core.model import TableId, TableSchema
from unshard.core.rules.columnmapping import Mapped, MappingRule
from unshard.core.rules.filters import EventFilter, EventRule, RowFilter
from unshard.core.rules.reshaping import Reshaping
from unshard.core.rules.routing import BlockAllowList, RouteRule, Routing


@dataclass(frozen=True, slots=True)
class Rules:
    """All rules of one source, compiled; can be written and read back."""

    routes: tuple[RouteRule, ...]
    allowed: BlockAllowList
    mappings: tuple[MappingRule, ...]
    events: tuple[EventRule, ...]
    filters: tuple[RowFilter, ...]
    online: OnlineRules | None = DEFAULT_RULES
    """They recognise the tables of online DDL tools; None: these are treated like other tables."""


def rules_of(routing: Routing, online: OnlineRules | None) -> Rules:
    """Return the rules of a source as they are stored."""
    return Rules(routing.rules, routing.allowed, routing.mappings, routing.events.rules, routing.filters, online)


def digest_of(routing: Routing, online: OnlineRules | None) -> str:
    """Return a digest that is equal for equal rules."""
    return hashlib.sha256(f"{routing.digest} {dumps(online)}".encode()).hexdigest()[:32]


def routing_of(rules: Rules, like: Routing) -> Routing:
    """Return the routing of the same source by other rules."""
    return Routing(
        rules.routes,
        rules.allowed,
        like.meta_schema,
        like.source,
        rules.mappings,
        EventFilter(rules.events),
        rules.filters,
    )


@dataclass(frozen=True, slots=True)
class Revision:
    """The changes that new rules make to the shards of a source."""

    moved: tuple[tuple[ShardState, TableId], ...] = ()
    reshaped: tuple[ShardState, ...] = ()
    out: tuple[ShardState, ...] = ()
    filtered: tuple[ShardState, ...] = ()

    @property
    def targets(self) -> frozenset[TableId]:
        return frozenset(state.target for state in (*self.out, *self.filtered))

    @property
    def spoiled(self) -> tuple[str, ...]:
        """Changes that contradict rows in the target, one sentence each; they are refused."""
        moved = (f"{state.shard} goes to {state.target}, and would go to {to}" for state, to in self.moved)
        return (*moved, *(f"values of {state.shard} are mapped or extracted otherwise" for state in self.reshaped))

    @property
    def told(self) -> tuple[str, ...]:
        out = (f"{state.shard} leaves {state.target}, its rows stay there" for state in self.out)
        return (*out, *(f"other changes of {state.shard} are left out" for state in self.filtered))


def revise(old: Routing, new: Routing, shards: Iterable[ShardState], schemas: Mapping[str, TableSchema]) -> Revision:
    """Compare two routings of a source for its shards; `schemas` has the structures by their digests."""
    moved, reshaped, out, filtered = [], [], [], []
    for state in shards:
        table = state.shard.table
        target = new.target_of(table)
        if target is None:
            out.append(state)
            continue
        if old.target_of(table) is None:
            continue  # an attempt added it and died before it stored the new rules
        before, after = old.reshaping(table), new.reshaping(table)
        if target != state.target:
            moved.append((state, target))
        elif _follows_rename(before, after, schemas.get(state.structure)):
            continue
        elif _by_name(before) != _by_name(after):
            reshaped.append(state)
        elif before != after or old.events != new.events:
            filtered.append(state)
    return Revision(tuple(moved), tuple(reshaped), tuple(out), tuple(filtered))


def _follows_rename(before: Reshaping, after: Reshaping, schema: TableSchema | None) -> bool:
    """Whether only names of mapped columns differ, and the shard does not have both names: then it was renamed.

    Later rows of a shard without the new column are refused (MappedColumnMissing).
    """
    if len(before.mapped) != len(after.mapped) or replace(before, mapped=()) != replace(after, mapped=()):
        return False
    there = schema.by_name.keys() if schema else set[str]()
    pairs = [(one, two) for one, two in zip(before.mapped, after.mapped, strict=True) if one.column != two.column]
    alike = all(_of_column(one, "") == _of_column(two, "") for one, two in pairs)
    names = [name for one, two in pairs for name in ((one.source, two.source), (one.column, two.column))]
    return (
        bool(pairs)
        and alike
        and not any(old.lower() != new.lower() and {old.lower(), new.lower()} <= there for old, new in names)
    )


def _of_column(mapped: Mapped, name: str) -> Mapped:
    return replace(mapped, rule="", source=name, column=name)


def _by_name(reshaping: Reshaping) -> tuple[object, ...]:
    """Return how values are mapped, without the names of the rules."""
    return reshaping.extracted, tuple(replace(mapped, rule="") for mapped in reshaping.mapped)
