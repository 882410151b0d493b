"""The statements with which an operator replaces a DDL: split, checked, and directed to the target.

They are read in the sql_mode of the DDL that they replace, because they are executed in it. A statement may name the
target or any shard of its group, with or without the target's schema. Only statements that change a structure are
allowed: after a crash, unshard could not tell whether a statement that changes rows was executed. For a new shard whose
structure does not match its group, and after a DDL of unknown effect, CREATE TABLE states the structure of the shard.
It creates the target only if that does not exist. If nothing tells the structure of a new shard, the first statement
must be that CREATE TABLE: everything is checked before a statement is executed.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from unshard.core.ddl.parsed import Ddl, DdlKind, Role
from unshard.core.ddl.queue import QueueEntry
from unshard.core.ddl.statement import fingerprint, read, retarget
from unshard.core.model import TableId
from unshard.core.sql.tokens import MARIADB, tokenize
from unshard.errors.ddl import DdlUnreadable
from unshard.errors.locks import NewShardUndescribed, ReplacementRefused

CREATE = re.compile(r"^(\s*create\s+table\s+)", re.IGNORECASE)
ALLOWED = (DdlKind.ALTER, DdlKind.INDEX)


def replacing(
    lock: str,
    texts: Iterable[str],
    target: TableId,
    shards: Iterable[TableId],
    entry: QueueEntry,
    is_described: bool = True,
) -> tuple[tuple[str, ...], str]:
    """Return the statements to execute on the target, and their fingerprint; raises ReplacementRefused.

    `is_described`: something tells the structure of the shard before the DDL; otherwise raises NewShardUndescribed
    unless the first statement does.
    """
    mode, names = entry.statement.sql_mode, dict.fromkeys([*shards, target], target)
    kinds = (*ALLOWED, DdlKind.CREATE_TABLE) if entry.is_alone or not entry.after else ALLOWED
    routed: list[str] = []
    for text in texts:
        try:
            for one in split(text, mode):
                ddl = read(one, mode, target.schema)
                _check(lock, ddl, kinds, names)
                if not (is_described or routed or ddl.kind is DdlKind.CREATE_TABLE):
                    raise NewShardUndescribed(lock, str(entry.shard), ddl.text)
                routed.append(_if_not_exists(retarget(replace(ddl, dropped_keys=()), names), ddl))
        except DdlUnreadable as error:
            raise ReplacementRefused(lock, " ".join(text.split()), error.message) from error
    if not routed:
        raise ReplacementRefused(lock, "", "there is no statement")
    return tuple(routed), " ; ".join(fingerprint(text, mode) for text in routed)


def split(text: str, sql_mode: int) -> Iterator[str]:
    """Yield the statements of a text, which are separated by semicolons."""
    plain, tokens = tokenize(text, sql_mode, MARIADB)
    begin = 0
    ends = [token.start for token in tokens if token.raw == ";"]
    for end in (*ends, len(plain)):
        if one := plain[begin:end].strip():
            yield one
        begin = end + 1


def _if_not_exists(text: str, ddl: Ddl) -> str:
    """Add IF NOT EXISTS to a CREATE TABLE, so that it does not fail for an existing target."""
    is_bare = ddl.kind is DdlKind.CREATE_TABLE and not ddl.if_not_exists
    return CREATE.sub(r"\1IF NOT EXISTS ", text, count=1) if is_bare else text


def require_kind(lock: str, ddl: Ddl, kinds: tuple[DdlKind, ...] = (*ALLOWED, DdlKind.CREATE_TABLE)) -> None:
    """Raise ReplacementRefused for a statement that can never replace a DDL."""
    if ddl.kind not in kinds:
        why = ddl.reason or f"it is {ddl.kind.value.replace('_', ' ')}, and not a change of a table's structure"
        raise ReplacementRefused(lock, ddl.text, why)


def _check(lock: str, ddl: Ddl, kinds: tuple[DdlKind, ...], names: dict[TableId, TableId]) -> None:
    require_kind(lock, ddl, kinds)
    if ddl.or_replace:
        raise ReplacementRefused(lock, ddl.text, "it drops the rows of a table")
    if ddl.like:
        raise ReplacementRefused(lock, ddl.text, f"write the columns of {ddl.like} instead of LIKE")
    if ddl.of(Role.NEW_NAME):
        raise ReplacementRefused(lock, ddl.text, "it renames a table")
    unrelated = [table for table in ddl.subjects if table not in names]
    if unrelated:
        raise ReplacementRefused(lock, ddl.text, f"{unrelated[0]} is neither the target nor a shard of its group")
