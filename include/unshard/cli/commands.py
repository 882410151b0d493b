"""The commands as data: name, purpose, example, arguments. The parser is made from them, the docs are tested on them.

What a command does is imported only when it is called, so that `--help` answers at once.
"""

from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unshard.cli.console import Answer, Console


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument or option; `settings` are argparse's own."""

    names: tuple[str, ...]
    about: str
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Command:
    """One command; `module` has a function of the same name, `-` as `_`."""

    name: str
    about: str
    example: str
    arguments: tuple[Argument, ...]
    module: str
    exits: str
    """What its exit codes mean."""

    @property
    def run(self) -> "Callable[[Namespace, Console], Answer]":
        """Import and return the function that carries the command out."""
        function: Callable[[Namespace, Console], Answer] = getattr(
            import_module(self.module), self.name.replace("-", "_")
        )
        return function


def _number(low: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        value = int(text)
        if value < low:
            raise ValueError(text)
        return value

    return number


TASK = Argument(("task",), "the task file; source files are found beside it in sources/", {"metavar": "TASK.yaml"})
COMMON = (
    Argument(("--json",), "print one JSON document and nothing else on stdout", {"action": "store_true"}),
    Argument(("--verbose",), "log every step, and show the traceback of an error", {"action": "store_true"}),
)
LOCK = Argument(("lock",), "id of the lock, as `unshard locks` shows it", {"metavar": "LOCK"})
WRITTEN = "written SOURCE/SCHEMA.TABLE"
SHARD = Argument(("--shard",), f"only the DDL of this shard, {WRITTEN}", {"metavar": "SHARD"})
REASON = Argument(("--reason",), "why, for the record", {"default": "", "metavar": "TEXT"})
ORDER = (
    REASON,
    Argument(("--dry-run",), "only say what would happen", {"action": "store_true"}),
    Argument(("--yes",), "do not ask", {"action": "store_true"}),
)
COMMANDS = (
    Command(
        "check", "check the files, the servers, privileges, settings and table structures", "unshard check shop.yaml",
        (TASK,), "unshard.cli.check", "0 nothing stops the task, 1 an error was found",
    ),
    Command(
        "run", "dump and load what is not loaded yet, then follow the binlog until caught up",
        "unshard run shop.yaml --until caught-up",
        (
            TASK,
            Argument(("--until",), "where to stop: after the full load, or when every source is caught up",
                     {"choices": ("full", "caught-up"), "default": "caught-up"}),
            Argument(("--start-time",), "in task-mode incremental: begin at the first transaction of that time, as "
                     "2026-01-31T23:59:59, in the task's timezone unless it has an offset", {"metavar": "TIME"}),
            Argument(("--remove-meta",), "forget first all that is known of the task, and begin from the start",
                     {"action": "store_true"}),
            Argument(("--yes",), "do not ask", {"action": "store_true"}),
        ),
        "unshard.cli.run", "0 done, 3 caught up and waiting at DDL locks, 1 error",
    ),
    Command(
        "status", "show position, lag, rows and progress of every source", "unshard status shop.yaml",
        (TASK,), "unshard.cli.status", "0 shown, 1 a source or the target cannot be asked",
    ),
    Command(
        "pause", "let nothing more of the task begin, in Airflow and here; what has begun ends by itself",
        "unshard pause shop.yaml --reason 'the target is moved'",
        (TASK, REASON), "unshard.cli.life", "0 paused, 1 error",
    ),
    Command(
        "resume", "let a paused or stopped task go on where it was", "unshard resume shop.yaml",
        (TASK, REASON), "unshard.cli.life", "0 it may go on, 1 error",
    ),
    Command(
        "stop", "halt a task for good: say what remains of it, or remove that",
        "unshard stop shop.yaml --remove-meta --reason 'moved to another task'",
        (
            TASK,
            Argument(("--remove-meta",), "remove its rows in the meta schema and its files; the target tables stay",
                     {"action": "store_true"}),
            *ORDER,
        ),
        "unshard.cli.life", "0 stopped, 1 error or not confirmed",
    ),
    Command(
        "collisions", "show keys that two shards have both: where met, which shards, what became of it",
        "unshard collisions shop.yaml",
        (TASK, Argument(("--all",), "those too that nothing waits for", {"action": "store_true"})),
        "unshard.cli.collisions", "0 none is open, 3 some are open, 1 error",
    ),
    Command(
        "locks", "show the open DDL locks: what waits, for whom, since when", "unshard locks shop.yaml",
        (TASK, Argument(("--all",), "resolved locks too", {"action": "store_true"})),
        "unshard.cli.locks", "0 no lock is open, 3 locks are open, 1 error",
    ),
    Command(
        "unlock", "force a DDL lock with the shards that have come: execute its DDL, release their rows",
        "unshard unlock shop.yaml shop-shop.orders-1 --reason 'shard 7 is retired'",
        (
            TASK,
            LOCK,
            Argument(("--owner",), "the source that executes the DDL; one that has it", {"metavar": "SOURCE"}),
            *ORDER,
        ),
        "unshard.cli.orders", "0 unlocked, 1 error or not confirmed",
    ),
    Command(
        "skip", "resolve a DDL without executing it: that of all shards, or that of one",
        "unshard skip shop.yaml shop-shop.orders-1 --shard s2/shop_7.orders_3",
        (TASK, LOCK, SHARD, *ORDER), "unshard.cli.orders", "0 skipped, 1 error or not confirmed",
    ),
    Command(
        "replace", "execute other statements in place of a lock's DDL, or let them count as the DDL of one shard",
        "unshard replace shop.yaml shop-shop.orders-1 --sql 'ALTER TABLE shop.orders ADD COLUMN c int'",
        (
            TASK, LOCK,
            Argument(("--sql",), "a statement on the target or on one of its shards; repeat it for several, in order",
                     {"action": "append", "required": True, "metavar": "STATEMENT"}),
            SHARD, *ORDER,
        ),
        "unshard.cli.orders", "0 replaced, 1 error or not confirmed",
    ),
    Command(
        "drop-shard", "take a shard out of its group for good; its rows in the target stay",
        "unshard drop-shard shop.yaml shop-shop.orders-1 --shard s2/shop_7.orders_3 --reason 'server is gone'",
        (TASK, LOCK, replace(SHARD, settings={**SHARD.settings, "required": True}), *ORDER),
        "unshard.cli.orders", "0 dropped, 1 error or not confirmed",
    ),
    Command(
        "ddl", "skip, replace or precede a statement of a source's binlog, by position, GTID or present error",
        "unshard ddl skip shop.yaml --source s1 --at mysql-bin.000003:1234 --reason 'was run by hand'",
        (
            Argument(("action",), "what to do: skip the statement, replace it, inject others before it; take back an"
                     " order; list all", {"choices": ("skip", "replace", "inject", "revert", "list")}),
            TASK,
            Argument(("--source",), "whose binlog; may be left out if the task has one source", {"metavar": "SOURCE"}),
            Argument(("--all-sources",), "with --current: every source that cannot go on", {"action": "store_true"}),
            Argument(("--at",), "where the statement begins, as SHOW BINLOG EVENTS and `unshard status` name it",
                     {"metavar": "FILE:POSITION", "default": ""}),
            Argument(("--gtid",), "GTID of the statement", {"metavar": "GTID", "default": ""}),
            Argument(("--current",),
                     "the statement that the source cannot get past, or whose lock has an error or a reason",
                     {"action": "store_true"}),
            Argument(("--sql",), "a statement; repeat it for several, in order",
                     {"action": "append", "default": [], "metavar": "STATEMENT"}),
            Argument(("--order",), "revert: number of the order", {"type": _number(1), "metavar": "N"}),
            *ORDER,
        ),
        "unshard.cli.ddl", "0 done, 1 error or not confirmed; list: 0 no order waits, 3 some wait",
    ),
    Command(
        "retry", "let targets go on that could not take what a source brings, or ask again for a DDL that was refused",
        "unshard retry shop.yaml --table shop.orders --reason 'row 7 is corrected'",
        (
            TASK,
            Argument(("--table",), "only this target table, as schema.table; may be repeated",
                     {"action": "append", "default": [], "metavar": "TABLE"}),
            Argument(("--lock",), "instead: ask the target again about the DDL of this lock, which it has refused",
                     {"metavar": "LOCK", "default": ""}),
            *ORDER,
        ),
        "unshard.cli.retry", "0 done, or nothing was stopped, 1 error or not confirmed",
    ),
    Command(
        "row-errors", "show rows that a target could not take and that were put aside (row-errors: divert)",
        "unshard row-errors shop.yaml",
        (TASK, Argument(("--all",), "those too that a later change has mended", {"action": "store_true"})),
        "unshard.cli.row_errors", "0 no target lacks a row, 3 some do, 1 error",
    ),
    Command(
        "migrate", "create the meta tables, or bring those of an older version to this one, and nothing else",
        "unshard migrate shop.yaml", (TASK,),
        "unshard.cli.migrate", "0 they are of this version, 1 error",
    ),
    Command(
        "validate", "compare the union of the shards with the target, row by row",
        "unshard validate shop.yaml --table shop.orders",
        (
            TASK,
            Argument(("--table",), "only this target table, as schema.table; may be repeated",
                     {"action": "append", "default": [], "metavar": "TABLE"}),
            Argument(("--threads",), "queries at the same time (default 4)",
                     {"type": _number(1), "default": 4, "metavar": "N"}),
            Argument(("--chunk-rows",), "target rows compared at a time (default 50000)",
                     {"type": _number(1), "default": 50_000, "metavar": "N"}),
            Argument(("--limit",), "differing keys to name per table (default 20)",
                     {"type": _number(1), "default": 20, "metavar": "N"}),
        ),
        "unshard.cli.validate", "0 equal, 2 they differ, 1 error",
    ),
)  # fmt: skip
