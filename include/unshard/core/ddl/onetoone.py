"""One-to-one targets: target tables that one shard feeds, so that statements about the whole table are replicated.

TRUNCATE, DROP and RENAME TABLE of a shard must not touch the rows of other shards. So they are executed on the target
only if the shard is the only one, and no other can come:

| the routes                                                  | the target is one-to-one                          |
|-------------------------------------------------------------|---------------------------------------------------|
| a pattern of a route may bring several tables to the target | no                                                |
| a route fills columns of the target from the shard's name   | no                                                |
| one table of one source can come to the target              | yes, while it is the only known shard             |
| one table of each of several sources can come               | the same, if the task has no `shard-mode`; else   |
|                                                             | no                                                |

The routes are judged here, the known shards when a window is planned (core.window.shardchanges). On any other target
such a statement of a shard leaves the rows as they are, or deletes those of the shard (core.rules.shardrows).

The statement becomes a DDL of the shard's queue, with a lock of its own. Rows before it are applied first, rows after
it wait. A shard that joins while it waits, waits too. A table that is created again gets its target table after the
DROP, by another such entry. A swap of names is a chain of renames: the first table gets a name that no other has, until
its new name is free. core.ddl.lock says what a death between the steps leads to, with one difference: TRUNCATE and DROP
leave no structure that shows that they were executed.

| the process dies, or its connection breaks       | the next attempt                                            |
|--------------------------------------------------|-------------------------------------------------------------|
| before the statement reaches the target          | executes it                                                 |
| while the target executes it                     | waits for the guard that its session holds, then as below   |
| after TRUNCATE or DROP, before the lock is       | executes it again: until the lock is resolved, no row after |
| resolved                                         | it is written and no table is created                       |
| after RENAME, before the lock is resolved        | finds the new name instead of the old one: executes nothing |
| and a slow process goes on after another one has | takes the guard, finds no open intent: executes nothing     |
| resolved the lock                                |                                                             |
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from unshard.core.ddl.queue import QueueEntry, ShardState, WholeChange
from unshard.core.model import Location, Shard, TableId
from unshard.core.relay.segment import Statement
from unshard.core.rules.routing import RouteRule, Routing
from unshard.core.sql.quoting import qualified
from unshard.errors.config import RouteAmbiguous


@dataclass(frozen=True, slots=True)
class Feeds:
    """The routes of all sources of a task."""

    routings: Sequence[Routing]
    is_sharded: bool
    """The task has a `shard-mode`."""
    removes_rows: bool = False
    """The task has `drop-shard-rows: delete`: merged targets lose the rows of dropped and truncated shards."""

    def is_single(self, target: TableId) -> bool:
        """Whether the routes can bring only one table of a source to the target."""
        return _is_one([_tables(routing, target) for routing in self.routings], of_all=self.is_sharded)

    def is_single_schema(self, target: str, *, strictly: bool) -> bool:
        """Whether the routes can bring only one schema of a source (`strictly`: of all sources) to the schema."""
        return _is_one([_schemas(routing, target) for routing in self.routings], of_all=self.is_sharded or strictly)

    def copied_schema(self, routing: Routing, schema: str) -> str | None:
        """Return the target's name of a schema of a source that is migrated as a whole; None for any other schema."""
        try:
            target = routing.target_schema_of(schema) if routing.takes_schema(schema) else None
        except RouteAmbiguous:
            return None
        return target if target is not None and self.is_single_schema(target, strictly=False) else None


NO_FEEDS = Feeds((), is_sharded=True)


def _is_one(found: Sequence[Collection[object] | None], *, of_all: bool) -> bool:
    """Whether each source, or all of them together, have one; None: any number."""
    counts = [0 if each is None else len(each) for each in found]
    return None not in found and bool(counts) and (sum(counts) == 1 or (not of_all and max(counts) == 1))


