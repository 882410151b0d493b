"""The reference page of all keys: `python -m unshard.config.reference > docs/config.md`.

It is written from the declarations and a test compares the two, so no key exists undocumented.
"""

import sys
from enum import StrEnum
from typing import Any

from unshard.config.declare import Block, Ignored, Key, Later, Refused
from unshard.config.eventfilters import EVENT_FILTER
from unshard.config.rowfilters import ROW_FILTER
from unshard.config.sourcekeys import SECURITY, SERVER, SOURCE
from unshard.config.taskkeys import ALLOW_LIST, EXTRACT, INSTANCE, MAPPING, META, OPTIONS, ROUTE, TABLE_PATTERN, TASK
from unshard.config.unitkeys import LOADER, MYDUMPER, SYNCER, VALIDATOR

BLOCKS = (TASK, OPTIONS, INSTANCE, META, SERVER, SECURITY, ROUTE, *EXTRACT.values(), EVENT_FILTER, ROW_FILTER, MAPPING,
          ALLOW_LIST, TABLE_PATTERN, MYDUMPER, LOADER, SYNCER, VALIDATOR, SOURCE)  # fmt: skip
TITLE = "# Task and source files: all keys"
NOTICE = "<!-- Written by `python -m unshard.config.reference`; change the declarations instead. -->"
INTRODUCTION = """\
A task file says what is merged, source files say where from. Both have the format of TiDB DM, so DM's files
can be brought along. `include/tasks` has an example. Source files are found in `sources/` beside the task file, or
listed in `unshard.sources`; a file that no instance uses may stand there. [Errors](errors.md) of these files are
US-1xxx and name file, line and key.

* A key that is not listed here is refused, with the allowed ones and a guess at what was meant.
* **Later** keys are DM's, and a later version brings them. They are refused as soon as their value asks for anything.
* **Ignored** keys are DM's without a meaning here. They are accepted with a warning.
* **Refused** keys are DM's for what is done otherwise here; the error says how.
* A named block that no instance refers to is refused; so are a reference to nothing and a rule named twice.
* A key without a value, or with an empty text, is the same as no key.
* Texts are taken as they are written, whatever YAML makes of them: `password: 0123` is four characters.
* Durations: `1h`, `90s`, `1h30m`, or seconds. Sizes: `64MiB` (1024), `64MB` (1000), or bytes.

## Patterns

Routes and lists name schemas and tables by patterns, which mind case only where `case-sensitive` says so.

| pattern | matches |
|---|---|
| `*` | any run of characters, none too; anywhere in the pattern (DM: at its end only) |
| `?` | one character |
| `[a-c]`, `[!a-c]` | one character of a class, one outside it |
| `~regex` | names in which the regular expression is found; anchor it with `^` and `$` |

`table_[0-63]` is a class, not a range of numbers, and loses tables without a word; it is refused.
Write `table_*` or `~^table_\\d+$`.

Every name is matched once and remembered, so that ten thousand tables cost what they must and no more.

A route with `table-pattern` beats one without. Two routes of the same level that send a table to different places
are an error that names both. A table that passes the block-allow list and matches no route keeps its own name.
The lists are asked in DM's order: `do-dbs`, and only without it `ignore-dbs`; then `do-tables`, then
`ignore-tables`; a table that neither names passes if `do-tables` is empty. Schemas of the server itself
(`mysql`, `sys`, `information_schema`, `performance_schema`) and the meta schema are never migrated.

## Extractors

A route may write parts of a shard's names into columns of the target: `extract-table`, `extract-schema` and
`extract-source`, as in DM, each with a regular expression and a `target-column`. The target table must exist with
these columns before the task starts, because nobody but you can say whether they belong to its key: they do if two
shards can have the same key. `unshard check` names what is missing. An expression that is not found in a name is an
error (DM writes an empty text), and so is a column that the shard has itself.

## Binlog event filters

Every rule that matches a change's table (or, without `table-pattern`, its schema) is asked, in the order of
`filter-rules`, then those of the source file. With `events` it compares names, with `sql-pattern` the text of a
statement, with both one after the other: `Ignore` leaves out what matches, `Do` what does not, `Error` stops the
source at a statement that matches, and a target at rows. A rule without `events` says nothing about rows.

* `insert`, `update`, `delete`: changes of rows, in windows and of held rows; the load takes all rows
* `all`, `all dml`, `all ddl`, `none`, `none dml`, `none ddl`: the first in the list that says anything decides
* `incompatible ddl changes`: DDL but creating and altering databases, views, CREATE TABLE, CREATE INDEX, ADD
  PARTITION and what DM knows as plain `alter table`, such as ADD COLUMN
* `create database`, `drop database`, `alter database`, `create schema`, `drop schema`, `alter schema`, `modify
  schema charset and collate`: statements about schemas
* `create table`, `drop table`, `truncate table`, `rename table`, `create view`, `drop view`: by these statements,
  `rename table` by ALTER TABLE too
* `alter table`: every specification of every ALTER TABLE
* `multi schema change`: each of several specifications of one ALTER TABLE
* `add column`, `drop column`, `rename column`, `modify columns order`: columns
* `modify column`, `value range decrease`, `precision decrease`, `remove auto increment`, `modify charset`, `modify
  collation`, `modify default value`, `set default value`: what MODIFY, CHANGE and ALTER COLUMN change, seen by the
  column before and after
* `create index`, `drop index`, `rename index`, `alter index visibility`, `drop unique key`, `add primary key`,
  `drop primary key`, `add foreign key`, `drop foreign key`, `modify constraint`: keys, by ALTER TABLE and by CREATE
  and DROP INDEX
* `modify storage engine`, `modify table comment`, `modify table charset and collate`, `rebase auto id`: options of
  the table
* `add table partition`, `drop table partition`, `truncate table partition`, `reorganize table partition`, `rebuild
  table partition`, `coalesce table partition`, `exchange table partition`, `alter table partitioning`, `remove
  table partitioning`: partitions

Any other name is refused, also those of statements that only TiDB has. What an ignored DDL leaves behind:

* An ALTER TABLE or INDEX that is ignored enters no queue; the shard's rows are read with the structure that they have
  from then on, the target keeps its own. Of an ALTER TABLE with several specifications only those that are not ignored
  are coordinated and executed.
* A dropped column gets the target's default in new rows. Where ADD COLUMN of a shard is ignored, values without a
  column in the target are left out; else such a row is [US-6003](errors.md).
* A renamed column has no place in the target unless it is added there by hand: its values are left out or US-6003,
  and the target's column gets its default.
* DROP, TRUNCATE and RENAME TABLE are never executed on the target; ignored or not, the group and the names of shards
  follow them. A shard whose CREATE TABLE is ignored joins its group, but the target table is not made.
* Rows of a shard of which updates or deletes are ignored are written as in safe mode: what the target has may differ.
* Shards of one target should have the same filters for DDL: a lock waits for a shard that never brings it.

## Expression filters

A rule of `expression-filter` leaves out the changes of one table that its expression is true for (not those for which
it is NULL). The target evaluates it, over a temporary table with the shard's structure, in the task's `timezone`:
functions, types and collations are the server's own. The target account needs CREATE TEMPORARY TABLES on the meta
schema.

* `unshard check` refuses an expression that the target cannot read or that names columns which the shard lacks, and a
  rule for a table that is no shard. A later DDL that takes a column away stops the target with [US-6024](errors.md).
* Queries are refused in expressions, generated columns are not known to them. One whose value changes by itself
  (`NOW()`, `RAND()`) is evaluated when the window runs, not when the row was written.
* They hold in windows and for released rows; in the load `insert-value-expr` does with `unshard.filter-load`.
* An update that is not left out writes its row, whether or not the target has had it. Rows of a shard with filters for
  updates or deletes are written as in safe mode.

## Column mapping

Shards that all count from 1 get different keys in the target by `partition id`: from the top of the number one sign bit
(0), 4 bits of the instance, 7 of the schema, 8 of the table, and the id in what is left. With the arguments
`["1", "shop", "orders", "_"]` id 123 of `shop_2.orders_3` becomes `1<<59 | 2<<52 | 3<<44 | 123`. An empty argument
takes no bits and the next ones move up: `["1", "", "orders", "_"]` leaves 51 bits for the id. A name that is the
prefix alone counts as 0.

* The target's column must hold the result: BIGINT, DECIMAL(19,0) or a text. Where the shards' is narrower, create the
  target table before the task starts.
* An id that does not fit into its bits is an error with its key; `unshard check` finds those that are there already.
* Shards of a target whose bits meet (`t_1` and `t_01`, a shard that no rule matches beside others) are refused by
  `unshard check`; one that is created later waits for an operator.
* A column that is in no key is refused unless `referencing-columns` names it. For a child table write a rule of its
  own with the child's names: `table-pattern: "items_*"`, `arguments: ["1", "shop", "items", "_"]`,
  `target-column: order_id`, `referencing-columns: [order_id]`. NULL stays NULL.
* A table may have several rules for different columns; of two for one column the one with `table-pattern` wins.
* A DDL that renames or drops a mapped column, changes its type or takes it out of the key waits for an operator: when
  all shards have run it, correct the rule and order `unshard replace` with what the target needs.
* Load, windows, held rows and `unshard validate` map alike; files hold what the shard has.

## Object stores

With `storage-path: s3://bucket/prefix` dumped rows, relay segments and held rows are objects of an S3 store; the
bucket must be there. Where it is and who may: `storage-conn-id` names an Airflow Connection of the type `aws`, in which
login and password are the key and its secret, and the extra takes `region_name`, `endpoint_url` (of a store that is
not Amazon's), `aws_session_token` and `role_arn`; anything else in it is refused. The command line reads
`AIRFLOW_CONN_<ID>='{"conn_type": "aws", "login": "key", "password": "secret", "extra": {"region_name": "eu-west-1"}}'`.

Without `storage-conn-id` the environment of the process that opens the task says it: `AWS_ACCESS_KEY_ID`,
`AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`, `AWS_REGION`, `AWS_ENDPOINT_URL`. All this goes to Spark's workers with
the passwords. If there is no key at all, each process looks for itself: in `~/.aws`, at the profile of its machine.

With `storage-path: webhdfs://host:port/folder` they are files of HDFS, which is reached by its REST interface: host and
port are the name node's (`dfs.namenode.http-address`, 9870 if nothing else is said), and every process must reach the
data nodes by the names that it gives them. `webhdfs://user@host:port/folder` says as which user. Kerberos and TLS are
not supported.

## Secrets

Of `conn-id`, `password-env`, `password-file` and `password` a server has at most one. With `conn-id: shop_1` the
Airflow Connection of that id is used; the command line reads it from `AIRFLOW_CONN_SHOP_1`, a URI
(`mysql://user:password@host:3306`, special characters as `%XX`) or JSON
(`{"login": "user", "password": "…", "host": "…", "port": 3306}`). No message ever shows a password.

For TLS the extra of a connection may hold `"ssl": {"ca": "…", "cert": "…", "key": "…"}` with paths, and `ssl_mode`
(`REQUIRED`, `VERIFY_CA`, `VERIFY_IDENTITY`); a `security` block of the file wins over it. Certificates and keys are
read where the task is opened and go to Spark's executors with the passwords: no file has to be there.
"""


