"""The sequences of a source. They write rows into the binlog like tables, and the events do not say which is which.

The snapshot reads the existing sequences. From then on, they are followed from statement to statement:

| the statement                                   | the sequences                                           |
|-------------------------------------------------|---------------------------------------------------------|
| CREATE SEQUENCE s, CREATE TABLE s … SEQUENCE=1  | s is a sequence                                         |
| CREATE TABLE t LIKE s                           | t is a sequence if s is one                             |
| CREATE OR REPLACE TABLE s                       | s is a sequence only if the first two lines make it one |
| RENAME TABLE s TO t, ALTER TABLE s RENAME TO t  | t is a sequence instead of s                            |
| DROP SEQUENCE, DROP TABLE, DROP DATABASE        | the dropped objects are no longer sequences             |
| ALTER TABLE s SEQUENCE=0                        | s is a table of unknown structure                       |
"""

import re
from collections.abc import Container, Iterable

from unshard.core.ddl.effects import Effect, Joins, Undecided
from unshard.core.ddl.parsed import Ddl, DdlKind
from unshard.core.ddl.renaming import net_renames
from unshard.core.ddl.statement import read_ddl
from unshard.core.model import TableId
from unshard.core.relay.segment import Statement
from unshard.core.sql.words import BECOMES
from unshard.errors.ddl import DdlUnreadable

MADE = re.compile(r"\bSEQUENCE\b", re.IGNORECASE)
Sequences = frozenset[TableId]


def followed(known: Sequences, statement: Statement, shards: Container[TableId]) -> Sequences:
    """Return the sequences after a statement; `shards` are the tables that exist before it."""
    if not known and not MADE.search(statement.text):
        return known
    try:
        ddl = read_ddl(statement.text, statement.sql_mode, statement.schema)
    except DdlUnreadable:
        return known
    return _after(known, ddl, shards)


def is_about_sequence(effect: Effect, before: Sequences, after: Sequences) -> bool:
    """Whether an effect concerns a sequence, not a shard: the object is one, or was one and is not a table now."""
    makes_table = isinstance(effect, Joins) or (isinstance(effect, Undecided) and effect.is_new)
    return effect.table in after or (effect.table in before and not makes_table)


def _after(known: Sequences, ddl: Ddl, shards: Container[TableId]) -> Sequences:
    match ddl.kind:
        case DdlKind.CREATE_SEQUENCE | DdlKind.CREATE_TABLE:
            return _created(known, ddl, shards)
        case DdlKind.DROP_TABLE | DdlKind.DROP_SEQUENCE:
            return known - set(ddl.subjects)
        case DdlKind.UNSUPPORTED if ddl.reason == BECOMES:
            return known - set(ddl.subjects)
        case DdlKind.RENAME | DdlKind.ALTER:
            return _renamed(known, net_renames(ddl.renames).items())
        case DdlKind.DROP_DATABASE | DdlKind.CREATE_DATABASE if ddl.drops:
            return frozenset(table for table in known if table.schema != ddl.database)
        case _:
            return known


def _created(known: Sequences, ddl: Ddl, shards: Container[TableId]) -> Sequences:
    (made,) = ddl.subjects
    if not ddl.or_replace and (made in known or made in shards):
        return known  # IF NOT EXISTS, and the object exists
    is_one = ddl.kind is DdlKind.CREATE_SEQUENCE or ddl.like in known
    return known | {made} if is_one else known - {made}


def _renamed(known: Sequences, moved: Iterable[tuple[TableId, TableId]]) -> Sequences:
    pairs = [(old, new) for old, new in moved if old in known]
    return (known - {old for old, _ in pairs}) | {new for _, new in pairs}
