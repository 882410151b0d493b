"""The commands as data: name, purpose, example, arguments. The parser is built from them, and a test compares the docs.

The module of a command is imported only when it runs, so that `--help` is fast.
"""

import gc
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


def flag(name: str, about: str, *short: str) -> Argument:
    """Return an option without a value."""
    return Argument((*short, name), about, {"action": "store_true"})


def option(name: str, about: str, value: str, **settings: Any) -> Argument:
    """Return an option with a value, which the help calls by that name."""
    return Argument((name,), about, {"metavar": value, **settings})


@dataclass(frozen=True, slots=True)
class Command:
    """One command; `module` has its function, such as `row_errors_command`."""

    name: str
    about: str
    example: str
    arguments: tuple[Argument, ...]
    module: str
    exits: str

    @property
    def run(self) -> "Callable[[Namespace, Console], Answer]":
        gc.disable()  # what an import makes lives on, so looking for garbage in it is in vain
        try:
            module = import_module(self.module)
        finally:
            gc.freeze()
            gc.enable()
        function: Callable[[Namespace, Console], Answer] = getattr(module, f"{self.name.replace('-', '_')}_command")
        return function


def _number(low: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        value = int(text)
        if value < low:
            raise ValueError(text)
        return value

    return number


TASK = Argument(("task",), "the task file; source files are next to it in sources/", {"metavar": "TASK.yaml"})
TABLES = option(
    "--table", "only this target table, as schema.table; may be repeated", "TABLE", action="append", default=[]
)
COMMON = (
    flag("--json", "print one JSON document on stdout, and nothing else"),
    flag("--verbose", "list all warnings, log every step, and show the traceback of an error", "-v"),
)
LOCK = Argument(("lock",), "id of the lock, as `unshard locks` shows it", {"metavar": "LOCK"})
WRITTEN = "written SOURCE/SCHEMA.TABLE"
SHARD = option("--shard", f"only the DDL of this shard, {WRITTEN}", "SHARD")
REASON = option("--reason", "reason, for the record", "TEXT", default="")
CONFIRMED = (REASON, flag("--dry-run", "only show the effect"), flag("--yes", "do not ask for confirmation"))
COMMANDS = (
    Command(
        "check",
        "check the files, the servers, privileges, settings and table structures",
        "unshard check shop.yaml",
        (
            TASK,
            flag(
                "--decoder",
                "instead: decode a part of each source's binlog with unshard and with mysql-replication, and compare",
            ),
            option(
                "--decoder-bytes",
                "with --decoder: binlog bytes per source (default 8388608)",
                "N",
                type=_number(1),
                default=8 << 20,
            ),
            option(
                "--decoder-events",
                "with --decoder: binlog events per source (default 50000)",
                "N",
                type=_number(1),
                default=50_000,
            ),
        ),
        "unshard.cli.checkcommand",
        "0 the task can run (--decoder: no value differs), 1 an error was found",
    ),
    Command(
        "run",
        "dump and load the missing part, then apply the binlog until caught up, or follow it",
        "unshard run shop.yaml --follow",
        (
            TASK,
            Argument(
                ("--until",),
                "where to stop: after the full load, or when every source is caught up",
                {"choices": ("full", "caught-up"), "default": "caught-up"},
            ),
            flag(
                "--follow", "go on when it is caught up, until SIGTERM or Ctrl-C; an error is tried again each minute"
            ),
            option("--for", "with --follow: end after this time, such as 10m", "TIME", dest="time"),
            option("--metrics-port", "with --follow: serve metrics for Prometheus on this port", "N", type=_number(1)),
            option("--metrics-address", "address of that port (default 127.0.0.1)", "ADDRESS", default="127.0.0.1"),
            option(
                "--start-time",
                "in task-mode incremental: begin with the first transaction at this time, such as "
                "2026-01-31T23:59:59; without an offset it is in the task's timezone",
                "TIME",
            ),
            flag("--remove-meta", "first remove the state of the task, then begin from the start"),
            flag("--yes", "do not ask for confirmation"),
        ),
        "unshard.cli.runcommand",
        "0 done, 3 caught up but DDL locks are open, 4 caught up except for suspended targets, 1 another error",
    ),
    Command(
        "status",
        "show position, lag, rows and progress of every source",
        "unshard status shop.yaml",
        (TASK,),
        "unshard.cli.statuscommand",
        "0 shown, 1 a source or the target does not answer",
    ),
    Command(
        "plan",
        "show what the task would do next and why: windows, full load, DDL locks; nothing is done",
        "unshard plan shop.yaml",
        (TASK,),
        "unshard.cli.plancommand",
        "0 shown, 1 a source cannot be planned, or the target cannot be asked",
    ),
    Command(
        "pause",
        "start no new work of the task, in Airflow and here; active work ends normally",
        "unshard pause shop.yaml --reason 'the target is moved'",
        (TASK, REASON),
        "unshard.cli.life",
        "0 paused, 1 error",
    ),
    Command(
        "resume",
        "continue a paused or stopped task where it stopped",
        "unshard resume shop.yaml",
        (TASK, REASON),
        "unshard.cli.life",
        "0 resumed, 1 error",
    ),
    Command(
        "stop",
        "stop a task for good and show its remains, or remove them",
        "unshard stop shop.yaml --remove-meta --reason 'moved to another task'",
        (
            TASK,
            flag("--remove-meta", "remove its rows in the meta schema and its files; the target tables stay"),
            *CONFIRMED,
        ),
        "unshard.cli.life",
        "0 stopped, 1 error or not confirmed",
    ),
    Command(
        "collisions",
        "show keys that two shards have in common: where found, which shards, state",
        "unshard collisions shop.yaml",
        (TASK, flag("--all", "resolved collisions too")),
        "unshard.cli.problems",
        "0 no collision is open, 3 some are open, 1 error",
    ),
    Command(
        "locks",
        "show the open DDL locks: waiting shards, missing shards, age",
        "unshard locks shop.yaml",
        (TASK, flag("--all", "resolved locks too")),
        "unshard.cli.lockscommand",
        "0 no lock is open, 3 locks are open, 1 error",
    ),
    Command(
        "unlock",
        "force a DDL lock without its missing shards: execute its DDL, release the held rows",
        "unshard unlock shop.yaml shop-shop.orders-1 --reason 'shard 7 is retired'",
        (
            TASK,
            LOCK,
            option("--owner", "the source whose session executes the DDL; it must have reached it", "SOURCE"),
            *CONFIRMED,
        ),
        "unshard.cli.lockcommands",
        "0 unlocked, 1 error or not confirmed",
    ),
    Command(
        "skip",
        "resolve a DDL without executing it, for all shards or for one",
        "unshard skip shop.yaml shop-shop.orders-1 --shard s2/shop_7.orders_3",
        (TASK, LOCK, SHARD, *CONFIRMED),
        "unshard.cli.lockcommands",
        "0 skipped, 1 error or not confirmed",
    ),
    Command(
        "replace",
        "execute other statements instead of a lock's DDL, or use them as the DDL of one shard",
        "unshard replace shop.yaml shop-shop.orders-1 --sql 'ALTER TABLE shop.orders ADD COLUMN c int'",
        (
            TASK,
            LOCK,
            option(
                "--sql",
                "a statement on the target or on one of its shards; repeat it for several, in order",
                "STATEMENT",
                action="append",
                required=True,
            ),
            SHARD,
            *CONFIRMED,
        ),
        "unshard.cli.lockcommands",
        "0 replaced, 1 error or not confirmed",
    ),
    Command(
        "drop-shard",
        "remove a shard from its group for good; its rows in the target stay",
        "unshard drop-shard shop.yaml shop-shop.orders-1 --shard s2/shop_7.orders_3 --reason 'server is gone'",
        (TASK, LOCK, replace(SHARD, settings={**SHARD.settings, "required": True}), *CONFIRMED),
        "unshard.cli.lockcommands",
        "0 dropped, 1 error or not confirmed",
    ),
    Command(
        "ddl",
        "skip or replace a statement of a source's binlog, or inject others before it",
        "unshard ddl skip shop.yaml --source s1 --at mysql-bin.000003:1234 --reason 'was run by hand'",
        (
            Argument(
                ("action",),
                "skip the statement, replace it, inject others before it; revert a command; list all commands",
                {"choices": ("skip", "replace", "inject", "revert", "list")},
            ),
            TASK,
            option("--source", "source of the binlog; optional if the task has one source", "SOURCE"),
            flag("--all-sources", "with --current: every source that cannot continue"),
            option(
                "--at",
                "position of the statement, as in SHOW BINLOG EVENTS and `unshard status`",
                "FILE:POSITION",
                default="",
            ),
            option("--gtid", "GTID of the statement", "GTID", default=""),
            flag("--current", "the statement that the source cannot apply, or whose lock has an error or a reason"),
            option("--sql", "a statement; repeat it for several, in order", "STATEMENT", action="append", default=[]),
            option("--number", "revert: number of the command", "N", type=_number(1)),
            *CONFIRMED,
        ),
        "unshard.cli.ddlcommand",
        "0 done, 1 error or not confirmed; list: 0 no command waits, 3 some wait",
    ),
    Command(
        "retry",
        "release suspended targets, or try a refused DDL again",
        "unshard retry shop.yaml --table shop.orders --reason 'row 7 is corrected'",
        (
            TASK,
            TABLES,
            option(
                "--lock", "instead: try the DDL of this lock again, which the target has refused", "LOCK", default=""
            ),
            flag("--all-locks", "instead: try every DDL again that the target has refused, for instance after a GRANT"),
            *CONFIRMED,
        ),
        "unshard.cli.lockcommands",
        "0 done, or nothing was suspended, 1 error or not confirmed",
    ),
    Command(
        "reload",
        "read columns of a shard again from its source and write them into the target",
        "unshard reload shop.yaml --shard s2/shop_7.orders_3 --columns created_at --reason 'own values'",
        (
            TASK,
            option("--shard", f"the shard, {WRITTEN}", "SHARD", required=True),
            option("--columns", "names of columns of the shard, with commas", "C1,C2", required=True),
            flag(
                "--accept",
                "instead: read nothing, the values of the target are right; ends an open difference (optimistic mode)",
            ),
            *CONFIRMED,
        ),
        "unshard.cli.problems",
        "0 done, 1 error or not confirmed; the same command continues",
    ),
    Command(
        "row-errors",
        "show diverted rows, which a target could not store (row-errors: divert)",
        "unshard row-errors shop.yaml",
        (TASK, flag("--all", "rows that a later change has corrected too")),
        "unshard.cli.problems",
        "0 no target lacks a row, 3 a target lacks rows, 1 error",
    ),
    Command(
        "migrate",
        "create the meta tables, and nothing else",
        "unshard migrate shop.yaml",
        (TASK,),
        "unshard.cli.life",
        "0 the meta tables have this version, 1 error",
    ),
    Command(
        "validate",
        "compare the union of the shards with the target, row by row",
        "unshard validate shop.yaml --table shop.orders",
        (
            TASK,
            TABLES,
            option("--threads", "concurrent queries (default 4)", "N", type=_number(1), default=4),
            option("--chunk-rows", "target rows per chunk (default 50000)", "N", type=_number(1), default=50_000),
            option("--limit", "differing keys to name per table (default 20)", "N", type=_number(1), default=20),
            option("--wait", "longest wait for windows, in seconds (default 60)", "N", type=_number(0), default=60),
            flag("--resume", "go on where the last validation has stopped"),
            option("--older-than", "only chunks that were not found equal in this time, such as 24h", "TIME"),
            option("--rate", "most rows of a target per second", "N", type=_number(1), default=0),
            option("--until", "begin no chunk after this time of day, such as 02:00", "HH:MM"),
        ),
        "unshard.cli.validatecommand",
        "0 equal, 2 different, 1 error, or changes of some rows are on their way",
    ),
    Command(
        "repair",
        "write the rows of the shards into the target where a difference is proven",
        "unshard repair shop.yaml --table shop.orders --reason 'rows were changed by hand'",
        (
            TASK,
            TABLES,
            option("--keys", "only the keys in this file, which `unshard validate --json` has written", "FILE"),
            option("--sql", "instead: write the statements into this file", "FILE"),
            option("--wait", "longest wait for windows, in seconds (default 60)", "N", type=_number(0), default=60),
            *CONFIRMED,
        ),
        "unshard.cli.repaircommand",
        "0 no difference is left, or a dry run, 1 error, not confirmed, or a difference is left",
    ),
    Command(
        "cutover",
        "switch the applications to the target: prove it, stop writes, prove the rest, write a certificate",
        "unshard cutover run shop.yaml --read-only --within 2m --reason 'switch to TiDB'",
        (
            Argument(
                ("action",),
                "plan: show what is in the way; run: cut over, or go on with it; abort: end it, sources as before",
                {"choices": ("plan", "run", "abort")},
            ),
            TASK,
            flag("--read-only", "run: set the sources to read-only, and back if anything fails"),
            option("--within", "run: longest time with read-only sources (default 5m)", "TIME", default="5m"),
            option("--wait", "run: longest wait until others make the sources read-only (default: no limit)", "TIME"),
            *CONFIRMED,
        ),
        "unshard.cli.cutovercommand",
        "0 done, or nothing is in the way, 3 plan: something is in the way, 1 error or not confirmed",
    ),
)