def page() -> str:
    """Return docs/config.md."""
    return "\n".join((TITLE, "", NOTICE, "", INTRODUCTION, *map(_section, BLOCKS)))


def _section(block: Block) -> str:
    keys = [key for key in block.keys if isinstance(key, Key)]
    later = [key for key in block.keys if isinstance(key, Later)]
    ignored = [key for key in block.keys if isinstance(key, Ignored)]
    lines = [f"## {block.title}", "", *_table(keys)]
    if later:
        lines += ["Later:", "", *(f"* `{key.name}`: {key.feature}{_harmless(key)}" for key in later), ""]
    if ignored:
        lines += ["Ignored:", "", *(f"* `{key.name}`: {key.why}" for key in ignored), ""]
    if refused := [key for key in block.keys if isinstance(key, Refused)]:
        lines += ["Refused:", "", *(f"* `{key.name}`: {key.instead}{_harmless(key)}" for key in refused), ""]
    return "\n".join(lines)


def _table(keys: list[Key]) -> list[str]:
    return ["| key | type | default | meaning |", "|---|---|---|---|", *map(_row, keys), ""] if keys else []


def _row(key: Key) -> str:
    cells = (f"`{key.name}`", key.kind.name, "**required**" if key.required else _default(key), key.about)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _default(key: Key) -> str:
    return key.shown or _shown(key.default)


def _shown(value: Any) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return f"`{str(value).lower()}`"
        case StrEnum() | str() | int():
            return f"`{value}`" if str(value) else "empty"
        case _:
            return "empty" if not value else f"`{value}`"


def _harmless(key: Later | Refused) -> str:
    return f" (accepted: {', '.join(f'`{value}`' for value in key.harmless)})" if key.harmless else ""


if __name__ == "__main__":
    sys.stdout.write(page())
