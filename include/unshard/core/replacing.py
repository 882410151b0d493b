"""Statements that an operator writes in place of a DDL: split, checked, and made statements about the target.

They are read in the sql_mode of the DDL that they replace, because they are executed in it. A statement may name the
target or any shard of its group, with or without the target's schema. Only what changes a structure is taken: whether
a statement that changes rows was executed could not be found out after a death. For a shard that was created unlike its
group, CREATE TABLE says what structure it has; the target is made by it only if it is not there.
"""

import re
from collections.abc import Iterable, Iterator

from unshard.core.ddl import Ddl, DdlKind, Role, agreement, read, retarget
from unshard.core.ddltokens import MARIADB, tokenize
from unshard.core.model import TableId
from unshard.core.window import QueueEntry
from unshard.errors.ddl import DdlUnreadable
from unshard.errors.orders import ReplacementRefused

CREATE = re.compile(r"^(\s*create\s+table\s+)", re.IGNORECASE)
TAKEN = (DdlKind.ALTER, DdlKind.INDEX)


def replacing(lock: str, texts: Iterable[str], target: TableId, shards: Iterable[TableId],
              entry: QueueEntry) -> tuple[tuple[str, ...], str]:  # fmt: skip
    """Return the statements as they are executed on the target, and their meaning; raises ReplacementRefused."""
    mode, names = entry.statement.sql_mode, dict.fromkeys([*shards, target], target)
    kinds = (*TAKEN, DdlKind.CREATE_TABLE) if entry.is_alone else TAKEN
    routed: list[str] = []
    for text in texts:
        try:
            for one in split(text, mode):
                ddl = read(one, mode, target.schema)
                _check(lock, ddl, kinds, names)
                routed.append(_harmless(retarget(ddl, names), ddl))
        except DdlUnreadable as error:
            raise ReplacementRefused(lock, " ".join(text.split()), error.message) from error
    if not routed:
        raise ReplacementRefused(lock, "", "there is no statement")
    return tuple(routed), " ; ".join(agreement(text, mode) for text in routed)


def split(text: str, sql_mode: int) -> Iterator[str]:
    """Yield the statements of a text that has semicolons between them."""
    plain, tokens = tokenize(text, sql_mode, MARIADB)
    begin = 0
    ends = [token.start for token in tokens if token.raw == ";"]
    for end in (*ends, len(plain)):
        if one := plain[begin:end].strip():
            yield one
        begin = end + 1


def _harmless(text: str, ddl: Ddl) -> str:
    """Let CREATE TABLE leave a target alone that exists."""
    is_bare = ddl.kind is DdlKind.CREATE_TABLE and not ddl.if_not_exists
    return CREATE.sub(r"\1IF NOT EXISTS ", text, count=1) if is_bare else text


def require_kind(lock: str, ddl: Ddl, kinds: tuple[DdlKind, ...] = (*TAKEN, DdlKind.CREATE_TABLE)) -> None:
    """Refuse a statement that can replace no DDL at all."""
    if ddl.kind not in kinds:
        why = ddl.reason or f"it is {ddl.kind.value.replace('_', ' ')}, and not a change of a table's structure"
        raise ReplacementRefused(lock, ddl.text, why)


def _check(lock: str, ddl: Ddl, kinds: tuple[DdlKind, ...], names: dict[TableId, TableId]) -> None:
    require_kind(lock, ddl, kinds)
    if ddl.or_replace:
        raise ReplacementRefused(lock, ddl.text, "it drops the rows of a table")
    if ddl.of(Role.NEW_NAME):
        raise ReplacementRefused(lock, ddl.text, "it renames a table")
    strange = [table for table in ddl.subjects if table not in names]
    if strange:
        raise ReplacementRefused(lock, ddl.text, f"{strange[0]} is neither the target nor a shard of its group")
