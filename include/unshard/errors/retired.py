"""Codes that no code raises any more. They stay documented, for old logs, and are never reused."""

RETIRED: dict[str, str] = {
    "US-2301 NoShards": """No table of this source is in the block-allow list and in a route.

Consequence: The task did not start. Only earlier versions raise this error: unshard now warns with
[US-2380](#us-2380-notablesyet), because the tables may come later.
Remedy: Check routes and block-allow-list, and that the account has SELECT on the shards.
""",
    "US-3020 UnsupportedTable": """unshard cannot follow the rows of the table.

Consequence: unshard reads this source no further.
Remedy: Exclude the table with `block-allow-list`. Only earlier versions raise this error: unshard now merges the
present rows of system-versioned tables.
""",
    "US-4002 DdlUnsupported": """A shard ran a statement whose effect on rows is not in the binlog
(`EXCHANGE PARTITION`, `DISCARD TABLESPACE`, `ALTER IGNORE`, …) or whose effect on columns is not visible
(system versioning, `CREATE TABLE … SELECT`).

Consequence: The source stops. Only earlier versions raise this error: such a shard now
[waits for an operator](life-of-a-shard-ddl.md#decisions-that-only-an-operator-can-make).
Remedy: Exclude the shard from the task and load it again, or repair the target by hand and skip the statement.
""",
}
