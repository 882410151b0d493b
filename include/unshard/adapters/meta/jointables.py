"""The meta tables of targets in optimistic mode: a part of the definition in `tables`."""

from collections.abc import Callable

from sqlalchemy import Index, Integer, Table

from unshard.adapters.meta import columns as c
from unshard.core.join.changekind import ChangeKind

JOINS = "Targets in optimistic mode"


def defined(define: Callable[..., Table]) -> tuple[Table, Table, Table, Table]:
    """Define the tables by the function of `tables`."""
    return (*_group(define), _change(define))


def _group(define: Callable[..., Table]) -> tuple[Table, Table, Table]:
    join_target = define(
        "join_target",
        JOINS,
        "target that follows the join of its shards",
        c.key("task"),
        *c.target_key(),
        c.big("version", "rises with every change of the target or of its columns' ids"),
        c.big("settled_version", "version at which shards and target were found equal"),
        c.digest("settled_shards", "hash of the states of the shards at that time; or empty"),
        c.big("last_id", "id that was given last to a column"),
        c.long("names", "JSON: the ids of the target's columns, by name"),
        c.digest("floor_digest", "structure of the target when someone had given it more than its shards; or empty"),
        c.long("floor_ids", "JSON: the ids of the columns of that structure, by name"),
        c.moment("began_at"),
        c.moment("changed_at"),
    )
    join_column = define(
        "join_column",
        JOINS,
        "column of a joined target that a shard has or had, by its id",
        c.key("task"),
        *c.target_key(),
        c.number("id"),
        c.long("names", "JSON: the names that shards have given it, in order"),
        c.long("fill", "SQL literal that rows have which existed before it was added"),
        c.flag("was_common", "1: all shards have had it at one time"),
        c.flag("is_kept", "1: filters have left out a DDL that drops it, so the target keeps it"),
        c.flag("is_filled_by_server", "1: rows of shards that lack it have values that no shard has"),
    )
    join_member = define(
        "join_member",
        JOINS,
        "shard of a joined target after one of its DDL; rows after this DDL are read by it",
        c.key("task"),
        *c.shard_key(),
        c.number("seq", "number of the DDL in `shard_ddl`; 0: the structure with which the shard has joined"),
        *c.target(),
        c.digest("shard_uid"),
        *c.location("ddl_", "end of the DDL; NULL: seq is 0", null=True),
        c.digest("digest", "structure"),
        c.long("ids", "JSON: the ids of its columns, by name"),
        c.long("dropped", "JSON: ids that it has dropped and that the target may still have"),
        c.long("reloads", "JSON: ids whose values must be read again, with the reason"),
        c.long("reload_error", "why they cannot be read again without an operator", null=True),
        c.moment("accepted_at"),
        Index("by_target", "task", "target_schema", "target_table"),
    )
    return join_target, join_column, join_member


def _change(define: Callable[..., Table]) -> Table:
    return define(
        "join_change",
        JOINS,
        "change of a joined target: its statements are stored before the first is executed",
        c.key("task"),
        c.auto_id("order of the changes"),
        *c.target(),
        c.state("kind", ChangeKind),
        c.long("cause", "the DDL of the shards, or why the target contracts"),
        c.long("statements", "JSON: the statements, with the structures of the target before and after each"),
        c.other("done", Integer, "how many statements are executed", null=False),
        c.long("error", "message of the target that has rejected a statement", null=True),
        c.moment("started_at", "written before the first statement runs"),
        c.moment("done_at", "NULL: it runs, or the process has died", null=True),
        c.word("outcome", "executed, given up (the rest is decided again) or refused", null=True),
        Index("by_id", "id", unique=True),
        Index("by_target", "task", "target_schema", "target_table", "done_at"),
    )