def _schemas(routing: Routing, target: str) -> set[str] | None:
    """Return the schemas of a source that come to a schema of the target, without case; None if there is no limit."""
    rules = [rule for rule in routing.rules if rule.target_schema == target]
    if not all(rule.schema.is_literal for rule in rules):
        return None
    try:
        own = {target} if routing.target_schema_of(target) == target else set()
    except RouteAmbiguous:
        return None
    return {schema.casefold() for schema in own | {rule.schema.text for rule in rules}}


def _tables(routing: Routing, target: TableId) -> set[TableId] | None:
    """Return the tables of a source that come to the target, without case; None if their number has no limit."""
    found = {target}
    for rule in routing.rules:
        if rule.target_schema != target.schema:
            continue
        names = set(_names(rule, target))
        if names and (None in names or not rule.schema.is_literal or rule.extractors):
            return None
        found |= {TableId(rule.schema.text, name) for name in names if name}
    try:
        return {table.folded for table in found if routing.target_of(table) == target}
    except RouteAmbiguous:
        return None


def _names(rule: RouteRule, target: TableId) -> Iterator[str | None]:
    """Yield the names of the tables that a rule brings to the target; None for an unknown number of names."""
    if rule.target_table and rule.target_table != target.name:
        return
    if not rule.target_table:
        if rule.table is None or rule.table.matches(target.name):
            yield target.name
    else:
        yield rule.table.text if rule.table is not None and rule.table.is_literal else None


def whole_statement(change: WholeChange, target: TableId, to: TableId | None = None) -> str:
    """Return the statement for the target."""
    name = qualified(target.schema, target.name)
    match change:
        case WholeChange.TRUNCATE:
            return f"TRUNCATE TABLE {name}"
        case WholeChange.DROP:
            return f"DROP TABLE IF EXISTS {name}"
        case WholeChange.RENAME if to is not None:
            return f"RENAME TABLE {name} TO {qualified(to.schema, to.name)}"
        case _:
            raise ValueError(change)


def waiting(shards: Iterable[ShardState]) -> frozenset[tuple[Shard, int]]:
    """Return the heads of queues that wait for a statement in the group of another target.

    A RENAME waits until the table that had its new name is gone. A table that gets its name by a RENAME waits for it.
    """
    states = [state for state in shards if state.queue or (state.has_left and state.held)]
    if not any(entry.whole is WholeChange.RENAME for state in states for entry in state.queue):
        return frozenset()
    found = (state for state in states if state.queue and any(_precedes(other, state) for other in states))
    return frozenset((state.shard, state.queue[0].seq) for state in found)


def _precedes(other: ShardState, state: ShardState) -> bool:
    first = state.queue[0]
    if other.target == state.target or other.shard.source != state.shard.source:
        return False
    if first.whole is WholeChange.CREATE:
        return any(_renames_to(entry, state.target) and entry.location <= first.location for entry in other.queue)
    if not _renames_to(first, other.target):
        return False
    if not other.queue:
        return other.has_left
    head = other.queue[0]
    return head.location < first.location or (head.location == first.location and head.whole is WholeChange.RENAME)


def _renames_to(entry: QueueEntry, target: TableId) -> bool:
    is_rename = entry.whole is WholeChange.RENAME
    return is_rename and entry.routed == whole_statement(WholeChange.RENAME, entry.target, target)


def is_only(state: ShardState, group: Iterable[ShardState]) -> bool:
    """Whether a shard is the only one of its group, so that a statement about its whole target concerns no other."""
    is_member = bool(state.structure) and not state.has_left and not state.is_dropped
    return is_member and [other.shard for other in group if not other.has_left] == [state.shard]


def whole_entry(
    change: WholeChange, state: ShardState, location: Location, statement: Statement, to: TableId | None = None
) -> QueueEntry:
    """Return the next entry of a shard's queue, for a statement about its whole target."""
    routed = whole_statement(change, state.target, to)
    return QueueEntry(
        state.shard,
        state.target,
        state.last_seq + 1,
        location,
        statement,
        routed,
        # No other statement has this fingerprint: two DROP TABLE of one target are two DDLs.
        f"{routed} at {state.shard.source} {location}",
        state.structure,
        state.structure,
        whole=change,
    )
